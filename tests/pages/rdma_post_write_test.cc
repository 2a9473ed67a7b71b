// SPDX-License-Identifier: BSD-2-Clause
//
// rdma_post_write(3), sentence by sentence.
//
// clang-format off
// | the page says | case |
// | --- | --- |
// | posts a work request to the send queue of the queue pair associated with the rdma_cm_id | clause rdma_post_write.writes, ibv_poll_cq.qp-num |
// | the contents of the local data buffer will be written into the remote memory region | clause rdma_post_write.writes, ToTheAddressThatIsNamed, MemoryOfAnotherProcessIsWritten |
// | returns 0 on success | everywhere |
// | or -1 on error; errno will be set | BeforeTheConnectionItIsMinusOneAndEinval |
// | for a list of supported flags, see ibv_post_send | SignaledAsksForACompletion, clause rdma_post_write.inline |
// | unless inline, the local buffer must have been registered | WithoutALocalRegionItIsAProtectionError |
// | and must remain registered until the write completes | not testable: what comes of it otherwise is open |
// | the remote buffer must always be registered | ARemoteBufferThatIsNotRegisteredIsARemoteAccessError, AlsoForInlineData |
// | may not be posted until it has been connected | BeforeTheConnectionItIsMinusOneAndEinval |
// | the context will be returned through wr_id | clause rdma_post_write.context, ibv_poll_cq.wr-id |
// clang-format on
#include "peer.h"
#include "remote_memory_test.h"

namespace verbena::pages {
namespace {

class RdmaPostWrite : public RemoteMemoryTest {
 protected:
  int post(size_t length, ibv_mr* mr, int flags = 0, uint64_t id = 1, size_t offset = 0) {
    errno = 0;
    return rdma_post_write(active_.get(), context_of(id), active_memory_.data(), length, mr, flags,
                           writable_.address(offset), writable_.mr()->rkey);
  }
};

TEST_F(RdmaPostWrite, ToTheAddressThatIsNamed) {
  ASSERT_EQ(post(16, active_memory_.mr(), 0, 1, 777), 0);
  ASSERT_EQ(sent(active_).status, IBV_WC_SUCCESS);
  EXPECT_TRUE(writable_.equals(active_memory_, 16, 777, 0));
  EXPECT_EQ(*writable_.data(776), 0);
  EXPECT_EQ(*writable_.data(793), 0);
}

TEST_F(RdmaPostWrite, MemoryOfAnotherProcessIsWritten) {
  Peer peer("memory", host_);
  const Info there = address_info(host_, peer.port(), 0, RDMA_PS_TCP);
  ibv_qp_init_attr attributes = queue_attributes();
  rdma_cm_id* made = nullptr;
  ASSERT_EQ(rdma_create_ep(&made, there.get(), nullptr, &attributes), 0);
  const CmId id(made);
  ASSERT_EQ(rdma_connect(id.get(), nullptr), 0) << strerror(errno);
  struct {
    uint64_t address;
    uint32_t rkey;
  } where;
  ASSERT_GE(id->event->param.conn.private_data_len, sizeof(where));
  memcpy(&where, id->event->param.conn.private_data, sizeof(where));
  Memory local(id.get(), 100), back(id.get(), 100);
  local.fill(99);
  ASSERT_EQ(rdma_post_write(id.get(), nullptr, local.data(), 100, local.mr(), 0, where.address, where.rkey),
            0);
  ASSERT_EQ(sent(id).status, IBV_WC_SUCCESS);
  ASSERT_EQ(rdma_post_read(id.get(), nullptr, back.data(), 100, back.mr(), 0, where.address, where.rkey), 0);
  ASSERT_EQ(sent(id).status, IBV_WC_SUCCESS);
  EXPECT_TRUE(back.equals(local, 100));
  rdma_disconnect(id.get());
  EXPECT_EQ(peer.wait(), 0);
}

TEST_F(RdmaPostWrite, SignaledAsksForACompletion) {
  Connection quiet;
  quiet.attributes.sq_sig_all = 0;
  reconnect(quiet);
  ASSERT_EQ(post(8, active_memory_.mr(), 0, 1), 0);
  ASSERT_EQ(post(8, active_memory_.mr(), IBV_SEND_SIGNALED, 2), 0);
  EXPECT_EQ(sent(active_).wr_id, 2u);
}

TEST_F(RdmaPostWrite, WithoutALocalRegionItIsAProtectionError) {
  ASSERT_EQ(post(32, nullptr), 0);
  EXPECT_EQ(sent(active_).status, IBV_WC_LOC_PROT_ERR);
}

TEST_F(RdmaPostWrite, ARemoteBufferThatIsNotRegisteredIsARemoteAccessError) {
  ASSERT_EQ(rdma_post_write(active_.get(), nullptr, active_memory_.data(), 8, active_memory_.mr(), 0,
                            writable_.address(), writable_.mr()->rkey ^ 0xffffff00),
            0);
  EXPECT_EQ(sent(active_).status, IBV_WC_REM_ACCESS_ERR);
}

TEST_F(RdmaPostWrite, AlsoForInlineData) {
  ASSERT_EQ(rdma_post_write(active_.get(), nullptr, active_memory_.data(), 8, nullptr, IBV_SEND_INLINE,
                            writable_.address(), writable_.mr()->rkey ^ 0xffffff00),
            0);
  EXPECT_EQ(sent(active_).status, IBV_WC_REM_ACCESS_ERR);
}

TEST_F(RdmaPostWrite, BeforeTheConnectionItIsMinusOneAndEinval) {
  CmId id = make_resolved_id(listener_);
  create_qp(id);
  Memory memory(id.get(), 64);
  errno = 0;
  EXPECT_EQ(rdma_post_write(id.get(), nullptr, memory.data(), 8, memory.mr(), 0, writable_.address(),
                            writable_.mr()->rkey),
            -1);
  EXPECT_EQ(errno, EINVAL);
}

}  // namespace
}  // namespace verbena::pages
