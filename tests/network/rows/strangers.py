# SPDX-License-Identifier: BSD-2-Clause
"""Nodes that do not belong together: what both logs, and `verbena doctor --peer`, say about it."""

import contextlib
import os
import subprocess

from harness import ports
from harness.failure import expect
from rows.pair import CLIENT, SERVER
from rows.table import group

rows = group("strangers", places=("namespaces",), processors=1)


@contextlib.contextmanager
def another_key(host):
    key = os.path.join(host.folder, "another.key")
    if not os.path.exists(key):
        subprocess.run([host.verbena, "key", key], check=True, capture_output=True, timeout=60)
    own = host.options
    host.options = ["--ip", host.address, "--key", key]
    try:
        yield
    finally:
        host.options = own


def watch(host):
    watcher = host.start("ibv_asyncwatch")
    watcher.wait_for_output("async event FD", host.settings.patience)
    return watcher


@rows.row("another_key_is_logged")
def another_key_is_logged(hosts):
    """By both ends, with the address of the other one."""
    port = ports.reserve()
    options = ("-p", port, "-g", 1, "-n", 10)
    server = hosts[SERVER].start("ibv_rc_pingpong", *options, name="ibv_rc_pingpong (server)")
    hosts[SERVER].wait_listening(port, server)
    with another_key(hosts[CLIENT]):
        client = hosts[CLIENT].start("ibv_rc_pingpong", *options, hosts[SERVER].address,
                                     name="ibv_rc_pingpong (client)")
    # The process with the lower address has connected.
    expect(client.wait(hosts[CLIENT].settings.patience) != 0, "a node with another key was let in")
    server.kill()  # it would wait for ever
    for who, said in ((server, server.err), (client, client.err)):
        expect("another key" in said and "10.77.0." in said,
               f"{who.name} does not say whom it refuses, and why: {said}")


@rows.row("doctor_says_what_is_wrong")
def doctor_says_what_is_wrong(hosts):
    server, client = hosts
    watch(server)

    def doctor(host, says, status):
        said = client.tool("doctor", "--peer", host, status=status)
        expect(says in said, f"`verbena doctor --peer {host}` does not say '{says}': {said}")

    doctor(server.address, "answers in", 0)
    with another_key(client):
        doctor(server.address, "another key", 1)
    server.add_address("10.77.0.99")
    doctor("10.77.0.99", "nobody listens", 1)  # the machine has it, the node does not
    doctor("no-such-host.invalid", "is no address, and no name that resolves", 1)
    server.pull_cable()
    doctor(server.address, "does not answer", 1)
    server.plug_cable()
    doctor(server.address, "answers in", 0)
