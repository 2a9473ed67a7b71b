# SPDX-License-Identifier: BSD-2-Clause
"""`verbena doctor --peer HOST --roce ADDR`: each thing that may be wrong with the way is made so, and must be found."""

import contextlib
import json
import sys

from harness.failure import expect
from places.namespaces import ip
from rows.pair import serve_by_manager
from rows.table import group

SERVER, CLIENT, THIRD = 0, 1, 2
rows = group("roce_doctor", hosts=3, places=("namespaces",), roce=True, processors=1)
six = group("roce6_doctor", places=("namespaces",), roce=True, ipv6=True, processors=1)

# Sends every datagram back to port 4791 of where it comes from, as a translator of addresses would pass it on: with its
# ICRC as it was.
ECHO = """
import socket, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as echo:
    echo.bind((sys.argv[1], 4791))
    print("bound", flush=True)
    while True:
        data, (address, port) = echo.recvfrom(8192)
        echo.sendto(data, (address, 4791))
"""
# Passes datagrams on to another host, as the relay of a published port does (docker-proxy).
RELAY = """
import socket, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as relay:
    relay.bind((sys.argv[1], 4791))
    print("bound", flush=True)
    while True:
        relay.sendto(relay.recv(8192), (sys.argv[2], 4791))
"""
# A kernel that ignores IP_MTU_DISCOVER: a filter of seccomp(2) answers setsockopt(2) with success and does nothing. The
# rest of the arguments is the program.
IGNORING = """
import ctypes, os, struct, sys
SETSOCKOPT, IPPROTO_IP, IP_MTU_DISCOVER = {"x86_64": 54, "aarch64": 208}[os.uname().machine], 0, 10
LOAD, EQUAL, RETURN, ERRNO, ALLOW = 0x20, 0x15, 0x06, 0x00050000, 0x7fff0000
filters = [(LOAD, 0, 0, 0), (EQUAL, 0, 5, SETSOCKOPT), (LOAD, 0, 0, 24), (EQUAL, 0, 3, IPPROTO_IP),
           (LOAD, 0, 0, 32), (EQUAL, 0, 1, IP_MTU_DISCOVER), (RETURN, 0, 0, ERRNO), (RETURN, 0, 0, ALLOW)]
code = ctypes.create_string_buffer(b"".join(struct.pack("<HBBI", *each) for each in filters))
libc = ctypes.CDLL(None, use_errno=True)
program = ctypes.create_string_buffer(struct.pack("<HxxxxxxQ", len(filters), ctypes.addressof(code)))
if libc.prctl(38, 1, 0, 0, 0) != 0 or libc.prctl(22, 2, program, 0, 0) != 0:  # no new privileges; the filter
    sys.exit("no filter: " + os.strerror(ctypes.get_errno()))
os.execvp(sys.argv[1], sys.argv[1:])
"""


def doctor(host, peer, says, status=1):
    """`says`: texts that it must say."""
    said = host.tool("doctor", "--peer", peer, status=status)
    for text in says:
        expect(text in said, f"`verbena doctor --peer {peer}` does not say '{text}': {said}")
    return said


@contextlib.contextmanager
def node(host):
    """A node with a process that takes what comes to the connection manager."""
    listener = serve_by_manager((host,), ("rping", "-s", "-a", host.address))
    try:
        yield
    finally:
        listener.kill()


@contextlib.contextmanager
def plain(host, code, *arguments):
    program = host.start_plain(sys.executable, "-c", code, host.address, *arguments)
    program.wait_for_output("bound", host.settings.patience)
    try:
        yield program
    finally:
        program.kill()


@contextlib.contextmanager
def rule(host, action):
    """What comes in for RoCE v2 is dropped (blackhole), or refused (prohibit), as by a firewall."""
    def change(how, *words):
        host.call("ip", "rule", how, *words)
    change("add", "pref", "100", "lookup", "local")  # later than the rule below
    change("del", "pref", "0")
    change("add", "pref", "50", "iif", "eth0", "ipproto", "udp", "dport", "4791", "type", action)
    host.call("sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")  # else the kernel refuses in silence
    try:
        yield
    finally:
        change("add", "pref", "0", "lookup", "local")
        change("del", "pref", "50")
        change("del", "pref", "100")


def good(hosts):
    with node(hosts[SERVER]):
        said = doctor(hosts[CLIENT], hosts[SERVER].address, ("answers in", "a path MTU of 1024 fits"), status=0)
    expect("numbers its packets" not in said, f"a node numbers no packets: {said}")


rows.add("good", good)
six.add("good", good)


@rows.row("nobody")
def nobody(hosts):
    doctor(hosts[CLIENT], hosts[SERVER].address, ("nobody has its UDP port 4791", "verbena run --roce"))
    doctor(hosts[CLIENT], "10.77.0.99", ("nobody has the address 10.77.0.99",))
    doctor(hosts[CLIENT], "192.0.2.1", ("cannot be reached: Network is unreachable",))
    doctor(hosts[CLIENT], "no-such-host.invalid", ("is no address, and no name that resolves",))
    doctor(hosts[CLIENT], "fd77::1", ("one IP version",))


