// SPDX-License-Identifier: BSD-2-Clause
//
// ibv_post_recv(3), sentence by sentence.
//
// clang-format off
// | the page says | case |
// | --- | --- |
// | posts the linked list of work requests starting with wr | PostsTheLinkedListOfWorkRequests |
// | to the receive queue of the queue pair qp | PostsToTheReceiveQueueOfThatQueuePairOnly |
// | stops processing WRs from this list at the first failure | StopsAtTheFirstFailure |
// | returns this failing WR through bad_wr | clause ibv_post_recv.bad-wr-first |
// | wr_id: user defined WR ID | clause ibv_poll_cq.wr-id |
// | next: NULL if last WR | NextIsNullInTheLastRequest |
// | sg_list: pointer to the s/g array; num_sge: its size | clause ibv_post_recv.scatter, clause ibv_post_recv.zero-sges |
// | addr: start address; length: length of the buffer | clause ibv_post_recv.scatter, ABufferTooSmallIsALengthError |
// | lkey: key of the local memory region | AKeyThatIsNoneIsAProtectionError, ARegionWithoutLocalWriteIsAProtectionError, ABufferOutsideItsRegionIsAProtectionError |
// | returns 0 on success | everywhere |
// | or the value of errno on failure | AFullQueueIsEnomem, TooManyEntriesAreEinval, BeforeInitItIsEinval |
// | buffers can only be safely reused after a work completion has been retrieved | ABufferMayBeReusedAfterItsCompletion |
// | with an SRQ you must use ibv_post_srq_recv() | AQueuePairWithASharedReceiveQueueHasNoneOfItsOwn |
// | UD: the GRH is placed in the first 40 bytes | TheGrhIsInTheFirstFortyBytes |
// | no GRH present: the first bytes are undefined | not testable here: on RoCE every datagram has one |
// | in all cases the data start at an offset of 40 bytes | clause ud.grh.offset, TheFortyBytesMayBeAnEntryOfTheirOwn |
// clang-format on
#include "provider/verbs/datagrams.h"
#include "provider/verbs/pair.h"

namespace verbena::test {
namespace {

class IbvPostRecv : public PairTest {
 protected:
  ibv_wc send(size_t length) { return carry_out(IBV_WR_SEND, local_.sge(0, length)); }
  ibv_wc received() { return next_completion(responder_cq_.get()); }

