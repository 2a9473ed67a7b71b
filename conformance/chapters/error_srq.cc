// SPDX-License-Identifier: BSD-2-Clause
//
// Errors of one QP of a shared receive queue: what it means for the QP, for the SRQ and for its other QPs.
#include <infiniband/verbs.h>

#include <algorithm>
#include <vector>

#include "support/pair.h"

namespace conformance::error_srq_chapter {
namespace {

// Two QPs of the test's own share an SRQ; each has an end that sends to it.
class Fixture : public PairTest {
 protected:
  void prepare() {
    pd_ = make_pd(device());
    srq_ = make_srq(device(), pd_);
    cq_ = make_cq(device(), 64);
    mr_ = make_mr(pd_, buffer_);
    QpSpec spec;
    spec.srq = srq_;
    for (Qp& receiver : receivers_) {
      receiver = make_qp(pd_, cq_, spec);
      senders_.emplace_back(topology().far(), wire::MakeEnd());
      connect(device(), receiver, senders_.back());
    }
    const Mr gone = make_mr(pd_, buffer_);
    stale_lkey_ = gone->lkey;
  }
  void receive(uint64_t id, uint32_t length, uint32_t lkey) {
    ibv_sge element = {buffer_.address(1024 * id), length, lkey};
    ibv_recv_wr wr = {id, nullptr, &element, 1};
    ibv_recv_wr* bad = nullptr;
    if (CALL(ibv_post_srq_recv(srq_, &wr, &bad)) != 0)
      throw NotTested{"the receive is refused when it is posted"};
  }
  Completion send(size_t from) {
    if (senders_[from].post(send_request({{2048, 128}})) != 0)
      throw Deviation{"ibv_post_send; expected: 0", Where::current()};
    return senders_[from].completion();
  }
  // The next completion of another QP than the first.
  ibv_wc completion_of_others() {
    ibv_wc wc = completion(cq_);
    while (wc.qp_num == receivers_[0]->qp_num) wc = completion(cq_);
    return wc;
  }
  // The first message meets a receive that it cannot take.
  void expect_error(ibv_wc_status sender, const std::vector<ibv_wc_status>& receiver) {
    const Completion sent = send(0);
    EXPECT_EQ(sent.status, sender) << completion_text(sent);
    const ibv_wc wc = completion(cq_);
    EXPECT_EQ(wc.wr_id, 1u);
    EXPECT_NE(std::find(receiver.begin(), receiver.end(), wc.status), receiver.end()) << wc_text(wc);
    EXPECT_EQ(wc.qp_num, receivers_[0]->qp_num);
    const auto deadline = std::chrono::steady_clock::now() + scaled(std::chrono::seconds(3));
    while (state_of(receivers_[0]) != IBV_QPS_ERR && std::chrono::steady_clock::now() < deadline) give_way();
    EXPECT_EQ(state_of(receivers_[0]), IBV_QPS_ERR);
    EXPECT_TRUE(buffer_.is(Buffer::untouched, 1024 + 16, buffer_.size()));
  }

  const Buffer buffer_{16384};
  Pd pd_;
  Srq srq_;
  Cq cq_;
  Mr mr_;
  Qp receivers_[2];
  std::vector<Endpoint> senders_;
  uint32_t stale_lkey_ = 0;
};

CONFORMANCE_TEST(error, ReceiveOfAnSrqWithAWrongKey, "error.srq.receive-lkey") {
  prepare();
  receive(1, 256, stale_lkey_);
  expect_error(IBV_WC_REM_OP_ERR, {IBV_WC_LOC_PROT_ERR, IBV_WC_LOC_QP_OP_ERR});
}

CONFORMANCE_TEST(error, ReceiveOfAnSrqTooShort, "error.srq.too-long") {
  prepare();
  receive(1, 16, mr_->lkey);
  expect_error(IBV_WC_REM_INV_REQ_ERR, {IBV_WC_LOC_LEN_ERR, IBV_WC_REM_INV_REQ_ERR, IBV_WC_LOC_QP_OP_ERR});
}

CONFORMANCE_TEST(error, OthersOfTheSrqGoOn, "error.srq.others") {
  for (const bool is_too_short : {false, true}) {
    for (Qp& receiver : receivers_) receiver = Qp();
    senders_.clear();
    // One by one, the PD last: each old object goes at the end of its statement.
    srq_ = Srq();
    cq_ = Cq();
    mr_ = Mr();
    pd_ = Pd();
    prepare();
    receive(1, is_too_short ? 16 : 256, is_too_short ? mr_->lkey : stale_lkey_);
    receive(2, 256, mr_->lkey);
    receive(3, 256, mr_->lkey);
    if (send(0).status == IBV_WC_SUCCESS) throw NotTested{"the message is received with success"};
    // Whether the receive completes in error is asked by the two tests above.
    std::vector<uint64_t> left = {2, 3};  // in which order they are taken is no matter of this clause
    for (int i = 0; i < 2; ++i) {
      const Completion sent = send(1);
      EXPECT_EQ(sent.status, IBV_WC_SUCCESS) << completion_text(sent);
      const ibv_wc wc = completion_of_others();
      EXPECT_EQ(wc.status, IBV_WC_SUCCESS) << wc_text(wc);
      EXPECT_EQ(std::erase(left, wc.wr_id), 1u) << wc_text(wc);
      EXPECT_EQ(wc.qp_num, receivers_[1]->qp_num);
    }
    EXPECT_EQ(state_of(receivers_[1]), IBV_QPS_RTS);
  }
}

}  // namespace
}  // namespace conformance::error_srq_chapter
