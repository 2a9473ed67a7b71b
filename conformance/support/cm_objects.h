// SPDX-License-Identifier: BSD-2-Clause
//
// What every test of the rdma_cm is made of: addresses of the port under test, identifiers and event channels
// with owners, events with a limit of time.
#pragma once

#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "support/objects.h"

namespace conformance {

struct EventChannelDestroyer {
  static int destroy(rdma_event_channel* channel) {
    rdma_destroy_event_channel(channel);
    return 0;
  }
};
using EventChannel = Owned<rdma_event_channel, EventChannelDestroyer>;

// With its QP and SRQ. Its events must have been acknowledged, or the destructor blocks; the event of an
// identifier in synchronous operation is.
struct CmIdDestroyer {
  static int destroy(rdma_cm_id* id) {
    rdma_destroy_ep(id);
    return 0;
  }
};
using CmId = Owned<rdma_cm_id, CmIdDestroyer>;

struct CmEventAcknowledger {
  static int destroy(rdma_cm_event* event) { return rdma_ack_cm_event(event); }
};
using CmEvent = Owned<rdma_cm_event, CmEventAcknowledger>;

struct AddressInfoReleaser {
  static int destroy(rdma_addrinfo* info) {
    rdma_freeaddrinfo(info);
    return 0;
  }
};
using AddressInfo = Owned<rdma_addrinfo, AddressInfoReleaser>;

// An IP address and a port.
class SocketAddress {
 public:
  SocketAddress() = default;
  SocketAddress(const std::string& text, uint16_t port);  // numeric
  explicit SocketAddress(const sockaddr* address);        // of either family; else empty

  // Addresses for librdmacm, which takes ones that it does not change without const.
  sockaddr* get() const { return reinterpret_cast<sockaddr*>(&storage_); }
  socklen_t size() const;
  int family() const { return storage_.ss_family; }
  uint16_t port() const;  // in the host's byte order
  SocketAddress with_port(uint16_t port) const;
  std::string host() const;
  // Not bound to one device, and for listeners as good as the wildcard (cma_any_addr in Linux, cma.c).
  bool is_loopback() const;
  bool operator==(const SocketAddress& other) const {
    return host() == other.host() && port() == other.port();
  }

 private:
  mutable sockaddr_storage storage_ = {};
};

SocketAddress any_address(int family, uint16_t port = 0);
SocketAddress local_address(rdma_cm_id* id);
SocketAddress peer_address(rdma_cm_id* id);

// IP addresses of this machine that the rdma_cm binds to this port of this device: first those that are in
// the GID table, then those that network interfaces have. No link-local ones, which need a scope; those of
// the loopback only if there is nothing else. Throws NotTested where the machine has no rdma_cm.
std::vector<SocketAddress> addresses_of(const Options& port);

EventChannel make_event_channel(Where where = Where::current());
// In synchronous operation without a channel.
CmId make_id(rdma_event_channel* channel, rdma_port_space space = RDMA_PS_TCP,
             Where where = Where::current());
// UD for RDMA_PS_UDP and RDMA_PS_IPOIB, otherwise RC.
ibv_qp_type type_of(rdma_port_space space);
// Attributes for a QP of this identifier's type that the device says it can have; CQs are the library's.
ibv_qp_init_attr queue_attributes(rdma_cm_id* id, const QpSpec& spec = {});
// Throws NotClaimed where the device refuses a UD QP, or inline data: these are optional. Returns the
// capabilities that rdma_create_qp tells.
ibv_qp_cap make_qp(rdma_cm_id* id, const QpSpec& spec = {}, Where where = Where::current());
ibv_qp_attr attributes_of(ibv_qp* qp);  // all that the CM sets; throws NotClaimed as expect_query() does

// The parameters of a connection, with bytes of their own.
struct ConnectionSpec {
  std::vector<uint8_t> data = {};
  uint8_t responder_resources = 1, initiator_depth = 1, flow_control = 0, retry_count = 7,
          rnr_retry_count = 7, srq = 0;
  uint32_t qp_num = 0;

  rdma_conn_param parameters() const;  // points into this
};
std::vector<uint8_t> pattern(size_t length);  // bytes that are not 0
// "The size of the buffer may be larger than the data sent; additional space is zeroed"
// (rdma_get_cm_event(3)).
testing::AssertionResult begins_with(const std::vector<uint8_t>& seen, const std::vector<uint8_t>& sent);

// An event without pointers, so that it can be sent to another process.
struct EventFacts {
  rdma_cm_event_type type;
  int status;
  bool has_data;              // private_data is not null
  std::vector<uint8_t> data;  // private_data_len bytes
  rdma_conn_param connection = {};
  rdma_ud_param datagram = {};
  SocketAddress local, peer;  // of the identifier
};
EventFacts facts_of(const rdma_cm_event& event);

bool becomes_readable(int descriptor, std::chrono::milliseconds time);  // times --time-scale
// Waits. Throws Deviation when none comes within the time (times --time-scale).
CmEvent next_event(rdma_event_channel* channel, Where where = Where::current());
// The same; throws Deviation when it is another event.
CmEvent next_event(rdma_event_channel* channel, rdma_cm_event_type expected, Where where = Where::current());
// Waits for a short while and expects nothing: for what must not happen. No proof, but bounded.
testing::AssertionResult stays_quiet(rdma_event_channel* channel,
                                     std::chrono::milliseconds time = std::chrono::milliseconds(20));

// Address and route, with their events.
void resolve(rdma_cm_id* id, const SocketAddress& to, Where where = Where::current());
int resolve_milliseconds();  // what tests give resolving, --time-scale included

// Result of a call that returns 0, or -1 and errno: 0 or the errno value. Must be called right after it.
int error_of(int result);
// "-1 with errno": some errno value, or one of those named.
testing::AssertionResult minus_one(int result, std::initializer_list<int> allowed = {});

}  // namespace conformance

#define EXPECT_MINUS_ONE(...) EXPECT_TRUE(::conformance::minus_one(CALL(__VA_ARGS__)))
