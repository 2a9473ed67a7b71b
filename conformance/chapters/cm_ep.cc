// SPDX-License-Identifier: BSD-2-Clause
//
// rdma_cm: endpoints.
#include <future>
#include <thread>

#include "support/cm.h"

namespace conformance::cm_ep_chapter {
namespace {

using namespace std::chrono_literals;

class Fixture : public CmTest {
 protected:
  // `source`: an address of the port under test, where another port of this machine may have `address`.
  static AddressInfo information(const SocketAddress& address, int flags,
                                 const SocketAddress* source = nullptr) {
    rdma_addrinfo hints = {}, *found = nullptr;
    if (source != nullptr) {
      hints.ai_src_addr = source->get();
      hints.ai_src_len = source->size();
    }
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
  Pd own_pd() {
    const CmId id = make_bound();
    Pd pd(CALL(ibv_alloc_pd(id->verbs)));
    if (!pd) throw Deviation{"a PD is needed; seen: null, " + errno_text(errno), Where::current()};
    return pd;
  }
  CmId make_active(uint32_t depth = 4) { return make_endpoint(information(far().listen(), 0), depth); }
  CmId make_passive(uint32_t depth = 4, ibv_pd* pd = nullptr) {
    return make_endpoint(information(address(), RAI_PASSIVE), depth, pd);
  }
  // The far end connects to it; returns the id from rdma_get_request.
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
  const EventFacts request = far().served();
  if (is_infiniband(near_)) {  // iWARP's messages carry no QP number
    EXPECT_EQ(request.connection.qp_num, near_->qp->qp_num);
  }
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

CONFORMANCE_TEST(cm_verbs, EndpointIsDestroyedWithItsQueues, "rdma_destroy_ep.all",
                 "rdma_create_ep.given-pd") {
  Pd pd = own_pd();
  const SocketAddress here = address();
  rdma_cm_id* const id = make_endpoint(information(far().listen(), 0, &here), 4, pd).release();
  if (device().attributes().max_srq > 0) {
    ibv_srq_init_attr attr = {nullptr, {8, 1, 0}};
    EXPECT_SUCCEEDS(rdma_create_srq(id, pd, &attr));
  }
  EXPECT_REFUSED(ibv_dealloc_pd(pd));
  {
    const About about("rdma_create_ep.given-pd");
    EXPECT_EQ(id->qp->pd, pd);
  }
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

CONFORMANCE_TEST(cm_verbs, QpOfARequestIsOfThePdGiven, "rdma_create_ep.given-pd") {
  Pd pd = own_pd();
  listener_ = make_passive(4, pd);
  ASSERT_SUCCEEDS(rdma_listen(listener_, 2));
  near_ = take_request(listener_);
  ASSERT_NE(near_->qp, nullptr);
  EXPECT_EQ(near_->qp->pd, pd);
  near_ = CmId();
  listener_ = CmId();
  EXPECT_SUCCEEDS(pd.destroy());
}

CONFORMANCE_TEST(cm_verbs, EndpointOnAChannel, "rdma_create_ep.migrates") {
  near_ = make_active();
  ASSERT_SUCCEEDS(rdma_migrate_id(near_, channel()));
  ASSERT_EQ(connect(), 0) << "comes back though nobody has answered";
  far().take_request();
  far().make_qp();
  ASSERT_EQ(far().accept(), 0);
  EXPECT_EQ(next_event(channel(), RDMA_CM_EVENT_ESTABLISHED)->id, near_);
}

}  // namespace
}  // namespace conformance::cm_ep_chapter
