"""Entry point of bench/peers.sh: builds, enters namespaces, runs all cells, writes the results.

It starts itself again within namespaces of its own for mounts, network and processes. When that
second process ends, for whatever reason, the kernel ends everything in them: tools, test-bed and
the files in memory.
"""

import argparse
import csv
import datetime
import json
import math
import os
import platform
import shutil
import signal
import statistics
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import report
from copy_run import Copy
from testbed import TestBed, run
from tools import BLAST_S, CEILING, TOOLS, Cell, blast_mbit

ROOT = Path(__file__).resolve().parents[2]
MEMORY = Path("/dev/shm")
KB, MB, GB = 10**3, 10**6, 10**9
# The size at which settings are compared; other sizes use the one found best.
TUNING_SIZE = 100 * MB
# Small files are copied in no time: so many runs at least. Large ones take long and vary little.
SMALL, SMALL_RUNS = MB, 5
LARGE, LARGE_RUNS = 500 * MB, 1
BASE_NEEDS = {
    "ip": "iproute2", "tc": "iproute2", "nft": "nftables", "ethtool": "ethtool", "sysctl": "procps",
    "unshare": "util-linux", "nsenter": "util-linux", "cmp": "diffutils",
}


def main():
    options = arguments()
    if options.inside:
        return measure(options, json.loads(options.inside))
    if options.report:
        print(report.markdown(options.report))
        return 0
    if lacking := what_is_lacking():
        return complain(lacking)
    options.out.mkdir(parents=True, exist_ok=True)
    return enter(__file__, programs(options))


def what_is_lacking():
    """Why nothing can be measured here; empty if it can."""
    if os.geteuid() != 0:
        return "it makes network namespaces and large socket buffers: run it as root"
    missing = [f"{name} (apt install {package})" for name, package in BASE_NEEDS.items()
               if not shutil.which(name)]
    return f"missing: {', '.join(missing)}" if missing else ""


def arguments():
    parser = argparse.ArgumentParser(
        prog="bench/peers.sh",
        description="Measures umbel beside other tools that copy one file to many receivers.",
    )
    names = [tool.name for tool in TOOLS]
    parser.add_argument("--cells", choices=["quick", "full"], default="quick")
    usual = [tool.name for tool in TOOLS if not tool.on_request]
    parser.add_argument("--only", type=words, default=usual, metavar="TOOL,…",
                        help=f"of {', '.join(names)}; the ceiling is always measured")
    parser.add_argument("--runs", type=int, help="of each cell (quick: 2, full: 3)")
    parser.add_argument("--out", type=Path, default=Path("bench/results"), metavar="DIR")
    parser.add_argument("--umbel", type=Path, metavar="PATH", help="binary; built if not given")
    parser.add_argument("--blast", type=Path, metavar="PATH", help="binary; built if not given")
    parser.add_argument("--timeout", type=float, metavar="SECONDS", help="of every copy")
    parser.add_argument("--report", type=Path, metavar="CSV", help="only print its tables again")
    cells = parser.add_argument_group("cells of your own, in place of those of --cells")
    cells.add_argument("--receivers", type=numbers, metavar="N,…")
    cells.add_argument("--loss", type=numbers, metavar="PERCENT,…")
    cells.add_argument("--sizes", type=sizes, metavar="SIZE,…", help="such as 1K,100M,1G")
    cells.add_argument("--offload", type=words, metavar="on,off")
    cells.add_argument("--shaped", type=int, metavar="MBIT", help="shape the sender's link to this")
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if unknown := set(options.only) - set(names):
        parser.error(f"unknown tool: {', '.join(sorted(unknown))}")
    options.runs = options.runs or {"quick": 2, "full": 3}[options.cells]
    return options


def words(text):
    return text.split(",")


def numbers(text):
    return [float(word) if "." in word else int(word) for word in text.split(",")]


def sizes(text):
    units = {"K": KB, "M": MB, "G": GB}
    return [int(word[:-1]) * units[word[-1]] if word[-1] in units else int(word)
            for word in text.upper().split(",")]


def complain(what):
    print(f"bench: {what}", file=sys.stderr)
    return 1


def note(what):
    print(what, file=sys.stderr, flush=True)


# Programs ---------------------------------------------------------------------------------------

