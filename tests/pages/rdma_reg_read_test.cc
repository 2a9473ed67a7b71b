// SPDX-License-Identifier: BSD-2-Clause
//
// rdma_reg_read(3), sentence by sentence.
//
// clang-format off
// | the page says | case |
// | --- | --- |
// | registers a memory buffer that will be accessed by a remote RDMA read operation | clause rdma_reg_read.remote |
// | to be specified as the remote_addr of rdma_post_read, or similar call | clause rdma_reg_read.remote, ThePeerMayReadItByRdmaPostReadv |
// | (not for a remote write: rdma_verbs.h) | clause rdma_reg_read.no-write |
// | (for local write: rdma_verbs.h) | MayBePostedToReceive |
// | returns a reference to the registered memory region | ReturnsTheRegion |
// | or NULL on error; errno will be set | MemoryThatIsNoneIsNullAndEfault |
// | registered with the protection domain associated with the identifier | clause rdma_reg_read.pd |
// | the start is addr, the total size is length | NothingBeyondTheLengthMayBeRead |
// | should be registered before being posted; must deregister | rdma_post_read, rdma_dereg_mr |
// clang-format on
#include "connected_test.h"

namespace verbena::pages {
namespace {

class RdmaRegRead : public ConnectedTest {
 protected:
  void SetUp() override {
    ConnectedTest::SetUp();
    if (HasFatalFailure()) return;
    offered_ = Memory(passive_.get(), kSize, rdma_reg_read);
    offered_.fill(1);
  }
  void TearDown() override {
    offered_ = {};
    ConnectedTest::TearDown();
  }
  ibv_wc_status read(size_t offset, size_t length) {
    EXPECT_EQ(rdma_post_read(active_.get(), nullptr, active_memory_.data(), length, active_memory_.mr(), 0,
                             offered_.address(offset), offered_.mr()->rkey),
              0);
    return sent(active_).status;
  }

  Memory offered_;
};

TEST_F(RdmaRegRead, ThePeerMayReadItByRdmaPostReadv) {
  ibv_sge list[2] = {active_memory_.sge(0, 10), active_memory_.sge(1000, 10)};
  ASSERT_EQ(rdma_post_readv(active_.get(), nullptr, list, 2, 0, offered_.address(), offered_.mr()->rkey), 0);
  EXPECT_EQ(sent(active_).status, IBV_WC_SUCCESS);
}

TEST_F(RdmaRegRead, MayBePostedToReceive) {
  ASSERT_EQ(rdma_post_recv(passive_.get(), nullptr, offered_.data(), kSize, offered_.mr()), 0);
  send_from_active(8);
  EXPECT_EQ(received(passive_).status, IBV_WC_SUCCESS);
}

TEST_F(RdmaRegRead, ReturnsTheRegion) {
  EXPECT_EQ(offered_.mr()->addr, offered_.data());
  EXPECT_EQ(offered_.mr()->length, kSize);
}

TEST_F(RdmaRegRead, MemoryThatIsNoneIsNullAndEfault) {
  errno = 0;
  EXPECT_EQ(rdma_reg_read(active_.get(), reinterpret_cast<void*>(4096), 4096), nullptr);
  EXPECT_EQ(errno, EFAULT);
}

TEST_F(RdmaRegRead, NothingBeyondTheLengthMayBeRead) { EXPECT_EQ(read(kSize - 4, 8), IBV_WC_REM_ACCESS_ERR); }

}  // namespace
}  // namespace verbena::pages
