# SPDX-License-Identifier: BSD-2-Clause
"""One activity at a time: its programs, its random numbers, and what it counts."""

import collections
import copy
import signal
import threading
import time

from harness import ports
from harness.failure import expect
from places.host import Host

_names = threading.Lock()
_locks = {}
_ports = threading.local()


def exclusive(*what):
    """A lock for what only one activity may use at a time, such as a well-known port of a node."""
    with _names:
        return _locks.setdefault(what, threading.Lock())


def tcp_port():
    """A port of this lane; each comes again after 16 others, when nothing of its last user is left."""
    if not hasattr(_ports, "free"):
        _ports.free = collections.deque(ports.reserve() for _ in range(16))
    _ports.free.rotate(-1)
    return _ports.free[0]


class Lane:
    def __init__(self, hosts, draw):
        self.draw = draw
        self.counts = collections.Counter()
        self._views = [copy.copy(host) for host in hosts]
        for view in self._views:
            view._programs = []  # those of this activity alone
        self._own = []

    def two_hosts(self):
        """(server's, client's): two nodes or twice the same."""
        return self.draw.choice(self._views), self.draw.choice(self._views)

    def node_of_its_own(self):
        """A host that is a node without a network."""
        host = Host(self._views[0].settings, "a node of its own", "127.0.0.1", None)
        host.options = []
        self._own.append(host)
        return host

    def rest(self, least, most):
        """Waits a random time, in seconds."""
        time.sleep(self.draw.uniform(least, most))

    def kill(self, program):
        self.counts["processes killed"] += 1
        program.kill()

    def execute_another(self, program):
        """The program (network_ledger) executes /bin/sleep in its place."""
        self.counts["processes that executed another program"] += 1
        program.signal(signal.SIGUSR1)

    def stop_and_continue(self, program, times):
        for _ in range(times):
            if program.poll() is not None:
                return
            self.counts["processes stopped and continued"] += 1
            program.signal(signal.SIGSTOP)
            self.rest(0.0, 0.2)
            program.signal(signal.SIGCONT)
            self.rest(0.0, 0.1)

    def wait_listener(self, host, server):
        """Until `server`, a program with rdma_cm, listens."""
        deadline = time.monotonic() + host.settings.patience
        while not any(process["pid"] == server.pid and
                      any(identifier["backlog"] is not None for identifier in process["cm_ids"])
                      for process in host.processes()):
            expect(server.poll() is None, f"{server.name} ended with status {server.poll()} before it listened")
            expect(time.monotonic() < deadline, f"{server.name} did not listen")
            time.sleep(0.02)

    def transcript(self):
        return "\n".join(host.transcript() for host in self._views + self._own)

    def end(self):
        for view in self._views:
            view.end_programs()
        for host in self._own:
            host.__exit__(None, None, None)