def programs(options):
    """Paths of the programs that are needed, by name; those that are missing are not in it."""
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve()
    ours = target / "peers"
    ours.mkdir(parents=True, exist_ok=True)
    flute = ROOT / "bench/peers/flute-copy/Cargo.toml"
    norm = ROOT / "bench/peers/norm_copy.cpp"
    cargo = ["cargo", "build", "--release", "--locked"]
    builds = {
        "umbel": (options.umbel, target / "release/umbel", [*cargo, "-p", "umbel"]),
        "blast": (options.blast, target / "release/examples/blast",
                  [*cargo, "-p", "umbel-net", "--example", "blast"]),
        "norm_copy": (None, ours / "norm_copy",
                      ["g++", "-O2", "-Wall", "-o", ours / "norm_copy", norm, "-lnorm"]),
        "flute-copy": (None, ours / "flute-copy/release/flute-copy",
                       [*cargo, "--manifest-path", flute, "--target-dir", ours / "flute-copy"]),
    }
    found = {}
    chosen = [tool for tool in TOOLS if tool.name in options.only]
    for name in sorted({name for tool in (CEILING, *chosen) for name in tool.needs}):
        path = build(*builds[name]) if name in builds else shutil.which(name)
        if path:
            found[name] = str(Path(path).resolve())
    for tool in (CEILING, *chosen):
        for name in sorted(set(tool.needs) - set(found)):
            hint = f" (apt install {tool.needs[name]})" if tool.needs[name] else ""
            note(f"SKIPPED {tool.name}: {name} is missing{hint}")
    return found


def build(given, made, command):
    """The program at `given`, or else the one that `command` makes; `None` if there is none."""
    if given:
        return given if given.exists() else None
    note(f"building {made.name}")
    try:
        built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    except FileNotFoundError:
        return None
    if built.returncode:
        note(built.stderr[-2000:])
    return made if built.returncode == 0 else None


def enter(script, found):
    """Goes on with `script` in namespaces of its own; see the top of this file."""
    child = subprocess.Popen([
        "unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc",
        sys.executable, "-B", script, *sys.argv[1:], "--inside", json.dumps(found),
    ])
    # Ctrl-C reaches the child by itself: it still writes its tables.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: child.kill())
    return child.wait()


# Cells ------------------------------------------------------------------------------------------

def groups(options):
    """What is measured: each test-bed, and the sizes of the files copied on it."""
    own = [options.receivers, options.loss, options.sizes, options.offload, options.shaped]
    if any(value is not None for value in own):
        return grid(options.receivers or [1, 4, 16], options.loss or [0],
                    options.sizes or [TUNING_SIZE], options.offload or ["off"], options.shaped or 0)
    if options.cells == "quick":
        return grid([1, 4, 16], [0, 5, 20], [TUNING_SIZE], ["off"], 0)
    return [
        *grid([1, 4, 16], [0, 1, 5, 20], [KB, 100 * MB, GB], ["off"], 0),
        *grid([1, 4, 16], [0], [KB, 100 * MB, GB], ["on"], 0),
        *grid([4, 16], [0, 1], [20 * MB], ["off"], 200),
    ]


def grid(receivers, losses, file_sizes, offloads, shaped):
    """All combinations; sizes nearest to the tuning size first."""
    file_sizes = sorted(file_sizes, key=lambda size: abs(math.log(max(size, 1) / TUNING_SIZE)))
    return [
        (Cell(count, loss, offload == "on", shaped), file_sizes)
        for offload in offloads for count in receivers for loss in losses
    ]


# Measuring --------------------------------------------------------------------------------------

def measure(options, found):
    # Set even where the shell had it ignored, as it does for commands in the background.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    mount_memory()
    table = options.out / "peers.csv"
    tools = [tool for tool in TOOLS if tool.name in options.only and set(tool.needs) <= set(found)]
    with open(table, "w", newline="") as out:
        writer = csv.DictWriter(out, report.COLUMNS)
        writer.writeheader()
        try:
            for cell, file_sizes in groups(options):
                with TestBed(
                    cell.receivers, cell.loss_percent, cell.offload, cell.shaped_mbit
                ) as bed:
                    for row in measure_group(bed, cell, file_sizes, tools, found, options):
                        writer.writerow(row)
                        out.flush()
        except KeyboardInterrupt:
            note("interrupted; the tables hold what was measured")
    names = ", ".join(tool.name for tool in tools)
    write_about(options.out, f"Medians of the best setting of {names}")
    (options.out / "peers.md").write_text(report.markdown(table))
    note(f"{table}, {options.out / 'peers.md'}")
    return 0


def write_about(folder, what):
    """Writes what `bench/page.py` says beside the tables: when, of which commit, on which machine."""
    commit = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT,
                            capture_output=True, text=True).stdout.strip()
    machine = f"{os.cpu_count()} × {report.processor()}, Linux {platform.release()}"
    about = {"date": f"{datetime.date.today()}", "commit": commit, "machine": machine, "note": what}
    (folder / "about.json").write_text(json.dumps(about, indent=1) + "\n")


def mount_memory():
    """File systems in memory that only we see: names of namespaces, and the files."""
    run("mount", "-t", "tmpfs", "tmpfs", "/run")
    Path("/run/netns").mkdir()
    run("mount", "-t", "tmpfs", "-o", "size=95%", "tmpfs", MEMORY)


