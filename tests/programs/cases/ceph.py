# SPDX-License-Identifier: BSD-2-Clause
"""Ceph's messenger over verbs (ms type = async+rdma): a monitor, an OSD that keeps its objects in memory, clients.

A daemon loses a WQE of its SRQ with each message that comes for a connection which it has closed: handle_rx_event
(src/msg/async/rdma/RDMAStack.cc, 16.2) returns the buffer to the pool, and posts none. That is about two for each client that
leaves, and after "receive queue len" of them it receives nothing any more, with any adapter. Hence the numbers below.
"""

import os
import random
import time

from cases.rdma_cm import installed
from harness import ports
from harness.failure import Failure, expect
from harness.processes import Node
from harness.registry import add

CLUSTER = "11111111-2222-3333-4444-555555555555"
OSD = "22222222-2222-3333-4444-555555555555"
CONFIGURATION = """[global]
fsid = {cluster}
mon host = 127.0.0.1:{port}
mon initial members = a
auth cluster required = none
auth service required = none
auth client required = none
ms type = async+rdma
ms async rdma device name = verbena0
ms async rdma receive buffers = 2048
ms async rdma receive queue len = 1024
ms async op threads = 1
public network = 127.0.0.0/8
run dir = {folder}
log file = {folder}/$name.log
admin socket = {folder}/$name.asok
pid file = {folder}/$name.pid
mon data = {folder}/mon
mon data avail crit = 1
mon data avail warn = 1
mon allow pool size one = true
osd data = {folder}/osd
osd objectstore = memstore
memstore device bytes = 536870912
osd pool default size = 1
osd pool default min size = 1
osd pool default pg autoscale mode = off
osd crush chooseleaf type = 0
"""
VALUES = 4
VALUE = 60_000  # bytes; a monitor takes 64 KiB
OBJECTS = (0, 1, 4096, 65537, 5 << 20)  # bytes
POOL = "pool"


class Cluster:
    """A monitor in its quorum."""

    def __init__(self, node):
        for program in ("ceph-mon", "ceph", "monmaptool"):
            installed(program)
        self.node = node
        port = ports.reserve()
        self.file = self.path("ceph.conf")
        with open(self.file, "w") as configuration:
            configuration.write(CONFIGURATION.format(cluster=CLUSTER, port=port, folder=node.folder))
        monitors = self.path("monitors")
        node.ended(node.start_beside("monmaptool", "--create", "--add", "a", f"127.0.0.1:{port}", "--fsid", CLUSTER, monitors,
                                     name="monmaptool"))
        node.run("ceph-mon", "-c", self.file, "-i", "a", "--mkfs", "--monmap", monitors, name="ceph-mon --mkfs")
        self.daemons = [node.start("ceph-mon", "-c", self.file, "-i", "a", "-f", name="ceph-mon")]
        expect("mon: 1 daemons" in self.ceph("-s"), "the monitor is not in its quorum")

    def path(self, name):
        return os.path.join(self.node.folder, name)

    def ceph(self, *command):
        """What the client prints."""
        return self.node.run("ceph", "-c", self.file, "--connect-timeout", "30", *command, name=f"ceph {command[0]}").out

    def rados(self, *command):
        return self.node.run("rados", "-c", self.file, "-p", POOL, *command, name=f"rados {command[0]}").out

    def add_osd(self):
        for program in ("ceph-osd", "rados"):
            installed(program)
        os.mkdir(self.path("osd"))
        self.ceph("osd", "new", OSD, "0")
        osd = ("ceph-osd", "-c", self.file, "-i", "0")
        self.node.run(*osd, "--mkfs", "--osd-uuid", OSD, name="ceph-osd --mkfs")
        self.daemons.append(self.node.start(*osd, "-f", name="ceph-osd"))
        deadline = time.monotonic() + self.node.settings.patience
        while "1 up" not in self.ceph("osd", "stat"):
            self.all_run()
            if time.monotonic() > deadline:
                raise Failure("the OSD is not up")
        self.ceph("osd", "pool", "create", POOL, "8", "8")

    def all_run(self):
        for daemon in self.daemons:
            expect(daemon.poll() is None, f"{daemon.name} has ended")


def monitor(settings):
    """Clients put values at the monitor and take them back."""
    with Node(settings) as node:
        cluster = Cluster(node)
        value, back = cluster.path("value"), cluster.path("back")
        with open(value, "w") as written:
            written.write("".join(chr(33 + i * i % 90) for i in range(VALUE)))
        for i in range(VALUES):
            cluster.ceph("config-key", "set", f"key{i}", "-i", value)
            cluster.ceph("config-key", "get", f"key{i}", "-o", back)
            with open(value) as one, open(back) as other:
                expect(one.read() == other.read().rstrip("\n"), "the value has changed")
        cluster.all_run()


def osd(settings):
    """Objects go to the OSD and come back; `rados bench seq` compares what it reads with what `write` wrote."""
    with Node(settings) as node:
        cluster = Cluster(node)
        cluster.add_osd()
        source = random.Random(16)
        for size in OBJECTS:
            with open(cluster.path("object"), "wb") as file:
                file.write(source.randbytes(size))
            cluster.rados("put", f"object{size}", cluster.path("object"))
        source = random.Random(16)
        for size in OBJECTS:
            cluster.rados("get", f"object{size}", cluster.path("back"))
            with open(cluster.path("back"), "rb") as file:
                expect(file.read() == source.randbytes(size), f"the object of {size} bytes has changed")
        cluster.rados("bench", "3", "write", "-b", "65536", "-t", "8", "--no-cleanup")
        read = cluster.rados("bench", "3", "seq", "-t", "8")
        expect("Total reads made" in read and "is not correct" not in read, "rados bench read other bytes than it wrote")
        cluster.all_run()


add("ceph.monitor", monitor, nightly=True)
add("ceph.osd", osd, nightly=True)
