// SPDX-License-Identifier: BSD-2-Clause
//
// Posting send requests: lists, queues, flags, inline data, states.

#include <string>

#include "chapters/post_fixture.h"
#include "support/pair.h"

namespace conformance::post_send_chapter {
namespace {

class Fixture : public PairTest {
 protected:
  void make(uint32_t inline_data) {
    PairSpec spec;
    spec.both.inline_data = inline_data;
    pair(spec);
    if (made().inline_data < inline_data)
      throw NotClaimed{"max_inline_data is " + std::to_string(made().inline_data)};
  }
  const End& near() { return pair().native().end; }
  const wire::EndFacts& made() { return PairTest::near().facts(); }  // what ibv_create_qp told

  // With one element, addressed to the far end's buffer.
  ibv_send_wr remote(ibv_wr_opcode opcode, ibv_sge* element, uint64_t id = 1) {
    ibv_send_wr wr = near().request(opcode, element, id);
    wr.wr.rdma = {far().address(), far().facts().rkey};
    return wr;
  }
  ibv_send_wr write(ibv_sge* element, uint64_t id = 1) { return remote(IBV_WR_RDMA_WRITE, element, id); }
};

CONFORMANCE_TEST(post, UnknownOpcodeIsRefused, "ibv_post_send.unknown-opcode") {
  ibv_sge element = near().sge(0, 8);
  ibv_send_wr wr = near().request(static_cast<ibv_wr_opcode>(99), &element);
  if (near().post(wr) != 0) return;
  // Then it is found out when the request is carried out.
  EXPECT_NE(completion(near().cq).status, IBV_WC_SUCCESS);
}

CONFORMANCE_TEST(post, ListStopsAtTheFirstRefused, "ibv_post_send.zero", "ibv_post_send.bad-wr-first",
                 "ibv_post_send.stops-at-first", "ibv_post_send.list-order") {
  ibv_sge element = near().sge(0, 8);
  ibv_send_wr list[4] = {write(&element, 0), write(&element, 1), write(&element, 2), write(&element, 3)};
  for (int i = 0; i < 3; ++i) list[i].next = &list[i + 1];
  ibv_send_wr* bad = nullptr;
  {
    const About about("ibv_post_send.zero");
    EXPECT_EQ(CALL(ibv_post_send(near().qp, list, &bad)), 0);
  }
  uint64_t next = 0;
  ABOUT("ibv_post_send.list-order") {
    for (const ibv_wc& wc : completions(near().cq, 4)) EXPECT_EQ(wc.wr_id, next++);
  }
  std::vector<ibv_sge> too_many(made().send_sges + 1, near().sge(0, 1));
  list[2].sg_list = too_many.data();
  list[2].num_sge = static_cast<int>(too_many.size());
  const int error = CALL(ibv_post_send(near().qp, list, &bad));
  if (error == 0) {  // "ibv_post_send.too-many-sges" is told of it
    for (const ClauseId clause :
         {ClauseId("ibv_post_send.bad-wr-first"), ClauseId("ibv_post_send.stops-at-first")})
      ABOUT(clause) not_tested("one element more is taken");
    return;
  }
  ABOUT("ibv_post_send.bad-wr-first") EXPECT_EQ(bad, &list[2]);
  const About about("ibv_post_send.stops-at-first");
  EXPECT_EQ(completion(near().cq).wr_id, 0u);
  EXPECT_EQ(completion(near().cq).wr_id, 1u);
  EXPECT_TRUE(stays_empty(near().cq));
}

// The requests must still be outstanding when one more is posted: the far end has no receive for them, and
// the requester retries without limit.
// A queue may be counted in units of memory: short requests then fit beyond max_send_wr. Of the errno value
// this test tells, the others take any value but 0 for a refusal.
CONFORMANCE_TEST(post, FullQueueRefuses, "ibv_post_send.queue-full") {
  ibv_sge element = near().sge(0, 8);
  const uint32_t depth = made().send_depth, most = 16 * depth + 1024;
  for (uint32_t i = 0; i <= most; ++i) {
    ibv_send_wr wr = near().request(IBV_WR_SEND, &element, i);
    wr.send_flags = 0;
    ibv_send_wr* bad = nullptr;
    const int result = ibv_post_send(near().qp, &wr, &bad);
    if (result == 0) continue;
    EXPECT_GE(i, depth) << "request " << i << " of " << depth << " is refused";
    EXPECT_TRUE(refused(result));
    EXPECT_EQ(bad, &wr);
    return;
  }
  ADD_FAILURE() << most << " requests were taken, and none was received; max_send_wr is " << depth;
}

CONFORMANCE_TEST(post, PolledQueueHasRoomAgain, "ibv_post_send.after-poll") {
  ibv_sge element = near().sge(0, 8);
  const uint32_t depth = made().send_depth;
  for (uint32_t i = 0; i < depth; ++i) {
    ibv_send_wr wr = near().request(IBV_WR_SEND, &element, i);
    wr.send_flags = i + 1 == depth ? IBV_SEND_SIGNALED : 0;
    ASSERT_TRUE(succeeded(near().post(wr))) << "request " << i << " of " << depth;
  }
  // One completion for each, and no more than the far end's queue takes.
  for (uint32_t received = 0; received < depth; ++received) {
    ASSERT_EQ(far().receive(0, 64), 0);
    ASSERT_EQ(far().received().status, IBV_WC_SUCCESS) << "receive " << received;
  }
  EXPECT_EQ(completion(near().cq).wr_id, depth - 1);
  for (uint32_t i = 0; i < depth; ++i) {
    ibv_send_wr wr = write(&element, i);
    wr.send_flags = i + 1 == depth ? IBV_SEND_SIGNALED : 0;
    ASSERT_TRUE(succeeded(near().post(wr))) << "request " << i << " after the poll";
  }
  EXPECT_EQ(completion(near().cq).status, IBV_WC_SUCCESS);
}

// No page says that it can be detected immediately. A device may fail such a request, or carry it out.
CONFORMANCE_TEST(post, ElementsBeyondTheCapabilityAreRefused, "ibv_post_send.too-many-sges") {
  const uint32_t count = made().send_sges + 1;
  std::vector<ibv_sge> elements(count, near().sge(0, 1));
  ibv_send_wr wr = near().request(IBV_WR_SEND, elements.data());
  wr.num_sge = static_cast<int>(count);
  ASSERT_EQ(far().receive(0, static_cast<uint32_t>(far().facts().length)), 0);
  if (near().post(wr) != 0) return;
  if (completion(near().cq).status != IBV_WC_SUCCESS) return;
  EXPECT_EQ(far().received().bytes, count) << "one element more was taken, and not all of them were sent";
}

CONFORMANCE_TEST(post, NoElementsAreNoBytes, "ibv_post_send.zero-sges", "ibv_post_recv.zero-sges",
                 "ibv_post_recv.zero") {
  ibv_send_wr wr = near().request(IBV_WR_SEND, nullptr);
  ABOUT("ibv_post_recv.zero") ASSERT_EQ(far().receive(0, 0), 0);
  ABOUT("ibv_post_send.zero-sges") {
    ASSERT_TRUE(succeeded(near().post(wr)));
    EXPECT_EQ(completion(near().cq).status, IBV_WC_SUCCESS);
  }
  const About about("ibv_post_recv.zero-sges");
  const Completion received = far().received();
  ASSERT_EQ(received.status, IBV_WC_SUCCESS);
  ABOUT("ibv_post_send.zero-sges") EXPECT_EQ(received.bytes, 0u);
}

CONFORMANCE_TEST(post, SignaledGivesACompletion, "ibv_post_send.signaled") {
  ibv_sge element = near().sge(0, 8);
  ibv_send_wr silent = write(&element, 1), loud = write(&element, 2);
  silent.send_flags = 0;
  ASSERT_TRUE(succeeded(near().post(silent)));
  ASSERT_TRUE(succeeded(near().post(loud)));
  EXPECT_EQ(completion(near().cq).wr_id, 2u);
  EXPECT_TRUE(stays_empty(near().cq));
}

CONFORMANCE_TEST(post, FlagsAreTaken, "ibv_post_send.fence-rc", "ibv_post_send.solicited") {
  ibv_sge element = near().sge(0, 8);
  {
    const About about("ibv_post_send.fence-rc");
    ibv_send_wr read = remote(IBV_WR_RDMA_READ, &element);
    ASSERT_TRUE(succeeded(near().post(read)));
    ibv_send_wr fenced = write(&element);
    fenced.send_flags |= IBV_SEND_FENCE;
    ASSERT_TRUE(succeeded(near().post(fenced)));
    for (const ibv_wc& wc : completions(near().cq, 2)) EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  }
  const About about("ibv_post_send.solicited");
  for (const ibv_wr_opcode opcode : {IBV_WR_SEND, IBV_WR_RDMA_WRITE_WITH_IMM}) {
    ASSERT_EQ(far().receive(0, 64), 0);
    ibv_send_wr wr = remote(opcode, &element);
    wr.send_flags |= IBV_SEND_SOLICITED;
    ASSERT_TRUE(succeeded(near().post(wr)));
    EXPECT_EQ(completion(near().cq).status, IBV_WC_SUCCESS);
    EXPECT_EQ(far().received().status, IBV_WC_SUCCESS);
  }
}

CONFORMANCE_TEST(post, InlineSend, "ibv_post_send.inline-send", "ibv_post_send.inline-no-lkey",
                 "ibv_post_send.inline-reuse") {
  make(16);
  ASSERT_EQ(far().receive(0, 64), 0);
  uint8_t bytes[16] = {0x77};
  ibv_sge element{reinterpret_cast<uint64_t>(bytes), sizeof bytes, 0xdeadbeef};
  ibv_send_wr wr = near().request(IBV_WR_SEND, &element);
  wr.send_flags |= IBV_SEND_INLINE;
  ASSERT_TRUE(succeeded(near().post(wr)));
  bytes[0] = 0x11;  // at once
  ABOUT("ibv_post_send.inline-no-lkey") ASSERT_EQ(completion(near().cq).status, IBV_WC_SUCCESS);
  ABOUT("ibv_post_send.inline-send") EXPECT_EQ(far().received().bytes, sizeof bytes);
  ABOUT("ibv_post_send.inline-reuse") EXPECT_TRUE(far().has(0, 1, 0x77));
}

CONFORMANCE_TEST(post, InlineWrite, "ibv_post_send.inline-write") {
  make(16);
  uint8_t bytes[16] = {0x77};
  ibv_sge element{reinterpret_cast<uint64_t>(bytes), sizeof bytes, 0xdeadbeef};
  ibv_send_wr wr = write(&element);
  wr.send_flags |= IBV_SEND_INLINE;
  ASSERT_TRUE(succeeded(near().post(wr)));
  bytes[0] = 0x11;
  EXPECT_EQ(completion(near().cq).status, IBV_WC_SUCCESS);
  EXPECT_TRUE(far().has(0, 1, 0x77));
}

CONFORMANCE_TEST(post, InlineBeyondTheCapabilityIsRefused, "ibv_post_send.inline-too-long") {
  make(16);
  if (made().inline_data + 1 > near().buffer.size())
    throw NotTested{"more inline data than the test's buffer"};
  const uint32_t length = made().inline_data + 1;
  PairTest::near().fill(0, length, 0x77);
  ibv_sge element = near().sge(0, length);
  ibv_send_wr wr = write(&element);
  wr.send_flags |= IBV_SEND_INLINE;
  if (near().post(wr) != 0 || completion(near().cq).status != IBV_WC_SUCCESS) return;
  EXPECT_TRUE(far().has(0, length, 0x77));  // a device may have more room than it tells
}

CONFORMANCE_TEST(post, InlineReadMeansNothing, "ibv_post_send.inline-read") {
  make(16);
  far().fill(0, 1, 0x77);
  ibv_sge element = near().sge(0, 8);
  ibv_send_wr wr = remote(IBV_WR_RDMA_READ, &element);
  wr.send_flags |= IBV_SEND_INLINE;
  if (near().post(wr) != 0) return;
  if (completion(near().cq).status != IBV_WC_SUCCESS) return;
  EXPECT_EQ(near().buffer[0], 0x77) << "the read succeeded without its bytes";
}

class SendInState : public PostInState {
 protected:
  // Posts one request to a QP in `state`; returns the result of ibv_post_send.
  int post_in(ibv_qp_state state) {
    qp_in(state);
    ibv_sge element{buffer_.address(), 8, mr_->lkey};
    ibv_send_wr wr = {};
    wr.wr_id = 5;
    wr.sg_list = &element;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_SEND;
    wr.send_flags = IBV_SEND_SIGNALED;
    ibv_send_wr* bad;
    return CALL(ibv_post_send(qp_, &wr, &bad));
  }
};

namespace states {
using Fixture = SendInState;

CONFORMANCE_TEST(post, SendInReset, "ibv_post_send.state-reset") { EXPECT_NE(post_in(IBV_QPS_RESET), 0); }
CONFORMANCE_TEST(post, SendInInit, "ibv_post_send.state-init") { EXPECT_NE(post_in(IBV_QPS_INIT), 0); }
CONFORMANCE_TEST(post, SendInRtr, "ibv_post_send.state-rtr") { EXPECT_NE(post_in(IBV_QPS_RTR), 0); }

CONFORMANCE_TEST(post, SendInError, "ibv_post_send.state-err") {
  if (post_in(IBV_QPS_ERR) != 0) return;
  const ibv_wc wc = completion(cq_);
  EXPECT_EQ(wc.status, IBV_WC_WR_FLUSH_ERR) << wc_text(wc);
  EXPECT_EQ(wc.wr_id, 5u);
}

}  // namespace states

}  // namespace
}  // namespace conformance::post_send_chapter
