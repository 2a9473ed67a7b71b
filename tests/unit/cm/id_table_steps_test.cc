// SPDX-License-Identifier: BSD-2-Clause
//
// A process at work in the id table, executed instruction by instruction (ptrace(2)). After each instruction
// that changes the table, the table is checked: first as if its owner was stopped there, then, when the owner
// is dead, as if it had died there. The checks work on a copy, so that one pass covers every step.
#include <errno.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <vector>

#include "cm/id_table_file.h"
#include "cm/port_chain.h"
#include "fabric/private_folder.h"
#include "unit/cm/addresses.h"
#include "unit/common/child.h"
#include "unit/common/scoped_membership.h"
#include "unit/common/temporary_node.h"

namespace verbena::cm {
namespace {

constexpr uint16_t kSteppedPort = 7000;
constexpr size_t kPage = 4096;
static_assert(sizeof(IdTableFile) % kPage == 0);

// The pages of a table that are not zero.
struct Snapshot {
  std::vector<std::pair<size_t, std::array<std::byte, kPage>>> pages;

  explicit Snapshot(const IdTableFile& file) {
    static constexpr std::array<std::byte, kPage> kZero{};
    const auto* bytes = reinterpret_cast<const std::byte*>(&file);
    for (size_t at = 0; at < sizeof file; at += kPage) {
      if (std::memcmp(bytes + at, kZero.data(), kPage) == 0) continue;
      pages.emplace_back(at, kZero);
      std::memcpy(pages.back().second.data(), bytes + at, kPage);
    }
  }
  void write_to(IdTableFile* file) const {
    auto* bytes = reinterpret_cast<std::byte*>(file);
    std::memset(static_cast<void*>(bytes), 0, sizeof *file);
    for (const auto& [at, page] : pages) std::memcpy(bytes + at, page.data(), kPage);
  }
};

// A process with ids in a table.
struct SteppingPlayer {
  IdTable table;
  Owner owner;
  IdFacts facts{};

  IdHandle add(const Address& local, uint8_t flags) {
    facts = {};
    facts.local = local;
    facts.space = PortSpace::kTcp;
    facts.flags = flags | kIdFamilyOnly;
    facts.device = kNoDevice;
    IdHandle id;
    if (table.add(owner, facts, &id) != 0) return {};
    return id;
  }
  IdHandle bound(const Address& local, uint8_t flags) {
    const IdHandle id = add(local, flags);
    return table.bind(id, &facts) == 0 ? id : IdHandle{};
  }
};

// What the victim does; `prepare` runs before the steps are counted.
struct Deed {
  const char* name;
  void (*prepare)(SteppingPlayer&, IdHandle*);
  void (*act)(SteppingPlayer&, IdHandle*);
  friend void PrintTo(const Deed& deed, std::ostream* out) { *out << deed.name; }
};

const Address kVictim = ipv4("10.0.0.1", kSteppedPort);
const Address kBystander = ipv4("10.0.0.2", kSteppedPort);

void nothing(SteppingPlayer&, IdHandle*) {}
void add(SteppingPlayer& p, IdHandle* id) { *id = p.add(kVictim, kIdReuse); }
void bind(SteppingPlayer& p, IdHandle* id) { p.table.bind(*id, &p.facts); }
void add_and_bind(SteppingPlayer& p, IdHandle* id) { *id = p.bound(kVictim, kIdReuse); }
void unbind(SteppingPlayer& p, IdHandle* id) { p.table.unbind(*id, &p.facts); }
void remove(SteppingPlayer& p, IdHandle* id) { p.table.remove(*id); }
void listen(SteppingPlayer& p, IdHandle* id) { p.table.listen(*id, &p.facts, 1); }
void publish(SteppingPlayer& p, IdHandle* id) {
  p.facts.state = IdState::kConnected;
  p.table.publish(*id, p.facts);
}
void join(SteppingPlayer& p, IdHandle* id) { p.table.join(*id, gid("ff02::7"), false); }
void add_bind_and_join(SteppingPlayer& p, IdHandle* id) {
  add_and_bind(p, id);
  join(p, id);
}

const Deed kDeeds[] = {{"Add", nothing, add},
                       {"Bind", add, bind},
                       {"Unbind", add_and_bind, unbind},
                       {"Remove", add_and_bind, remove},
                       {"Listen", add_and_bind, listen},
                       {"Publish", add_and_bind, publish},
                       {"Join", add_and_bind, join},
                       {"RemoveWithGroup", add_bind_and_join, remove}};

class CmSteps : public ::testing::TestWithParam<Deed> {
 protected:
  void SetUp() override {
#if !defined(__x86_64__)
    GTEST_SKIP() << "exclusive loads and stores never succeed when they are stepped";
#endif
    ASSERT_EQ(member_.error, 0);
    const uint64_t node_id = node_.directory().header().node_id;
    ASSERT_EQ(map_id_table(node_.path(), node_id, false, &file_), 0);
    ASSERT_EQ(make_private_folder(replica_folder_), 0);
    ASSERT_EQ(map_id_table(replica_folder_, node_id, false, &replica_), 0);
    bystander_.owner = {member_.membership.slot(), member_.membership.generation()};
    ASSERT_EQ(bystander_.table.open(node_.directory(), node_.path()), 0);
    ASSERT_EQ(observer_.table.open(node_.directory(), replica_folder_), 0);
    observer_.owner = bystander_.owner;
    // The bystander is in the same chain, before and behind the victim's place.
    ASSERT_FALSE((first_ = bystander_.bound(kBystander, 0)).none());
  }
  void TearDown() override {
    if (file_ != nullptr) unmap_id_table(file_);
    if (replica_ != nullptr) unmap_id_table(replica_);
  }

