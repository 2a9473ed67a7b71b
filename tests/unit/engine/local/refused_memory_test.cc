// SPDX-License-Identifier: BSD-2-Clause
//
// Requests where the kernel refuses access to other processes' memory, as containers do.
#include <gtest/gtest.h>

#include "common/refuse_process_vm.h"
#include "unit/common/child.h"
#include "unit/engine/scene.h"

namespace verbena {
namespace {

constexpr int kRefusalFails = 77;

// The first request finds out that the calls are refused. post() of the scene looks at errno.
int write_and_read() {
  if (!test::refuse_process_vm()) return kRefusalFails;
  Pair pair;
  Region to(pair.pd.get(), 4096), from(pair.pd.get(), 4096);
  from.fill(1);
  for (const ibv_wr_opcode opcode : {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ}) {
    EXPECT_EQ(rdma(*pair.a, opcode, {from.sge(0, 4096)}, to.address(), to.rkey()), 0);
    EXPECT_EQ(completion(pair.a.send_cq.get()).status, IBV_WC_SUCCESS);
  }
  EXPECT_EQ(std::memcmp(to.data(), from.data(), 4096), 0);
  return ::testing::Test::HasFailure() ? 1 : 0;
}

TEST(RefusedMemory, LeavesErrnoAsItWas) {
  Child child([](const Child&) { return write_and_read(); });
  const int status = child.finish();
  if (status == kRefusalFails) GTEST_SKIP() << "seccomp(2) is not allowed";
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace verbena
