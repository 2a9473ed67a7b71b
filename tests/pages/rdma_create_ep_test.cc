// SPDX-License-Identifier: BSD-2-Clause
//
// rdma_create_ep(3), sentence by sentence.
//
// clang-format off
// | the page says | case |
// | --- | --- |
// | creates an identifier that is used to track communication information | everywhere |
// | returns 0 on success, or -1 on error; errno will be set | ADestinationThatIsNoneIsMinusOne, ATakenPortIsMinusOneAndEaddrinuse |
// | based on the results of rdma_getaddrinfo | TheIdHasTheAddressesOfTheInfo |
// | active: creates a QP if qp_init_attr is not NULL | clause rdma_create_ep.active-qp, clause rdma_create_ep.active-qp |
// | with the specified protection domain, or a default one | TheQueuePairIsInTheDomainGiven, WithoutADomainItIsTheDefaultOne |
// | (its type is the info's: cma.c) | TheTypeOfTheQueuePairIsTheInfos |
// | may be connected by calling rdma_connect | clause rdma_create_ep.active-connect, rdma_create_ep.passive-listen |
// | rdma_resolve_addr and rdma_resolve_route are not necessary | TheRouteIsResolved |
// | passive: saves pd and qp_init_attr for the requests | ARequestGetsAQueuePairWithTheDomainAndAttributes, clause rdma_create_ep.passive-qp |
// | may be placed into a listening state immediately; rdma_bind_addr is not necessary | clause rdma_create_ep.active-connect, rdma_create_ep.passive-listen |
// | requests may be retrieved by calling rdma_get_request | clause rdma_create_ep.active-connect, rdma_create_ep.passive-listen |
// | set to use synchronous operation | clause rdma_create_ep.synchronous |
// | asynchronous operation by rdma_migrate_id | clause rdma_create_ep.migrates |
// | must be released by rdma_destroy_ep(3): with QP and SRQ | everywhere; DestroyingItFreesThePort |
// clang-format on
#include "connected_test.h"

namespace verbena::pages {
namespace {

class RdmaCreateEp : public ConnectedTest {
 protected:
  static CmId create(const Info& info, ibv_pd* pd, ibv_qp_init_attr* attributes) {
    rdma_cm_id* id = nullptr;
    EXPECT_EQ(rdma_create_ep(&id, info.get(), pd, attributes), 0) << strerror(errno);
    return CmId(id);
  }
  static int error(const Info& info, ibv_qp_init_attr* attributes = nullptr) {
    rdma_cm_id* id = nullptr;
    errno = 0;
    const int answer = rdma_create_ep(&id, info.get(), nullptr, attributes);
    if (answer == 0) rdma_destroy_ep(id);
    return error_of(answer);
  }
  Info here(uint16_t port = 0) const { return address_info(host_, port, RAI_PASSIVE, RDMA_PS_TCP); }
  Info there() const { return address_info(host_, port_of(listener_), 0, RDMA_PS_TCP); }
};

TEST_F(RdmaCreateEp, ADestinationThatIsNoneIsMinusOne) {
  Info info = there();
  info->ai_dst_addr->sa_family = AF_UNIX;
  rdma_cm_id* id = nullptr;
  errno = 0;
  EXPECT_EQ(rdma_create_ep(&id, info.get(), nullptr, nullptr), -1);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(RdmaCreateEp, ATakenPortIsMinusOneAndEaddrinuse) {
  EXPECT_EQ(error(here(port_of(listener_))), EADDRINUSE);
}

TEST_F(RdmaCreateEp, TheIdHasTheAddressesOfTheInfo) {
  const CmId id = create(there(), nullptr, nullptr);
  EXPECT_EQ(text_of(rdma_get_peer_addr(id.get())), host_);
  EXPECT_EQ(ntohs(rdma_get_dst_port(id.get())), port_of(listener_));
  const CmId passive = create(here(), nullptr, nullptr);
  EXPECT_EQ(text_of(rdma_get_local_addr(passive.get())), host_);
}

TEST_F(RdmaCreateEp, TheQueuePairIsInTheDomainGiven) {
  const Pd pd(ibv_alloc_pd(active_->verbs));
  ibv_qp_init_attr attributes = queue_attributes();
  CmId id = create(there(), pd.get(), &attributes);
  ASSERT_NE(id, nullptr);
  EXPECT_EQ(id->qp->pd, pd.get());
  EXPECT_EQ(id->pd, pd.get());
  id.reset();  // before its domain
}

TEST_F(RdmaCreateEp, WithoutADomainItIsTheDefaultOne) {
  ibv_qp_init_attr attributes = queue_attributes();
  const CmId id = create(there(), nullptr, &attributes);
  EXPECT_EQ(id->qp->pd, id->pd);
  EXPECT_EQ(id->pd, active_->pd) << "one per device";
}

// rdma_create_ep (cma.c, 44.0): qp_init_attr->qp_type = res->ai_qp_type.
TEST_F(RdmaCreateEp, TheTypeOfTheQueuePairIsTheInfos) {
  ibv_qp_init_attr attributes = queue_attributes(IBV_QPT_UD);
  const CmId id = create(there(), nullptr, &attributes);
  EXPECT_EQ(id->qp->qp_type, IBV_QPT_RC);
}

TEST_F(RdmaCreateEp, TheRouteIsResolved) {
  const CmId id = create(there(), nullptr, nullptr);
  EXPECT_GE(id->route.num_paths, 1);
  EXPECT_NE(id->verbs, nullptr);
}

TEST_F(RdmaCreateEp, ARequestGetsAQueuePairWithTheDomainAndAttributes) {
  const Pd pd(ibv_alloc_pd(active_->verbs));
  ibv_qp_init_attr attributes = queue_attributes();
  attributes.cap.max_recv_wr = 5;
  CmId listener = create(here(), pd.get(), &attributes);
  ASSERT_EQ(rdma_listen(listener.get(), 1), 0);
  EventChannel channel = make_channel();
  CmId caller = make_id(RDMA_PS_TCP, channel.get());
  resolve(caller, listener, channel.get());
  rdma_conn_param parameters = {};
  ASSERT_EQ(rdma_connect(caller.get(), &parameters), 0) << strerror(errno);
  rdma_cm_id* request = nullptr;
  ASSERT_EQ(rdma_get_request(listener.get(), &request), 0) << strerror(errno);
  CmId passive(request);
  ASSERT_NE(passive->qp, nullptr);
  EXPECT_EQ(passive->qp->pd, pd.get());
  ibv_qp_attr attr = {};
  ibv_qp_init_attr init = {};
  ASSERT_EQ(ibv_query_qp(passive->qp, &attr, IBV_QP_CAP, &init), 0);
  EXPECT_GE(attr.cap.max_recv_wr, 5u);
  EXPECT_EQ(init.sq_sig_all, 1);
  passive.reset();  // before its domain
}

TEST_F(RdmaCreateEp, DestroyingItFreesThePort) {
  const uint16_t port = port_of(listener_);
  disconnect_pair();
  EXPECT_EQ(error(here(port)), 0);
}

}  // namespace
}  // namespace verbena::pages
