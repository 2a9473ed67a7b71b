// SPDX-License-Identifier: BSD-2-Clause
#include "support/cm_objects.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <poll.h>

#include <algorithm>
#include <cstring>

#include "support/transitions.h"

namespace conformance {
namespace {

constexpr std::chrono::milliseconds patience = std::chrono::seconds(8);

// A link-local one needs a scope, which the text of an address (messages, rdma_getaddrinfo) does not have:
// the kernel refuses to bind to it then (Linux drivers/infiniband/core/cma.c, cma_check_linklocal()).
bool needs_scope(const SocketAddress& address) {
  const auto* v6 = reinterpret_cast<const sockaddr_in6*>(address.get());
  return address.family() == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr);
}

void add_gids(const Options& wanted, std::vector<SocketAddress>& candidates) {
  const Device device(wanted);
  for (int index = 0; index < device.port().gid_tbl_len; ++index) {
    ibv_gid gid = {};
    if (ibv_query_gid(device.context(), device.port_number(), index, &gid) != 0) break;
    char text[INET6_ADDRSTRLEN];
    in6_addr as_v6;
    memcpy(&as_v6, gid.raw, sizeof as_v6);
    if (IN6_IS_ADDR_UNSPECIFIED(&as_v6) || IN6_IS_ADDR_LINKLOCAL(&as_v6)) continue;  // would need a scope
    const bool is_v4 = IN6_IS_ADDR_V4MAPPED(&as_v6);
    inet_ntop(is_v4 ? AF_INET : AF_INET6, is_v4 ? gid.raw + 12 : gid.raw, text, sizeof text);
    candidates.emplace_back(text, 0);
  }
}

void add_interfaces(std::vector<SocketAddress>& candidates) {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr) continue;
    const SocketAddress address(entry->ifa_addr);
    if (address.family() != AF_UNSPEC && !needs_scope(address)) candidates.push_back(address.with_port(0));
  }
  freeifaddrs(list);
}

bool belongs_to(const SocketAddress& address, const Options& port) {
  const CmId id = make_id(nullptr);
  return rdma_bind_addr(id, address.get()) == 0 && id->verbs != nullptr &&
         port.device == ibv_get_device_name(id->verbs->device) && id->port_num == port.port;
}

}  // namespace

SocketAddress::SocketAddress(const std::string& text, uint16_t port) {
  auto* v4 = reinterpret_cast<sockaddr_in*>(&storage_);
  auto* v6 = reinterpret_cast<sockaddr_in6*>(&storage_);
  if (inet_pton(AF_INET, text.c_str(), &v4->sin_addr) == 1)
    storage_.ss_family = AF_INET;
  else if (inet_pton(AF_INET6, text.c_str(), &v6->sin6_addr) == 1)
    storage_.ss_family = AF_INET6;
  v4->sin_port = htons(port);  // at the same place in both
}

SocketAddress::SocketAddress(const sockaddr* address) {
  if (address->sa_family == AF_INET) memcpy(&storage_, address, sizeof(sockaddr_in));
  if (address->sa_family == AF_INET6) memcpy(&storage_, address, sizeof(sockaddr_in6));
}

socklen_t SocketAddress::size() const {
  return family() == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
}

uint16_t SocketAddress::port() const {
  return ntohs(reinterpret_cast<const sockaddr_in*>(&storage_)->sin_port);
}

SocketAddress SocketAddress::with_port(uint16_t port) const {
  SocketAddress other = *this;
  reinterpret_cast<sockaddr_in*>(&other.storage_)->sin_port = htons(port);
  return other;
}

std::string SocketAddress::host() const {
  char text[INET6_ADDRSTRLEN] = "";
  if (family() == AF_INET)
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(&storage_)->sin_addr, text, sizeof text);
  if (family() == AF_INET6)
    inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6*>(&storage_)->sin6_addr, text, sizeof text);
  return text;
}

bool SocketAddress::is_loopback() const {
  const auto* v4 = reinterpret_cast<const sockaddr_in*>(&storage_);
  const auto* v6 = reinterpret_cast<const sockaddr_in6*>(&storage_);
  return family() == AF_INET ? ntohl(v4->sin_addr.s_addr) >> 24 == 127
                             : family() == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr);
}

