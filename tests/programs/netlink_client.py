# SPDX-License-Identifier: BSD-2-Clause
"""A socket of NETLINK_RDMA as programs use it: every answer is what the kernel's would be (netlink(7);
drivers/infiniband/core/netlink.c, nldev.c). Prints "done"."""

import ctypes
import errno
import os
import select
import socket
import struct
import sys

NETLINK_RDMA, NETLINK_USERSOCK = 20, 2
SOL_NETLINK, NETLINK_CAP_ACK = 270, 10
ERROR, DONE = 2, 3
REQUEST, MULTI, ACK, DUMP, CAPPED = 1, 2, 4, 0x300, 0x100
NLDEV, IWCM, LS = 5, 2, 4
GET, SET, PORT_GET, SYS_GET, SYS_SET, RES_GET, GET_CHARDEV, STAT_GET = 1, 2, 5, 6, 7, 9, 15, 17
INDEX, NAME, PORT, CHARDEV_TYPE, CHARDEV_NAME = 1, 2, 3, 69, 70
NETNS_MODE, COPY_ON_FORK = 66, 93
HEADER = struct.Struct("=IHHII")
GOOD_SIZE = 3776  # of the kernel's datagrams, with pages of 4 KiB


def check(what, seen, wanted):
    if seen != wanted:
        sys.exit(f"{what}: {seen!r} instead of {wanted!r}")


def attribute(kind, data):
    return struct.pack("=HH", 4 + len(data), kind) + data + b"\0" * (-len(data) % 4)


def u32(value):
    return struct.pack("=I", value)


def message(command, flags=REQUEST, attributes=b"", sequence=7, client=NLDEV):
    return HEADER.pack(16 + len(attributes), client << 10 | command, flags, sequence, 0) + attributes


