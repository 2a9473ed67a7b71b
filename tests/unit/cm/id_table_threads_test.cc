// SPDX-License-Identifier: BSD-2-Clause
//
// Many threads in the id table at once: binding, listening, publishing, looking.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <thread>
#include <vector>

#include "cm/id_table.h"
#include "unit/cm/addresses.h"
#include "unit/common/scoped_membership.h"
#include "unit/common/temporary_node.h"

namespace verbena::cm {
namespace {

constexpr uint16_t kFirstPort = 7000;
constexpr size_t kPorts = 4;  // few, so that they meet
constexpr int kThreads = 4;
constexpr int kTurns = 1500;

class ThreadsCmPorts : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(member_.error, 0);
    ASSERT_EQ(table_.open(node_.directory(), node_.path()), 0);
  }
  IdFacts facts(size_t port, uint8_t flags) const {
    IdFacts f{};
    f.local = ipv4("10.0.0.1", static_cast<uint16_t>(kFirstPort + port));
    f.space = PortSpace::kTcp;
    f.flags = flags | kIdFamilyOnly;
    f.device = kNoDevice;
    return f;
  }
  Owner owner() const { return {member_.membership.slot(), member_.membership.generation()}; }
  template <typename Work>
  static void at_once(Work&& work) {
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i) threads.emplace_back(work, i);
    for (std::thread& thread : threads) thread.join();
  }

  TemporaryNode node_;
  ScopedMembership member_{node_.path()};
  IdTable table_;
};

TEST_F(ThreadsCmPorts, APortHasOneHolder) {
  std::array<std::atomic<int>, kPorts> holders{};
  std::atomic<int> crowded{0}, held{0};
  at_once([&](int thread) {
    for (int turn = 0; turn < kTurns; ++turn) {
      const size_t port = static_cast<size_t>(turn + thread) % kPorts;
      IdFacts f = facts(port, 0);
      IdHandle id;
      if (table_.add(owner(), f, &id) != 0) continue;
      if (table_.bind(id, &f) == 0) {
        held += 1;
        crowded += holders[port].fetch_add(1) != 0;
        holders[port].fetch_sub(1);
      }
      table_.remove(id);
    }
  });
  EXPECT_EQ(crowded.load(), 0);
  EXPECT_GT(held.load(), 0);
}

// Binding with reuse and beginning to listen: one of the two sees the other.
TEST_F(ThreadsCmPorts, AListenerIsAloneHoweverManyShareThePort) {
  std::array<std::atomic<int>, kPorts> listeners{}, bound{};
  std::atomic<int> crowded{0};
  at_once([&](int thread) {
    for (int turn = 0; turn < kTurns; ++turn) {
      const size_t port = static_cast<size_t>(turn + thread) % kPorts;
      IdFacts f = facts(port, kIdReuse);
      IdHandle id;
      if (table_.add(owner(), f, &id) != 0) continue;
      if (table_.bind(id, &f) == 0) {
        bound[port].fetch_add(1);
        if (table_.listen(id, &f, 1) == 0) {
          crowded += listeners[port].fetch_add(1) != 0;
          crowded += bound[port].load() != 1;
          listeners[port].fetch_sub(1);
        }
        bound[port].fetch_sub(1);
      }
      table_.remove(id);
    }
  });
  EXPECT_EQ(crowded.load(), 0);
}

TEST_F(ThreadsCmPorts, AListenerIsHeardWhateverHappensBesideIt) {
  IdFacts server = facts(0, 0);
  server.local = ipv4("10.0.0.9", kFirstPort);
  server.number = 99;
  IdHandle id;
  ASSERT_EQ(table_.add(owner(), server, &id), 0);
  ASSERT_EQ(table_.bind(id, &server), 0);
  ASSERT_EQ(table_.listen(id, &server, 1), 0);
  std::atomic<int> missed{0};
  at_once([&](int thread) {
    for (int turn = 0; turn < kTurns; ++turn) {
      if (thread == 0) {
        IdRecord found;
        missed += !table_.find_listener(PortSpace::kTcp, server.local, kAnyDevice, &found) ||
                  found.facts.number != 99;
        continue;
      }
      IdFacts f = facts(0, 0);
      IdHandle other;
      if (table_.add(owner(), f, &other) != 0) continue;
      table_.bind(other, &f);
      table_.remove(other);
    }
  });
  EXPECT_EQ(missed.load(), 0);
}

TEST_F(ThreadsCmPorts, WhatIsReadWasPublishedInOnePiece) {
  IdFacts f = facts(0, 0);
  IdHandle id;
  ASSERT_EQ(table_.add(owner(), f, &id), 0);
  std::atomic<int> torn{0};
  std::atomic<bool> over{false};
  at_once([&](int thread) {
    if (thread == 0) {
      for (uint32_t i = 0; i < 20u * kTurns; ++i) {
        f.number = f.qpn = i;
        table_.publish(id, f);
      }
      over = true;
    }
    while (!over) {
      IdRecord record;
      if (table_.read(id, &record) && record.facts.number != record.facts.qpn) torn += 1;
    }
  });
  EXPECT_EQ(torn.load(), 0);
}

}  // namespace
}  // namespace verbena::cm
