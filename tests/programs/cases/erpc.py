# SPDX-License-Identifier: BSD-2-Clause
"""eRPC over UD queue pairs, built from its source with TRANSPORT=infiniband and ROCE=ON (tests/programs/from_sources): its
own tests, each a client and servers in threads of one process, and tests/programs/erpc_exchange.cc, which is two.

eRPC takes its memory from huge pages (src/util/huge_alloc.cc, alloc_raw: SHM_HUGETLB) and ends without them. Only an
administrator can set them aside. Where there are too few, a preloaded library gives it ordinary pages.
"""

import os
import re

from harness import ports
from harness.failure import Skip, expect
from harness.processes import Node
from harness.registry import add

# Test: the part that is run. Threads poll, a packet that is not answered within 5 ms is sent again (src/tweakme.h,
# kRpcRTOUs), and a test ends after 20 s: large_msg_test, req_in_cont_func_test, req_in_req_func_test and the 32 threads of
# multi_process_test need a processor for each thread. Large messages are in erpc_exchange.
TESTS = {
    "create_session_test": "*",
    "destroy_session_test": "*",
    "small_msg_test": "*",
    "packet_loss_test": "*",
    "multi_process_test": "*.TwoProcesses",
}
HUGE_PAGES = 600  # of 2 MB
FIRST_PORT = 31850  # of eRPC's handshake: it takes this one and the 31 after it (src/rpc_constants.h)
# As its library is built.
FLAGS = ("-std=c++11", "-O1", "-march=native", "-w", "-DERPC_INFINIBAND=true", "-DERPC_TESTING=true", "-DERPC_LOG_LEVEL=2")
SOURCE = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "erpc_exchange.cc")


def tree(settings):
    folder = os.path.join(settings.sources, "eRPC")
    if not os.path.exists(os.path.join(folder, "build/liberpc.a")):
        raise Skip(f"{folder} has no liberpc.a that is built")
    return folder


def memory(settings):
    """Variables of its environment."""
    with open("/proc/meminfo") as file:
        free = int(re.search(r"^HugePages_Free: *(\d+)", file.read(), re.MULTILINE)[1])
    if free >= HUGE_PAGES:
        return {}
    print(f"{free} huge pages are free, not {HUGE_PAGES}: eRPC gets ordinary pages")
    return {"LD_PRELOAD": os.path.join(settings.build, "tests/programs/libprograms_no_huge_pages.so")}


def own_test(settings, name, part):
    program = os.path.join(tree(settings), "build", name)
    with Node(settings) as node:
        run = node.start_beside(settings.verbena, "run", "--", program, f"--gtest_filter={part}", name=name,
                                more=memory(settings))
        node.ended(run)
        expect(re.search(r"\[  PASSED  \] [1-9]", run.out) and "[  FAILED  ]" not in run.out, f"{name} has not passed")


def exchange(settings, nodes):
    folder = tree(settings)
    with Node(settings) as node:
        program = os.path.join(node.folder, "erpc_exchange")
        node.ended(node.start_beside(
            "c++", *FLAGS, "-I", f"{folder}/src", "-I", f"{folder}/out/src", "-isystem", f"{folder}/third_party", "-isystem",
            f"{folder}/third_party/asio/include", SOURCE, "-o", program, "-L", f"{folder}/build", "-lerpc", "-libverbs",
            "-lnuma", "-lpthread", "-lrt", name="c++"))
        here = there = ()
        if nodes == 2:
            key = os.path.join(node.folder, "key")
            node.ended(node.start_beside(settings.verbena, "key", key, name="verbena key"))
            here, there = (("--node", f"erpc{i}", "--ip", f"127.0.12.{i}", "--port", port, "--key", key)
                           for port in (ports.reserve(),) for i in (1, 2))
        variables = memory(settings)
        server_uri, client_uri = (f"127.0.0.1:{FIRST_PORT + i}" for i in range(2))
        server = node.start_beside(settings.verbena, "run", *here, "--", program, server_uri, name="server", more=variables)
        server.wait_for_output("listening", settings.patience)
        client = node.ended(node.start_beside(settings.verbena, "run", *there, "--", program, client_uri, server_uri,
                                              name="client", more=variables))
        expect("48 requests, every byte right" in client.out, "the client found no proof")
        node.ended(server)


for name, part in TESTS.items():
    add(f"eRPC.{name.removesuffix('_test')}", lambda settings, n=name, p=part: own_test(settings, n, p), source="eRPC")
add("eRPC.exchange", lambda settings: exchange(settings, 1), source="eRPC")
add("eRPC.exchange_two_nodes", lambda settings: exchange(settings, 2), source="eRPC")
