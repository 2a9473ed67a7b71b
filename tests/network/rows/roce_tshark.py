# SPDX-License-Identifier: BSD-2-Clause
"""What nodes with `--roce` put on the cable: tshark decodes every packet without a complaint, and the ICRC computed from
the captured headers is the one in the packet. Each row says which packets must be among them."""

import struct

from harness.failure import expect
from places.capture import Capture
from rows import conformance, perftest, pingpong, rdma_cm, roce
from rows.pair import CLIENT, SERVER, serve_by_manager
from rows.table import group

rows = group("roce_tshark", places=("namespaces",), roce=True, processors=1)
six = group("roce6_tshark", places=("namespaces",), roce=True, ipv6=True, processors=1)

# Opcodes (vol. 1, 9.2.1). Of RC; those of UC and XRC have 0x20 and 0xa0 more.
SEND_FIRST, SEND_MIDDLE, SEND_LAST, SEND_ONLY, SEND_ONLY_IMMEDIATE = 0x00, 0x01, 0x02, 0x04, 0x05
WRITE_FIRST, WRITE_MIDDLE, WRITE_LAST, WRITE_ONLY = 0x06, 0x07, 0x08, 0x0a
READ, READ_FIRST, READ_MIDDLE, READ_LAST, READ_ONLY = 0x0c, 0x0d, 0x0e, 0x0f, 0x10
ACKNOWLEDGE, ATOMIC_ACKNOWLEDGE, COMPARE_SWAP, FETCH_ADD = 0x11, 0x12, 0x13, 0x14
UC, UD, XRC = 0x20, 0x60, 0xa0
LONG_SEND, LONG_WRITE = {SEND_FIRST, SEND_MIDDLE, SEND_LAST}, {WRITE_FIRST, WRITE_MIDDLE, WRITE_LAST}
SEQUENCE_ERROR, INVALID_REQUEST, REMOTE_ACCESS = 0x60, 0x61, 0x62


def of(transport, opcodes):
    return {transport + opcode for opcode in opcodes}


def captured(run, opcodes=frozenset(), syndromes=frozenset(), says=()):
    def row(hosts):
        with Capture(hosts[SERVER], hosts[CLIENT]) as seen:
            run(hosts)
        missing = opcodes - seen.opcodes()
        expect(not missing, f"no packet with opcode {', '.join(map(hex, sorted(missing)))} among {len(seen.packets)}")
        missing = syndromes - seen.syndromes()
        expect(not missing, f"no acknowledgement with syndrome {', '.join(map(hex, sorted(missing)))}")
        for text in says:
            expect(any(text in info for info in seen.infos), f"tshark names no packet '{text}', but {set(seen.infos)}")
    return row


def all_of(*runs):
    def row(hosts):
        for run in runs:
            run(hosts)
    return row


def perf(program, *options, iterations=20):
    return lambda hosts: perftest.measure(hosts, program, ("-x", 1, *options), iterations=iterations)


def one_size(program, size, *options):
    return lambda hosts: perftest.measure(hosts, program, ("-x", 1, "-s", size, *options), (size,), iterations=20)


def ping(program, *options, size=4096):
    return lambda hosts: pingpong.exchange(hosts, program, options, size, 20)


rc = all_of(ping("ibv_rc_pingpong"), ping("ibv_srq_pingpong"), one_size("ib_write_bw", 65536), one_size("ib_write_lat", 8),
            one_size("ib_read_bw", 65536), one_size("ib_read_lat", 8), perf("ib_atomic_lat"),
            perf("ib_atomic_lat", "-A", "CMP_AND_SWAP"))
RC_OPCODES = (LONG_SEND | LONG_WRITE |
              {WRITE_ONLY, READ, READ_FIRST, READ_MIDDLE, READ_LAST, READ_ONLY, ACKNOWLEDGE, ATOMIC_ACKNOWLEDGE,
               COMPARE_SWAP, FETCH_ADD})
rows.add("rc", captured(rc, RC_OPCODES))
rows.add("uc", captured(all_of(ping("ibv_uc_pingpong"), one_size("ib_write_lat", 8, "-c", "UC"),
                               one_size("ib_write_lat", 8192, "-c", "UC")),
                        of(UC, LONG_SEND | LONG_WRITE | {WRITE_ONLY})))
rows.add("xrc", captured(all_of(lambda hosts: pingpong.extended(hosts, ()), one_size("ib_write_bw", 8192, "-c", "XRC"),
                                one_size("ib_read_bw", 8192, "-c", "XRC"), perf("ib_atomic_lat", "-c", "XRC")),
                         of(XRC, LONG_SEND | LONG_WRITE | {READ, READ_FIRST, READ_LAST, ACKNOWLEDGE, FETCH_ADD})))
rows.add("ud", captured(ping("ibv_ud_pingpong", size=1024), of(UD, {SEND_ONLY})))
rows.add("small", captured(all_of(*(one_size("ib_send_lat", size) for size in (1, 4))), {SEND_ONLY}))

for name, says in {"ucmatose": ("ConnectRequest", "ConnectReply", "ReadyToUse", "DisconnectRequest", "DisconnectReply"),
                   "udaddy": ("ServiceIDResReq", "ServiceIDResReqResp")}.items():
    server, client, output = roce.MANAGED[name]

    def managed(hosts, server=server, client=client, output=output):
        address = hosts[SERVER].address
        roce.between(hosts, *([str(word).format(address) for word in line] for line in (server, client)), output)
    rows.add(name, captured(managed, says=says))
    six.add(name, captured(managed, says=says))


