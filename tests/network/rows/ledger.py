# SPDX-License-Identifier: BSD-2-Clause
"""Operations that are counted at both ends (tests/network/ledger): nothing is lost, doubled or out of order, and
atomics are applied exactly once. Here without faults of the network, while processes end and stop."""

import contextlib
import json
import os
import signal
import time

from harness.failure import expect
from rows.table import group

ENDLESS = ("--count", 0)  # until it is told to end
FAILED = "transport retry counter exceeded"  # ibv_wc_status_str of IBV_WC_RETRY_EXC_ERR
# 4.096 us * 2^timeout for each of retry + 1 attempts (ibv_modify_qp(3)): 8.6 s, and 1.07 s.
PATIENT = ("--timeout", 18, "--retry", 7)
HASTY = ("--timeout", 16, "--retry", 3)
HASTY_SECONDS = 4 * 4.096e-6 * 2 ** 16

rows = group("ledger", processors=1)
_meetings = iter(range(1 << 30))


class Pair:
    """A ledger on two hosts: `drive` posts to `serve` (with --both, each posts to the other)."""

    def __init__(self, serving, driving, *options):
        self.hosts = (serving, driving)
        self._patience = serving.settings.patience
        self._endless = options[:len(ENDLESS)] == ENDLESS
        program = os.path.join(serving.settings.build, "bin", "network_ledger")
        meeting = os.path.join(serving.folder, f"meet.{next(_meetings)}")
        line = ("--meet", meeting, *options)
        self.serve = serving.start(program, "serve", *line, name=f"ledger (serve on {serving.name})")
        self.serve.wait_for_output("listening", self._patience)
        self.drive = driving.start(program, "drive", *line, name=f"ledger (drive on {driving.name})")

    @staticmethod
    def done(side):
        """The number of operations that this side has reported complete."""
        said = [line.split()[1] for line in side.out.splitlines() if line.startswith("at ") and line.split()[1:]]
        return int(said[-1]) if said else 0

    def wait_progress(self, more=300):
        """Waits until so many more operations are complete."""
        goal = self.done(self.drive) + more
        deadline = time.monotonic() + self._patience
        while self.done(self.drive) < goal:
            expect(self.drive.poll() is None, f"{self.drive.name} has ended at {self.done(self.drive)}")
            expect(time.monotonic() < deadline, f"{self.drive.name} is at {self.done(self.drive)}, not {goal}")
            time.sleep(0.01)

    def wait_standstill(self):
        """Waits until nothing has been completed for a while."""
        last, since = -1, time.monotonic()
        while time.monotonic() - since < 0.3:
            now = self.done(self.drive)
            if now != last:
                last, since = now, time.monotonic()
            time.sleep(0.01)

    def report(self, side):
        seen = side.wait(self._patience)
        lines = [line for line in side.out.splitlines() if line.startswith("{")]
        fault = json.loads(lines[-1])["fault"] if lines else "it said nothing"
        expect(seen == 0 and not fault, f"{side.name} ended with status {seen}: {fault}")
        return json.loads(lines[-1])

    def end_well(self):
        """Ends an endless one. Every operation has succeeded, and the other end has seen it once."""
        for side in (self.drive, self.serve):
            if self._endless:
                side.signal(signal.SIGTERM)
        driven, served = self.report(self.drive), self.report(self.serve)
        for report in (driven, served):
            expect(set(report["statuses"]) <= {"success"}, f"not all has succeeded: {report['statuses']}")
            expect(report["posted"] == report["completed"], f"{report['completed']} of {report['posted']} completed")
        expect(driven["completed"] + served["completed"] > 0, "nothing was done")
        return driven, served

    def end_failed(self):
        """The connection has failed with an RC status; what arrived is consistent nevertheless."""
        driven = self.report(self.drive)
        expect(list(driven["statuses"]) == [FAILED], f"the lines ended with {driven['statuses']}")
        if self.serve.poll() is None:
            served = self.report(self.serve)
            expect(served["peer_known"], "the serving end has not compared")
        return driven


@contextlib.contextmanager
def stopped(program):
    program.signal(signal.SIGSTOP)
    try:
        yield
    finally:
        program.signal(signal.SIGCONT)


for variant, options in {"one_line": ("--count", 5000), "both_ways": ("--both", "--lines", 2, "--count", 3000),
                         "lines_50": ("--lines", 50, "--both", "--count", 200)}.items():
    rows.add(variant, lambda hosts, o=options: Pair(*hosts, *o).end_well())


