# SPDX-License-Identifier: BSD-2-Clause
"""Nodes that speak RoCE v2 with each other (`verbena run --roce`, docs/ROCE.md). tests/roce has the kernel's rxe as the
other end."""

import itertools
import json
import os
import shutil
import signal
import time

from harness import ports
from harness.failure import Failure, Skip, expect
from rows import conformance, ledger, perftest, pingpong, rdma_cm, unreliable
from rows.pair import CLIENT, SERVER, by_manager, finish
from rows.table import group

rows = group("roce", places=("namespaces",), roce=True, processors=1)
six = group("roce6", places=("namespaces",), roce=True, ipv6=True, processors=1)
shared = group("roce_shared", places=("loopback",), roce=True)

for program, size in {"ibv_rc_pingpong": 4096, "ibv_uc_pingpong": 1024, "ibv_ud_pingpong": 1024,
                      "ibv_srq_pingpong": 4096}.items():
    for variant, options in {"few": (), "few_events": ("-e",)}.items():
        rows.add(f"{program}.{variant}", lambda hosts, p=program, s=size, o=options:
                 pingpong.exchange(hosts, p, o, s, pingpong.FEW))
rows.add("ibv_rc_pingpong.mtu_256", lambda hosts: pingpong.exchange(hosts, "ibv_rc_pingpong", ("-m", 256), 65536, 20))
for program in (*perftest.LATENCY, *perftest.BANDWIDTH):
    rows.add(program, lambda hosts, p=program: perftest.measure(hosts, p, ("-x", 1), iterations=perftest.FEW))
for program, transport in (("ib_send_bw", "UD"), ("ib_send_lat", "UD"), ("ib_send_bw", "UC"), ("ib_write_lat", "UC")):
    rows.add(f"{program}.{transport.lower()}", lambda hosts, p=program, t=transport:
             perftest.measure(hosts, p, ("-x", 1, "-c", t, "-s", 1024), (1024,), iterations=perftest.FEW))
for program in ("ib_send_bw", "ib_atomic_lat"):
    rows.add(f"{program}.xrc", lambda hosts, p=program: perftest.measure(hosts, p, ("-x", 1, "-c", "XRC"),
                                                                         iterations=perftest.FEW))


@rows.row("slow_cable")
def slow_cable(hosts):
    """A program that posts faster than the cable is loses nothing: there is no adapter that drops its own packets. The cable is
    slow enough for a receiver whose buffer is small, and which is not scheduled for 80 ms (rows/unreliable.py)."""
    hosts[CLIENT].call("tc", "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", "20mbit", "burst", "32k", "limit", "4m")
    try:
        for transport, size, count in (("UC", 65536, 24), ("UD", 1024, 1000)):
            unreliable.measure(hosts, "ib_send_bw", ("-x", 1, "-c", transport, "-r", count), size, count)
    finally:
        hosts[CLIENT].call("tc", "qdisc", "del", "dev", "eth0", "root")


@rows.row("full_socket")
def full_socket(hosts):
    """The room that the socket has had is gone when it is to be used, several times (full_socket.c): the sender tries again.
    Receive buffers hold as many packets."""
    library = os.path.join(hosts[CLIENT].settings.build, "tests/network/libnetwork_full_socket.so")
    preloaded = ("sh", "-c", 'LD_PRELOAD="$0:$LD_PRELOAD" exec "$@"', library)
    for transport, size, count in (("UC", 16384, 8), ("UD", 1024, 128)):
        unreliable.measure(hosts, "ib_send_bw", ("-x", 1, "-c", transport, "-r", count), size, count, preloaded)


rows.add("ibv_xsrq_pingpong", lambda hosts: pingpong.extended(hosts, ()))
rows.add("ib_write_bw.all_sizes", lambda hosts: perftest.measure(hosts, "ib_write_bw", ("-x", 1, "-a"),
                                                                 perftest.ALL_SIZES, 20), quick=False)
rows.add("ledger.both_ways", lambda hosts: ledger.Pair(*hosts, "--count", 500, "--lines", 2, "--both").end_well())

rows.add("conformance.all", lambda hosts: conformance.pair(hosts, "--quick"), quick=False)

for program, size in {"ibv_rc_pingpong": 4096, "ibv_ud_pingpong": 1024}.items():
    six.add(program, lambda hosts, p=program, s=size: pingpong.exchange(hosts, p, (), s, pingpong.FEW))
