// SPDX-License-Identifier: BSD-2-Clause
#include "support/cm_host.h"

#include <algorithm>
#include <cstring>

namespace conformance {
namespace {

using wire::CmKind;

constexpr int backlog = 8;
constexpr size_t far_memory = 16384;

void must(int result, const char* what) {
  if (result != 0)
    throw Deviation{std::string(what) + " of the far end; expected: 0; seen: -1, " + errno_text(errno),
                    Where::current()};
}

// The parameters of a connection, as tests and as messages have them.
template <typename To, typename From>
To parameters_of(const From& from) {
  return {from.data,
          from.responder_resources,
          from.initiator_depth,
          from.flow_control,
          from.retry_count,
          from.rnr_retry_count,
          from.srq,
          from.qp_num};
}

ConnectionSpec from_wire(const wire::CmConnection& from) { return parameters_of<ConnectionSpec>(from); }

wire::CmEventFacts to_wire(const EventFacts& from) {
  wire::CmEventFacts facts;
  facts.type = from.type;
  facts.status = from.status;
  facts.has_data = from.has_data;
  const rdma_conn_param& c = from.connection;
  facts.connection = {from.data,
                      c.responder_resources,
                      c.initiator_depth,
                      c.flow_control,
                      c.retry_count,
                      c.rnr_retry_count,
                      c.srq,
                      c.qp_num};
  facts.datagram_qpn = from.datagram.qp_num;
  facts.qkey = from.datagram.qkey;
  facts.local = conformance::to_wire(from.local);
  facts.peer = conformance::to_wire(from.peer);
  return facts;
}

}  // namespace

wire::Address to_wire(const SocketAddress& address) { return {address.host(), address.port()}; }

SocketAddress from_wire(const wire::Address& address) {
  return address.host.empty() ? SocketAddress() : SocketAddress(address.host, address.port);
}

wire::CmConnection to_wire(const ConnectionSpec& from) { return parameters_of<wire::CmConnection>(from); }

EventFacts from_wire(const wire::CmEventFacts& from) {
  EventFacts facts = {};
  facts.type = from.type;
  facts.status = from.status;
  facts.has_data = from.has_data;
  facts.data = from.connection.data;
  facts.connection = from_wire(from.connection).parameters();
  facts.connection.private_data = nullptr;
  facts.connection.private_data_len = static_cast<uint8_t>(facts.data.size());
  facts.datagram.qp_num = from.datagram_qpn;
  facts.datagram.qkey = from.qkey;
  facts.local = from_wire(from.local);
  facts.peer = from_wire(from.peer);
  return facts;
}

// A request of one kind, from bytes to bytes.
struct CmHost::Handler {
  CmKind kind;
  std::string (*handle)(CmHost&, const std::string&);

