/* SPDX-License-Identifier: BSD-2-Clause */
#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "common.h"

/* As a user's process, which may lock what the limit says. */
static void become_ordinary(void) {
  struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3];
  NEED(syscall(SYS_capget, &header, data) == 0);
  data[0].effective &= ~(1u << CAP_IPC_LOCK);
  NEED(syscall(SYS_capset, &header, data) == 0);
}

int main(int argc, char** argv) {
  begin(argc, argv);
  struct rlimit limit;
  NEED(getrlimit(RLIMIT_MEMLOCK, &limit) == 0);
  limit.rlim_cur = wrong ? kSize : 2 * kSize;
  NEED(setrlimit(RLIMIT_MEMLOCK, &limit) == 0);
  become_ordinary();
  open_pair();
  close_all();
  return 0;
}
