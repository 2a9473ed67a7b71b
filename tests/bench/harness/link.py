# SPDX-License-Identifier: BSD-2-Clause
"""Two hosts on one machine: network namespaces joined by a veth pair, in a user namespace. Needs no rights and touches
nothing of the machine's network; everything is gone when this process ends.
"""
import subprocess

from .programs import Unavailable, find

SERVER, CLIENT = "10.78.0.1", "10.78.0.2"
MTU = 9000  # of the link: a packet of 4 KiB and its headers fit


class Link:
    """`loss`: so many of 100 packets of UDP are dropped where they arrive. Unless it is None, packets cross one by one, as
    over a wire: over a veth pair the kernel passes trains of them whole, and would drop them whole."""

    def __init__(self, loss=None):
        find("nsenter")
        self._keepers = []
        self._outer = self._keep([find("unshare"), "--user", "--map-root-user", "--net"])
        self.pids = [self._outer, self._keep([*self._into(self._outer, "--user", "--preserve-credentials"),
                                              "unshare", "--net"])]
        self._run(0, find("ip"), "link", "add", "name", "eth0", "mtu", str(MTU), "type", "veth", "peer", "name", "eth0",
                  "mtu", str(MTU), "netns", self.pids[1])
        for number, address in enumerate((SERVER, CLIENT)):
            for interface in ("lo", "eth0"):
                self._run(number, "ip", "link", "set", interface, "up")
            self._run(number, "ip", "address", "add", address + "/24", "dev", "eth0")
            if loss is not None:
                self._run(number, find("ethtool"), "-K", "eth0", "tx-udp-segmentation", "off")
            if loss:
                self._run(number, find("nft"), "add table ip t; add chain ip t c { type filter hook input priority 0; }; "
                          "add rule ip t c ip protocol udp numgen random mod 100 < %d drop" % loss)

    @staticmethod
    def _into(pid, *options):
        return ["nsenter", "--target", pid, *options, "--"]

    def enter(self, number):
        """The command that starts another one at the server (0) or the client (1)."""
        return self._into(self.pids[number], "--user", "--net", "--preserve-credentials")

    def _run(self, number, *command):
        done = subprocess.run([*self.enter(number), *command], capture_output=True, text=True, timeout=60)
        if done.returncode != 0:
            raise Unavailable("%s: %s" % (command[0].rpartition("/")[2], (done.stderr.strip() or "failed").splitlines()[0]))

    def _keep(self, command):
        """A process in new namespaces, which ends when the pipe that it reads is closed."""
        keeper = subprocess.Popen([*command, "sh", "-c", "echo; exec cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, text=True)
        if not keeper.stdout.readline():
            raise Unavailable("no network namespaces here: %s" % keeper.stderr.read().strip())
        self._keepers.append(keeper)
        return str(keeper.pid)

    def close(self):
        for keeper in self._keepers:
            keeper.communicate()
