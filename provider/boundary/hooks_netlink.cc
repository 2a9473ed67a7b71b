// SPDX-License-Identifier: BSD-2-Clause
//
// Opening a NETLINK_RDMA socket fails as on a kernel without RDMA. libibverbs and librdmacm then read
// sysfs (libibverbs/init.c, librdmacm/cma.c of rdma-core 44), where the boundary shows the node's devices
// instead of the machine's.
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