SocketAddress any_address(int family, uint16_t port) {
  return SocketAddress(family == AF_INET ? "0.0.0.0" : "::", port);
}

SocketAddress local_address(rdma_cm_id* id) { return SocketAddress(rdma_get_local_addr(id)); }
SocketAddress peer_address(rdma_cm_id* id) { return SocketAddress(rdma_get_peer_addr(id)); }

std::vector<SocketAddress> addresses_of(const Options& port) {
  rdma_event_channel* const channel = rdma_create_event_channel();
  if (channel == nullptr)
    throw NotTested{"rdma_create_event_channel gives null, " + errno_text(errno) + ": no rdma_cm here"};
  rdma_destroy_event_channel(channel);
  std::vector<SocketAddress> candidates, found;
  add_gids(port, candidates);
  add_interfaces(candidates);
  for (const bool of_loopback : {false, true}) {
    for (const SocketAddress& address : candidates)
      if (address.is_loopback() == of_loopback &&
          std::find(found.begin(), found.end(), address) == found.end() && belongs_to(address, port))
        found.push_back(address);
    if (!found.empty()) break;
  }
  return found;
}

EventChannel make_event_channel(Where where) {
  EventChannel channel(CALL(rdma_create_event_channel()));
  if (!channel) throw Deviation{"an event channel is needed; seen: null, " + errno_text(errno), where};
  return channel;
}

CmId make_id(rdma_event_channel* channel, rdma_port_space space, Where where) {
  rdma_cm_id* id = nullptr;
  if (CALL(rdma_create_id(channel, &id, nullptr, space)) != 0)
    throw Deviation{"an identifier is needed; seen: -1, " + errno_text(errno), where};
  return CmId(id);
}

ibv_qp_type type_of(rdma_port_space space) {
  return space == RDMA_PS_UDP || space == RDMA_PS_IPOIB ? IBV_QPT_UD : IBV_QPT_RC;
}

ibv_qp_init_attr queue_attributes(rdma_cm_id* id, const QpSpec& spec) {
  ibv_qp_init_attr attr = init_attributes(within_limits(id->verbs, spec), nullptr, nullptr);
  attr.qp_type = id->qp_type;
  attr.sq_sig_all = 1;
  return attr;
}

ibv_qp_cap make_qp(rdma_cm_id* id, const QpSpec& spec, Where where) {
  ibv_qp_init_attr attr = queue_attributes(id, spec);
  if (CALL(rdma_create_qp(id, nullptr, &attr)) == 0) return attr.cap;
  const int error = errno;
  if (spec.inline_data > 0 && is_refusal_of_qp(error))
    throw NotClaimed{"a QP with inline data refused with " + errno_text(error)};
  if (id->qp_type == IBV_QPT_UD && is_refusal_of_qp(error))
    throw NotClaimed{"a QP of type UD refused with " + errno_text(error)};
  throw Deviation{"a QP is needed; seen: -1, " + errno_text(error), where};
}

ibv_qp_attr attributes_of(ibv_qp* qp) {
  ibv_qp_attr attr = {};
  ibv_qp_init_attr init = {};
  const int mask = IBV_QP_STATE | IBV_QP_CAP | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                   IBV_QP_MIN_RNR_TIMER | IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC |
                   IBV_QP_DEST_QPN | IBV_QP_QKEY;
  const int error = CALL(ibv_query_qp(qp, &attr, mask, &init));
  expect_query(error);
  EXPECT_TRUE(succeeded(error));
  return attr;
}

rdma_conn_param ConnectionSpec::parameters() const {
  rdma_conn_param out = {};
  out.private_data = data.empty() ? nullptr : data.data();
  out.private_data_len = static_cast<uint8_t>(data.size());
  out.responder_resources = responder_resources;
  out.initiator_depth = initiator_depth;
  out.flow_control = flow_control;
  out.retry_count = retry_count;
  out.rnr_retry_count = rnr_retry_count;
  out.srq = srq;
  out.qp_num = qp_num;
  return out;
}

std::vector<uint8_t> pattern(size_t length) {
  std::vector<uint8_t> bytes(length);
  for (size_t i = 0; i < length; ++i) bytes[i] = static_cast<uint8_t>(i % 251 + 1);
  return bytes;
}

