# SPDX-License-Identifier: BSD-2-Clause
"""TCP ports for the programs' own handshakes, and the moment a server listens on one.

Tests run side by side, so a port is held by a lock file for as long as the test runs: two tests never choose the same
one. Ports are below the range from which the kernel takes those of outgoing connections.
"""

import fcntl
import os
import random
import socket
import tempfile
import time

from harness.failure import Failure

FIRST, LAST = 20000, 32000
LISTEN = "0A"  # TCP_LISTEN in /proc/net/tcp, proc_net_tcp.rst of the kernel's documentation

_locks = []  # kept open until the process ends: closing gives the port back


def reserve():
    """A port on which no program listens and that no other test is using."""
    user = os.environ.get("VERBENA_TEST_USER", os.getuid())  # in a user namespace: the user's number outside
    folder = os.path.join(tempfile.gettempdir(), f"verbena-test-ports-{user}")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    for port in random.sample(range(FIRST, LAST), 200):
        lock = open(os.path.join(folder, str(port)), "w")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with socket.socket() as probe:
                probe.bind(("", port))
        except OSError:
            lock.close()
            continue
        _locks.append(lock)
        return port
    raise Failure("no free TCP port found")


UNCONNECTED = "07"  # of a UDP socket: TCP_CLOSE


def is_listening(port, udp=False, of="self"):
    """`of`: a process in the network namespace that is meant."""
    tables, wanted = (("udp", "udp6"), UNCONNECTED) if udp else (("tcp", "tcp6"), LISTEN)
    for table in (f"/proc/{of}/net/{name}" for name in tables):
        try:
            lines = open(table).read().splitlines()[1:]
        except OSError:  # no IPv6 here; the process has ended
            continue
        for line in lines:
            local, state = line.split()[1], line.split()[3]
            if state == wanted and int(local.rsplit(":", 1)[1], 16) == port:
                return True
    return False


def wait_listening(port, server, seconds, udp=False, of="self"):
    """Returns when a program listens on `port`. Fails when `server` ends before, or after `seconds`."""
    deadline = time.monotonic() + seconds
    while not is_listening(port, udp, of):
        if server.poll() is not None:
            raise Failure(f"{server.name} ended with status {server.poll()} before it listened")
        if time.monotonic() > deadline:
            raise Failure(f"{server.name} did not listen on port {port} within {seconds:.0f} s")
        time.sleep(0.005)
