// SPDX-License-Identifier: BSD-2-Clause
//
// Lists of which one request cannot be posted, and elements without bytes.
#include <arpa/inet.h>
#include <infiniband/verbs.h>

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "chapters/post_fixture.h"
#include "support/pair.h"

namespace conformance::post_lists_chapter {
namespace {

// Longer than any queue whose entries are counted in units of memory.
uint32_t beyond(uint32_t depth) { return 16 * depth + 1024; }

void link_up(std::vector<ibv_send_wr>& list) {
  for (size_t i = 1; i < list.size(); ++i) list[i - 1].next = &list[i];
}
void link_up(std::vector<ibv_recv_wr>& list) {
  for (size_t i = 1; i < list.size(); ++i) list[i - 1].next = &list[i];
}

// The near end's objects are the test's own.
class Fixture : public PairTest {
 protected:
  const End& own() { return pair().native().end; }
  ibv_srq* srq() { return pair().native().srq; }

  // What the creation told. ibv_query_qp(3) may count entries that no request can have: the kernel's driver
  // need not know what the library holds back.
  const EndFacts& made() { return near().facts(); }
  static PairSpec with(void (*change)(wire::MakeEnd&)) {
    PairSpec spec;
    change(spec.both);
    return spec;
  }

  // The near end's.
  static PairSpec of_an_srq() {
    PairSpec spec;
    spec.far = spec.both;
    spec.both.srq = true;
    return spec;
  }

  // ---- sending ----

  ibv_send_wr write(ibv_sge* element, uint64_t id) {
    ibv_send_wr wr = own().request(IBV_WR_RDMA_WRITE, element, id);
    wr.wr.rdma = {far().address(), far().facts().rkey};
    return wr;
  }
  // Posts three WRITEs of which `spoil` has made the second one wrong; bad_wr must be that one.
  void second_is_bad(const std::function<void(ibv_send_wr&)>& spoil) {
    ibv_sge element = own().sge(0, 8);
    std::vector<ibv_send_wr> list = {write(&element, 0), write(&element, 1), write(&element, 2)};
    link_up(list);
    spoil(list[1]);
    ibv_send_wr* bad = nullptr;
    if (CALL(ibv_post_send(own().qp, list.data(), &bad)) == 0)
      throw NotTested{"the request is not refused when it is posted"};
    EXPECT_EQ(bad, &list[1]);
    EXPECT_EQ(completion(own().cq).wr_id, 0u);
  }

  // ---- receiving ----

