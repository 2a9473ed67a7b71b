# SPDX-License-Identifier: BSD-2-Clause
"""One node of a fabric: an address that programs under `verbena run --ip` have."""

import os
import subprocess
import time

from harness import ports
from harness.failure import Failure, expect
from harness.processes import Node, Program


class Place:
    """Where hosts are: hosts(count) is a context that yields that many."""

    def __init__(self, settings, key, ipv6=False):
        self.settings = settings
        self.key = key
        self.ipv6 = ipv6


class Host(Node):
    """Programs started here have this address and, with namespaces, see nothing of the other hosts."""

    def __init__(self, settings, name, address, key, enter=()):
        super().__init__(settings, ("--ip", address, "--key", key), as_user=enter)
        self.name = name
        self.address = address
        self.plain_address = address  # by which plain sockets are named
        self.key = key
        self.enter = tuple(enter)  # the command that starts another one on this host

    def enter_by(self, *command):
        """From now on programs are started here by `command`."""
        self._as_user = [*command, *self.enter]

    def start_plain(self, *command, name=None):
        """Starts `command` on this host without Verbena."""
        program = Program(name or f"{command[0]} on {self.name}", [*self.enter, *map(str, command)],
                          self.environment(), None)
        self.adopt(program)
        return program

    def adopt(self, program):
        """From now on `program` belongs to this host: it is in its transcript, and ends with it."""
        self._programs.append(program)

    def call(self, *command):
        """Runs a tool of the machine on this host; returns its output."""
        done = subprocess.run([*self.enter, *command], capture_output=True, text=True, timeout=60)
        expect(done.returncode == 0, f"{' '.join(command)} on {self.name}: {done.stderr.strip()}")
        return done.stdout

    def tool(self, verb, *options, status=0):
        """The output of `verbena VERB` here, with the node named; it must end with `status`."""
        line = [*self.enter, self.verbena, verb, *map(str, self.options), *map(str, options)]
        done = subprocess.run(line, capture_output=True, text=True, timeout=60, env=self.environment())
        expect(done.returncode == status, f"verbena {verb} ended with status {done.returncode}: {done.stdout}{done.stderr}")
        return done.stdout

    def wait_for(self, what, count=1):
        """Until so many ids of rdma_cm listen, or groups are joined, on this node (tests/programs/wait_for.cc)."""
        program = os.path.join(self.settings.build, "bin", "programs_wait_for")
        self.run(program, what, count, int(self.settings.patience), name=f"wait_for {count} {what} on {self.name}")

    def wait_listening(self, port, server):
        deadline = time.monotonic() + self.settings.patience
        while not ports.is_listening(port, of=server.pid):
            if server.poll() is not None:
                raise Failure(f"{server.name} ended with status {server.poll()} before it listened")
            if time.monotonic() > deadline:
                raise Failure(f"{server.name} did not listen on port {port}")
            time.sleep(0.005)

    def end_programs(self):
        """Ends what still runs here, and forgets it: the next row begins with an empty transcript."""
        for program in self._programs:
            program.kill()
        self._programs.clear()
