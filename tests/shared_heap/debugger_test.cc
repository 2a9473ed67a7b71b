// SPDX-License-Identifier: BSD-2-Clause
//
// A debugger reads and writes memory that is registered (ptrace(2)).
#include <sys/ptrace.h>

#include "heap_fixture.h"

namespace verbena::test {
namespace {

using SharedHeapDebugger = HeapTest;

TEST_F(SharedHeapDebugger, ReadsAndWritesTheMemory) {
  uint8_t* const memory = map_pages(2);
  // The traced process registers: what a fork leaves is private.
  const pid_t traced = fork();
  if (traced == 0) {
    context_.release();
    pd_.release();
    const Context context = open_device();
    const Pd pd(ibv_alloc_pd(context.get()));
    fill(memory, 2 * kPage);
    const Mr mr(ibv_reg_mr(pd.get(), memory, 2 * kPage, kAllAccess));
    if (mr == nullptr || !is_shared(memory, 2 * kPage) || ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0)
      _exit(1);
    raise(SIGSTOP);
    _exit(memory[kPage] == 0x5a && is_filled(memory, 0, kPage) ? 0 : 2);
  }
  int status = 0;
  ASSERT_EQ(waitpid(traced, &status, 0), traced);
  ASSERT_TRUE(WIFSTOPPED(status)) << status;
  long word = ptrace(PTRACE_PEEKDATA, traced, memory + kPage, nullptr);
  EXPECT_EQ(static_cast<uint8_t>(word), pattern(kPage));
  word = (word & ~0xffL) | 0x5a;
  EXPECT_EQ(ptrace(PTRACE_POKEDATA, traced, memory + kPage, word), 0);
  EXPECT_EQ(ptrace(PTRACE_CONT, traced, nullptr, nullptr), 0);
  ASSERT_EQ(waitpid(traced, &status, 0), traced);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

}  // namespace
}  // namespace verbena::test
