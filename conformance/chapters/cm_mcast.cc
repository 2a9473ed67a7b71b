// SPDX-License-Identifier: BSD-2-Clause
//
// rdma_cm: multicast groups.
#include <unistd.h>

#include <thread>

#include "support/cm.h"

namespace conformance::cm_mcast_chapter {
namespace {

constexpr Traits twice = Traits().limit(20);  // a datagram may be waited for twice

class Fixture : public CmTest {
 protected:
  // near_ and the far end, each with a UD QP, in no group yet.
  void make_members() {
    near_ = make_member();
    mr_ = make_mr(near_->pd, buffer_);
    far().bind();
    far().make_qp();
  }
  CmId make_member() {
    if (device().attributes().max_mcast_grp == 0) throw NotClaimed{"max_mcast_grp is 0"};
    // Linux drivers/infiniband/core/cma.c, cma_iboe_join_multicast(), for every device.
    if (device().is_ethernet() && address().family() == AF_INET6)
      throw NotTested{"the port has no IPv4 address: the kernel joins no IPv6 group over RoCE v2"};
    CmId id = make_bound(RDMA_PS_UDP);
    make_qp(id);
    return id;
  }
  ~Fixture() override { mr_ = Mr(); }  // before its PD

  // A group of this process, of the organization's (RFC 2365) or the link's scope.
  SocketAddress group() {
    const unsigned number = static_cast<unsigned>(getpid());
    if (address().family() == AF_INET)
      return SocketAddress("239.77." + std::to_string(number >> 8 & 255) + '.' + std::to_string(number & 255),
                           0);
    char text[32];
    snprintf(text, sizeof text, "ff12::77:%x", number & 0xffff);
    return SocketAddress(text, 0);
  }
  rdma_ud_param join(uint32_t flags = RDMA_MC_JOIN_FLAG_FULLMEMBER) {
    const SocketAddress to = group();
    rdma_cm_join_mc_attr_ex attr = {RDMA_CM_JOIN_MC_ATTR_ADDRESS | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS, flags,
                                    to.get()};
    const bool send_only = flags == RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER;
    if (CALL(rdma_join_multicast_ex(near_, &attr, nullptr)) != 0) {
      if (send_only && is_refusal(errno))
        throw NotClaimed{"a send-only member refused, " + errno_text(errno)};
      throw Deviation{"rdma_join_multicast_ex gives -1, " + errno_text(errno), Where::current()};
    }
    const CmEvent event = next_event(channel());
    if (send_only && event->event == RDMA_CM_EVENT_MULTICAST_ERROR && is_refusal(-event->status))
      throw NotClaimed{"a send-only member refused, " + errno_text(-event->status)};
    EXPECT_EQ(event->event, RDMA_CM_EVENT_MULTICAST_JOIN) << "status " << event->status;
    return event->param.ud;
  }
  void leave() { EXPECT_SUCCEEDS(rdma_leave_multicast(near_, group().get())); }

  // Sends to the group, by the event's parameters.
  void send(rdma_ud_param to) {
    const Ah ah(CALL(ibv_create_ah(near_->pd, &to.ah_attr)));
    ASSERT_NE(ah, nullptr) << errno_text(errno);
    ibv_sge element = {buffer_.address(1000), 8, mr_->lkey};
    ibv_send_wr wr = {}, *bad = nullptr;
    wr.sg_list = &element;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_SEND;
    wr.wr.ud = {ah, to.qp_num, to.qkey};
    ASSERT_SUCCEEDS(ibv_post_send(near_->qp, &wr, &bad));
    EXPECT_EQ(completion(near_->send_cq).status, IBV_WC_SUCCESS);
  }
  // In a network of several machines it takes a while until all of them know a member: what is sent before
  // that may be lost, and is sent once more (mcast_fixture.h has the same).
  template <typename Receive, typename Send>
  static ibv_wc once_more(const Receive& receive, const Send& send) {
    try {
      return receive();
    } catch (const Deviation& nothing) {
      trace(nothing.text);
    }
    send();
    return receive();
  }
  void send_from_far() {
    ASSERT_EQ(far().send_to_group(), 0);
    EXPECT_EQ(far().sent().status, IBV_WC_SUCCESS);
  }
  ibv_wc receive_from_far(ibv_cq* cq) {
    send_from_far();
    return once_more([&] { return completion(cq); }, [&] { send_from_far(); });
  }
  // Of what send(to) has sent.
  void expect_arrival(const rdma_ud_param& to) {
    const ibv_wc wc = once_more([&] { return far().received(); }, [&] { send(to); });
    EXPECT_EQ(wc.byte_len, 48u);
    EXPECT_EQ(wc.src_qp, near_->qp->qp_num);
    EXPECT_EQ(far().bytes(40, 8), std::vector<uint8_t>(8, Buffer::untouched));
  }
  void post_receive() { ASSERT_SUCCEEDS(rdma_post_recv(near_, nullptr, buffer_.data(), 256, mr_)); }

