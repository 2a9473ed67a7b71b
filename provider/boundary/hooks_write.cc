// SPDX-License-Identifier: BSD-2-Clause
//
// Only write(2) is hooked, because libibverbs and librdmacm send every command by write(2)
// (libibverbs/cmd_fallback.c, librdmacm/cma.c of rdma-core 44). A command that is sent in another way gets
// ENOSPC from the placeholder.
#include <unistd.h>

#include "boundary/descriptors.h"
#include "boundary/netlink.h"
#include "boundary/netlink_table.h"
#include "boundary/real.h"

namespace verbena {
namespace {

__attribute__((noinline)) ssize_t write_to_device(int fd, const void* data, size_t length) {
  verbena_boundary_handler handler;
  if (!find_handler(fd, &handler)) return real_write(fd, data, length);
  ssize_t answer = handler.write(handler.owner, data, length);
  while (answer == VERBENA_BOUNDARY_WAIT && handler.resume != nullptr) {
    char token;
    const ssize_t taken = read(fd, &token, sizeof token);
    if (taken < 0) return -1;
    if (taken == 0) return failed<ssize_t>(EIO);  // the writer of the tokens has closed its end
    answer = handler.resume(handler.owner, data, length);
  }
  return answer;
}

}  // namespace

VERBENA_HOOK ssize_t write(int fd, const void* data, size_t length) {
  if (may_be_device(fd)) [[unlikely]]
    return write_to_device(fd, data, length);
  if (may_be_netlink(fd)) [[unlikely]]
    return write_netlink(fd, data, length);
  return real_write(fd, data, length);
}

}  // namespace verbena
