// SPDX-License-Identifier: BSD-2-Clause
//
// NETLINK_RDMA fails as on a kernel without RDMA. libibverbs and librdmacm then read sysfs, which has the
// node's devices and not the machine's (libibverbs/init.c, librdmacm/cma.c of rdma-core 44).
#include <linux/netlink.h>
#include <sys/socket.h>

#include "boundary/environment.h"
#include "boundary/real.h"

namespace verbena {

VERBENA_HOOK int socket(int domain, int type, int protocol) noexcept {
  if (domain == AF_NETLINK && protocol == NETLINK_RDMA && has_node()) return failed<int>(EPROTONOSUPPORT);
  return real_socket(domain, type, protocol);
}

}  // namespace verbena
