// SPDX-License-Identifier: BSD-2-Clause
//
// Multicast groups.
#include <chrono>
#include <vector>

#include "chapters/mcast_fixture.h"

namespace conformance::mcast_chapter {
namespace {

using std::chrono::milliseconds;

using Fixture = MulticastTest;

CONFORMANCE_TEST(mcast, AttachesAndDetaches, "ibv_attach_mcast.zero", "ibv_attach_mcast.as-claimed",
                 "ibv_detach_mcast.zero", "ibv_detach_mcast.absent") {
  const ibv_gid gid = group(1);
  must_connect(near(), far().facts());  // some refuse a QP in RESET, which no port has yet
  EXPECT_EQ(near().attach(gid, lid), 0);
  EXPECT_EQ(near().detach(gid, lid), 0);
  const About about("ibv_detach_mcast.absent");
  EXPECT_TRUE(refused(near().detach(gid, lid)));
}

CONFORMANCE_TEST(mcast, NonsenseIsRefused, "ibv_attach_mcast.ud-only", "ibv_attach_mcast.not-multicast") {
  ends();
  const ibv_gid gid = group(2);
  {
    const About about("ibv_attach_mcast.ud-only");
    const Pd pd = make_pd(device());
    const Cq cq = make_cq(device());
    const Qp connected = make_qp(pd, cq);
    EXPECT_REFUSED(ibv_attach_mcast(connected, &gid, lid));
  }
  const About about("ibv_attach_mcast.not-multicast");
  EXPECT_TRUE(refused(near().attach(own_gid(), lid)));
}

// A member at each side; either side sends.
CONFORMANCE_TEST(mcast, MembersReceiveOthersDoNot, "ibv_attach_mcast.delivers",
                 "ibv_attach_mcast.other-group", "ibv_detach_mcast.ends") {
  const ibv_gid gid = group(3), another = group(4);
  Endpoint here = one_more(topology().near()), there = one_more(topology().far());
  for (Endpoint* sender : {&near(), &far()}) {
    lead_to(*sender, gid);
    sender->fill(1000, 8, 0x77);
  }
  Endpoint other = one_more(topology().far());
  attach_far(other, another);
  receives(other);
  for (Endpoint* member : {&here, &there}) {
    if (member == &there) {
      attach_far(there, gid);
    } else {
      ASSERT_EQ(member->attach(gid, lid), 0);
    }
    for (Endpoint* sender : {&near(), &far()}) {
      receives(*member);
      EXPECT_EQ(send_until_received(*sender, *member).source, sender->facts().qpn);
      EXPECT_TRUE(member->has(40, 8, 0x77));
      member->fill(0, room, 0);
    }
    {
      const About about("ibv_attach_mcast.other-group");
      EXPECT_TRUE(other.stays_empty(true));
    }
    const About about("ibv_detach_mcast.ends");
    EXPECT_EQ(member->detach(gid, lid), 0);
    receives(*member);
    for (Endpoint* sender : {&near(), &far()}) send(*sender);
    EXPECT_TRUE(member->stays_empty(true));
  }
  EXPECT_EQ(other.detach(another, lid), 0);
}

CONFORMANCE_TEST(mcast, EveryMemberReceives, "ibv_attach_mcast.delivers") {
  const ibv_gid gid = group(7);
  Endpoint members[] = {one_more(topology().near()), one_more(topology().near()), one_more(topology().far())};
  lead_to(far(), gid);
  for (Endpoint& member : members) {
    if (&member == &members[2]) {
      attach_far(member, gid);
    } else {
      ASSERT_EQ(member.attach(gid, lid), 0);
    }
    receives(member);
  }
  for (Endpoint& member : members) EXPECT_EQ(send_until_received(far(), member).status, IBV_WC_SUCCESS);
  for (Endpoint& member : members) EXPECT_EQ(member.detach(gid, lid), 0);
}

// After a first message, by which the whole network has learnt the members, one that each receives once. It
// is longer, since copies of the first may still be on their way.
CONFORMANCE_TEST_AS(Traits().alone().limit(30), mcast, AsManyAsCanBeInAGroup, "ibv_attach_mcast.limit") {
  ends();
  const ibv_device_attr& claims = device().attributes();
  const int count =
      std::min({claims.max_mcast_qp_attach, claims.max_total_mcast_qp_attach, claims.max_qp / 2, 32});
  if (count < 1) throw NotClaimed{"max_mcast_qp_attach is 0"};
  const ibv_gid gid = group(8);
  std::vector<Endpoint> members;
  for (int i = 0; i < count; ++i) {
    members.push_back(one_more(topology().near()));
    ASSERT_EQ(members.back().attach(gid, lid), 0) << "QP " << i + 1 << " of " << count;
    receives(members.back());
  }
  lead_to(far(), gid);
  send(far());
  for (Endpoint& member : members)
    if (member.poll(1, scaled(milliseconds(200)), true).empty()) send_until_received(far(), member);
  constexpr uint32_t last = 16;
  for (Endpoint& member : members)
    for (const uint64_t id : {1, 2}) receives(member, id);
  send(far(), last);
  const auto is_last = [](const Completion& done) { return done.bytes == 40 + last; };
  for (Endpoint& member : members) {
    Completion done = member.received();
    if (done.status == IBV_WC_SUCCESS && !is_last(done)) done = member.received();
    EXPECT_EQ(done.status, IBV_WC_SUCCESS);
    EXPECT_TRUE(is_last(done)) << done.bytes << " bytes";
  }
  for (Endpoint& member : members) {
    const auto more = member.poll(1, {}, true);
    EXPECT_TRUE(std::none_of(more.begin(), more.end(), is_last)) << "a second copy";
  }
  for (Endpoint& member : members) EXPECT_EQ(member.detach(gid, lid), 0);
}

CONFORMANCE_TEST(mcast, OneCopyForEach, "ibv_attach_mcast.single-copy") {
  const ibv_gid gid = group(5);
  lead_to(far(), gid);
  must_connect(near(), far().facts());
  ASSERT_EQ(near().attach(gid, lid), 0);
  receives(near());
  send_until_received(far(), near());
  const int again = near().attach(gid, lid);  // may be refused, too
  near().poll(8, scaled(milliseconds(20)), true);
  for (const uint64_t id : {1, 2}) receives(near(), id);
  send(far());
  EXPECT_EQ(near().received().status, IBV_WC_SUCCESS);
  EXPECT_TRUE(near().stays_empty(true));
  EXPECT_EQ(near().detach(gid, lid), 0);
  if (again == 0) near().detach(gid, lid);
}

CONFORMANCE_TEST(mcast, OwnMessagesAreKeptAway, "ibv_create_qp_ex.block-self") {
  const ibv_gid gid = group(6);
  HostedEnd& hosted = ends().native();
  ibv_qp_init_attr_ex attr = {};
  attr.qp_type = IBV_QPT_UD;
  attr.send_cq = attr.recv_cq = hosted.end.cq;
  attr.cap = {4, 4, 1, 1, 0};
  attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS;
  attr.pd = hosted.end.pd;
  attr.create_flags = IBV_QP_CREATE_BLOCK_SELF_MCAST_LB;
  Qp blocking(CALL(ibv_create_qp_ex(context(), &attr)));
  if (!blocking && is_refusal_of_qp(errno))
    throw NotClaimed{"such a QP is refused with " + errno_text(errno)};
  ASSERT_NE(blocking, nullptr) << "errno " << errno_text(errno);
  hosted.end.qp = std::move(blocking);
  lead_to(near(), gid);
  must_connect(far(), near().facts());
  for (Endpoint* end : {&near(), &far()}) {
    if (end == &far()) {
      attach_far(*end, gid);
    } else {
      ASSERT_EQ(end->attach(gid, lid), 0);
    }
    receives(*end);
  }
  EXPECT_EQ(send_until_received(near(), far()).status, IBV_WC_SUCCESS);
  EXPECT_TRUE(near().stays_empty(true));
  for (Endpoint* end : {&near(), &far()}) EXPECT_EQ(end->detach(gid, lid), 0);
}

}  // namespace
}  // namespace conformance::mcast_chapter
