# SPDX-License-Identifier: BSD-2-Clause
"""Processes that cannot reach any memory with the kernel's help, not even their own: process_vm_readv(2) and _writev(2)
are refused, and /proc/self/mem cannot be opened (tests/programs/refuse.cc)."""

from harness.refusing import refusing
from rows import ledger
from rows.conformance import pair
from rows.ledger import Pair
from rows.pair import CLIENT, SERVER
from rows.perftest import measure
from rows.pingpong import exchange
from rows.table import group

rows = group("refused", places=("loopback",))


def refused(hosts, what, where=(SERVER, CLIENT)):
    for number, host in enumerate(hosts):
        host.enter_by(*(refusing(host.settings, what) if number in where else ()))
    return hosts


def add(name, run, errors=("EPERM+memory-file",)):
    for error in errors:
        rows.add(f"{error.split('+')[0]}.{name}", lambda hosts, e=error: run(refused(hosts, e)))


BOTH = ("EPERM+memory-file", "ENOSYS+memory-file")
for size, rounds in ((64, 200), (4096, 200), (65536, 100)):
    add(f"ibv_rc_pingpong.size_{size}",
        lambda hosts, s=size, n=rounds: exchange(hosts, "ibv_rc_pingpong", size=s, iterations=n), BOTH)
for program in ("ib_write_bw", "ib_read_bw", "ib_atomic_bw"):
    add(program, lambda hosts, p=program: measure(hosts, p, (), iterations=100))
add("ib_send_bw.xrc", lambda hosts: measure(hosts, "ib_send_bw", ("-c", "XRC"), iterations=100))
add("ib_send_lat.ud", lambda hosts: measure(hosts, "ib_send_lat", ("-c", "UD", "-s", 4096), (4096,), iterations=100))
add("ledger", lambda hosts: Pair(*hosts, "--both", "--lines", 2, "--count", 1000).end_well())

# Within one node, where frames are used instead of direct access.
within = group("refused_within", places=("one_node",), processors=1)
ONE_NODE = ("one_line", "both_ways", "lines_50", "several_pairs", "target_killed", "initiator_killed",
            "target_stopped_and_continued", "initiator_stopped_and_continued", "target_stays_stopped",
            "a_stopped_process_delays_nobody_else", "a_new_process_gets_nothing_old")
for row in (row for row in ledger.rows.rows if row.name in ONE_NODE):
    within.add(f"ledger.{row.name}", lambda hosts, run=row.run: run(refused(hosts, "EPERM+memory-file")))
for name, where in {"server": SERVER, "client": CLIENT}.items():
    within.add(f"only_the_{name}.ledger", lambda hosts, w=where: Pair(
        *refused(hosts, "EPERM+memory-file", (w,)), "--both", "--lines", 2, "--count", 1000).end_well())
    within.add(f"only_the_{name}.ud", lambda hosts, w=where: measure(
        refused(hosts, "EPERM+memory-file", (w,)), "ib_send_lat", ("-c", "UD", "-s", 4096), (4096,), iterations=100))
within.add("conformance", lambda hosts: pair(refused(hosts, "EPERM+memory-file"), "--quick"))
