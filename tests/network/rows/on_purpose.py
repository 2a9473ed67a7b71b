# SPDX-License-Identifier: BSD-2-Clause
"""Faults on purpose between nodes (`verbena run --faults`, docs/FAULTS.md): acknowledgements that are lost over TCP, and
RoCE v2 packets that are lost, late and repeated."""

import os
import re

from harness import ports
from harness.failure import expect
from rows import ledger, perftest, pingpong
from rows.pair import SERVER
from rows.table import group

rows = group("on_purpose", places=("namespaces",), processors=1)
packets = group("packets_on_purpose", places=("namespaces",), roce=True, processors=1)

TIMEOUT = 4.096e-6 * 2 ** 14  # seconds; ibv_rc_pingpong's
LOST_ACKNOWLEDGEMENTS = 'seed = 3\n[[fault]]\nwhat = "lose_ack"\nevery = 10\n'
HARD_PACKETS = """seed = 5
[[fault]]
what = "lose_packet"
probability = 0.01
[[fault]]
what = "repeat_packet"
probability = 0.05
[[fault]]
what = "delay_packet"
probability = 0.05
time = ["10us", "500us"]
"""
LOST_RESPONSES = '[[fault]]\nwhat = "lose_packet"\npacket = "response"\nprobability = 0.05\n'
# The pingpongs end without a word to each other: whose last acknowledgement is lost, or late, finds nobody any more, as
# with an adapter. So their plans are through some messages before the end.
HARD_PACKETS_AT_FIRST = HARD_PACKETS.replace("= 0.01", "= 0.01\ntimes = 10").replace("= 0.05", "= 0.05\ntimes = 100")
LOST_RESPONSES_AT_FIRST = LOST_RESPONSES.replace("probability = 0.05", "every = 7\ntimes = 4")


class FaultyHost:
    """A host whose programs have faults."""

    def __init__(self, host, text):
        self._host = host
        self._file = os.path.join(host.folder, "faults.toml")
        with open(self._file, "w", encoding="utf-8") as file:
            file.write(text)

    def __getattr__(self, name):
        return getattr(self._host, name)

    def start(self, *command, name=None):
        return self._host.start(self._host.verbena, "run", "--faults", self._file, "--", *command, name=name or command[0])


def faulty(hosts, text):
    return [FaultyHost(host, text) for host in hosts]


def seconds_of(program):
    return float(re.search(r"iters in (\S+) seconds", program.out).group(1))


@rows.row("acknowledgements_lost")
def acknowledgements_lost(hosts):
    """Each tenth message waits for its timeout at both ends, and the pingpong for both."""
    both = (*pingpong.GID, "-s", 4096, "-n", 100, "-c")
    for side in pingpong.by_port(faulty(hosts, LOST_ACKNOWLEDGEMENTS), "ibv_rc_pingpong", both):
        pingpong.check(side, 4096, 100)
        expect(seconds_of(side) >= 9 * TIMEOUT, f"{side.name} took {seconds_of(side)} s, though acknowledgements were lost")


@rows.row("acknowledgements_lost_for_good")
def acknowledgements_lost_for_good(hosts):
    """Both messages arrive, and neither end learns it."""
    port = ports.reserve()
    line = ("ibv_rc_pingpong", *pingpong.GID, "-n", 2, "-p", port)
    server, client = (host for host in faulty(hosts, '[[fault]]\nwhat = "lose_ack"\n'))
    first = server.start(*line, name="pingpong (server)")
    server.wait_listening(port, first)
    second = client.start(*line, hosts[SERVER].plain_address, name="pingpong (client)")
    for side in (second, first):
        expect(side.wait(hosts[0].settings.patience) == 1, f"{side.name} has not failed")
        expect(ledger.FAILED in side.err, f"{side.name} says: {side.err}")


for seed in (1, 2):
    rows.add(f"ledger.acknowledgements_lost.{seed}", lambda hosts, s=seed: ledger.Pair(
        *faulty(hosts, f'seed = {s}\n[[fault]]\nwhat = "lose_ack"\nprobability = 0.05\n'), "--count", 300, "--both",
        "--timeout", 12).end_well())

for name, text, at_first in (("hard", HARD_PACKETS, HARD_PACKETS_AT_FIRST),
                             ("responses_lost", LOST_RESPONSES, LOST_RESPONSES_AT_FIRST)):
    packets.add(f"ledger.{name}", lambda hosts, t=text: ledger.Pair(
        *faulty(hosts, t), "--count", 300, "--both", "--timeout", 12).end_well())
    packets.add(f"ibv_rc_pingpong.{name}", lambda hosts, t=at_first:
                pingpong.exchange(faulty(hosts, t), "ibv_rc_pingpong", (), 65536, 50))
    for program in ("ib_write_bw", "ib_read_bw", "ib_atomic_bw"):
        packets.add(f"{program}.{name}", lambda hosts, p=program, t=text: perftest.measure(
            faulty(hosts, t), p, ("-x", 1, "-u", 12), iterations=perftest.FEW))


@packets.row("mads_lost")
def mads_lost(hosts):
    """The connection managers ask again."""
    first = '[[fault]]\nwhat = "lose_packet"\npacket = "mad"\nnth = 1\n'
    perftest.measure_by_manager(faulty(hosts, first), "ib_send_lat", ("-x", 1), iterations=perftest.FEW)
