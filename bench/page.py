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
        lines += copies(folder)
    return "\n".join([*lines, READING.strip(), "", *benches()])


if __name__ == "__main__":
    text = page().rstrip() + "\n"
    if "--check" in sys.argv[1:]:
        sys.exit(0 if PAGE.read_text() == text else f"{PAGE} is old: run bench/page.py")
    PAGE.write_text(text)
