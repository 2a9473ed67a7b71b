// SPDX-License-Identifier: BSD-2-Clause
//
// Completion queues: what polling gives.
#include <arpa/inet.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <set>
#include <thread>

#include "suite/family.h"
#include "support/pair.h"

namespace conformance::cq_poll_chapter {
namespace {

// The test owns the near end's CQs, one for each queue; the far end gets requests.
class Fixture : public PairTest {
 protected:
  static PairSpec separate() {
    PairSpec spec;
    spec.both.separate_cqs = true;
    spec.both.signal_all = true;
    return spec;
  }
  End& own() {
    pair(separate());
    return pair().native().end;
  }
  Endpoint& other() { return pair(separate()).far; }

  // A SEND of this length with this wr_id on either side, completed at the far end, which sends.
  Completion be_sent(uint64_t id, uint32_t length = 8, unsigned flags = 0) {
    EXPECT_TRUE(succeeded(own().post_receive(0, 256, id)));
    SendRequest request = send_request({{0, length}}, id);
    request.flags |= flags;
    EXPECT_EQ(other().post(request), 0);
    return other().completion();
  }
  // `count` messages, all of whose completions are at this end. The sender's completion says that a message
  // has arrived; this end's is another CQ's, and may be there a moment later. So the last one is solicited.
  void be_sent_many(uint64_t count) {
    PairSpec spec = separate();
    spec.both.channel = is_working("family.events");
    try {
      pair(spec);
    } catch (const NotClaimed&) {  // of a CQ with a channel: the events are not what is tested here
      if (!spec.both.channel) throw;
      spec.both.channel = false;
      pair(spec);
    }
    const bool tells = spec.both.channel && near().arm(true, true) == 0;
    for (uint64_t id = 0; id < count; ++id) be_sent(id, 8, id + 1 == count ? IBV_SEND_SOLICITED : 0);
    // A device need not arm a CQ for solicited messages alone.
    if (!tells || !near().cq_event(std::chrono::seconds(1)).there)
      std::this_thread::sleep_for(scaled(std::chrono::milliseconds(20)));
  }

