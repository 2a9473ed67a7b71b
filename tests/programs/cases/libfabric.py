# SPDX-License-Identifier: BSD-2-Clause
"""libfabric by its own fi_pingpong: connected, datagram, and reliable endpoints built upon datagrams.

Not verbs;ofi_rxm: rxm 1.17 may lose the last message of a peer that disconnects (docs/FEATURES.md), and then waits for
ever, in 1 of some 180 runs on busy processors.
"""

import re

from cases.rdma_cm import installed
from harness import ports
from harness.failure import expect
from harness.pair import no_trouble
from harness.processes import Node
from harness.registry import add

# name: provider, kind of endpoint, largest of the sizes that "all" means
ENDPOINTS = {
    "msg": ("verbs", "msg", "6m"),
    "dgram": ("verbs", "dgram", "4k"),
    "rxd": ("verbs;ofi_rxd", "rdm", "6m"),
}

# The provider tries how much inline data a queue pair may have.
HARMLESS = (r"ibv_create_qp: max_inline_data \d+: the device has \d+ \[capability_exceeded\]$",)


def exchange(settings, name, iterations, times):
    """Every size, data checked, so many times in a row on one node."""
    installed("fi_pingpong")
    provider, kind, largest = ENDPOINTS[name]
    for _ in range(times):
        with Node(settings) as node:
            port = ports.reserve()
            command = ("fi_pingpong", "-p", provider, "-e", kind, "-S", "all", "-I", iterations, "-c")
            server = node.start(*command, "-B", port, name="fi_pingpong (server)")
            ports.wait_listening(port, server, settings.patience)
            client = node.start(*command, "-P", port, "127.0.0.1", name="fi_pingpong (client)")
            for side in (client, server):
                node.ended(side)
                no_trouble(side, HARMLESS)
            rows = re.findall(r"^(\S+) +(\d+) +=(\d+) ", client.out, re.MULTILINE)
            expect(rows and rows[-1][0] == largest, f"the last size is {rows[-1:]}, not {largest}")
            expect(all(row[1:] == (str(iterations), str(iterations)) for row in rows),
                   f"not every size was sent and acknowledged {iterations} times")


for name in ENDPOINTS:
    processors = 1 if name == "dgram" else 2
    add(f"fi_pingpong.{name}", lambda settings, n=name: exchange(settings, n, 20, 1), processors=processors)
    # Half of the time it waits for libfabric to start and end.
    add(f"fi_pingpong.{name}_50_times", lambda settings, n=name: exchange(settings, n, 1, 50), processors=1, long=True)
