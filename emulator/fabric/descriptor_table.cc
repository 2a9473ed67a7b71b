// SPDX-License-Identifier: BSD-2-Clause
#include "fabric/descriptor_table.h"

#include <errno.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "keep_errno.h"

namespace verbena {
namespace {

constexpr size_t kStack = 64 * 1024;

struct Call {
  void (*work)(void*);
  void* context;
};

int run(void* given) {
  const Call& call = *static_cast<const Call*>(given);
  call.work(call.context);
  syscall(SYS_exit, 0);
  return 0;
}

}  // namespace

bool with_own_descriptors(void (*work)(void*), void* context) {
  const KeepErrno guard;
  void* const stack =
      mmap(nullptr, kStack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
  if (stack == MAP_FAILED) return false;
  Call call{work, context};
  // Without a signal at its end: the program must not see a child.
  const int child = clone(run, static_cast<char*>(stack) + kStack, CLONE_VM | CLONE_VFORK, &call);
  while (child > 0 && waitpid(child, nullptr, __WALL) < 0 && errno == EINTR) {
  }
  munmap(stack, kStack);
  return child > 0;
}

}  // namespace verbena