@rows.row("port_taken")
def port_taken(hosts):
    with node(hosts[SERVER]):
        with plain(hosts[CLIENT], ECHO) as program:
            doctor(hosts[CLIENT], hosts[SERVER].address, (f"process {program.pid} (python3", "UDP port 10.77.0.3:4791"))
        doctor(hosts[CLIENT], hosts[SERVER].address, ("answers in",), status=0)


@rows.row("firewall")
def firewall(hosts):
    with node(hosts[SERVER]):
        with rule(hosts[SERVER], "blackhole"):
            doctor(hosts[CLIENT], hosts[SERVER].address, ("does not answer at UDP port 4791", "a firewall drops it"))
        with rule(hosts[SERVER], "prohibit"):
            doctor(hosts[CLIENT], hosts[SERVER].address, ("a firewall refuses UDP port 4791",))
        doctor(hosts[CLIENT], hosts[SERVER].address, ("answers in",), status=0)


@rows.row("addresses_translated")
def addresses_translated(hosts):
    with plain(hosts[THIRD], ECHO):
        doctor(hosts[CLIENT], hosts[THIRD].address, ("a packet arrives from 10.77.0.4 whose ICRC does not fit",
                                                     "cannot cross address translation"))
    with node(hosts[SERVER]), plain(hosts[THIRD], RELAY, hosts[SERVER].address):
        doctor(hosts[CLIENT], hosts[THIRD].address, ("does not answer", "addresses are translated on the way", "wrong_icrc"))
        found = json.loads(hosts[SERVER].tool("status", "--json"))["nodes"][0]["network"]["packets_dropped"]["wrong_icrc"]
        expect(found > 0, "the node that gets them does not count packets with a wrong ICRC")


@rows.row("private_address")
def private_address(hosts):
    """The sender's address is private, and the peer's is not."""
    server, client = hosts[SERVER], hosts[CLIENT]
    client.call("ip", "route", "add", "203.0.113.5/32", "via", server.address)
    server.call("ip", "address", "add", "203.0.113.5/32", "dev", "lo")
    with rule(server, "blackhole"):
        doctor(client, "203.0.113.5", ("10.77.0.3 is a private address: it is probably translated",))
    server.call("ip", "address", "del", "203.0.113.5/32", "dev", "lo")
    client.call("ip", "route", "del", "203.0.113.5/32")


@rows.row("path_mtu")
def path_mtu(hosts):
    """The route knows it; and a router on the way says so."""
    server, client, router = hosts
    with node(server):
        client.call("ip", "route", "add", server.address, "dev", "eth0", "mtu", "700")
        doctor(client, server.address, ("answers in", "the way takes 700 bytes of IP", "have to ask for 512"))
        client.call("ip", "route", "replace", server.address, "dev", "eth0", "mtu", "300")
        doctor(client, server.address, ("the least one, 256, does not fit either",))
        client.call("ip", "route", "del", server.address)
    ip("link", "add", "name", "far", "type", "bridge", "forward_delay", "0", "mcast_snooping", "0")
    ip("link", "set", "far", "up")
    server.add_interface("far", "10.78.0.2")
    router.add_interface("far", "10.78.0.4")
    router.call("ip", "link", "set", "eth1", "mtu", "800")
    router.call("sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")
    client.call("ip", "route", "add", "10.78.0.0/24", "via", router.address)
    server.call("ip", "route", "add", client.address, "via", "10.78.0.4")
    before, server.options, server.address = server.address, ["--roce", "10.78.0.2"], "10.78.0.2"
    with node(server):
        doctor(client, "10.78.0.2", ("answers in", "the way takes 800 bytes of IP", "have to ask for 512"))
    server.options, server.address = ["--roce", before], before
    server.call("ip", "route", "del", client.address)


@rows.row("identification")
def identification(hosts):
    with node(hosts[SERVER]):
        host = hosts[CLIENT]
        program = host.start_plain(sys.executable, "-c", IGNORING, host.verbena, "doctor", *host.options, "--peer",
                                   hosts[SERVER].address, name="verbena doctor")
        expect(program.wait(host.settings.patience) == 1, f"it ended with status {program.poll()}: {program.out}{program.err}")
        expect("this kernel sends IPv4 identification" in program.out, f"it says: {program.out}")


@rows.row("own_address")
def own_address(hosts):
    hosts[CLIENT].options = ["--roce", "10.77.0.55"]
    doctor(hosts[CLIENT], hosts[SERVER].address, ("--roce has to name an address of this machine",))
    hosts[CLIENT].options = ["--roce", hosts[CLIENT].address]
