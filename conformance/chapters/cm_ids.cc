// SPDX-License-Identifier: BSD-2-Clause
//
// rdma_cm: event channels, identifiers, binding, ports and addresses.
#include <fcntl.h>
#include <sys/select.h>

#include <future>
#include <set>
#include <thread>

#include "support/cm.h"

namespace conformance::cm_ids_chapter {
namespace {

using namespace std::chrono_literals;

class Fixture : public CmTest {
 protected:
  static int bind(rdma_cm_id* id, const SocketAddress& to) { return CALL(rdma_bind_addr(id, to.get())); }
  static bool is_zero(const sockaddr* address) {
    static const sockaddr_storage none = {};
    return memcmp(address, &none, sizeof none) == 0;
  }
  // Without waiting for the event.
  CmId start_resolving() {
    CmId id = make_id();
    const SocketAddress to = far().listen();
    EXPECT_SUCCEEDS(rdma_resolve_addr(id, nullptr, to.get(), resolve_milliseconds()));
    return id;
  }
};

CONFORMANCE_TEST(cm_setup, ChannelHasADescriptor, "rdma_create_event_channel.pointer",
                 "rdma_create_event_channel.fd", "rdma_destroy_event_channel.closes",
                 "rdma_get_cm_event.nonblocking") {
  addresses();
  EventChannel channel(CALL(rdma_create_event_channel()));
  ASSERT_NE(channel, nullptr) << errno_text(errno);
  const int fd = channel->fd;
  EXPECT_NE(fcntl(fd, F_GETFD), -1);
  {
    const About about("rdma_create_event_channel.fd");
    ASSERT_EQ(fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK), 0);
    EXPECT_FALSE(becomes_readable(fd, 0ms));
    fd_set set;
    FD_ZERO(&set);
    FD_SET(fd, &set);
    timeval none = {0, 0};
    EXPECT_EQ(select(fd + 1, &set, nullptr, nullptr, &none), 0);
  }
  {
    const About about("rdma_get_cm_event.nonblocking");
    rdma_cm_event* event = nullptr;
    EXPECT_TRUE(minus_one(CALL(rdma_get_cm_event(channel, &event)), {EAGAIN}));
  }
  const About about("rdma_destroy_event_channel.closes");
  channel.destroy();
  EXPECT_EQ(fcntl(fd, F_GETFD), -1);
}

CONFORMANCE_TEST(cm_setup, ChannelBecomesReadable, "rdma_create_event_channel.fd", "rdma_resolve_addr.event",
                 "rdma_get_cm_event.zero", "rdma_get_cm_event.status-0", "rdma_ack_cm_event.zero") {
  const CmId id = start_resolving();
  ABOUT("rdma_create_event_channel.fd") ASSERT_TRUE(becomes_readable(channel()->fd, 8000ms));
  rdma_cm_event* event = nullptr;
  {
    const About about("rdma_get_cm_event.zero");
    ASSERT_SUCCEEDS(rdma_get_cm_event(channel(), &event));
    EXPECT_EQ(event->id, id);
  }
  ABOUT("rdma_resolve_addr.event") EXPECT_EQ(event->event, RDMA_CM_EVENT_ADDR_RESOLVED);
  ABOUT("rdma_get_cm_event.status-0") EXPECT_EQ(event->status, 0);
  ABOUT("rdma_create_event_channel.fd")
  EXPECT_FALSE(becomes_readable(channel()->fd, 0ms)) << "an event is reported once";
  ABOUT("rdma_ack_cm_event.zero") EXPECT_SUCCEEDS(rdma_ack_cm_event(event));
}

CONFORMANCE_TEST(cm_setup, GettingAnEventWaits, "rdma_get_cm_event.blocks") {
  rdma_event_channel* const own = channel();
  far().listen();
  rdma_cm_event* event = nullptr;
  auto got = std::async(std::launch::async, [&] { return CALL(rdma_get_cm_event(own, &event)); });
  EXPECT_EQ(got.wait_for(scaled(20ms)), std::future_status::timeout);
  const CmId id = start_resolving();
  EXPECT_EQ(got.get(), 0);
  const CmEvent owned(event);
  ASSERT_NE(event, nullptr);
  EXPECT_EQ(event->event, RDMA_CM_EVENT_ADDR_RESOLVED);
}

CONFORMANCE_TEST(cm_setup, IdentifierComesAndGoes, "rdma_create_id.zero", "rdma_destroy_id.zero") {
  for (const rdma_port_space space : {RDMA_PS_TCP, RDMA_PS_UDP}) {
    rdma_cm_id* id = nullptr;
    int mark = 0;
    ASSERT_SUCCEEDS(rdma_create_id(channel(), &id, &mark, space));
    EXPECT_EQ(id->channel, channel());
    EXPECT_EQ(id->context, &mark);
    EXPECT_EQ(id->ps, space);
    const About about("rdma_destroy_id.zero");
    EXPECT_SUCCEEDS(rdma_destroy_id(id));
  }
}

CONFORMANCE_TEST(cm_setup, UnknownPortSpaceIsRefused, "rdma_create_id.unknown-ps") {
  rdma_cm_id* id = nullptr;
  EXPECT_MINUS_ONE(rdma_create_id(channel(), &id, nullptr, static_cast<rdma_port_space>(0x0999)));
}

CONFORMANCE_TEST(cm_setup, WithoutAChannelCallsWait, "rdma_create_id.synchronous",
                 "rdma_create_id.event-kept") {
  const SocketAddress to = far().listen();
  const CmId id = conformance::make_id(nullptr);
  ASSERT_SUCCEEDS(rdma_resolve_addr(id, nullptr, to.get(), resolve_milliseconds()));
  EXPECT_NE(id->verbs, nullptr) << "the address is resolved when the call is back";
  const About about("rdma_create_id.event-kept");
  ASSERT_NE(id->event, nullptr);
  EXPECT_EQ(id->event->event, RDMA_CM_EVENT_ADDR_RESOLVED);
  EXPECT_EQ(id->event->id, id);
  ASSERT_SUCCEEDS(rdma_resolve_route(id, resolve_milliseconds()));
  ASSERT_NE(id->event, nullptr);
  EXPECT_EQ(id->event->event, RDMA_CM_EVENT_ROUTE_RESOLVED);
}

CONFORMANCE_TEST(cm_setup, TcpGivesReliableMessages, "rdma_create_id.tcp") {
  establish();
  ASSERT_EQ(near_->qp->qp_type, IBV_QPT_RC);
  ASSERT_EQ(far().post_receive(0, 64), 0);
  const Buffer buffer(8);
  const Mr mr = make_mr(near_->pd, buffer);
  ASSERT_SUCCEEDS(rdma_post_send(near_, nullptr, buffer.data(), 8, mr, 0));
  EXPECT_EQ(completion(near_->send_cq).status, IBV_WC_SUCCESS);
  EXPECT_EQ(far().received().byte_len, 8u);
}

CONFORMANCE_TEST(cm_setup, UdpGivesDatagrams, "rdma_create_id.udp") {
  near_ = make_bound(RDMA_PS_UDP);
  make_qp(near_);
  EXPECT_EQ(near_->qp->qp_type, IBV_QPT_UD);
}

CONFORMANCE_TEST(cm_setup, IbPortSpaceConnects, "rdma_create_id.ib") {
  only_infiniband();
  ask({}, RDMA_PS_IB);
  far().make_qp();
  ASSERT_EQ(far().accept(), 0);
  next_event(channel(), RDMA_CM_EVENT_ESTABLISHED);
  EXPECT_EQ(attributes_of(near_->qp).qp_state, IBV_QPS_RTS);
}

CONFORMANCE_TEST(cm_setup, IpoibPortSpace, "rdma_create_id.ipoib") {
  addresses();
  rdma_cm_id* id = nullptr;
  const int result = CALL(rdma_create_id(channel(), &id, nullptr, RDMA_PS_IPOIB));
  if (result != 0) {
    EXPECT_TRUE(minus_one(result));
    observe("rdma_create_id.ipoib", "refused with " + errno_text(errno));
    return;
  }
  const CmId owned(id);
  observe("rdma_create_id.ipoib", "an identifier is created");
}

CONFORMANCE_TEST(cm_setup, NothingIsReportedOfADestroyedIdentifier, "rdma_destroy_id.cancels") {
  CmId id = start_resolving();
  EXPECT_SUCCEEDS(rdma_destroy_id(id.release()));
  EXPECT_TRUE(stays_quiet(channel()));
  // Also when the event is there already.
  id = start_resolving();
  ASSERT_TRUE(becomes_readable(channel()->fd, 8000ms));
  EXPECT_SUCCEEDS(rdma_destroy_id(id.release()));
  EXPECT_TRUE(stays_quiet(channel()));
}

CONFORMANCE_TEST(cm_setup, DestroyingWaitsForAcknowledgements, "rdma_destroy_id.waits",
                 "rdma_ack_cm_event.one-to-one") {
  CmId id = start_resolving();
  CmEvent first = next_event(channel(), RDMA_CM_EVENT_ADDR_RESOLVED);
  ASSERT_SUCCEEDS(rdma_resolve_route(id, resolve_milliseconds()));
  CmEvent second = next_event(channel(), RDMA_CM_EVENT_ROUTE_RESOLVED);
  rdma_cm_id* const released = id.release();
  auto destroyed = std::async(std::launch::async, [=] { return CALL(rdma_destroy_id(released)); });
  ABOUT("rdma_destroy_id.waits")
  EXPECT_EQ(destroyed.wait_for(scaled(15ms)), std::future_status::timeout) << "two events are open";
  {
    const About about("rdma_ack_cm_event.one-to-one");
    EXPECT_SUCCEEDS(first.destroy());
    EXPECT_EQ(destroyed.wait_for(scaled(15ms)), std::future_status::timeout) << "one event is open";
    EXPECT_SUCCEEDS(second.destroy());
  }
  ABOUT("rdma_destroy_id.waits") EXPECT_EQ(destroyed.get(), 0);
}

CONFORMANCE_TEST(cm_setup, BindsToTheDevice, "rdma_bind_addr.zero", "rdma_bind_addr.device",
                 "rdma_bind_addr.port-0", "rdma_get_src_port.bound", "rdma_get_src_port.unbound",
                 "rdma_get_local_addr.bound", "rdma_get_local_addr.unbound") {
  for (const SocketAddress& own : addresses()) {
    const CmId id = make_id();
    {
      const About about("rdma_get_src_port.unbound");
      EXPECT_EQ(rdma_get_src_port(id), 0);
    }
    {
      const About about("rdma_get_local_addr.unbound");
      EXPECT_TRUE(is_zero(rdma_get_local_addr(id)));
    }
    ASSERT_TRUE(succeeded(bind(id, own))) << own.host();
    {
      const About about("rdma_bind_addr.device");
      ASSERT_NE(id->verbs, nullptr) << own.host();
      EXPECT_EQ(options().device, ibv_get_device_name(id->verbs->device));
      EXPECT_EQ(id->port_num, options().port);
    }
    {
      const About about("rdma_bind_addr.port-0");
      EXPECT_NE(rdma_get_src_port(id), 0);
    }
    const About about("rdma_get_local_addr.bound");
    EXPECT_EQ(local_address(id).host(), own.host());
    EXPECT_EQ(local_address(id).port(), ntohs(rdma_get_src_port(id)));
  }
}

CONFORMANCE_TEST(cm_setup, BindsToAPort, "rdma_get_src_port.bound", "rdma_bind_addr.in-use") {
  CmId first = make_bound();
  const SocketAddress taken = local_address(first);
  const CmId second = make_id();
  {
    const About about("rdma_bind_addr.in-use");
    EXPECT_TRUE(minus_one(bind(second, taken)));
  }
  EXPECT_SUCCEEDS(rdma_destroy_id(first.release()));
  ASSERT_TRUE(succeeded(bind(second, taken))) << "free again";
  EXPECT_EQ(ntohs(rdma_get_src_port(second)), taken.port());
}

CONFORMANCE_TEST(cm_setup, PortsOfIdentifiersDiffer, "rdma_bind_addr.port-0") {
  std::set<uint16_t> ports;
  std::vector<CmId> ids;
  for (int i = 0; i < 8; ++i) {
    ids.push_back(make_bound());
    ports.insert(rdma_get_src_port(ids.back()));
  }
  EXPECT_EQ(ports.size(), ids.size());
}

CONFORMANCE_TEST(cm_setup, WildcardBindsToNoDevice, "rdma_bind_addr.wildcard") {
  const CmId id = make_id();
  ASSERT_TRUE(succeeded(bind(id, any_address(address().family()))));
  EXPECT_EQ(id->verbs, nullptr);
  EXPECT_NE(rdma_get_src_port(id), 0);
}

CONFORMANCE_TEST(cm_setup, ForeignAddressIsRefused, "rdma_bind_addr.foreign") {
  const CmId id = make_id();
  // Of the range for documentation (RFC 5737): no machine has it.
  EXPECT_TRUE(minus_one(bind(id, SocketAddress("203.0.113.77", 0))));
}

CONFORMANCE_TEST(cm_setup, BindsOnce, "rdma_bind_addr.twice") {
  const CmId id = make_bound();
  EXPECT_TRUE(minus_one(bind(id, address())));
}

CONFORMANCE_TEST(cm_setup, BothEndsKnowBothAddresses, "rdma_get_dst_port.connected",
                 "rdma_get_dst_port.unconnected", "rdma_get_peer_addr.connected",
                 "rdma_get_peer_addr.unconnected", "rdma_get_local_addr.bound", "rdma_get_src_port.bound") {
  {
    const CmId id = make_id();
    const About about("rdma_get_peer_addr.unconnected");
    EXPECT_TRUE(is_zero(rdma_get_peer_addr(id)));
    const About port("rdma_get_dst_port.unconnected");
    EXPECT_EQ(rdma_get_dst_port(id), 0);
  }
  const EventFacts request = ask();
  EXPECT_EQ(peer_address(near_), request.local);
  EXPECT_EQ(local_address(near_), request.peer);
  EXPECT_EQ(ntohs(rdma_get_dst_port(near_)), request.local.port());
  EXPECT_EQ(ntohs(rdma_get_src_port(near_)), request.peer.port());
}

CONFORMANCE_TEST(cm_setup, DevicesAreOpened, "rdma_get_devices.list", "rdma_get_devices.contexts",
                 "rdma_free_devices.contexts-stay") {
  const CmId id = make_bound();
  int count = 0;
  ibv_context** const devices = CALL(rdma_get_devices(&count));
  ASSERT_NE(devices, nullptr) << errno_text(errno);
  EXPECT_EQ(devices[count], nullptr);
  ibv_context* own = nullptr;
  for (int i = 0; i < count; ++i) {
    ASSERT_NE(devices[i], nullptr) << "entry " << i << " of " << count;
    if (options().device == ibv_get_device_name(devices[i]->device)) own = devices[i];
  }
  {
    const About about("rdma_get_devices.contexts");
    ASSERT_NE(own, nullptr) << "the device is in the list";
    EXPECT_EQ(id->verbs, own);
    Pd pd(CALL(ibv_alloc_pd(own)));
    ASSERT_NE(pd, nullptr);
    ibv_qp_init_attr attr = queue_attributes(id);
    ASSERT_SUCCEEDS(rdma_create_qp(id, pd, &attr));
    EXPECT_EQ(id->qp->pd, pd);
    rdma_destroy_qp(id);
  }
  Pd before(CALL(ibv_alloc_pd(own)));
  ASSERT_NE(before, nullptr);
  CALL(rdma_free_devices(devices));
  const About about("rdma_free_devices.contexts-stay");
  const Pd after(CALL(ibv_alloc_pd(own)));
  EXPECT_NE(after, nullptr);
  EXPECT_SUCCEEDS(before.destroy());
  EXPECT_EQ(id->verbs, own);
}

// That these calls fail is the promise of other clauses; here it counts how they do.
CONFORMANCE_TEST(cm_setup, FailureIsMinusOne, "rdma_cm.minus-one") {
  const CmId id = make_bound();
  int failures = 0;
  const auto expect = [&](int result) {
    if (result == 0) return;
    EXPECT_TRUE(minus_one(result));
    ++failures;
  };
  expect(CALL(rdma_bind_addr(id, address().get())));
  expect(CALL(rdma_resolve_route(id, resolve_milliseconds())));
  rdma_conn_param parameters = ConnectionSpec().parameters();
  expect(CALL(rdma_connect(id, &parameters)));
  expect(CALL(rdma_accept(id, &parameters)));
  expect(CALL(rdma_disconnect(id)));
  int value = 0;
  expect(CALL(rdma_set_option(id, 99, 99, &value, sizeof value)));
  if (failures == 0) throw NotTested{"none of these calls fails"};
}

CONFORMANCE_TEST(cm_setup, EveryEventHasAText, "rdma_event_str.text") {
  std::set<std::string> texts;
  for (int type = RDMA_CM_EVENT_ADDR_RESOLVED; type <= RDMA_CM_EVENT_TIMEWAIT_EXIT; ++type) {
    const char* const text = rdma_event_str(static_cast<rdma_cm_event_type>(type));
    ASSERT_NE(text, nullptr);
    texts.insert(text);
  }
  EXPECT_EQ(texts.size(), size_t{RDMA_CM_EVENT_TIMEWAIT_EXIT + 1}) << "one for each";
  EXPECT_FALSE(texts.contains(rdma_event_str(static_cast<rdma_cm_event_type>(99))));
}

}  // namespace
}  // namespace conformance::cm_ids_chapter
