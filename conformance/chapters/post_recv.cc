// SPDX-License-Identifier: BSD-2-Clause
//
// Posting receive requests.
#include <vector>

#include "chapters/post_fixture.h"
#include "support/pair.h"

namespace conformance::post_recv_chapter {
namespace {

// The near end receives.
class Fixture : public PairTest {
 protected:
  const End& receiver() { return pair().native().end; }
  Endpoint& sender() { return far(); }

  ibv_wc_status send(uint32_t length) {
    if (sender().post(send_request({{0, length}})) != 0)
      throw Deviation{"ibv_post_send; expected: 0", Where::current()};
    return sender().completion().status;
  }
  const wire::EndFacts& made() { return near().facts(); }  // what ibv_create_qp told
};

CONFORMANCE_TEST(post, ReceiveListStopsAtTheFirstRefused, "ibv_post_recv.bad-wr-first",
                 "ibv_post_recv.stops-at-first", "ibv_post_recv.too-many-sges") {
  std::vector<ibv_sge> elements(made().receive_sges + 1, receiver().sge(0, 64));
  ibv_recv_wr list[4];
  for (uint64_t i = 0; i < 4; ++i) list[i] = {i, i < 3 ? &list[i + 1] : nullptr, elements.data(), 1};
  list[2].num_sge = static_cast<int>(elements.size());
  ibv_recv_wr* bad = nullptr;
  const int error = CALL(ibv_post_recv(receiver().qp, list, &bad));
  if (error == 0) {
    for (const ClauseId clause :
         {ClauseId("ibv_post_recv.bad-wr-first"), ClauseId("ibv_post_recv.stops-at-first"),
          ClauseId("ibv_post_recv.too-many-sges")})
      ABOUT(clause) not_tested("one element more is taken");
    return;
  }
  ABOUT("ibv_post_recv.too-many-sges") EXPECT_TRUE(refused(error));
  ABOUT("ibv_post_recv.bad-wr-first") EXPECT_EQ(bad, &list[2]);
  const About about("ibv_post_recv.stops-at-first");
  ASSERT_TRUE(succeeded(receiver().post_receive(0, 64, 77)));
  for (const uint64_t id : {0, 1, 77}) {
    EXPECT_EQ(send(8), IBV_WC_SUCCESS);
    EXPECT_EQ(completion(receiver().cq).wr_id, id);
  }
}

CONFORMANCE_TEST(post, ReceivesAreUsedInOrder, "ibv_post_recv.order") {
  for (uint64_t id = 0; id < 4; ++id) ASSERT_TRUE(succeeded(receiver().post_receive(id * 100, 100, id)));
  for (uint64_t id = 0; id < 4; ++id) {
    sender().fill(0, 1, static_cast<uint8_t>(id + 1));
    EXPECT_EQ(send(1), IBV_WC_SUCCESS);
    EXPECT_EQ(completion(receiver().cq).wr_id, id);
    EXPECT_EQ(receiver().buffer[id * 100], id + 1);
  }
}

// A queue may be counted in elements: short requests then fit beyond max_recv_wr. This test tells of the
// errno value; a state may be refused with any but 0.
CONFORMANCE_TEST(post, FullReceiveQueueRefuses, "ibv_post_recv.queue-full") {
  ibv_sge element = receiver().sge(0, 64);
  const uint32_t depth = made().receive_depth, most = 16 * depth + 1024;
  for (uint32_t i = 0; i <= most; ++i) {
    ibv_recv_wr wr = {i, nullptr, &element, 1};
    ibv_recv_wr* bad = nullptr;
    const int result = ibv_post_recv(receiver().qp, &wr, &bad);
    if (result == 0) continue;
    EXPECT_GE(i, depth) << "request " << i << " of " << depth << " is refused";
    EXPECT_TRUE(refused(result));
    EXPECT_EQ(bad, &wr);
    return;
  }
  ADD_FAILURE() << most << " requests were taken; max_recv_wr is " << depth;
}

CONFORMANCE_TEST(post, MessageIsScattered, "ibv_post_recv.scatter") {
  PairSpec spec;
  spec.both.receive_sges = 3;
  if (device().attributes().max_sge < 3) throw NotClaimed{"max_sge is below 3"};
  pair(spec);
  for (size_t i = 0; i < 30; ++i) sender().fill(i, 1, static_cast<uint8_t>(i));
  ibv_sge elements[] = {receiver().sge(1000, 7), receiver().sge(0, 1), receiver().sge(500, 100)};
  ibv_recv_wr wr = {1, nullptr, elements, 3};
  ibv_recv_wr* bad;
  ASSERT_EQ(CALL(ibv_post_recv(receiver().qp, &wr, &bad)), 0);
  EXPECT_EQ(send(30), IBV_WC_SUCCESS);
  EXPECT_EQ(completion(receiver().cq).byte_len, 30u);
  for (size_t i = 0; i < 7; ++i) EXPECT_EQ(receiver().buffer[1000 + i], i);
  EXPECT_EQ(receiver().buffer[1007], Buffer::untouched);
  EXPECT_EQ(receiver().buffer[0], 7);
  EXPECT_EQ(receiver().buffer[1], Buffer::untouched);
  for (size_t i = 0; i < 22; ++i) EXPECT_EQ(receiver().buffer[500 + i], i + 8);
  EXPECT_EQ(receiver().buffer[522], Buffer::untouched);
}

CONFORMANCE_TEST(post, DatagramBeginsAfterFortyBytes, "ibv_post_recv.ud-grh-offset") {
  PairSpec spec;
  spec.both.type = IBV_QPT_UD;
  pair(spec);
  ASSERT_TRUE(succeeded(receiver().post_receive(0, 256)));
  sender().fill(0, 1, 0x77);
  EXPECT_EQ(send(8), IBV_WC_SUCCESS);
  const ibv_wc wc = completion(receiver().cq);
  EXPECT_EQ(wc.byte_len, 48u);
  EXPECT_EQ(receiver().buffer[40], 0x77);
  EXPECT_EQ(receiver().buffer[48], Buffer::untouched);
}

class ReceiveInState : public PostInState {
 protected:
  int post() {
    ibv_sge element{buffer_.address(), 64, mr_->lkey};
    ibv_recv_wr wr = {5, nullptr, &element, 1};
    ibv_recv_wr* bad;
    return CALL(ibv_post_recv(qp_, &wr, &bad));
  }
};

namespace states {
using Fixture = ReceiveInState;

CONFORMANCE_TEST(post, ReceiveInReset, "ibv_post_recv.state-reset") {
  qp_in(IBV_QPS_RESET);
  EXPECT_NE(post(), 0);
}

CONFORMANCE_TEST(post, ReceiveFromInitOn, "ibv_post_recv.state-init") {
  qp_in(IBV_QPS_INIT);
  ASSERT_TRUE(succeeded(post()));
  EXPECT_TRUE(stays_empty(cq_));
  if (context()->device->transport_type == IBV_TRANSPORT_IWARP)
    throw NotTested{"iWARP: a QP gets its connection from the connection manager"};
  ibv_qp_state from = IBV_QPS_INIT;
  for (const ibv_qp_state to : {IBV_QPS_RTR, IBV_QPS_RTS}) {
    ibv_qp_attr attr = values();
    attr.qp_state = to;
    ASSERT_TRUE(succeeded(modify(qp_, attr, IBV_QP_STATE | transition_of(IBV_QPT_RC, from, to)->required)));
    from = to;
  }
  ibv_send_wr wr = {};
  wr.opcode = IBV_WR_SEND;
  ibv_send_wr* bad;
  ASSERT_EQ(CALL(ibv_post_send(qp_, &wr, &bad)), 0);
  EXPECT_EQ(completion(cq_).wr_id, 5u);
}

CONFORMANCE_TEST(post, ReceiveInError, "ibv_post_recv.state-err") {
  qp_in(IBV_QPS_ERR);
  if (post() != 0) return;
  const ibv_wc wc = completion(cq_);
  EXPECT_EQ(wc.status, IBV_WC_WR_FLUSH_ERR) << wc_text(wc);
  EXPECT_EQ(wc.wr_id, 5u);
}

}  // namespace states

}  // namespace
}  // namespace conformance::post_recv_chapter
