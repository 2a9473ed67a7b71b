// SPDX-License-Identifier: BSD-2-Clause
//
// The kernel's end of one NETLINK_RDMA socket: which requests get an answer, an error or an acknowledgement
// (drivers/infiniband/core/netlink.c, rdma_nl_rcv_skb; net/netlink/af_netlink.c, netlink_dump).
#pragma once

#include <deque>
#include <mutex>
#include <string>

#include "boundary/claim.h"

namespace verbena::nldev {

class Socket {
 public:
  // One datagram of requests. Replies are delivered before it returns, of a dump the first datagram. 0, or
  // the errno of `program.deliver` (EAGAIN as ENOBUFS).
  int request(const void* data, size_t length, const verbena_netlink_program& program);

  // The program has read a datagram: delivers the next one of a dump, if there is one.
  void more(const verbena_netlink_program& program);

  void reset();

 private:
  std::mutex mutex_;
  std::deque<std::string> dump_;  // datagrams of a dump that are not delivered yet
};

}  // namespace verbena::nldev