  // What ibv_poll_cq returns when it finds something: a device may show a little later what is there. 0:
  // nothing for a second.
  int polled(int most, ibv_wc* wc) {
    const auto end = std::chrono::steady_clock::now() + scaled(std::chrono::seconds(1));
    int count = 0;
    while ((count = CALL(ibv_poll_cq(own().receives(), most, wc))) == 0 &&
           std::chrono::steady_clock::now() < end)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return count;
  }
};

CONFORMANCE_TEST(cq, EmptyGivesZero, "ibv_poll_cq.empty") {
  const Cq cq = make_cq(device());
  ibv_wc wc;
  EXPECT_EQ(CALL(ibv_poll_cq(cq, 1, &wc)), 0);
}

CONFORMANCE_TEST(cq, CountsAndRemoves, "ibv_poll_cq.count", "ibv_poll_cq.removes", "ibv_poll_cq.order") {
  be_sent_many(5);
  ibv_wc wc[8] = {};
  ABOUT("ibv_poll_cq.count") ASSERT_EQ(polled(2, wc), 2);
  uint64_t ids[5] = {wc[0].wr_id, wc[1].wr_id};
  ABOUT("ibv_poll_cq.removes") ASSERT_EQ(polled(8, wc), 3);
  for (size_t i = 0; i < 3; ++i) ids[2 + i] = wc[i].wr_id;
  ABOUT("ibv_poll_cq.removes") ASSERT_EQ(std::set(std::begin(ids), std::end(ids)).size(), 5u);
  ABOUT("ibv_poll_cq.order") for (uint64_t i = 0; i < 5; ++i) EXPECT_EQ(ids[i], i);
  ABOUT("ibv_poll_cq.removes") EXPECT_EQ(CALL(ibv_poll_cq(own().receives(), 8, wc)), 0);
}

CONFORMANCE_TEST(cq, FieldsOfASend, "ibv_poll_cq.wr-id", "ibv_poll_cq.status", "ibv_poll_cq.opcode-send",
                 "ibv_poll_cq.byte-len", "ibv_poll_cq.qp-num", "ibv_poll_cq.no-imm",
                 "ibv_poll_cq.grh-only-ud") {
  constexpr uint64_t id = 0xfedcba9876543210;
  const Completion there = be_sent(id, 123);
  ABOUT("ibv_poll_cq.wr-id") EXPECT_EQ(there.id, id);
  ABOUT("ibv_poll_cq.qp-num") EXPECT_EQ(there.qpn, other().facts().qpn);
  const ibv_wc received = completion(own().receives());
  ASSERT_EQ(other().receive(0, 256), 0);
  ibv_sge element = own().sge(0, 8);
  ibv_send_wr wr = own().request(IBV_WR_SEND, &element, id);
  ASSERT_TRUE(succeeded(own().post(wr)));
  const ibv_wc sent = completion(own().cq);
  for (const ibv_wc& wc : {sent, received}) {
    ABOUT("ibv_poll_cq.wr-id") EXPECT_EQ(wc.wr_id, id);
    ABOUT("ibv_poll_cq.status") EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
    ABOUT("ibv_poll_cq.qp-num") EXPECT_EQ(wc.qp_num, own().qp->qp_num);
  }
  ABOUT("ibv_poll_cq.opcode-send") {
    EXPECT_EQ(sent.opcode, IBV_WC_SEND);
    EXPECT_EQ(received.opcode, IBV_WC_RECV);
  }
  ABOUT("ibv_poll_cq.byte-len") EXPECT_EQ(received.byte_len, 123u);
  ABOUT("ibv_poll_cq.no-imm") EXPECT_EQ(received.wc_flags & (IBV_WC_WITH_IMM | IBV_WC_WITH_INV), 0u);
  observe("ibv_poll_cq.grh-only-ud", (received.wc_flags & IBV_WC_GRH) != 0 ? "said" : "not said");
}

CONFORMANCE_TEST(cq, ImmediateDataArrive, "ibv_poll_cq.with-imm") {
  ASSERT_TRUE(succeeded(own().post_receive(0, 64)));
  SendRequest request = send_request({{0, 8}}, 1, IBV_WR_SEND_WITH_IMM);
  request.imm = 0x01020304;
  ASSERT_EQ(other().post(request), 0);
  const ibv_wc received = completion(own().receives());
  EXPECT_NE(received.wc_flags & IBV_WC_WITH_IMM, 0u);
  EXPECT_EQ(received.imm_data, htonl(0x01020304));
}

CONFORMANCE_TEST(cq, FieldsOfAnError, "ibv_poll_cq.error-fields") {
  constexpr uint64_t id = 0xfedcba9876543210;
  ibv_sge element = own().sge(0, 8);
  ibv_send_wr wr = own().request(IBV_WR_RDMA_WRITE, &element, id);
  wr.wr.rdma = {other().address(-4096), other().facts().rkey};  // before the region
  ASSERT_TRUE(succeeded(own().post(wr)));
  const ibv_wc failed = completion(own().cq);
  EXPECT_EQ(failed.wr_id, id);
  EXPECT_EQ(failed.status, IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(failed.qp_num, own().qp->qp_num);
}

CONFORMANCE_TEST(cq, OneQueueServesSeveralQps, "ibv_poll_cq.shared") {
  const Pd pd = make_pd(device());
  const Cq cq = make_cq(device());
  const Buffer buffer(256);
  const Mr mr = make_mr(pd, buffer);
  Qp qps[3];
  for (Qp& qp : qps) {
    qp = make_qp(pd, cq);
    bring_to(qp, IBV_QPS_RTS, attributes_for(device(), {.destination = qp->qp_num}));  // to itself
  }
  for (const Qp& qp : qps) {
    ibv_sge element{buffer.address(), 64, mr->lkey};
    ibv_recv_wr receive = {qp->qp_num, nullptr, &element, 1};
    ibv_recv_wr* bad_receive;
    ASSERT_EQ(CALL(ibv_post_recv(qp, &receive, &bad_receive)), 0);
    ibv_send_wr send = {};
    send.wr_id = qp->qp_num;
    send.sg_list = &element;
    send.num_sge = 1;
    send.opcode = IBV_WR_SEND;
    send.send_flags = IBV_SEND_SIGNALED;
    ibv_send_wr* bad_send;
    ASSERT_EQ(CALL(ibv_post_send(qp, &send, &bad_send)), 0);
  }
  for (const ibv_wc& wc : completions(cq, 6)) {
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
    EXPECT_EQ(wc.wr_id, wc.qp_num);
  }
}

CONFORMANCE_TEST(cq, TakesAsManyAsItSays, "ibv_create_cq.holds-all") {
  PairSpec spec = separate();
  spec.both.cq_entries = 16;
  const int capacity = make_cq(device(), spec.both.cq_entries)->cqe;  // the capacity that 16 entries become
  if (capacity < 1)
    throw NotTested{"cqe is " + std::to_string(capacity) + ", of which ibv_create_cq.at-least tells"};
  if (capacity > std::min(4096, device().attributes().max_qp_wr))
    throw NotTested{"more entries than can be filled"};
  spec.both.receive_depth = static_cast<uint32_t>(capacity);
  spec.far = wire::MakeEnd();
  pair(spec);
  ASSERT_EQ(own().receives()->cqe, capacity);
  for (int i = 0; i < capacity; ++i) {
    ASSERT_TRUE(succeeded(own().post_receive(0, 64, static_cast<uint64_t>(i)))) << "receive " << i;
    ASSERT_EQ(other().post(send_request({{0, 8}})), 0);
    ASSERT_EQ(other().completion().status, IBV_WC_SUCCESS) << "send " << i;
  }
  const auto all = completions(own().receives(), static_cast<size_t>(capacity));
  EXPECT_EQ(all.back().wr_id, static_cast<uint64_t>(capacity) - 1);
}

}  // namespace
}  // namespace conformance::cq_poll_chapter
