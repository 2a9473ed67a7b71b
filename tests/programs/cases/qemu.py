# SPDX-License-Identifier: BSD-2-Clause
"""QEMU moves the memory of a virtual machine to another QEMU over RDMA (migrate rdma:...), and gives a machine the device
pvrdma, behind which it uses verbena0."""

import json
import os
import random
import socket
import time

from cases.rdma_cm import installed
from harness import ports
from harness.failure import Failure, expect
from harness.processes import Node
from harness.registry import add

ADDRESS, SIZE = 16 << 20, 32 << 20  # of the bytes in the machine's memory
PORT = 4444


class Machine:
    """A virtual machine that does not run: what moves is its memory. QEMU is driven by QMP."""

    def __init__(self, node, run_options, name, *options):
        self._path = os.path.join(node.folder, name)
        self._patience = node.settings.patience
        self._process = node.start_beside(
            node.settings.verbena, "run", *run_options, "--", "qemu-system-x86_64", "-machine", "pc", "-accel", "tcg", "-m", 128,
            "-display", "none", "-nodefaults", "-S", "-qmp", f"unix:{self._path},server=on,wait=off", *options,
            name=f"QEMU ({name})")
        self._socket = self._connected().makefile("rw")
        self._socket.readline()  # the greeting
        self.tell("qmp_capabilities")

    def _connected(self):
        deadline = time.monotonic() + self._patience
        while True:
            peer = socket.socket(socket.AF_UNIX)
            peer.settimeout(self._patience)
            try:
                peer.connect(self._path)
                return peer
            except OSError:
                peer.close()
                if self._process.poll() is not None or time.monotonic() > deadline:
                    raise Failure(f"{self._process.name} does not answer") from None
                time.sleep(0.01)

    @property
    def pid(self):
        return self._process.pid

    def tell(self, command, **arguments):
        print(json.dumps({"execute": command, "arguments": arguments}), file=self._socket, flush=True)
        while True:
            answer = json.loads(self._socket.readline())
            if "event" in answer:
                continue
            expect("return" in answer, f"{self._process.name}: {command}: {answer}")
            return answer["return"]

    def wait_for_migration(self):
        deadline = time.monotonic() + self._patience
        while (seen := self.tell("query-migrate").get("status")) != "completed":
            expect(seen not in ("failed", "cancelled") and time.monotonic() < deadline, f"the migration is {seen}")
            time.sleep(0.02)

    def memory(self):
        path = self._path + ".memory"
        self.tell("pmemsave", val=ADDRESS, size=SIZE, filename=path)
        with open(path, "rb") as file:
            return file.read()

    def end(self):
        self.tell("quit")
        seen = self._process.wait(self._patience)
        expect(seen == 0, f"{self._process.name} ended with status {seen}")


# The machine's memory is a memfd that QEMU maps MAP_SHARED, so that the source maps that of the target.
SHARED = ("-object", "memory-backend-memfd,id=memory,size=128M,share=on", "-machine", "memory-backend=memory")


def migrate(settings, pinned, nodes, memory=()):
    installed("qemu-system-x86_64")
    with Node(settings) as node:
        content = random.Random(7).randbytes(SIZE)
        pattern = os.path.join(node.folder, "pattern")
        with open(pattern, "wb") as file:
            file.write(content)
        here = there = ("--node", "qemu")
        address = "127.0.0.1"
        if nodes == 2:
            key = os.path.join(node.folder, "key")
            node.ended(node.start_beside(settings.verbena, "key", key, name="verbena key"))
            fabric = ("--port", ports.reserve(), "--key", key)
            here = ("--node", "qemu1", "--ip", "127.0.10.1", *fabric)
            there = ("--node", "qemu2", "--ip", "127.0.10.2", *fabric)
            address = "127.0.10.2"
        target = Machine(node, there, "target", "-incoming", "defer", *memory)
        source = Machine(node, here, "source", "-device", f"loader,file={pattern},addr={ADDRESS},force-raw=on", *memory)
        for machine in (source, target):
            machine.tell("migrate-set-capabilities", capabilities=[{"capability": "rdma-pin-all", "state": pinned}])
        target.tell("migrate-incoming", uri=f"rdma:{address}:{PORT}")
        source.tell("migrate", uri=f"rdma:{address}:{PORT}")
        source.wait_for_migration()
        expect(target.memory() == content, "the memory is not what it was")
        for machine in (source, target):
            machine.end()


def pvrdma(settings):
    """The device asks verbena0 what it can, and makes itself no better (rdma_backend.c, rdma_backend_init). Debian's
    kernels have no driver for it (CONFIG_INFINIBAND_VMWARE_PVRDMA is not set), so no guest uses it here."""
    installed("qemu-system-x86_64")
    with Node(settings) as node:
        mads = f"socket,id=mads,server=on,wait=off,path={os.path.join(node.folder, 'mads')}"
        machine = Machine(node, (), "pvrdma", "-object", "memory-backend-ram,id=memory,size=128M,share=on",
                          "-machine", "memory-backend=memory", "-chardev", mads, "-device", "vmxnet3,addr=10.0,multifunction=on",
                          "-device", "pvrdma,addr=10.1,ibdev=verbena0,netdev=lo,mad-chardev=mads")
        said = machine.tell("human-monitor-command", **{"command-line": "info rdma"})
        expect("pvrdma" in said, f"info rdma says: {said}")
        devices = machine.tell("query-pci")[0]["devices"]
        expect(any(device["id"]["device"] == 0x0820 for device in devices), "the machine has no pvrdma")
        expect(any(process["pid"] == machine.pid for process in node.processes()), "QEMU has not opened verbena0")
        machine.end()


for pinned in (True, False):
    for nodes in (1, 2):
        add(f"qemu.migration_{'pinned' if pinned else 'unpinned'}_{nodes}_node{'s' if nodes == 2 else ''}",
            lambda settings, p=pinned, n=nodes: migrate(settings, p, n))
add("qemu.migration_shared_memory", lambda settings: migrate(settings, True, 1, SHARED))
add("qemu.pvrdma_without_guest", pvrdma)
