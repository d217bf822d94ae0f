"""Entry point of bench/network.sh: umbel without `--rate` where networks are narrow.

    paths    one narrow path before all receivers, beside rates set by hand
    slow     one receiver of 16 behind a narrow link of its own
    share    one narrow path, shared with TCP flows

Each writes OUT/NAME.csv, a line for each run. It starts itself again within namespaces (main.py).
"""

import argparse
import csv
import json
import signal
import subprocess
import sys
import time
from itertools import product
from pathlib import Path

from copy_run import Copy
from main import (MB, MEMORY, complain, enter, make_source, mount_memory, note, numbers, programs,
                  what_is_lacking, words, write_about)
from testbed import LINK, Bottleneck, TestBed, inside, receiver_address, run
from tools import HEADERS, PAYLOAD, umbel, umbel_send

FASTEST = 1000
# Parts of what a path carries of payload, as rates set by hand.
HAND = (0.98, 0.95)
# Where the machine's cores are slower than the path, too.
HAND_FASTEST = (0.98, 0.6, 0.3)
TCP_PORT = 5001
PATHS = ["tool", "mbit", "queue_packets", "receivers", "loss_percent", "size_bytes", "rate",
         "result", "wall_s", "sent_per_byte"]
SLOW = ["tool", "slow_mbit", "size_bytes", "result", "others_s", "slow_s", "sent_per_byte"]
SHARE = ["share", "congestion_control", "flows", "seconds", "umbel_mbit_s", "tcp_mbit_s"]


def main():
    options = arguments()
    if options.inside:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        mount_memory()
        table = options.out / f"{options.what}.csv"
        columns, rows = {"paths": (PATHS, paths), "slow": (SLOW, slow),
                         "share": (SHARE, share)}[options.what]
        with open(table, "w", newline="") as out:
            writer = csv.DictWriter(out, columns)
            writer.writeheader()
            for row in rows(options, json.loads(options.inside)):
                note("  ".join(f"{name}={value}" for name, value in row.items()))
                writer.writerow(row)
                out.flush()
        write_about(options.out, "One run of each")
        return 0
    if lacking := what_is_lacking():
        return complain(lacking)
    options.out.mkdir(parents=True, exist_ok=True)
    options.only = ["umbel"]
    return enter(__file__, programs(options))


