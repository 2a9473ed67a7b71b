// SPDX-License-Identifier: BSD-2-Clause
#include "support/cm.h"

#include <algorithm>

#include "suite/family.h"
#include "support/cm_host.h"

namespace conformance {
namespace {

using wire::CmKind;

constexpr int backlog = 8;

void must(int result, const char* what, Where where) {
  if (result != 0)
    throw Deviation{std::string(what) + "; expected: 0; seen: -1, " + errno_text(errno), where};
}

void need_connections(rdma_port_space space) {
  need_family(space == RDMA_PS_UDP ? "family.cm-udp" : "family.cm-tcp");
}

}  // namespace

// --- the far end

CmFar::CmFar(Topology& topology, const SocketAddress& near)
    : link_(topology.far()), is_loopback_(topology.is_loopback()) {
  ask<wire::Address>(CmKind::open,
                     wire::CmOpen{topology.is_loopback() ? to_wire(near) : wire::Address{}, near.family()});
}

SocketAddress CmFar::listen_at(const SocketAddress& address, rdma_port_space space) {
  return from_wire(ask<wire::Address>(CmKind::listen, wire::CmAt{to_wire(address), space}));
}

SocketAddress CmFar::reserve(rdma_port_space space) {
  return from_wire(ask<wire::Address>(CmKind::reserve, wire::CmAt{{}, space}));
}

EventFacts CmFar::take_request() { return from_wire(ask<wire::CmEventFacts>(CmKind::take_request)); }

int CmFar::accept(const ConnectionSpec& spec) {
  return ask<wire::Result>(CmKind::accept, to_wire(spec)).error;
}

int CmFar::reject(const std::vector<uint8_t>& data) {
  return ask<wire::Result>(CmKind::reject, wire::CmBytes{0, 0, data}).error;
}

void CmFar::serve(const ConnectionSpec& spec) { ask<wire::Nothing>(CmKind::serve, to_wire(spec)); }

EventFacts CmFar::served() { return from_wire(ask<wire::CmEventFacts>(CmKind::served)); }

void CmFar::resolve(const SocketAddress& to, rdma_port_space space) {
  ask<wire::Nothing>(CmKind::resolve, wire::CmAt{to_wire(to), space});
}

void CmFar::bind(rdma_port_space space) { ask<wire::Nothing>(CmKind::bind, wire::CmAt{{}, space}); }

int CmFar::connect(const ConnectionSpec& spec) {
  return ask<wire::Result>(CmKind::connect, to_wire(spec)).error;
}

EventFacts CmFar::join(const SocketAddress& group) {
  return from_wire(ask<wire::CmEventFacts>(CmKind::join, wire::CmAt{to_wire(group)}));
}

void CmFar::leave(const SocketAddress& group) {
  ask<wire::Nothing>(CmKind::leave, wire::CmAt{to_wire(group)});
}

int CmFar::send_to_group() { return ask<wire::Result>(CmKind::send_to_group).error; }

void CmFar::make_qp() { ask<wire::Nothing>(CmKind::make_qp); }

int CmFar::disconnect() { return ask<wire::Result>(CmKind::disconnect).error; }

int CmFar::set_ece(const ibv_ece& ece) {
  return ask<wire::Result>(CmKind::set_ece, wire::CmEce{ece.vendor_id, ece.options, ece.comp_mask}).error;
}

ibv_ece CmFar::remote_ece() {
  const auto ece = ask<wire::CmEce>(CmKind::remote_ece);
  return {ece.vendor_id, ece.options, ece.comp_mask};
}

EventFacts CmFar::event() { return from_wire(ask<wire::CmEventFacts>(CmKind::event, wire::CmExpected{})); }

EventFacts CmFar::event(rdma_cm_event_type expected) {
  return from_wire(ask<wire::CmEventFacts>(CmKind::event, wire::CmExpected{false, expected}));
}

testing::AssertionResult CmFar::stays_quiet() {
  const auto answer = ask<wire::CmQuiet>(CmKind::stays_quiet);
  if (answer.is_quiet) return testing::AssertionSuccess();
  return testing::AssertionFailure() << answer.seen;
}

uint32_t CmFar::qp_number() { return ask<wire::CmQueue>(CmKind::queue).qpn; }

ibv_qp_attr CmFar::queue() {
  const auto queue = ask<wire::CmQueue>(CmKind::queue);
  if (!queue.not_claimed.empty() && !is_loopback_) throw FarNotClaimed{{"the far end: " + queue.not_claimed}};
  if (!queue.not_claimed.empty()) throw NotClaimed{queue.not_claimed};
  ibv_qp_attr attr = {};
  attr.qp_state = queue.state;
  attr.timeout = queue.timeout, attr.retry_cnt = queue.retry_count, attr.rnr_retry = queue.rnr_retry;
  attr.min_rnr_timer = queue.min_rnr_timer;
  attr.max_rd_atomic = queue.reads, attr.max_dest_rd_atomic = queue.reads_of_the_peer;
  return attr;
}

SocketAddress CmFar::local() { return from_wire(ask<wire::Address>(CmKind::local)); }

void CmFar::destroy() { ask<wire::Nothing>(CmKind::destroy); }

RemoteMemory CmFar::memory() {
  const auto queue = ask<wire::CmQueue>(CmKind::queue);
  return {queue.address, queue.rkey, queue.size};
}

void CmFar::fill(size_t offset, const std::vector<uint8_t>& bytes) {
  ask<wire::Nothing>(CmKind::fill, wire::CmBytes{offset, 0, bytes});
}

std::vector<uint8_t> CmFar::bytes(size_t offset, size_t length) {
  return ask<wire::CmBytes>(CmKind::bytes, wire::CmBytes{offset, length, {}}).bytes;
}

int CmFar::post_receive(size_t offset, size_t length, uint64_t id) {
  return ask<wire::Result>(CmKind::post_receive, wire::CmPostReceive{offset, length, id}).error;
}

int CmFar::post(ibv_wr_opcode opcode, size_t offset, size_t length, const RemoteMemory& near) {
  return ask<wire::Result>(CmKind::post, wire::CmPost{opcode, offset, length, near.address, near.rkey}).error;
}

ibv_wc CmFar::completion(bool receives) {
  const auto found = ask<wire::Completion>(CmKind::completion, wire::CmPoll{receives});
  ibv_wc wc = {};
  wc.wr_id = found.id, wc.status = found.status, wc.opcode = found.opcode, wc.byte_len = found.bytes;
  wc.imm_data = found.imm, wc.qp_num = found.qpn, wc.src_qp = found.source, wc.wc_flags = found.flags;
  return wc;
}

// --- the near end

const std::vector<SocketAddress>& CmTest::addresses() {
  if (addresses_.empty()) addresses_ = addresses_of(options());
  if (addresses_.empty()) throw NotTested{"the rdma_cm finds no IP address that belongs to the port"};
  return addresses_;
}

rdma_event_channel* CmTest::channel() {
  addresses();  // where there is no rdma_cm at all, nothing is tested
  if (!channel_) channel_ = make_event_channel();
  return channel_;
}

CmFar& CmTest::far() {
  if (far_) return *far_;
  const SocketAddress& own = address();  // first of all: where there is no rdma_cm, nothing is tested
  if (!topology_) topology_.emplace(device());
  return far_.emplace(*topology_, own);
}

CmId CmTest::make_bound(rdma_port_space space) {
  CmId id = make_id(space);
  must(CALL(rdma_bind_addr(id, address().get())), "rdma_bind_addr", Where::current());
  return id;
}

CmId CmTest::make_listener(rdma_port_space space) {
  CmId id = make_bound(space);
  must(CALL(rdma_listen(id, backlog)), "rdma_listen", Where::current());
  return id;
}

// Pending events of a connection go with its identifier.
void CmTest::start_over() {
  far().destroy();
  near_ = CmId();
}

void CmTest::far_must(int error, const char* what, Where where) {
  if (error == 0) return;
  const std::string text = std::string(what) + " of the far end; expected: 0; seen: " + errno_text(error);
  if (!topology_->is_loopback()) throw NotTested{text};
  throw Deviation{text, where};
}

void CmTest::prepare(rdma_port_space space, Where where) {
  start_over();
  const SocketAddress there = far().listen(space);
  near_ = make_id(space);
  resolve(near_, there, where);
  made_ = make_qp(near_, near_qp_, where);
}

int CmTest::connect(const ConnectionSpec& spec) {
  need_connections(near_->ps);
  rdma_conn_param parameters = spec.parameters();
  return error_of(CALL(rdma_connect(near_, &parameters)));
}

EventFacts CmTest::ask(const ConnectionSpec& spec, rdma_port_space space, Where where) {
  prepare(space, where);
  must(connect(spec) == 0 ? 0 : -1, "rdma_connect", where);
  return far().take_request();
}

CmEvent CmTest::be_asked(const ConnectionSpec& spec, rdma_port_space space, Where where) {
  start_over();
  listener_ = make_listener(space);
  far().resolve(local_address(listener_), space);
  far().make_qp();
  need_connections(space);
  far_must(far().connect(spec), "rdma_connect", where);
  CmEvent event = next_event(channel(), RDMA_CM_EVENT_CONNECT_REQUEST, where);
  near_ = CmId(event->id);
  return event;
}

int CmTest::accept(const ConnectionSpec& spec) {
  rdma_conn_param parameters = spec.parameters();
  if (near_->qp != nullptr && near_->qp->qp_type == IBV_QPT_UD) parameters.qp_num = near_->qp->qp_num;
  return error_of(CALL(rdma_accept(near_, &parameters)));
}

EventFacts CmTest::establish(const ConnectionSpec& near, const ConnectionSpec& spec, Where where) {
  ask(near, RDMA_PS_TCP, where);
  far().make_qp();
  far_must(far().accept(spec), "rdma_accept", where);
  EventFacts facts = facts_of(*next_event(channel(), RDMA_CM_EVENT_ESTABLISHED, where));
  far().event(RDMA_CM_EVENT_ESTABLISHED);
  return facts;
}

EventFacts CmTest::look_up(const ConnectionSpec& answer, Where where) {
  ask({}, RDMA_PS_UDP, where);
  far().make_qp();
  far_must(far().accept(answer), "rdma_accept", where);
  return facts_of(*next_event(channel(), RDMA_CM_EVENT_ESTABLISHED, where));
}

Ah CmTest::address_handle(const EventFacts& found, Where where) {
  ibv_ah_attr address = found.datagram.ah_attr;
  Ah ah(CALL(ibv_create_ah(near_->pd, &address)));
  if (!ah)
    throw Deviation{"an address handle of the event's address; seen: null, " + errno_text(errno), where};
  return ah;
}

void CmTest::message_on_iwarp() {
  if (is_infiniband(near_)) return;
  const Buffer buffer(8);
  const Mr mr = make_mr(near_->pd, buffer);
  ASSERT_EQ(far().post_receive(8192, 64), 0);
  ASSERT_SUCCEEDS(rdma_post_send(near_, nullptr, buffer.data(), 8, mr, IBV_SEND_SIGNALED));
  ASSERT_EQ(completion(near_->send_cq).status, IBV_WC_SUCCESS);
  ASSERT_EQ(far().received().status, IBV_WC_SUCCESS);
}

bool CmTest::is_infiniband(const rdma_cm_id* id) {
  return id->verbs->device->transport_type == IBV_TRANSPORT_IB;
}

void CmTest::only_infiniband() {
  if (!is_infiniband(make_bound()))
    throw NotClaimed{"transport_type is not InfiniBand's: its messages do not carry this"};
}

uint8_t CmTest::responder_resources(uint8_t wanted) {
  return static_cast<uint8_t>(std::min<int>(wanted, device().attributes().max_qp_rd_atom));
}

uint8_t CmTest::initiator_depth(uint8_t wanted) {
  return static_cast<uint8_t>(std::min<int>(wanted, device().attributes().max_qp_init_rd_atom));
}

}  // namespace conformance
