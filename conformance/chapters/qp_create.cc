// SPDX-License-Identifier: BSD-2-Clause
//
// Queue pairs: creating and destroying them, and that their capabilities hold.
#include <algorithm>
#include <set>
#include <vector>

#include "support/pair.h"

namespace conformance::qp_create_chapter {
namespace {

class Fixture : public PairTest {
 protected:
  ibv_pd* pd() {
    if (!pd_) pd_ = make_pd(device());
    return pd_;
  }
  ibv_cq* cq() {
    if (!cq_) cq_ = make_cq(device(), 64);
    return cq_;
  }
  Qp create(ibv_qp_init_attr& attr) { return Qp(CALL(ibv_create_qp(pd(), &attr))); }
  Qp create(const QpSpec& spec) {
    ibv_qp_init_attr attr = init_attributes(spec, cq(), cq());
    return create(attr);
  }

 private:
  Pd pd_;
  Cq cq_;
};

CONFORMANCE_TEST(qp, FieldsAreThoseGiven, "ibv_create_qp.pointer", "ibv_create_qp.fields",
                 "ibv_destroy_qp.zero") {
  int mark = 0;
  QpSpec spec;
  spec.qp_context = &mark;
  Qp qp = make_qp(pd(), cq(), spec);
  const bool is_iwarp = context()->device->transport_type == IBV_TRANSPORT_IWARP;
  if (!is_iwarp) {  // which has no QPs 0 and 1
    const About about("ibv_create_qp.pointer");
    EXPECT_GT(qp->qp_num, 1u);
    EXPECT_LT(qp->qp_num, 1u << 24);
  }
  ABOUT("ibv_create_qp.fields") {
    EXPECT_EQ(qp->qp_context, &mark);
    EXPECT_EQ(qp->context, context());
    EXPECT_EQ(qp->pd, pd());
    EXPECT_EQ(qp->send_cq, cq());
    EXPECT_EQ(qp->recv_cq, cq());
    EXPECT_EQ(qp->srq, nullptr);
    EXPECT_EQ(qp->qp_type, IBV_QPT_RC);
    EXPECT_EQ(qp->state, IBV_QPS_RESET);
    // An iWARP QP begins in IDLE, which some drivers report as INIT.
    if (!is_iwarp) {
      EXPECT_EQ(state_of(qp), IBV_QPS_RESET);
    }
  }
  ABOUT("ibv_destroy_qp.zero") EXPECT_SUCCEEDS(qp.destroy());
}

CONFORMANCE_TEST(qp, NumbersAreDistinct, "ibv_create_qp.distinct-numbers") {
  std::vector<Qp> qps;
  std::set<uint32_t> numbers;
  const int count = std::clamp(device().attributes().max_qp / 2, 2, 32);
  for (int i = 0; i < count; ++i) {
    qps.push_back(make_qp(pd(), cq()));
    EXPECT_TRUE(numbers.insert(qps.back()->qp_num).second) << "number " << qps.back()->qp_num;
  }
}

CONFORMANCE_TEST(qp, CapabilitiesAreAtLeastThose, "ibv_create_qp.cap-at-least") {
  for (const uint32_t depth : {1u, 5u, 16u, 64u, 100u})
    for (const uint32_t sges : {1u, 2u, 3u}) {
      if (static_cast<int>(sges) > device().attributes().max_sge) continue;
      if (static_cast<int>(depth) > device().attributes().max_qp_wr) continue;
      QpSpec spec;
      spec.send_depth = spec.receive_depth = depth;
      spec.send_sges = spec.receive_sges = sges;
      ibv_qp_init_attr attr = init_attributes(spec, cq(), cq());
      Qp qp = create(attr);
      if (!qp && is_refusal_of_qp(errno))
        throw NotClaimed{"QPs of type RC refused with " + errno_text(errno)};
      ASSERT_NE(qp, nullptr);
      EXPECT_GE(attr.cap.max_send_wr, depth);
      EXPECT_GE(attr.cap.max_recv_wr, depth);
      EXPECT_GE(attr.cap.max_send_sge, sges);
      EXPECT_GE(attr.cap.max_recv_sge, sges);
    }
}

// A queue may be counted in elements: short requests then fit beyond max_qp_wr.
CONFORMANCE_TEST(qp, BeyondTheLimitsIsRefused, "ibv_create_qp.beyond-wr", "ibv_create_qp.beyond-sge") {
  make_qp(pd(), cq());
  const auto wr = static_cast<uint32_t>(device().attributes().max_qp_wr) + 1;
  const auto sge = static_cast<uint32_t>(device().attributes().max_sge) + 1;
  const struct {
    ClauseId clause;
    QpSpec spec;
    uint32_t ibv_qp_cap::*field;
    uint32_t least;
  } table[] = {
      {"ibv_create_qp.beyond-wr", {.send_depth = wr}, &ibv_qp_cap::max_send_wr, wr},
      {"ibv_create_qp.beyond-wr", {.receive_depth = wr}, &ibv_qp_cap::max_recv_wr, wr},
      {"ibv_create_qp.beyond-sge", {.send_sges = sge}, &ibv_qp_cap::max_send_sge, sge},
      {"ibv_create_qp.beyond-sge", {.receive_sges = sge}, &ibv_qp_cap::max_recv_sge, sge},
  };
  for (const auto& [clause, spec, field, least] : table) {
    const About about(clause);
    ibv_qp_init_attr attr = init_attributes(spec, cq(), cq());
    if (const Qp qp = create(attr)) {
      EXPECT_GE(attr.cap.*field, least);
    }
  }
}

CONFORMANCE_TEST(qp, QueueWithoutRoom, "ibv_create_qp.zero-depth") {
  make_qp(pd(), cq());
  const bool no_send = create({.send_depth = 0}) != nullptr;
  const bool no_receive = create({.receive_depth = 0}) != nullptr;
  observe("ibv_create_qp.zero-depth",
          std::string("without room to send: ") + (no_send ? "created" : "refused") +
              "; without room to receive: " + (no_receive ? "created" : "refused"));
}

CONFORMANCE_TEST(qp, SrqGoesWithRcAndUd, "ibv_create_qp.srq-rc-ud", "ibv_create_qp.srq-ignores-recv",
                 "ibv_create_qp.srq-uc") {
  const Srq srq = make_srq(device(), pd());
  for (const ibv_qp_type type : {IBV_QPT_RC, IBV_QPT_UD}) {
    QpSpec spec;
    spec.type = type;
    try {
      make_qp(pd(), cq(), spec);
    } catch (const NotClaimed&) {
      if (type == IBV_QPT_RC) throw;
      continue;
    }
    spec.srq = srq;
    {
      const About about("ibv_create_qp.srq-rc-ud");
      const Qp qp = create(spec);
      EXPECT_NE(qp, nullptr) << type_name(type) << ", errno " << errno_text(errno);
      if (!qp) continue;
      EXPECT_EQ(qp->srq, srq.get());
    }
    const About about("ibv_create_qp.srq-ignores-recv");
    spec.receive_depth = 0x7fffffff;
    spec.receive_sges = 0x7fffffff;
    const Qp qp = create(spec);
    EXPECT_NE(qp, nullptr) << type_name(type) << ", errno " << errno_text(errno);
  }
  const About about("ibv_create_qp.srq-uc");
  QpSpec uc;
  uc.type = IBV_QPT_UC;
  make_qp(pd(), cq(), uc);
  uc.srq = srq;
  EXPECT_EQ(create(uc).get(), nullptr);  // the page does not speak of errno
}

CONFORMANCE_TEST(qp, UnknownTypeIsRefused, "ibv_create_qp.unknown-type") {
  make_qp(pd(), cq());
  QpSpec spec;
  spec.type = static_cast<ibv_qp_type>(77);
  EXPECT_EQ(create(spec).get(), nullptr);  // the page does not speak of errno
}

CONFORMANCE_TEST(qp, NothingIsUsedUp, "ibv_create_qp.reuse") {
  make_qp(pd(), cq());  // has the device QPs of this type?
  for (int i = 0; i < 500; ++i) {
    ibv_qp_init_attr attr = init_attributes({}, cq(), cq());
    Qp qp(ibv_create_qp(pd(), &attr));
    ASSERT_NE(qp, nullptr) << "round " << i << ", errno " << errno_text(errno);
    ASSERT_EQ(qp.destroy(), 0) << "round " << i;
  }
}

// In those that the device has: one may have no SQD, or refuse a way to ERR, which have clauses of their own.
CONFORMANCE_TEST(qp, DestroyedInAnyState, "ibv_destroy_qp.any-state") {
  for (const ibv_qp_state state :
       {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QPS_SQD, IBV_QPS_ERR}) {
    Qp qp = make_qp(pd(), cq());
    const ibv_qp_attr values = attributes_for(device(), {.destination = qp->qp_num});
    try {
      bring_to(qp, state == IBV_QPS_ERR ? IBV_QPS_RTS : state, values);
    } catch (const NotClaimed&) {
      if (state != IBV_QPS_SQD) throw;
      continue;
    }
    if (state == IBV_QPS_ERR) {
      ibv_qp_attr attr = values;
      attr.qp_state = IBV_QPS_ERR;
      if (modify(qp, attr, IBV_QP_STATE) != 0) continue;
    }
    EXPECT_SUCCEEDS(qp.destroy()) << "in " << state_name(state);
  }
  ASSERT_EQ(far().receive(0, 64), 0);
  ASSERT_EQ(near().post(send_request({{0, 8}})), 0);
  EXPECT_EQ(near().destroy_qp(), 0);
  EXPECT_EQ(far().destroy_qp(), 0);
}

CONFORMANCE_TEST(qp, AttachedToAGroupIsBusy, "ibv_destroy_qp.mcast") {
  if (device().attributes().max_mcast_grp == 0) throw NotClaimed{"max_mcast_grp is 0"};
  QpSpec spec;
  spec.type = IBV_QPT_UD;
  Qp qp = make_qp(pd(), cq(), spec);
  bring_to(qp, IBV_QPS_RTS, attributes_for(device(), {}));
  ibv_gid group = {};
  group.raw[0] = 0xff;
  group.raw[1] = 0x12;
  group.raw[15] = 0x77;
  if (const int error = CALL(ibv_attach_mcast(qp, &group, 0xc077)); error != 0)
    throw NotTested{"the QP is not attached: ibv_attach_mcast.zero; seen: " + errno_text(error)};
  EXPECT_REFUSED(ibv_destroy_qp(qp));
  EXPECT_SUCCEEDS(ibv_detach_mcast(qp, &group, 0xc077));
  EXPECT_SUCCEEDS(qp.destroy());
}

CONFORMANCE_TEST(qp, EachQueueHasItsCq, "ibv_create_qp.two-cqs") {
  PairSpec spec;
  spec.both.separate_cqs = true;
  pair(spec);
  for (const auto& [sender, receiver] : {std::pair(&near(), &far()), {&far(), &near()}}) {
    ASSERT_EQ(receiver->receive(0, 64), 0);
    ASSERT_EQ(sender->post(send_request({{0, 8}})), 0);
    EXPECT_EQ(sender->completion().opcode, IBV_WC_SEND);
    EXPECT_EQ(receiver->received().opcode, IBV_WC_RECV);
    EXPECT_TRUE(sender->stays_empty(true));
    EXPECT_TRUE(receiver->stays_empty());
  }
}

CONFORMANCE_TEST(qp, SignalsAllOrWhatIsAsked, "ibv_create_qp.sig-all", "ibv_create_qp.sig-some") {
  const struct {
    ClauseId clause;
    bool all;
  } table[] = {{"ibv_create_qp.sig-all", true}, {"ibv_create_qp.sig-some", false}};
  for (const auto& [clause, all] : table) {
    const About about(clause);
    PairSpec spec;
    spec.both.signal_all = all;
    spec.both.separate_cqs = true;
    new_pair(spec);
    for (uint64_t id = 1; id <= 2; ++id) {
      ASSERT_EQ(far().receive(0, 64), 0);
      SendRequest request = send_request({{0, 8}}, id);
      request.flags = id == 2 ? IBV_SEND_SIGNALED : 0;
      ASSERT_EQ(near().post(request), 0);
    }
    if (all) {
      EXPECT_EQ(near().completion().id, 1u);
    }
    EXPECT_EQ(near().completion().id, 2u);
    EXPECT_TRUE(near().stays_empty());
  }
}

CONFORMANCE_TEST(qp, QueuesHoldWhatCapSays, "ibv_create_qp.cap-holds") {
  for (uint32_t i = 0; i < near().facts().receive_depth; ++i)
    ASSERT_EQ(near().receive(0, 64, i), 0) << "receive " << i << " of " << near().facts().receive_depth;
  SendRequest request = remote_request(IBV_WR_RDMA_WRITE, {{0, 8}}, far().facts());
  request.flags = 0;  // its slot is taken until a later completion is polled
  for (uint32_t i = 0; i < near().facts().send_depth; ++i)
    ASSERT_EQ(near().post(request), 0) << "send " << i << " of " << near().facts().send_depth;
}

CONFORMANCE_TEST(qp, RequestsHaveAsManyElementsAsCapSays, "ibv_create_qp.cap-sge") {
  PairSpec spec;
  const auto asked = static_cast<uint32_t>(std::min(device().attributes().max_sge, 16));
  spec.both.send_sges = spec.both.receive_sges = asked;
  pair(spec);
  ASSERT_GE(near().facts().send_sges, asked);
  ASSERT_GE(near().facts().receive_sges, asked);
  near().fill_pattern(0, 4096, 5);
  far().fill_pattern(0, 4096, 6);
  const uint32_t gathers = std::min(near().facts().send_sges, 100u),
                 scatters = std::min(near().facts().receive_sges, 100u);
  std::vector<Element> from, to;
  for (uint32_t i = 0; i < gathers; ++i) from.push_back({i * 16, 1});
  for (uint32_t i = 0; i < scatters; ++i) to.push_back({4096 + i * 32, 1});
  ASSERT_EQ(far().receive(4096, gathers), 0);
  ASSERT_EQ(near().post(send_request(from)), 0);
  EXPECT_EQ(near().completion().status, IBV_WC_SUCCESS);
  EXPECT_EQ(far().received().bytes, gathers);
  for (uint32_t i = 0; i < gathers; ++i)
    EXPECT_TRUE(far().has_pattern(4096 + i, 1, 5, i * 16)) << "element " << i << " of " << gathers;
  ASSERT_EQ(near().receive({{1, to}}), 0);
  ASSERT_EQ(far().post(send_request({{0, scatters}})), 0);
  EXPECT_EQ(far().completion().status, IBV_WC_SUCCESS);
  EXPECT_EQ(near().received().bytes, scatters);
  for (uint32_t i = 0; i < scatters; ++i)
    EXPECT_TRUE(near().has_pattern(4096 + i * 32, 1, 6, i)) << "element " << i << " of " << scatters;
}

CONFORMANCE_TEST(qp, InlineHoldsWhatCapSays, "ibv_create_qp.inline-holds") {
  PairSpec spec;
  spec.both.inline_data = 32;
  pair(spec);
  if (near().facts().inline_data == 0) throw NotClaimed{"max_inline_data is 0"};
  ASSERT_GE(near().facts().inline_data, 32u);
  const auto length =
      static_cast<uint32_t>(std::min<uint64_t>(near().facts().inline_data, near().facts().length));
  near().fill_pattern(0, length, 5);
  ASSERT_EQ(far().receive(0, length), 0);
  SendRequest request = send_request({{0, length}});
  request.flags |= IBV_SEND_INLINE;
  ASSERT_EQ(near().post(request), 0);
  EXPECT_EQ(near().completion().status, IBV_WC_SUCCESS);
  EXPECT_EQ(far().received().bytes, length);
  EXPECT_TRUE(far().has_pattern(0, length, 5));
}

}  // namespace
}  // namespace conformance::qp_create_chapter
