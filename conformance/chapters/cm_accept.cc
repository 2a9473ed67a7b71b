// SPDX-License-Identifier: BSD-2-Clause
//
// rdma_cm: accepting, rejecting, disconnecting, establishing by hand.
#include <algorithm>

#include "support/cm.h"

namespace conformance::cm_accept_chapter {
namespace {

using namespace std::chrono_literals;

class Fixture : public CmTest {
 protected:
  // As IBV_QP_STATE `state` of rdma_init_qp_attr.
  void bring_to(ibv_qp* qp, ibv_qp_state state) {
    ibv_qp_attr attr = {};
    attr.qp_state = state;
    int mask = 0;
    ASSERT_SUCCEEDS(rdma_init_qp_attr(near_, &attr, &mask));
    EXPECT_EQ(attr.qp_state, state);
    EXPECT_TRUE(mask & IBV_QP_STATE);
    ASSERT_SUCCEEDS(ibv_modify_qp(qp, &attr, mask));
  }
  // near_ has accepted; the far end has not looked at it.
  void be_asked_and_accept() {
    be_asked();
    make_qp(near_);
    ASSERT_EQ(accept(), 0);
  }
  // So many bytes are accepted and arrive, one more is refused.
  void expect_limit(rdma_port_space space, size_t most) {
    only_infiniband();
    be_asked({}, space);
    make_qp(near_);
    EXPECT_NE(accept({.data = pattern(most + 1)}), 0) << most + 1 << " bytes are taken";
    be_asked({}, space);  // the first request may have been refused by that
    make_qp(near_);
    ASSERT_EQ(accept({.data = pattern(most)}), 0);
    EXPECT_TRUE(begins_with(far().event(RDMA_CM_EVENT_ESTABLISHED).data, pattern(most)));
  }
};

CONFORMANCE_TEST(cm_connect, RequestHasANewIdentifier, "rdma_accept.new-id", "rdma_accept.zero",
                 "rdma_connect.request", "rdma_connect.established") {
  {
    const CmEvent event = be_asked();  // "rdma_connect.request": all the others need it
    const About about("rdma_accept.new-id");
    EXPECT_EQ(event->listen_id, listener_);
    EXPECT_NE(event->id, listener_);
    EXPECT_EQ(event->id->channel, channel());
    EXPECT_NE(event->id->verbs, nullptr);
    EXPECT_NE(event->id->port_num, 0);
  }
  make_qp(near_);
  ABOUT("rdma_accept.zero") EXPECT_EQ(accept(), 0);
  const About about("rdma_connect.established");
  far().event(RDMA_CM_EVENT_ESTABLISHED);
  EXPECT_EQ(next_event(channel(), RDMA_CM_EVENT_ESTABLISHED)->id, near_);
}

CONFORMANCE_TEST(cm_connect, WithoutParametersTheRequestsAreUsed, "rdma_accept.null-param") {
  only_infiniband();
  ConnectionSpec spec;
  spec.responder_resources = std::min(responder_resources(3), initiator_depth(3));
  spec.initiator_depth = std::min(responder_resources(2), initiator_depth(2));
  be_asked(spec);
  make_qp(near_);
  ASSERT_SUCCEEDS(rdma_accept(near_, nullptr));
  const EventFacts response = far().event(RDMA_CM_EVENT_ESTABLISHED);
  EXPECT_EQ(response.connection.responder_resources, spec.responder_resources);
  EXPECT_EQ(response.connection.initiator_depth, spec.initiator_depth);
}

CONFORMANCE_TEST(cm_connect, PrivateDataOfTheAcceptArrive, "rdma_accept.private-data",
                 "rdma_connect.private-data-padding") {
  be_asked();
  make_qp(near_);
  ASSERT_EQ(accept({.data = pattern(100)}), 0);
  const EventFacts response = far().event(RDMA_CM_EVENT_ESTABLISHED);
  EXPECT_TRUE(begins_with(response.data, pattern(100)));
  const About about("rdma_connect.private-data-padding");
  for (size_t i = 100; i < response.data.size(); ++i) ASSERT_EQ(response.data[i], 0) << "byte " << i;
}

CONFORMANCE_TEST(cm_connect, PrivateDataOfAnAcceptOfTcpAre196, "rdma_accept.private-data-limit-tcp") {
  expect_limit(RDMA_PS_TCP, 196);
}

CONFORMANCE_TEST(cm_connect, PrivateDataOfAnAcceptOfUdpAre136, "rdma_accept.private-data-limit-udp") {
  expect_limit(RDMA_PS_UDP, 136);
}

CONFORMANCE_TEST(cm_connect, RetryCountOfAnAcceptIsIgnored, "rdma_accept.retry-ignored") {
  only_infiniband();
  ConnectionSpec asked, answered;
  asked.retry_count = 5;
  answered.retry_count = 2;
  be_asked(asked);
  make_qp(near_);
  ASSERT_EQ(accept(answered), 0);
  far().event(RDMA_CM_EVENT_ESTABLISHED);
  EXPECT_EQ(attributes_of(near_->qp).retry_cnt, 5);
  EXPECT_EQ(far().queue().retry_cnt, 5);
}

CONFORMANCE_TEST(cm_connect, ListenerItselfAcceptsNothing, "rdma_accept.listener") {
  be_asked();
  rdma_conn_param parameters = ConnectionSpec{}.parameters();
  EXPECT_MINUS_ONE(rdma_accept(listener_, &parameters));
}

CONFORMANCE_TEST(cm_connect, RejectionArrives, "rdma_reject.event", "rdma_reject.private-data",
                 "rdma_reject.zero", "rdma_get_cm_event.status-error") {
  be_asked();
  const auto words = pattern(140);
  ASSERT_SUCCEEDS(rdma_reject(near_, words.data(), static_cast<uint8_t>(words.size())));
  const EventFacts event = far().event();
  ABOUT("rdma_reject.event") EXPECT_EQ(event.type, RDMA_CM_EVENT_REJECTED);
  ABOUT("rdma_get_cm_event.status-error") EXPECT_NE(event.status, 0);
  const About about("rdma_reject.private-data");
  EXPECT_TRUE(begins_with(event.data, words));
}

CONFORMANCE_TEST(cm_connect, RejectionOfALookupArrives, "rdma_reject.zero", "rdma_get_cm_event.unreachable",
                 "rdma_get_cm_event.status-error") {
  be_asked({}, RDMA_PS_UDP);
  ABOUT("rdma_reject.zero") ASSERT_SUCCEEDS(rdma_reject(near_, nullptr, 0));
  const EventFacts event = far().event();
  ABOUT("rdma_get_cm_event.unreachable") EXPECT_EQ(event.type, RDMA_CM_EVENT_UNREACHABLE);
  ABOUT("rdma_get_cm_event.status-error") EXPECT_NE(event.status, 0);
}

CONFORMANCE_TEST(cm_connect, DisconnectingTellsBothSides, "rdma_disconnect.event", "rdma_disconnect.zero") {
  establish();
  ABOUT("rdma_disconnect.zero") ASSERT_SUCCEEDS(rdma_disconnect(near_));
  ABOUT("rdma_disconnect.event") far().event(RDMA_CM_EVENT_DISCONNECTED);
  const int answered = far().disconnect();
  if (is_infiniband(near_)) {  // on iWARP the peer has closed the connection: there is none any more
    ABOUT("rdma_disconnect.zero") EXPECT_EQ(answered, 0);
  }
  ABOUT("rdma_disconnect.event") EXPECT_EQ(next_event(channel(), RDMA_CM_EVENT_DISCONNECTED)->id, near_);
}

CONFORMANCE_TEST(cm_connect, TheOtherMayDisconnectFirst, "rdma_disconnect.event") {
  establish();
  ASSERT_EQ(far().disconnect(), 0);
  next_event(channel(), RDMA_CM_EVENT_DISCONNECTED);
  const int answered = CALL(rdma_disconnect(near_));
  if (is_infiniband(near_)) {  // on iWARP there is no connection any more
    EXPECT_TRUE(succeeded(answered));
  }
  far().event(RDMA_CM_EVENT_DISCONNECTED);
}

CONFORMANCE_TEST(cm_connect, DisconnectingFlushes, "rdma_disconnect.flush") {
  establish();
  const Buffer buffer(64);
  const Mr mr = make_mr(near_->pd, buffer);
  ASSERT_SUCCEEDS(rdma_post_recv(near_, nullptr, buffer.data(), 64, mr));
  ASSERT_SUCCEEDS(rdma_disconnect(near_));
  EXPECT_EQ(completion(near_->recv_cq).status, IBV_WC_WR_FLUSH_ERR);
  if (is_infiniband(near_)) {  // the library takes another QP to SQD only, and its connection manager further
    EXPECT_EQ(attributes_of(near_->qp).qp_state, IBV_QPS_ERR);
  }
}

CONFORMANCE_TEST(cm_connect, DisconnectingTheUnconnectedIsRefused, "rdma_disconnect.unconnected") {
  near_ = make_bound();
  EXPECT_MINUS_ONE(rdma_disconnect(near_));
}

// Linux waits for twice the packets' life time and the ACK delay (cm_enter_timewait in
// drivers/infiniband/core/ cm.c): some seconds.
CONFORMANCE_TEST_AS(Traits().slow().limit(40), cm_connect, TimewaitEnds, "rdma_disconnect.timewait") {
  only_infiniband();
  establish();
  ASSERT_SUCCEEDS(rdma_disconnect(near_));
  far().event(RDMA_CM_EVENT_DISCONNECTED);
  ASSERT_EQ(far().disconnect(), 0);
  next_event(channel(), RDMA_CM_EVENT_DISCONNECTED);
  ASSERT_TRUE(becomes_readable(channel()->fd, 30s)) << "no event within 30 s";
  EXPECT_EQ(next_event(channel(), RDMA_CM_EVENT_TIMEWAIT_EXIT)->id, near_);
}

CONFORMANCE_TEST(cm_connect, EstablishedByHand, "rdma_establish.response", "rdma_establish.passive",
                 "rdma_init_qp_attr.values") {
  only_infiniband();
  near_ = make_id();
  resolve(near_, far().listen());
  // Not make_cq(): the rdma_cm has contexts of its own.
  Cq own_cq(
      CALL(ibv_create_cq(near_->verbs, std::min(16, device().attributes().max_cqe), nullptr, nullptr, 0)));
  ASSERT_NE(own_cq, nullptr);
  Qp qp = conformance::make_qp(near_->pd, own_cq);
  ConnectionSpec spec;
  spec.qp_num = qp->qp_num;
  ASSERT_EQ(connect(spec), 0);
  EXPECT_EQ(far().take_request().connection.qp_num, qp->qp_num);
  far().make_qp();
  ASSERT_EQ(far().accept(), 0);
  {
    const About about("rdma_establish.response");
    const CmEvent event = next_event(channel(), RDMA_CM_EVENT_CONNECT_RESPONSE);
    EXPECT_EQ(event->param.conn.qp_num, far().qp_number());
  }
  {
    const About about("rdma_init_qp_attr.values");
    for (const ibv_qp_state state : {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS}) bring_to(qp, state);
    EXPECT_EQ(attributes_of(qp).dest_qp_num, far().qp_number());
  }
  const About about("rdma_establish.passive");
  EXPECT_TRUE(far().stays_quiet()) << "before rdma_establish";
  ASSERT_SUCCEEDS(rdma_establish(near_));
  far().event(RDMA_CM_EVENT_ESTABLISHED);
}

// Enhanced Connection Establishment: for QPs that the rdma_cm does not manage.
CONFORMANCE_TEST(cm_connect, OptionsOfTheConnectionArrive, "rdma_set_local_ece.zero",
                 "rdma_get_remote_ece.request", "rdma_get_remote_ece.response") {
  only_infiniband();
  near_ = make_id();
  resolve(near_, far().listen());
  ibv_ece asked = {0x123456, 0x55, 0}, seen = {};
  const ibv_ece answered = {0x123456, 0x11, 0};
  ASSERT_SUCCEEDS(rdma_set_local_ece(near_, &asked));
  ASSERT_EQ(connect({.qp_num = 0x111111}), 0);
  far().take_request();
  seen = far().remote_ece();
  {
    const About about("rdma_get_remote_ece.request");
    EXPECT_EQ(seen.vendor_id, asked.vendor_id);
    EXPECT_EQ(seen.options, asked.options);
  }
  ASSERT_EQ(far().set_ece(answered), 0);
  ASSERT_EQ(far().accept({.qp_num = 0x222222}), 0);
  const About about("rdma_get_remote_ece.response");
  next_event(channel(), RDMA_CM_EVENT_CONNECT_RESPONSE);
  ASSERT_SUCCEEDS(rdma_get_remote_ece(near_, &seen));
  EXPECT_EQ(seen.vendor_id, answered.vendor_id);
  EXPECT_EQ(seen.options, answered.options);
}

CONFORMANCE_TEST(cm_connect, NotifyEstablishes, "rdma_notify.established", "rdma_notify.eisconn") {
  only_infiniband();
  be_asked_and_accept();
  ASSERT_SUCCEEDS(rdma_notify(near_, IBV_EVENT_COMM_EST));
  next_event(channel(), RDMA_CM_EVENT_ESTABLISHED);
  const About about("rdma_notify.eisconn");
  EXPECT_TRUE(minus_one(CALL(rdma_notify(near_, IBV_EVENT_COMM_EST)), {EISCONN}));
}

CONFORMANCE_TEST(cm_connect, NotifyAfterTheEvent, "rdma_notify.eisconn") {
  only_infiniband();
  be_asked_and_accept();
  far().event(RDMA_CM_EVENT_ESTABLISHED);
  next_event(channel(), RDMA_CM_EVENT_ESTABLISHED);
  EXPECT_TRUE(minus_one(CALL(rdma_notify(near_, IBV_EVENT_COMM_EST)), {EISCONN}));
}

}  // namespace
}  // namespace conformance::cm_accept_chapter
