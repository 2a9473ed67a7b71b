# SPDX-License-Identifier: BSD-2-Clause
"""A machine that vanishes silently while nothing is under way: its peer has half of a connection, and does not know. It
may come back as another one, with the same addresses and none of its processes."""

import os
import signal
import time

from harness.failure import expect
from rows.faults import BUSY, UNSCHEDULED
from rows.flows import end, new_meeting, start, wait_all, wait_progress
from rows.ledger import FAILED, HASTY, HASTY_SECONDS, PATIENT
from rows.table import group

rows = group("vanished", places=("namespaces",), processors=1)
NOTICED = 30  # seconds after which TCP notices (docs/NETWORK.md)


def connected(goes, stays, part):
    """(the side that stays, the meeting for the next peer): messages have gone between the two, and none does now.
    `part`: what the side that stays does."""
    meetings = new_meeting(stays), new_meeting(stays)
    sides = {}
    for each in ("take", "send"):
        sides[each] = start(stays if each == part else goes, each, "RC", HASTY, *meetings)
    wait_progress(sides["send"], stays.settings.patience)
    sides["send"].signal(signal.SIGUSR1)
    sides["send"].wait_for_output("rests", stays.settings.patience)
    for host in (goes, stays):
        wait_silence(host)
    return sides[part], meetings[1]


def wait_silence(host):
    """Waits until TCP has nothing unacknowledged (ss(8), --info: unacked)."""
    deadline = time.monotonic() + host.settings.patience
    while "unacked:" in host.call("ss", "--tcp", "--info", "--no-header", "state", "established"):
        expect(time.monotonic() < deadline, f"the connections on {host.name} do not come to rest")
        time.sleep(0.01)


def meet_again(side, host, part, meeting, rests=True):
    """`side`, which pauses or not, goes on with a new peer on `host`, which does `part`."""
    if part == "send":  # the receiver has to listen first
        side.signal(signal.SIGUSR2)
        side.wait_for_lines("listening", 2, host.settings.patience)
    other = start(host, part, "RC", HASTY, meeting)
    if part == "take":
        side.signal(signal.SIGUSR2)
        if rests:
            side.signal(signal.SIGUSR1)
    for each in (side, other):
        wait_progress(each, host.settings.patience)
    sender, taker = (side, other) if part == "take" else (other, side)
    sent, taken = end(sender, host.settings.patience), end(taker, host.settings.patience)
    expect(sent["status"] == "success" and sent["posted"] == taken["completed"], f"sent {sent}, taken {taken}")


def connections(host, side):
    found = [process["connections"] for process in host.processes() if process["pid"] == side.pid]
    expect(len(found) == 1, f"`verbena status` shows {len(found)} processes of number {side.pid}")
    return found[0]


def wait_connections(host, side, count, seconds):
    deadline = time.monotonic() + seconds
    while (seen := connections(host, side)) and len(seen) != count:
        expect(time.monotonic() < deadline, f"{side.name} still has {len(seen)} connections: {seen}")
        time.sleep(0.2)


@rows.row("new_requests_fail_by_timeouts")
def new_requests_fail(hosts):
    goes, stays = hosts
    side, meeting = connected(goes, stays, "send")
    goes.vanish()
    began = time.monotonic()
    side.signal(signal.SIGUSR1)
    side.wait_for_output("failed: ", stays.settings.patience)
    took = time.monotonic() - began
    expect(f"failed: {FAILED}" in side.out, "it failed otherwise")
    expect(HASTY_SECONDS * 0.9 <= took < HASTY_SECONDS + UNSCHEDULED + BUSY,
           f"it failed after {took:.2f} s instead of {HASTY_SECONDS:.2f} s")
    goes.boot()
    meet_again(side, goes, "take", meeting, rests=False)


def successor(hosts, stays_to, comes_to):
    """The side that stays believes that it is connected to the predecessor. As a sender it reaches the successor; as a
    receiver it is served by it."""
    goes, stays = hosts
    side, meeting = connected(goes, stays, stays_to)
    goes.vanish()
    goes.boot()
    expect(len(connections(stays, side)) == 1, "the half connection is gone already: this row is to be about one")
    meet_again(side, goes, comes_to, meeting)


rows.add("a_successor_is_reached", lambda hosts: successor(hosts, "send", "take"))
rows.add("a_successor_is_served", lambda hosts: successor(hosts, "take", "send"))


@rows.row("half_a_connection_is_not_kept")
def half_a_connection_is_not_kept(hosts):
    goes, stays = hosts
    side, _ = connected(goes, stays, "take")
    goes.vanish()
    wait_connections(stays, side, 0, NOTICED + 10)
    goes.boot()


def names(host, side):
    """(number of its only queue pair, its slot, that slot's generation)"""
    found = [process for process in host.processes() if process["pid"] == side.pid]
    expect(len(found) == 1 and len(found[0]["qps"]) == 1, f"{side.name} is not there with one queue pair: {found}")
    return found[0]["qps"][0]["qpn"], found[0]["slot"], found[0]["generation"]


def successor_with_the_same_numbers(hosts, kill_first):
    """The process that had the number was killed, and messages for it are still sent again when a new process has the
    number: that one gets the messages for itself, from the first one on, and nothing else."""
    goes, stays = hosts
    patience = goes.settings.patience
    before = new_meeting(stays)
    taker = start(goes, "take", "RC", PATIENT, before)
    sender = start(stays, "send", "RC", PATIENT, before)
    wait_progress(taker, patience)
    qpn, slot, generation = names(goes, taker)
    if not kill_first:
        goes.pull_cable()  # not even the end of its connection is noticed
    taker.kill()
    goes.run(os.path.join(goes.settings.build, "bin", "network_numbers"), qpn, slot)
    after = new_meeting(stays)
    successor = start(goes, "take", "RC", PATIENT, after)
    if not kill_first:
        goes.plug_cable()
    other = start(stays, "send", "RC", PATIENT, after)
    wait_progress(successor, patience)
    expect(names(goes, successor) == (qpn, slot, generation + 1), "the successor has other numbers")
    sender.wait_for_output(f"failed: {FAILED}", patience)
    wait_progress(successor, patience)
    sent = end(other, patience)
    wait_all(successor, sent["posted"], patience)
    taken = end(successor, patience)
    expect(taken["missing"] == 0 and taken["completed"] == sent["posted"] == sent["completed"],
           f"sent {sent}, taken {taken}")


rows.add("a_successor_with_the_same_numbers", lambda hosts: successor_with_the_same_numbers(hosts, True))
rows.add("a_successor_behind_a_pulled_cable", lambda hosts: successor_with_the_same_numbers(hosts, False))
