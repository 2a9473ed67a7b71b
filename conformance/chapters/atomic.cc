// SPDX-License-Identifier: BSD-2-Clause
//
// Atomics: what they do, what they refuse, and that none is lost when several threads, processes and ends
// add.
#include <algorithm>
#include <numeric>
#include <string>

#include "peer/serve.h"
#include "support/pair.h"
#include "support/threads.h"

namespace conformance::atomic_chapter {
namespace {

constexpr uint64_t word_at = 1024, result_at = 64;

class Fixture : public PairTest {
 protected:
  void make(const PairSpec& spec = {}) {
    if (device().attributes().atomic_cap == IBV_ATOMIC_NONE) throw NotClaimed{"atomic_cap is none"};
    if (!pair(spec).has_atomics()) throw NotTested{"the far end has no atomics"};
  }
  // A request that is refused when it is posted has this status.
  static constexpr auto refused_at_once = static_cast<ibv_wc_status>(-1);
  ibv_wc_status carry_out(const SendRequest& request) {
    if (near().post(request) != 0) return refused_at_once;
    return near().completion().status;
  }
  ibv_wc_status add(uint64_t value, int64_t at = word_at) {
    SendRequest request = remote_request(IBV_WR_ATOMIC_FETCH_AND_ADD, {{result_at, 8}}, far().facts(), at);
    request.compare_add = value;
    return carry_out(request);
  }
  ibv_wc_status swap(uint64_t compare, uint64_t value, int64_t at = word_at) {
    SendRequest request = remote_request(IBV_WR_ATOMIC_CMP_AND_SWP, {{result_at, 8}}, far().facts(), at);
    request.compare_add = compare;
    request.swap = value;
    return carry_out(request);
  }
  uint64_t result() { return near().word(result_at); }
};

CONFORMANCE_TEST(atomic, FetchAndAdd, "atomic.fetch-add.adds", "ibv_post_send.atomics-as-claimed",
                 "atomic.fetch-add.returns", "atomic.fetch-add.wraps", "atomic.neighbours") {
  make();
  const struct {
    uint64_t before, added;
  } table[] = {{0, 0},         {0, 1}, {40, 2}, {0xffffffff, 1}, {0x0102030405060708, 0x1010101010101010},
               {1ull << 63, 1}};
  for (const auto& row : table) {
    far().set_word(word_at, row.before);
    ASSERT_EQ(add(row.added), IBV_WC_SUCCESS);
    EXPECT_EQ(far().word(word_at), row.before + row.added);
    const About about("atomic.fetch-add.returns");
    EXPECT_EQ(result(), row.before);
  }
  {
    const About about("atomic.neighbours");
    EXPECT_TRUE(far().untouched(word_at - 64, 64));
    EXPECT_TRUE(far().untouched(word_at + 8, 64));
    EXPECT_TRUE(near().untouched(result_at - 8, 8));
    EXPECT_TRUE(near().untouched(result_at + 8, 8));
  }
  const About about("atomic.fetch-add.wraps");
  far().set_word(word_at, ~uint64_t{0} - 1);
  ASSERT_EQ(add(5), IBV_WC_SUCCESS);
  EXPECT_EQ(far().word(word_at), 3u);
  EXPECT_EQ(result(), ~uint64_t{0} - 1);
}

CONFORMANCE_TEST(atomic, CompareAndSwap, "atomic.cmp-swp.equal", "atomic.cmp-swp.different",
                 "atomic.cmp-swp.returns") {
  make();
  constexpr uint64_t before = 0x8102030405060708;
  {
    const About about("atomic.cmp-swp.different");
    for (const int bit : {0, 7, 31, 32, 63}) {
      far().set_word(word_at, before);
      ASSERT_EQ(swap(before ^ (1ull << bit), 7), IBV_WC_SUCCESS);
      EXPECT_EQ(far().word(word_at), before) << "bit " << bit;
      const About returned("atomic.cmp-swp.returns");
      EXPECT_EQ(result(), before);
    }
  }
  const About about("atomic.cmp-swp.equal");
  ASSERT_EQ(swap(before, 7), IBV_WC_SUCCESS);
  EXPECT_EQ(far().word(word_at), 7u);
  const About returned("atomic.cmp-swp.returns");
  EXPECT_EQ(result(), before);
}

CONFORMANCE_TEST(atomic, MisalignedIsRefused, "atomic.alignment") {
  for (int64_t off = 1; off < 8; ++off) {
    new_pair();
    make();
    const ibv_wc_status status = off % 2 == 1 ? add(1, word_at + off) : swap(0, 1, word_at + off);
    EXPECT_TRUE(status == IBV_WC_REM_INV_REQ_ERR || status == IBV_WC_REM_ACCESS_ERR ||
                status == refused_at_once)
        << "offset " << off << ": " << name_of(status);
    EXPECT_TRUE(far().untouched(0, 4096));
  }
}

CONFORMANCE_TEST(atomic, OnlyEightBytes, "atomic.length") {
  std::string taken;
  for (const uint32_t length : {0u, 4u, 7u, 9u, 16u}) {
    new_pair();
    make();
    // Always an element: no text says what a request without one is.
    const ibv_wc_status status =
        carry_out(remote_request(IBV_WR_ATOMIC_FETCH_AND_ADD, {{result_at, length}}, far().facts(), word_at));
    if (status == IBV_WC_SUCCESS) taken += ' ' + std::to_string(length);
    EXPECT_TRUE(near().untouched(result_at - 8, 8));
    EXPECT_TRUE(near().untouched(result_at + 16, 8));
  }
  observe("atomic.length", taken.empty() ? "refuses all other lengths" : "takes" + taken + " bytes");
}

CONFORMANCE_TEST(atomic, ResultInTwoElements, "atomic.scattered-result") {
  PairSpec spec;
  spec.both.send_sges = 2;
  make(spec);
  if (near().facts().send_sges < 2) throw NotClaimed{"max_sge is 1"};
  far().set_word(word_at, 0x0102030405060708);
  SendRequest request =
      remote_request(IBV_WR_ATOMIC_FETCH_AND_ADD, {{64, 3}, {128, 5}}, far().facts(), word_at);
  if (const ibv_wc_status status = carry_out(request); status != IBV_WC_SUCCESS)
    return observe("atomic.scattered-result", name_of(status));
  const bool in_order =
      near().read(64, 3) + near().read(128, 5) == std::string("\x08\x07\x06\x05\x04\x03\x02\x01");
  observe("atomic.scattered-result",
          in_order ? "fills them in order" : "takes them and fills them otherwise");
}

// Several ends that add at the same time to one word.
class Contention : public Fixture {
 protected:
  static constexpr uint32_t times = 200;

