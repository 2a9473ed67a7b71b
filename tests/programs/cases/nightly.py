# SPDX-License-Identifier: BSD-2-Clause
"""Programs of large packages, or with ports that only one test of a machine can have: tests/programs/nightly."""

import os

from cases.rdma_cm import installed
from harness import ports
from harness.failure import expect
from harness.processes import Node
from harness.registry import add

CEPH = """[global]
fsid = 11111111-2222-3333-4444-555555555555
mon host = 127.0.0.1:{port}
mon initial members = a
ms bind msgr2 = false
auth cluster required = none
auth service required = none
auth client required = none
ms type = async+rdma
ms async rdma device name = verbena0
ms async rdma receive buffers = 256
ms async rdma receive queue len = 128
ms async op threads = 1
run dir = {folder}
log file = {folder}/$name.log
admin socket = {folder}/$name.asok
pid file = {folder}/$name.pid
mon data = {folder}/mon
mon data avail crit = 1
mon data avail warn = 1
"""
VALUES = 4
VALUE = 60_000  # bytes; a monitor takes 64 KiB


def ceph(settings):
    """Ceph's messenger over verbs: a monitor, and clients that put values there and take them back."""
    for program in ("ceph-mon", "ceph", "monmaptool"):
        installed(program)
    with Node(settings) as node:
        port, file = ports.reserve(), os.path.join(node.folder, "ceph.conf")
        with open(file, "w") as configuration:
            configuration.write(CEPH.format(port=port, folder=node.folder))
        monitors = os.path.join(node.folder, "monitors")
        node.ended(node.start_beside("monmaptool", "--create", "--add", "a", f"127.0.0.1:{port}", "--fsid",
                                     "11111111-2222-3333-4444-555555555555", monitors, name="monmaptool"))
        node.run("ceph-mon", "-c", file, "-i", "a", "--mkfs", "--monmap", monitors, name="ceph-mon --mkfs")
        monitor = node.start("ceph-mon", "-c", file, "-i", "a", "-f", name="ceph-mon")
        client = ("ceph", "-c", file, "--connect-timeout", "30")
        expect("mon: 1 daemons" in node.run(*client, "-s", name="ceph -s").out, "the monitor is not in its quorum")
        value, back = (os.path.join(node.folder, name) for name in ("value", "back"))
        with open(value, "w") as written:
            written.write("".join(chr(33 + i * i % 90) for i in range(VALUE)))
        for i in range(VALUES):
            node.run(*client, "config-key", "set", f"key{i}", "-i", value, name="ceph config-key set")
            node.run(*client, "config-key", "get", f"key{i}", "-o", back, name="ceph config-key get")
            with open(value) as one, open(back) as other:
                expect(one.read() == other.read().rstrip("\n"), "the value has changed")
        expect(monitor.poll() is None, "the monitor has ended")


def dapl(settings):
    """uDAPL over rdma_cm. The program has fixed ports, for its parameters over TCP as well. (dtestx's server sends its
    parameters before it listens, so a fast client of it is rejected.)"""
    installed("dtest")
    with Node(settings) as node:
        interfaces = os.path.join(node.folder, "dat.conf")
        with open(interfaces, "w") as file:
            file.write('verbena-cma u2.0 nonthreadsafe default libdaplofa.so.2 dapl.2.0 "127.0.0.1 0" ""\n')
        command = ("env", f"DAT_OVERRIDE={interfaces}", "dtest", "-P", "verbena-cma")
        server = node.start(*command, name="dtest (server)")
        server.wait_for_output("waiting for client", settings.patience)
        client = node.start(*command, "-h", "127.0.0.1", name="dtest (client)")
        for side in (client, server):
            node.ended(side)
            expect("PASSED" in side.out, f"{side.name} does not say that it passed")


add("ceph.monitor", ceph, nightly=True)
add("dtest", dapl, nightly=True)
