# SPDX-License-Identifier: BSD-2-Clause
"""Two nodes whose processes may reach nobody's memory by the kernel's help, not even their own: process_vm_readv(2) and
_writev(2) are refused, and /proc/self/mem cannot be opened (tests/programs/refuse.cc)."""

from harness.refusing import refusing
from rows.ledger import Pair
from rows.perftest import measure
from rows.pingpong import exchange
from rows.table import group

rows = group("refused", places=("loopback",))


def refused(hosts, what):
    for host in hosts:
        host.enter_by(*refusing(host.settings, what))
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
