# SPDX-License-Identifier: BSD-2-Clause
"""iperf3 over rsockets: librdmacm's librspreload.so under a program written for plain sockets.

With RDMAV_FORK_SAFE=1, and at most three connections that the server accepts: docs/FEATURES.md, "select under
librspreload", says which lines of rdma-core 44 do not stand anything else.
"""

import glob
import json
import re

from cases.rdma_cm import installed
from harness import ports
from harness.failure import Skip, expect
from harness.processes import Node
from harness.registry import add

BYTES = 64 << 20
IN_FLIGHT = 256 << 10  # of a stream at the end: buffers of 128 KiB at either end
# name: options of the client, streams
ROWS = {
    "one_stream": ((), 1),
    "two_streams": (("-P", "2"), 2),
    "reverse": (("-R",), 1),
    "small_writes": (("-l", "1000"), 1),
}


def preload():
    found = sorted(path for folder in ("/usr/lib", "/usr/lib64", "/usr/lib/*")
                   for path in glob.glob(f"{folder}/rsocket/librspreload.so*"))
    if not found:
        raise Skip("librspreload.so is not installed")
    return found[0]


def connected(program):
    """How many queue pairs this process connected: librspreload falls back to plain TCP without a word."""
    return len(re.findall(r"QP \S+: RTR to RTS", program.err))


def transfer(settings, options, streams):
    installed("iperf3")
    variables = {"LD_PRELOAD": preload(), "RDMAV_FORK_SAFE": "1", "VERBENA_LOG": "info"}
    with Node(settings) as node:
        port = ports.reserve()

        def start(name, *arguments):
            return node.start_beside(node.verbena, "run", "--", "iperf3", "-p", port, "-J", *arguments,
                                     name=f"iperf3 ({name})", more=variables)

        server = start("server", "-s", "-1")
        ports.wait_listening(port, server, settings.patience)
        client = start("client", "-c", "127.0.0.1", "-n", BYTES, *options)
        for side in (client, server):
            node.ended(side)
            expect(connected(side) == streams + 1,
                   f"{side.name} connected {connected(side)} queue pairs, not {streams} and one for control")
        end = json.loads(client.out)["end"]
        sent, received = end["sum_sent"]["bytes"], end["sum_received"]["bytes"]
        expect(sent >= BYTES, f"{sent} bytes were sent, not {BYTES}")
        # iperf3's server counts what arrives until the control connection tells it the end (iperf_tcp_recv).
        expect(received >= BYTES - streams * IN_FLIGHT, f"{received} bytes arrived of {sent}")


for name, (options, streams) in ROWS.items():
    add(f"iperf3.{name}", lambda settings, o=options, s=streams: transfer(settings, o, s))