  // Runs `deed` in the victim from its mark on. Calls changed() after each instruction that changed
  // something.
  void run(const Deed& deed, const std::function<void()>& changed, const std::function<void()>& at_mark) {
    Child victim([&](const Child&) {
      NodeMembership membership;
      if (membership.enter(node_.path(), nullptr, nullptr) != 0) return 1;
      SteppingPlayer player;
      player.owner = {membership.slot(), membership.generation()};
      if (player.table.open(node_.directory(), node_.path()) != 0) return 2;
      IdHandle id;
      deed.prepare(player, &id);
      if (ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) return 3;
      raise(SIGSTOP);
      deed.act(player, &id);
      raise(SIGSTOP);
      return 4;
    });
    int status;
    ASSERT_EQ(waitpid(victim.pid(), &status, 0), victim.pid());
    ASSERT_TRUE(WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP) << status;
    at_mark();
    Seen seen = look();
    int steps = 0;
    for (;; ++steps) {
      ASSERT_EQ(ptrace(PTRACE_SINGLESTEP, victim.pid(), nullptr, nullptr), 0);
      ASSERT_EQ(waitpid(victim.pid(), &status, 0), victim.pid());
      ASSERT_TRUE(WIFSTOPPED(status)) << status;
      if (WSTOPSIG(status) == SIGSTOP) break;
      ASSERT_LT(steps, 2'000'000);
      const Seen now = look();
      if (now == seen) continue;
      seen = now;
      changed();
      if (HasFatalFailure()) return;
    }
    victim.kill_now();
  }

  // What the victim may change: the first entries, and its bucket.
  using Seen = std::array<uint64_t, 4 + 1 + 4 * sizeof(IdEntry) / 8 + 4 + 1 + 8>;
  Seen look() const {
    Seen seen{};
    size_t at = 0;
    const auto take = [&](const void* from, size_t bytes) {
      std::memcpy(&seen[at], from, bytes);
      at += bytes / 8;
    };
    take(file_->id_states, 4 * 8);
    take(&file_->buckets[bucket_of(PortSpace::kTcp, kSteppedPort)], 8);
    take(file_->ids, 4 * sizeof(IdEntry));
    take(file_->group_states, 8);
    take(file_->groups, 2 * sizeof(GroupEntry));
    return seen;
  }

  // Another process may ask for the port where the victim was stopped or died: the answer comes at once and
  // is right.
  void expect_usable(bool owner_lives) {
    IdRecord found;
    ASSERT_TRUE(observer_.table.read(first_, &found));
    const IdHandle taker = observer_.add(kVictim, 0);
    ASSERT_FALSE(taker.none());
    const int error = observer_.table.bind(taker, &observer_.facts);
    if (owner_lives)
      ASSERT_TRUE(error == 0 || error == EADDRINUSE) << error;
    else
      ASSERT_EQ(error, 0);
    if (error == 0) {
      ASSERT_EQ(observer_.table.listen(taker, &observer_.facts, 1), 0);
      ASSERT_TRUE(observer_.table.find_listener(PortSpace::kTcp, kVictim, kAnyDevice, &found));
      ASSERT_EQ(found.handle, taker);
    }
    observer_.table.remove(taker);
    // The bystander keeps its port in any case.
    const IdHandle other = observer_.add(kBystander, 0);
    ASSERT_EQ(observer_.table.bind(other, &observer_.facts), EADDRINUSE);
    observer_.table.remove(other);
  }

  void expect_clean_after_sweep() {
    observer_.table.sweep();
    size_t used = 0, grouped = 0;
    for (const auto& state : replica_->id_states)
      used += EntryState::unpack(state.load()).phase != EntryPhase::kFree;
    for (const auto& state : replica_->group_states)
      grouped += EntryState::unpack(state.load()).phase != EntryPhase::kFree;
    ASSERT_EQ(used, 1u);
    ASSERT_EQ(grouped, 0u);
    std::vector<Chained> all;
    walk(*replica_, bucket_of(PortSpace::kTcp, kSteppedPort), &all);
    ASSERT_EQ(all.size(), 1u);
  }

  TemporaryNode node_;
  std::string replica_folder_ = node_.folder() + "/replica";
  ScopedMembership member_{node_.path()};
  IdTableFile* file_ = nullptr;
  IdTableFile* replica_ = nullptr;
  SteppingPlayer bystander_, observer_;
  IdHandle first_;
};

TEST_P(CmSteps, StandingStillAnywhereHoldsNobodyUp) {
  size_t looked = 0;
  run(
      GetParam(),
      [&] {
        Snapshot(*file_).write_to(replica_);
        ASSERT_NO_FATAL_FAILURE(expect_usable(true));
        ++looked;
      },
      [] {});
  EXPECT_GE(looked, 2u);
}

TEST_P(CmSteps, KilledAnywhereItLeavesNothing) {
  std::vector<Snapshot> steps;
  run(
      GetParam(), [&] { steps.emplace_back(*file_); }, [&] { steps.emplace_back(*file_); });
  ASSERT_GE(steps.size(), 2u);
  for (size_t i = 0; i < steps.size(); ++i) {
    SCOPED_TRACE("after change " + std::to_string(i));
    steps[i].write_to(replica_);
    ASSERT_NO_FATAL_FAILURE(expect_usable(false));
    ASSERT_NO_FATAL_FAILURE(expect_clean_after_sweep());
  }
}

INSTANTIATE_TEST_SUITE_P(Every, CmSteps, ::testing::ValuesIn(kDeeds),
                         [](const auto& deed) { return deed.param.name; });

}  // namespace
}  // namespace verbena::cm