  // As many as a small device has protection domains for, besides those of the pair.
  uint32_t adders() { return static_cast<uint32_t>(std::clamp(device().attributes().max_pd - 2, 1, 3)); }

  // An end at `link` and one at the target's host that shares its memory, connected.
  struct Adder {
    Endpoint own, other;
    Adder(Link& link, Link& target_link, const Endpoint& target)
        : own(link, {}), other(target_link, sharing(target)) {
      if (own.connect(other.facts()) != 0 || other.connect(own.facts()) != 0)
        throw Deviation{"ends are needed", Where::current()};
    }
    static wire::MakeEnd sharing(const Endpoint& target) {
      wire::MakeEnd spec;
      spec.shares = target.facts().end;
      return spec;
    }
  };

  static void add_many(Endpoint& end, const EndFacts& target) {
    SendRequest request = remote_request(IBV_WR_ATOMIC_FETCH_AND_ADD, {{result_at, 8}}, target, word_at);
    request.compare_add = (1ull << 32) + 1;  // both halves of the word
    const wire::HammerAnswer answer = end.hammer(request, times);
    EXPECT_EQ(answer.status, IBV_WC_SUCCESS) << name_of(answer.status);
    EXPECT_EQ(answer.completed, times);
  }
  void expect_sum(uint64_t ends) { EXPECT_EQ(far().word(word_at), ends * times * ((1ull << 32) + 1)); }
};

namespace contention {
using Fixture = Contention;

CONFORMANCE_TEST_AS(Traits().limit(30), atomic, Threads, "atomic.threads") {
  make();
  far().set_word(word_at, 0);
  std::vector<Adder> all;
  for (uint32_t i = 0; i < adders(); ++i) all.emplace_back(topology().near(), topology().far(), far());
  run_in_threads(adders(), [&](size_t i) { add_many(all[i].own, far().facts()); });
  expect_sum(adders());
}

CONFORMANCE_TEST_AS(Traits().limit(30), atomic, Processes, "atomic.processes") {
  std::vector<int> descriptors;  // before this process opens the device
  for (int i = 0; i < 3; ++i) descriptors.push_back(fork_host(options()));
  std::vector<std::unique_ptr<StreamLink>> links;
  for (const int descriptor : descriptors) links.push_back(std::make_unique<StreamLink>(descriptor));
  make();
  links.resize(adders());
  far().set_word(word_at, 0);
  std::vector<Adder> all;
  for (const auto& link : links) all.emplace_back(*link, topology().far(), far());
  run_in_threads(adders(), [&](size_t i) { add_many(all[i].own, far().facts()); });
  expect_sum(adders());
}

CONFORMANCE_TEST_AS(Traits().limit(30), atomic, BothEnds, "atomic.both-ends") {
  make();
  far().set_word(word_at, 0);
  // The far host adds to its own memory over a connection to itself.
  Adder itself(topology().far(), topology().far(), far());
  run_in_threads({[&] { add_many(near(), far().facts()); }, [&] { add_many(itself.own, far().facts()); }});
  expect_sum(2);
}

CONFORMANCE_TEST_AS(Traits().limit(30), atomic, SwapSucceedsOnce, "atomic.swap-lock") {
  constexpr uint64_t values = 100;
  make();
  far().set_word(word_at, 0);
  std::vector<Adder> all;
  for (uint32_t i = 0; i < adders(); ++i) all.emplace_back(topology().near(), topology().far(), far());
  std::vector<uint64_t> won(adders());
  run_in_threads(adders(), [&](size_t i) {
    SendRequest request = remote_request(IBV_WR_ATOMIC_CMP_AND_SWP, {{result_at, 8}}, far().facts(), word_at);
    for (uint64_t value = 0; value < values; ++value) {
      request.compare_add = value;
      request.swap = value + 1;
      if (all[i].own.post(request) != 0 || all[i].own.completion().status != IBV_WC_SUCCESS)
        throw Deviation{"compare and swap; expected: success", Where::current()};
      won[i] += all[i].own.word(result_at) == value;
    }
  });
  EXPECT_EQ(std::accumulate(won.begin(), won.end(), uint64_t{0}), values);
  EXPECT_EQ(far().word(word_at), values);
}

CONFORMANCE_TEST(atomic, ManyInFlight, "atomic.in-flight") {
  PairSpec spec;
  spec.both.send_depth = 32;
  spec.path.reads = 1;
  make(spec);
  far().set_word(word_at, 0);
  add_many(near(), far().facts());
  expect_sum(1);
}

}  // namespace contention

CONFORMANCE_TEST(atomic, OverXrc, "atomic.xrc") {
  PairSpec spec;
  spec.both.type = IBV_QPT_XRC_SEND;
  make(spec);
  far().set_word(word_at, 40);
  ASSERT_EQ(add(2), IBV_WC_SUCCESS);
  EXPECT_EQ(result(), 40u);
  ASSERT_EQ(swap(42, 7), IBV_WC_SUCCESS);
  EXPECT_EQ(result(), 42u);
  EXPECT_EQ(far().word(word_at), 7u);
}

}  // namespace
}  // namespace conformance::atomic_chapter
