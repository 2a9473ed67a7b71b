// SPDX-License-Identifier: BSD-2-Clause
//
// rdma_cm: QPs and SRQs of identifiers; endpoints.
#include <thread>

#include "support/cm.h"

namespace conformance {
namespace {

using namespace std::chrono_literals;

class Fixture : public CmTest {
 protected:
  static ibv_srq_init_attr srq_attributes() { return {nullptr, {8, 1, 0}}; }
  void claims_srq() {
    if (device().attributes().max_srq == 0) throw NotClaimed{"max_srq is 0"};
  }
  // near_ is bound, with an SRQ.
  void make_srq() {
    claims_srq();
    near_ = make_bound();
    ibv_srq_init_attr attr = srq_attributes();
    ASSERT_SUCCEEDS(rdma_create_srq(near_, nullptr, &attr));
    ASSERT_NE(near_->srq, nullptr);
  }
  static AddressInfo look_up(const SocketAddress& address, int flags) {
    rdma_addrinfo hints = {}, *found = nullptr;
    hints.ai_flags = flags | RAI_NUMERICHOST;
    hints.ai_port_space = RDMA_PS_TCP;
    const std::string port = std::to_string(address.port());
    EXPECT_SUCCEEDS(rdma_getaddrinfo(address.host().c_str(), port.c_str(), &hints, &found));
    if (found == nullptr) throw Deviation{"rdma_getaddrinfo of " + address.host(), Where::current()};
    return AddressInfo(found);
  }
  // An endpoint with a QP of a few requests; `depth` 0: without.
  static CmId make_endpoint(const AddressInfo& info, uint32_t depth, ibv_pd* pd = nullptr) {
    QpSpec spec;
    spec.send_depth = spec.receive_depth = depth;
    ibv_qp_init_attr attr = init_attributes(spec, nullptr, nullptr);
    rdma_cm_id* id = nullptr;
    if (CALL(rdma_create_ep(&id, info, pd, depth > 0 ? &attr : nullptr)) != 0)
      throw Deviation{"rdma_create_ep gives -1, " + errno_text(errno), Where::current()};
    return CmId(id);
  }
  CmId make_active(uint32_t depth = 4) { return make_endpoint(look_up(far().listen(), 0), depth); }
  CmId make_passive(uint32_t depth = 4, ibv_pd* pd = nullptr) {
    return make_endpoint(look_up(address(), RAI_PASSIVE), depth, pd);
  }
  // The far end asks it; what rdma_get_request gives.
  CmId take_request(rdma_cm_id* listener, const ConnectionSpec& spec = {}) {
    far().resolve(local_address(listener));
    far().make_qp();
    EXPECT_EQ(far().connect(spec), 0);
    rdma_cm_id* id = nullptr;
    if (CALL(rdma_get_request(listener, &id)) != 0)
      throw Deviation{"rdma_get_request gives -1, " + errno_text(errno), Where::current()};
    return CmId(id);
  }
};

CONFORMANCE_TEST(cm_connect, QpOfTheDefaultPd, "rdma_create_qp.zero", "rdma_create_qp.default-pd",
                 "rdma_create_qp.cqs", "rdma_create_qp.once") {
  const CmId id = make_bound(), other = make_bound();
  ibv_qp_init_attr attr = queue_attributes(id);
  ASSERT_SUCCEEDS(rdma_create_qp(id, nullptr, &attr));
  ASSERT_NE(id->qp, nullptr);
  {
    const About about("rdma_create_qp.default-pd");
    EXPECT_EQ(id->qp->pd, id->pd);
    make_qp(other);
    EXPECT_EQ(other->qp->pd, id->qp->pd) << "one for each device";
  }
  {
    const About about("rdma_create_qp.cqs");
    ASSERT_NE(id->send_cq, nullptr);
    ASSERT_NE(id->recv_cq, nullptr);
    EXPECT_EQ(id->qp->send_cq, id->send_cq);
    EXPECT_EQ(id->qp->recv_cq, id->recv_cq);
    ASSERT_NE(id->send_cq_channel, nullptr);
    ASSERT_NE(id->recv_cq_channel, nullptr);
    EXPECT_EQ(id->send_cq->channel, id->send_cq_channel);
    EXPECT_EQ(id->recv_cq->channel, id->recv_cq_channel);
  }
  const About about("rdma_create_qp.once");
  ibv_qp_init_attr again = queue_attributes(id);
  EXPECT_MINUS_ONE(rdma_create_qp(id, nullptr, &again));
}

CONFORMANCE_TEST(cm_connect, QpOfTheCqGiven, "rdma_create_qp.cqs") {
  CmId id = make_bound();
  const Cq cq(CALL(ibv_create_cq(id->verbs, 8, nullptr, nullptr, 0)));
  ASSERT_NE(cq, nullptr);
  ibv_qp_init_attr attr = queue_attributes(id);
  attr.send_cq = cq;
  ASSERT_SUCCEEDS(rdma_create_qp(id, nullptr, &attr));
  EXPECT_EQ(id->qp->send_cq, cq);
  EXPECT_EQ(id->send_cq, nullptr) << "only what the library made is in the identifier";
  EXPECT_EQ(id->qp->recv_cq, id->recv_cq);
  id = CmId();  // before its CQ
}

CONFORMANCE_TEST(cm_connect, ActualCapabilitiesAreReturned, "rdma_create_qp.cap") {
  const CmId id = make_bound();
  QpSpec spec;
  spec.send_depth = 5;
  spec.receive_depth = 3;
  ibv_qp_init_attr attr = queue_attributes(id, spec);
  const ibv_qp_cap asked = attr.cap;
  ASSERT_SUCCEEDS(rdma_create_qp(id, nullptr, &attr));
  EXPECT_GE(attr.cap.max_send_wr, asked.max_send_wr);
  EXPECT_GE(attr.cap.max_recv_wr, asked.max_recv_wr);
  const ibv_qp_cap actual = attributes_of(id->qp).cap;
  EXPECT_EQ(attr.cap.max_send_wr, actual.max_send_wr);
  EXPECT_EQ(attr.cap.max_recv_wr, actual.max_recv_wr);
  EXPECT_EQ(attr.cap.max_send_sge, actual.max_send_sge);
  EXPECT_EQ(attr.cap.max_recv_sge, actual.max_recv_sge);
}

CONFORMANCE_TEST(cm_connect, QpTakesReceivesAtOnce, "rdma_create_qp.receives",
                 "rdma_post_recv.before-connected") {
  const CmId id = make_bound();
  make_qp(id);
  const Buffer buffer(64);
  const Mr mr = make_mr(id->pd, buffer);
  EXPECT_SUCCEEDS(rdma_post_recv(id, nullptr, buffer.data(), 64, mr));
}

CONFORMANCE_TEST(cm_connect, UnconnectedQpSendsAtOnce, "rdma_create_qp.ud-sends", "rdma_create_id.udp") {
  near_ = make_bound(RDMA_PS_UDP);
  make_qp(near_);
  EXPECT_EQ(attributes_of(near_->qp).qp_state, IBV_QPS_RTS);
  far().bind();
  far().make_qp();
  ASSERT_EQ(far().post_receive(0, 256), 0);
  const Buffer buffer(8);
  const Mr mr = make_mr(near_->pd, buffer);
  ibv_ah_attr own = device().own_address();
  const Ah ah(CALL(ibv_create_ah(near_->pd, &own)));
  ASSERT_NE(ah, nullptr) << errno_text(errno);
  ASSERT_SUCCEEDS(
      rdma_post_ud_send(near_, nullptr, buffer.data(), 8, mr, IBV_SEND_SIGNALED, ah, far().qp_number()));
  EXPECT_EQ(completion(near_->send_cq).status, IBV_WC_SUCCESS);
  EXPECT_EQ(far().received().byte_len, 48u);
}

CONFORMANCE_TEST(cm_verbs, SrqOfAnIdentifier, "rdma_create_srq.zero", "rdma_create_srq.receives",
                 "rdma_create_srq.default-pd", "rdma_destroy_srq.destroys") {
  make_srq();
  {
    const About about("rdma_create_srq.default-pd");
    EXPECT_EQ(near_->srq->pd, near_->pd);
  }
  {
    const About about("rdma_create_srq.receives");
    const Buffer buffer(64);
    const Mr mr = make_mr(near_->pd, buffer);
    ibv_sge element = {buffer.address(), 64, mr->lkey};
    ibv_recv_wr wr = {1, nullptr, &element, 1}, *bad = nullptr;
    EXPECT_SUCCEEDS(ibv_post_srq_recv(near_->srq, &wr, &bad));
  }
  const About about("rdma_destroy_srq.destroys");
  rdma_destroy_srq(near_);
  EXPECT_EQ(near_->srq, nullptr);
  ibv_srq_init_attr attr = srq_attributes();
  EXPECT_SUCCEEDS(rdma_create_srq(near_, nullptr, &attr));
}

CONFORMANCE_TEST(cm_verbs, SecondSrqOfAnIdentifier, "rdma_create_srq.once") {
  make_srq();
  ibv_srq* const first = near_->srq;
  ibv_srq_init_attr attr = srq_attributes();
  if (CALL(rdma_create_srq(near_, nullptr, &attr)) != 0) {
    observe("rdma_create_srq.once", "a second one gives -1, " + errno_text(errno));
    return;
  }
  observe("rdma_create_srq.once", "a second one takes the place of the first, which stays");
  rdma_destroy_srq(near_);
  EXPECT_SUCCEEDS(ibv_destroy_srq(first));
}

CONFORMANCE_TEST(cm_verbs, QpOfAnIdentifierWithAnSrqReceivesFromIt, "rdma_create_srq.receives") {
  claims_srq();
  be_asked();
  ibv_srq_init_attr attr = srq_attributes();
  ASSERT_SUCCEEDS(rdma_create_srq(near_, nullptr, &attr));
  make_qp(near_);
  EXPECT_EQ(near_->qp->srq, near_->srq);
  const Buffer buffer(64);
  const Mr mr = make_mr(near_->pd, buffer);
  int mark = 0;
  ASSERT_SUCCEEDS(rdma_post_recv(near_, &mark, buffer.data(), 64, mr));
  ASSERT_EQ(accept(), 0);
  EXPECT_EQ(far().event(RDMA_CM_EVENT_ESTABLISHED).connection.srq, 1);
  ASSERT_EQ(far().post(IBV_WR_SEND, 0, 8), 0);
  const ibv_wc wc = completion(near_->recv_cq);
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(wc.wr_id, reinterpret_cast<uint64_t>(&mark));
}

CONFORMANCE_TEST(cm_verbs, ActiveEndpoint, "rdma_create_ep.active-qp", "rdma_create_ep.active-connect",
                 "rdma_create_ep.synchronous") {
  near_ = make_active();
  ASSERT_NE(near_->qp, nullptr);
  EXPECT_EQ(near_->qp->qp_type, IBV_QPT_RC);
  EXPECT_EQ(make_active(0)->qp, nullptr) << "without attributes there is none";
  near_ = make_active();
  far().serve();
  const About about("rdma_create_ep.active-connect");
  ASSERT_SUCCEEDS(rdma_connect(near_, nullptr));
  EXPECT_EQ(far().served().connection.qp_num, near_->qp->qp_num);
  const About synchronous("rdma_create_ep.synchronous");
  ASSERT_NE(near_->event, nullptr) << "it is there when the call is back";
  EXPECT_EQ(near_->event->event, RDMA_CM_EVENT_ESTABLISHED);
}

CONFORMANCE_TEST(cm_verbs, PassiveEndpoint, "rdma_create_ep.passive-listen", "rdma_create_ep.passive-qp",
                 "rdma_get_request.event") {
  listener_ = make_passive(7);
  ASSERT_SUCCEEDS(rdma_listen(listener_, 2));
  near_ = take_request(listener_, {.data = pattern(20)});
  {
    const About about("rdma_create_ep.passive-qp");
    ASSERT_NE(near_->qp, nullptr);
    EXPECT_GE(attributes_of(near_->qp).cap.max_recv_wr, 7u);
  }
  const About about("rdma_get_request.event");
  ASSERT_NE(near_->event, nullptr);
  EXPECT_EQ(near_->event->event, RDMA_CM_EVENT_CONNECT_REQUEST);
  EXPECT_EQ(near_->event->id, near_);
  EXPECT_EQ(near_->event->listen_id, listener_);
  EXPECT_TRUE(begins_with(facts_of(*near_->event).data, pattern(20)));
  EXPECT_NE(near_, listener_);
}

CONFORMANCE_TEST(cm_verbs, PassiveEndpointWithoutAttributes, "rdma_create_ep.passive-qp",
                 "rdma_get_request.event") {
  listener_ = make_passive(0);
  ASSERT_SUCCEEDS(rdma_listen(listener_, 2));
  near_ = take_request(listener_);
  EXPECT_EQ(near_->qp, nullptr);
  const About about("rdma_get_request.event");
  EXPECT_SUCCEEDS(rdma_reject(near_, nullptr, 0));
  EXPECT_EQ(far().event().type, RDMA_CM_EVENT_REJECTED);
}

CONFORMANCE_TEST(cm_verbs, EndpointIsDestroyedWithItsQueues, "rdma_destroy_ep.all") {
  ibv_context* context = nullptr;
  Pd pd;
  {
    const CmId id = make_bound();
    pd = Pd(CALL(ibv_alloc_pd(id->verbs)));
    ASSERT_NE(pd, nullptr);
    context = id->verbs;
  }
  ASSERT_NE(context, nullptr);
  rdma_cm_id* const id = make_endpoint(look_up(far().listen(), 0), 4, pd).release();
  if (device().attributes().max_srq > 0) {
    ibv_srq_init_attr attr = srq_attributes();
    EXPECT_SUCCEEDS(rdma_create_srq(id, pd, &attr));
  }
  EXPECT_REFUSED(ibv_dealloc_pd(pd));
  rdma_destroy_ep(id);
  EXPECT_SUCCEEDS(pd.destroy());
}

CONFORMANCE_TEST(cm_verbs, GetRequestWaits, "rdma_get_request.blocks") {
  listener_ = make_passive();
  ASSERT_SUCCEEDS(rdma_listen(listener_, 2));
  far().resolve(local_address(listener_));
  far().make_qp();
  rdma_cm_id* id = nullptr;
  auto taken = std::async(std::launch::async, [&] { return CALL(rdma_get_request(listener_, &id)); });
  EXPECT_EQ(taken.wait_for(scaled(20ms)), std::future_status::timeout);
  ASSERT_EQ(far().connect(), 0);
  EXPECT_EQ(taken.get(), 0);
  ASSERT_NE(id, nullptr);
  near_ = CmId(id);
}

CONFORMANCE_TEST(cm_verbs, GetRequestIsForSynchronousListeners, "rdma_get_request.synchronous-only") {
  listener_ = make_listener();
  rdma_cm_id* id = nullptr;
  EXPECT_MINUS_ONE(rdma_get_request(listener_, &id));
}

}  // namespace
}  // namespace conformance