  Buffer buffer_{2048};
  Mr mr_;
};

CONFORMANCE_TEST(cm_verbs, JoiningGivesAnEvent, "rdma_join_multicast.event", "rdma_join_multicast.context",
                 "rdma_leave_multicast.zero") {
  near_ = make_member();
  const SocketAddress to = group();
  int mark = 0;
  ASSERT_SUCCEEDS(rdma_join_multicast(near_, to.get(), &mark));
  {
    const About joined("rdma_join_multicast.event");
    const CmEvent event = next_event(channel(), RDMA_CM_EVENT_MULTICAST_JOIN);
    EXPECT_EQ(event->id, near_);
    EXPECT_EQ(event->status, 0);
    const About about("rdma_join_multicast.context");
    EXPECT_EQ(event->param.ud.private_data, &mark);
  }
  const About about("rdma_leave_multicast.zero");
  leave();
}

CONFORMANCE_TEST(cm_verbs, UnboundIdentifierCannotJoin, "rdma_join_multicast.unbound") {
  make_member();  // only where groups are claimed at all
  near_ = make_id(RDMA_PS_UDP);
  EXPECT_MINUS_ONE(rdma_join_multicast(near_, group().get(), nullptr));
}

CONFORMANCE_TEST_AS(twice, cm_verbs, MembersReceive, "rdma_join_multicast.delivers",
                    "rdma_join_multicast_ex.full") {
  make_members();
  far().join(group());
  const rdma_ud_param to = join();
  ASSERT_EQ(far().post_receive(0, 256), 0);
  ABOUT("rdma_join_multicast_ex.full") send(to);
  ABOUT("rdma_join_multicast.delivers") expect_arrival(to);
  far().leave(group());
  leave();
}

CONFORMANCE_TEST_AS(twice, cm_verbs, MemberReceivesWhatTheFarEndSends, "rdma_join_multicast_ex.full",
                    "rdma_join_multicast.attached", "rdma_leave_multicast.detached") {
  make_members();
  far().join(group());
  join();
  post_receive();
  EXPECT_EQ(receive_from_far(near_->recv_cq).byte_len, 48u);
  {
    const About about("rdma_leave_multicast.detached");
    leave();
    post_receive();
    ASSERT_EQ(far().send_to_group(), 0);
    EXPECT_EQ(far().sent().status, IBV_WC_SUCCESS);
    EXPECT_TRUE(stays_empty(near_->recv_cq));
  }
  far().leave(group());
}

CONFORMANCE_TEST_AS(twice, cm_verbs, SendOnlyMember, "rdma_join_multicast_ex.send-only") {
  make_members();
  far().join(group());
  const rdma_ud_param to = join(RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER);
  ASSERT_EQ(far().post_receive(0, 256), 0);
  post_receive();
  send(to);
  expect_arrival(to);
  ASSERT_EQ(far().send_to_group(), 0);
  EXPECT_EQ(far().sent().status, IBV_WC_SUCCESS);
  EXPECT_TRUE(stays_empty(near_->recv_cq)) << "its QP is not attached";
  far().leave(group());
  leave();
}

CONFORMANCE_TEST_AS(twice, cm_verbs, WithoutAQpNothingIsAttached, "rdma_join_multicast.without-qp") {
  make_member();  // only where groups are claimed at all
  near_ = make_bound(RDMA_PS_UDP);
  far().bind();
  far().make_qp();
  far().join(group());
  const rdma_ud_param to = join();
  Mr mr = make_mr(near_->pd, buffer_);
  Cq cq(CALL(ibv_create_cq(near_->verbs, 8, nullptr, nullptr, 0)));
  ASSERT_NE(cq, nullptr);
  Qp qp = conformance::make_qp(near_->pd, cq, {.type = IBV_QPT_UD});
  Path path;
  path.qkey = to.qkey;
  bring_to(qp, IBV_QPS_RTR, attributes_for(device(), path));
  ibv_sge element = {buffer_.address(), 256, mr->lkey};
  ibv_recv_wr wr = {1, nullptr, &element, 1}, *bad = nullptr;
  ASSERT_SUCCEEDS(ibv_post_recv(qp, &wr, &bad));
  ASSERT_EQ(far().send_to_group(), 0);
  EXPECT_EQ(far().sent().status, IBV_WC_SUCCESS);
  EXPECT_TRUE(stays_empty(cq));
  const ibv_gid gid = to.ah_attr.grh.dgid;
  ASSERT_SUCCEEDS(ibv_attach_mcast(qp, &gid, to.ah_attr.dlid));
  EXPECT_EQ(receive_from_far(cq).byte_len, 48u);
  EXPECT_SUCCEEDS(ibv_detach_mcast(qp, &gid, to.ah_attr.dlid));
  leave();
  far().leave(group());
}

CONFORMANCE_TEST(cm_verbs, LeavingCancelsTheJoin, "rdma_leave_multicast.cancels") {
  near_ = make_member();
  const SocketAddress to = group();
  for (const bool has_joined : {false, true}) {
    ASSERT_SUCCEEDS(rdma_join_multicast(near_, to.get(), nullptr));
    if (has_joined) {
      ASSERT_TRUE(becomes_readable(channel()->fd, std::chrono::seconds(5))) << "no event";
    }
    leave();
    EXPECT_TRUE(stays_quiet(channel()));
  }
}

CONFORMANCE_TEST(cm_verbs, DestroyedIdentifierHasLeft, "rdma_leave_multicast.destroy") {
  make_member();
  const SocketAddress to = group();
  for (int turn = 0; turn < 2; ++turn) {
    CmId id = make_bound(RDMA_PS_UDP);  // without a QP: nothing is attached that would have to be detached
    ASSERT_SUCCEEDS(rdma_join_multicast(id, to.get(), nullptr));
    next_event(channel(), RDMA_CM_EVENT_MULTICAST_JOIN);
    EXPECT_SUCCEEDS(rdma_destroy_id(id.release()));
    EXPECT_TRUE(stays_quiet(channel()));
  }
}

}  // namespace
}  // namespace conformance::cm_mcast_chapter
