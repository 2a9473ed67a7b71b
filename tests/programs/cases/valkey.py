# SPDX-License-Identifier: BSD-2-Clause
"""Valkey over RDMA, built from its source with BUILD_RDMA=module (tests/programs/from_sources): a server, and the client
of Valkey's own tests, tests/rdma/rdma-test.c, which compares what it gets with what it has set."""

import os

from cases.rdma_cm import wait_for
from harness import ports
from harness.failure import Skip, expect
from harness.processes import Node
from harness.registry import add


def rdma_test(settings):
    tree = os.path.join(settings.sources, "valkey")
    if not os.path.exists(os.path.join(tree, "tests/rdma/rdma-test")):
        raise Skip(f"{tree} has no rdma-test that is built")
    with Node(settings) as node:
        port = ports.reserve()
        server = node.start(os.path.join(tree, "src/valkey-server"), "--port", "0", "--save", "", "--appendonly", "no", "--dir",
                            node.folder, "--loadmodule", os.path.join(tree, "src/valkey-rdma.so"), f"port={port}",
                            "bind=127.0.0.1", name="valkey-server")
        wait_for(node, "listeners")
        client = node.run(os.path.join(tree, "tests/rdma/rdma-test"), "--thread", "4", "-h", "127.0.0.1", "-p", port,
                          name="rdma-test")
        expect("FAILED" not in client.out, "rdma-test says that a test failed")
        expect(server.poll() is None, "valkey-server has ended")


add("valkey.rdma_test", rdma_test, source="valkey")
