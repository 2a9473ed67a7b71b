// SPDX-License-Identifier: BSD-2-Clause
//
// rdma_join_multicast(3), rdma_join_multicast_ex(3) and rdma_leave_multicast(3), sentence by sentence.
//
// clang-format off
// | the pages say | case |
// | --- | --- |
// | joins a multicast group | TheEventNamesTheGroup |
// | and attaches an associated QP to the group, when the event is retrieved | clause rdma_join_multicast.delivers, rdma_join_multicast.attached |
// | returns 0 on success, or -1 on error; errno will be set | AnAddressThatIsNoneIsMinusOneAndEinval, BeforeTheIdIsBoundItIsMinusOneAndEinval |
// | the id must be bound to an RDMA device | BeforeTheIdIsBoundItIsMinusOneAndEinval |
// | must call rdma_leave_multicast | clause rdma_leave_multicast.detached |
// | without a QP the user calls ibv_attach_mcast | clause rdma_join_multicast.without-qp |
// | the join context is returned in private_data | clause rdma_join_multicast.context |
// | _ex: comp_mask, join_flags, addr | AMaskThatIsNoneIsMinusOneAndEnotsup, FlagsThatAreNoneAreMinusOneAndEinval |
// | _ex: FULLMEMBER sends and receives | clause rdma_join_multicast_ex.full |
// | _ex: SENDONLY_FULLMEMBER: the QP will not be attached | clause rdma_join_multicast_ex.send-only |
// | _ex: IGMP messages | not testable: nothing here leaves the machine |
// | leave: leaves a group and detaches the QP | clause rdma_leave_multicast.detached |
// | leave: returns 0, or -1 and errno | LeavingAGroupOfOthersIsMinusOneAndEaddrnotavail |
// | leave: before a group has been fully joined it cancels the join | clause rdma_leave_multicast.cancels |
// | leave: messages may still be queued immediately after | not testable: may |
// | leave: destroying an id leaves all groups | ADestroyedIdHasLeft |
// clang-format on
#include "async_test.h"

namespace verbena::pages {
namespace {

class RdmaJoinMulticast : public IdTest {
 protected:
  void SetUp() override {
    IdTest::SetUp();
    if (HasFatalFailure()) return;
    channel_ = make_channel();
    sender_ = make_member();
    receiver_ = make_member();
    memory_ = Memory(receiver_.get(), 2048);
  }
  CmId make_member(bool with_qp = true) {
    CmId id = make_bound_id(RDMA_PS_UDP, channel_.get());
    if (with_qp) create_qp(id, IBV_QPT_UD);
    return id;
  }
  int join(const CmId& id, void* context = nullptr) {
    errno = 0;
    return error_of(rdma_join_multicast(id.get(), group_.get(), context));
  }
  int join_as(const CmId& id, uint32_t flags, uint32_t mask = 3) {
    rdma_cm_join_mc_attr_ex attr = {.comp_mask = mask, .join_flags = flags, .addr = group_.get()};
    errno = 0;
    return error_of(rdma_join_multicast_ex(id.get(), &attr, nullptr));
  }
  // What the event says.
  rdma_ud_param joined() {
    const Event event = next_event(channel_.get());
    EXPECT_EQ(name_of(event), "RDMA_CM_EVENT_MULTICAST_JOIN");
    return event != nullptr ? event->param.ud : rdma_ud_param{};
  }
  // From `sender_` to the group; by then it has arrived wherever it does.
  void send(const rdma_ud_param& group, char word) {
    rdma_ud_param to = group;
    const Ah ah(ibv_create_ah(sender_->pd, &to.ah_attr));
    ASSERT_NE(ah, nullptr) << strerror(errno);
    ASSERT_EQ(
        rdma_post_ud_send(sender_.get(), nullptr, &word, 1, nullptr, IBV_SEND_INLINE, ah.get(), to.qp_num),
        0);
    ibv_wc wc;
    ASSERT_EQ(rdma_get_send_comp(sender_.get(), &wc), 1);
    ASSERT_EQ(wc.status, IBV_WC_SUCCESS);
  }
  void receive() {
    ASSERT_EQ(rdma_post_recv(receiver_.get(), nullptr, memory_.data(), 2048, memory_.mr()), 0);
  }
  bool has_received() const {
    ibv_wc wc;
    return ibv_poll_cq(receiver_->recv_cq, 1, &wc) == 1;
  }

  Address group_{"239.77.1.2", 0};
  EventChannel channel_;  // outlives the ids
  CmId sender_, receiver_;
  Memory memory_;
};

TEST_F(RdmaJoinMulticast, TheEventNamesTheGroup) {
  ASSERT_EQ(join(receiver_), 0);
  const rdma_ud_param group = joined();
  EXPECT_EQ(group.qp_num, 0xffffffu);
  EXPECT_EQ(group.qkey, static_cast<uint32_t>(RDMA_UDP_QKEY));
  EXPECT_EQ(group.ah_attr.is_global, 1);
  EXPECT_EQ(group.ah_attr.grh.dgid.raw[15], 2) << "made of the address";
}

TEST_F(RdmaJoinMulticast, AnAddressThatIsNoneIsMinusOneAndEinval) {
  group_.get()->sa_family = AF_UNIX;
  EXPECT_EQ(join(receiver_), EINVAL);
}

TEST_F(RdmaJoinMulticast, BeforeTheIdIsBoundItIsMinusOneAndEinval) {
  EXPECT_EQ(join(make_id(RDMA_PS_UDP, channel_.get())), EINVAL);
}

TEST_F(RdmaJoinMulticast, AMaskThatIsNoneIsMinusOneAndEnotsup) {
  EXPECT_EQ(join_as(receiver_, RDMA_MC_JOIN_FLAG_FULLMEMBER, 7), ENOTSUP);
}

TEST_F(RdmaJoinMulticast, FlagsThatAreNoneAreMinusOneAndEinval) {
  EXPECT_EQ(join_as(receiver_, RDMA_MC_JOIN_FLAG_RESERVED), EINVAL);
}

// rdma_leave_multicast (cma.c, 44.0) keeps the list of what was joined.
TEST_F(RdmaJoinMulticast, LeavingAGroupOfOthersIsMinusOneAndEaddrnotavail) {
  errno = 0;
  EXPECT_EQ(rdma_leave_multicast(receiver_.get(), group_.get()), -1);
  EXPECT_EQ(errno, EADDRNOTAVAIL);
}

TEST_F(RdmaJoinMulticast, ADestroyedIdHasLeft) {
  ASSERT_EQ(join(receiver_), 0);
  const rdma_ud_param group = joined();
  memory_ = {};
  receiver_ = make_member();
  memory_ = Memory(receiver_.get(), 2048);
  receive();
  send(group, 'x');
  EXPECT_FALSE(has_received());
}

}  // namespace
}  // namespace verbena::pages
