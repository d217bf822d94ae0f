"""The Markdown tables from the CSV file: medians for each cell, and the ratios that matter."""

import csv
import os
import platform
import statistics
from collections import defaultdict
from pathlib import Path

COLUMNS = [
    "tool", "setting", "receivers", "loss_percent", "offload", "shaped_mbit", "size_bytes", "run",
    "result", "wall_s", "goodput_mbit_s", "sender_cpu_s", "receivers_cpu_s", "sent_bytes",
    "sent_per_byte",
]
CELL = ["offload", "shaped_mbit", "receivers", "loss_percent", "size_bytes"]
# Other than multicast peers.
UMBEL, UMBEL_SEND, TCP, CEILING = "umbel", "umbel-send", "tcp", "blast"


def describe(cell):
    """A cell in a few words, for the terminal."""
    parts = [f"N={cell.receivers}", f"{cell.loss_percent}%", size_text(cell.size)]
    if cell.offload:
        parts.append("offload")
    if cell.shaped_mbit:
        parts.append(f"{cell.shaped_mbit}Mbit")
    return " ".join(parts).ljust(18)


def size_text(size):
    for unit, factor in (("GB", 10**9), ("MB", 10**6), ("KB", 10**3)):
        if size >= factor:
            return f"{size / factor:g} {unit}"
    return f"{size} B"


class Measured:
    """All runs of one tool in one cell; what counts is the setting that was repeated."""

    def __init__(self, rows):
        by_setting = defaultdict(list)
        for row in rows:
            by_setting[row["setting"]].append(row)
        self.setting = min(by_setting, key=lambda setting: rank(by_setting[setting]))
        self.rows = by_setting[self.setting]
        self.good = [row for row in self.rows if row["result"] == "ok"]

    def median(self, column):
        """The median of the runs that did not fail, or `None`."""
        return statistics.median(float(row[column]) for row in self.good) if self.good else None

    def text(self, column, factor=1.0):
        """The median, and how many runs it is of when some failed."""
        if not self.good:
            return "fails"
        some = f" ({len(self.good)} of {len(self.rows)})" if len(self.good) < len(self.rows) else ""
        return short(self.median(column) * factor) + some


def rank(rows):
    """Settings in order: not failed, most runs, fastest."""
    walls = [float(row["wall_s"]) for row in rows if row["result"] == "ok"]
    return (not walls, -len(rows), min(walls, default=0))


def short(value):
    """Three digits."""
    if value is None:
        return "–"
    if value >= 100:
        return f"{value:.0f}"
    return f"{value:.2f}" if value >= 1 else f"{value:.3f}"


def ratio(over, under):
    return f"{over / under:.2f}" if over and under else "–"


class Cells:
    """All that was measured, by cell and tool."""

    def __init__(self, table):
        rows = defaultdict(lambda: defaultdict(list))
        with open(table, newline="") as lines:
            for row in csv.DictReader(lines):
                rows[tuple(row[name] for name in CELL)][row["tool"]].append(row)
        measured = {cell: {tool: Measured(runs) for tool, runs in tools.items()}
                    for cell, tools in rows.items()}
        # The ceiling belongs to a test-bed, not to a size.
        self.ceilings = {cell[:4]: tools[CEILING].median("goodput_mbit_s")
                         for cell, tools in measured.items() if CEILING in tools}
        self.cells = {cell: tools for cell, tools in sorted(measured.items(), key=order)
                      if CEILING not in tools}
        names = {tool for tools in self.cells.values() for tool in tools}
        ours = sorted(name for name in names if name.startswith(UMBEL))
        self.peers = sorted(names - {*ours, TCP})
        self.tools = [*ours, *self.peers, *({TCP} & names)]

    def variants(self):
        """Offload off, on, and the shaped link: a table each."""
        return list(dict.fromkeys(cell[:2] for cell in self.cells))

    def best_peer(self, cell, column):
        """The least median of any multicast peer."""
        tools = self.cells[cell]
        values = [tools[name].median(column) for name in self.peers if name in tools]
        return min((value for value in values if value is not None), default=None)

    def median(self, cell, tool, column):
        tools = self.cells[cell]
        return tools[tool].median(column) if tool in tools else None


