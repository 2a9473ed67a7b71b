# SPDX-License-Identifier: BSD-2-Clause
"""The pingpongs of ibverbs-utils between two nodes. GID 1 is the node's address; GID 0 would be link-local."""

from cases.pingpong import addresses, check
from harness.failure import expect
from rows.pair import CLIENT, SERVER, by_port
from rows.table import group

GID = ("-g", 1)
rows = group("pingpong", places=("namespaces",))
FEW = 50


def exchange(hosts, program, options=(), size=4096, iterations=1000):
    both = (*GID, "-s", size, "-n", iterations, "-c", *options)
    server, client = by_port(hosts, program, both)
    for side in (server, client):
        check(side, size, iterations)
    if program == "ibv_srq_pingpong":  # many queue pairs, and as many addresses
        return
    mine, theirs = addresses(server)
    expect(addresses(client) == [theirs, mine], "the two sides do not name the same queue pairs")
    if hosts[SERVER].address != hosts[CLIENT].address:
        expect([mine[2], theirs[2]] == [host.address if ":" in host.address else f"::ffff:{host.address}" for host in (hosts[SERVER], hosts[CLIENT])],
               f"the GIDs are {mine[2]} and {theirs[2]}, not the nodes' addresses")


# program: {variant: (options, size, iterations)}
MILLION = 1 << 20
EXCHANGES = {
    "ibv_rc_pingpong": {"plain": ((), 4096, 1000), "events": (("-e",), 4096, 1000), "size_1": ((), 1, 1000),
                        "size_64K": ((), 65536, 200), "size_1M": ((), MILLION, 50), "mtu_256": (("-m", 256), 4096, 1000),
                        "two_receives": (("-r", 2), 4096, 1000)},
    "ibv_uc_pingpong": {"plain": ((), 4096, 1000), "events": (("-e",), 4096, 1000), "size_64K": ((), 65536, 200)},
    "ibv_ud_pingpong": {"plain": ((), 1024, 1000), "events": (("-e",), 1024, 1000), "size_1": ((), 1, 1000)},
    "ibv_srq_pingpong": {"plain": ((), 4096, 1000), "events": (("-e",), 4096, 1000), "size_1M": ((), MILLION, 50)},
}
for program, variants in EXCHANGES.items():
    for variant, (options, size, iterations) in variants.items():
        rows.add(f"{program}.{variant}",
                 lambda hosts, p=program, o=options, s=size, n=iterations: exchange(hosts, p, o, s, n), quick=False)
    rows.add(f"{program}.few", lambda hosts, p=program, s=variants["plain"][1]: exchange(hosts, p, (), s, FEW))
    rows.add(f"{program}.few_events", lambda hosts, p=program, s=variants["plain"][1]: exchange(hosts, p, ("-e",), s, FEW))


def extended(hosts, options):
    for side in by_port(hosts, "ibv_xsrq_pingpong", (*GID, *options)):
        expect("success" in side.out, f"{side.name} did not report success")


for variant, options in {"plain": (), "events": ("-e",), "size_100000": ("-s", 100000)}.items():
    rows.add(f"ibv_xsrq_pingpong.{variant}", lambda hosts, o=options: extended(hosts, o), quick=variant == "plain")
