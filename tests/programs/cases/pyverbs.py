# SPDX-License-Identifier: BSD-2-Clause
"""pyverbs, rdma-core's own Python binding, in the machine's own Python."""

import os

from harness.failure import expect
from harness.processes import Node
from harness.registry import case

FOLDER = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SCRIPT = os.path.join(FOLDER, "rc_loopback.py")


@case("pyverbs.rc_loopback", quick=True, processors=1)
def rc_loopback(settings):
    with Node(settings) as node:
        seen = node.run("/usr/bin/python3", SCRIPT, name="rc_loopback.py")
        expect(seen.out.split() == ["send", "write", "read", "fetch_and_add", "compare_and_swap", "done"],
               f"rc_loopback.py went as far as: {seen.out.split()}")


@case("pyverbs.fork_and_write", quick=True, processors=2)
def fork_and_write(settings):
    with Node(settings) as node:
        seen = node.run("/usr/bin/python3", os.path.join(FOLDER, "fork_and_write.py"), name="fork_and_write.py")
        expect(seen.out == "done\n", f"fork_and_write.py says {seen.out}")


@case("pyverbs.child_device_memory", quick=True, processors=1)
def child_device_memory(settings):
    with Node(settings) as node:
        seen = node.run("/usr/bin/python3", os.path.join(FOLDER, "child_device_memory.py"),
                        name="child_device_memory.py")
        expect(seen.out == "done\n", f"child_device_memory.py says {seen.out}")