@rows.row("several_pairs")
def several_pairs(hosts):
    """The processes of one node have connections of their own."""
    pairs = [Pair(*hosts, "--count", 1000, "--both", "--lines", 2) for _ in range(3)]
    for pair in pairs:
        pair.end_well()


def connections(host):
    """For each process on the host, its number of connections to other nodes."""
    return [len(process["connections"]) for process in host.processes() if process["program"] == "network_ledger"]


@rows.row("queue_pairs_share_a_connection")
def queue_pairs_share_a_connection(hosts):
    """200 of them, which connect to each other from both ends at once."""
    pair = Pair(*hosts, *ENDLESS, *PATIENT, "--lines", 200, "--both")
    pair.wait_progress()
    for host in hosts:
        expect(connections(host) == [1], f"the processes on {host.name} have {connections(host)} connections")
    pair.end_well()


def resident(program):
    """Kilobytes of a program that `verbena run` has become."""
    lines = open(f"/proc/{program.pid}/status").read().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))


@rows.row("who_waits_for_a_stopped_target_does_not_grow")
def who_waits_for_a_stopped_target_does_not_grow(hosts):
    pair = Pair(*hosts, *ENDLESS, *PATIENT, "--lines", 20)
    pair.wait_progress()
    with stopped(pair.serve):
        pair.wait_standstill()
        before = resident(pair.drive)
        time.sleep(1)
        grown = resident(pair.drive) - before
    expect(grown < 512, f"it has grown by {grown} kB, and a connection is 384 kB")
    pair.wait_progress()
    pair.end_well()


@rows.row("target_killed")
def target_killed(hosts):
    pair = Pair(*hosts, *ENDLESS, *HASTY)
    pair.wait_progress()
    pair.serve.kill()
    pair.end_failed()


@rows.row("initiator_killed")
def initiator_killed(hosts):
    """The last requests of the dead process may have arrived or not; what arrived is in order and counted once."""
    pair = Pair(*hosts, *ENDLESS, *PATIENT)
    pair.wait_progress()
    pair.drive.kill()
    served = pair.report(pair.serve)
    expect(served["received"] > 0 and not served["peer_known"], f"the serving end reports {served}")


@rows.row("target_stopped_and_continued")
def target_stopped_and_continued(hosts):
    pair = Pair(*hosts, *ENDLESS, *PATIENT)
    pair.wait_progress()
    with stopped(pair.serve):
        pair.wait_standstill()
    pair.wait_progress()
    pair.end_well()


@rows.row("initiator_stopped_and_continued")
def initiator_stopped_and_continued(hosts):
    pair = Pair(*hosts, *ENDLESS, *PATIENT)
    pair.wait_progress()
    with stopped(pair.drive):
        pair.wait_standstill()
    pair.wait_progress()
    pair.end_well()


@rows.row("target_stays_stopped")
def target_stays_stopped(hosts):
    """Silence ends after the queue pair's timeout and retries."""
    pair = Pair(*hosts, *ENDLESS, *HASTY)
    pair.wait_progress()
    with stopped(pair.serve):
        began = time.monotonic()
        pair.drive.wait_for_output('"statuses"', hosts[0].settings.patience)
        took = time.monotonic() - began
        expect(took >= HASTY_SECONDS * 0.9, f"it failed after {took:.2f} s, before its {HASTY_SECONDS:.2f} s")
    pair.end_failed()


@rows.row("a_stopped_process_delays_nobody_else")
def a_stopped_process_delays_nobody_else(hosts):
    """All processes of a node listen on one port; a stopped one does not keep others from connecting."""
    first = Pair(*hosts, *ENDLESS, *PATIENT)
    first.wait_progress()
    with stopped(first.serve):
        for _ in range(4):
            Pair(*hosts, "--count", 200).end_well()
    first.end_well()


@rows.row("a_new_process_gets_nothing_old")
def a_new_process_gets_nothing_old(hosts):
    """The successor of a killed process has a ledger of its own."""
    for _ in range(3):
        first = Pair(*hosts, *ENDLESS, *HASTY)
        first.wait_progress()
        first.serve.kill()
        second = Pair(*hosts, "--count", 500)
        second.end_well()
        first.end_failed()