def measure_group(bed, cell, file_sizes, tools, found, options):
    """All rows of one test-bed."""
    ceilings = []
    if set(CEILING.needs) <= set(found):
        for number in range(options.runs):
            outcome = Copy(bed, "/dev/null", MEMORY / "run", 20).measure(
                CEILING.recipe(found, {}), verify=False)
            ceilings.append(blast_mbit(outcome))
            yield row(CEILING, {}, cell, number, outcome, ceilings[-1])
    ceiling = statistics.median(ceilings or [0]) / (1 - cell.loss_percent / 100)
    best = {}
    for size in file_sizes:
        cell = replace(cell, size=size, ceiling_mbit=ceiling)
        if not fits(cell):
            note(f"SKIPPED {report.describe(cell)}: not enough memory for {cell.receivers} copies")
            continue
        source = make_source(size)
        for tool in tools:
            if "umbel" in tool.needs and not ceiling and not cell.shaped_mbit:
                note(f"SKIPPED {tool.name}: its rates are parts of the ceiling, which is not known")
                continue
            yield from measure_tool(tool, bed, cell, source, best, found, options)
        source.unlink()


def measure_tool(tool, bed, cell, source, best, found, options):
    """Tries the tool's settings, and repeats the fastest; `best` keeps it for other sizes."""
    runs = runs_of(cell, options)
    timeout = options.timeout or patience(cell)
    settings = [best[tool.name]] if tool.name in best else tool.settings(cell)
    walls = {}
    for number in range(len(settings) - 1 + runs):
        if number < len(settings):
            setting = settings[number]
        elif not walls:
            # Every setting has failed: one more chance for the first, no more.
            if number > len(settings):
                return
            setting = settings[0]
        else:
            setting = best[tool.name]
        outcome = Copy(bed, source, MEMORY / "run", timeout).measure(tool.recipe(found, setting))
        keep_logs(options.out, tool, cell, number, outcome)
        goodput = cell.size * 8 / 1e6 / outcome.wall_s if outcome.wall_s else 0
        yield row(tool, setting, cell, number, outcome, goodput)
        if not outcome.failure and number < len(settings):
            walls[outcome.wall_s] = setting
            best[tool.name] = walls[min(walls)]


def runs_of(cell, options):
    if cell.size <= SMALL:
        return max(options.runs, SMALL_RUNS)
    return min(options.runs, LARGE_RUNS) if cell.size >= LARGE else options.runs


def patience(cell):
    """After how many seconds a copy has failed: some five times what a slow peer takes."""
    if cell.shaped_mbit:
        return 20 + cell.receivers * cell.size * 8 / 1e6 / cell.shaped_mbit * 2
    return 20 + cell.size / MB * (0.05 + 0.02 * cell.receivers)


def fits(cell):
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return cell.size * (cell.receivers + 1) < int(line.split()[1]) * 1024 * 0.85
    return True


def make_source(size):
    source = MEMORY / "source" / "file.bin"
    source.parent.mkdir(exist_ok=True)
    with open(source, "wb") as out:
        for start in range(0, size, MB):
            out.write(os.urandom(min(MB, size - start)))
    return source


def keep_logs(out, tool, cell, number, outcome):
    """Keeps what the processes of a failed copy printed."""
    if outcome.failure:
        where = "-".join(report.describe(cell).split())
        logs = out / "failed" / f"{where}-{tool.name}-{number}".replace("/", "_")
        logs.mkdir(parents=True, exist_ok=True)
        for host, text in outcome.logs.items():
            (logs / f"{host}.log").write_text(text)


def row(tool, setting, cell, number, outcome, goodput):
    """A line of the CSV file; it is said on the terminal as well."""
    text = " ".join(f"{name}={value}" for name, value in setting.items())
    result = "fails: " + outcome.failure if outcome.failure else "ok"
    note(f"{report.describe(cell)}  {tool.name:12} {text:34} "
         f"{outcome.wall_s:8.3f} s {goodput:8.1f} Mbit/s  {result}")
    sent_per_byte = outcome.sent_bytes / cell.size if cell.size else 0
    return {
        "tool": tool.name, "setting": text, "receivers": cell.receivers,
        "loss_percent": cell.loss_percent, "offload": "on" if cell.offload else "off",
        "shaped_mbit": cell.shaped_mbit, "size_bytes": cell.size, "run": number, "result": result,
        "wall_s": f"{outcome.wall_s if tool is not CEILING else BLAST_S:.4f}",
        "goodput_mbit_s": f"{goodput:.1f}",
        "sender_cpu_s": f"{outcome.sender_cpu_s:.4f}",
        "receivers_cpu_s": f"{outcome.receivers_cpu_s:.4f}",
        "sent_bytes": outcome.sent_bytes, "sent_per_byte": f"{sent_per_byte:.4f}",
    }


if __name__ == "__main__":
    sys.exit(main())
