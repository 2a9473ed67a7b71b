# SPDX-License-Identifier: BSD-2-Clause
"""Redis over rsockets: Debian's programs under a librspreload that intercepts epoll, which that of rdma-core 64 does not
yet. tests/programs/from_sources builds librspreload and librdmacm; libibverbs is the installed one.

redis-benchmark stays out: it runs, but then may wait in rclose() (rdma_destroy_id) for an event that nobody acknowledges.
"""

import glob
import os
import random
import shutil

from cases.rdma_cm import installed
from cases.rsockets import connected
from harness import ports
from harness.failure import Skip, expect
from harness.processes import Node
from harness.registry import add

SIZES = (1, 1000, 70_000, 3 << 20)  # bytes


def libraries(settings, folder):
    """A folder with the three libraries, so that nothing else of the build is found."""
    built = os.path.join(settings.sources, "rdma-core/build/lib")
    for name in ("librspreload.so", "librdmacm.so.1"):
        if not os.path.exists(os.path.join(built, name)):
            raise Skip(f"{built} has no {name}")
        shutil.copy(os.path.join(built, name), folder)
    shutil.copy(sorted(glob.glob("/usr/lib/*/libibverbs.so.1"))[0], folder)
    return folder


def set_and_get(settings):
    for program in ("redis-server", "redis-cli"):
        installed(program)
    with Node(settings) as node:
        folder = os.path.join(node.folder, "lib")
        os.mkdir(folder)
        variables = {"LD_LIBRARY_PATH": libraries(settings, folder), "VERBENA_LOG": "info",
                     "LD_PRELOAD": os.path.join(folder, "librspreload.so")}
        port = ports.reserve()

        def start(*command, name):
            return node.start_beside(node.verbena, "run", "--", *command, name=name, more=variables)

        server = start("redis-server", "--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir",
                       node.folder, name="redis-server")
        server.wait_for_output("Ready to accept connections", settings.patience)
        client = ("redis-cli", "-h", "127.0.0.1", "-p", port)
        for size in SIZES:
            value, back = os.path.join(node.folder, "value"), os.path.join(node.folder, "back")
            with open(value, "w") as file:
                file.write("".join(random.Random(size).choices("abcdefgh", k=size)))
            shell = ("sh", "-c", f"redis-cli -p {port} -x set key{size} <{value} && redis-cli -p {port} get key{size} >{back}")
            seen = node.ended(start(*shell, name=f"redis-cli, {size} bytes"))
            expect(connected(seen) == 2, "redis-cli has not used rsockets")
            with open(value) as one, open(back) as other:
                expect(one.read() == other.read().rstrip("\n"), f"the value of {size} bytes has changed")
        said = node.ended(start(*client, "dbsize", name="redis-cli dbsize"))
        expect(int(said.out) == len(SIZES), f"the server has {said.out} keys")


add("redis.set_and_get", set_and_get, source="rdma-core")
