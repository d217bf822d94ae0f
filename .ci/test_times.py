"""What the scripts here share about the times of tests."""

import os
import subprocess

# Aim for a test, in seconds of CPU time of a debug build.
AIM_S = 2.0
# CPU time beyond which a test fails the checks, unless it is among the slow tests that are known.
GROSS_S = 60.0
KNOWN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "slow-tests.txt")


def known():
    """Returns the slow tests that are known, as pairs of a binary's name and the beginning of names
    of its tests."""
    with open(KNOWN, encoding="utf-8") as lines:
        entries = [line.split("#")[0].split() for line in lines]
    return [(entry[0], entry[1] if len(entry) > 1 else "") for entry in entries if entry]


def is_known(entries, binary, test):
    """Returns whether a test is among the slow ones."""
    return any(binary == of and test.startswith(name) for of, name in entries)


def cpu_s(executable, directory, test):
    """Runs a test in a process of its own. Returns the CPU time that it took, with that of the
    programs that it started, and whether it passed."""
    process = subprocess.Popen([executable, test, "--exact"], cwd=directory,
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return usage.ru_utime + usage.ru_stime, process.returncode == 0