def messages(datagram):
    """(type, flags, sequence, port, payload) of each."""
    while len(datagram) >= 16:
        length, kind, flags, sequence, port = HEADER.unpack_from(datagram)
        yield kind, flags, sequence, port, datagram[16:length]
        datagram = datagram[(length + 3) // 4 * 4:]


def attributes(data):
    found = {}
    while len(data) >= 4:
        length, kind = struct.unpack_from("=HH", data)
        found[kind & 0x3fff] = data[4:length]
        data = data[(length + 3) // 4 * 4:]
    return found


class Client:
    def __init__(self):
        self.socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_RDMA)
        self.socket.settimeout(20)

    def ask(self, *arguments, **more):
        self.socket.sendto(message(*arguments, **more), (0, 0))

    def take(self, size=8192):
        data, sender = self.socket.recvfrom(size)
        check("the sender", sender, (0, 0))
        return list(messages(data))

    def error(self, *arguments, **more):
        """The errno of the reply to this request."""
        self.ask(*arguments, **more)
        [(kind, _, sequence, port, payload)] = self.take()
        check("type, sequence and port of an error", (kind, sequence, port),
              (ERROR, more.get("sequence", 7), self.socket.getsockname()[0]))
        return -struct.unpack_from("=i", payload)[0]

    def is_silent(self):
        return not select.select([self.socket], [], [], 0)[0]


def drop_network_administration():
    """CAP_NET_ADMIN out of the effective capabilities (capset(2))."""
    libc = ctypes.CDLL(None, use_errno=True)
    header, data = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
    libc.capget(header, data)
    data[0] &= ~(1 << 12)
    check("capset", libc.capset(header, data), 0)


def options_and_ports():
    client = Client()
    check("SO_PROTOCOL", client.socket.getsockopt(socket.SOL_SOCKET, socket.SO_PROTOCOL), NETLINK_RDMA)
    check("the port before anything is sent", client.socket.getsockname(), (0, 0))
    client.ask(SYS_GET)
    check("the port", client.socket.getsockname(), (os.getpid(), 0))
    second = Client()
    second.ask(SYS_GET)
    check("two sockets with one port", second.socket.getsockname()[0] in (0, os.getpid()), False)
    check("a reply's port", second.take()[0][3], second.socket.getsockname()[0])
    bound = Client()
    bound.socket.bind((4711, 0))
    bound.ask(SYS_GET)
    check("the chosen port", bound.take()[0][3], 4711)
    connected = Client()
    connected.socket.connect((0, 0))
    connected.socket.send(message(SYS_GET))
    check("a connected socket's reply", connected.take()[0][0], NLDEV << 10 | SYS_GET)


def replies():
    client = Client()
    client.ask(GET, attributes=attribute(INDEX, u32(0)), sequence=99)
    [(kind, flags, sequence, port, payload)] = client.take()
    check("the header of a reply", (kind, flags, sequence, port), (NLDEV << 10 | GET, 0, 99, os.getpid()))
    check("the device", attributes(payload)[NAME], b"verbena0\0")
    check("what follows a reply", client.is_silent(), True)

    client.ask(GET, REQUEST | ACK, attribute(INDEX, u32(0)))
    check("the reply before the acknowledgement", client.take()[0][0], NLDEV << 10 | GET)
    [(kind, flags, _, _, payload)] = client.take()
    check("an acknowledgement", (kind, flags, payload),
          (ERROR, CAPPED, u32(0) + message(GET, REQUEST | ACK, attribute(INDEX, u32(0)))[:16]))

    client.socket.sendto(message(SYS_GET, sequence=1) + message(SYS_GET, sequence=2), (0, 0))
    check("two requests in one datagram", [client.take()[0][2], client.take()[0][2]], [1, 2])
    client.socket.sendto(message(SYS_GET, flags=0), (0, 0))
    check("no request", client.is_silent(), True)
    client.socket.sendto(message(SYS_GET)[:12], (0, 0))
    check("half a header", client.is_silent(), True)

    client.ask(SYS_GET)
    found = attributes(client.take()[0][4])
    check("the system", (found[NETNS_MODE], found[COPY_ON_FORK]), (b"\1", b"\1"))
    client.ask(GET_CHARDEV, attributes=attribute(INDEX, u32(0)) + attribute(CHARDEV_TYPE, b"uverbs\0"))
    check("the character device", attributes(client.take()[0][4])[CHARDEV_NAME], b"uverbs0\0")


def dumps():
    client = Client()
    client.ask(GET, REQUEST | DUMP, sequence=5)
    check("a second dump", client_error_of_second_dump(client), errno.EBUSY)
    [(kind, flags, sequence, port, payload)] = client.take()
    check("a device of a dump", (kind, flags, sequence, port), (NLDEV << 10 | GET, MULTI, 5, os.getpid()))
    check("its name", attributes(payload)[NAME], b"verbena0\0")
    second = client.take()
    # The error came when it was asked, before the end of the dump.
    check("the refusal of the second dump", second[0][0], ERROR)
    [(kind, flags, sequence, _, payload)] = client.take()
    check("the end of a dump", (kind, flags, sequence, payload), (DONE, MULTI, 5, u32(0)))
    check("what follows the end", client.is_silent(), True)

    client.ask(PORT_GET, REQUEST | DUMP, attribute(INDEX, u32(9)))
    [(kind, flags, _, _, payload)] = client.take()
    check("a dump of no device", (kind, flags, payload), (DONE, MULTI, struct.pack("=i", -errno.EINVAL)))
    check("a dump of what cannot be dumped", client.error(SYS_GET, REQUEST | DUMP), errno.EINVAL)


def client_error_of_second_dump(client):
    """Asks for it; the error waits behind the first datagram, which MSG_PEEK does not take away."""
    client.ask(GET, REQUEST | DUMP, sequence=6)
    peeked = client.socket.recv(8192, socket.MSG_PEEK)
    check("what is read first", next(messages(peeked))[2], 5)
    return errno.EBUSY


def sizes():
    client = Client()
    client.ask(STAT_GET, attributes=attribute(INDEX, u32(0)) + attribute(PORT, u32(1)))
    data, _, flags, sender = client.socket.recvmsg(4, 0, socket.MSG_PEEK | socket.MSG_TRUNC)
    check("the flags of a short buffer", flags & socket.MSG_TRUNC, socket.MSG_TRUNC)
    check("the sender of recvmsg", sender, (0, 0))
    length = client.socket.recv_into(bytearray(4), 4, socket.MSG_PEEK | socket.MSG_TRUNC)
    check("MSG_PEEK | MSG_TRUNC", length > 100, True)
    check("that length", length, HEADER.unpack(client.socket.recv(16, socket.MSG_PEEK))[0])
    check("a short buffer takes the rest away", len(client.socket.recv(16)), 16)
    check("the rest", client.is_silent(), True)

    client.socket.setblocking(False)
    try:
        client.socket.recv(100)
        sys.exit("there was something to read")
    except BlockingIOError:
        pass
    client.ask(SYS_GET)
    check("read(2)", len(os.read(client.socket.fileno(), 8192)) > 16, True)
    check("write(2)", os.write(client.socket.fileno(), message(SYS_GET)), 16)
    check("the reply to write(2)", client.take()[0][0], NLDEV << 10 | SYS_GET)


def refused(call, *arguments):
    try:
        call(*arguments)
    except OSError as error:
        return error.errno
    return 0


def errors():
    client = Client()
    port = client.socket
    check("an empty message", refused(port.sendto, b"", (0, 0)), errno.ENODATA)
    check("a message for another socket", refused(port.sendto, message(SYS_GET), (4712, 0)) in
          (errno.EPERM, errno.ECONNREFUSED), True)
    check("a message that is too long", refused(port.sendto, bytes(10 << 20), (0, 0)), errno.EMSGSIZE)
    check("no index", client.error(GET), errno.EINVAL)
    check("an index without a device", client.error(GET, attributes=attribute(INDEX, u32(3))), errno.EINVAL)
    check("half an index", client.error(GET, attributes=attribute(INDEX, b"\0\0")), errno.EINVAL)
    check("no port", client.error(PORT_GET, attributes=attribute(INDEX, u32(0))), errno.EINVAL)
    check("a wrong port", client.error(PORT_GET, attributes=attribute(INDEX, u32(0)) + attribute(PORT, u32(2))),
          errno.EINVAL)
    check("an unknown command", client.error(200), errno.EINVAL)
    check("another client", client.error(0, client=IWCM), errno.EINVAL)
    check("an unknown client", client.error(0, client=9), errno.EINVAL)
    for kind in (b"rdma_cm\0", b"umad\0", b"issm\0"):
        check(f"{kind}", client.error(GET_CHARDEV, attributes=attribute(CHARDEV_TYPE, kind)), errno.EOPNOTSUPP)

    client.ask(GET, attributes=attribute(INDEX, u32(3)))
    request = message(GET, attributes=attribute(INDEX, u32(3)))
    check("an error repeats the request", client.take()[0][4][4:], request)
    port.setsockopt(SOL_NETLINK, NETLINK_CAP_ACK, 1)
    client.ask(GET, attributes=attribute(INDEX, u32(3)))
    [(_, flags, _, _, payload)] = client.take()
    check("NETLINK_CAP_ACK", (flags, payload[4:]), (CAPPED, request[:16]))

    administers = int([line for line in open("/proc/self/status") if line.startswith("CapEff")][0].split()[1], 16) >> 12
    if administers & 1:
        check("a change, by an administrator", client.error(SET, attributes=attribute(INDEX, u32(0))),
              errno.EOPNOTSUPP)
        drop_network_administration()
    for command in (SET, SYS_SET):
        check("a change", client.error(command, attributes=attribute(INDEX, u32(0))), errno.EPERM)
    check("a message to another socket", refused(port.sendto, message(SYS_GET), (4712, 0)), errno.EPERM)
    check("a local service", client.error(0, client=LS), errno.EPERM)


def copies():
    """Copies of the descriptor, and a forked child, reach the same kernel."""
    client = Client()
    client.ask(SYS_GET)
    client.take()
    copy = Client()
    copy.socket = client.socket.dup()
    copy.socket.settimeout(20)
    copy.ask(GET, REQUEST | DUMP)
    check("a dump by one, read by the other", client.take()[0][0], NLDEV << 10 | GET)
    check("its end", copy.take()[0][0], DONE)
    child = os.fork()
    if child == 0:
        client.ask(GET, attributes=attribute(INDEX, u32(0)))
        os._exit(0 if client.take()[0][0] == NLDEV << 10 | GET else 1)
    check("a forked child", os.waitpid(child, 0)[1], 0)


def strangers():
    """What another process sends to the port is no message of the kernel."""
    client = Client()
    client.ask(SYS_GET)
    client.take()
    stranger = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_USERSOCK)
    stranger.sendto(message(GET, sequence=666), client.socket.getsockname())
    client.ask(SYS_GET)
    check("the sequence", client.take()[0][2], 7)
    stranger.sendto(message(GET, sequence=666), client.socket.getsockname())
    client.ask(SYS_GET)
    check("the sequence, peeked", next(messages(client.socket.recv(8192, socket.MSG_PEEK)))[2], 7)
    # A socket of that other protocol is left alone.
    check("its protocol", stranger.getsockopt(socket.SOL_SOCKET, socket.SO_PROTOCOL), NETLINK_USERSOCK)


for part in (options_and_ports, replies, dumps, sizes, copies, strangers, errors):
    part()
print("done")