  // Posts to the QP, or to the SRQ if there is one.
  int post(std::vector<ibv_recv_wr>& list, ibv_recv_wr** bad) {
    link_up(list);
    return srq() != nullptr ? CALL(ibv_post_srq_recv(srq(), list.data(), bad))
                            : CALL(ibv_post_recv(own().qp, list.data(), bad));
  }
  // The next message takes a receive request. Returns its wr_id.
  uint64_t next_receive() {
    if (far().post(send_request({{0, 8}})) != 0)
      throw Deviation{"ibv_post_send; expected: 0", Where::current()};
    EXPECT_EQ(far().completion().status, IBV_WC_SUCCESS);
    const ibv_wc wc = completion(own().cq);
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS) << wc_text(wc);
    return wc.wr_id;
  }
  // The next `count` messages take the receive requests 0 to `count` - 1: of a QP in this order. Of an SRQ
  // the order is a matter of ibv_post_srq_recv.order.
  void expect_receives(uint64_t count) {
    std::set<uint64_t> left;
    for (uint64_t id = 0; id < count; ++id) left.insert(id);
    for (uint64_t id = 0; id < count; ++id) {
      const uint64_t taken = next_receive();
      EXPECT_EQ(left.erase(taken), 1u) << "wr_id " << taken;
      if (srq() == nullptr) {
        EXPECT_EQ(taken, id);
      }
    }
  }
  void one_more_is_received(uint64_t id) {
    ibv_sge element = own().sge(0, 64);
    std::vector<ibv_recv_wr> list = {{id, nullptr, &element, 1}};
    ibv_recv_wr* bad = nullptr;
    ASSERT_EQ(post(list, &bad), 0);
    EXPECT_EQ(next_receive(), id);
  }
  // Lists of four whose request `at` has too many elements.
  void any_index(const PairSpec& spec) {
    for (size_t at = 0; at < 4; ++at) {
      new_pair(spec);
      std::vector<ibv_sge> elements(made().receive_sges + 1, own().sge(0, 64));
      std::vector<ibv_recv_wr> list;
      for (uint64_t id = 0; id < 4; ++id) list.push_back({id, nullptr, elements.data(), 1});
      list[at].num_sge = static_cast<int>(elements.size());
      ibv_recv_wr* bad = nullptr;
      if (post(list, &bad) == 0) throw NotTested{"one element more is taken"};
      EXPECT_EQ(bad, &list[at]) << "the request at index " << at;
      expect_receives(at);
    }
  }
  void fills_in_the_midst(const PairSpec& spec, uint32_t asked) {
    pair(spec);
    ibv_sge element = own().sge(0, 64);
    // ibv_query_srq(3) may count entries that no request can have.
    const uint32_t depth = srq() != nullptr ? asked : made().receive_depth;
    std::vector<ibv_recv_wr> list;
    for (uint64_t id = 0; id <= beyond(made().receive_depth); ++id)
      list.push_back({id, nullptr, &element, 1});
    ibv_recv_wr* bad = nullptr;
    if (post(list, &bad) == 0) throw NotTested{std::to_string(list.size()) + " requests are taken"};
    ASSERT_TRUE(bad >= list.data() && bad < list.data() + list.size()) << "bad_wr is none of the list";
    const auto taken = static_cast<uint64_t>(bad - list.data());
    ASSERT_GE(taken, depth);
    expect_receives(taken);
    one_more_is_received(77777);
  }
};

CONFORMANCE_TEST(post, AnyRequestOfAListMayBeBad, "ibv_post_send.bad-wr.index") {
  std::vector<ibv_sge> elements(made().send_sges + 1, own().sge(0, 1));
  for (size_t at = 0; at < 4; ++at) {
    std::vector<ibv_send_wr> list;
    for (uint64_t id = 0; id < 4; ++id) list.push_back(write(elements.data(), id));
    link_up(list);
    list[at].num_sge = static_cast<int>(elements.size());
    ibv_send_wr* bad = nullptr;
    if (CALL(ibv_post_send(own().qp, list.data(), &bad)) == 0) throw NotTested{"one element more is taken"};
    EXPECT_EQ(bad, &list[at]) << "the request at index " << at;
    for (uint64_t id = 0; id < at; ++id) EXPECT_EQ(completion(own().cq).wr_id, id);
    EXPECT_TRUE(stays_empty(own().cq));
  }
}

CONFORMANCE_TEST(post, BadForItsOpcode, "ibv_post_send.bad-wr.opcode") {
  second_is_bad([](ibv_send_wr& wr) { wr.opcode = static_cast<ibv_wr_opcode>(99); });
}

CONFORMANCE_TEST(post, BadForItsInlineData, "ibv_post_send.bad-wr.inline") {
  pair(with([](wire::MakeEnd& end) { end.inline_data = 16; }));
  if (made().inline_data + 1 > own().buffer.size())
    throw NotTested{"more inline data than the test's buffer"};
  ibv_sge too_long = own().sge(0, made().inline_data + 1);
  second_is_bad([&](ibv_send_wr& wr) {
    wr.sg_list = &too_long;
    wr.send_flags |= IBV_SEND_INLINE;
  });
}

// The requests stay outstanding: the far end has no receive for them, and the requester retries without
// limit.
CONFORMANCE_TEST(post, QueueFillsInTheMidst, "ibv_post_send.bad-wr.queue-full") {
  ibv_sge element = own().sge(0, 8);
  const uint32_t depth = made().send_depth;
  std::vector<ibv_send_wr> list;
  for (uint32_t i = 0; i <= beyond(depth); ++i) {
    list.push_back(own().request(IBV_WR_SEND_WITH_IMM, &element, i));
    list.back().send_flags = 0;
    list.back().imm_data = htonl(i);
  }
  link_up(list);
  ibv_send_wr* bad = nullptr;
  if (CALL(ibv_post_send(own().qp, list.data(), &bad)) == 0)
    throw NotTested{std::to_string(list.size()) + " requests are taken"};
  ASSERT_TRUE(bad >= list.data() && bad < list.data() + list.size()) << "bad_wr is none of the list";
  const auto taken = static_cast<uint32_t>(bad - list.data());
  ASSERT_GE(taken, depth);
  for (uint32_t i = 0; i < taken; ++i) {
    ASSERT_EQ(far().receive(0, 64), 0);
    const Completion received = far().received();
    EXPECT_EQ(received.status, IBV_WC_SUCCESS);
    EXPECT_EQ(received.imm, i);
  }
  ASSERT_EQ(far().receive(0, 64), 0);
  EXPECT_TRUE(far().stays_empty(true)) << "message " << taken << ", which bad_wr is";
}

CONFORMANCE_TEST(post, AnyReceiveOfAListMayBeBad, "ibv_post_recv.bad-wr.index") { any_index({}); }

CONFORMANCE_TEST(post, ReceiveQueueFillsInTheMidst, "ibv_post_recv.bad-wr.queue-full") {
  fills_in_the_midst({}, 0);
}

CONFORMANCE_TEST(srq, AnyRequestOfAListMayBeBad, "ibv_post_srq_recv.bad-wr.index") { any_index(of_an_srq()); }

CONFORMANCE_TEST(srq, QueueFillsInTheMidst, "ibv_post_srq_recv.bad-wr.queue-full") {
  fills_in_the_midst(of_an_srq(), wire::MakeEnd().receive_depth);
}

CONFORMANCE_TEST(post, ElementsWithoutBytesAddNone, "ibv_post_send.zero-length") {
  if (device().attributes().max_sge < 3) throw NotClaimed{"max_sge is below 3"};
  pair(with([](wire::MakeEnd& end) { end.send_sges = 3; }));
  near().fill_pattern(0, 8, 5);
  const std::vector<Element> lists[] = {
      {{2048, 0}, {0, 4}, {4, 4}}, {{0, 4}, {2048, 0}, {4, 4}}, {{0, 4}, {4, 4}, {2048, 0}}};
  for (const std::vector<Element>& elements : lists) {
    far().fill(1024, 64, Buffer::untouched);
    ASSERT_EQ(far().receive(1024, 64), 0);
    ASSERT_EQ(near().post(send_request(elements)), 0);
    ASSERT_EQ(near().completion().status, IBV_WC_SUCCESS);
    EXPECT_EQ(far().received().bytes, 8u);
    EXPECT_TRUE(far().has_pattern(1024, 8, 5));
    EXPECT_TRUE(far().untouched(1032, 56));
  }
  ASSERT_EQ(far().receive(1024, 64), 0);
  ASSERT_EQ(near().post(send_request({{2048, 0}})), 0);
  ASSERT_EQ(near().completion().status, IBV_WC_SUCCESS);
  EXPECT_EQ(far().received().bytes, 0u);
}

CONFORMANCE_TEST(post, ElementsWithoutBytesTakeNone, "ibv_post_recv.zero-length") {
  if (device().attributes().max_sge < 4) throw NotClaimed{"max_sge is below 4"};
  PairSpec spec = with([](wire::MakeEnd& end) { end.receive_sges = 4; });
  spec.tests_far = true;
  pair(spec);
  near().fill_pattern(0, 8, 5);
  ASSERT_EQ(far().receive({{1, {{512, 0}, {1024, 4}, {640, 0}, {2048, 64}}}}), 0);
  ASSERT_EQ(near().post(send_request({{0, 8}})), 0);
  ASSERT_EQ(near().completion().status, IBV_WC_SUCCESS);
  EXPECT_EQ(far().received().bytes, 8u);
  EXPECT_TRUE(far().untouched(512, 512));
  EXPECT_TRUE(far().has_pattern(1024, 4, 5));
  EXPECT_TRUE(far().untouched(1028, 1020));
  EXPECT_TRUE(far().has_pattern(2048, 4, 5, 4));
  EXPECT_TRUE(far().untouched(2052, 60));
}

namespace states {
using Fixture = PostInState;

CONFORMANCE_TEST(post, FirstOfAListIsBadInReset, "ibv_post_send.bad-wr.state") {
  qp_in(IBV_QPS_RESET);
  ibv_sge element{buffer_.address(), 8, mr_->lkey};
  std::vector<ibv_send_wr> list(2);
  for (ibv_send_wr& wr : list) wr.sg_list = &element, wr.num_sge = 1, wr.opcode = IBV_WR_SEND;
  link_up(list);
  ibv_send_wr* bad = nullptr;
  if (CALL(ibv_post_send(qp_, list.data(), &bad)) == 0) throw NotTested{"requests are taken in RESET"};
  EXPECT_EQ(bad, &list[0]);
}

CONFORMANCE_TEST(post, FirstReceiveOfAListIsBadInReset, "ibv_post_recv.bad-wr.state") {
  qp_in(IBV_QPS_RESET);
  ibv_sge element{buffer_.address(), 8, mr_->lkey};
  std::vector<ibv_recv_wr> list = {{1, nullptr, &element, 1}, {2, nullptr, &element, 1}};
  link_up(list);
  ibv_recv_wr* bad = nullptr;
  if (CALL(ibv_post_recv(qp_, list.data(), &bad)) == 0) throw NotTested{"receives are taken in RESET"};
  EXPECT_EQ(bad, &list[0]);
}

}  // namespace states

}  // namespace
}  // namespace conformance::post_lists_chapter
