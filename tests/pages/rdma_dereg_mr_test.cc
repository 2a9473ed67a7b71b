// SPDX-License-Identifier: BSD-2-Clause
//
// rdma_dereg_mr(3), sentence by sentence.
//
// clang-format off
// | the page says | case |
// | --- | --- |
// | deregisters a memory buffer that had been registered for RDMA | AfterwardsThePeerMayNotWriteIt, AfterwardsThePeerMayNotReadIt |
// | or message operations | AfterwardsItIsNoBufferToSend |
// | before destroying the rdma_cm_id | not testable: an order for the user |
// | returns 0 on success | clause rdma_dereg_mr.zero |
// | or -1 on error; errno will be set | WithAMemoryWindowItIsMinusOneAndEbusy |
// | all memory registered with an id is associated with its protection domain | rdma_reg_msgs |
// | must deregister all before the protection domain can be destroyed | UntilThenTheDomainIsBusy |
// clang-format on
#include "connected_test.h"

namespace verbena::pages {
namespace {

class RdmaDeregMr : public ConnectedTest {};

TEST_F(RdmaDeregMr, AfterwardsThePeerMayNotWriteIt) {
  Memory offered(passive_.get(), 64, rdma_reg_write);
  const uint32_t rkey = offered.mr()->rkey;
  offered.deregister();
  ASSERT_EQ(rdma_post_write(active_.get(), nullptr, active_memory_.data(), 8, active_memory_.mr(), 0,
                            offered.address(), rkey),
            0);
  EXPECT_EQ(sent(active_).status, IBV_WC_REM_ACCESS_ERR);
}

TEST_F(RdmaDeregMr, AfterwardsThePeerMayNotReadIt) {
  Memory offered(passive_.get(), 64, rdma_reg_read);
  const uint32_t rkey = offered.mr()->rkey;
  offered.deregister();
  ASSERT_EQ(rdma_post_read(active_.get(), nullptr, active_memory_.data(), 8, active_memory_.mr(), 0,
                           offered.address(), rkey),
            0);
  EXPECT_EQ(sent(active_).status, IBV_WC_REM_ACCESS_ERR);
}

TEST_F(RdmaDeregMr, AfterwardsItIsNoBufferToSend) {
  receive_at_passive(1, 64);
  Memory memory(active_.get(), 64);
  ibv_mr stale = *memory.mr();
  memory.deregister();
  ASSERT_EQ(rdma_post_send(active_.get(), nullptr, memory.data(), 8, &stale, 0), 0);
  EXPECT_EQ(sent(active_).status, IBV_WC_LOC_PROT_ERR);
}

TEST_F(RdmaDeregMr, WithAMemoryWindowItIsMinusOneAndEbusy) {
  uint8_t bytes[64];
  ibv_mr* mr = ibv_reg_mr(active_->pd, bytes, sizeof(bytes), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
  ASSERT_NE(mr, nullptr);
  ibv_mw* window = ibv_alloc_mw(active_->pd, IBV_MW_TYPE_1);
  ASSERT_NE(window, nullptr);
  ibv_mw_bind bind = {};
  bind.bind_info = {.mr = mr,
                    .addr = reinterpret_cast<uintptr_t>(bytes),
                    .length = 64,
                    .mw_access_flags = IBV_ACCESS_REMOTE_READ};
  ASSERT_EQ(ibv_bind_mw(active_->qp, window, &bind), 0);
  ASSERT_EQ(sent(active_).status, IBV_WC_SUCCESS);
  errno = 0;
  EXPECT_EQ(rdma_dereg_mr(mr), -1);
  EXPECT_EQ(errno, EBUSY);
  EXPECT_EQ(ibv_dealloc_mw(window), 0);
  EXPECT_EQ(rdma_dereg_mr(mr), 0);
}

TEST_F(RdmaDeregMr, UntilThenTheDomainIsBusy) {
  CmId id = make_bound_id();
  ibv_pd* pd = ibv_alloc_pd(id->verbs);
  ibv_qp_init_attr attributes = queue_attributes();
  ASSERT_EQ(rdma_create_qp(id.get(), pd, &attributes), 0);
  Memory memory(id.get(), 64);
  rdma_destroy_qp(id.get());
  EXPECT_EQ(ibv_dealloc_pd(pd), EBUSY);
  memory.deregister();
  EXPECT_EQ(ibv_dealloc_pd(pd), 0);
}

}  // namespace
}  // namespace verbena::pages
