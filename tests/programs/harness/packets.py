# SPDX-License-Identifier: BSD-2-Clause
"""Reads what `verbena capture` writes: pcapng, and the RoCE v2 packets in it. Knows nothing of Verbena's own code.

Sources: draft-ietf-opsawg-pcapng; InfiniBand Architecture Specification vol. 1, 9.2 and 9.3, annexes A14 and A17.
"""

import dataclasses
import shutil
import struct
import subprocess
import zlib

from harness.failure import Skip, expect

SECTION, INTERFACE, STATISTICS, PACKET = 0x0A0D0D0A, 1, 5, 6
RC, UC, UD, XRC = 0, 1, 3, 5
ACKNOWLEDGE, ATOMIC_ACKNOWLEDGE, READ_REQUEST = 0x11, 0x12, 0x0C
READ_RESPONSES = (0x0D, 0x0E, 0x0F, 0x10)
WITH_RETH = (0x06, 0x0A, 0x0B, 0x0C, 0x1D)
WITH_IMMEDIATE = (0x03, 0x05, 0x09, 0x0B)
BEGINS = (0x00, 0x04, 0x05, 0x06, 0x0A, 0x0B, 0x0C, 0x13, 0x14, 0x17, 0x1D)
ENDS = (0x02, 0x03, 0x04, 0x05, 0x08, 0x09, 0x0A, 0x0B, 0x16, 0x17, 0x1D)


@dataclasses.dataclass
class Packet:
    time: int  # ns
    source: bytes  # addresses
    destination: bytes
    transport: int
    operation: int  # the lower five bits of the opcode
    qpn: int  # of the destination
    psn: int
    asks: bool  # for an acknowledgement
    payload: bytes
    reth: tuple = ()  # address, rkey, length
    aeth: tuple = ()  # syndrome, MSN
    deth: tuple = ()  # Q_Key, QPN of the source
    atomic: tuple = ()  # address, rkey, swap or add, compare; or the value before
    srqn: int = 0
    immediate: int = 0
    is_whole: bool = True  # else --snaplen has cut it

    def is_reply(self):
        return self.operation in (ACKNOWLEDGE, ATOMIC_ACKNOWLEDGE, *READ_RESPONSES)


@dataclasses.dataclass
class Capture:
    packets: list
    interface: str
    received: int = -1  # statistics; -1: there are none
    dropped: int = -1


def blocks(data):
    at = 0
    while at < len(data):
        kind, length = struct.unpack_from("<II", data, at)
        expect(length >= 12 and length % 4 == 0 and at + length <= len(data), f"a block of {length} bytes at {at}")
        expect(struct.unpack_from("<I", data, at + length - 4)[0] == length, "a block has two lengths")
        yield kind, data[at + 8:at + length - 4]
        at += length


def options(data):
    at = 0
    while at < len(data):
        code, length = struct.unpack_from("<HH", data, at)
        if code == 0:
            return
        yield code, data[at + 4:at + 4 + length]
        at += 4 + (length + 3) // 4 * 4


def ones_sum(data):
    if len(data) % 2:
        data += b"\0"
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total


def check_icrc(is_v4, network, udp):
    """vol. 1, 7.8.1 and A17.3.3: what changes on the way counts as ones."""
    header = bytearray(network)
    for place in (1, 8, 10, 11) if is_v4 else (1, 2, 3, 7):
        header[place] = 0xFF
    if not is_v4:
        header[0] |= 0x0F
    masked = bytearray(udp[:-4])
    masked[6] = masked[7] = masked[12] = 0xFF
    wanted = zlib.crc32(b"\xff" * 8 + bytes(header) + bytes(masked))
    expect(struct.unpack("<I", udp[-4:])[0] == wanted, "the ICRC is wrong")


