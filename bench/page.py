#!/usr/bin/env python3
"""Writes docs/performance.md from what was measured.

    bench/peers.sh --cells full --out bench/measured/get    # runs it: peers.csv, about.json
    bench/page.py                                           # writes the page
    bench/page.py --check                                   # fails if the page is not that

Each folder of bench/measured has a peers.csv and, in about.json, the date, the commit and the
machine. benches.csv has the results of single benchmarks, a line each.
"""

import csv
import json
import sys
from itertools import groupby
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "peers"))
import report  # noqa: E402

PAGE = HERE.parent / "docs/performance.md"
MEASURED = HERE / "measured"
HEAD = """# Performance

Written by `bench/page.py` from `bench/measured`; `bench/README.md` describes the test-bed.
One sender and N receivers in namespaces on a bridge share the machine's cores, so only ratios within a
row mean something: its speed varies by a third from hour to hour. *sent* is what the sender's interface
sent, with all headers, over the size of the file; headers alone are 1.048.
"""
READING = """
What limits: with one receiver and no loss nearly all of the time is the kernel's, which cuts batches into
packets where offload is off. TCP is faster there, since the kernel hands it whole segments and the bridge
is memory. `send` joins receivers, searches parents and computes digests within the time; `get`'s server
has done so before. With 16 receivers both cores are busy all the time. A link of 100 Mbit/s with a queue of
100 packets carries 50 MB by `send` at its default rate to four receivers in 4.4 to 4.5 s (4.2 are ideal).
"""
PATHS = """All receivers are behind one link with a queue that drops at its end; some three seconds of data, at
least 1 MB. *By hand*: the best of rates of 98 and 95 % of what the link carries (1000 Mbit/s: 98, 60, 30 %)."""
SLOW = """One receiver of 16 is behind a link of its own with a queue of 100 packets; all are behind 200 Mbit/s."""
SHARE = """`serve` to two receivers, beside TCP flows to one of them: Mbit/s with all headers on a link of 50 Mbit/s
with a queue of 100 packets, over 20 s."""


def copies(folder):
    """The tables of one folder."""
    about = json.loads((folder / "about.json").read_text())
    cells = report.Cells(folder / "peers.csv")
    lines = [f"## One file to N receivers: {folder.name}", ""]
    lines += [f"{about['note']}. {about['date']}, commit {about['commit']}, {about['machine']}.", ""]
    for offload, shaped in cells.variants():
        chosen = [cell for cell in cells.cells if cell[:2] == (offload, shaped)]
        tools = [tool for tool in cells.tools if any(tool in cells.cells[cell] for cell in chosen)]
        link = f", sender's link at {shaped} Mbit/s" if int(shaped) else ""
        lines += [f"Seconds, segmentation offload {offload}{link}:", ""]
        rows = []
        for cell in chosen:
            measured = cells.cells[cell]
            texts = [measured[tool].text("wall_s") if tool in measured else "" for tool in tools]
            rows.append([*report.head(cell), *texts, sent(cells, cell)])
        lines += compact(["N", "loss", "size", *tools, "sent"], rows) + [""]
    return lines


def sent(cells, cell):
    """Bytes sent per byte of the file by the tool of ours that was counted."""
    for tool in (report.UMBEL_SEND, report.UMBEL):
        rows = cells.cells[cell][tool].good if tool in cells.cells[cell] else []
        if any(row["sent_per_byte"] for row in rows):
            return report.short(cells.median(cell, tool, "sent_per_byte"))
    return ""


def compact(header, rows):
    """A table without the spaces that only its source would show."""
    return ["|" + "|".join(cells) + "|" for cells in (header, ["---"] * len(header), *rows)]


def read(path):
    with open(path, newline="") as table:
        return list(csv.DictReader(table))


