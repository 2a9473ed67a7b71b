// SPDX-License-Identifier: BSD-2-Clause
//
// Sockets of the protocol NETLINK_RDMA, as if the kernel had the node's devices (netlink(7);
// drivers/infiniband/core/netlink.c, nldev.c). The provider answers the requests (provider/nldev).
//
// The program's socket is a netlink socket of the protocol NETLINK_USERSOCK, whose messages go from process
// to process. A reply is sent by the program's own socket to itself. So the kernel does the rest: port ids,
// options, buffers, MSG_PEEK, MSG_TRUNC, poll(2). A message from any other socket is dropped.
//
// A message that the program sends to the kernel (port id 0) is answered before the call returns, and the
// rest of a dump while the program reads, a datagram at a time, as by the kernel. Not seen: sendmmsg(2),
// recvmmsg(2), writev(2), readv(2), and io_uring.
#pragma once

#include <sys/socket.h>
#include <sys/types.h>

#include "boundary/netlink_table.h"

namespace verbena {

// socket(AF_NETLINK, type, NETLINK_RDMA). EPROTONOSUPPORT, as on a kernel without RDMA: there is no provider,
// the node cannot be read (made by another version, for example), or the kernel has no NETLINK_USERSOCK.
// libibverbs and librdmacm then read sysfs.
int open_netlink(int type);

// What the program sends to the kernel. Returns the length, or -1 with the errno of netlink_sendmsg().
// - EPERM, ECONNREFUSED: it is not for the kernel. Only privileged processes send to others.
// - ENOBUFS: the program does not read its replies.
ssize_t send_netlink(NetlinkSocket& socket, int fd, const msghdr& message, int flags);

// The same for write(2), if `fd` is such a socket.
ssize_t write_netlink(int fd, const void* data, size_t length);

// recvmsg(2): the sender is the kernel, port id 0.
ssize_t receive_netlink(NetlinkSocket& socket, int fd, msghdr* message, int flags);

// connect(2) to the kernel. The kernel would then refuse our replies, so the socket is bound only, which is
// what connect(2) does for a program that talks to the kernel.
int connect_netlink(int fd, const sockaddr* address, socklen_t size);

}  // namespace verbena
