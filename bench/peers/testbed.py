"""The test-bed: one sender and N receivers on a Linux bridge, each in a network namespace.

Everything lives in the caller's own mount, network and process namespaces (see main.py), so that
nothing is left behind whatever happens.
"""

import json
import subprocess
from dataclasses import dataclass

SENDER = "10.77.0.1"
LINK = "eth0"
# With these off, each packet crosses the veth pair by itself.
OFFLOADS = ("tx-udp-segmentation", "gso", "tso", "gro")


def receiver_address(number):
    """The address of receiver `number`, which counts from 0."""
    return f"10.77.0.{10 + number}"


def run(*command, stdin=None):
    """Runs a command that must succeed, and returns what it printed."""
    done = subprocess.run(command, input=stdin, text=True, capture_output=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


def inside(host):
    """The words that run a command in the namespace of `host`."""
    return ["nsenter", f"--net=/run/netns/{host}"]


@dataclass(frozen=True)
class Bottleneck:
    """A narrow place behind the hosts' links: a token bucket, and a queue that drops at its end."""

    mbit: int
    queue_packets: int

    def shape(self, device, host="sw"):
        """Shapes what `device` in `host` sends."""
        # What passes in 0.2 ms, which timers still divide, and at least two packets.
        burst = max(3100, self.mbit * 25)
        run(*inside(host), "tc", "qdisc", "add", "dev", device, "root", "tbf",
            "rate", f"{self.mbit}mbit", "burst", str(burst), "limit", str(self.queue_packets * 1514))


class TestBed:
    """A bridge `sw` with the hosts `s` and `r0`, `r1`, …; use it in a `with` statement.

    With a `path`, the sender is on a bridge of its own, and that bottleneck is between the bridges.
    """

    def __init__(self, receivers, loss_percent, offload, shaped_mbit=0, path=None):
        self.receivers = [f"r{number}" for number in range(receivers)]
        self.loss_percent = loss_percent
        self.offload = offload
        self.shaped_mbit = shaped_mbit
        self.path = path

    def __enter__(self):
        run("ip", "netns", "add", "sw")
        # Bridged packets are not to pass the host's packet filter.
        for family in ("iptables", "ip6tables", "arptables"):
            subprocess.run(
                [*inside("sw"), "sysctl", "-qw", f"net.bridge.bridge-nf-call-{family}=0"],
                capture_output=True,
            )
        # No snooping: there is no querier, and every receiver wants everything.
        self._add_bridge("sw0")
        if self.path:
            self._add_path()
        self._add_host("s", SENDER, "sw1" if self.path else "sw0")
        for number, host in enumerate(self.receivers):
            self._add_host(host, receiver_address(number), "sw0")
            self._lose(host)
        self._shape()
        return self

    def __exit__(self, *_):
        for host in ("s", *self.receivers, "sw"):
            subprocess.run(["ip", "netns", "delete", host], capture_output=True)

    def _add_bridge(self, name):
        run("ip", "-n", "sw", "link", "add", "name", name, "type", "bridge", "mcast_snooping", "0")
        run("ip", "-n", "sw", "link", "set", "dev", name, "up")

    def _add_path(self):
        """Joins a second bridge to the first, by a link that is narrow towards the first."""
        self._add_bridge("sw1")
        run("ip", "-n", "sw", "link", "add", "near", "type", "veth", "peer", "name", "far")
        for device, bridge in (("near", "sw1"), ("far", "sw0")):
            self._set_offload("sw", device)
            run("ip", "-n", "sw", "link", "set", device, "master", bridge, "up")
        self.path.shape("near")

    def narrow(self, number, bottleneck):
        """Puts receiver `number` behind a bottleneck of its own."""
        bottleneck.shape(f"to-{self.receivers[number]}")

    def _set_offload(self, host, device):
        switch = "on" if self.offload else "off"
        settings = [word for name in OFFLOADS for word in (name, switch)]
        run(*inside(host), "ethtool", "-K", device, *settings)

    def _add_host(self, host, address, bridge):
        run("ip", "netns", "add", host)
        run("ip", "link", "add", LINK, "netns", host, "type", "veth",
            "peer", "name", f"to-{host}", "netns", "sw")
        for place, device in ((host, LINK), ("sw", f"to-{host}")):
            self._set_offload(place, device)
        run("ip", "-n", "sw", "link", "set", f"to-{host}", "master", bridge, "up")
        run("ip", "-n", host, "link", "set", "lo", "up")
        run("ip", "-n", host, "address", "add", f"{address}/24", "broadcast", "+", "dev", LINK)
        run("ip", "-n", host, "link", "set", LINK, "up")
        run("ip", "-n", host, "route", "add", "default", "dev", LINK)

    def _lose(self, host):
        """Drops packets towards `host` at random; ARP is spared, for it is no peer's doing."""
        if not self.loss_percent:
            return
        chance = round(self.loss_percent * 1000)
        run(*inside(host), "nft", "-f", "-", stdin=f"""
            table netdev bench {{
                chain towards {{
                    type filter hook ingress device "{LINK}" priority 0; policy accept;
                    meta protocol {{ ip, ip6 }} numgen random mod 100000 < {chance} drop
                }}
            }}
            """)

    def _shape(self):
        if self.shaped_mbit:
            run(*inside("s"), "tc", "qdisc", "add", "dev", LINK, "root", "tbf",
                "rate", f"{self.shaped_mbit}mbit", "burst", "32k", "latency", "50ms")

    def sent_bytes(self):
        """Bytes that the sender's interface has sent, with all headers, Ethernet's too."""
        link = json.loads(run("ip", "-n", "s", "-s", "-j", "link", "show", "dev", LINK))
        return link[0]["stats64"]["tx"]["bytes"]