def network(folder):
    """The tables of bench/network.sh."""
    about = json.loads((folder / "about.json").read_text())
    lines = ["## Without a rate on narrow networks", ""]
    lines += [f"{about['note']}. {about['date']}, commit {about['commit']}, {about['machine']}.", ""]
    lines += [PATHS, "", *paths(read(folder / "paths.csv")), ""]
    lines += [SLOW, "", *slow(read(folder / "slow.csv")), ""]
    lines += [SHARE, "", *shares(read(folder / "share.csv")), ""]
    return lines


def paths(rows):
    """A line for each path: what was found, beside the best that was set."""
    cells = {}
    for row in rows:
        cell = tuple(row[name] for name in ("mbit", "queue_packets", "receivers", "loss_percent"))
        cells.setdefault(cell, {}).setdefault(row["tool"], []).append(row)
    lines = []
    for (mbit, queue, receivers, loss), tools in cells.items():
        line = [f"{mbit} Mbit/s", queue, receivers, f"{loss} %"]
        for tool in ("get", "send"):
            found = next(row for row in tools[tool] if row["rate"] == "auto")
            good = [row for row in tools[tool] if row["rate"] != "auto" and row["result"] == "ok"]
            best = min(good, key=lambda row: float(row["wall_s"]), default=None)
            line += [seconds(found), seconds(best), times(found), times(best)]
        lines.append(line)
    header = ["path", "queue", "N", "loss"]
    for tool in ("get", "send"):
        header += [f"{tool}, s", "by hand", "sent", "by hand"]
    return compact(header, lines)


def seconds(row):
    return "fails" if row is None or row["result"] != "ok" else report.short(float(row["wall_s"]))


def times(row):
    return "" if row is None else report.short(float(row["sent_per_byte"]))


def slow(rows):
    alike = {(row["tool"], row["size_bytes"]): row for row in rows if not row["slow_mbit"]}
    lines = []
    for row in rows:
        if row["slow_mbit"]:
            same = alike[row["tool"], row["size_bytes"]]
            size = int(row["size_bytes"])
            ideal = size * 8 / 1e6 / int(row["slow_mbit"])
            lines.append([row["tool"], f"{row['slow_mbit']} Mbit/s", report.size_text(size),
                          row["others_s"], same["others_s"],
                          row["slow_s"] if row["result"] == "ok" else "fails",
                          report.short(ideal), times(row)])
    return compact(["", "slow link", "size", "others, s", "if all are alike", "slow one, s",
                    "its link's time", "sent"], lines)


def shares(rows):
    lines = []
    for row in rows:
        ours, all_tcp, flows = float(row["umbel_mbit_s"]), float(row["tcp_mbit_s"]), int(row["flows"])
        each = all_tcp / flows if flows else 0
        total = ours + all_tcp
        squares = ours ** 2 + flows * each ** 2
        jain = total ** 2 / ((flows + 1) * squares)
        lines.append([f"`{row['share']}`", row["flows"], row["congestion_control"] if flows else "",
                      report.short(ours), report.short(each) if flows else "",
                      report.short(jain) if flows else ""])
    return compact(["share", "flows", "", "umbel, Mbit/s", "each flow", "Jain index"], lines)


def benches():
    lines = []
    with open(MEASURED / "benches.csv", newline="") as table:
        for group, rows in groupby(csv.DictReader(table), key=lambda row: row["group"]):
            texts = [[row["what"], row["result"], f"`{row['by']}`, {row['date']}"] for row in rows]
            lines += [f"## {group}", "", *compact(["what", "result", "by"], texts), ""]
    return lines


def page():
    folders = sorted(path.parent for path in MEASURED.glob("*/about.json"))
    lines = [HEAD]
    for folder in folders:
        lines += network(folder) if (folder / "paths.csv").exists() else copies(folder)
    return "\n".join([*lines, READING.strip(), "", *benches()])


if __name__ == "__main__":
    text = page().rstrip() + "\n"
    if "--check" in sys.argv[1:]:
        sys.exit(0 if PAGE.read_text() == text else f"{PAGE} is old: run bench/page.py")
    PAGE.write_text(text)
