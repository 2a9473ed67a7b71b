// SPDX-License-Identifier: BSD-2-Clause
#include "wire/port_claim.h"

#include <errno.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "unit/common/child.h"

namespace verbena::wire {
namespace {

class PortClaimTest : public ::testing::Test {
 protected:
  static int take(PortClaim& claim, uint64_t node, uint32_t slot) {
    std::string problem;
    return claim.take(address(), port(), {node, slot, 1}, &problem);
  }
  static NetAddress address() {
    NetAddress address;
    EXPECT_TRUE(NetAddress::from_text("192.0.2.77", &address));
    return address;
  }
  // Tests run side by side in one network namespace.
  static uint16_t port() {
    static const uint16_t number = static_cast<uint16_t>(1024 + getpid() % 60000);
    return number;
  }
  // The name of a process of another node that asks.
  static int somebody_asks() {
    const std::string name = "verbena/" + std::to_string(port()) + "/192.0.2.77/0000000000000001/1.1/asks";
    sockaddr_un where{};
    where.sun_family = AF_UNIX;
    name.copy(where.sun_path + 1, sizeof where.sun_path - 1);
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    Descriptor asking{socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    EXPECT_EQ(bind(asking.fd, reinterpret_cast<const sockaddr*>(&where), size), 0);
    EXPECT_EQ(listen(asking.fd, SOMAXCONN), 0);
    return asking.release();
  }
  // A process that claims the port and keeps it until told otherwise; 'y' or 'n'.
  static std::unique_ptr<Child> claimant(uint64_t node, uint32_t slot) {
    const uint16_t number = port();
    return std::make_unique<Child>([=](const Child& self) {
      self.hear();
      PortClaim claim;
      std::string problem;
      self.tell(claim.take(address(), number, {node, slot, 1}, &problem) == 0 ? 'y' : 'n');
      self.hear();
      return 0;
    });
  }
};

TEST_F(PortClaimTest, ProcessesOfOneNodeShareThePort) {
  PortClaim first, second;
  EXPECT_EQ(take(first, 7, 1), 0);
  EXPECT_EQ(take(second, 7, 2), 0);
}

TEST_F(PortClaimTest, AnotherNodeIsRefusedAndHearsWhoHasThePort) {
  PortClaim first, second;
  ASSERT_EQ(take(first, 7, 1), 0);
  std::string problem;
  EXPECT_EQ(second.take(address(), port(), {3, 1, 1}, &problem), EADDRINUSE);
  EXPECT_NE(problem.find("192.0.2.77:" + std::to_string(port())), std::string::npos) << problem;
  EXPECT_NE(problem.find("process " + std::to_string(getpid())), std::string::npos) << problem;
}

TEST_F(PortClaimTest, EachOfManyHearsWhoHasThePort) {
  PortClaim first;
  ASSERT_EQ(take(first, 7, 1), 0);
  for (uint64_t node = 8; node < 16; ++node) {
    std::string problem;
    EXPECT_EQ(PortClaim().take(address(), port(), {node, 1, 1}, &problem), EADDRINUSE);
    EXPECT_NE(problem.find("process " + std::to_string(getpid())), std::string::npos) << problem;
  }
}

TEST_F(PortClaimTest, OfAnotherPortOrAddressIsAnotherClaim) {
  PortClaim first, second;
  ASSERT_EQ(take(first, 7, 1), 0);
  std::string problem;
  NetAddress other;
  ASSERT_TRUE(NetAddress::from_text("192.0.2.7", &other));
  EXPECT_EQ(second.take(other, port(), {3, 1, 1}, &problem), 0) << problem;
  EXPECT_EQ(PortClaim().take(address(), static_cast<uint16_t>(port() ^ 1), {3, 1, 1}, &problem), 0)
      << problem;
}

TEST_F(PortClaimTest, EndsWithItsProcess) {
  const auto holder = claimant(7, 1);
  holder->command('g');
  ASSERT_EQ(holder->answer(), 'y');
  PortClaim claim;
  EXPECT_EQ(take(claim, 3, 1), EADDRINUSE);
  holder->kill_now();
  EXPECT_EQ(take(claim, 3, 1), 0);
}

TEST_F(PortClaimTest, OfAStoppedProcessHolds) {
  const auto holder = claimant(7, 1);
  holder->command('g');
  ASSERT_EQ(holder->answer(), 'y');
  holder->stop();
  PortClaim claim, own;
  EXPECT_EQ(take(claim, 3, 1), EADDRINUSE);
  EXPECT_EQ(take(own, 7, 2), 0);
}

TEST_F(PortClaimTest, IsFoundByThoseWhoOnlyLook) {
  PortClaim claim;
  std::string problem;
  EXPECT_EQ(find_other_claim(
                address(), port(), [] { return 0; }, &problem),
            0);
  ASSERT_EQ(take(claim, 7, 1), 0);
  EXPECT_EQ(find_other_claim(
                address(), port(), [] { return 7; }, &problem),
            0);
  EXPECT_EQ(find_other_claim(
                address(), port(), [] { return 0; }, &problem),
            EADDRINUSE);
}

TEST_F(PortClaimTest, OfTheLookersNodeIsItsOwnThoughTheNodeIsNewerThanTheLook) {
  PortClaim claim;
  ASSERT_EQ(take(claim, 7, 1), 0);
  int calls = 0;
  std::string problem;
  EXPECT_EQ(find_other_claim(
                address(), port(), [&] { return calls++ == 0 ? 0 : 7; }, &problem),
            0)
      << problem;
}

// A process that asks and never goes on delays others for two seconds, and no longer.
TEST_F(PortClaimTest, GivesUpOnANodeThatOnlyAsks) {
  const Descriptor asking{somebody_asks()};
  PortClaim claim;
  EXPECT_EQ(take(claim, 7, 1), ETIMEDOUT);
}

TEST_F(PortClaimTest, IsSharedThoughAnotherNodeOnlyAsks) {
  PortClaim first, second;
  ASSERT_EQ(take(first, 7, 1), 0);
  const Descriptor asking{somebody_asks()};
  EXPECT_EQ(take(second, 7, 2), 0);
}

// A name does not say whose process took it. Another user's process cannot share a port with this user's.
TEST_F(PortClaimTest, OfAnotherUserDoesNotCount) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  const uint16_t number = port();
  const Child other([=](const Child& self) {
    if (setuid(12345) != 0) return 1;
    PortClaim claim;
    std::string problem;
    self.tell(claim.take(address(), number, {3, 1, 1}, &problem) == 0 ? 'y' : 'n');
    self.hear();
    return 0;
  });
  ASSERT_EQ(other.answer(), 'y');
  PortClaim claim;
  EXPECT_EQ(take(claim, 7, 1), 0);
}

TEST_F(PortClaimTest, OneNodeOfSeveralThatAskAtOnceGetsThePort) {
  constexpr uint64_t kNodes = 4;
  constexpr uint32_t kProcesses = 2;  // of each node
  for (int round = 0; round < 10; ++round) {
    std::vector<std::unique_ptr<Child>> children;
    for (uint64_t node = 1; node <= kNodes; ++node)
      for (uint32_t slot = 0; slot < kProcesses; ++slot) children.push_back(claimant(node, slot));
    for (const auto& child : children) child->command('g');
    std::set<size_t> nodes;
    size_t holders = 0;
    for (size_t i = 0; i < children.size(); ++i) {
      if (children[i]->answer() != 'y') continue;
      nodes.insert(i / kProcesses);
      ++holders;
    }
    EXPECT_EQ(nodes.size(), 1u);
    EXPECT_EQ(holders, kProcesses);
  }
}

}  // namespace
}  // namespace verbena::wire
