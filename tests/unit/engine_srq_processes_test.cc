// SPDX-License-Identifier: BSD-2-Clause
//
// One SRQ that several processes feed, and an XRC SRQ beside the queue pair that receives for it.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <array>

#include "support/child.h"
#include "support/scene.h"

namespace verbena {
namespace {

struct DestroyMore : Destroy {
  using Destroy::operator();
  void operator()(Srq* srq) const {
    uint32_t async_events;
    EXPECT_EQ(destroy_srq(srq, &async_events), 0);
  }
  void operator()(Xrcd* xrcd) const { EXPECT_EQ(close_xrcd(xrcd), 0); }
};
using OwnedSrq = std::unique_ptr<Srq, DestroyMore>;
using OwnedXrcd = std::unique_ptr<Xrcd, DestroyMore>;

// What one process tells the other through shared memory.
struct Numbers {
  std::atomic<uint32_t> feeder[8];  // QPN
  std::atomic<uint32_t> receiver[8];
  std::atomic<uint32_t> srqn;
};

class SharedNumbers {
 public:
  SharedNumbers()
      : numbers_(static_cast<Numbers*>(
            mmap(nullptr, sizeof(Numbers), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {}
  SharedNumbers(const SharedNumbers&) = delete;
  SharedNumbers& operator=(const SharedNumbers&) = delete;
  ~SharedNumbers() { munmap(numbers_, sizeof(Numbers)); }
  Numbers* operator->() const { return numbers_; }

 private:
  Numbers* numbers_;
};

int post(Srq* srq, uint64_t wr_id, Sges sges) {
  ibv_recv_wr wr{wr_id, nullptr, sges.data(), static_cast<int>(sges.size())};
  ibv_recv_wr* bad = nullptr;
  return post_srq_recv(srq, &wr, &bad);
}

// Sends messages of `length` bytes, the first of them its own number, until told to stop or the pipe ends.
int feed(const Child& parent, const SharedNumbers& numbers, const GidEntry& gid, uint32_t number, uint32_t length,
         uint32_t count) {
  const Owned<Context> context = open_device();
  const Owned<Pd> pd = make_pd(context.get());
  const Owned<Cq> cq = make_cq(context.get());
  const Owned<Qp> qp = make_qp(pd.get(), cq.get(), cq.get());
  Region memory(pd.get(), length);
  std::fill_n(memory.data(), length, static_cast<uint8_t>(number));
  numbers->feeder[number] = qp_number(qp.get());
  parent.tell('q');
  if (parent.hear() != 'g') return 1;
  connect(qp.get(), numbers->receiver[number], gid);
  parent.tell('r');
  for (uint32_t i = 0; i < count; ++i) {
    if (send(qp.get(), {memory.sge(0, length)}) != 0) return 2;
    if (completion(cq.get()).status != IBV_WC_SUCCESS) return 3;
  }
  parent.tell('d');
  return parent.hear() == 'x' ? 0 : 4;
}

struct Receivers : Scene {
  static constexpr uint32_t kSlots = 16;
  static constexpr uint32_t kRoom = 512;

  explicit Receivers(const SharedNumbers& all) : numbers(all) {
    ibv_srq_attr attr{kSlots, 1, 0};
    Srq* made = nullptr;
    EXPECT_EQ(create_srq(pd.get(), &attr, {}, 0, &made), 0);
    srq.reset(made);
    for (uint32_t i = 0; i < kSlots; ++i) EXPECT_EQ(fill(i), 0);
  }
  int fill(uint64_t slot) { return post(srq.get(), slot, {memory.sge(slot * kRoom, kRoom)}); }
  void listen_to(uint32_t number) {
    ibv_qp_init_attr init{};
    init.cap = {1, 0, 1, 0, 0};
    init.qp_type = IBV_QPT_RC;
    Qp* qp = nullptr;
    ASSERT_EQ(create_qp(pd.get(), &init, cq.get(), cq.get(), 0, &qp, srq.get()), 0);
    connect(qp, numbers->feeder[number], gid());
    numbers->receiver[number] = qp_number(qp);
    qps.emplace_back(qp);
  }
  // Takes the next message; which feeder it is of, or -1.
  int64_t next() {
    const ibv_wc wc = completion(cq.get());
    if (wc.status != IBV_WC_SUCCESS) return -1;
    const uint8_t* bytes = memory.data() + wc.wr_id * kRoom;
    if (bytes[0] != bytes[wc.byte_len - 1] || fill(wc.wr_id) != 0) return -1;
    return bytes[0];
  }

  const SharedNumbers& numbers;
  Region memory{pd.get(), size_t{kSlots} * kRoom};
  Owned<Cq> cq = make_cq(context.get(), 1024);
  OwnedSrq srq;
  std::vector<Owned<Qp>> qps;
};

// Children open the device themselves, so they are forked before the parent does.
class SrqOfManyProcesses : public ::testing::TestWithParam<uint32_t> {};

TEST_P(SrqOfManyProcesses, LosesNothing) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer starts no threads in the child of a process with threads";
#endif
  constexpr uint32_t kFeeders = 3, kMessages = 200;
  const TemporaryNode node;
  const SharedNumbers numbers;
  const GidEntry& gid = node.directory().devices().devices[0].gids[0];
  const auto body = [&](uint32_t number) {
    return [&, number](const Child& parent) { return feed(parent, numbers, gid, number, GetParam(), kMessages); };
  };
  std::array<Child, kFeeders> feeders{Child(body(0)), Child(body(1)), Child(body(2))};
  for (const Child& feeder : feeders) ASSERT_EQ(feeder.answer(), 'q');
  {
    Receivers receivers(numbers);
    for (uint32_t i = 0; i < kFeeders; ++i) receivers.listen_to(i);
    for (const Child& feeder : feeders) feeder.command('g');
    std::array<uint32_t, kFeeders> seen{};
    for (uint32_t i = 0; i < kFeeders * kMessages; ++i) {
      const int64_t from = receivers.next();
      ASSERT_TRUE(from >= 0 && from < kFeeders) << from << " after " << i;
      ++seen[static_cast<size_t>(from)];
    }
    for (uint32_t count : seen) EXPECT_EQ(count, kMessages);
    for (const Child& feeder : feeders) {
      EXPECT_EQ(feeder.answer(), 'r');
      EXPECT_EQ(feeder.answer(), 'd');
      feeder.command('x');
    }
    for (Child& feeder : feeders) EXPECT_EQ(feeder.finish(), 0);
  }
}

// However often feeders die in the middle of their messages, every slot comes back.
TEST_P(SrqOfManyProcesses, GoesOnWhenFeedersDie) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer starts no threads in the child of a process with threads";
#endif
  constexpr uint32_t kVictims = 7, kMessages = 300;
  const TemporaryNode node;
  const SharedNumbers numbers;
  const GidEntry& gid = node.directory().devices().devices[0].gids[0];
  const auto body = [&](uint32_t number) {
    return [&, number](const Child& parent) {
      return feed(parent, numbers, gid, number, GetParam(), number == kVictims ? kMessages : UINT32_MAX);
    };
  };
  Child survivor(body(kVictims));
  std::array<Child, kVictims> victims{Child(body(0)), Child(body(1)), Child(body(2)), Child(body(3)),
                                      Child(body(4)), Child(body(5)), Child(body(6))};
  ASSERT_EQ(survivor.answer(), 'q');
  for (const Child& victim : victims) ASSERT_EQ(victim.answer(), 'q');
  {
    Receivers receivers(numbers);
    for (uint32_t i = 0; i <= kVictims; ++i) receivers.listen_to(i);
    for (uint32_t i = 0; i < kVictims; ++i) {
      victims[i].command('g');
      ASSERT_EQ(victims[i].answer(), 'r');
      for (uint32_t taken = 0; taken < 20 + 7 * i;)
        if (receivers.next() == i) ++taken;
      victims[i].kill_now();
    }
    survivor.command('g');
    for (uint32_t seen = 0; seen < kMessages;) {
      const int64_t from = receivers.next();
      ASSERT_GE(from, 0);
      if (from == kVictims) ++seen;
    }
    // All are there: a full SRQ takes as many as it has room for.
    survivor.command('x');
    EXPECT_EQ(survivor.answer(), 'r');
    EXPECT_EQ(survivor.answer(), 'd');
    EXPECT_EQ(survivor.finish(), 0);
  }
}

// In the completion entry, in the landing buffer, and placed by the feeder.
INSTANTIATE_TEST_SUITE_P(Length, SrqOfManyProcesses, ::testing::Values(8u, 200u, 512u));

}  // namespace
}  // namespace verbena
