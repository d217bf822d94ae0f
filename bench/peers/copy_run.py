"""One timed copy: starts a tool's processes, waits for the last receiver, compares what arrived."""

import os
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

from testbed import inside

# How long what was started beforehand has to become ready.
SETTLE_S = 0.4
# How long receivers have once the sender has ended.
GRACE_S = 3.0


class Failed(Exception):
    """Why a copy failed."""


def cpu_so_far(pid):
    """Processor seconds that a running process has used, all its threads together."""
    # The kernel's number for "processor time of that process" [clock_getcpuclockid(3)].
    return time.clock_gettime(((~pid) << 3) | 2)


@dataclass
class Process:
    """A process of the tool, and what it used."""

    popen: subprocess.Popen
    log: Path
    cpu_before_s: float = 0.0
    cpu_s: float = 0.0

    def ended(self):
        """The exit code, once it has ended; `None` before."""
        if self.popen.returncode is None:
            pid, status, usage = os.wait4(self.popen.pid, os.WNOHANG)
            if pid:
                self.popen.returncode = os.waitstatus_to_exitcode(status)
                self.cpu_s = usage.ru_utime + usage.ru_stime - self.cpu_before_s
        return self.popen.returncode

    def end(self):
        """Asks it to end, then makes it."""
        for what, patience in ((signal.SIGTERM, 2.0), (signal.SIGKILL, 5.0)):
            if self.ended() is not None:
                return
            os.killpg(self.popen.pid, what)
            limit = time.monotonic() + patience
            while self.ended() is None and time.monotonic() < limit:
                time.sleep(0.005)


@dataclass
class Outcome:
    """What one copy took; times in seconds."""

    wall_s: float = 0.0
    sender_cpu_s: float = 0.0
    receivers_cpu_s: float = 0.0
    sent_bytes: int = 0
    failure: str = ""
    # When each receiver was done, by its number.
    done_s: dict = field(default_factory=dict)
    logs: dict = field(default_factory=dict)


