// SPDX-License-Identifier: BSD-2-Clause
#include "support/cm.h"

#include <algorithm>
#include <cstring>

namespace conformance {
namespace {

constexpr int backlog = 8;
constexpr size_t far_memory = 16384;

void must(int result, const char* what, Where where) {
  if (result != 0)
    throw Deviation{std::string(what) + "; expected: 0; seen: -1, " + errno_text(errno), where};
}

}  // namespace

// --- the far end

rdma_event_channel* CmFar::channel(Where where) {
  if (!channel_) channel_ = make_event_channel(where);
  return channel_;
}

CmId CmFar::bound(rdma_port_space space, const SocketAddress& address, Where where) {
  CmId id = make_id(channel(where), space, where);
  must(CALL(rdma_bind_addr(id, address.get())), "rdma_bind_addr of the far end", where);
  return id;
}

SocketAddress CmFar::listen(rdma_port_space space, Where where) { return listen_at(own_, space, where); }

SocketAddress CmFar::listen_at(const SocketAddress& address, rdma_port_space space, Where where) {
  listener_ = bound(space, address, where);
  must(CALL(rdma_listen(listener_, backlog)), "rdma_listen of the far end", where);
  return local_address(listener_);
}

SocketAddress CmFar::reserve(rdma_port_space space, Where where) {
  reserved_ = bound(space, own_, where);
  return local_address(reserved_);
}

EventFacts CmFar::take_request(Where where) {
  const CmEvent event = next_event(channel(where), RDMA_CM_EVENT_CONNECT_REQUEST, where);
  destroy();
  id_ = CmId(event->id);
  return facts_of(*event);
}

int CmFar::accept(const ConnectionSpec& spec) {
  rdma_conn_param parameters = spec.parameters();
  if (id_->qp != nullptr) parameters.qp_num = id_->qp->qp_num;  // for datagrams the library asks for it
  return error_of(CALL(rdma_accept(id_, &parameters)));
}

int CmFar::reject(const std::vector<uint8_t>& data) {
  return error_of(CALL(rdma_reject(id_, data.data(), static_cast<uint8_t>(data.size()))));
}

void CmFar::serve(const ConnectionSpec& spec, Where where) {
  served_ = std::async(std::launch::async, [this, spec, where] {
    EventFacts request = take_request(where);
    make_qp({}, where);
    EXPECT_EQ(post_receive(0, 1024), 0) << "a receive of the far end";
    EXPECT_EQ(accept(spec), 0) << "rdma_accept of the far end";
    event(RDMA_CM_EVENT_ESTABLISHED, where);
    return request;
  });
}

EventFacts CmFar::served() { return served_.get(); }

void CmFar::resolve(const SocketAddress& to, rdma_port_space space, Where where) {
  destroy();
  id_ = make_id(channel(where), space, where);
  conformance::resolve(id_, to, where);
}

void CmFar::bind(rdma_port_space space, Where where) {
  destroy();
  id_ = bound(space, own_, where);
}

int CmFar::connect(const ConnectionSpec& spec) {
  rdma_conn_param parameters = spec.parameters();
  return error_of(CALL(rdma_connect(id_, &parameters)));
}

EventFacts CmFar::join(const SocketAddress& group, Where where) {
  must(CALL(rdma_join_multicast(id_, group.get(), nullptr)), "rdma_join_multicast of the far end", where);
  EventFacts facts = event(RDMA_CM_EVENT_MULTICAST_JOIN, where);
  joined_ = facts.datagram;
  return facts;
}

void CmFar::leave(const SocketAddress& group) { EXPECT_SUCCEEDS(rdma_leave_multicast(id_, group.get())); }

int CmFar::send_to_group() {
  group_ = Ah();
  group_ = Ah(CALL(ibv_create_ah(id_->pd, &joined_.ah_attr)));
  if (!group_) return errno;
  ibv_sge element = {buffer_->address(), 8, mr_->lkey};
  ibv_send_wr wr = {}, *bad = nullptr;
  wr.sg_list = &element;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_SEND;
  wr.wr.ud = {group_, joined_.qp_num, joined_.qkey};
  return CALL(ibv_post_send(id_->qp, &wr, &bad));
}

void CmFar::make_qp(const QpSpec& spec, Where where) {
  conformance::make_qp(id_, spec, where);
  buffer_.emplace(far_memory);
  mr_ = make_mr(id_->pd, *buffer_, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ,
                where);
}

int CmFar::disconnect() { return error_of(CALL(rdma_disconnect(id_))); }

int CmFar::set_ece(const ibv_ece& ece) {
  ibv_ece options = ece;
  return error_of(CALL(rdma_set_local_ece(id_, &options)));
}

ibv_ece CmFar::remote_ece() {
  ibv_ece ece = {};
  EXPECT_SUCCEEDS(rdma_get_remote_ece(id_, &ece));
  return ece;
}

EventFacts CmFar::event(Where where) { return facts_of(*next_event(channel(where), where)); }

EventFacts CmFar::event(rdma_cm_event_type expected, Where where) {
  return facts_of(*next_event(channel(where), expected, where));
}

testing::AssertionResult CmFar::stays_quiet() { return conformance::stays_quiet(channel_); }

void CmFar::destroy() {
  group_ = Ah();
  mr_ = Mr();
  id_ = CmId();
}

RemoteMemory CmFar::memory() const { return {buffer_->address(), mr_->rkey, buffer_->size()}; }

void CmFar::fill(size_t offset, const std::vector<uint8_t>& bytes) {
  memcpy(buffer_->data() + offset, bytes.data(), bytes.size());
}

std::vector<uint8_t> CmFar::bytes(size_t offset, size_t length) const {
  return {buffer_->data() + offset, buffer_->data() + offset + length};
}

int CmFar::post_receive(size_t offset, size_t length, uint64_t id) {
  ibv_sge element = {buffer_->address(offset), static_cast<uint32_t>(length), mr_->lkey};
  ibv_recv_wr wr = {id, nullptr, &element, 1};
  ibv_recv_wr* bad = nullptr;
  return CALL(ibv_post_recv(id_->qp, &wr, &bad));
}

int CmFar::post(ibv_wr_opcode opcode, size_t offset, size_t length, const RemoteMemory& near) {
  ibv_sge element = {buffer_->address(offset), static_cast<uint32_t>(length), mr_->lkey};
  ibv_send_wr wr = {};
  wr.sg_list = &element;
  wr.num_sge = 1;
  wr.opcode = opcode;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.wr.rdma = {near.address, near.rkey};
  ibv_send_wr* bad = nullptr;
  return CALL(ibv_post_send(id_->qp, &wr, &bad));
}

ibv_wc CmFar::sent(Where where) { return completion(id_->send_cq, where); }
ibv_wc CmFar::received(Where where) { return completion(id_->recv_cq, where); }

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
  if (!far_) far_.emplace(address());
  return *far_;
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

// What an end still has to say of a connection goes with its identifier.
void CmTest::start_over() {
  far().destroy();
  near_ = CmId();
}

void CmTest::prepare(rdma_port_space space, Where where) {
  start_over();
  const SocketAddress there = far().listen(space, where);
  near_ = make_id(space);
  resolve(near_, there, where);
  make_qp(near_, near_qp_, where);
}

int CmTest::connect(const ConnectionSpec& spec) {
  rdma_conn_param parameters = spec.parameters();
  return error_of(CALL(rdma_connect(near_, &parameters)));
}

EventFacts CmTest::ask(const ConnectionSpec& spec, rdma_port_space space, Where where) {
  prepare(space, where);
  must(connect(spec) == 0 ? 0 : -1, "rdma_connect", where);
  return far().take_request(where);
}

CmEvent CmTest::be_asked(const ConnectionSpec& spec, rdma_port_space space, Where where) {
  start_over();
  listener_ = make_listener(space);
  far().resolve(local_address(listener_), space, where);
  far().make_qp({}, where);
  must(far().connect(spec) == 0 ? 0 : -1, "rdma_connect of the far end", where);
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
  far().make_qp({}, where);
  must(far().accept(spec) == 0 ? 0 : -1, "rdma_accept of the far end", where);
  EventFacts facts = facts_of(*next_event(channel(), RDMA_CM_EVENT_ESTABLISHED, where));
  far().event(RDMA_CM_EVENT_ESTABLISHED, where);
  return facts;
}

EventFacts CmTest::look_up(const ConnectionSpec& answer, Where where) {
  ask({}, RDMA_PS_UDP, where);
  far().make_qp({}, where);
  must(far().accept(answer) == 0 ? 0 : -1, "rdma_accept of the far end", where);
  return facts_of(*next_event(channel(), RDMA_CM_EVENT_ESTABLISHED, where));
}

Ah CmTest::address_handle(const EventFacts& found, Where where) {
  ibv_ah_attr address = found.datagram.ah_attr;
  Ah ah(CALL(ibv_create_ah(near_->pd, &address)));
  if (!ah)
    throw Deviation{"an address handle of the event's address; seen: null, " + errno_text(errno), where};
  return ah;
}

void CmTest::only_infiniband() {
  const CmId id = make_bound();
  if (id->verbs->device->transport_type != IBV_TRANSPORT_IB)
    throw NotClaimed{"transport_type is not InfiniBand's: its messages do not carry this"};
}

uint8_t CmTest::responder_resources(uint8_t wanted) {
  return static_cast<uint8_t>(std::min<int>(wanted, device().attributes().max_qp_rd_atom));
}

uint8_t CmTest::initiator_depth(uint8_t wanted) {
  return static_cast<uint8_t>(std::min<int>(wanted, device().attributes().max_qp_init_rd_atom));
}

}  // namespace conformance
