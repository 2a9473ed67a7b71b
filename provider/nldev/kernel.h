// SPDX-License-Identifier: BSD-2-Clause
//
// The kernel's own NETLINK_RDMA, for devices of the machine that are seen beside those of the node.
#pragma once

#include <linux/netlink.h>

#include <cstdint>
#include <deque>
#include <string>

namespace verbena::nldev {

struct KernelReply {
  int error = 0;  // the kernel's, or that of the socket. EPROTONOSUPPORT: the kernel has no RDMA
  std::deque<std::string> datagrams;  // each with messages for the program; a dump without its end
};

// Asks the kernel what the program asks, and waits for the reply, at most a second for each part of it.
// `message` is the whole request. The replies have the program's port id, `port`.
KernelReply ask_kernel(const nlmsghdr& header, const char* message, uint32_t port);

}  // namespace verbena::nldev
