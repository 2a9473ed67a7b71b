# SPDX-License-Identifier: BSD-2-Clause
"""The hosts themselves, without Verbena: what the other groups rely on."""

import sys

from harness import ports
from harness.failure import expect
from rows.table import group

# Echoes every byte of one connection, then ends.
SERVER = """
import socket, sys
with socket.create_server((sys.argv[1], int(sys.argv[2]))) as server:
    peer, address = server.accept()
    print("from", address[0], flush=True)
    while data := peer.recv(4096):
        peer.sendall(data)
"""
# Prints "answer N" with the bytes that came back, or why none came. argv: address, port, seconds to wait.
CLIENT = """
import socket, sys, time
patience = float(sys.argv[3])
try:
    peer = socket.create_connection((sys.argv[1], int(sys.argv[2])), patience)
    peer.sendall(b"question")
    print("answer", peer.recv(8).decode(), flush=True)
    if sys.argv[4:]:  # until the connection ends
        peer.settimeout(None)
        print("end", peer.recv(1), flush=True)
except OSError as error:
    print("no answer:", error, flush=True)
"""
SOON = 0.3  # seconds after which a client without an answer gives up


def serve(host, port):
    server = host.start_plain(sys.executable, "-c", SERVER, host.address, port, name=f"server on {host.name}")
    host.wait_listening(port, server)
    return server


def ask(client, server, port, seconds, *more):
    return client.start_plain(sys.executable, "-c", CLIENT, server.address, port, seconds, *more,
                              name=f"client on {client.name}")


def expect_answer(client, server, patience):
    port = ports.reserve()
    served = serve(server, port)
    asked = ask(client, server, port, patience)
    asked.wait(patience)
    expect("answer question" in asked.out, f"{client.name} has no answer of {server.name}: {asked.out}")
    served.wait(patience)
    return served


def expect_silence(client, server, patience):
    port = ports.reserve()
    serve(server, port)
    asked = ask(client, server, port, SOON)
    asked.wait(patience)
    expect("no answer" in asked.out, f"{client.name} hears {server.name}, which it should not: {asked.out}")


plain = group("hosts", hosts=3, needs_network=False, processors=1)
cables = group("cables", hosts=3, needs_network=False, processors=1, places=("namespaces",))


@plain.row("every_pair_talks")
def every_pair_talks(hosts):
    for client in hosts:
        for server in hosts:
            expect_answer(client, server, client.settings.patience)


@cables.row("addresses_are_seen")
def addresses_are_seen(hosts):
    served = expect_answer(hosts[0], hosts[1], hosts[0].settings.patience)
    expect(f"from {hosts[0].address}" in served.out, f"the server saw another address: {served.out}")


@cables.row("pulled_and_plugged")
def pulled_and_plugged(hosts):
    one, other, third = hosts
    patience = one.settings.patience
    other.pull_cable()
    expect_silence(one, other, patience)
    expect_answer(one, third, patience)
    other.plug_cable()
    expect_answer(one, other, patience)


@cables.row("partial_partition")
def partial_partition(hosts):
    """The first two do not hear each other; the third hears both."""
    one, other, third = hosts
    patience = one.settings.patience
    for host in (one, other):
        host.isolate()
    expect_silence(one, other, patience)
    expect_answer(one, third, patience)
    expect_answer(third, other, patience)
    for host in (one, other):
        host.isolate(False)
    expect_answer(one, other, patience)


@cables.row("connections_broken")
def connections_broken(hosts):
    one, other, _ = hosts
    patience = one.settings.patience
    port = ports.reserve()
    serve(other, port)
    asked = ask(one, other, port, patience, "and stay")
    asked.wait_for_output("answer question", patience)
    one.break_connections()
    asked.wait(patience)
    expect("no answer: [Errno" in asked.out, f"the connection was not broken: {asked.out}")


@cables.row("address_taken_away")
def address_taken_away(hosts):
    one, other, _ = hosts
    patience = one.settings.patience
    port = ports.reserve()
    serve(other, port)
    other.take_address()
    asked = ask(one, other, port, SOON)
    asked.wait(patience)
    expect("no answer" in asked.out, f"an address that nobody has answers: {asked.out}")
    other.give_address()
    expect_answer(one, other, patience)
