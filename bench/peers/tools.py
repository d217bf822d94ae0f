"""The tools that are measured: what each needs, the settings tried in a cell, how it is started.

A setting is a dict that becomes the column `setting`. Where there are several, each is run once
and the fastest is measured; they are what was found best on this test-bed, with what is next to it.
A recipe starts processes through a `Copy` (copy.py) and returns when a receiver counts as done.
"""

import json
import math
import subprocess
from dataclasses import dataclass
from typing import Callable

from copy_run import Failed, by_exit, by_size
from testbed import LINK, SENDER, receiver_address

GROUP = "239.77.7.7"
PORT = 7777
# Payload of the ceiling's datagrams, and about that of all the others.
PAYLOAD = 1400
TOKEN = "sesame"
# Ethernet, IPv4 and UDP headers of a datagram.
HEADERS = 42
SOCKET_BUFFER = 4 << 20


@dataclass(frozen=True)
class Cell:
    """What is measured together; rates in Mbit/s, `ceiling_mbit` of payload at no loss."""

    receivers: int
    loss_percent: float
    offload: bool
    shaped_mbit: int
    size: int = 0
    ceiling_mbit: float = 0.0

    def rates(self, *parts):
        """Payload rates: parts of the ceiling, or nearly all of a shaped link."""
        if self.shaped_mbit:
            payload = self.shaped_mbit * PAYLOAD / (PAYLOAD + HEADERS)
            return [round(payload * part, 1) for part in (0.99, 0.97, 0.94)]
        return [round(self.ceiling_mbit * part, 1) for part in parts]


@dataclass(frozen=True)
class Tool:
    """One tool, or one way of using it. `needs` maps its programs to Debian packages."""

    name: str
    needs: dict
    settings: Callable
    recipe: Callable
    # Whether it counts among the multicast peers, of which the best is compared with umbel.
    peer: bool = True
    # Whether it is measured only where --only names it.
    on_request: bool = False


def each(copy):
    """The receivers: number, host and where the file goes."""
    for number, host in enumerate(copy.bed.receivers):
        yield number, host, copy.output(number)


# umbel ------------------------------------------------------------------------------------------

def umbel_settings(cell):
    # With offload on, receivers that verify and keep what comes are far from the ceiling.
    parts = (0.6, 0.45, 0.3, 0.2) if cell.offload else (1.25, 1.1, 0.95, 0.8)
    return [{"rate": rate} for rate in cell.rates(*parts)]


def umbel_auto_settings(_cell):
    """The rate that is found."""
    return [{"rate": None}]


def rate_of(setting):
    """The option of the highest rate, where it is set by hand."""
    return ("--rate", f"{setting['rate']}M") if setting["rate"] else ()


def umbel(programs, setting, *options):
    def recipe(copy):
        server = copy.before(
            "s", programs["umbel"], "--json", "serve", copy.source, "--interface", LINK,
            *rate_of(setting), "--state-dir", copy.scratch / "state", *options,
        )
        url = copy.wait_for(lambda: serving_url(server), "line with the event `serving`")
        for _, host, output in each(copy):
            copy.at_start(host, programs["umbel"], "--json", "get", url, "-o", output.parent)
        return by_exit
    return recipe


def serving_url(server):
    """The URL in the server's output, once it is there."""
    if server.ended() is not None:
        raise Failed(f"`umbel serve` ended: {server.log.read_text(errors='replace')[-300:]}")
    for line in server.log.read_text(errors="replace").splitlines():
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if isinstance(event, dict) and event.get("event") == "serving":
            return event["url"]
    return None


def umbel_sealed(programs, setting):
    """`umbel serve --token`: all that is sent by multicast is sealed. The URL has the token."""
    return umbel(programs, setting, "--token", TOKEN)


def umbel_send(programs, setting, options=(), own=lambda copy, number: ()):
    """`umbel send`: receivers wait already, as those of the peers do. Every feed is signed.

    `options` are all programs'; `own` returns those of the sender (number `None`) or one receiver.
    """
    def recipe(copy):
        for number, host, output in each(copy):
            copy.before(host, programs["umbel"], "--json", "recv", "bench", "-o", output.parent,
                        "--interface", LINK, *options, *own(copy, number))
        copy.at_start(
            "s", programs["umbel"], "--json", "send", copy.source, "--name", "bench",
            "--interface", LINK, *rate_of(setting),
            "--wait-for", len(copy.bed.receivers), *options, *own(copy, None),
        )
        return by_exit
    return recipe