def order(item):
    offload, shaped, receivers, loss, size = item[0]
    return (int(shaped), offload, int(size), int(receivers), float(loss))


def markdown(table):
    """The tables of the CSV file at `table`."""
    cells = Cells(table)
    lines = [f"{platform.system()} {platform.release()}, {os.cpu_count()} × {processor()}.", ""]
    for offload, shaped in cells.variants():
        shape = f", sender's link shaped to {shaped} Mbit/s" if int(shaped) else ""
        chosen = [cell for cell in cells.cells if cell[:2] == (offload, shaped)]
        lines += [f"## Segmentation offload {offload}{shape}", ""]
        lines += ["Seconds from the start to the last receiver that has the whole file.", ""]
        lines += time_table(cells, chosen, int(shaped))
        lines += ["", "Bytes sent by the sender's interface per byte of the file.", ""]
        lines += plain_table(cells, chosen, lambda measured, _: measured.text("sent_per_byte"))
        lines += ["", "Processor seconds per GB of the file: the sender / each receiver.", ""]
        lines += cpu_table(cells, chosen)
        lines += ["", "Settings.", ""]
        lines += plain_table(cells, chosen, lambda measured, _: measured.setting or "–")
        lines.append("")
    return "\n".join(lines)


def processor():
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def rows_of(header, rows):
    return ["| " + " | ".join(cells) + " |" for cells in (header, ["---"] * len(header), *rows)]


def head(cell):
    _, _, receivers, loss, size = cell
    return [receivers, f"{loss} %", size_text(int(size))]


def plain_table(cells, chosen, text, extra=(), extras=lambda cell: []):
    """A table of one text for each cell and tool, with further columns."""
    rows = []
    for cell in chosen:
        tools = cells.cells[cell]
        texts = [text(tools[name], cell) if name in tools else "–" for name in cells.tools]
        rows.append([*head(cell), *texts, *extras(cell)])
    return rows_of(["N", "loss", "size", *cells.tools, *extra], rows)


def time_table(cells, chosen, shaped_mbit):
    """Seconds; and how many times as fast umbel is as others, which is their time over its own."""
    def extras(cell):
        umbel = cells.median(cell, UMBEL, "wall_s")
        ceiling = cells.ceilings.get(cell[:4])
        columns = [
            ratio(cells.best_peer(cell, "wall_s"), umbel),
            ratio(cells.median(cell, UMBEL, "goodput_mbit_s"), ceiling),
            ratio(cells.median(cell, TCP, "wall_s"), umbel),
            ratio(cells.best_peer(cell, "wall_s"), cells.median(cell, UMBEL_SEND, "wall_s")),
            short(ceiling),
        ]
        if shaped_mbit:
            ideal = int(cell[4]) * 8 / 1e6 / shaped_mbit
            columns += [short(ideal), ratio(umbel, ideal)]
        return columns

    extra = ["umbel/best peer", "umbel/ceiling", "umbel/tcp", "umbel-send/best peer", "ceiling, Mbit/s"]
    if shaped_mbit:
        extra += ["ideal", "umbel's time/ideal"]
    return plain_table(cells, chosen, lambda measured, _: measured.text("wall_s"), extra, extras)


def cpu_table(cells, chosen):
    def text(measured, cell):
        per_gb = 10**9 / max(int(cell[4]), 1)
        receivers = int(cell[2])
        if not measured.good:
            return "fails"
        each = measured.median("receivers_cpu_s") * per_gb / receivers
        return f"{short(measured.median('sender_cpu_s') * per_gb)} / {short(each)}"

    def extras(cell):
        umbel = cells.median(cell, UMBEL, "sender_cpu_s")
        return [ratio(umbel, cells.best_peer(cell, "sender_cpu_s"))]

    large = [cell for cell in chosen if int(cell[4]) > 10**6]
    return plain_table(cells, large, text, ["umbel's sender/least of a peer's"], extras)