class Copy:
    """One copy of `source` to all receivers of `bed`, by the tool's recipe (tools.py).

    A recipe calls `before` for what runs before the clock starts, and `at_start` for what starts
    with it: those processes exist already, held back by a pipe, so that their own start is
    within the time but the benchmark's is not.
    """

    def __init__(self, bed, source, scratch, timeout_s):
        self.bed = bed
        self.source = Path(source)
        self.scratch = Path(scratch)
        self.timeout_s = timeout_s
        self.sender = None
        self.receivers = []
        self.gate = self.scratch / "gate"
        self.open_gate = None
        self.held = 0

    def output(self, number):
        """Where receiver `number` is to put the file."""
        return self.scratch / f"out{number}" / self.source.name

    def before(self, host, *command):
        """Starts a command on `host` before the clock starts."""
        return self._spawn(host, [str(word) for word in command])

    def at_start(self, host, *command):
        """Has a command start on `host` together with the clock."""
        self.held += 1
        hold = ["sh", "-c", 'read _ <"$0"; exec "$@"', str(self.gate)]
        return self._spawn(host, hold + [str(word) for word in command])

    def _spawn(self, host, command):
        log = self.scratch / f"{host}.log"
        with open(log, "wb") as out:
            popen = subprocess.Popen(
                inside(host) + command,
                stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
                cwd=self.scratch, start_new_session=True,
            )
        process = Process(popen, log)
        if host == "s":
            self.sender = process
        else:
            self.receivers.append(process)
        return process

    def wait_for(self, condition, what, timeout_s=20.0):
        """Waits until something started beforehand is ready."""
        limit = time.monotonic() + timeout_s
        while not (found := condition()):
            if time.monotonic() > limit:
                raise Failed(f"no {what} within {timeout_s:.0f} s")
            time.sleep(0.01)
        return found

    def prepare(self):
        """Makes the folders and the gate; before the recipe."""
        shutil.rmtree(self.scratch, ignore_errors=True)
        for number in range(len(self.bed.receivers)):
            self.output(number).parent.mkdir(parents=True)
        os.mkfifo(self.gate)
        # Open for both, so that neither this nor a reader waits here.
        self.open_gate = os.open(self.gate, os.O_RDWR)

    def start(self):
        """Lets go what was to start with the clock."""
        os.write(self.open_gate, b"\n" * self.held)

    def end(self):
        """Ends all that still runs."""
        os.close(self.open_gate)
        for process in self._processes():
            process.end()

    def measure(self, recipe, verify=True):
        """Runs the recipe, and returns its outcome, also when it fails."""
        self.prepare()
        outcome = Outcome()
        try:
            done = recipe(self)
            time.sleep(SETTLE_S)
            self._time(done, outcome)
        except Failed as failure:
            outcome.failure = str(failure)
        finally:
            self.end()
        outcome.sender_cpu_s = self.sender.cpu_s if self.sender else 0.0
        outcome.receivers_cpu_s = sum(process.cpu_s for process in self.receivers)
        outcome.logs = {p.log.stem: p.log.read_text(errors="replace") for p in self._processes()}
        if verify and not outcome.failure:
            outcome.failure = self._difference()
        shutil.rmtree(self.scratch, ignore_errors=True)
        return outcome

    def _processes(self):
        return [process for process in (self.sender, *self.receivers) if process]

    def _time(self, done, outcome):
        for process in self._processes():
            if process.ended() is not None:
                raise Failed(f"{process.log.stem} ended before the start: {last_line(process.log)}")
            process.cpu_before_s = cpu_so_far(process.popen.pid)
        sent_before = self.bed.sent_bytes()
        start = time.monotonic()
        self.start()
        try:
            outcome.wall_s = self._last_receiver(start, done, outcome.done_s)
        finally:
            outcome.sent_bytes = self.bed.sent_bytes() - sent_before

    def _last_receiver(self, start, done, done_s):
        pending = set(range(len(self.receivers)))
        sender_ended = None
        while True:
            arrived = {number for number in pending if done(self, number)}
            now = time.monotonic()
            done_s.update(dict.fromkeys(arrived, now - start))
            pending -= arrived
            if not pending:
                return now - start
            who = f"{len(pending)} of {len(self.receivers)} receivers"
            if now - start > self.timeout_s:
                raise Failed(f"{who} not done after {self.timeout_s:.0f} s")
            if self.sender.ended() is not None:
                sender_ended = sender_ended or now
                if now - sender_ended > GRACE_S:
                    raise Failed(f"sender ended, {who} not done: {last_line(self.sender.log)}")
            # Looks often enough to be at most 1 % late, and seldom enough to cost nothing.
            time.sleep(min(max((now - start) / 200, 0.001), 0.02))

    def _difference(self):
        """Which outputs differ from the source, if any."""
        differ = [
            f"r{number}"
            for number in range(len(self.receivers))
            if subprocess.run(["cmp", "-s", self.source, self.output(number)]).returncode
        ]
        return f"{', '.join(differ)}: output differs from the file" if differ else ""


def last_line(log):
    """The last line that a process printed."""
    lines = log.read_text(errors="replace").strip().splitlines()
    return lines[-1][-200:] if lines else "it printed nothing"


def by_exit(copy, number):
    """A receiver is done when its process has ended well."""
    process = copy.receivers[number]
    code = process.ended()
    if code:
        raise Failed(f"r{number} ended with code {code}: {last_line(process.log)}")
    return code == 0


def by_size(copy, number):
    """A receiver that writes the file from front to back is done when it has its length."""
    try:
        complete = os.stat(copy.output(number)).st_size >= copy.source.stat().st_size
    except FileNotFoundError:
        complete = False
    if not complete and copy.receivers[number].ended() is not None:
        raise Failed(f"r{number} ended early: {last_line(copy.receivers[number].log)}")
    return complete
