# SPDX-License-Identifier: BSD-2-Clause
"""Programs of large packages, or with ports that only one test of a machine can have: tests/programs/nightly."""

import os

from cases.rdma_cm import installed
from harness.failure import expect
from harness.processes import Node
from harness.registry import add


def dapl(settings):
    """uDAPL over rdma_cm. The program has fixed ports, for its parameters over TCP as well. (dtestx's server sends its
    parameters before it listens, so a fast client of it is rejected.)"""
    installed("dtest")
    with Node(settings) as node:
        interfaces = os.path.join(node.folder, "dat.conf")
        with open(interfaces, "w") as file:
            file.write('verbena-cma u2.0 nonthreadsafe default libdaplofa.so.2 dapl.2.0 "127.0.0.1 0" ""\n')
        command = ("env", f"DAT_OVERRIDE={interfaces}", "dtest", "-P", "verbena-cma")
        server = node.start(*command, name="dtest (server)")
        server.wait_for_output("waiting for client", settings.patience)
        client = node.start(*command, "-h", "127.0.0.1", name="dtest (client)")
        for side in (client, server):
            node.ended(side)
            expect("PASSED" in side.out, f"{side.name} does not say that it passed")


add("dtest", dapl, nightly=True)
