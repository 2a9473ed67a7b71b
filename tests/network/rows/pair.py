# SPDX-License-Identifier: BSD-2-Clause
"""A server on one host and its client on another."""

from cases.rdma_cm import ended_well
from harness import ports
from harness.failure import expect
from harness.pair import TROUBLE, no_trouble

SERVER, CLIENT = 0, 1  # which of the hosts


def by_port(hosts, program, both=(), server=(), client=(), port_option="-p", harmless=()):
    """Programs that find each other over a TCP port of their own. Both must succeed and print no errors.

    Returns (server, client), when both have ended.
    """
    first, second = start_by_port(hosts, program, both, server, client, port_option)
    finish(hosts, second, first)
    for side in (second, first):
        no_trouble(side, harmless)
    return first, second


def start_by_port(hosts, program, both=(), server=(), client=(), port_option="-p", client_behind=()):
    """Returns (server, client), which run. `client_behind`: the command that starts the client."""
    port = ports.reserve()
    first = hosts[SERVER].start(program, port_option, port, *both, *server, name=f"{program} (server)")
    hosts[SERVER].wait_listening(port, first)
    second = hosts[CLIENT].start(*client_behind, program, port_option, port, *both, *client, hosts[SERVER].plain_address,
                                 name=f"{program} (client)")
    return first, second


def by_manager(hosts, server, client, server_ends=True):
    """Programs that find each other through rdma_cm. Returns (server, client); the caller knows what their output must
    be."""
    first = serve_by_manager(hosts, server)
    second = hosts[CLIENT].start(*client, name=f"{client[0]} (client)")
    finish(hosts, second, *([first] if server_ends else []))
    return first, second


def serve_by_manager(hosts, server):
    """Starts it, and waits until it listens."""
    first = hosts[SERVER].start(*server, name=f"{server[0]} (server)")
    hosts[SERVER].wait_for("listeners")
    return first


def finish(hosts, *programs):
    for program in programs:
        seen = program.wait(hosts[0].settings.patience)
        expect(ended_well(program, seen), f"{program.name} ended with status {seen}")
        said = TROUBLE.search(program.out)
        expect(said is None, f"{program.name} speaks of trouble: '{said and said.group(0)}'")
