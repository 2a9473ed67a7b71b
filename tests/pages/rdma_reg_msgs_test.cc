// SPDX-License-Identifier: BSD-2-Clause
//
// rdma_reg_msgs(3), sentence by sentence.
//
// clang-format off
// | the page says | case |
// | --- | --- |
// | registers an array of memory buffers | EveryBufferOfTheArrayMayBePosted |
// | may be posted using rdma_post_send or rdma_post_recv | clause rdma_reg_msgs.send-recv |
// | or specified as the target of an RDMA read operation | clause rdma_reg_msgs.rdma-local |
// | or the source of an RDMA write request | clause rdma_reg_msgs.rdma-local |
// | (and for nothing else: rdma_verbs.h registers for local write only) | ThePeerMayNotReadIt, ThePeerMayNotWriteIt |
// | returns a reference to the registered memory region | ReturnsTheRegion |
// | or NULL on error; errno will be set | MemoryThatIsNoneIsNullAndEfault |
// | registered with the protection domain associated with the identifier | clause rdma_reg_msgs.pd, TheRegionIsInTheDomainGivenToTheQueuePair |
// | the start is addr, the total size is length | ReturnsTheRegion, NothingBeyondTheLengthIsRegistered |
// | should be registered before being posted | rdma_post_recv, rdma_post_send |
// | must deregister by calling rdma_dereg_mr | rdma_dereg_mr |
// clang-format on
#include "connected_test.h"

namespace verbena::pages {
namespace {

class RdmaRegMsgs : public ConnectedTest {};

TEST_F(RdmaRegMsgs, EveryBufferOfTheArrayMayBePosted) {
  active_memory_.fill(1);
  receive_at_passive(1, 64, 0);
  receive_at_passive(2, 64, kSize - 64);
  for (size_t offset : {size_t{128}, kSize - 64}) {
    ASSERT_EQ(rdma_post_send(active_.get(), nullptr, active_memory_.data(offset), 64, active_memory_.mr(), 0),
              0);
    ASSERT_EQ(received(passive_).status, IBV_WC_SUCCESS);
  }
  EXPECT_TRUE(passive_memory_.equals(active_memory_, 64, 0, 128));
  EXPECT_TRUE(passive_memory_.equals(active_memory_, 64, kSize - 64, kSize - 64));
}

TEST_F(RdmaRegMsgs, ThePeerMayNotReadIt) {
  ASSERT_EQ(rdma_post_read(active_.get(), nullptr, active_memory_.data(), 8, active_memory_.mr(), 0,
                           passive_memory_.address(), passive_memory_.mr()->rkey),
            0);
  EXPECT_EQ(sent(active_).status, IBV_WC_REM_ACCESS_ERR);
}

TEST_F(RdmaRegMsgs, ThePeerMayNotWriteIt) {
  ASSERT_EQ(rdma_post_write(active_.get(), nullptr, active_memory_.data(), 8, active_memory_.mr(), 0,
                            passive_memory_.address(), passive_memory_.mr()->rkey),
            0);
  EXPECT_EQ(sent(active_).status, IBV_WC_REM_ACCESS_ERR);
}

TEST_F(RdmaRegMsgs, ReturnsTheRegion) {
  EXPECT_EQ(active_memory_.mr()->addr, active_memory_.data());
  EXPECT_EQ(active_memory_.mr()->length, kSize);
}

TEST_F(RdmaRegMsgs, MemoryThatIsNoneIsNullAndEfault) {
  errno = 0;
  EXPECT_EQ(rdma_reg_msgs(active_.get(), reinterpret_cast<void*>(4096), 4096), nullptr);
  EXPECT_EQ(errno, EFAULT);
}

TEST_F(RdmaRegMsgs, TheRegionIsInTheDomainGivenToTheQueuePair) {
  CmId id = make_bound_id();
  const Pd pd(ibv_alloc_pd(id->verbs));
  ibv_qp_init_attr attributes = queue_attributes();
  ASSERT_EQ(rdma_create_qp(id.get(), pd.get(), &attributes), 0);
  {
    Memory memory(id.get(), 64);
    EXPECT_EQ(memory.mr()->pd, pd.get());
  }
  id.reset();  // before its domain
}

TEST_F(RdmaRegMsgs, NothingBeyondTheLengthIsRegistered) {
  receive_at_passive(1, 64);
  ASSERT_EQ(rdma_post_send(active_.get(), nullptr, active_memory_.data(kSize - 4), 8, active_memory_.mr(), 0),
            0);
  EXPECT_EQ(sent(active_).status, IBV_WC_LOC_PROT_ERR);
}

}  // namespace
}  // namespace verbena::pages