for program in ("ib_write_bw", "ib_read_bw", "ib_atomic_lat"):
    six.add(program, lambda hosts, p=program: perftest.measure(hosts, p, ("-x", 1), iterations=perftest.FEW))


# ---- tests/network/two_ends.cc: ATOMIC WRITE, a held acknowledgement ----

_meetings = itertools.count()


def two_ends(hosts, *options, name="two_ends"):
    """Both ends of network_two_ends, when they have ended well: (taker, sender)."""
    program = os.path.join(hosts[SERVER].settings.build, "bin", f"network_{name}")
    line = ("--meet", os.path.join(hosts[SERVER].folder, f"meet.ends.{next(_meetings)}"), *options)
    taker = hosts[SERVER].start(program, "take", *line, name=f"{name} (take)")
    taker.wait_for_output("listening", hosts[SERVER].settings.patience)
    sender = hosts[CLIENT].start(program, "send", *line, name=f"{name} (send)")
    finish(hosts, sender, taker)
    return taker, sender


def atomic_writes(hosts, count=2000):
    taker, _ = two_ends(hosts, "--atomic-writes", count)
    expect(f"last {count}" in taker.out, f"the last number was not {count}: {taker.out}")


def tags(hosts):
    """Tag matching: messages of one packet and of many, one without a tag, a rendezvous."""
    taker, _ = two_ends(hosts, name="tags")
    expect(taker.out.count(" bytes\n") == 8 and "tag 99, unexpected" in taker.out, f"not all messages came: {taker.out}")


rows.add("tags", tags)


# One datagram in 20 is dropped where it arrives.
LOSS = ("add table inet loss; add chain inet loss in { type filter hook input priority 0; }; "
        "add rule inet loss in meta l4proto udp numgen random mod 20 < 1 drop")


@rows.row("atomic_writes_lost")
def atomic_writes_lost(hosts):
    """Those whose response is lost are asked for again, and must not be carried out twice."""
    expect(shutil.which("nft"), "nft (package nftables) is not installed")
    try:
        for host in hosts:
            host.call("nft", LOSS)
    except Failure as refused:
        if any(word in str(refused) for word in ("not supported", "No such file", "not permitted")):
            raise Skip(f"the kernel drops no packets for us: {refused}") from None
        raise
    try:
        atomic_writes(hosts, 300)
    finally:
        for host in hosts:
            host.call("nft", "delete table inet loss")


@shared.row("answers_of_a_silent_program")
def answers_of_a_silent_program(hosts):
    """A program polls until a message has come, and then no more: its acknowledgement is sent all the same."""
    two_ends(hosts, "--falls-silent", 50)


rows.add("atomic_writes", atomic_writes)
six.add("atomic_writes", atomic_writes)


def until(host, holds, what):
    deadline = time.monotonic() + host.settings.patience
    while not holds():
        expect(time.monotonic() < deadline, f"{host.name} did not {what}")
        time.sleep(0.05)


def finished(hosts, program):
    finish(hosts, program)
    return program


# ---- rdma_cm: MADs to QP 1 ----

def between(hosts, server, client, says):
    _, seen = by_manager(hosts, server, client)
    expect(says in seen.out, f"{seen.name} did not say '{says}'")


MANAGED = {
    "rping": (("rping", "-s", "-a", "{}", "-C", 10, "-v"), ("rping", "-c", "-a", "{}", "-C", 10, "-v"), "ping data"),
    "udaddy": (("udaddy", "-b", "{}"), ("udaddy", "-s", "{}"), "return status 0"),
    "ucmatose": (("ucmatose", "-b", "{}", "-c", 5), ("ucmatose", "-s", "{}", "-c", 5), "return status 0"),
}
for name, (server, client, says) in MANAGED.items():
    def managed(hosts, server=server, client=client, says=says):
        address = hosts[SERVER].address
        between(hosts, *([str(word).format(address) for word in line] for line in (server, client)), says)
    rows.add(name, managed)
    six.add(name, managed)
rows.add("mckey", lambda hosts: rdma_cm.multicast(hosts, "239.192.3.4"))
six.add("mckey", lambda hosts: rdma_cm.multicast(hosts, "ff1e::7e57"))


