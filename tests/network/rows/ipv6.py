# SPDX-License-Identifier: BSD-2-Clause
"""Nodes that have an IPv6 address and no other. The machines have IPv4 addresses as well, by which programs find each
other whose own sockets use nothing else."""

from harness.failure import expect
from rows import conformance, ledger, perftest, pingpong, rdma_cm
from rows.pair import CLIENT, SERVER, by_manager
from rows.table import group

rows = group("ipv6", places=("namespaces",), ipv6=True, processors=1)

for program, size in {"ibv_rc_pingpong": 4096, "ibv_ud_pingpong": 1024}.items():
    rows.add(program, lambda hosts, p=program, s=size: pingpong.exchange(hosts, p, (), s, pingpong.FEW))
for program, options in {"ib_write_bw": (), "ib_send_lat": ("-c", "UD"), "ib_atomic_lat": ("-c", "XRC")}.items():
    rows.add(program, lambda hosts, p=program, o=options:
             perftest.measure(hosts, p, ("-x", 1, *o), iterations=perftest.FEW))
rows.add("ledger", lambda hosts: ledger.Pair(*hosts, "--count", 500, "--lines", 2, "--both").end_well())
rows.add("mckey", lambda hosts: rdma_cm.multicast(hosts, "ff15::7"))
rows.add("conformance.multicast", lambda hosts: conformance.pair(hosts, "--quick", "--chapter", "mcast,ud"))
rows.add("conformance.all", lambda hosts: conformance.pair(hosts, "--quick"), quick=False)


def between(hosts, server, client, says):
    _, seen = by_manager(hosts, server, client)
    expect(says in seen.out, f"{seen.name} did not say '{says}'")


@rows.row("rping")
def rping(hosts):
    address = hosts[SERVER].address
    between(hosts, ("rping", "-s", "-a", address, "-C", 10, "-v"), ("rping", "-c", "-a", address, "-C", 10, "-v"),
            "ping data")


@rows.row("udaddy")
def udaddy(hosts):
    address = hosts[SERVER].address
    between(hosts, ("udaddy", "-b", address), ("udaddy", "-s", address), "return status 0")


@rows.row("doctor_and_status")
def tools(hosts):
    """Both show the other node's IPv6 address."""
    server = hosts[SERVER].start("ibv_asyncwatch")
    server.wait_for_output("async event FD", hosts[SERVER].settings.patience)
    address = hosts[SERVER].address
    doctor = hosts[CLIENT].tool("doctor", "--peer", address)
    expect("answers in" in doctor, f"`verbena doctor` does not find its peer: {doctor}")
    status = hosts[SERVER].tool("status")
    expect(address in status, f"`verbena status` does not show {address}: {status}")
