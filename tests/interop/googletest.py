# SPDX-License-Identifier: BSD-2-Clause
"""Runs every test of a GoogleTest program, also of one that crashes or hangs in the middle, and compares.

A file of expectations names the tests that do not pass. One line per test, `test, outcome: reason`, where the outcome is
skip, fail, crash, hang, or some of them (`fail|hang`); pass is one of them where it depends on the machine. A `*` in the
name stands for any text. Lines that begin with # are comments.
"""

import fnmatch
import os
import re
import selectors
import signal
import subprocess
import time

from harness.failure import Failure

OUTCOMES = ("pass", "skip", "fail", "crash", "hang")
LINE = re.compile(rf"(?P<test>\S+), (?P<outcomes>(?:{'|'.join(OUTCOMES)})(?:\|(?:{'|'.join(OUTCOMES)}))*): (?P<reason>\S.*)")
BEGIN = re.compile(r"\[ RUN      \] (\S+)")
END = re.compile(r"\[ +(OK|FAILED|SKIPPED) +\] ([^\s,]+)(?:,.*)? \(\d+ ms\)")
SAYS_SKIP = re.compile(r"\[ +SKIP +\]")  # UCX has its own way to say so, before OK
AT_ONCE = 200  # tests of one process: their names are one argument


def names(command, environment, chosen="*"):
    """The tests that `command` has; `chosen` as in --gtest_filter."""
    listed = subprocess.run([*command, "--gtest_list_tests", f"--gtest_filter={chosen}"], env=environment, text=True,
                            capture_output=True, timeout=60)
    if listed.returncode != 0:
        raise Failure(f"{' '.join(map(str, command))} lists no tests: {listed.stderr[-500:]}")
    found, group = [], None
    for line in listed.stdout.splitlines():
        name = line.split("#")[0].rstrip()
        if re.fullmatch(r"\S+\.", name):
            group = name
        elif group and re.fullmatch(r"  \S+", name):
            found.append(group + name.strip())
    return found


class Output:
    """What a process has printed so far, as outcomes of tests."""

    def __init__(self):
        self.running = None
        self.ended = {}
        self._skips = False
        self._text = []

    def line(self, line):
        begun, ended = BEGIN.search(line), END.search(line)
        if begun:
            self.running, self._skips, self._text = begun[1], False, []
        elif ended and ended[2] == self.running:
            outcome = {"OK": "skip" if self._skips else "pass", "FAILED": "fail", "SKIPPED": "skip"}[ended[1]]
            self.finish(outcome)
        else:
            self._skips = self._skips or bool(SAYS_SKIP.search(line))
            self._text.append(line)

    def finish(self, outcome):
        if self.running:
            self.ended[self.running] = (outcome, "\n".join(self._text[-30:]))
        self.running = None


def run(command, environment, tests, patience, folder, log=None):
    """{test: (outcome, text)}. A test that takes longer than `patience` seconds hangs; the tests after it still run."""
    seen = {}
    left = list(tests)
    while left:
        batch = left[:AT_ONCE]
        output = run_once(command, environment, batch, patience, folder, log)
        if not output.ended:
            raise Failure(f"{' '.join(map(str, command))} runs none of {batch[0]} and {len(batch) - 1} more")
        seen.update(output.ended)
        left = [test for test in left if test not in seen]
    return seen


def run_once(command, environment, tests, patience, folder, log):
    """The output of one process: to its end, or to the end of a test that crashes or hangs."""
    output = Output()
    process = subprocess.Popen([*command, "--gtest_filter=" + ":".join(tests)], env=environment, cwd=folder,
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                               start_new_session=True)
    os.set_blocking(process.stdout.fileno(), False)
    half, deadline = b"", time.monotonic() + patience
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while time.monotonic() < deadline:
            if not selector.select(deadline - time.monotonic()):
                continue
            data = process.stdout.read()
            if not data:
                break
            *lines, half = (half + data).split(b"\n")
            for line in lines:
                before = output.running
                output.line(line.decode(errors="replace"))
                if output.running != before:
                    deadline = time.monotonic() + patience
                if log:
                    log.write(line.decode(errors="replace") + "\n")
    try:
        # What it closed its output for is its end, or a hang in it.
        process.wait(max(1, deadline - time.monotonic()))
        output.finish("crash")
    except subprocess.TimeoutExpired:
        output.finish("hang")
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()
    process.stdout.close()
    return output


def expected(file):
    """[(pattern, outcomes, reason)] of a file of expectations."""
    entries = []
    for number, line in enumerate(open(file).read().splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        found = LINE.fullmatch(line)
        if not found:
            raise Failure(f"{file}:{number}: not of the form `test, outcome: reason`")
        entries.append((found["test"], found["outcomes"].split("|"), found["reason"]))
    return entries


def entry_of(entries, test):
    """The first entry that names `test`, or None."""
    return next((entry for entry in entries if fnmatch.fnmatchcase(test, entry[0].replace("[", "[[]"))), None)


def differences(entries, seen, all_tests=True):
    """Messages about what is not as expected. Unless `all_tests` were run, an entry may have no test."""
    used = set()
    for test, (outcome, text) in seen.items():
        pattern, wanted, reason = entry_of(entries, test) or (None, ["pass"], "")
        used.add(pattern)
        if outcome not in wanted:
            yield (f"{test}: {outcome}{f' (expected {chr(124).join(wanted)}: {reason})' if reason else ''}"
                   f"{': ' + text.strip() if text.strip() and outcome != 'pass' else ''}")
    for pattern, _, _ in entries:
        if all_tests and pattern not in used:
            yield f"{pattern}: is expected, but there is no such test"


def counts(seen):
    return ", ".join(f"{sum(outcome == each for each, _ in seen.values())} {outcome}" for outcome in OUTCOMES
                     if any(outcome == each for each, _ in seen.values()))