@rows.row("mckey.once")
def once(hosts):
    """Each member of a group gets each message once, also beside the sender: the kernel hands a node's packets to groups back
    to its own sockets. A receiver waits for 20 messages, and gets 19."""
    def line(host, count):
        return ("mckey", "-m", "239.192.3.5", "-b", host.address, "-C", count)
    receivers = [host.start(*line(host, 20), name=f"mckey on {host.name}") for host in hosts]
    for host in hosts:
        host.wait_for("groups", 1)
    come = 0
    for count in (10, 9):
        sender = hosts[0].start(*line(hosts[0], count), "-s", name=f"mckey (sender of {count})")
        finish(hosts, sender)
        come += count
        for host, receiver in zip(hosts, receivers):
            until(host, lambda: receiver.poll() is not None or requests_in(host, receiver) >= come, f"get {come} messages")
            expect(receiver.poll() is None, f"{receiver.name} has more than {come} messages")
            expect(requests_in(host, receiver) == come, f"{receiver.name} has {requests_in(host, receiver)} of {come} messages")
    for receiver in receivers:
        receiver.kill()


def requests_in(host, program):
    nodes = json.loads(host.tool("status", "--json"))["nodes"]
    return sum(qp["requests_in"] for node in nodes for process in node["processes"] if process["pid"] == program.pid
               for qp in process["qps"])


for program in ("ib_send_bw", "ib_read_lat"):
    rows.add(f"{program}.managed", lambda hosts, p=program: perftest.measure_by_manager(hosts, p, iterations=perftest.FEW))


# ---- several processes of a node: one UDP port ----

def start_pair(hosts, iterations):
    """ib_send_bw between the hosts. Its timeouts are long: a process may be stopped meanwhile."""
    port = ports.reserve()
    line = ("ib_send_bw", "-F", "-x", 1, "-s", 1024, "-n", iterations, *perftest.TIMEOUT, "-p", port)
    server = hosts[SERVER].start(*line, name=f"ib_send_bw {port} (server)")
    hosts[SERVER].wait_listening(port, server)
    return server, hosts[CLIENT].start(*line, hosts[SERVER].plain_address, name=f"ib_send_bw {port} (client)")


def count_queue_pairs(host):
    nodes = json.loads(host.tool("status", "--json"))["nodes"]
    return sum(len(process["qps"]) for node in nodes for process in node["processes"])


def wait_for_queue_pairs(hosts, count):
    """Until each node has so many, one of each process: these have the node's socket. A process that begins while all that
    have it are stopped does not get it."""
    for host in hosts:
        deadline = time.monotonic() + host.settings.patience
        while count_queue_pairs(host) < count:
            expect(time.monotonic() < deadline, f"{host.name} has no {count} queue pairs")
            time.sleep(0.02)


@shared.row("three_pairs_at_once")
def three_pairs_at_once(hosts):
    pairs = [start_pair(hosts, 2000) for _ in range(3)]
    for server, client in pairs:
        finish(hosts, client, server)


@shared.row("others_are_killed")
def others_are_killed(hosts):
    """The first process of each node has opened the socket; it is killed, and those that came later go on."""
    first = start_pair(hosts, 100000)
    second = start_pair(hosts, 20000)
    third = start_pair(hosts, 20000)
    wait_for_queue_pairs(hosts, 3)
    for program in first:
        program.signal(signal.SIGKILL)
    for server, client in (second, third):
        finish(hosts, client, server)
    finish(hosts, *reversed(start_pair(hosts, 100)))


@shared.row("others_are_stopped")
def others_are_stopped(hosts):
    first = start_pair(hosts, 20000)
    second = start_pair(hosts, 20000)
    wait_for_queue_pairs(hosts, 2)
    for program in first:
        program.signal(signal.SIGSTOP)
    finish(hosts, second[CLIENT], second[SERVER])
    for program in first:
        program.signal(signal.SIGCONT)
    finish(hosts, first[CLIENT], first[SERVER])


@shared.row("idle_costs_nothing")
def idle_costs_nothing(hosts):
    """A process with a connection that waits for an event: nothing wakes it."""
    port = ports.reserve()
    line = ("ibv_rc_pingpong", "-g", 1, "-e", "-n", 10, "-p", port)
    server = hosts[SERVER].start(*line, name="ibv_rc_pingpong (server)")
    hosts[SERVER].wait_listening(port, server)
    before = server.cpu_ticks()
    time.sleep(1)
    expect(server.cpu_ticks() - before <= 1, f"{server.cpu_ticks() - before} ticks of CPU time in a second of waiting")
    client = hosts[CLIENT].start(*line, hosts[SERVER].plain_address, name="ibv_rc_pingpong (client)")
    finish(hosts, client, server)
