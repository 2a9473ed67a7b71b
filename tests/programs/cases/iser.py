# SPDX-License-Identifier: BSD-2-Clause
"""iSCSI over RDMA (iSER): a disk of tgt's tgtd, for libiscsi's tools and for QEMU's.

Debian 12 has tgt 1.0.85 and libiscsi 1.19. On adapters, too:
- tgtd wants the address and the name of the initiator in its ACLs, where over TCP either is enough (iser_text.c,
  iser_login_start: `ip_acl() || iqn_acl()`; 1.0.97 has `&&`);
- `tgtd --iser port=N` is refused: iser_param_parser (iser.c) looks at an errno that libnl's constructor has set, which
  looks for /etc/libnl/classid;
- libiscsi takes requests of at most 256 KiB (iser.c, overflow_data_size), and iscsi-test-cu crashes at random: the list
  of descriptors is not initialised (b4ba920 of libiscsi 1.20), and is empty with more than 256 requests at once.
"""

import os
import random
import socket
import time

from cases.rdma_cm import installed
from harness import ports
from harness.failure import Failure, expect
from harness.processes import Node
from harness.registry import add

TARGET, INITIATOR = "iqn.2026-11.verbena.test:disk", "iqn.2026-11.verbena.test:initiator"
PORT = 3260  # of rdma_cm
SIZE = 16 << 20
REQUEST = 256 << 10  # bytes
OFFSETS = (0, REQUEST + 512, 5_000_192, SIZE - REQUEST)


class Disk:
    """A disk of random bytes, offered by a tgtd that runs with `here`, options of `verbena run`. Its daemon ends with
    the node of the test."""

    def __init__(self, node, here=()):
        for program in ("tgtd", "tgtadm"):
            installed(program)
        self.path = os.path.join(node.folder, "disk")
        with open(self.path, "wb") as file:
            file.write(random.Random(5).randbytes(SIZE))
        self._node = node
        self.tcp_port = ports.reserve()
        self._socket = {"TGT_IPC_SOCKET": os.path.join(node.folder, "tgtd")}
        self._daemon = node.start_beside(
            node.settings.verbena, "run", *here, "--", "tgtd", "-f", "--iscsi", f"portal=127.0.0.1:{self.tcp_port}",
            name="tgtd", more=self._socket)
        self._wait()
        self.offer("iser", TARGET, self.path)

    def offer(self, transport, target, path, number=1, initiators=(INITIATOR,)):
        """A target of its own, with the disk `path`."""
        self._tell(transport, number, "target", "new", "--targetname", target)
        self._tell(transport, number, "logicalunit", "new", "--lun", 1, "-b", path)
        self._tell(transport, number, "target", "bind", "-I", "ALL")
        for name in initiators:
            self._tell(transport, number, "target", "bind", "-Q", name)

    def _wait(self):
        """Until tgtadm will be answered. tgtd listens to it before it opens the device, and answers afterwards."""
        deadline = time.monotonic() + self._node.settings.patience
        while True:
            with socket.socket(socket.AF_UNIX) as peer:
                try:
                    return peer.connect(self._socket["TGT_IPC_SOCKET"] + ".0")
                except OSError:
                    pass
            if self._daemon.poll() is not None or time.monotonic() > deadline:
                raise Failure("tgtd does not listen to tgtadm")
            time.sleep(0.01)

    def _tell(self, transport, number, what, operation, *arguments):
        self._node.ended(self._node.start_beside(
            "tgtadm", "--lld", transport, "--mode", what, "--op", operation, "--tid", number, *arguments,
            name=f"tgtadm {what} {operation}", more=self._socket))

    def content(self):
        with open(self.path, "rb") as file:
            return file.read()


def url(address):
    return f"iser://{address}:{PORT}/{TARGET}/1"


def drive(address):
    """The disk as an image of QEMU's tools."""
    return (f"driver=raw,file.driver=iscsi,file.transport=iser,file.portal={address}:{PORT},file.target={TARGET},file.lun=1,"
            f"file.initiator-name={INITIATOR}")


def read_and_write(settings, nodes):
    for program in ("iscsi-inq", "iscsi-readcapacity16", "qemu-io", "qemu-img"):
        installed(program)
    with Node(settings) as node:
        here = there = ("--node", "iser")
        address = "127.0.0.1"
        if nodes == 2:
            key = os.path.join(node.folder, "key")
            node.ended(node.start_beside(settings.verbena, "key", key, name="verbena key"))
            fabric = ("--port", ports.reserve(), "--key", key)
            here = ("--node", "iser1", "--ip", "127.0.11.1", *fabric)
            there = ("--node", "iser2", "--ip", "127.0.11.2", *fabric)
            address = "127.0.11.1"
        disk = Disk(node, here)

        def run(*command):
            return node.ended(node.start_beside(settings.verbena, "run", *there, "--", *command, name=command[0])).out

        expect("VIRTUAL-DISK" in run("iscsi-inq", "-i", INITIATOR, url(address)), "it is another disk")
        expect(f"Total size:{SIZE}" in run("iscsi-readcapacity16", "-i", INITIATOR, url(address)), "its size is another")
        content, pattern = bytearray(disk.content()), os.path.join(node.folder, "pattern")
        with open(pattern, "wb") as file:
            file.write(random.Random(6).randbytes(REQUEST))
        writes = []
        for offset in OFFSETS:
            writes += ["-c", f"write -s {pattern} {offset} {REQUEST}"]
            with open(pattern, "rb") as file:
                content[offset:offset + REQUEST] = file.read()
        run("qemu-io", "--image-opts", "-t", "none", *writes, "-c", "flush", drive(address))
        expect(disk.content() == content, "the disk does not have what was written")
        back = os.path.join(node.folder, "back")
        run("qemu-img", "dd", "--image-opts", f"bs={REQUEST}", f"if={drive(address)}", f"of={back}", "-O", "raw")
        with open(back, "rb") as file:
            expect(file.read() == content, "what was read is not what the disk has")


add("tgtd.iser", lambda settings: read_and_write(settings, 1))
add("tgtd.iser_two_nodes", lambda settings: read_and_write(settings, 2))
