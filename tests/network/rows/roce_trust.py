# SPDX-License-Identifier: BSD-2-Clause
"""`verbena run --roce --peers`: packets of other machines are dropped and counted, those to the connection manager too."""

import json
import socket
import struct
import sys

from harness import ports
from harness.failure import expect
from places.capture import icrc
from rows import pingpong, roce
from rows.pair import serve_by_manager
from rows.table import group

SERVER, FRIEND, STRANGER = 0, 1, 2
rows = group("roce_trust", hosts=3, places=("namespaces",), roce=True, processors=1)


def listing(hosts):
    """The server takes packets of its friend, and of nobody else."""
    hosts[SERVER].options = ["--roce", hosts[SERVER].address, "--peers", "192.0.2.0/24," + hosts[FRIEND].address]


def dropped(host):
    node = next(node for node in json.loads(host.tool("status", "--json"))["nodes"] if node["processes"])
    return node["network"]["packets_dropped"]["from_strangers"]


@rows.row("friend")
def friend(hosts):
    listing(hosts)
    pingpong.exchange(hosts[:2], "ibv_rc_pingpong", (), 4096, pingpong.FEW)
    pingpong.exchange(hosts[:2], "ibv_ud_pingpong", (), 1024, pingpong.FEW)
    server, client, says = roce.MANAGED["ucmatose"]
    address = hosts[SERVER].address
    roce.between(hosts[:2], *([str(word).format(address) for word in line] for line in (server, client)), says)


@rows.row("stranger")
def stranger(hosts):
    """It sends until its retries are over. A UD message of it arrives nowhere, either."""
    listing(hosts)
    for program, says in (("ibv_rc_pingpong", "status transport retry counter exceeded"), ("ibv_ud_pingpong", None)):
        port = ports.reserve()
        line = (program, "-g", 1, "-n", 10, "-p", port)
        server = hosts[SERVER].start(*line, name=f"{program} (server)")
        hosts[SERVER].wait_listening(port, server)
        client = hosts[STRANGER].start(*line, hosts[SERVER].plain_address, name=f"{program} (stranger)")
        if says:
            expect(client.wait(hosts[SERVER].settings.patience) != 0, "the stranger got through")
            expect(says in client.out + client.err, "the stranger failed otherwise")
        roce.until(hosts[SERVER], lambda: dropped(hosts[SERVER]) > 0, "count what the stranger sends")
        expect(server.poll() is None, "the server has ended")
        for side in (server, client):
            side.kill()


@rows.row("stranger_by_manager")
def stranger_by_manager(hosts):
    listing(hosts)
    server = serve_by_manager(hosts, ("rping", "-s", "-a", hosts[SERVER].address, "-C", 5, "-v"))
    before = dropped(hosts[SERVER])
    client = hosts[STRANGER].start("rping", "-c", "-a", hosts[SERVER].address, "-C", 1)
    roce.until(hosts[SERVER], lambda: dropped(hosts[SERVER]) > before, "count the stranger's REQ")
    expect(server.poll() is None, "the server has ended")
    expect("data" not in server.out, "the server serves a stranger")
    client.kill()
    friend = hosts[FRIEND].start("rping", "-c", "-a", hosts[SERVER].address, "-C", 5, "-v")
    expect("ping data" in roce.finished(hosts, friend).out, "the friend is not served")


# Sends one packet many times, and prints how many packets came back, and in how many seconds. argv: own address, the
# source port, the peer, how often, the packet in hexadecimal digits. It does not wait in recv(2): on a busy machine each
# answer would wake it up and cost the peer its processor, and the peer would answer less often than it may.
FLOOD = """
import socket, sys, time
own, port, peer, times, packet = sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4]), bytes.fromhex(sys.argv[5])
answers = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
answers.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
answers.bind((own, 4791))
out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
out.setsockopt(socket.IPPROTO_IP, 10, 2)  # IP_MTU_DISCOVER, IP_PMTUDISC_DO
out.bind((own, port))
answers.setblocking(False)
began, count = time.monotonic(), 0
def hear():
    global count
    try:
        while answers.recv(8192):
            count += 1
    except BlockingIOError:
        pass
for _ in range(times):
    out.sendto(packet, (peer, 4791))
    hear()
heard, last = count, time.monotonic()
while time.monotonic() < last + 0.5:
    time.sleep(0.02)
    hear()
    if count > heard:
        heard, last = count, time.monotonic()
print(count, last - began)
"""


def question(source, port, destination):
    """A packet that asks the connection manager for a service that nobody has (SIDR_REQ)."""
    mad = struct.pack(">BBBBHHQHHIIHHQ", 1, 7, 2, 3, 0, 0, 0x1234, 0x17, 0, 0, 1, 0xffff, 0, 0x76657262656e6100)
    packet = struct.pack(">BBHIIII", 0x64, 0, 0xffff, 1, 0, 0x80010000, 1) + mad.ljust(256, b"\0")
    udp = struct.pack(">HHHH", port, 4791, 8 + len(packet) + 4, 0)
    ip = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 20 + 8 + len(packet) + 4, 0, 0x4000, 64, 17, 0, socket.inet_aton(source),
                     socket.inet_aton(destination))
    return packet + struct.pack("<I", icrc(ip, udp, packet))


@rows.row("flood")
def flood(hosts):
    """Refusals are limited by source: 200 at once, 1,000 a second (engine/roce_transport/roce_progress.cc)."""
    hosts[SERVER].options = ["--roce", hosts[SERVER].address]
    server = serve_by_manager(hosts, ("rping", "-s", "-a", hosts[SERVER].address, "-C", 5, "-v"))
    own, peer = hosts[STRANGER].address, hosts[SERVER].address
    stranger = hosts[STRANGER].start_plain(sys.executable, "-c", FLOOD, own, 50000, peer, 4000,
                                           question(own, 50000, peer).hex(), name="flood")
    expect(stranger.wait(hosts[SERVER].settings.patience) == 0, f"the flood failed: {stranger.err}")
    count, seconds = stranger.out.split()
    most = 200 + 1000 * float(seconds)
    expect(150 <= int(count) <= most + 50, f"{count} answers in {seconds} s")
    node = next(node for node in json.loads(hosts[SERVER].tool("status", "--json"))["nodes"] if node["processes"])
    expect(node["network"]["packets_dropped"]["answers_withheld"] > 0, "the node does not count what it withholds")
    # A client elsewhere is served meanwhile.
    friend = hosts[FRIEND].start("rping", "-c", "-a", peer, "-C", 5, "-v")
    expect("ping data" in roce.finished(hosts, friend).out, "the friend is not served")
    server.kill()


@rows.row("warning")
def warning(hosts):
    """A program at `verbena run --roce` is told that anybody may send; with --peers it is told what remains."""
    for options, says in ((["--roce", hosts[SERVER].address], "--peers CIDR"),
                          (["--roce", hosts[SERVER].address, "--peers", hosts[FRIEND].address], "can be forged")):
        hosts[SERVER].options = options
        program = hosts[SERVER].start("true")
        expect(program.wait(hosts[SERVER].settings.patience) == 0, "true failed")
        expect("no authentication" in program.err and says in program.err, f"it says '{program.err}'")