def arguments():
    parser = argparse.ArgumentParser(
        prog="bench/network.sh",
        description="Measures umbel without --rate where networks are narrow.",
    )
    parser.add_argument("what", choices=["paths", "slow", "share"])
    parser.add_argument("--out", type=Path, default=Path("bench/results"), metavar="DIR")
    parser.add_argument("--umbel", type=Path, metavar="PATH", help="binary; built if not given")
    parser.add_argument("--blast", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--mbit", type=numbers, metavar="MBIT,…", help="rates of the path or link")
    parser.add_argument("--queue", type=numbers, metavar="PACKETS,…", help="paths: its queues")
    parser.add_argument("--receivers", type=numbers, default=[1, 4, 16], metavar="N,…")
    parser.add_argument("--loss", type=numbers, default=[0, 1], metavar="PERCENT,…")
    parser.add_argument("--share", type=words, default=["fair", "background"], metavar="SHARE,…")
    parser.add_argument("--flows", type=numbers, default=[0, 1, 4, 16], metavar="N,…")
    parser.add_argument("--seconds", type=int, default=60, help="share: how long is counted")
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    return parser.parse_args()


# One narrow path --------------------------------------------------------------------------------

def paths(options, found):
    """Both ways of sending, at the rate that is found and at rates set by hand."""
    for mbit, receivers in product(options.mbit or [1, 8, 100, 200, FASTEST], options.receivers):
        queues = options.queue or ([20, 100, 1000] if receivers == 4 else [100])
        for queue, loss in product(queues, options.loss):
            bottleneck = Bottleneck(mbit, queue)
            with TestBed(receivers, loss, offload=False, path=bottleneck) as bed:
                # Some three seconds.
                source = make_source(max(min(mbit * 375_000, 100 * MB), MB))
                for name, recipe in (("get", umbel), ("send", umbel_send)):
                    for rate in (None, *by_hand(mbit)):
                        yield path_row(bed, bottleneck, source, name, recipe, rate, found)


def by_hand(mbit):
    """Payload rates in Mbit/s that somebody would set who knows the path."""
    payload = mbit * PAYLOAD / (PAYLOAD + HEADERS)
    return [round(payload * part, 2) for part in (HAND_FASTEST if mbit == FASTEST else HAND)]


def path_row(bed, bottleneck, source, name, recipe, rate, found):
    size = source.stat().st_size
    patience = 20 + 5 * size * 8 / 1e6 / bottleneck.mbit
    outcome = Copy(bed, source, MEMORY / "run", patience).measure(recipe(found, {"rate": rate}))
    return {
        "tool": name, "mbit": bottleneck.mbit, "queue_packets": bottleneck.queue_packets,
        "receivers": len(bed.receivers), "loss_percent": bed.loss_percent, "size_bytes": size,
        "rate": rate or "auto", **result(outcome, size), "wall_s": f"{outcome.wall_s:.3f}",
    }


def result(outcome, size):
    return {"result": f"fails: {outcome.failure}" if outcome.failure else "ok",
            "sent_per_byte": f"{outcome.sent_bytes / size:.3f}"}


# One slow receiver ------------------------------------------------------------------------------

# What one slow receiver of 16 needs for it takes some ten seconds, the others one or more.
SLOW_SIZES = {1: 5 * MB, 10: 20 * MB, 100: 100 * MB}
ALL_MBIT, ALL_QUEUE = 200, 100


def slow(options, found):
    """15 receivers share a path of 200 Mbit/s with one whose own link carries less."""
    ways = {"get": umbel, **{
        f"send, {recovery}": lambda programs, setting, recovery=recovery: umbel_send(
            programs, setting, own=lambda _, number: () if number is not None
            else ("--recovery", recovery))
        for recovery in ("tree", "srm", "lms", "source")
    }}
    for mbit in options.mbit or SLOW_SIZES:
        for narrow in (False, True):
            path = Bottleneck(ALL_MBIT, ALL_QUEUE)
            with TestBed(16, 0, offload=False, path=path) as bed:
                if narrow:
                    bed.narrow(0, Bottleneck(mbit, ALL_QUEUE))
                size = SLOW_SIZES.get(mbit, 20 * MB)
                source = make_source(size)
                for name, recipe in ways.items():
                    outcome = Copy(bed, source, MEMORY / "run", 60 + 5 * size * 8 / 1e6 / mbit
                                   ).measure(recipe(found, {"rate": None}))
                    others = [outcome.done_s.get(number, 0) for number in range(1, 16)]
                    yield {
                        "tool": name, "slow_mbit": mbit if narrow else "", "size_bytes": size,
                        **result(outcome, size), "others_s": f"{max(others):.3f}",
                        "slow_s": f"{outcome.done_s.get(0, 0):.3f}",
                    }


# Beside TCP -------------------------------------------------------------------------------------

SHARED_MBIT, SHARED_QUEUE = 50, 100
# What passes before the counting begins.
WARM_UP_S = 10
TCP_SINK = f"""
import socket, threading
listener = socket.create_server(("", {TCP_PORT}))
def drain(flow):
    while flow.recv(1 << 16): pass
while True:
    threading.Thread(target=drain, args=listener.accept()[:1], daemon=True).start()
"""
TCP_SOURCE = f"""
import socket, sys, threading
def flow():
    with socket.socket() as out:
        out.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, sys.argv[1].encode())
        out.connect((sys.argv[3], {TCP_PORT}))
        try:
            while True: out.send(bytes(1 << 16))
        except ConnectionError:
            pass
for _ in range(int(sys.argv[2])): threading.Thread(target=flow).start()
"""


def share(options, found):
    """`serve` to two receivers beside TCP flows to one of them, over one path of 50 Mbit/s."""
    for part, flows in product(options.share, options.flows):
        for congestion in ("cubic", "bbr") if flows else ("cubic",):
            path = Bottleneck(SHARED_MBIT, SHARED_QUEUE)
            with TestBed(2, 0, offload=False, path=path) as bed:
                umbel_mbit, tcp_mbit = share_once(bed, options, found, part, congestion, flows)
            yield {"share": part, "congestion_control": congestion, "flows": flows,
                   "seconds": options.seconds, "umbel_mbit_s": f"{umbel_mbit:.2f}",
                   "tcp_mbit_s": f"{tcp_mbit:.2f}"}


def share_once(bed, options, found, part, congestion, flows):
    """Mbit/s of umbel and of all TCP flows together, with all headers."""
    source = make_source(SHARED_MBIT * (WARM_UP_S + options.seconds + 10) * MB // 8)
    copy = Copy(bed, source, MEMORY / "run", 20)
    copy.prepare()
    tcp = []
    try:
        tcp.append(subprocess.Popen([*inside("r1"), sys.executable, "-c", TCP_SINK]))
        umbel(found, {"rate": None}, "--share", part)(copy)
        copy.start()
        if flows:
            tcp.append(subprocess.Popen([*inside("s"), sys.executable, "-c", TCP_SOURCE,
                                         congestion, str(flows), receiver_address(1)]))
        time.sleep(WARM_UP_S)
        before, start = received(), time.monotonic()
        time.sleep(options.seconds)
        after, seconds = received(), time.monotonic() - start
    finally:
        for process in tcp:
            process.kill()
            process.wait()
        copy.end()
    # Multicast goes to both, TCP to one.
    multicast, both = (number - old for number, old in zip(after, before))
    return [count * 8 / 1e6 / seconds for count in (multicast, both - multicast)]


def received():
    """Bytes that each of the two receivers has received."""
    counts = []
    for host in ("r0", "r1"):
        link = json.loads(run("ip", "-n", host, "-s", "-j", "link", "show", "dev", LINK))
        counts.append(link[0]["stats64"]["rx"]["bytes"])
    return counts


if __name__ == "__main__":
    sys.exit(main())
