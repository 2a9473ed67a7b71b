# SPDX-License-Identifier: BSD-2-Clause
"""NVMe over RDMA in user space: SPDK's target, with a disk in memory, and its initiator, built from its source
(tests/programs/from_sources). DPDK gives them ordinary memory (--no-huge), and they look for no PCI device (-u)."""

import json
import os
import random
import re
import signal
import time

from harness import ports
from harness.failure import Failure, Skip, expect
from harness.processes import Node
from harness.registry import add

SUBSYSTEM = "nqn.2026-11.test.verbena:disk"
SERIAL = "VERBENA0000001"
PORT = 4420  # of rdma_cm
BLOCKS, BLOCK = 32 << 10, 512  # 16 MiB
MEMORY = ("--no-huge", "-s", 512)  # MiB


def listening(address):
    return {"trtype": "RDMA", "adrfam": "IPv4", "traddr": address, "trsvcid": str(PORT)}


def config(node, name, *subsystems):
    """A file with SPDK's configuration. `subsystems`: name, and its calls: (method, parameters)."""
    path = os.path.join(node.folder, name)
    with open(path, "w") as file:
        json.dump({"subsystems": [{"subsystem": subsystem, "config": [{"method": method, "params": parameters}
                                                                       for method, parameters in calls]}
                                  for subsystem, calls in subsystems]}, file)
    return path


class Spdk:
    """A target, and programs as its initiators, on one node of Verbena or two, `by` "tcp" or "roce". They end with the
    test's node. `options`: of the target."""

    def __init__(self, node, by="", options=()):
        self._node, self._settings = node, node.settings
        self.tree = os.path.join(self._settings.sources, "spdk")
        if not os.path.exists(os.path.join(self.tree, "build/bin/nvmf_tgt")):
            raise Skip(f"{self.tree} has no nvmf_tgt that is built")
        self._here = self._there = ()
        self.address = "127.0.0.1"
        if by:
            self.address, other = "127.0.15.1", "127.0.15.2"
            self._here, self._there = ("--node", "spdk1"), ("--node", "spdk2")
        if by == "roce":
            self._here += ("--roce", self.address)
            self._there += ("--roce", other)
        elif by == "tcp":
            key = os.path.join(node.folder, "key")
            node.ended(node.start_beside(self._settings.verbena, "key", key, name="verbena key"))
            fabric = ("--port", ports.reserve(), "--key", key)
            self._here += ("--ip", self.address, *fabric)
            self._there += ("--ip", other, *fabric)
        self._target = self._start(
            self._here, "build/bin/nvmf_tgt", *self._of_an_application("target"), "-m", "0x1", *options, "--json",
            config(node, "target.json",
                   ("bdev", [("bdev_malloc_create", {"name": "disk", "num_blocks": BLOCKS, "block_size": BLOCK})]),
                   ("nvmf", [("nvmf_create_transport", {"trtype": "RDMA"}),
                             ("nvmf_create_subsystem", {"nqn": SUBSYSTEM, "allow_any_host": True, "serial_number": SERIAL}),
                             ("nvmf_subsystem_add_ns", {"nqn": SUBSYSTEM, "namespace": {"bdev_name": "disk"}}),
                             ("nvmf_subsystem_add_listener", {"nqn": SUBSYSTEM, "listen_address": listening(self.address)})])))
        self._target.wait_for_lines("Target Listening on", 1, self._settings.patience,
                                    said=lambda: self._target.out + self._target.err)
        self._disk = config(node, "initiator.json", ("bdev", [
            ("bdev_nvme_attach_controller", {"name": "remote", "subnqn": SUBSYSTEM, **listening(self.address)})]))

    def _start(self, where, program, *arguments):
        return self._node.start_beside(self._settings.verbena, "run", *where, "--", os.path.join(self.tree, program),
                                       *arguments, name=os.path.basename(program))

    def _of_an_application(self, name):
        """Options of programs that are made with SPDK's event framework."""
        return (*MEMORY, "-u", "-r", os.path.join(self._node.folder, f"{name}.sock"), "--disable-cpumask-locks")

    def perf(self, seconds):
        """spdk_nvme_perf for so long, not yet ended."""
        return self._start(self._there, "build/bin/spdk_nvme_perf", *MEMORY, "-r", self.where(), "-c", "0x2", "-o", 4096, "-q",
                           32, "-w", "randrw", "-M", 50, "-t", seconds)

    def wait_for_requests(self):
        """Until more have passed than connections begin with."""
        deadline = time.monotonic() + self._settings.patience
        while all(process["counters"]["requests_out"] < 500 for process in self._node.processes()):
            if time.monotonic() > deadline:
                raise Failure("no requests pass")
            time.sleep(0.05)

    def run(self, program, *arguments):
        """Runs an initiator of its own."""
        return self._node.ended(self._start(self._there, program, *arguments))

    def run_on_disk(self, program, *arguments):
        """Runs a program that takes SPDK's configuration, for which the disk is remoten1."""
        return self.run(program, *self._of_an_application("initiator"), "-m", "0x2", "--json", self._disk, *arguments)

    def where(self, subsystem=SUBSYSTEM):
        return f"trtype:RDMA adrfam:IPv4 traddr:{self.address} trsvcid:{PORT} subnqn:{subsystem}"

    def kill(self):
        self._target.kill()

    def end(self):
        self._target.signal(signal.SIGINT)
        self._node.ended(self._target)
        for line in (self._target.out + self._target.err).splitlines():
            expect("*ERROR*" not in line, f"nvmf_tgt says {line}")


