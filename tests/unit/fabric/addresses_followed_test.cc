// SPDX-License-Identifier: BSD-2-Clause
//
// Addresses of the node that come and go while all its processes watch (fabric/device_events.h,
// follow_addresses()): what they find becomes one history, in which nothing is reported twice.
#include <errno.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "common/loopback.h"
#include "fabric/device_events.h"
#include "unit/common/scoped_membership.h"
#include "unit/common/temporary_node.h"

namespace verbena {
namespace {

std::atomic<bool> addresses_present{true};
bool is_address_present(const std::array<uint8_t, 16>&) { return addresses_present.load(); }

DeviceTableOptions with_addresses() {
  DeviceTableOptions options;
  options.network.enabled = true;
  options.network.addresses = {wire::loopback(2).bytes, wire::loopback(3).bytes};
  options.network.key.fill(3);
  return options;
}

class AddressesFollowed : public ::testing::Test {
 protected:
  AddressesFollowed() { addresses_present.store(true); }
  int follow() const { return follow_addresses(node.directory(), node.path(), is_address_present); }
  const DeviceEventLog& log() const { return node.directory().events(0); }
  // The last ones, as far as they are kept.
  std::vector<int> events() const {
    std::vector<int> types;
    const uint64_t count = log().count();
    for (uint64_t i = count - std::min<uint64_t>(count, DeviceEventLog::kLength); i < count; ++i)
      types.push_back(static_cast<uint8_t>(log().event(i).type));
    return types;
  }
  const TemporaryNode node{with_addresses()};
};

TEST_F(AddressesFollowed, GoneAndBackIsToldOnce) {
  ASSERT_EQ(follow(), 0);
  for (const bool now : {false, false, true, true}) {
    addresses_present.store(now);
    ASSERT_EQ(follow(), 0);
    EXPECT_EQ(log().port_down(), !now);
  }
  EXPECT_EQ(events(),
            (std::vector<int>{IBV_EVENT_GID_CHANGE, IBV_EVENT_PORT_ERR, IBV_EVENT_GID_CHANGE, IBV_EVENT_PORT_ACTIVE}));
  const auto& counts = node.directory().header().port_counts[port_place(0, 1)];
  EXPECT_EQ(counts[static_cast<size_t>(PortCount::kLinkDowned)], 1u);
}

TEST_F(AddressesFollowed, ByManyAtOnceIsOneHistory) {
  constexpr int kLookers = 3, kLooks = 200;
  const ScopedMembership first(node.path()), second(node.path());  // processes that are told
  ASSERT_EQ(first.error + second.error, 0);
  std::vector<std::thread> lookers;
  std::atomic<int> failures{0};
  for (int looker = 0; looker < kLookers; ++looker)
    lookers.emplace_back([&, looker] {
      for (int i = 0; i < kLooks; ++i) {
        addresses_present.store((i + looker) % 3 != 0);
        if (const int error = follow(); error != 0 && error != ETIMEDOUT) ++failures;
      }
    });
  for (std::thread& looker : lookers) looker.join();
  EXPECT_EQ(failures.load(), 0);
  for (const bool now : {false, true}) {
    addresses_present.store(now);
    ASSERT_EQ(follow(), 0);
    EXPECT_EQ(log().port_down(), !now);
  }
  const std::vector<int> all = events();
  std::vector<int> of_port;
  for (size_t i = 1; i < all.size(); ++i) {
    if (all[i] == IBV_EVENT_GID_CHANGE) continue;
    EXPECT_EQ(all[i - 1], IBV_EVENT_GID_CHANGE) << i;
    of_port.push_back(all[i]);
  }
  EXPECT_EQ(std::adjacent_find(of_port.begin(), of_port.end()), of_port.end()) << "told twice";
}

}  // namespace
}  // namespace verbena
