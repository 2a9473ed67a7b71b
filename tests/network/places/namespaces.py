# SPDX-License-Identifier: BSD-2-Clause
"""Hosts as network namespaces: each has one interface, whose other end is a port of a bridge.

All of it is in a user namespace (or, where only root may have network namespaces, without one): no rights are needed,
nothing of the machine's network is touched, and everything is gone when the test ends, however it ends.
"""

import contextlib
import os
import shutil
import subprocess
import sys

from harness.failure import Failure, Skip
from places.host import Host, Place

INSIDE = "VERBENA_TEST_INSIDE"  # set: this process is in the namespaces already
# In a user namespace; as root, where those are forbidden.
WAYS = (("unshare", "--user", "--map-root-user", "--net"), ("unshare", "--net"))
NETWORK, NETWORK6 = "10.77.0.", "fd77::"


def enter():
    """Continues inside new namespaces, in the same program with the same arguments. Raises Skip."""
    if INSIDE in os.environ:
        return
    reasons = []
    for way in WAYS:
        # Tries what is needed later: some machines allow the namespaces, and no bridge in them.
        trial = ("ip link add name bridge type bridge && ip link add name port0 type veth peer name eth0 "
                 "&& ip link set port0 master bridge")
        try:
            tried = subprocess.run([*way, "sh", "-c", trial], capture_output=True, text=True, timeout=60)
        except FileNotFoundError:
            raise Skip("unshare (util-linux) is not installed") from None
        if tried.returncode == 0:
            os.environ[INSIDE] = "1"
            os.environ.setdefault("VERBENA_TEST_USER", str(os.getuid()))
            os.execvp(way[0], [*way, sys.executable, *sys.argv])
        reasons.append(f"{' '.join(way)}: {(tried.stderr.strip() or 'failed').splitlines()[0]}")
    raise Skip("no network namespaces here: " + "; ".join(reasons))


def ip(*words, enter=()):
    done = subprocess.run([*enter, "ip", *words], capture_output=True, text=True, timeout=60)
    if done.returncode != 0:
        raise Failure(f"ip {' '.join(words)}: {done.stderr.strip()}")


class Namespace:
    """Exists as long as this process: its keeper ends when the pipe that it reads is closed."""

    def __init__(self):
        self._keeper = subprocess.Popen(["unshare", "--net", "sh", "-c", "echo; exec cat"], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE)
        self._keeper.stdout.readline()  # it is in its namespace now
        self.pid = str(self._keeper.pid)
        self.enter = ("nsenter", "--target", self.pid, "--net", "--")

    def ip(self, *words):
        ip(*words, enter=self.enter)

    def end(self):
        if self._keeper.returncode is None:
            self._keeper.communicate()


class NamespaceHost(Host):
    """A host whose cable can be pulled."""

    def __init__(self, settings, number, key, namespace, ipv6):
        plain = f"{NETWORK}{2 + number}"
        super().__init__(settings, f"host {number}", f"{NETWORK6}{2 + number}" if ipv6 else plain, key, namespace.enter)
        self.plain_address = plain
        self._port = f"port{number}"  # of the bridge
        self._hardware_address = f"02:00:00:00:00:{2 + number:02x}"
        self._live_in(namespace)

    def _live_in(self, namespace):
        self._namespace = namespace
        self.enter = namespace.enter
        self.enter_by()

    def connect(self):
        space = self._namespace
        ip("link", "add", "name", self._port, "type", "veth", "peer", "name", "eth0", "address", self._hardware_address,
           "netns", space.pid)
        ip("link", "set", self._port, "master", "bridge", "up")
        space.ip("link", "set", "lo", "up")
        space.ip("link", "set", "eth0", "up")
        self.give_address()
        if self.plain_address != self.address:
            self.add_address(self.plain_address)

    def add_address(self, address, interface="eth0"):
        # nodad: a tentative address cannot be bound to.
        nodad = ["nodad"] if ":" in address else []
        self._namespace.ip("address", "add", self._with_prefix(address), "dev", interface, *nodad)

    def remove_address(self, address):
        self._namespace.ip("address", "del", self._with_prefix(address), "dev", "eth0")

    @staticmethod
    def _with_prefix(address):
        return f"{address}/{64 if ':' in address else 24}"

    def add_interface(self, bridge, *addresses):
        """eth1, with a cable of its own to that bridge. Returns the name of the bridge's port, with which it is
        removed."""
        port = f"{bridge}.{self._port}"
        ip("link", "add", "name", port, "type", "veth", "peer", "name", "eth1", "netns", self._namespace.pid)
        ip("link", "set", port, "master", bridge, "up")
        self._namespace.ip("link", "set", "eth1", "up")
        for address in addresses:
            self.add_address(address, "eth1")
        return port

    def network_table(self, name):
        """/proc/net/NAME of this host (proc(5))."""
        return open(f"/proc/{self._namespace.pid}/net/{name}").read()

    def give_address(self):
        self.add_address(self.address)

    def take_address(self):
        self.remove_address(self.address)

    def take_down(self):
        """The interface is down, and keeps its IPv4 address."""
        self._namespace.ip("link", "set", "eth0", "down")

    def bring_up(self):
        self._namespace.ip("link", "set", "eth0", "up")

    def pull_cable(self):
        """Cuts this host off from the others; its interface has no carrier."""
        ip("link", "set", self._port, "down")

    def plug_cable(self):
        ip("link", "set", self._port, "up")

    def vanish(self):
        """The machine is gone, and the others get no notice of that."""
        ip("link", "del", self._port)
        for program in self._programs:
            program.kill()
        self._namespace.end()

    def boot(self):
        """The machine is there again, with its addresses, but none of its connections."""
        shutil.rmtree(self.folder)
        os.mkdir(self.folder, 0o700)
        self._live_in(Namespace())
        self.connect()

    def end(self):
        self._namespace.end()

    def isolate(self, yes=True):
        """Isolated hosts do not hear each other; all others hear them. No interface loses its carrier."""
        ip("link", "set", self._port, "type", "bridge_slave", "isolated", "on" if yes else "off")

    def break_connections(self):
        """TCP connections of this host end at once, as if reset (ss(8), --kill)."""
        return self.call("ss", "--tcp", "--kill", "--no-header", "state", "established")


class Namespaces(Place):
    @contextlib.contextmanager
    def hosts(self, count):
        ip("link", "set", "lo", "up")
        ip("link", "add", "name", "bridge", "type", "bridge", "forward_delay", "0", "mcast_snooping", "0")
        ip("link", "set", "bridge", "up")
        with contextlib.ExitStack() as stack:
            stack.callback(ip, "link", "del", "bridge")
            hosts = []
            for number in range(count):
                host = stack.enter_context(NamespaceHost(self.settings, number, self.key, Namespace(), self.ipv6))
                stack.callback(host.end)
                host.connect()
                hosts.append(host)
            yield hosts