def parse(time, frame, length):
    kind = struct.unpack_from(">H", frame, 12)[0]
    expect(kind in (0x0800, 0x86DD), f"EtherType {kind:#x}")
    is_v4 = kind == 0x0800
    size = 20 if is_v4 else 40
    network, udp = frame[14:14 + size], frame[14 + size:]
    whole = len(frame) == length
    if is_v4:
        expect(ones_sum(network) == 0xFFFF, "the checksum of IP is wrong")
        expect(struct.unpack_from(">H", network, 2)[0] == length - 14, "the length of IP is wrong")
        source, destination = network[12:16], network[16:20]
    else:
        expect(struct.unpack_from(">H", network, 4)[0] == length - 54, "the length of IPv6 is wrong")
        source, destination = network[8:24], network[24:40]
        if whole:
            pseudo = source + destination + struct.pack(">II", len(udp), 17)
            expect(ones_sum(pseudo + udp) == 0xFFFF, "the checksum of UDP is wrong")
    port, to_port, udp_length = struct.unpack_from(">HHH", udp)
    expect(to_port == 4791 and port >= 0xC000, f"UDP ports {port}, {to_port}")
    expect(udp_length == length - 14 - size, "the length of UDP is wrong")
    if whole:
        check_icrc(is_v4, network, udp)
    opcode, bits, _, qpn, psn = struct.unpack_from(">BBHII", udp, 8)
    packet = Packet(time, source, destination, opcode >> 5, opcode & 31, qpn & 0xFFFFFF, psn & 0xFFFFFF,
                    bool(psn >> 31), b"", is_whole=whole)
    at = 20
    operation = packet.operation
    if packet.transport == UD:
        qkey, qpn = struct.unpack_from(">II", udp, at)
        packet.deth, at = (qkey, qpn & 0xFFFFFF), at + 8
    if packet.transport == XRC and not packet.is_reply():
        packet.srqn, at = struct.unpack_from(">I", udp, at)[0], at + 4
    if operation in WITH_RETH:
        packet.reth, at = struct.unpack_from(">QII", udp, at), at + 16
    if operation in (0x13, 0x14):
        packet.atomic, at = struct.unpack_from(">QIQQ", udp, at), at + 28
    if operation in (0x0D, 0x0F, 0x10, 0x11, 0x12):
        word = struct.unpack_from(">I", udp, at)[0]
        packet.aeth, at = (word >> 24, word & 0xFFFFFF), at + 4
    if operation == ATOMIC_ACKNOWLEDGE:
        packet.atomic, at = struct.unpack_from(">Q", udp, at), at + 8
    if operation in WITH_IMMEDIATE or operation in (0x16, 0x17):
        packet.immediate, at = struct.unpack_from(">I", udp, at)[0], at + 4
    packet.payload = udp[at:len(udp) - 4 - (bits >> 4 & 3)] if whole else udp[at:]
    return packet


def read(path, make=parse):
    """`make` makes a packet of its time, its bytes, and the length of the whole frame."""
    data = open(path, "rb").read()
    found = Capture([], "")
    for number, (kind, body) in enumerate(blocks(data)):
        expect((kind == SECTION) == (number == 0), "one section, at the beginning")
        if kind == INTERFACE:
            expect(struct.unpack_from("<H", body)[0] == 1, "an Ethernet")
            named = dict(options(body[8:]))
            found.interface = named[2].decode()
            expect(named[9] == b"\x09", "the resolution is 1 ns")
        elif kind == PACKET:
            _, high, low, kept, length = struct.unpack_from("<5I", body)
            found.packets.append(make(high << 32 | low, body[20:20 + kept], length))
        elif kind == STATISTICS:
            counts = dict(options(body[12:]))
            found.received, found.dropped = (struct.unpack("<Q", counts[code])[0] for code in (4, 5))
    return found


def messages(packets):
    """The payloads of the SENDs and WRITEs that are complete, in order, each with its first packet. Checks the PSNs: each
    packet of a flow follows the one before, or goes back to one that was not acknowledged."""
    done, open_ones, next_psn = [], {}, {}
    for packet in packets:
        if packet.is_reply() or packet.transport == UD:
            continue
        flow = (packet.source, packet.destination, packet.qpn)
        if flow in next_psn:
            back = (next_psn[flow] - packet.psn) & 0xFFFFFF
            expect(back < 1 << 23, f"PSN {packet.psn:#x} of {packet.operation:#x} comes after {next_psn[flow]:#x}")
        length = packet.reth[2] if packet.reth else 0
        mtu_packets = 1
        if packet.operation == READ_REQUEST:
            response = [other for other in packets if other.operation in READ_RESPONSES and other.psn == packet.psn]
            mtu = len(response[0].payload) if response else 0
            mtu_packets = max(1, -(-length // mtu)) if mtu else 1
        next_psn[flow] = (packet.psn + mtu_packets) & 0xFFFFFF
        if packet.operation in (READ_REQUEST, 0x13, 0x14):
            continue
        if packet.operation in BEGINS:
            open_ones[flow] = (packet, [])
        expect(flow in open_ones, f"PSN {packet.psn:#x}: a message without its beginning")
        open_ones[flow][1].append(packet.payload)
        if packet.operation in ENDS:
            first, parts = open_ones.pop(flow)
            done.append((first, b"".join(parts)))
    return done


# What tshark says of packets that are as they should be: programs that ask for a hop limit of 1 get it.
HARMLESS = ("", '"Time To Live" only 1')


def check_by_tshark(path, packets):
    """tshark reads each packet as InfiniBand, finds none malformed, and no fault. Its guess that a SEND is RPC is off."""
    if shutil.which("tshark") is None:
        raise Skip("tshark is not installed")
    fields = ("infiniband.bth.opcode", "_ws.malformed", "_ws.expert.message")
    command = ["tshark", "-n", "-r", path, "--disable-heuristic", "rpcrdma_infiniband", "--disable-heuristic",
               "mellanox_eoib", "-T", "fields"]
    for field in fields:
        command += ["-e", field]
    seen = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=120, check=False)
    expect(seen.returncode == 0, f"tshark ended with status {seen.returncode}: {seen.stderr}")
    lines = seen.stdout.splitlines()
    expect(len(lines) == packets, f"tshark sees {len(lines)} packets, not {packets}")
    for number, line in enumerate(lines, 1):
        opcode, malformed, said = line.split("\t")
        expect(opcode and not malformed and said in HARMLESS, f"tshark about packet {number}: {line!r}")
