// SPDX-License-Identifier: BSD-2-Clause
#include "check/pinned.h"

#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace verbena::check {
namespace {

bool may_lock_memory() {
  __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {};
  return syscall(SYS_capget, &header, data) == 0 && (data[0].effective >> CAP_IPC_LOCK & 1) != 0;
}

}  // namespace

void check_pinned(const Region& region) {
  if (!is_enabled(rule("memlock-exceeded"))) return;
  rlimit limit = {};
  if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || pinned_bytes() <= limit.rlim_cur || may_lock_memory()) return;
  report(
      rule("memlock-exceeded"),
      text("%s: %llu bytes are registered with it, RLIMIT_MEMLOCK is %llu", region.name.c_str(),
           static_cast<unsigned long long>(pinned_bytes()), static_cast<unsigned long long>(limit.rlim_cur)),
      {{"registered here", region.created}});
}

}  // namespace verbena::check
