# SPDX-License-Identifier: BSD-2-Clause
"""Packets of RoCE v2 on a host's interface: captured by dumpcap, decoded by tshark, and the ICRC computed once more.

(tcpdump wants to give up its rights first, which a user namespace without setgroups(2) refuses.)"""

import collections
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import time
import zlib

from harness.failure import Failure, expect

ROCE_PORT = 4791
XRC = 0xa0  # the upper three bits of an opcode (vol. 1, 9.2.1)
DISCARD = 9  # RFC 863: a datagram to this port is the last packet of a capture
GLOBAL_HEADER, RECORD, ETHERNET = 24, 16, 14

Roce = collections.namedtuple("Roce", "number ip udp packet")  # ip: the header; packet: from the BTH to the ICRC


def icrc(ip, udp, packet):
    """Of a packet without its ICRC (InfiniBand Architecture Specification vol. 1, 7.8.1; annex A17, A17.3.3): CRC-32 over
    8 bytes of ones, and the headers with ones where a router may change them."""
    ip, udp, packet = bytearray(ip), bytearray(udp), bytearray(packet)
    if ip[0] >> 4 == 4:
        ip[1] = ip[8] = ip[10] = ip[11] = 0xff  # type of service, time to live, checksum
    else:
        ip[0] |= 0x0f  # traffic class, flow label
        ip[1] = ip[2] = ip[3] = ip[7] = 0xff  # and the hop limit
    udp[6] = udp[7] = packet[4] = 0xff
    return zlib.crc32(b"\xff" * 8 + bytes(ip) + bytes(udp) + bytes(packet))


def records(file):
    """The frames of a file in the format of libpcap; the last one may still be incomplete."""
    data = open(file, "rb").read()
    at = GLOBAL_HEADER
    while at + RECORD <= len(data):
        size = struct.unpack_from("<I", data, at + 8)[0]
        if at + RECORD + size > len(data):
            return
        yield data[at + RECORD:at + RECORD + size]
        at += RECORD + size


def destination_port(frame):
    six = frame[12:14] == b"\x86\xdd"
    at = ETHERNET + (40 if six else 20)
    return struct.unpack_from(">H", frame, at + 2)[0]


class Capture:
    """What passes the interface of `host` while the context lasts. `packets` and `infos` are there afterwards. `peers`: the
    hosts whose packets come there."""

    def __init__(self, host, *peers):
        for tool in ("dumpcap", "tshark"):
            if not shutil.which(tool):
                raise Failure(f"{tool} is not installed: scripts/install-packages.sh test")
        self.host = host
        self.senders = (host, *peers)
        self.file = os.path.join(host.folder, f"packets.{time.monotonic_ns()}.pcap")

    def __enter__(self):
        # One packet a record: as the cable has them, not as a socket hands them over (UDP_SEGMENT).
        for sender in self.senders:
            sender.call("ip", "link", "set", "dev", "eth0", "gso_max_segs", "1")
        self._program = self.host.start_plain("dumpcap", "-i", "eth0", "-P", "-q", "-B", 16, "-w", self.file,
                                              "-f", f"udp and (port {ROCE_PORT} or port {DISCARD})")
        self._until(lambda: "File:" in self._program.err, "begin")
        return self

    def __exit__(self, kind, *_):
        if kind is not None:
            return
        other = "fd77::99" if ":" in self.host.address else "10.77.0.99"
        family = socket.AF_INET6 if ":" in self.host.address else socket.AF_INET
        # Nobody has this address; a neighbour entry lets the packet go.
        self.host.call("ip", "neighbour", "replace", other, "lladdr", "02:00:00:00:00:99", "dev", "eth0")
        self.host.call("python3", "-c", f"import socket; socket.socket({int(family)}, socket.SOCK_DGRAM).sendto(b'end', "
                                        f"('{other}', {DISCARD}))")
        self._until(lambda: any(destination_port(frame) == DISCARD for frame in records(self.file)), "see the last packet")
        self._program.signal(signal.SIGINT)
        expect(self._program.wait(self.host.settings.patience) == 0, "dumpcap failed")
        dropped = re.search(r"received/dropped on interface 'eth0': \d+/(\d+)", self._program.err)
        expect(dropped and dropped.group(1) == "0", f"dumpcap has lost packets: {self._program.err}")
        self._read()
        self._decode()

    def _until(self, holds, what):
        deadline = time.monotonic() + self.host.settings.patience
        while not holds():
            expect(self._program.poll() is None, f"dumpcap ended: {self._program.err}")
            if time.monotonic() > deadline:
                raise Failure(f"dumpcap did not {what}")
            time.sleep(0.01)

    def _read(self):
        self.packets = []
        for number, frame in enumerate(records(self.file), 1):
            if destination_port(frame) != ROCE_PORT:
                continue
            size = 40 if frame[12:14] == b"\x86\xdd" else 20
            ip, rest = frame[ETHERNET:ETHERNET + size], frame[ETHERNET + size:]
            length = struct.unpack_from(">H", rest, 4)[0]
            packet = Roce(number, ip, rest[:8], rest[8:length])
            found = struct.unpack("<I", packet.packet[-4:])[0]
            expect(icrc(packet.ip, packet.udp, packet.packet[:-4]) == found, f"packet {number}: the ICRC is wrong")
            self.packets.append(packet)

    def _decode(self):
        """tshark must name every packet, and complain of none. tshark 4.0 knows no XRC. Its heuristics for RPC over RDMA and for
        Ethernet over InfiniBand take payloads for their own (the latter UD messages that begin with 0xc.), and are off."""
        fields = ("frame.number", "infiniband.invariant.crc", "_ws.malformed", "_ws.expert.message", "_ws.col.Info")
        done = subprocess.run(["tshark", "-n", "-r", self.file, "-Y", f"udp.dstport == {ROCE_PORT}",
                               "--disable-heuristic", "rpcrdma_infiniband", "--disable-heuristic", "mellanox_eoib",
                               "-o", "udp.ignore_ipv6_zero_checksum:TRUE", "-T", "fields", "-E", "separator=|",
                               *(word for field in fields for word in ("-e", field))],
                              capture_output=True, text=True, timeout=120)
        expect(done.returncode == 0, f"tshark: {done.stderr.strip()}")
        lines = [line.split("|", len(fields) - 1) for line in done.stdout.splitlines()]
        expect(len(lines) == len(self.packets), f"tshark shows {len(lines)} packets of {len(self.packets)}")
        self.infos = []
        for number, crc, malformed, expert, info in lines:
            expect(crc or "Unknown OpCode" in info and self._transport(number) == XRC, f"packet {number} is no InfiniBand packet for tshark: {info}")
            expert = expert.replace('"Time To Live" only 1', "")  # a hop limit of 1 is what the program says
            expect(not malformed and not expert, f"tshark complains of packet {number}: {malformed} {expert}: {info}")
            self.infos.append(info)

    def _transport(self, number):
        return next(packet for packet in self.packets if packet.number == int(number)).packet[0] & 0xe0

    def opcodes(self):
        return {packet.packet[0] for packet in self.packets}

    def syndromes(self):
        """Of acknowledgements: the first byte of the AETH, behind the BTH."""
        return {packet.packet[12] for packet in self.packets if packet.packet[0] & 0x1f == 0x11}
