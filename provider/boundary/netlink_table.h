// SPDX-License-Identifier: BSD-2-Clause
//
// The NETLINK_RDMA sockets that this process has opened through the boundary, by descriptor number.
//
// The table is only a hint, as that of device files is (descriptors.h): the boundary does not see close(2).
// An entry is valid if the descriptor is a socket with the entry's inode, which no other living socket has.
// So a forked child finds the sockets of its parent, too. A program that the process executes, or a process
// that is sent the socket, does not find them: what it sends fails with ECONNREFUSED.
//
// All functions preserve errno.
#pragma once

#include <atomic>
#include <cstdint>

#include "boundary/claim.h"

namespace verbena {

struct NetlinkSocket {
  std::atomic<int> fd;  // + 1; 0: the entry is free; kTaken: it is being changed
  std::atomic<uint64_t> inode;
  std::atomic<uint32_t> port;  // the socket's port id; 0: nothing has been delivered yet
  std::atomic<void*> state;    // the provider's; nullptr: none yet
};

namespace detail {
inline constexpr uint32_t kNetlinkFilter = 1024;  // numbers of descriptors, modulo
extern std::atomic<uint64_t> netlink_filter[kNetlinkFilter / 64];
}  // namespace detail

// Might `fd` be a NETLINK_RDMA socket? One load, and false for nearly every descriptor of a program.
inline bool may_be_netlink(int fd) {
  const auto bit = static_cast<uint32_t>(fd) % detail::kNetlinkFilter;
  return (detail::netlink_filter[bit / 64].load(std::memory_order_acquire) >> bit % 64 & 1) != 0;
}

// Enters the new socket `fd`. False: 256 sockets are open, or there is no memory.
bool enter_netlink(int fd, const verbena_netlink_kernel& kernel);

// The entry of `fd`, verified; nullptr: it is no such socket.
NetlinkSocket* find_netlink(int fd);

// `copy` has just been made from `fd` by dup(2) or a similar call.
void inherit_netlink(int fd, int copy);

}  // namespace verbena
