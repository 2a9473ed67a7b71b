# SPDX-License-Identifier: BSD-2-Clause
"""Storage over RDMA: fio's rdma engine."""

import json

from cases.rdma_cm import installed, wait_for
from harness import ports
from harness.failure import expect
from harness.processes import Node
from harness.registry import add

SIZE = 64 << 20


def fio(settings, verb):
    """Memory semantics. fio's channel semantics (send) take no RNR (rnr_retry 0), and so depend on who is faster."""
    installed("fio")
    with Node(settings) as node:
        port = ports.reserve()
        both = ("--ioengine=rdma", f"--port={port}", "--bs=64k", f"--size={SIZE}", "--iodepth=16", "--output-format=json")
        server = node.start("fio", "--name=server", *both, "--rw=read", name="fio (server)")
        wait_for(node, "listeners")
        client = node.start("fio", "--name=client", *both, "--hostname=127.0.0.1", f"--verb={verb}", "--rw=write",
                            name="fio (client)")
        for side in (client, server):
            node.ended(side)
        job = json.loads(client.out[client.out.index("{"):])["jobs"][0]
        expect(job["error"] == 0 and job["write"]["io_bytes"] == SIZE, f"fio moved {job['write']['io_bytes']} bytes")


for verb in ("write", "read"):
    add(f"fio.{verb}", lambda settings, v=verb: fio(settings, v))
