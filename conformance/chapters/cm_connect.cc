// SPDX-License-Identifier: BSD-2-Clause
//
// rdma_cm: what rdma_connect asks for, and what of it arrives.
#include <cerrno>

#include "suite/family.h"
#include "support/cm.h"

namespace conformance::cm_connect_chapter {
namespace {

class Fixture : public CmTest {
 protected:
  ConnectionSpec with_data(size_t length) { return {.data = pattern(length)}; }
  static bool is_padding(const std::vector<uint8_t>& bytes, size_t from) {
    for (size_t i = from; i < bytes.size(); ++i)
      if (bytes[i] != 0) return false;
    return true;
  }
  // So many bytes are accepted and arrive, one more is refused.
  void expect_limit(rdma_port_space space, size_t most) {
    only_infiniband();
    prepare(space);
    EXPECT_NE(connect(with_data(most + 1)), 0) << most + 1 << " bytes are taken";
    ASSERT_EQ(connect(with_data(most)), 0);
    EXPECT_TRUE(begins_with(far().take_request().data, pattern(most)));
  }
  // The response to the request; sends arrive after it.
  EventFacts expect_accepted(const ConnectionSpec& spec = {}) {
    far().make_qp();
    EXPECT_EQ(far().accept(spec), 0);
    return facts_of(*next_event(channel(), RDMA_CM_EVENT_ESTABLISHED));
  }
};

CONFORMANCE_TEST(cm_connect, RequestAndEstablished, "rdma_connect.zero", "rdma_connect.request",
                 "rdma_connect.established", "rdma_get_cm_event.status-0", "rdma_connect.qp-num",
                 "rdma_accept.zero", "rdma_create_qp.transitions") {
  prepare();
  ASSERT_EQ(connect(), 0);
  const EventFacts request = far().take_request();
  ABOUT("rdma_get_cm_event.status-0") EXPECT_EQ(request.status, 0);
  const bool is_told = is_infiniband(near_);
  ABOUT("rdma_connect.qp-num") {
    if (is_told) {
      EXPECT_EQ(request.connection.qp_num, near_->qp->qp_num);
    } else {
      not_claimed("iWARP's messages carry no QP number");
    }
  }
  far().make_qp();
  ABOUT("rdma_accept.zero") ASSERT_EQ(far().accept(), 0);
  ABOUT("rdma_connect.established") {
    const CmEvent event = next_event(channel(), RDMA_CM_EVENT_ESTABLISHED);
    EXPECT_EQ(event->id, near_);
    ABOUT("rdma_get_cm_event.status-0") EXPECT_EQ(event->status, 0);
    if (is_told) {
      ABOUT("rdma_connect.qp-num") EXPECT_EQ(event->param.conn.qp_num, far().qp_number());
    }
    const EventFacts there = far().event(RDMA_CM_EVENT_ESTABLISHED);
    ABOUT("rdma_get_cm_event.status-0") EXPECT_EQ(there.status, 0);
  }
  const About about("rdma_create_qp.transitions");
  ASSERT_EQ(far().post_receive(0, 64), 0);
  const Buffer buffer(8);
  const Mr mr = make_mr(near_->pd, buffer);
  ASSERT_SUCCEEDS(rdma_post_send(near_, nullptr, buffer.data(), 8, mr, 0));
  EXPECT_EQ(completion(near_->send_cq).status, IBV_WC_SUCCESS);
  EXPECT_EQ(far().received().status, IBV_WC_SUCCESS);
}

CONFORMANCE_TEST(cm_connect, BeforeTheRouteItIsRefused, "rdma_connect.before-route") {
  const SocketAddress to = far().listen();
  near_ = make_id();
  ASSERT_SUCCEEDS(rdma_resolve_addr(near_, nullptr, to.get(), resolve_milliseconds()));
  next_event(channel(), RDMA_CM_EVENT_ADDR_RESOLVED);
  rdma_conn_param parameters = ConnectionSpec{}.parameters();
  EXPECT_MINUS_ONE(rdma_connect(near_, &parameters));
}

CONFORMANCE_TEST(cm_connect, PrivateDataArrive, "rdma_connect.private-data",
                 "rdma_connect.private-data-padding") {
  for (const size_t length : {1u, 17u, 56u}) {
    const EventFacts request = ask(with_data(length));
    EXPECT_TRUE(begins_with(request.data, pattern(length)));
    const About about("rdma_connect.private-data-padding");
    EXPECT_TRUE(is_padding(request.data, length)) << "after " << length << " bytes";
  }
}

CONFORMANCE_TEST(cm_connect, PrivateDataOfADatagramRequestArrive, "rdma_connect.private-data",
                 "rdma_connect.private-data-padding") {
  for (const size_t length : {1u, 180u}) {
    const EventFacts request = ask(with_data(length), RDMA_PS_UDP);
    EXPECT_TRUE(begins_with(request.data, pattern(length)));
    const About about("rdma_connect.private-data-padding");
    EXPECT_TRUE(is_padding(request.data, length)) << "after " << length << " bytes";
  }
}

CONFORMANCE_TEST(cm_connect, PrivateDataOfTcpAre56, "rdma_connect.private-data-limit-tcp") {
  expect_limit(RDMA_PS_TCP, 56);
}

CONFORMANCE_TEST(cm_connect, PrivateDataOfUdpAre180, "rdma_connect.private-data-limit-udp") {
  expect_limit(RDMA_PS_UDP, 180);
}

CONFORMANCE_TEST(cm_connect, WithoutPrivateDataThePointerIsNull, "rdma_get_cm_event.no-private-data") {
  const auto consistent = [](const EventFacts& facts) {
    return facts.has_data == !facts.data.empty() && is_padding(facts.data, 0);
  };
  EXPECT_TRUE(consistent(ask())) << "the request";
  far().make_qp();
  ASSERT_EQ(far().accept(), 0);
  EXPECT_TRUE(consistent(facts_of(*next_event(channel(), RDMA_CM_EVENT_ESTABLISHED)))) << "the response";
  EXPECT_TRUE(consistent(far().event(RDMA_CM_EVENT_ESTABLISHED))) << "at the passive side";
}

CONFORMANCE_TEST(cm_connect, DepthsArriveCrosswise, "rdma_connect.responder-resources",
                 "rdma_connect.initiator-depth") {
  only_infiniband();
  ConnectionSpec near, back;
  near.responder_resources = responder_resources(3);
  near.initiator_depth = initiator_depth(2);
  const EventFacts request = ask(near);
  EXPECT_EQ(request.connection.responder_resources, near.initiator_depth);
  {
    const About about("rdma_connect.initiator-depth");
    EXPECT_EQ(request.connection.initiator_depth, near.responder_resources);
  }
  back.responder_resources = responder_resources(2);
  back.initiator_depth = initiator_depth(1);
  const EventFacts response = expect_accepted(back);
  EXPECT_EQ(response.connection.responder_resources, back.initiator_depth);
  const About about("rdma_connect.initiator-depth");
  EXPECT_EQ(response.connection.initiator_depth, back.responder_resources);
}

CONFORMANCE_TEST(cm_connect, DepthsBeyondTheLimits, "rdma_connect.depth-limit") {
  const int resources = device().attributes().max_qp_rd_atom,
            depth = device().attributes().max_qp_init_rd_atom;
  // RDMA_MAX_RESP_RES and RDMA_MAX_INIT_DEPTH have the value 255 for themselves.
  if (resources >= 254 || depth >= 254) throw NotTested{"the device's limits are all that a byte can say"};
  for (const bool of_responder : {true, false}) {
    prepare();
    ConnectionSpec spec;
    (of_responder ? spec.responder_resources : spec.initiator_depth) =
        static_cast<uint8_t>((of_responder ? resources : depth) + 1);
    if (connect(spec) != 0) continue;
    const EventFacts request = far().take_request();
    EXPECT_LE(request.connection.initiator_depth, resources);
    EXPECT_LE(request.connection.responder_resources, depth);
  }
}

CONFORMANCE_TEST(cm_connect, FlowControlArrives, "rdma_connect.flow-control") {
  only_infiniband();
  for (const uint8_t wanted : {uint8_t{0}, uint8_t{1}}) {
    ConnectionSpec spec;
    spec.flow_control = wanted;
    EXPECT_EQ(ask(spec).connection.flow_control, wanted);
    EXPECT_EQ(expect_accepted(spec).connection.flow_control, wanted);
    far().event(RDMA_CM_EVENT_ESTABLISHED);
  }
}

CONFORMANCE_TEST(cm_connect, RetryCounts, "rdma_connect.retry-count", "rdma_connect.rnr-retry",
                 "rdma_connect.rnr-timer") {
  only_infiniband();
  ConnectionSpec spec;
  spec.retry_count = 5;
  spec.rnr_retry_count = 3;
  const EventFacts request = ask(spec);
  ABOUT("rdma_connect.retry-count") EXPECT_EQ(request.connection.retry_count, 5);
  expect_accepted();
  ABOUT("rdma_connect.retry-count") EXPECT_EQ(attributes_of(near_->qp).retry_cnt, 5);
  {
    const About about("rdma_connect.rnr-retry");
    EXPECT_EQ(request.connection.rnr_retry_count, 3);
    EXPECT_EQ(far().queue().rnr_retry, 3) << "of the peer's sends";
  }
  const About about("rdma_connect.rnr-timer");
  EXPECT_EQ(attributes_of(near_->qp).min_rnr_timer, 0);
  EXPECT_EQ(far().queue().min_rnr_timer, 0);
}

CONFORMANCE_TEST(cm_connect, RetryCountsAreOfThreeBits, "rdma_connect.retry-3-bits") {
  only_infiniband();
  ConnectionSpec spec;
  spec.retry_count = spec.rnr_retry_count = 200;
  prepare();
  if (connect(spec) != 0) return;  // refused: the page does not say that they are cut
  const EventFacts request = far().take_request();
  EXPECT_LE(request.connection.retry_count, 7);
  EXPECT_LE(request.connection.rnr_retry_count, 7);
}

// The far end allows no retry: a send that finds no receive fails at the first RNR NAK.
CONFORMANCE_TEST(cm_connect, RnrRetryCountLimitsTheTries, "rdma_connect.rnr-retry") {
  only_infiniband();
  ConnectionSpec impatient;
  impatient.rnr_retry_count = 0;
  establish({}, impatient);
  const Buffer buffer(8);
  const Mr mr = make_mr(near_->pd, buffer);
  ASSERT_SUCCEEDS(rdma_post_send(near_, nullptr, buffer.data(), 8, mr, 0));
  EXPECT_NE(completion(near_->send_cq).status, IBV_WC_SUCCESS);  // which status: retry.rnr.status
}

CONFORMANCE_TEST(cm_connect, QpOfTheIdentifierCounts, "rdma_connect.srq-ignored", "rdma_connect.qp-num") {
  only_infiniband();
  ConnectionSpec spec;
  spec.srq = 1;
  spec.qp_num = 0x123456;
  const EventFacts request = ask(spec);
  ABOUT("rdma_connect.qp-num") EXPECT_EQ(request.connection.qp_num, near_->qp->qp_num);
  ABOUT("rdma_connect.srq-ignored") EXPECT_EQ(request.connection.srq, 0);
}

CONFORMANCE_TEST(cm_connect, WithoutAListenerItIsRejected, "rdma_connect.no-listener",
                 "rdma_get_cm_event.status-error") {
  const SocketAddress nobody = far().reserve();
  near_ = make_id();
  resolve(near_, nobody);
  make_qp(near_);
  const int error = connect();
  const About about("rdma_connect.no-listener");
  if (error != 0) {  // the call may wait for TCP's answer
    EXPECT_EQ(error, ECONNREFUSED) << errno_text(error);
    const About status("rdma_get_cm_event.status-error");
    throw NotTested{"rdma_connect itself says that the connection is refused: there is no event"};
  }
  const CmEvent event = next_event(channel());
  EXPECT_EQ(event->event, RDMA_CM_EVENT_REJECTED);
  ABOUT("rdma_get_cm_event.status-error") EXPECT_NE(event->status, 0);
}

CONFORMANCE_TEST(cm_connect, WithoutAListenerADatagramServiceIsUnreachable, "rdma_connect.no-listener",
                 "rdma_get_cm_event.unreachable", "rdma_get_cm_event.status-error") {
  near_ = make_bound(RDMA_PS_UDP);
  make_qp(near_);  // without UD there is nothing to look up
  near_ = make_id(RDMA_PS_UDP);
  resolve(near_, far().reserve(RDMA_PS_UDP));
  make_qp(near_);
  ASSERT_EQ(connect(), 0);
  const CmEvent event = next_event(channel());
  ABOUT("rdma_get_cm_event.unreachable") EXPECT_EQ(event->event, RDMA_CM_EVENT_UNREACHABLE);
  ABOUT("rdma_get_cm_event.status-error") EXPECT_NE(event->status, 0);
}

CONFORMANCE_TEST(cm_connect, DatagramServiceIsLookedUp, "rdma_get_cm_event.ud-data",
                 "rdma_accept.private-data") {
  const EventFacts found = look_up({.data = pattern(136)});
  {
    const About about("rdma_accept.private-data");
    EXPECT_TRUE(begins_with(found.data, pattern(136)));
  }
  const About about("rdma_get_cm_event.ud-data");
  EXPECT_EQ(found.datagram.qp_num, far().qp_number());
  const Ah ah = address_handle(found);
  ASSERT_EQ(far().post_receive(0, 256), 0);
  const Buffer buffer(8);
  const Mr mr = make_mr(near_->pd, buffer);
  // With the Q_Key of the event, which need not be that of rdma_post_ud_send.
  ibv_sge element = {buffer.address(), 8, mr->lkey};
  ibv_send_wr wr = {}, *bad = nullptr;
  wr.sg_list = &element;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_SEND;
  wr.wr.ud = {ah, found.datagram.qp_num, found.datagram.qkey};
  ASSERT_SUCCEEDS(ibv_post_send(near_->qp, &wr, &bad));
  EXPECT_EQ(completion(near_->send_cq).status, IBV_WC_SUCCESS);
  const ibv_wc wc = far().received();
  EXPECT_EQ(wc.byte_len, 48u);
  EXPECT_EQ(wc.src_qp, near_->qp->qp_num);
  EXPECT_EQ(far().bytes(40, 8), std::vector<uint8_t>(8, Buffer::untouched));
}

// An id that has no QP to connect any more refuses the response (ucma_process_conn_resp in rdma-core's
// librdmacm/cma.c).
CONFORMANCE_TEST(cm_connect, QpThatCannotConnectIsAnError, "rdma_get_cm_event.conn-error",
                 "rdma_get_cm_event.status-error") {
  only_infiniband();
  need_family("family.init-err");
  ask();
  far().make_qp();
  ibv_qp_attr attr = {};
  attr.qp_state = IBV_QPS_ERR;
  ASSERT_SUCCEEDS(ibv_modify_qp(near_->qp, &attr, IBV_QP_STATE));
  ASSERT_EQ(far().accept(), 0);
  const About about("rdma_get_cm_event.conn-error");
  const CmEvent event = next_event(channel());
  EXPECT_EQ(event->event, RDMA_CM_EVENT_CONNECT_ERROR);
  ABOUT("rdma_get_cm_event.status-error") EXPECT_NE(event->status, 0);
}

}  // namespace
}  // namespace conformance::cm_connect_chapter