testing::AssertionResult begins_with(const std::vector<uint8_t>& seen, const std::vector<uint8_t>& sent) {
  if (seen.size() < sent.size())
    return testing::AssertionFailure() << "expected: " << sent.size() << " bytes; seen: " << seen.size();
  const auto differs = std::mismatch(sent.begin(), sent.end(), seen.begin());
  if (differs.first == sent.end()) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "byte " << differs.first - sent.begin()
                                     << "; expected: " << int{*differs.first}
                                     << "; seen: " << int{*differs.second};
}

EventFacts facts_of(const rdma_cm_event& event) {
  EventFacts facts = {};
  facts.type = event.event;
  facts.status = event.status;
  const bool is_datagram = event.id != nullptr && event.id->qp_type == IBV_QPT_UD;
  const auto* data =
      static_cast<const uint8_t*>(is_datagram ? event.param.ud.private_data : event.param.conn.private_data);
  const size_t length = is_datagram ? event.param.ud.private_data_len : event.param.conn.private_data_len;
  facts.has_data = data != nullptr;
  if (data != nullptr) facts.data.assign(data, data + length);
  if (is_datagram)
    facts.datagram = event.param.ud;
  else
    facts.connection = event.param.conn;
  facts.datagram.private_data = nullptr;
  facts.connection.private_data = nullptr;
  facts.local = local_address(event.id);
  facts.peer = peer_address(event.id);
  return facts;
}

bool becomes_readable(int descriptor, std::chrono::milliseconds time) {
  pollfd entry = {descriptor, POLLIN, 0};
  return poll(&entry, 1, static_cast<int>(scaled(time).count())) == 1 && (entry.revents & POLLIN) != 0;
}

CmEvent next_event(rdma_event_channel* channel, Where where) {
  rdma_cm_event* event = nullptr;
  if (!becomes_readable(channel->fd, patience))
    throw Deviation{
        "expected: an event; seen: none within " + std::to_string(scaled(patience).count()) + " ms", where};
  if (CALL(rdma_get_cm_event(channel, &event)) != 0)
    throw Deviation{"rdma_get_cm_event; expected: 0; seen: -1, " + errno_text(errno), where};
  trace(std::string("  ") + rdma_event_str(event->event) + ", status " + std::to_string(event->status));
  return CmEvent(event);
}

CmEvent next_event(rdma_event_channel* channel, rdma_cm_event_type expected, Where where) {
  CmEvent event = next_event(channel, where);
  if (event->event != expected)
    throw Deviation{std::string("expected: ") + rdma_event_str(expected) + "; seen: " +
                        rdma_event_str(event->event) + ", status " + std::to_string(event->status),
                    where};
  return event;
}

testing::AssertionResult stays_quiet(rdma_event_channel* channel, std::chrono::milliseconds time) {
  if (!becomes_readable(channel->fd, time)) return testing::AssertionSuccess();
  rdma_cm_event* event = nullptr;
  if (rdma_get_cm_event(channel, &event) != 0)
    return testing::AssertionFailure() << "the channel is readable, and has no event: " << errno_text(errno);
  const CmEvent owned(event);
  return testing::AssertionFailure() << "expected: no event; seen: " << rdma_event_str(event->event)
                                     << ", status " << event->status;
}

void resolve(rdma_cm_id* id, const SocketAddress& to, Where where) {
  if (CALL(rdma_resolve_addr(id, nullptr, to.get(), resolve_milliseconds())) != 0)
    throw Deviation{"rdma_resolve_addr of " + to.host() + " gives -1, " + errno_text(errno), where};
  next_event(id->channel, RDMA_CM_EVENT_ADDR_RESOLVED, where);
  if (CALL(rdma_resolve_route(id, resolve_milliseconds())) != 0)
    throw Deviation{"rdma_resolve_route gives -1, " + errno_text(errno), where};
  next_event(id->channel, RDMA_CM_EVENT_ROUTE_RESOLVED, where);
}

int resolve_milliseconds() { return static_cast<int>(scaled(std::chrono::seconds(2)).count()); }

int error_of(int result) { return result == 0 ? 0 : errno; }

testing::AssertionResult minus_one(int result, std::initializer_list<int> allowed) {
  const int error = errno;
  if (result != -1)
    return testing::AssertionFailure()
           << "expected: -1; seen: "
           << (result == 0 ? "0" : result_text(static_cast<long long>(result), error));
  return refused(error, allowed);
}

}  // namespace conformance
