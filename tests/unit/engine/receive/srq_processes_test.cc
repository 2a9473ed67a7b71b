// SPDX-License-Identifier: BSD-2-Clause
//
// One SRQ to which several processes send, and an XRC SRQ beside the queue pair that receives for it.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <array>

#include "engine/objects/context.h"
#include "engine/objects/cq.h"
#include "engine/objects/memory_objects.h"
#include "engine/objects/process.h"
#include "engine/objects/qp.h"
#include "engine/receive/shared_receive_queue.h"
#include "unit/common/child.h"
#include "unit/engine/scene.h"

namespace verbena {
namespace {

// What one process tells the other through shared memory.
struct Numbers {
  std::atomic<uint32_t> producer[8];  // QPN
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

// Sends messages of `length` bytes that begin with the producer's number, until told to stop or the pipe
// ends.
int produce(const Child& parent, const SharedNumbers& numbers, const GidEntry& gid, uint32_t number,
            uint32_t length, uint32_t count) {
  const Owned<Context> context = open_device();
  const Owned<Pd> pd = make_pd(context.get());
  const Owned<Cq> cq = make_cq(context.get());
  const Owned<Qp> qp = make_qp(pd.get(), cq.get(), cq.get());
  Region memory(pd.get(), length);
  std::fill_n(memory.data(), length, static_cast<uint8_t>(number));
  numbers->producer[number] = qp_number(qp.get());
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

struct Receivers {
  static constexpr uint32_t kSlots = 16;
  static constexpr uint32_t kRoom = 512;

  Receivers(const SharedNumbers& all, const GidEntry& own_gid) : numbers(all), gid(own_gid) {
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
    connect(qp, numbers->producer[number], gid);
    numbers->receiver[number] = qp_number(qp);
    qps.emplace_back(qp);
  }
  // Takes the next message; returns its producer, or -1.
  int64_t next() {
    const ibv_wc wc = completion(cq.get());
    if (wc.status != IBV_WC_SUCCESS) return -1;
    const uint8_t* bytes = memory.data() + wc.wr_id * kRoom;
    const uint8_t from = bytes[0];  // before another message takes the buffer
    if (from != bytes[wc.byte_len - 1] || fill(wc.wr_id) != 0) return -1;
    return from;
  }

  const SharedNumbers& numbers;
  const GidEntry& gid;
  Owned<Context> context = open_device();
  Owned<Pd> pd = make_pd(context.get());
  Region memory{pd.get(), size_t{kSlots} * kRoom};
  Owned<Cq> cq = make_cq(context.get(), 1024);
  Owned<Srq> srq;
  std::vector<Owned<Qp>> qps;
};

// The children open the device themselves, so they are forked before the parent opens it.
class SrqOfManyProcesses : public ::testing::TestWithParam<uint32_t> {};

TEST_P(SrqOfManyProcesses, LosesNothing) {
  constexpr uint32_t kProducers = 3, kMessages = 200;
  const TemporaryNode node;
  const SharedNumbers numbers;
  const GidEntry& gid = node.directory().devices().devices[0].ports[0].gids[0];
  const auto body = [&](uint32_t number) {
    return [&, number](const Child& parent) {
      return produce(parent, numbers, gid, number, GetParam(), kMessages);
    };
  };
  std::array<Child, kProducers> producers{Child(body(0)), Child(body(1)), Child(body(2))};
  for (const Child& producer : producers) ASSERT_EQ(producer.answer(), 'q');
  {
    Receivers receivers(numbers, gid);
    for (uint32_t i = 0; i < kProducers; ++i) receivers.listen_to(i);
    for (const Child& producer : producers) producer.command('g');
    std::array<uint32_t, kProducers> seen{};
    for (uint32_t i = 0; i < kProducers * kMessages; ++i) {
      const int64_t from = receivers.next();
      ASSERT_TRUE(from >= 0 && from < kProducers) << from << " after " << i;
      ++seen[static_cast<size_t>(from)];
    }
    for (uint32_t count : seen) EXPECT_EQ(count, kMessages);
    for (const Child& producer : producers) {
      EXPECT_EQ(producer.answer(), 'r');
      EXPECT_EQ(producer.answer(), 'd');
      producer.command('x');
    }
    for (Child& producer : producers) EXPECT_EQ(producer.finish(), 0);
  }
}

// However many producers die in the middle of a message, every slot comes back.
TEST_P(SrqOfManyProcesses, GoesOnWhenProducersDie) {
  constexpr uint32_t kVictims = 7, kMessages = 300;
  const TemporaryNode node;
  const SharedNumbers numbers;
  const GidEntry& gid = node.directory().devices().devices[0].ports[0].gids[0];
  const auto body = [&](uint32_t number) {
    return [&, number](const Child& parent) {
      return produce(parent, numbers, gid, number, GetParam(), number == kVictims ? kMessages : UINT32_MAX);
    };
  };
  Child survivor(body(kVictims));
  std::array<Child, kVictims> victims{Child(body(0)), Child(body(1)), Child(body(2)), Child(body(3)),
                                      Child(body(4)), Child(body(5)), Child(body(6))};
  ASSERT_EQ(survivor.answer(), 'q');
  for (const Child& victim : victims) ASSERT_EQ(victim.answer(), 'q');
  {
    Receivers receivers(numbers, gid);
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
    survivor.command('x');
    EXPECT_EQ(survivor.answer(), 'r');
    EXPECT_EQ(survivor.answer(), 'd');
    EXPECT_EQ(survivor.finish(), 0);
    for (ibv_wc wc; poll_cq(receivers.cq.get(), 1, &wc) == 1;) {
    }
    for (uint32_t i = 0; i <= Receivers::kSlots && receivers.fill(0) == 0; ++i) {
    }
    EXPECT_EQ(receivers.srq->ring.posted(), Receivers::kSlots);
  }
}

// In the completion entry, in the bounce buffer, and placed by the producer.
INSTANTIATE_TEST_SUITE_P(Length, SrqOfManyProcesses, ::testing::Values(8u, 200u, 512u));

// ---- XRC: sender, receiving queue pair and SRQ in three processes ----

ibv_qp_init_attr xrc_send_init() {
  ibv_qp_init_attr init{};
  init.cap = {4, 0, 1, 0, 0};
  init.qp_type = IBV_QPT_XRC_SEND;
  return init;
}

// Has the XRC_RECV queue pair, and does nothing else.
int receive_for(const Child& parent, const SharedNumbers& numbers, const GidEntry& gid, int domain_fd) {
  const Owned<Context> context = open_device();
  Xrcd* opened = nullptr;
  if (open_xrcd(context.get(), domain_fd, O_CREAT, &opened) != 0) return 1;
  const Owned<Xrcd> xrcd(opened);
  Qp* qp = nullptr;
  if (create_xrc_recv_qp(xrcd.get(), 7, &qp) != 0) return 2;
  numbers->receiver[0] = qp_number(qp);
  parent.tell('q');
  if (parent.hear() != 'g') return 3;
  connect(qp, numbers->producer[0], gid);
  parent.tell('r');
  const int said = parent.hear() == 'x' ? 0 : 4;
  uint32_t async_events;
  return close_qp(qp, 7, &async_events) == 0 ? said : 5;
}

// Success where the memory of the SRQ's owner can be reached. Otherwise frames lead to the receiving queue
// pair and no further (tests/unit/CMakeLists.txt).
ibv_wc_status expected_status(const Context& context) {
  return context.process->membership().memory_fd() >= 0 ? IBV_WC_SUCCESS : IBV_WC_REM_OP_ERR;
}

// `sleeping`: the sender does not poll while it waits, so that the service thread does the work.
int send_to(const Child& parent, const SharedNumbers& numbers, const GidEntry& gid, uint32_t length,
            bool sleeping = false) {
  const Owned<Context> context = open_device();
  const Owned<Pd> pd = make_pd(context.get());
  int channel = -1;
  if (create_comp_channel(context.get(), &channel) != 0) return 6;
  const Owned<Cq> cq = make_cq(context.get(), 16, channel, 9);
  ibv_qp_init_attr init = xrc_send_init();
  Qp* made = nullptr;
  if (create_qp(pd.get(), &init, cq.get(), nullptr, 0, &made) != 0) return 1;
  const Owned<Qp> qp(made);
  Region memory(pd.get(), length);
  std::fill_n(memory.data(), length, uint8_t{0x5a});
  numbers->producer[0] = qp_number(qp.get());
  parent.tell('q');
  if (parent.hear() != 'g') return 2;
  connect(qp.get(), numbers->receiver[0], gid);
  parent.tell('r');
  if (parent.hear() != 'g') return 3;
  Sges sges{memory.sge(0, length)};
  ibv_send_wr wr = request(IBV_WR_SEND, sges);
  wr.qp_type.xrc.remote_srqn = numbers->srqn;
  if (req_notify_cq(cq.get(), false) != 0 || post(qp.get(), wr) != 0) return 4;
  if (sleeping && completion_event(channel) != 9) return 7;
  return completion(cq.get()).status == expected_status(*context) ? 0 : 5;
}

class XrcOfThreeProcesses : public ::testing::TestWithParam<uint32_t> {};

TEST_P(XrcOfThreeProcesses, AMessageGoesToTheSrq) {
  const TemporaryNode node;
  const SharedNumbers numbers;
  const GidEntry& gid = node.directory().devices().devices[0].ports[0].gids[0];
  const int file = open((node.folder() + "/domain").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  Child receiver([&](const Child& parent) { return receive_for(parent, numbers, gid, file); });
  Child sender([&](const Child& parent) { return send_to(parent, numbers, gid, GetParam()); });
  ASSERT_EQ(receiver.answer(), 'q');
  ASSERT_EQ(sender.answer(), 'q');
  for (const Child* child : {&receiver, &sender}) {
    child->command('g');
    ASSERT_EQ(child->answer(), 'r');
  }
  {
    const Owned<Context> context = open_device();
    const Owned<Pd> pd = make_pd(context.get());
    const Owned<Cq> cq = make_cq(context.get());
    Xrcd* opened = nullptr;
    ASSERT_EQ(open_xrcd(context.get(), file, 0, &opened), 0);  // the receiver's
    const Owned<Xrcd> xrcd(opened);
    ibv_srq_attr attr{4, 1, 0};
    Srq* made = nullptr;
    ASSERT_EQ(create_srq(pd.get(), &attr, {xrcd.get(), cq.get()}, 0, &made), 0);
    const Owned<Srq> srq(made);
    Region memory(pd.get(), GetParam());
    ASSERT_EQ(post(srq.get(), 11, {memory.sge(0, GetParam())}), 0);
    numbers->srqn = srq_number(srq.get());
    sender.command('g');
    if (expected_status(*context) == IBV_WC_SUCCESS) {
      const ibv_wc wc = completion(cq.get());
      EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
      EXPECT_EQ(wc.wr_id, 11u);
      EXPECT_EQ(wc.qp_num, numbers->receiver[0]);
      EXPECT_EQ(memory.data()[0], 0x5a);
      EXPECT_EQ(memory.data()[GetParam() - 1], 0x5a);
      EXPECT_EQ(sender.finish(), 0);
    } else {
      EXPECT_EQ(sender.finish(), 0);
      EXPECT_TRUE(nothing(cq.get()));
    }
    receiver.command('x');
    EXPECT_EQ(receiver.finish(), 0);
  }
  close(file);
}

// The sender is no peer of the SRQ's owner: it sets a flag in the SRQ.
TEST_P(XrcOfThreeProcesses, AMessageThatWaitsIsWokenByPosting) {
  const TemporaryNode node;
  const SharedNumbers numbers;
  const GidEntry& gid = node.directory().devices().devices[0].ports[0].gids[0];
  const int file = open((node.folder() + "/domain").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  Child receiver([&](const Child& parent) { return receive_for(parent, numbers, gid, file); });
  Child sender([&](const Child& parent) { return send_to(parent, numbers, gid, GetParam(), true); });
  ASSERT_EQ(receiver.answer(), 'q');
  ASSERT_EQ(sender.answer(), 'q');
  for (const Child* child : {&receiver, &sender}) {
    child->command('g');
    ASSERT_EQ(child->answer(), 'r');
  }
  {
    const Owned<Context> context = open_device();
    const Owned<Pd> pd = make_pd(context.get());
    const Owned<Cq> cq = make_cq(context.get());
    Xrcd* opened = nullptr;
    ASSERT_EQ(open_xrcd(context.get(), file, 0, &opened), 0);
    const Owned<Xrcd> xrcd(opened);
    ibv_srq_attr attr{4, 1, 0};
    Srq* made = nullptr;
    ASSERT_EQ(create_srq(pd.get(), &attr, {xrcd.get(), cq.get()}, 0, &made), 0);
    const Owned<Srq> srq(made);
    Region memory(pd.get(), GetParam());
    numbers->srqn = srq_number(srq.get());
    sender.command('g');
    ASSERT_TRUE(eventually([&] { return made->shared->waiters[0].load() != 0; }));
    ASSERT_EQ(post(srq.get(), 11, {memory.sge(0, GetParam())}), 0);
    EXPECT_EQ(completion(cq.get()).status, IBV_WC_SUCCESS);
    EXPECT_EQ(sender.finish(), 0);
    receiver.command('x');
    EXPECT_EQ(receiver.finish(), 0);
  }
  close(file);
}

INSTANTIATE_TEST_SUITE_P(Length, XrcOfThreeProcesses, ::testing::Values(8u, 200u, 5000u, 600000u));

}  // namespace
}  // namespace verbena
