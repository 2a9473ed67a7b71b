// SPDX-License-Identifier: BSD-2-Clause
//
// Binding, resolving and listening: what is found, what is refused, and when.
#include <errno.h>
#include <fcntl.h>
#include <gtest/gtest.h>

#include <atomic>
#include <string>

#include "adapter/clock.h"
#include "cm/addresses.h"
#include "observe/log.h"
#include "unit/cm/scene.h"
#include "unit/common/temporary_node.h"

namespace verbena::cm {
namespace {

struct Resolving : ::testing::Test {
  TemporaryNode node;
  ServiceHolder service;
  Inbox inbox;
  OwnedId id = make_id(service, inbox);
};

TEST_F(Resolving, ALoopbackAddressHasADevice) {
  ASSERT_EQ(resolve_address(id.get(), nullptr, Ip("127.0.0.1", 80), 1000), 0);
  ASSERT_TRUE(next_is(inbox, EventType::kAddressResolved));
  Route route;
  query(id.get(), &route);
  EXPECT_TRUE(route.has_device);
  EXPECT_STREQ(route.device_name, "verbena0");
  EXPECT_EQ(route.port, 1);
  EXPECT_EQ(route.path_count, 0u);
  EXPECT_NE(port_of(id.get()), 0);
}

TEST_F(Resolving, AnAddressNobodyHasIsNotAnsweredInTime) {
  const int64_t begin = now_ns();
  ASSERT_EQ(resolve_address(id.get(), Ip("127.0.0.1"), Ip("203.0.113.7", 80), 300), 0);
  ASSERT_TRUE(next_is(inbox, EventType::kAddressError, -ETIMEDOUT));
  EXPECT_GE(now_ns() - begin, 300'000'000);
}

TEST_F(Resolving, AnAddressNobodyHasIsExplained) {
  const LogLevel before = log_level;
  log_level = LogLevel::kWarn;
  testing::internal::CaptureStderr();
  ASSERT_EQ(resolve_address(id.get(), Ip("127.0.0.1"), Ip("203.0.113.7", 80), 1), 0);
  EXPECT_TRUE(next_is(inbox, EventType::kAddressError, -ETIMEDOUT));
  const std::string said = testing::internal::GetCapturedStderr();
  log_level = before;
  EXPECT_NE(said.find("nobody answers for 203.0.113.7"), std::string::npos) << said;
  EXPECT_NE(said.find("the node has no network (verbena run --ip or --roce)"), std::string::npos) << said;
}

TEST_F(Resolving, MayBeTriedAgain) {
  ASSERT_EQ(resolve_address(id.get(), Ip("127.0.0.1"), Ip("203.0.113.7", 80), 1), 0);
  ASSERT_TRUE(next_is(inbox, EventType::kAddressError, -ETIMEDOUT));
  ASSERT_EQ(resolve_address(id.get(), nullptr, Ip("127.0.0.1", 80), 1000), 0);
  EXPECT_TRUE(next_is(inbox, EventType::kAddressResolved));
}

TEST_F(Resolving, IsEndedByDestruction) {
  ASSERT_EQ(resolve_address(id.get(), Ip("127.0.0.1"), Ip("203.0.113.7", 80), 500), 0);
  id.reset();
  const OwnedId later = make_id(service, inbox);
  ASSERT_EQ(resolve_address(later.get(), Ip("127.0.0.1"), Ip("203.0.113.7", 80), 600), 0);
  EXPECT_TRUE(next_is(inbox, EventType::kAddressError, -ETIMEDOUT));
  EXPECT_TRUE(inbox.empty());
}

TEST_F(Resolving, OnlyThreeFamiliesAreKnown) {
  const sockaddr local{AF_UNIX, {}};
  EXPECT_EQ(bind_address(id.get(), &local), EAFNOSUPPORT);
  EXPECT_EQ(resolve_address(id.get(), nullptr, &local, 1), EAFNOSUPPORT);
}

TEST_F(Resolving, BothAddressesAreOfOneFamily) {
  sockaddr_in6 six{};
  six.sin6_family = AF_INET6;
  six.sin6_addr = in6addr_loopback;
  EXPECT_EQ(resolve_address(id.get(), reinterpret_cast<sockaddr*>(&six), Ip("127.0.0.1", 1), 1), EINVAL);
}

TEST_F(Resolving, AStrangersAddressIsNotBound) {
  EXPECT_EQ(bind_address(id.get(), Ip("203.0.113.7")), EADDRNOTAVAIL);
  EXPECT_EQ(bind_address(id.get(), Ip("0.0.0.0")), 0);
}

TEST_F(Resolving, IsBoundOnce) {
  ASSERT_EQ(bind_address(id.get(), Ip("0.0.0.0")), 0);
  EXPECT_EQ(bind_address(id.get(), Ip("0.0.0.0")), EINVAL);
}

TEST_F(Resolving, TheRouteHasAPath) {
  id = make_resolved(service, inbox, 80);
  Route route;
  query(id.get(), &route);
  ASSERT_EQ(route.path_count, 1u);
  EXPECT_EQ(memcmp(route.paths[0].sgid, route.source_gid.raw, 16), 0);
  EXPECT_EQ(memcmp(route.paths[0].dgid, route.destination_gid.raw, 16), 0);
}

TEST_F(Resolving, AnUnboundListenerGetsAPort) {
  ASSERT_EQ(listen(id.get(), 1), 0);
  EXPECT_NE(port_of(id.get()), 0);
}

TEST_F(Resolving, ReuseIsDecidedBeforeListening) {
  EXPECT_EQ(set_reuse_address(id.get(), true), 0);
  ASSERT_EQ(listen(id.get(), 1), 0);
  EXPECT_EQ(set_reuse_address(id.get(), true), EINVAL);
  EXPECT_EQ(set_family_only(id.get(), true), EINVAL);
}

TEST_F(Resolving, ATimeoutIsForConnections) {
  EXPECT_EQ(set_ack_timeout(id.get(), 14), 0);
  const OwnedId datagram = make_id(service, inbox, PortSpace::kUdp);
  EXPECT_EQ(set_ack_timeout(datagram.get(), 14), EINVAL);
}

TEST_F(Resolving, AnUnknownPortSpaceIsRefused) {
  Id* none;
  EXPECT_EQ(create_id(service.get(), static_cast<PortSpace>(0x105), IBV_QPT_RC, Inbox::handle, &inbox, &none),
            EINVAL);
}

TEST_F(Resolving, AListenerElsewhereRefuses) {
  Address elsewhere;
  ASSERT_EQ(choose_source(node.directory().devices(), Address::of(Ip("203.0.113.7").in), &elsewhere), 0);
  Inbox passive_inbox;
  const OwnedId listener = make_id(service, passive_inbox);
  ASSERT_EQ(bind_address(listener.get(), elsewhere.get()), 0);
  ASSERT_EQ(listen(listener.get(), 1), 0);
  id = make_resolved(service, inbox, port_of(listener.get()));
  ASSERT_EQ(connect(id.get(), parameters(1), {}), 0);
  EXPECT_TRUE(next_is(inbox, EventType::kRejected, 28));  // the service ID is known, the address is not
}

// ---- pipes and forks ------------------------------------------------------------------------------------

TEST_F(Resolving, APipeWithoutReaderIsNoticed) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  std::atomic<int> gone{0};
  ASSERT_EQ(watch_pipe(
                service.get(), ends[1], [](void* count) { ++*static_cast<std::atomic<int>*>(count); }, &gone),
            0);
  EXPECT_EQ(gone, 0);
  close(ends[0]);
  EXPECT_TRUE(eventually([&] { return gone == 1; }));
  unwatch_pipe(service.get(), ends[1]);
  close(ends[1]);
}

TEST_F(Resolving, AnUnwatchedPipeIsNotNoticed) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  std::atomic<int> gone{0};
  ASSERT_EQ(watch_pipe(
                service.get(), ends[1], [](void* count) { ++*static_cast<std::atomic<int>*>(count); }, &gone),
            0);
  unwatch_pipe(service.get(), ends[1]);
  close(ends[0]);
  close(ends[1]);
  ASSERT_EQ(resolve_address(id.get(), nullptr, Ip("127.0.0.1", 80), 1000), 0);
  ASSERT_TRUE(next_is(inbox, EventType::kAddressResolved));  // its thread has run
  EXPECT_EQ(gone, 0);
}

// Not for the thread sanitizer: here only the folder shows that the service has ended.
TEST(TheServicesThread, MayEndTheService) {
  TemporaryNode node;
  Service* service;
  ASSERT_EQ(acquire_service(&service), 0);
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  ASSERT_EQ(watch_pipe(
                service, ends[1], [](void* s) { release_service(static_cast<Service*>(s)); }, service),
            0);
  close(ends[0]);
  EXPECT_TRUE(eventually([&] { return node.slot_folders() == 0; }));
  close(ends[1]);
}

TEST(TheService, IsOnePerProcess) {
  TemporaryNode node;
  const ServiceHolder first, second;
  EXPECT_EQ(first.get(), second.get());
  EXPECT_EQ(node.slot_folders(), 1u);
}

TEST(TheService, NeedsANode) {
  Service* service;
  unsetenv(kNodeVariable);
  EXPECT_EQ(acquire_service(&service), ENODEV);
}

}  // namespace
}  // namespace verbena::cm