def umbel_send_token(programs, setting):
    """The same with a token: the messages of the tree are authentic."""
    return umbel_send(programs, setting, ("--token", TOKEN))


def umbel_send_list(programs, setting):
    """The same for those on a list with keys: the content is sealed, too."""
    def own(copy, number):
        receivers = copy.scratch / "receivers"
        if number is None:
            return "--admit", receivers
        key = copy.scratch / f"key{number}"
        command = [programs["umbel"], "key", "--as", f"r{number}", "--key", key]
        with open(receivers, "ab") as lines:
            subprocess.run(command, check=True, stdout=lines)
        return "--as", f"r{number}", "--key", key

    return umbel_send(programs, setting, own=own)


# uftp -------------------------------------------------------------------------------------------

def uftp_settings(cell):
    if cell.shaped_mbit:
        return [{"rate": "-1"}, *({"rate": round(rate * 1000)} for rate in cell.rates())]
    return [{"rate": "-1"}]


def uftp(programs, setting):
    def recipe(copy):
        for number, host, output in each(copy):
            copy.before(
                host, programs["uftpd"], "-d", "-q", "-I", LINK, "-U", f"0x{number + 1:08x}",
                "-B", SOCKET_BUFFER, "-M", GROUP, "-D", output.parent,
            )
        # -H names the receivers: it starts when all have answered, not after a fixed time.
        copy.at_start(
            "s", programs["uftp"], "-R", setting["rate"], "-r", ".001:.001:1", "-b", PAYLOAD,
            "-B", SOCKET_BUFFER, "-I", LINK, "-M", GROUP,
            "-H", ",".join(f"0x{number + 1:08x}" for number in range(len(copy.bed.receivers))),
            copy.source,
        )
        return uftp_done
    return recipe


def uftp_done(copy, number):
    """uftpd is a daemon, which says when it has closed the file."""
    return "done file close" in copy.receivers[number].log.read_text(errors="replace")


# udpcast ----------------------------------------------------------------------------------------

def udpcast_limits(cell):
    """Without a limit, and on a shaped link with one too; it counts headers."""
    limits = [{}]
    if cell.shaped_mbit:
        limits.append({"max-bitrate": f"{cell.shaped_mbit * 98 // 100}m"})
    return limits


def udpcast_settings(cell):
    return [{"slice-size": 512, **limit} for limit in udpcast_limits(cell)]


def udpcast_fec_settings(cell):
    codes = ["4x4/128"] if cell.loss_percent < 5 else ["4x4/128", "8x8/128"]
    return [{"fec": code, **limit} for code in codes for limit in udpcast_limits(cell)]


def udpcast(programs, setting):
    def recipe(copy):
        for _, host, output in each(copy):
            copy.before(host, programs["udp-receiver"], "--interface", LINK, "--nokbd",
                        "--no-progress", "--rcvbuf", SOCKET_BUFFER, "--file", output)
        options = [word for name, value in setting.items() for word in (f"--{name}", value)]
        copy.at_start(
            "s", programs["udp-sender"], "--interface", LINK, "--nokbd", "--no-progress",
            "--min-receivers", len(copy.bed.receivers), "--nopointopoint", "--full-duplex",
            # How often it asks itself whether all are there: 2 s if not said.
            "--rexmit-hello-interval", 10,
            *options, "--file", copy.source,
        )
        # Its receivers linger for half a second, to repeat the last acknowledgement.
        return by_size
    return recipe


# NORM -------------------------------------------------------------------------------------------

def norm_settings(cell):
    if cell.shaped_mbit:
        rates = cell.rates()
    else:
        rates = {1: [700], 4: [700, 500]}.get(cell.receivers, [700, 250, 150])
    return [{"rate": rate, "block": 16, "parity": 4} for rate in rates]


def norm(programs, setting):
    def recipe(copy):
        for number, host, output in each(copy):
            copy.before(host, programs["norm_copy"], "recv", GROUP, PORT, LINK, number + 2, output)
        copy.at_start("s", programs["norm_copy"], "send", GROUP, PORT, LINK, 1, copy.source,
                      setting["rate"], setting["block"], setting["parity"])
        return by_exit
    return recipe


# flute ------------------------------------------------------------------------------------------

def flute_settings(cell):
    rates = cell.rates(0.2, 0.3, 0.4)
    if cell.shaped_mbit:
        rates = rates[:2]
    else:
        rates.append(0)
    settings = [{"code": "raptorq", "parity": flute_parity(cell), "rate": rate} for rate in rates]
    if not cell.loss_percent:
        settings += [{"code": "none", "parity": 0, "rate": rate} for rate in rates]
    return settings