  // `count` requests of one entry of 64 bytes each, linked; wr_id counts from 1.
  struct List {
    ibv_sge sge[4];
    ibv_recv_wr wr[4];
  };
  List list(int count) const {
    List made = {};
    for (int i = 0; i < count; i++) made.sge[i] = remote_.sge(static_cast<size_t>(i) * 64, 64);
    return made;
  }
  static ibv_recv_wr* link(List& made, int count) {
    for (int i = 0; i < count; i++)
      made.wr[i] = {.wr_id = static_cast<uint64_t>(i + 1),
                    .next = i + 1 < count ? &made.wr[i + 1] : nullptr,
                    .sg_list = &made.sge[i],
                    .num_sge = 1};
    return &made.wr[0];
  }
  int post_list(ibv_recv_wr* wr, ibv_recv_wr** bad) { return ibv_post_recv(responder_.get(), wr, bad); }
};

TEST_F(IbvPostRecv, PostsTheLinkedListOfWorkRequests) {
  List made = list(3);
  ibv_recv_wr* bad = nullptr;
  ASSERT_EQ(post_list(link(made, 3), &bad), 0);
  for (uint64_t id = 1; id <= 3; id++) {
    ASSERT_EQ(send(8).status, IBV_WC_SUCCESS);
    EXPECT_EQ(received().wr_id, id) << "in the order of the list";
  }
}

TEST_F(IbvPostRecv, PostsToTheReceiveQueueOfThatQueuePairOnly) {
  Connection impatient;
  impatient.rnr_retry = 0;
  make_pair(impatient);
  ibv_sge sge = remote_.sge(0, 64);
  ASSERT_EQ(receive_on(requester_.get(), &sge, 1, 5), 0);
  EXPECT_EQ(send(8).status, IBV_WC_RNR_RETRY_EXC_ERR) << "the responder has no receive";
}

TEST_F(IbvPostRecv, StopsAtTheFirstFailure) {
  List made = list(3);
  ibv_recv_wr* first = link(made, 3);
  made.wr[1].num_sge = device_.max_sge + 1;
  ibv_recv_wr* bad = nullptr;
  ASSERT_EQ(post_list(first, &bad), EINVAL);
  ASSERT_EQ(receive(remote_.sge(0, 64), 77), 0);
  ASSERT_EQ(send(8).status, IBV_WC_SUCCESS);
  EXPECT_EQ(received().wr_id, 1u) << "the one before the failure is posted";
  ASSERT_EQ(send(8).status, IBV_WC_SUCCESS);
  EXPECT_EQ(received().wr_id, 77u) << "the one after the failure is not";
}

TEST_F(IbvPostRecv, NextIsNullInTheLastRequest) {
  Connection impatient;
  impatient.rnr_retry = 0;
  make_pair(impatient);
  List made = list(2);
  ibv_recv_wr* first = link(made, 2);
  first->next = nullptr;
  ibv_recv_wr* bad = nullptr;
  ASSERT_EQ(post_list(first, &bad), 0);
  ASSERT_EQ(send(8).status, IBV_WC_SUCCESS);
  EXPECT_EQ(send(8).status, IBV_WC_RNR_RETRY_EXC_ERR) << "what follows in memory is not in the list";
}

TEST_F(IbvPostRecv, ABufferTooSmallIsALengthError) {
  ASSERT_EQ(receive(remote_.sge(0, 31)), 0);
  EXPECT_EQ(send(32).status, IBV_WC_REM_INV_REQ_ERR);
  EXPECT_EQ(received().status, IBV_WC_LOC_LEN_ERR);
}

TEST_F(IbvPostRecv, AKeyThatIsNoneIsAProtectionError) {
  ibv_sge sge = remote_.sge(0, 64);
  sge.lkey ^= 0xffffff00;
  ASSERT_EQ(receive(sge), 0);
  EXPECT_EQ(send(32).status, IBV_WC_REM_OP_ERR);
  EXPECT_EQ(received().status, IBV_WC_LOC_PROT_ERR);
}

TEST_F(IbvPostRecv, ARegionWithoutLocalWriteIsAProtectionError) {
  Buffer read_only(pd_.get(), 64, 0);
  ASSERT_EQ(receive(read_only.sge(0, 64)), 0);
  EXPECT_EQ(send(32).status, IBV_WC_REM_OP_ERR);
  EXPECT_EQ(received().status, IBV_WC_LOC_PROT_ERR);
}

TEST_F(IbvPostRecv, ABufferOutsideItsRegionIsAProtectionError) {
  ASSERT_EQ(receive(remote_.sge(kBufferSize - 16, 32)), 0);
  EXPECT_EQ(send(32).status, IBV_WC_REM_OP_ERR);
  EXPECT_EQ(received().status, IBV_WC_LOC_PROT_ERR);
}

TEST_F(IbvPostRecv, AFullQueueIsEnomem) {
  ibv_qp_attr attr = {};
  ibv_qp_init_attr init = {};
  ASSERT_EQ(ibv_query_qp(responder_.get(), &attr, IBV_QP_CAP, &init), 0);
  for (uint32_t i = 0; i < attr.cap.max_recv_wr; i++) ASSERT_EQ(receive(remote_.sge(0, 64)), 0) << i;
  EXPECT_EQ(receive(remote_.sge(0, 64)), ENOMEM);
}

TEST_F(IbvPostRecv, TooManyEntriesAreEinval) {
  std::vector<ibv_sge> many(static_cast<size_t>(device_.max_sge) + 1, remote_.sge(0, 1));
  EXPECT_EQ(receive(many.data(), static_cast<int>(many.size())), EINVAL);
}

TEST_F(IbvPostRecv, BeforeInitItIsEinval) {
  responder_ = make_qp();
  EXPECT_EQ(receive(remote_.sge(0, 64)), EINVAL);
}

TEST_F(IbvPostRecv, ABufferMayBeReusedAfterItsCompletion) {
  for (uint8_t round = 1; round < 20; round++) {
    local_.fill(round);
    ASSERT_EQ(receive(remote_.sge(0, 64)), 0);
    ASSERT_EQ(send(64).status, IBV_WC_SUCCESS);
    ASSERT_EQ(received().status, IBV_WC_SUCCESS);
    ASSERT_TRUE(same_bytes(64)) << "round " << int{round};
    memset(remote_.data(), 0, 64);  // nobody writes there any more
  }
}

TEST_F(IbvPostRecv, AQueuePairWithASharedReceiveQueueHasNoneOfItsOwn) {
  ibv_srq_init_attr srq_attr = {};
  srq_attr.attr = {.max_wr = 4, .max_sge = 1, .srq_limit = 0};
  Srq srq(ibv_create_srq(pd_.get(), &srq_attr));
  ibv_qp_init_attr init = qp_init(cq_.get(), cq_.get());
  init.srq = srq.get();
  Qp qp(ibv_create_qp(pd_.get(), &init));
  ASSERT_EQ(to_init(qp.get()), 0);
  ibv_sge sge = remote_.sge(0, 64);
  // ENOMEM, as mlx5: a queue of no room is full.
  EXPECT_EQ(receive_on(qp.get(), &sge, 1, 1), ENOMEM);
}

class IbvPostRecvDatagram : public DatagramTest {};

TEST_F(IbvPostRecvDatagram, TheGrhIsInTheFirstFortyBytes) {
  const ibv_wc wc = exchange(ah_.get(), receiver_->qp_num);
  ASSERT_EQ(wc.status, IBV_WC_SUCCESS);
  ASSERT_NE(wc.wc_flags & IBV_WC_GRH, 0u);
  EXPECT_EQ(memcmp(&grh()->sgid, &gid_, sizeof(gid_)), 0);
  EXPECT_EQ(memcmp(&grh()->dgid, &gid_, sizeof(gid_)), 0);
}

TEST_F(IbvPostRecvDatagram, TheFortyBytesMayBeAnEntryOfTheirOwn) {
  ibv_sge list[2] = {in_.sge(4000, 40), in_.sge(0, 64)};
  ibv_recv_wr wr = {.wr_id = 1, .next = nullptr, .sg_list = list, .num_sge = 2};
  ibv_recv_wr* bad = nullptr;
  ASSERT_EQ(ibv_post_recv(receiver_.get(), &wr, &bad), 0);
  ASSERT_EQ(send(ah_.get(), receiver_->qp_num, 32), 0);
  ASSERT_EQ(next_status(receiver_cq_.get()), IBV_WC_SUCCESS);
  EXPECT_EQ(memcmp(in_.data(), out_.data(), 32), 0);
}

}  // namespace
}  // namespace verbena::test
