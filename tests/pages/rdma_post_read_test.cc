// SPDX-License-Identifier: BSD-2-Clause
//
// rdma_post_read(3), sentence by sentence.
//
// clang-format off
// | the page says | case |
// | --- | --- |
// | posts a work request to the send queue of the queue pair associated with the rdma_cm_id | clause rdma_post_read.reads, ibv_poll_cq.qp-num |
// | the contents of the remote memory region will be read into the local data buffer | clause rdma_post_read.reads, clause rdma_post_read.reads, MemoryOfAnotherProcessIsRead |
// | returns 0 on success | everywhere |
// | or -1 on error; errno will be set | BeforeTheConnectionItIsMinusOneAndEinval, InlineIsMinusOneAndEinval |
// | for a list of supported flags, see ibv_post_send | SignaledAsksForACompletion, InlineIsMinusOneAndEinval |
// | the remote buffer must have been registered | ARemoteBufferThatIsNotRegisteredIsARemoteAccessError |
// | the local buffer must have been registered | ALocalBufferThatIsNotRegisteredIsAProtectionError |
// | and must remain registered until the read completes | not testable: what comes of it otherwise is open |
// | may not be posted until it has been connected | BeforeTheConnectionItIsMinusOneAndEinval |
// | the context will be returned through wr_id | clause rdma_post_read.context, ibv_poll_cq.wr-id |
// clang-format on
#include "peer.h"
#include "remote_memory_test.h"

namespace verbena::pages {
namespace {

class RdmaPostRead : public RemoteMemoryTest {
 protected:
  int post(size_t length, int flags = 0, uint64_t id = 1, size_t offset = 0) {
    errno = 0;
    return rdma_post_read(active_.get(), context_of(id), active_memory_.data(), length, active_memory_.mr(),
                          flags, readable_.address(offset), readable_.mr()->rkey);
  }
};

TEST_F(RdmaPostRead, MemoryOfAnotherProcessIsRead) {
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
  Memory local(id.get(), 100);
  ASSERT_EQ(
      rdma_post_read(id.get(), nullptr, local.data(), 100, local.mr(), 0, where.address + 50, where.rkey), 0);
  EXPECT_EQ(sent(id).status, IBV_WC_SUCCESS);
  EXPECT_EQ(*local.data(0), static_cast<uint8_t>(5 + 50 * 7));
  EXPECT_EQ(*local.data(99), static_cast<uint8_t>(5 + 149 * 7));
  rdma_disconnect(id.get());
  EXPECT_EQ(peer.wait(), 0);
}

TEST_F(RdmaPostRead, SignaledAsksForACompletion) {
  Connection quiet;
  quiet.attributes.sq_sig_all = 0;
  reconnect(quiet);
  ASSERT_EQ(post(8, 0, 1), 0);
  ASSERT_EQ(post(8, IBV_SEND_SIGNALED, 2), 0);
  EXPECT_EQ(sent(active_).wr_id, 2u);
}

TEST_F(RdmaPostRead, InlineIsMinusOneAndEinval) {
  EXPECT_EQ(post(8, IBV_SEND_INLINE), -1);  // ibv_post_send(3): valid only for Send and RDMA Write
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(RdmaPostRead, ARemoteBufferThatIsNotRegisteredIsARemoteAccessError) {
  ASSERT_EQ(rdma_post_read(active_.get(), nullptr, active_memory_.data(), 8, active_memory_.mr(), 0,
                           readable_.address(), readable_.mr()->rkey ^ 0xffffff00),
            0);
  EXPECT_EQ(sent(active_).status, IBV_WC_REM_ACCESS_ERR);
}

TEST_F(RdmaPostRead, ALocalBufferThatIsNotRegisteredIsAProtectionError) {
  Memory other(active_.get(), 64);
  ibv_mr stale = *other.mr();
  other.deregister();
  ASSERT_EQ(rdma_post_read(active_.get(), nullptr, other.data(), 8, &stale, 0, readable_.address(),
                           readable_.mr()->rkey),
            0);
  EXPECT_EQ(sent(active_).status, IBV_WC_LOC_PROT_ERR);
}

TEST_F(RdmaPostRead, BeforeTheConnectionItIsMinusOneAndEinval) {
  CmId id = make_resolved_id(listener_);
  create_qp(id);
  Memory memory(id.get(), 64);
  errno = 0;
  EXPECT_EQ(rdma_post_read(id.get(), nullptr, memory.data(), 8, memory.mr(), 0, readable_.address(),
                           readable_.mr()->rkey),
            -1);
  EXPECT_EQ(errno, EINVAL);
}

}  // namespace
}  // namespace verbena::pages