  template <typename Answer, typename Request>
  static Request request_of(Answer (CmHost::*)(const Request&));
  template <auto method>
  static std::string call(CmHost& host, const std::string& request) {
    return wire::to_bytes((host.*method)(wire::from_bytes<decltype(request_of(method))>(request)));
  }
};

const CmHost::Handler CmHost::handlers[] = {
    {CmKind::open, Handler::call<&CmHost::open>},
    {CmKind::listen, Handler::call<&CmHost::listen>},
    {CmKind::reserve, Handler::call<&CmHost::reserve>},
    {CmKind::take_request, Handler::call<&CmHost::take_request>},
    {CmKind::accept, Handler::call<&CmHost::accept>},
    {CmKind::reject, Handler::call<&CmHost::reject>},
    {CmKind::serve, Handler::call<&CmHost::serve>},
    {CmKind::served, Handler::call<&CmHost::served>},
    {CmKind::resolve, Handler::call<&CmHost::resolve>},
    {CmKind::bind, Handler::call<&CmHost::bind>},
    {CmKind::connect, Handler::call<&CmHost::connect>},
    {CmKind::join, Handler::call<&CmHost::join>},
    {CmKind::leave, Handler::call<&CmHost::leave>},
    {CmKind::send_to_group, Handler::call<&CmHost::send_to_group>},
    {CmKind::make_qp, Handler::call<&CmHost::make_qp>},
    {CmKind::disconnect, Handler::call<&CmHost::disconnect>},
    {CmKind::set_ece, Handler::call<&CmHost::set_ece>},
    {CmKind::remote_ece, Handler::call<&CmHost::remote_ece>},
    {CmKind::event, Handler::call<&CmHost::event>},
    {CmKind::stays_quiet, Handler::call<&CmHost::stays_quiet>},
    {CmKind::queue, Handler::call<&CmHost::queue>},
    {CmKind::local, Handler::call<&CmHost::local>},
    {CmKind::destroy, Handler::call<&CmHost::destroy>},
    {CmKind::fill, Handler::call<&CmHost::fill>},
    {CmKind::bytes, Handler::call<&CmHost::bytes>},
    {CmKind::post_receive, Handler::call<&CmHost::post_receive>},
    {CmKind::post, Handler::call<&CmHost::post>},
    {CmKind::completion, Handler::call<&CmHost::completion>},
};

std::string CmHost::answer(uint16_t kind, const std::string& request) {
  for (const Handler& handler : handlers)
    if (static_cast<uint16_t>(handler.kind) == kind) return handler.handle(*this, request);
  throw wire::Malformed{};
}

rdma_event_channel* CmHost::channel() {
  if (!channel_) channel_ = make_event_channel();
  return channel_;
}

rdma_cm_id* CmHost::far() {
  if (!id_) throw wire::Malformed{};
  return id_;
}

ibv_qp* CmHost::qp() {
  if (far()->qp == nullptr || !buffer_) throw wire::Malformed{};
  return id_->qp;
}

CmId CmHost::bound(const wire::CmAt& at) {
  CmId id = make_id(channel(), at.space);
  const SocketAddress address = at.address.host.empty() ? own_ : from_wire(at.address);
  must(CALL(rdma_bind_addr(id, address.get())), "rdma_bind_addr");
  return id;
}

wire::Address CmHost::open(const wire::CmOpen& how) {
  own_ = from_wire(how.own);
  if (!how.own.host.empty()) return how.own;
  Options port = options();
  port.device = device_.name();
  port.port = device_.port_number();
  port.gid_index = device_.gid_index();
  const auto addresses = addresses_of(port);
  const auto found = std::find_if(addresses.begin(), addresses.end(), [&](const SocketAddress& address) {
    return address.family() == how.family;
  });
  if (found == addresses.end())
    throw NotTested{"the far end's port has no IP address of the near one's family"};
  own_ = *found;
  return to_wire(own_);
}

wire::Address CmHost::listen(const wire::CmAt& at) {
  listener_ = bound(at);
  must(CALL(rdma_listen(listener_, backlog)), "rdma_listen");
  return to_wire(local_address(listener_));
}

wire::Address CmHost::reserve(const wire::CmAt& at) {
  reserved_ = bound(at);
  return to_wire(local_address(reserved_));
}

EventFacts CmHost::next_request() {
  const CmEvent event = next_event(channel(), RDMA_CM_EVENT_CONNECT_REQUEST);
  destroy({});
  id_ = CmId(event->id);
  return facts_of(*event);
}

wire::CmEventFacts CmHost::take_request(const wire::Nothing&) { return to_wire(next_request()); }

wire::Result CmHost::accept(const wire::CmConnection& how) {
  const ConnectionSpec spec = from_wire(how);
  rdma_conn_param parameters = spec.parameters();
  if (far()->qp != nullptr) parameters.qp_num = id_->qp->qp_num;  // for datagrams the library asks for it
  return {error_of(CALL(rdma_accept(id_, &parameters)))};
}

wire::Result CmHost::reject(const wire::CmBytes& data) {
  return {error_of(CALL(rdma_reject(far(), data.bytes.data(), static_cast<uint8_t>(data.bytes.size()))))};
}

wire::Nothing CmHost::serve(const wire::CmConnection& how) {
  served_ = std::async(std::launch::async, [this, how] {
    EventFacts request = next_request();
    make_qp({});
    const int error = post_receive({0, 1024, 1}).error;
    if (error != 0) throw Deviation{"a receive of the far end; seen: " + errno_text(error), Where::current()};
    must(accept(how).error == 0 ? 0 : -1, "rdma_accept");
    next_event(channel(), RDMA_CM_EVENT_ESTABLISHED);
    return request;
  });
  return {};
}

wire::CmEventFacts CmHost::served(const wire::Nothing&) {
  if (!served_.valid()) throw wire::Malformed{};
  return to_wire(served_.get());
}

wire::Nothing CmHost::resolve(const wire::CmAt& to) {
  destroy({});
  id_ = make_id(channel(), to.space);
  conformance::resolve(id_, from_wire(to.address));
  return {};
}

wire::Nothing CmHost::bind(const wire::CmAt& at) {
  destroy({});
  id_ = bound(at);
  return {};
}

wire::Result CmHost::connect(const wire::CmConnection& how) {
  const ConnectionSpec spec = from_wire(how);
  rdma_conn_param parameters = spec.parameters();
  return {error_of(CALL(rdma_connect(far(), &parameters)))};
}

wire::CmEventFacts CmHost::join(const wire::CmAt& group) {
  const SocketAddress to = from_wire(group.address);
  must(CALL(rdma_join_multicast(far(), to.get(), nullptr)), "rdma_join_multicast");
  const EventFacts facts = facts_of(*next_event(channel(), RDMA_CM_EVENT_MULTICAST_JOIN));
  joined_ = facts.datagram;
  return to_wire(facts);
}

wire::Nothing CmHost::leave(const wire::CmAt& group) {
  must(CALL(rdma_leave_multicast(far(), from_wire(group.address).get())), "rdma_leave_multicast");
  return {};
}

wire::Result CmHost::send_to_group(const wire::Nothing&) {
  ibv_qp* const from = qp();
  group_ = Ah();
  group_ = Ah(CALL(ibv_create_ah(id_->pd, &joined_.ah_attr)));
  if (!group_) return {errno};
  ibv_sge bytes = element(0, 8);
  ibv_send_wr wr = {}, *bad = nullptr;
  wr.sg_list = &bytes;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_SEND;
  wr.wr.ud = {group_, joined_.qp_num, joined_.qkey};
  return {CALL(ibv_post_send(from, &wr, &bad))};
}

wire::Nothing CmHost::make_qp(const wire::Nothing&) {
  conformance::make_qp(far());
  buffer_.emplace(far_memory);
  mr_ = make_mr(id_->pd, *buffer_, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
  return {};
}

wire::Result CmHost::disconnect(const wire::Nothing&) { return {error_of(CALL(rdma_disconnect(far())))}; }

wire::Result CmHost::set_ece(const wire::CmEce& ece) {
  ibv_ece options = {ece.vendor_id, ece.options, ece.comp_mask};
  return {error_of(CALL(rdma_set_local_ece(far(), &options)))};
}

wire::CmEce CmHost::remote_ece(const wire::Nothing&) {
  ibv_ece ece = {};
  must(CALL(rdma_get_remote_ece(far(), &ece)), "rdma_get_remote_ece");
  return {ece.vendor_id, ece.options, ece.comp_mask};
}

wire::CmEventFacts CmHost::event(const wire::CmExpected& expected) {
  const CmEvent event = expected.any ? next_event(channel()) : next_event(channel(), expected.type);
  return to_wire(facts_of(*event));
}

wire::CmQuiet CmHost::stays_quiet(const wire::Nothing&) {
  const testing::AssertionResult result = conformance::stays_quiet(channel());
  return {static_cast<bool>(result), result.message()};
}

wire::CmQueue CmHost::queue(const wire::Nothing&) {
  ibv_qp_attr attr = {};
  std::string not_claimed;
  try {
    attr = attributes_of(qp());
  } catch (const NotClaimed& nothing) {  // the number and the memory are known all the same
    not_claimed = nothing.reason;
  }
  return {id_->qp->qp_num,    attr.qp_state,      attr.timeout,       attr.retry_cnt,
          attr.rnr_retry,     attr.min_rnr_timer, attr.max_rd_atomic, attr.max_dest_rd_atomic,
          buffer_->address(), buffer_->size(),    mr_->rkey,          not_claimed};
}

wire::Address CmHost::local(const wire::Nothing&) { return to_wire(local_address(far())); }

wire::Nothing CmHost::destroy(const wire::Nothing&) {
  group_ = Ah();
  mr_ = Mr();
  id_ = CmId();
  return {};
}

uint8_t* CmHost::within(uint64_t offset, uint64_t length) {
  if (!buffer_ || offset > buffer_->size() || length > buffer_->size() - offset) throw wire::Malformed{};
  return buffer_->data() + offset;
}

ibv_sge CmHost::element(uint64_t offset, uint64_t length) {
  return {reinterpret_cast<uint64_t>(within(offset, length)), static_cast<uint32_t>(length), mr_->lkey};
}

wire::Nothing CmHost::fill(const wire::CmBytes& what) {
  memcpy(within(what.offset, what.bytes.size()), what.bytes.data(), what.bytes.size());
  return {};
}

wire::CmBytes CmHost::bytes(const wire::CmBytes& what) {
  const uint8_t* from = within(what.offset, what.length);
  return {what.offset, what.length, {from, from + what.length}};
}

wire::Result CmHost::post_receive(const wire::CmPostReceive& how) {
  ibv_qp* const to = qp();
  ibv_sge bytes = element(how.offset, how.length);
  ibv_recv_wr wr = {how.id, nullptr, &bytes, 1}, *bad = nullptr;
  return {CALL(ibv_post_recv(to, &wr, &bad))};
}

wire::Result CmHost::post(const wire::CmPost& how) {
  ibv_qp* const from = qp();
  ibv_sge bytes = element(how.offset, how.length);
  ibv_send_wr wr = {}, *bad = nullptr;
  wr.sg_list = &bytes;
  wr.num_sge = 1;
  wr.opcode = how.opcode;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.wr.rdma = {how.address, how.rkey};
  return {CALL(ibv_post_send(from, &wr, &bad))};
}

wire::Completion CmHost::completion(const wire::CmPoll& which) {
  qp();
  const ibv_wc wc = conformance::completion(which.receives ? id_->recv_cq : id_->send_cq);
  return {
      wc.wr_id,  wc.status, wc.opcode,   wc.byte_len, (wc.wc_flags & IBV_WC_WITH_IMM) != 0 ? wc.imm_data : 0,
      wc.qp_num, wc.src_qp, wc.wc_flags, wc.slid,     0};
}

namespace {

[[maybe_unused]] const bool registered = [] {
  register_service(wire::first_cm_kind, wire::last_cm_kind, [](Device& device) -> std::unique_ptr<Service> {
    return std::make_unique<CmHost>(device);
  });
  return true;
}();

}  // namespace
}  // namespace conformance
