# SPDX-License-Identifier: BSD-2-Clause
"""RC connections when the network fails, as ledgers see it."""

import time

from harness.failure import expect
from rows.ledger import ENDLESS, FAILED, HASTY, HASTY_SECONDS, PATIENT, Pair
from rows.table import group

rows = group("faults", places=("namespaces",), processors=1)
three = group("faults_of_three", hosts=3, places=("namespaces",), processors=1)
BOTH = ("--both", "--lines", 2)
UNSCHEDULED = 5  # seconds more for a process that is not scheduled (docs/NETWORK.md)
BUSY = 3  # seconds in which a busy machine ends the program and reports it


@rows.row("cable_pulled_within_retries")
def cable_pulled_within_retries(hosts):
    pair = Pair(*hosts, *ENDLESS, *PATIENT, *BOTH)
    for _ in range(2):
        pair.wait_progress()
        hosts[0].pull_cable()
        pair.wait_standstill()
        hosts[0].plug_cable()
    pair.wait_progress()
    again = sum(connection["retransmissions"] for host in hosts for process in host.processes()
                for connection in process["connections"])
    expect(again > 0, "`verbena status` shows nothing of what was sent again")
    pair.end_well()


@rows.row("cable_pulled_for_good")
def cable_pulled_for_good(hosts):
    pair = Pair(*hosts, *ENDLESS, *HASTY)
    pair.wait_progress()
    began = time.monotonic()
    hosts[0].pull_cable()
    driven = pair.report(pair.drive)
    took = time.monotonic() - began
    expect(list(driven["statuses"]) == [FAILED], f"the lines ended with {driven['statuses']}")
    expect(took >= HASTY_SECONDS * 0.9, f"it failed after {took:.2f} s, before its {HASTY_SECONDS:.2f} s")
    expect(took < HASTY_SECONDS + UNSCHEDULED + BUSY, f"it failed after {took:.2f} s only, instead of {HASTY_SECONDS:.2f} s")
    pair.report(pair.serve)
    hosts[0].plug_cable()
    Pair(*hosts, "--count", 500).end_well()  # later connections are served


@rows.row("connections_reset")
def connections_reset(hosts):
    """TCP's connections end again and again; only the time that it takes shows it."""
    pair = Pair(*hosts, *ENDLESS, *PATIENT, *BOTH)
    for round_number in range(10):
        pair.wait_progress(100)
        broken = hosts[round_number % 2].break_connections()
        expect(broken.strip(), "there was no connection to break")
    pair.wait_progress()
    pair.end_well()


@rows.row("half_open")
def half_open(hosts):
    """The target ends while the cable is out: the initiator gets no notice of it."""
    pair = Pair(*hosts, *ENDLESS, *HASTY)
    pair.wait_progress()
    hosts[0].pull_cable()
    pair.serve.kill()
    hosts[0].plug_cable()
    pair.end_failed()


@rows.row("address_taken_away_and_given_back")
def address_taken_away_and_given_back(hosts):
    pair = Pair(*hosts, *ENDLESS, *PATIENT)
    pair.wait_progress()
    hosts[0].take_address()
    pair.wait_standstill()
    hosts[0].give_address()
    pair.wait_progress()
    pair.end_well()


@rows.row("address_taken_away_for_good")
def address_taken_away_for_good(hosts):
    pair = Pair(*hosts, *ENDLESS, *HASTY)
    pair.wait_progress()
    hosts[0].take_address()
    pair.end_failed()
    hosts[0].give_address()
    Pair(*hosts, "--count", 500).end_well()


@rows.row("peers_are_shown")
def peers_are_shown(hosts):
    """`verbena status` shows the queue pair at the other end, and where it is."""
    pair = Pair(*hosts, *ENDLESS, *PATIENT, *BOTH)
    pair.wait_progress()
    qps = [[qp for process in host.processes() for qp in process["qps"]] for host in hosts]
    for own, others, other in ((qps[0], qps[1], hosts[1]), (qps[1], qps[0], hosts[0])):
        peers = [qp["peer"] for qp in own]
        expect(peers == [{"qpn": qp["qpn"], "address": other.address} for qp in others], f"the peers are {peers}")
    pair.end_well()


@rows.row("bytes_are_shown")
def bytes_are_shown(hosts):
    """What `verbena status` counts for a connection is what its queue pairs have sent, and a head for each."""
    pair = Pair(*hosts, *ENDLESS, *PATIENT)
    pair.wait_progress()
    sent = sum(qp["bytes_out"] for process in hosts[1].processes() for qp in process["qps"])
    carried = sum(connection["bytes_out"] for process in hosts[1].processes() for connection in process["connections"])
    expect(carried >= sent > 0, f"the queue pairs have sent {sent} bytes, and their connection {carried}")
    pair.end_well()


def pairs_with_the_first(hosts, lost):
    """Two running ledgers at the first host: the second host's, with these options, and the third's."""
    first, second, third = hosts
    pairs = Pair(second, first, *ENDLESS, *lost), Pair(third, first, *ENDLESS, *PATIENT)
    for pair in pairs:
        pair.wait_progress()
    return pairs


@three.row("two_do_not_hear_each_other")
def two_do_not_hear_each_other(hosts):
    """The first host reaches the third all the while, and the second as soon as it can again."""
    apart, together = pairs_with_the_first(hosts, PATIENT)
    for host in hosts[:2]:
        host.isolate()
    apart.wait_standstill()
    together.wait_progress()
    for host in hosts[:2]:
        host.isolate(False)
    for pair in (apart, together):
        pair.wait_progress()
        pair.end_well()


@three.row("one_lost_for_good")
def one_lost_for_good(hosts):
    lost, kept = pairs_with_the_first(hosts, HASTY)
    hosts[1].pull_cable()
    lost.end_failed()
    kept.wait_progress()
    kept.end_well()
    hosts[1].plug_cable()