def identify(settings):
    with Node(settings) as node:
        spdk = Spdk(node)
        seen = spdk.run("build/bin/spdk_nvme_identify", *MEMORY[:1], "-d", MEMORY[2], "-r", spdk.where()).out
        expect(SERIAL in seen and re.search(rf"Size \(in LBAs\): +{BLOCKS} ", seen), "it describes another disk")
        seen = spdk.run("build/bin/spdk_nvme_identify", *MEMORY[:1], "-d", MEMORY[2], "-r",
                        spdk.where("nqn.2014-08.org.nvmexpress.discovery")).out
        expect(SUBSYSTEM in seen, "the discovery does not know the subsystem")
        spdk.end()


def copy(settings, by="", options=()):
    """Random bytes to the disk and back."""
    with Node(settings) as node:
        spdk = Spdk(node, by, options)
        there, back = (os.path.join(node.folder, name) for name in ("there", "back"))
        content = random.Random(7).randbytes(BLOCKS * BLOCK)
        with open(there, "wb") as file:
            file.write(content)
        for size, depth in ((4096, 32), (1 << 20, 4)):  # a request of NVMe is 128 KiB at most
            count = BLOCKS * BLOCK // size
            how = ("--bs", size, "--qd", depth, "--count", count, "--aio")
            spdk.run_on_disk("build/bin/spdk_dd", "--if", there, "--ob", "remoten1", *how)
            spdk.run_on_disk("build/bin/spdk_dd", "--ib", "remoten1", "--of", back, *how)
            with open(back, "rb") as file:
                expect(file.read() == content, f"the disk has other bytes, by requests of {size} bytes")
            os.remove(back)
            content = content[::-1]
            with open(there, "wb") as file:
                file.write(content)
        spdk.end()


def verify(settings, by=""):
    """bdevperf reads what it has written, and compares; spdk_nvme_perf reads and writes at once."""
    with Node(settings) as node:
        spdk = Spdk(node, by)
        for size, depth in ((512, 1), (4096, 32), (64 << 10, 8)):
            seen = spdk.run_on_disk("build/examples/bdevperf", "-w", "verify", "-o", size, "-q", depth, "-t", 2)
            said = seen.out + seen.err
            expect("remoten1" in said and not re.search(r"(?i)\berror\b|miscompare|failed", said), "bdevperf speaks of trouble")
        seen = node.ended(spdk.perf(2))
        total = re.search(r"^Total +: +([0-9.]+)", seen.out, re.MULTILINE)
        expect(total and float(total[1]) > 0, "spdk_nvme_perf has done nothing")
        spdk.end()


def target_killed(settings, by=""):
    """Its initiator sees the connection end, with requests under way, and ends."""
    with Node(settings) as node:
        spdk = Spdk(node, by)
        perf = spdk.perf(60)
        spdk.wait_for_requests()
        spdk.kill()
        node.ended(perf, status=1)
        expect("qpair process completion error" in perf.err, "spdk_nvme_perf has not seen the end of the connection")


add("spdk.identify", identify, source="spdk")
add("spdk.copy", copy, source="spdk")
add("spdk.copy_two_nodes", lambda settings: copy(settings, "tcp"), source="spdk")
add("spdk.copy_by_RoCE", lambda settings: copy(settings, "roce"), source="spdk")
add("spdk.copy_by_interrupts", lambda settings: copy(settings, options=("--interrupt-mode",)), source="spdk")
add("spdk.verify", verify, source="spdk")
add("spdk.verify_two_nodes", lambda settings: verify(settings, "tcp"), source="spdk")
add("spdk.target_killed", target_killed, source="spdk")
add("spdk.target_killed_two_nodes", lambda settings: target_killed(settings, "tcp"), source="spdk")
