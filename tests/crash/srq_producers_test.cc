// SPDX-License-Identifier: BSD-2-Clause
//
// Processes that send to one SRQ are killed at random instants of their traffic, one after the other, over RC
// and over XRC. What the SRQ's owner must see: no partial message, every message of the survivors, and in the
// end every slot of the SRQ again.
//
// CRASH_ROUNDS: how many are killed; CRASH_SEED: the seed that a run printed.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstdlib>
#include <random>
#include <tuple>

#include "engine/receive/shared_receive_queue.h"
#include "unit/common/child.h"
#include "unit/engine/scene.h"

namespace verbena {
namespace {

constexpr uint32_t kMostProducers = 64;
constexpr uint32_t kSlots = 16;
constexpr uint32_t kSurvivorsMessages = 100;
constexpr int64_t kLongestTraffic = 2'000'000;  // nanoseconds until the blow

uint32_t victims() {
  const char* text = getenv("CRASH_ROUNDS");
  const int wanted = text != nullptr ? atoi(text) : 12;
  return static_cast<uint32_t>(std::clamp(wanted, 1, int{kMostProducers} - 1));
}

uint64_t seed() {
  const char* text = getenv("CRASH_SEED");
  const uint64_t chosen = text != nullptr ? strtoull(text, nullptr, 0) : std::random_device()();
  printf("CRASH_SEED=%llu\n", static_cast<unsigned long long>(chosen));
  return chosen;
}

// What one process tells the other through shared memory.
struct Numbers {
  std::atomic<uint32_t> producer[kMostProducers];  // QPN
  std::atomic<uint32_t> receiver[kMostProducers];
  std::atomic<uint32_t> srqn;
};

struct Plan {
  Numbers* numbers;
  const GidEntry& gid;
  bool xrc;
  uint32_t length;
};

// Sends messages filled with the producer's number, `count` of them or until it is killed.
int produce(const Child& parent, const Plan& plan, uint32_t number, uint32_t count) {
  const Owned<Context> context = open_device();
  const Owned<Pd> pd = make_pd(context.get());
  const Owned<Cq> cq = make_cq(context.get());
  ibv_qp_init_attr init{};
  init.cap = {16, plan.xrc ? 0u : 1u, 1, plan.xrc ? 0u : 1u, 0};
  init.qp_type = plan.xrc ? IBV_QPT_XRC_SEND : IBV_QPT_RC;
  Qp* made = nullptr;
  if (create_qp(pd.get(), &init, cq.get(), plan.xrc ? nullptr : cq.get(), 0, &made) != 0) return 1;
  const Owned<Qp> qp(made);
  Region memory(pd.get(), plan.length);
  std::fill_n(memory.data(), plan.length, static_cast<uint8_t>(number));
  plan.numbers->producer[number] = qp_number(made);
  parent.tell('q');
  if (parent.hear() != 'g') return 2;
  connect(made, plan.numbers->receiver[number], plan.gid);
  parent.tell('r');
  for (uint32_t i = 0; i < count; ++i) {
    Sges sges{memory.sge(0, plan.length)};
    ibv_send_wr wr = request(IBV_WR_SEND, sges);
    wr.qp_type.xrc.remote_srqn = plan.numbers->srqn;
    if (post(made, wr) != 0) return 3;
    if (completion(cq.get()).status != IBV_WC_SUCCESS) return 4;
  }
  parent.tell('d');
  return parent.hear() == 'x' ? 0 : 5;
}

// The SRQ, and one queue pair for each producer.
class Owner {
 public:
  Owner(const Plan& plan, uint32_t producers) : plan_(plan) {
    EXPECT_EQ(plan.xrc ? open_xrcd(context_.get(), -1, O_CREAT, &xrcd_) : 0, 0);
    ibv_srq_attr attr{kSlots, 1, 0};
    EXPECT_EQ(create_srq(pd_.get(), &attr, {xrcd_, plan.xrc ? cq_.get() : nullptr}, 0, &srq_), 0);
    plan.numbers->srqn = srq_number(srq_);
    for (uint32_t i = 0; i < producers; ++i) listen_to(i);
    fill_up();
  }
  ~Owner() {
    uint32_t events;
    for (Qp* qp : qps_) EXPECT_EQ(plan_.xrc ? close_qp(qp, 0, &events) : destroy_qp(qp, &events), 0);
    EXPECT_EQ(destroy_srq(srq_, &events), 0);
    EXPECT_EQ(xrcd_ != nullptr ? close_xrcd(xrcd_) : 0, 0);
  }
  Owner(const Owner&) = delete;
  Owner& operator=(const Owner&) = delete;

  // Posts until every slot is in use. Returns how many were free.
  uint32_t fill_up() {
    uint32_t posted = 0;
    while (post_next() == 0) ++posted;
    return posted;
  }
  uint64_t posted() const { return srq_->ring.posted(); }