def flute_parity(cell):
    """Repair symbols, in percent, with which a block of 300 is hardly ever lost.

    flute has no way back, so that it must be told the loss: the mean and 4 standard deviations.
    """
    symbols, loss = 300, cell.loss_percent / 100
    lost = symbols * loss + 4 * math.sqrt(symbols * loss * (1 - loss))
    return max(2, math.ceil(100 * lost / (1 - loss) / symbols))


def flute(programs, setting):
    def recipe(copy):
        for number, host, output in each(copy):
            copy.before(host, programs["flute-copy"], "recv", GROUP, PORT,
                        receiver_address(number), output)
        copy.at_start("s", programs["flute-copy"], "send", GROUP, PORT, SENDER, copy.source,
                      setting["code"], setting["parity"], setting["rate"])
        return by_exit
    return recipe


# N TCP copies -----------------------------------------------------------------------------------

NGINX = """
daemon off; user root; worker_processes auto; pid {scratch}/nginx.pid; error_log stderr;
events {{}}
http {{
    access_log off; sendfile on;
    client_body_temp_path {scratch}/t1; proxy_temp_path {scratch}/t2; fastcgi_temp_path {scratch}/t3;
    uwsgi_temp_path {scratch}/t4; scgi_temp_path {scratch}/t5;
    server {{ listen 80; root {root}; }}
}}
"""


def tcp(programs, _setting):
    def recipe(copy):
        conf = copy.scratch / "nginx.conf"
        conf.write_text(NGINX.format(scratch=copy.scratch, root=copy.source.parent))
        copy.before("s", programs["nginx"], "-e", "stderr", "-c", conf)
        copy.wait_for((copy.scratch / "nginx.pid").exists, "nginx")
        for _, host, output in each(copy):
            copy.at_start(host, programs["curl"], "-sSf", "-o", output,
                          f"http://{SENDER}/{copy.source.name}")
        return by_exit
    return recipe


# The ceiling ------------------------------------------------------------------------------------

BLAST_S = 1


def blast(programs, _setting):
    """A bare multicast blast for a second; each receiver prints what came and ends by itself."""
    def recipe(copy):
        for _, host, _output in each(copy):
            copy.before(host, programs["blast"], "recv", GROUP, PORT, LINK)
        copy.at_start("s", programs["blast"], "send", GROUP, PORT, LINK, PAYLOAD, BLAST_S)
        return by_exit
    return recipe


def blast_mbit(outcome):
    """Payload rate, in Mbit/s, at the receiver to which least came."""
    rates = []
    for host, log in outcome.logs.items():
        if host != "s":
            rates += [json.loads(line)["bits_per_s"] for line in log.splitlines() if line[:1] == "{"]
    return min(rates, default=0) / 1e6


CEILING = Tool("blast", {"blast": ""}, lambda _: [{}], blast, peer=False)

TOOLS = [
    Tool("umbel", {"umbel": ""}, umbel_settings, umbel, peer=False),
    Tool("umbel-send", {"umbel": ""}, umbel_settings, umbel_send, peer=False),
    Tool("umbel-auto", {"umbel": ""}, umbel_auto_settings, umbel, peer=False, on_request=True),
    Tool("umbel-send-auto", {"umbel": ""}, umbel_auto_settings, umbel_send, peer=False,
         on_request=True),
    Tool("umbel-sealed", {"umbel": ""}, umbel_settings, umbel_sealed, peer=False, on_request=True),
    Tool("umbel-send-token", {"umbel": ""}, umbel_settings, umbel_send_token, peer=False,
         on_request=True),
    Tool("umbel-send-list", {"umbel": ""}, umbel_settings, umbel_send_list, peer=False,
         on_request=True),
    Tool("uftp", {"uftp": "uftp", "uftpd": "uftp"}, uftp_settings, uftp),
    Tool("udpcast", {"udp-sender": "udpcast", "udp-receiver": "udpcast"}, udpcast_settings, udpcast),
    Tool("udpcast-fec", {"udp-sender": "udpcast", "udp-receiver": "udpcast"},
         udpcast_fec_settings, udpcast),
    Tool("norm", {"norm_copy": "libnorm-dev g++"}, norm_settings, norm),
    Tool("flute", {"flute-copy": "cargo"}, flute_settings, flute),
    Tool("tcp", {"nginx": "nginx-light", "curl": "curl"}, lambda _: [{}], tcp, peer=False),
]
