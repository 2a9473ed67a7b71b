// SPDX-License-Identifier: BSD-2-Clause
#include "engine/rules/privilege.h"

#include <linux/capability.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace verbena {

namespace {

bool has_net_raw() {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct sets[_LINUX_CAPABILITY_U32S_3] = {};
  if (syscall(SYS_capget, &header, sets) != 0) return false;
  return (sets[CAP_TO_INDEX(CAP_NET_RAW)].effective & CAP_TO_MASK(CAP_NET_RAW)) != 0;
}

}  // namespace

bool may_set_controlled_qkeys() { return has_net_raw(); }
bool may_use_raw_packets() { return has_net_raw(); }

}  // namespace verbena
