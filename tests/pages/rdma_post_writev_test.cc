// SPDX-License-Identifier: BSD-2-Clause
//
// rdma_post_writev(3), sentence by sentence.
//
// clang-format off
// | the page says | case |
// | --- | --- |
// | posts a work request to the send queue | TheBuffersAreOneRequest |
// | the contents of the local data buffers will be written into the remote memory region | clause rdma_post_writev.writes |
// | returns 0 on success | everywhere |
// | or -1 on error; errno will be set | TooManyEntriesAreMinusOneAndAnErrno |
// | for flags, see ibv_post_send | rdma_post_write, which calls this function |
// | unless inline, the local buffers must have been registered | OneBufferThatIsNotRegisteredIsAProtectionError, InlineNeedsNoKeys |
// | and must remain so until the write completes | not testable: what comes of it otherwise is open |
// | the remote buffers must always be registered | rdma_post_write |
// | may not be posted until it has been connected | rdma_post_write |
// | the context will be returned through wr_id | clause rdma_post_writev.context, ibv_poll_cq.wr-id |
// clang-format on
#include "remote_memory_test.h"

namespace verbena::pages {
namespace {

class RdmaPostWritev : public RemoteMemoryTest {
 protected:
  int post(std::vector<ibv_sge> list, int flags = 0, uint64_t id = 1) {
    errno = 0;
    return rdma_post_writev(active_.get(), context_of(id), list.data(), static_cast<int>(list.size()), flags,
                            writable_.address(), writable_.mr()->rkey);
  }
  ibv_sge part(size_t offset, size_t length) { return active_memory_.sge(offset, length); }
};

TEST_F(RdmaPostWritev, TheBuffersAreOneRequest) {
  ASSERT_EQ(post({part(0, 10), part(100, 10)}), 0);
  ASSERT_EQ(sent(active_).status, IBV_WC_SUCCESS);
  ibv_wc wc;
  EXPECT_EQ(ibv_poll_cq(active_->send_cq, 1, &wc), 0) << "one completion for both";
}

TEST_F(RdmaPostWritev, TooManyEntriesAreMinusOneAndAnErrno) {
  ibv_qp_attr attr = {};
  ibv_qp_init_attr init = {};
  ASSERT_EQ(ibv_query_qp(active_->qp, &attr, IBV_QP_CAP, &init), 0);
  EXPECT_EQ(post(std::vector<ibv_sge>(attr.cap.max_send_sge + 1, part(0, 1))), -1);
  EXPECT_TRUE(errno == ENOMEM || errno == EINVAL)
      << strerror(errno) << ": mlx5 says the former, rxe the latter";
}

TEST_F(RdmaPostWritev, OneBufferThatIsNotRegisteredIsAProtectionError) {
  uint8_t elsewhere[8] = {};
  const ibv_sge none = {.addr = reinterpret_cast<uintptr_t>(elsewhere), .length = 8, .lkey = 0};
  ASSERT_EQ(post({part(0, 8), none}), 0);
  EXPECT_EQ(sent(active_).status, IBV_WC_LOC_PROT_ERR);
}

TEST_F(RdmaPostWritev, InlineNeedsNoKeys) {
  char first[] = {'n', 'o', ' '}, second[] = "keys";
  const ibv_sge one = {.addr = reinterpret_cast<uintptr_t>(first), .length = 3, .lkey = 0};
  const ibv_sge two = {.addr = reinterpret_cast<uintptr_t>(second), .length = 5, .lkey = 0};
  ASSERT_EQ(post({one, two}, IBV_SEND_INLINE), 0);
  ASSERT_EQ(sent(active_).status, IBV_WC_SUCCESS);
  EXPECT_STREQ(reinterpret_cast<char*>(writable_.data()), "no keys");
}

}  // namespace
}  // namespace verbena::pages