def nobody_listens(hosts):
    """The manager there serves another port."""
    listener = serve_by_manager(hosts, ("rping", "-s", "-a", hosts[SERVER].address, "-p", 7998))
    client = hosts[CLIENT].start("rping", "-c", "-a", hosts[SERVER].address, "-p", 7999, "-C", 1)
    expect(client.wait(hosts[CLIENT].settings.patience) != 0, "rping connected to nobody")
    listener.kill()


def lossy(hosts):
    """A queue that is too short for a window of packets: some are dropped, and sent again."""
    hosts[CLIENT].call("tc", "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", "100mbit", "burst", "9000", "latency", "1ms")
    try:
        one_size("ib_write_bw", 65536)(hosts)
    finally:
        hosts[CLIENT].call("tc", "qdisc", "del", "dev", "eth0", "root")


rows.add("group", captured(lambda hosts: rdma_cm.multicast(hosts, "239.192.3.6"), of(UD, {SEND_ONLY_IMMEDIATE})))
six.add("group", captured(lambda hosts: rdma_cm.multicast(hosts, "ff1e::7e57"), of(UD, {SEND_ONLY_IMMEDIATE})))
rows.add("lossy", captured(lossy, LONG_WRITE, {SEQUENCE_ERROR}))
rows.add("nobody_listens", captured(nobody_listens, says=("ConnectReject",)))
rows.add("errors", captured(lambda hosts: conformance.pair(hosts, "--chapter", "error", "--chapter", "retry"),
                            syndromes={INVALID_REQUEST, REMOTE_ACCESS}))


# ---- the fields of the IP header (tests/network/two_ends.cc) ----

# Traffic class, hop limit, flow label of its address handles. IPv4 has no flow label.
DATAGRAMS = ((0xb8, 7, 0xabcde), (0x22, 255, 0x1), (0x00, 64, 0x54321))
CONNECTED_CLASS, CONNECTED_FLOW = 0x68, 0x12345
ECN_CAPABLE = 2
READ_RESPONSES = {READ_FIRST, READ_MIDDLE, READ_LAST, READ_ONLY}


def fields_of(packet):
    """Traffic class, hop limit, flow label."""
    if packet.ip[0] >> 4 == 4:
        return packet.ip[1], packet.ip[8], 0
    first, = struct.unpack_from(">I", packet.ip)
    return first >> 20 & 0xff, packet.ip[7], first & 0xfffff


def ip_fields(hosts):
    """What address handles say is in the packets, and in the receiver's network header. Of a connection: the DSCP; ECT where
    marks are obeyed; and the route's hop limit."""
    with Capture(hosts[SERVER], hosts[CLIENT]) as seen:
        taker, _ = roce.two_ends(hosts)
    is_ipv6 = ":" in hosts[SERVER].address
    wanted = [(traffic, hops, flow if is_ipv6 else 0) for traffic, hops, flow in DATAGRAMS]
    sent = [fields_of(packet) for packet in seen.packets if packet.packet[0] == UD + SEND_ONLY]
    expect(sent == wanted, f"datagrams were sent with {sent}, not {wanted}")
    told = [line for line in taker.out.splitlines() if line.startswith("class")]
    expect(told == ["class 0x%02x hops %d flow 0x%x" % each for each in wanted], f"received: {told}, not {wanted}")
    flow = CONNECTED_FLOW if is_ipv6 else 0
    for packet in seen.packets:
        if packet.packet[0] < UC:
            wanted = CONNECTED_CLASS | (0 if packet.packet[0] in READ_RESPONSES else ECN_CAPABLE)
            traffic, hops, label = fields_of(packet)
            expect((traffic, label) == (wanted, flow) and hops > 3,
                   f"opcode 0x{packet.packet[0]:02x} has class 0x{traffic:02x}, {hops} hops, flow 0x{label:x}")
    expect({SEND_ONLY, WRITE_ONLY, READ, READ_ONLY, ACKNOWLEDGE} <= seen.opcodes(), f"only {seen.opcodes()}")


rows.add("ip_fields", ip_fields)
six.add("ip_fields", ip_fields)


@rows.row("source_ports")
def source_ports(hosts):
    """A connection has one, and 16 connections have more than one, so that a network with several ways can spread them. They
    share a few sockets of the process."""
    with Capture(hosts[SERVER], hosts[CLIENT]) as seen:
        perftest.measure(hosts, "ib_write_bw", ("-x", 1, "-q", 16, "-s", 64), (64,), iterations=5)
    ports = {}
    for packet in seen.packets:
        source, = struct.unpack_from(">H", packet.udp)
        expect(source >= 0xc000, f"source port {source}")
        ports.setdefault((packet.ip[12:16], packet.packet[5:8]), set()).add(source)
    expect(len(ports) == 32, f"{len(ports)} connections have sent")
    expect(all(len(each) == 1 for each in ports.values()), "a connection has sent from several ports")
    for host in {address for address, _ in ports}:
        distinct = set().union(*(each for (address, _), each in ports.items() if address == host))
        expect(2 <= len(distinct) <= 8, f"16 connections have sent from {len(distinct)} ports")
