// SPDX-License-Identifier: BSD-2-Clause
//
// rdma_post_sendv(3), sentence by sentence.
//
// clang-format off
// | the page says | case |
// | --- | --- |
// | posts a work request to the send queue | clause rdma_post_sendv.sends |
// | the contents of the posted buffers will be sent to the remote peer | clause rdma_post_sendv.sends |
// | returns 0 on success | everywhere |
// | or -1 on error; errno will be set | TooManyEntriesAreMinusOneAndAnErrno |
// | the remote peer has queued a receive request before | as rdma_post_send, which calls this function |
// | for flags, see ibv_post_send | SignaledAsksForACompletion; the others: rdma_post_send |
// | unless inline, the buffers must have been registered | OneBufferThatIsNotRegisteredIsAProtectionError, InlineNeedsNoKeys |
// | and must remain registered until the send completes | not testable: what comes of it otherwise is open |
// | may not be posted until it has been connected | BeforeTheConnectionItIsMinusOneAndEinval |
// | the context will be returned through wr_id | clause rdma_post_sendv.context, ibv_poll_cq.wr-id |
// clang-format on
#include "connected_test.h"

namespace verbena::pages {
namespace {

class RdmaPostSendv : public ConnectedTest {
 protected:
  int post(std::vector<ibv_sge> list, int flags = 0, uint64_t id = 1) {
    errno = 0;
    return rdma_post_sendv(active_.get(), context_of(id), list.data(), static_cast<int>(list.size()), flags);
  }
  ibv_sge part(size_t offset, size_t length) { return active_memory_.sge(offset, length); }
};

TEST_F(RdmaPostSendv, TooManyEntriesAreMinusOneAndAnErrno) {
  ibv_qp_attr attr = {};
  ibv_qp_init_attr init = {};
  ASSERT_EQ(ibv_query_qp(active_->qp, &attr, IBV_QP_CAP, &init), 0);
  EXPECT_EQ(post(std::vector<ibv_sge>(attr.cap.max_send_sge + 1, part(0, 1))), -1);
  EXPECT_TRUE(errno == ENOMEM || errno == EINVAL)
      << strerror(errno) << ": mlx5 says the former, rxe the latter";
}

TEST_F(RdmaPostSendv, SignaledAsksForACompletion) {
  Connection quiet;
  quiet.attributes.sq_sig_all = 0;
  connect_pair(quiet);
  receive_at_passive(1, 64);
  receive_at_passive(2, 64);
  ASSERT_EQ(post({part(0, 8), part(8, 8)}, 0, 1), 0);
  ASSERT_EQ(post({part(0, 8), part(8, 8)}, IBV_SEND_SIGNALED, 2), 0);
  EXPECT_EQ(sent(active_).wr_id, 2u);
}

TEST_F(RdmaPostSendv, OneBufferThatIsNotRegisteredIsAProtectionError) {
  receive_at_passive(1, 64);
  uint8_t elsewhere[8] = {};
  const ibv_sge none = {.addr = reinterpret_cast<uintptr_t>(elsewhere), .length = 8, .lkey = 0};
  ASSERT_EQ(post({part(0, 8), none}), 0);
  EXPECT_EQ(sent(active_).status, IBV_WC_LOC_PROT_ERR);
}

TEST_F(RdmaPostSendv, InlineNeedsNoKeys) {
  receive_at_passive(1, 64);
  char first[] = {'n', 'o', ' '}, second[] = "keys";
  const ibv_sge one = {.addr = reinterpret_cast<uintptr_t>(first), .length = 3, .lkey = 0};
  const ibv_sge two = {.addr = reinterpret_cast<uintptr_t>(second), .length = 5, .lkey = 0};
  ASSERT_EQ(post({one, two}, IBV_SEND_INLINE), 0);
  ASSERT_EQ(received(passive_).status, IBV_WC_SUCCESS);
  EXPECT_STREQ(reinterpret_cast<char*>(passive_memory_.data()), "no keys");
}

TEST_F(RdmaPostSendv, BeforeTheConnectionItIsMinusOneAndEinval) {
  CmId id = make_resolved_id(listener_);
  create_qp(id);
  Memory memory(id.get(), 64);
  ibv_sge list[2] = {memory.sge(0, 8), memory.sge(8, 8)};
  errno = 0;
  EXPECT_EQ(rdma_post_sendv(id.get(), nullptr, list, 2, 0), -1);
  EXPECT_EQ(errno, EINVAL);
}

}  // namespace
}  // namespace verbena::pages
