// SPDX-License-Identifier: BSD-2-Clause
//
// rdma_reg_write(3), sentence by sentence.
//
// clang-format off
// | the page says | case |
// | --- | --- |
// | registers a memory buffer that will be accessed by a remote RDMA write operation | clause rdma_reg_write.remote |
// | to be specified as the remote_addr of rdma_post_write, or similar call | clause rdma_reg_write.remote, ThePeerMayWriteItByRdmaPostWritev |
// | (not for a remote read: rdma_verbs.h) | ThePeerMayNotReadIt |
// | returns a reference to the registered memory region | ReturnsTheRegion |
// | or NULL on error; errno will be set | MemoryThatIsNoneIsNullAndEfault, MemoryThatIsReadOnlyIsNullAndEfault |
// | registered with the protection domain associated with the identifier | clause rdma_reg_write.pd |
// | the start is addr, the total size is length | NothingBeyondTheLengthMayBeWritten |
// | should be registered before being posted; must deregister | rdma_post_write, rdma_dereg_mr |
// clang-format on
#include <sys/mman.h>

#include "connected_test.h"

namespace verbena::pages {
namespace {

class RdmaRegWrite : public ConnectedTest {
 protected:
  void SetUp() override {
    ConnectedTest::SetUp();
    if (HasFatalFailure()) return;
    offered_ = Memory(passive_.get(), kSize, rdma_reg_write);
    active_memory_.fill(1);
  }
  void TearDown() override {
    offered_ = {};
    ConnectedTest::TearDown();
  }
  ibv_wc_status write(size_t offset, size_t length) {
    EXPECT_EQ(rdma_post_write(active_.get(), nullptr, active_memory_.data(), length, active_memory_.mr(), 0,
                              offered_.address(offset), offered_.mr()->rkey),
              0);
    return sent(active_).status;
  }

  Memory offered_;
};

TEST_F(RdmaRegWrite, ThePeerMayWriteItByRdmaPostWritev) {
  ibv_sge list[2] = {active_memory_.sge(0, 10), active_memory_.sge(1000, 10)};
  ASSERT_EQ(rdma_post_writev(active_.get(), nullptr, list, 2, 0, offered_.address(), offered_.mr()->rkey), 0);
  EXPECT_EQ(sent(active_).status, IBV_WC_SUCCESS);
}

TEST_F(RdmaRegWrite, ThePeerMayNotReadIt) {
  ASSERT_EQ(rdma_post_read(active_.get(), nullptr, active_memory_.data(), 8, active_memory_.mr(), 0,
                           offered_.address(), offered_.mr()->rkey),
            0);
  EXPECT_EQ(sent(active_).status, IBV_WC_REM_ACCESS_ERR);
}

TEST_F(RdmaRegWrite, ReturnsTheRegion) {
  EXPECT_EQ(offered_.mr()->addr, offered_.data());
  EXPECT_EQ(offered_.mr()->length, kSize);
}

TEST_F(RdmaRegWrite, MemoryThatIsNoneIsNullAndEfault) {
  errno = 0;
  EXPECT_EQ(rdma_reg_write(active_.get(), reinterpret_cast<void*>(4096), 4096), nullptr);
  EXPECT_EQ(errno, EFAULT);
}

TEST_F(RdmaRegWrite, MemoryThatIsReadOnlyIsNullAndEfault) {
  void* page = mmap(nullptr, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(page, MAP_FAILED);
  errno = 0;
  EXPECT_EQ(rdma_reg_write(active_.get(), page, 4096), nullptr);
  EXPECT_EQ(errno, EFAULT);
  munmap(page, 4096);
}

TEST_F(RdmaRegWrite, NothingBeyondTheLengthMayBeWritten) {
  EXPECT_EQ(write(kSize - 4, 8), IBV_WC_REM_ACCESS_ERR);
}

}  // namespace
}  // namespace verbena::pages
