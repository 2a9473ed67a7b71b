// SPDX-License-Identifier: BSD-2-Clause
//
// rdma_post_readv(3), sentence by sentence.
//
// clang-format off
// | the page says | case |
// | --- | --- |
// | posts a work request to the send queue | TheBuffersAreOneRequest |
// | the contents of the remote memory region will be read into the local data buffers | clause rdma_post_readv.reads |
// | returns 0 on success | everywhere |
// | or -1 on error; errno will be set | TooManyEntriesAreMinusOneAndAnErrno |
// | for flags, see ibv_post_send | rdma_post_read, which calls this function |
// | the remote buffer must have been registered | rdma_post_read |
// | the local buffers must have been registered | OneBufferThatIsNotRegisteredIsAProtectionError |
// | and must remain so until the read completes | not testable: what comes of it otherwise is open |
// | may not be posted until it has been connected | rdma_post_read |
// | the context will be returned through wr_id | clause rdma_post_readv.context, ibv_poll_cq.wr-id |
// clang-format on
#include "remote_memory_test.h"

namespace verbena::pages {
namespace {

class RdmaPostReadv : public RemoteMemoryTest {
 protected:
  int post(std::vector<ibv_sge> list, uint64_t id = 1) {
    errno = 0;
    return rdma_post_readv(active_.get(), context_of(id), list.data(), static_cast<int>(list.size()), 0,
                           readable_.address(), readable_.mr()->rkey);
  }
  ibv_sge part(size_t offset, size_t length) { return active_memory_.sge(offset, length); }
};

TEST_F(RdmaPostReadv, TheBuffersAreOneRequest) {
  ASSERT_EQ(post({part(0, 10), part(100, 10)}), 0);
  ASSERT_EQ(sent(active_).status, IBV_WC_SUCCESS);
  ibv_wc wc;
  EXPECT_EQ(ibv_poll_cq(active_->send_cq, 1, &wc), 0) << "one completion for both";
}

TEST_F(RdmaPostReadv, TooManyEntriesAreMinusOneAndAnErrno) {
  ibv_qp_attr attr = {};
  ibv_qp_init_attr init = {};
  ASSERT_EQ(ibv_query_qp(active_->qp, &attr, IBV_QP_CAP, &init), 0);
  EXPECT_EQ(post(std::vector<ibv_sge>(attr.cap.max_send_sge + 1, part(0, 1))), -1);
  EXPECT_TRUE(errno == ENOMEM || errno == EINVAL)
      << strerror(errno) << ": mlx5 says the former, rxe the latter";
}

TEST_F(RdmaPostReadv, OneBufferThatIsNotRegisteredIsAProtectionError) {
  uint8_t elsewhere[8];
  const ibv_sge none = {.addr = reinterpret_cast<uintptr_t>(elsewhere), .length = 8, .lkey = 0};
  ASSERT_EQ(post({part(0, 8), none}), 0);
  EXPECT_EQ(sent(active_).status, IBV_WC_LOC_PROT_ERR);
}

}  // namespace
}  // namespace verbena::pages
