# SPDX-License-Identifier: BSD-2-Clause
"""UCX by its own performance test: with the transports that it chooses by itself, and with those of verbs alone."""

from harness.failure import expect
from harness.pair import run_pair
from harness.processes import Node
from harness.registry import add

# None: nothing is set. UCX then takes shared memory for data between processes of one machine.
TRANSPORTS = {"default": None, "rc": "rc", "ud": "ud", "all": "all"}
TESTS = ("tag_lat", "tag_bw", "ucp_put_lat", "ucp_get", "ucp_fadd", "stream_lat")
MESSAGES = 200


def exchange(settings, transports, test):
    with Node(settings) as node:
        prefix = () if transports is None else ("env", f"UCX_TLS={transports}")
        # 4096 bytes: more than one packet of the smallest MTU; an atomic has 8.
        both = ("-t", test, "-n", MESSAGES, "-w", 20, *(() if "fadd" in test else ("-s", 4096)))
        _, client = run_pair(node, "ucx_perftest", both=both, prefix=prefix)
        final = [line for line in client.out.splitlines() if line.startswith("Final:")]
        expect(len(final) == 1 and int(final[0].split()[1]) == MESSAGES, f"{client.name} did not report {MESSAGES} messages")


for name, transports in TRANSPORTS.items():
    for test in TESTS:
        add(f"ucx_perftest.{name}_{test}", lambda settings, t=transports, w=test: exchange(settings, t, w))
