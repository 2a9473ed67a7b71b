# SPDX-License-Identifier: BSD-2-Clause
"""The examples of librpma, built from its source (tests/programs/from_sources), on ordinary memory."""

import os

from cases.rdma_cm import wait_for
from harness import ports
from harness.failure import Skip, expect
from harness.processes import Node
from harness.registry import add

# Example: what each client is told besides address and port, as examples/run-all-examples.sh of librpma has it.
EXAMPLES = {
    "01-connection": ((),),
    "02-read-to-volatile": ((),),
    "03-read-to-persistent": ((),),
    "04-write-to-persistent": ((),),
    "05-flush-to-persistent": ((),),
    "06-multiple-connections": (("8",), ("9",), ("11",), ("12",)),
    "06scch-multiple-connections": (("8",), ("9",), ("11",), ("12",)),
    "07-atomic-write": (("1st_word", "2nd_word", "3rd_word"),),
    "08-messages-ping-pong": (("7", "3"),),
    "08srq-simple-messages-ping-pong-with-srq": (("7", "3"),),
    "09-flush-to-persistent-GPSPM": ((),),
    "09scch-flush-to-persistent-GPSPM": ((),),
    "10-send-with-imm": (("1234", "1st_word"),),
    "11-write-with-imm": (("1234",),),
    "12-receive-completion-queue": (("7", "3"),),
    "12scch-receive-completion-queue": (("7", "3"),),
    "13-messages-ping-pong-with-srq": (("1", "3"), ("5", "3"), ("10", "3")),
}
TOGETHER = ("13-messages-ping-pong-with-srq",)  # its server waits for all clients
CLIENTS = {"13-messages-ping-pong-with-srq": ("3",)}  # the server is told how many
SERVES_ON = ("06-multiple-connections", "06scch-multiple-connections")  # until it is killed


def example(settings, name):
    folder = os.path.join(settings.sources, "rpma", "build", "examples", name)
    server_program, client_program = os.path.join(folder, "server"), os.path.join(folder, "client")
    if not os.path.exists(server_program):
        raise Skip(f"{server_program} is not built")
    with Node(settings) as node:
        address = ("127.0.0.1", ports.reserve())
        server = node.start(server_program, *address, *CLIENTS.get(name, ()), name=f"{name} (server)")
        wait_for(node, "listeners")
        clients = []
        for arguments in EXAMPLES[name]:
            clients.append(node.start(client_program, *address, *arguments, name=f"{name} (client)"))
            if name not in TOGETHER:
                node.ended(clients[-1])
        for client in clients:
            node.ended(client)
        if name in SERVES_ON:
            expect(server.poll() is None, f"{server.name} has ended")
        else:
            node.ended(server)


for name in EXAMPLES:
    add(f"rpma.{name.replace('-', '_')}", lambda settings, n=name: example(settings, n), source="rpma")
