// SPDX-License-Identifier: BSD-2-Clause
//
// rdma_cm: resolving, listening, moving to other channels, options, rdma_getaddrinfo.
#include <cerrno>
#include <future>
#include <thread>

#include "support/cm.h"

namespace conformance::cm_resolve_chapter {
namespace {

using namespace std::chrono_literals;

class Fixture : public CmTest {
 protected:
  static int resolve_address(rdma_cm_id* id, const SocketAddress* from, const SocketAddress& to) {
    return CALL(
        rdma_resolve_addr(id, from != nullptr ? from->get() : nullptr, to.get(), resolve_milliseconds()));
  }
  template <typename Value>
  static int set(rdma_cm_id* id, int option, Value value, int level = RDMA_OPTION_ID) {
    return CALL(rdma_set_option(id, level, option, &value, sizeof value));
  }
  // The far end asks for a connection to this address.
  int ask_for(const SocketAddress& to) {
    far().resolve(to);
    far().make_qp();
    return far().connect();
  }
  void call(const SocketAddress& to) { ASSERT_EQ(ask_for(to), 0); }
  void expect_rejected(const SocketAddress& to) {
    const int error = ask_for(to);
    if (error == 0) {
      EXPECT_EQ(far().event().type, RDMA_CM_EVENT_REJECTED);
    } else {  // the call may wait for TCP's answer
      EXPECT_EQ(error, ECONNREFUSED) << errno_text(error);
    }
    EXPECT_TRUE(stays_quiet(channel()));
  }
  // listener_ listens there.
  void listen(const SocketAddress& at) {
    listener_ = make_id();
    ASSERT_SUCCEEDS(rdma_bind_addr(listener_, at.get()));
    ASSERT_SUCCEEDS(rdma_listen(listener_, 4));
  }
  void expect_request() {
    CmEvent event = next_event(channel(), RDMA_CM_EVENT_CONNECT_REQUEST);
    EXPECT_EQ(event->listen_id, listener_);
    near_ = CmId(event->id);
  }
  std::optional<SocketAddress> address_of(int family) {
    for (const SocketAddress& address : addresses())
      if (address.family() == family) return address;
    return std::nullopt;
  }
};

CONFORMANCE_TEST(cm_setup, ResolvingBindsToADevice, "rdma_resolve_addr.event", "rdma_resolve_addr.device",
                 "rdma_resolve_addr.source-chosen") {
  const SocketAddress to = far().listen();
  const CmId id = make_id();
  ASSERT_TRUE(succeeded(resolve_address(id, nullptr, to)));
  ABOUT("rdma_resolve_addr.event") {
    EXPECT_EQ(next_event(channel(), RDMA_CM_EVENT_ADDR_RESOLVED)->id, id);
    EXPECT_EQ(peer_address(id), to);
  }
  {
    const About about("rdma_resolve_addr.device");
    ASSERT_NE(id->verbs, nullptr);
    EXPECT_NE(id->port_num, 0);
  }
  const About about("rdma_resolve_addr.source-chosen");
  EXPECT_EQ(local_address(id).family(), to.family());
  EXPECT_NE(local_address(id).host(), any_address(to.family()).host());
  EXPECT_NE(local_address(id).port(), 0);
}

CONFORMANCE_TEST(cm_setup, ResolvesFromTheSourceGiven, "rdma_resolve_addr.source") {
  const SocketAddress to = far().listen(), from = address();
  const CmId given = make_id(), bound = make_bound();
  ASSERT_TRUE(succeeded(resolve_address(given, &from, to)));
  next_event(channel(), RDMA_CM_EVENT_ADDR_RESOLVED);
  EXPECT_EQ(local_address(given).host(), from.host());
  EXPECT_EQ(options().device, ibv_get_device_name(given->verbs->device));
  EXPECT_NE(local_address(given).port(), 0);
  const SocketAddress before = local_address(bound);
  ASSERT_TRUE(succeeded(resolve_address(bound, nullptr, to)));
  next_event(channel(), RDMA_CM_EVENT_ADDR_RESOLVED);
  EXPECT_EQ(local_address(bound), before) << "what rdma_bind_addr bound";
}

CONFORMANCE_TEST(cm_setup, AddressOfNobody, "rdma_resolve_addr.error", "rdma_get_cm_event.status-error",
                 "rdma_cm.started") {
  // Ranges for documentation (RFC 5737, RFC 3849) and future use (RFC 1112): no machine has them.
  for (const char* nobody : {"203.0.113.77", "2001:db8::77", "240.0.0.77"}) {
    const CmId id = make_id();
    const int result = CALL(rdma_resolve_addr(id, nullptr, SocketAddress(nobody, 7).get(), 200));
    if (result != 0) {
      EXPECT_TRUE(minus_one(result)) << nobody;
      continue;
    }
    const CmEvent event = next_event(channel());
    if (event->event == RDMA_CM_EVENT_ADDR_RESOLVED) continue;  // a router would accept it
    EXPECT_EQ(event->event, RDMA_CM_EVENT_ADDR_ERROR) << nobody;
    const About about("rdma_get_cm_event.status-error");
    EXPECT_LT(event->status, 0) << "an errno value, negative";
    return;
  }
  const About about("rdma_get_cm_event.status-error");
  throw NotTested{"every address is resolved, or refused at once"};
}

CONFORMANCE_TEST(cm_setup, RouteAfterTheAddress, "rdma_resolve_route.event",
                 "rdma_resolve_route.before-addr") {
  const SocketAddress to = far().listen();
  const CmId id = make_bound();
  {
    const About about("rdma_resolve_route.before-addr");
    EXPECT_MINUS_ONE(rdma_resolve_route(id, resolve_milliseconds()));
  }
  ASSERT_TRUE(succeeded(resolve_address(id, nullptr, to)));
  next_event(channel(), RDMA_CM_EVENT_ADDR_RESOLVED);
  ASSERT_SUCCEEDS(rdma_resolve_route(id, resolve_milliseconds()));
  const CmEvent event = next_event(channel(), RDMA_CM_EVENT_ROUTE_RESOLVED);
  EXPECT_EQ(event->id, id);
  EXPECT_EQ(event->status, 0);
}

CONFORMANCE_TEST(cm_setup, ListenerGetsRequests, "rdma_listen.zero") {
  listen(address());
  call(local_address(listener_));
  expect_request();
  EXPECT_EQ(local_address(near_), local_address(listener_));
}

CONFORMANCE_TEST(cm_setup, WildcardListenerGetsRequests, "rdma_listen.all-devices") {
  listen(any_address(address().family()));
  const uint16_t port = local_address(listener_).port();
  for (const SocketAddress& own : addresses()) {
    if (own.family() != address().family()) continue;
    call(own.with_port(port));
    expect_request();
    EXPECT_EQ(local_address(near_), own.with_port(port)) << "the identifier has the address that was called";
    EXPECT_NE(near_->verbs, nullptr);
  }
}

CONFORMANCE_TEST(cm_setup, ListenerOfOneAddress, "rdma_listen.restricted") {
  const auto& own = addresses();
  if (own.size() < 2 || own[0].is_loopback()) throw NotTested{"the port has a single IP address"};
  listen(own[0]);
  expect_rejected(own[1].with_port(local_address(listener_).port()));
}

CONFORMANCE_TEST(cm_setup, ListeningUnbound, "rdma_listen.unbound") {
  const CmId id = make_id();
  const int result = CALL(rdma_listen(id, 4));
  observe("rdma_listen.unbound", result != 0 ? "gives -1, " + errno_text(errno)
                                 : rdma_get_src_port(id) != 0
                                     ? "listens at every address, at a port of the library's choice"
                                     : "listens, with port 0");
}

CONFORMANCE_TEST(cm_setup, LaterEventsComeToTheNewChannel, "rdma_migrate_id.events") {
  const SocketAddress to = far().listen();
  const EventChannel other = make_event_channel();
  CmId id = make_id();
  ASSERT_SUCCEEDS(rdma_migrate_id(id, other));
  EXPECT_EQ(id->channel, other);
  ASSERT_TRUE(succeeded(resolve_address(id, nullptr, to)));
  next_event(other, RDMA_CM_EVENT_ADDR_RESOLVED);
  EXPECT_TRUE(stays_quiet(channel()));
  EXPECT_SUCCEEDS(rdma_destroy_id(id.release()));  // before its channel
}

CONFORMANCE_TEST(cm_setup, PendingEventsMove, "rdma_migrate_id.events") {
  const SocketAddress to = far().listen();
  const EventChannel other = make_event_channel();
  CmId id = make_id();
  const CmId stays = make_id();
  ASSERT_TRUE(succeeded(resolve_address(id, nullptr, to)));
  ASSERT_TRUE(becomes_readable(channel()->fd, 8000ms));
  ASSERT_SUCCEEDS(rdma_migrate_id(id, other));
  EXPECT_EQ(next_event(other, RDMA_CM_EVENT_ADDR_RESOLVED)->id, id);
  EXPECT_TRUE(stays_quiet(channel()));
  ASSERT_TRUE(succeeded(resolve_address(stays, nullptr, to)));
  EXPECT_EQ(next_event(channel(), RDMA_CM_EVENT_ADDR_RESOLVED)->id, stays) << "the others stay";
  EXPECT_SUCCEEDS(rdma_destroy_id(id.release()));
}

CONFORMANCE_TEST(cm_setup, MigratingWaitsForAcknowledgements, "rdma_migrate_id.blocks") {
  const SocketAddress to = far().listen();
  const EventChannel other = make_event_channel();
  CmId id = make_id();
  ASSERT_TRUE(succeeded(resolve_address(id, nullptr, to)));
  CmEvent event = next_event(channel(), RDMA_CM_EVENT_ADDR_RESOLVED);
  auto migrated = std::async(std::launch::async, [&] { return CALL(rdma_migrate_id(id, other)); });
  EXPECT_EQ(migrated.wait_for(scaled(20ms)), std::future_status::timeout);
  EXPECT_SUCCEEDS(event.destroy());
  EXPECT_EQ(migrated.get(), 0);
  EXPECT_SUCCEEDS(rdma_destroy_id(id.release()));
}

CONFORMANCE_TEST(cm_setup, WithoutAChannelItIsSynchronous, "rdma_migrate_id.synchronous") {
  const SocketAddress to = far().listen();
  const CmId id = make_id();
  ASSERT_SUCCEEDS(rdma_migrate_id(id, nullptr));
  ASSERT_TRUE(succeeded(resolve_address(id, nullptr, to)));
  EXPECT_NE(id->verbs, nullptr) << "the address is resolved when the call is back";
  ASSERT_NE(id->event, nullptr);
  EXPECT_EQ(id->event->event, RDMA_CM_EVENT_ADDR_RESOLVED);
}

CONFORMANCE_TEST(cm_setup, TypeOfService, "rdma_set_option.tos", "rdma_set_option.optlen") {
  const CmId id = make_id();
  ABOUT("rdma_set_option.tos") EXPECT_TRUE(succeeded(set(id, RDMA_OPTION_ID_TOS, uint8_t{0x20})));
  const About about("rdma_set_option.optlen");
  EXPECT_TRUE(minus_one(set(id, RDMA_OPTION_ID_TOS, uint16_t{0})));
  EXPECT_TRUE(minus_one(set(id, RDMA_OPTION_ID_REUSEADDR, uint8_t{1})));
}

CONFORMANCE_TEST(cm_setup, UnknownOptionIsRefused, "rdma_set_option.unknown") {
  const CmId id = make_id();
  EXPECT_TRUE(minus_one(set(id, 99, int{0})));
  EXPECT_TRUE(minus_one(set(id, RDMA_OPTION_ID_TOS, uint8_t{0}, 99)));
}

CONFORMANCE_TEST(cm_setup, ReusedAddress, "rdma_set_option.reuseaddr") {
  const CmId first = make_id(), second = make_id();
  ASSERT_TRUE(succeeded(set(first, RDMA_OPTION_ID_REUSEADDR, int{1})));
  ASSERT_TRUE(succeeded(set(second, RDMA_OPTION_ID_REUSEADDR, int{1})));
  ASSERT_SUCCEEDS(rdma_bind_addr(first, address().get()));
  EXPECT_SUCCEEDS(rdma_bind_addr(second, local_address(first).get()));
  EXPECT_EQ(local_address(second), local_address(first));
}

CONFORMANCE_TEST(cm_setup, OneFamilyOnly, "rdma_set_option.afonly") {
  const auto v4 = address_of(AF_INET);
  if (!v4) throw NotTested{"the port has no IPv4 address"};
  listener_ = make_id();
  ASSERT_TRUE(succeeded(set(listener_, RDMA_OPTION_ID_AFONLY, int{1})));
  if (CALL(rdma_bind_addr(listener_, any_address(AF_INET6).get())) != 0)
    throw NotTested{"the IPv6 wildcard cannot be bound to, " + errno_text(errno)};
  ASSERT_SUCCEEDS(rdma_listen(listener_, 4));
  expect_rejected(v4->with_port(local_address(listener_).port()));
}

CONFORMANCE_TEST(cm_setup, AckTimeoutOfTheQp, "rdma_set_option.ack-timeout") {
  only_infiniband();
  const SocketAddress to = far().listen();
  near_ = make_id();
  ASSERT_TRUE(succeeded(set(near_, RDMA_OPTION_ID_ACK_TIMEOUT, uint8_t{19})));
  resolve(near_, to);
  make_qp(near_);
  ASSERT_EQ(connect(), 0);
  far().take_request();
  far().make_qp();
  ASSERT_EQ(far().accept(), 0);
  next_event(channel(), RDMA_CM_EVENT_ESTABLISHED);
  // What the rdma_cm gives the QP; not every device tells the timeout when the QP is queried.
  ibv_qp_attr attr = {};
  attr.qp_state = IBV_QPS_RTS;
  int mask = 0;
  ASSERT_SUCCEEDS(rdma_init_qp_attr(near_, &attr, &mask));
  EXPECT_NE(mask & IBV_QP_TIMEOUT, 0);
  EXPECT_EQ(attr.timeout, 19);
}

CONFORMANCE_TEST(cm_setup, AddressesBecomeGids, "rdma_resolve_addr.gids", "rdma_resolve_route.path") {
  only_infiniband();
  near_ = make_id();
  resolve(near_, far().listen());
  const rdma_ib_addr& gids = near_->route.addr.addr.ibaddr;
  static const ibv_gid none = {};
  EXPECT_NE(memcmp(&gids.sgid, &none, sizeof none), 0);
  EXPECT_NE(memcmp(&gids.dgid, &none, sizeof none), 0);
  const About about("rdma_resolve_route.path");
  ASSERT_GE(near_->route.num_paths, 1);
  EXPECT_EQ(memcmp(&near_->route.path_rec->sgid, &gids.sgid, sizeof none), 0);
  EXPECT_EQ(memcmp(&near_->route.path_rec->dgid, &gids.dgid, sizeof none), 0);
}

}  // namespace
}  // namespace conformance::cm_resolve_chapter