  // Takes a message and posts another request. Returns its producer; -1: there is no message, -2: a wrong
  // one.
  int take() {
    ibv_wc wc{};
    if (poll_cq(cq_.get(), 1, &wc) == 0) return -1;
    if (wc.status == IBV_WC_WR_FLUSH_ERR) return post_next() == 0 ? -1 : -2;  // of a victim, half sent
    if (wc.status != IBV_WC_SUCCESS || wc.byte_len != plan_.length) return -2;
    const uint8_t* bytes = memory_.data() + wc.wr_id * plan_.length;
    const uint8_t from = bytes[0];
    for (uint32_t i = 0; i < plan_.length; i += 61)
      if (bytes[i] != from) return -2;
    if (bytes[plan_.length - 1] != from) return -2;
    return post_next() == 0 ? from : -2;
  }

 private:
  // The buffers are used in rotation, twice as many as there are slots: none is in use twice.
  int post_next() {
    const uint64_t id = next_ % (2 * kSlots);
    Sges sges{memory_.sge(id * plan_.length, plan_.length)};
    ibv_recv_wr wr{id, nullptr, sges.data(), 1}, *bad = nullptr;
    const int error = post_srq_recv(srq_, &wr, &bad);
    if (error == 0) ++next_;
    return error;
  }
  void listen_to(uint32_t number) {
    Qp* qp = nullptr;
    if (plan_.xrc) {
      ASSERT_EQ(create_xrc_recv_qp(xrcd_, 0, &qp), 0);
    } else {
      ibv_qp_init_attr init{};
      init.cap = {1, 0, 1, 0, 0};
      init.qp_type = IBV_QPT_RC;
      ASSERT_EQ(create_qp(pd_.get(), &init, cq_.get(), cq_.get(), 0, &qp, srq_), 0);
    }
    connect(qp, plan_.numbers->producer[number], plan_.gid);
    plan_.numbers->receiver[number] = qp_number(qp);
    qps_.push_back(qp);
  }

  const Plan& plan_;
  Owned<Context> context_ = open_device();
  Owned<Pd> pd_ = make_pd(context_.get());
  Region memory_{pd_.get(), size_t{2} * kSlots* plan_.length};
  Owned<Cq> cq_ = make_cq(context_.get(), 256);
  Xrcd* xrcd_ = nullptr;
  Srq* srq_ = nullptr;
  std::vector<Qp*> qps_;
  uint64_t next_ = 0;
};

class SrqProducers : public ::testing::TestWithParam<std::tuple<bool, uint32_t>> {};

TEST_P(SrqProducers, MayBeKilledAtAnyInstant) {
  const TemporaryNode node;
  auto* numbers = static_cast<Numbers*>(
      mmap(nullptr, sizeof(Numbers), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  const Plan plan{numbers, node.directory().devices().devices[0].ports[0].gids[0], std::get<0>(GetParam()),
                  std::get<1>(GetParam())};
  const uint32_t count = victims();
  std::mt19937_64 random(seed());
  // The children open the device themselves, so they are forked before this process opens it.
  std::vector<std::unique_ptr<Child>> producers;
  for (uint32_t i = 0; i <= count; ++i)
    producers.push_back(std::make_unique<Child>([&, i](const Child& parent) {
      return produce(parent, plan, i, i == count ? kSurvivorsMessages : UINT32_MAX);
    }));
  for (const auto& producer : producers) ASSERT_EQ(producer->answer(), 'q');
  {
    Owner owner(plan, count + 1);
    for (uint32_t i = 0; i < count; ++i) {
      producers[i]->command('g');
      ASSERT_EQ(producers[i]->answer(), 'r');
      const int64_t first = now_ns() + 20'000'000'000;
      int from = -1;
      while ((from = owner.take()) == -1 && now_ns() < first) sched_yield();
      ASSERT_EQ(from, static_cast<int>(i));
      const int64_t blow = now_ns() + static_cast<int64_t>(random() % kLongestTraffic);
      while (now_ns() < blow) ASSERT_NE(owner.take(), -2);
      producers[i]->kill_now();
      while ((from = owner.take()) != -1) ASSERT_EQ(from, static_cast<int>(i));
      owner.fill_up();  // the slot of its current message
      EXPECT_EQ(owner.posted(), kSlots) << "after the death of " << i;
    }
    producers[count]->command('g');
    ASSERT_EQ(producers[count]->answer(), 'r');
    const int64_t end = now_ns() + 20'000'000'000;
    uint32_t seen = 0;
    for (; seen < kSurvivorsMessages && now_ns() < end;) {
      const int from = owner.take();
      ASSERT_NE(from, -2);
      if (from == static_cast<int>(count)) ++seen;
    }
    EXPECT_EQ(seen, kSurvivorsMessages);
    EXPECT_EQ(producers[count]->answer(), 'd');
    producers[count]->command('x');
    EXPECT_EQ(producers[count]->finish(), 0);
  }
  munmap(numbers, sizeof(Numbers));
}

// In the completion entry, in the bounce buffer, in one piece, and in chunks.
INSTANTIATE_TEST_SUITE_P(Crash, SrqProducers,
                         ::testing::Combine(::testing::Bool(), ::testing::Values(8u, 200u, 20000u, 1500000u)),
                         [](const auto& chosen) {
                           return std::string(std::get<0>(chosen.param) ? "Xrc" : "Rc") +
                                  std::to_string(std::get<1>(chosen.param));
                         });

}  // namespace
}  // namespace verbena
