// SPDX-License-Identifier: BSD-2-Clause
//
// Several contexts, many queue pairs, forked children, and two processes that talk.
#include <errno.h>
#include <gtest/gtest.h>

#include <set>

#include "unit/common/child.h"
#include "unit/engine/scene.h"

namespace verbena {
namespace {

TEST(Contexts, AreOneAdapter) {
  Scene scene;
  const Owned<Context> second = open_device("verbena1");
  EXPECT_EQ(scene.node.slot_folders(), 1u);
}

TEST(Contexts, OfAnUnknownDeviceAreRefused) {
  TemporaryNode node;
  Context* context;
  EXPECT_EQ(open_context("verbena7", &context), ENODEV);
}

TEST(Contexts, NeedANode) {
  Context* context;
  unsetenv(kNodeVariable);
  EXPECT_EQ(open_context("verbena0", &context), ENODEV);
  setenv(kNodeVariable, "/nowhere", 1);
  EXPECT_EQ(open_context("verbena0", &context), ENODEV);
}

TEST(Contexts, TheLastOneLeavesTheNode) {
  TemporaryNode node;
  for (int i = 0; i < 3; ++i) {
    { const Owned<Context> first = open_device(), second = open_device(); }
    EXPECT_EQ(node.slot_folders(), 0u);
  }
}

TEST(Contexts, KeepTheirKeysApart) {
  Scene scene;
  const Owned<Context> second = open_device();
  const Owned<Pd> pd = make_pd(second.get());
  Region foreign(pd.get(), 64), own(scene.pd.get(), 64);
  Owned<Cq> cq = make_cq(scene.context.get());
  Owned<Qp> qp = make_qp(scene.pd.get(), cq.get(), cq.get());
  connect(qp.get(), qp_number(qp.get()), scene.gid());
  ASSERT_EQ(rdma(qp.get(), IBV_WR_RDMA_WRITE, {own.sge(0, 8)}, foreign.address(), foreign.rkey()), 0);
  EXPECT_EQ(completion(cq.get()).status, IBV_WC_REM_ACCESS_ERR);
}

TEST(Contexts, OfTwoDevicesTalk) {
  Scene scene;
  const Owned<Context> second = open_device("verbena1");
  const Owned<Pd> pd = make_pd(second.get());
  Region to(pd.get(), 64), from(scene.pd.get(), 64);
  from.fill(1);
  Owned<Cq> here = make_cq(scene.context.get()), there = make_cq(second.get());
  Owned<Qp> a = make_qp(scene.pd.get(), here.get(), here.get());
  Owned<Qp> b = make_qp(pd.get(), there.get(), there.get());
  connect(a.get(), qp_number(b.get()), scene.gid(1));
  connect(b.get(), qp_number(a.get()), scene.gid(0));
  ASSERT_EQ(rdma(a.get(), IBV_WR_RDMA_WRITE, {from.sge(0, 64)}, to.address(), to.rkey()), 0);
  EXPECT_EQ(completion(here.get()).status, IBV_WC_SUCCESS);
  EXPECT_EQ(std::memcmp(from.data(), to.data(), 64), 0);
}

TEST(QueuePairs, TwoThousandWorkAtOnce) {
  constexpr size_t kMany = 2000;
  Scene scene;
  Owned<Cq> cq = make_cq(scene.context.get(), 2 * kMany);
  Region memory(scene.pd.get(), 64);
  std::vector<Owned<Qp>> qps;
  std::set<uint32_t> numbers;
  for (size_t i = 0; i < kMany; ++i) {
    qps.push_back(make_qp(scene.pd.get(), cq.get(), cq.get(), {.send_wr = 4, .recv_wr = 4}));
    numbers.insert(qp_number(qps.back().get()));
    connect(qps.back().get(), qp_number(qps.back().get()), scene.gid());
  }
  ASSERT_EQ(numbers.size(), kMany);
  for (const Owned<Qp>& qp : qps) {
    ASSERT_EQ(receive(qp.get(), {memory.sge(0, 8)}), 0);
    ASSERT_EQ(send(qp.get(), {memory.sge(8, 8)}), 0);
  }
  for (const ibv_wc& wc : completions(cq.get(), 2 * kMany)) ASSERT_EQ(wc.status, IBV_WC_SUCCESS);
}

// ---- fork ----

TEST(ForkedChild, GetsEioOnTheObjectsOfItsParent) {
  Pair pair;
  Region memory(pair.pd.get(), 64);
  Child child([&](const Child&) {
    ibv_wc wc;
    ibv_qp_attr attr{};
    Pd* pd;
    if (send(*pair.a, {memory.sge(0, 8)}) != EIO) return 1;
    if (receive(*pair.a, {memory.sge(0, 8)}) != EIO) return 2;
    if (poll_cq(pair.a.send_cq.get(), 1, &wc) != -EIO) return 3;
    if (req_notify_cq(pair.a.send_cq.get(), false) != EIO) return 4;
    if (modify_qp(*pair.a, &attr, 0) != EIO) return 5;
    if (alloc_pd(pair.context.get(), &pd) != EIO) return 6;
    return 0;
  });
  EXPECT_EQ(child.finish(), 0);
}

TEST(ForkedChild, HarmsNothingByDestroyingItsCopies) {
  Pair pair;
  Region memory(pair.pd.get(), 64);
  Child child([&](const Child&) {
    pair.a.qp.reset();
    pair.b.qp.reset();
    memory.deregister();
    close_context(pair.context.release());
    return 0;
  });
  ASSERT_EQ(child.finish(), 0);
  ASSERT_EQ(rdma(*pair.a, IBV_WR_RDMA_WRITE, {memory.sge(0, 8)}, memory.address(8), memory.rkey()), 0);
  EXPECT_EQ(pair.a.sent().status, IBV_WC_SUCCESS);
}

#ifndef __SANITIZE_THREAD__  // that starts no threads in the child of a multithreaded process
TEST(ForkedChild, MayOpenAgain) {
  Scene scene;
  Child child([&](const Child&) {
    Context* context = nullptr;
    if (open_context("verbena0", &context) != 0) return 1;
    Pd* pd = nullptr;
    if (alloc_pd(context, &pd) != 0 || dealloc_pd(pd) != 0) return 2;
    close_context(context);
    return 0;
  });
  EXPECT_EQ(child.finish(), 0);
  EXPECT_EQ(scene.node.slot_folders(), 1u);
}
#endif

// ---- two processes ----

struct AddressOfQp {
  uint32_t number, rkey;
  uint64_t at;
};

// A child that is the passive side: it connects, then waits until the parent is done with it.
class TwoProcesses : public ::testing::Test {
 protected:
  TwoProcesses() {
    EXPECT_EQ(pipe(to_child), 0);
    EXPECT_EQ(pipe(from_child), 0);
    child = std::make_unique<Child>([this](const Child& self) { return passive(self); });
    scene_context = open_device();
    pd = make_pd(scene_context.get());
    EXPECT_EQ(create_comp_channel(scene_context.get(), &channel), 0);
    cq = make_cq(scene_context.get(), 64, channel, kHandle);
    memory = std::make_unique<Region>(pd.get(), 4096);
    qp = make_qp(pd.get(), cq.get(), cq.get());
    const AddressOfQp mine{qp_number(qp.get()), 0, 0};
    [[maybe_unused]] ssize_t done = write(to_child[1], &mine, sizeof mine);
    done = read(from_child[0], &there, sizeof there);
    connect(qp.get(), there.number, gid(), setup);
    EXPECT_EQ(child->answer(), 'r');
  }
  ~TwoProcesses() override {
    if (channel >= 0) close(channel);
    for (int fd : {to_child[0], to_child[1], from_child[0], from_child[1]}) close(fd);
  }
  const GidEntry& gid() const { return node.directory().devices().devices[0].ports[0].gids[0]; }
  int passive(const Child& self) {
    const Owned<Context> context = open_device();
    const Owned<Pd> own_pd = make_pd(context.get());
    const Owned<Cq> own_cq = make_cq(context.get());
    Region own(own_pd.get(), 4096);
    const Owned<Qp> own_qp = make_qp(own_pd.get(), own_cq.get(), own_cq.get());
    AddressOfQp peer;
    if (read(to_child[0], &peer, sizeof peer) != sizeof peer) return 1;
    const AddressOfQp mine{qp_number(own_qp.get()), own.rkey(), own.address()};
    if (write(from_child[1], &mine, sizeof mine) != sizeof mine) return 1;
    connect(own_qp.get(), peer.number, gid(), setup);
    receive(own_qp.get(), {own.sge(0, 64)}, 1);
    self.tell('r');
    for (char word; (word = self.hear()) != 0;) {
      if (word == 's' && send(own_qp.get(), {own.sge(0, 64)}) != 0) return 1;
      self.tell(static_cast<char>('0' + completion(own_cq.get()).status));
    }
    return 0;
  }
  int write_there() { return rdma(qp.get(), IBV_WR_RDMA_WRITE, {memory->sge(0, 64)}, there.at, there.rkey); }

  // The child's message has arrived, and its event is still to come: the CQ is armed as if the child had not
  // come to that yet. Arming raises none for what an event has told of.
  void take_message_without_event() {
    ASSERT_EQ(receive(qp.get(), {memory->sge(0, 64)}), 0);
    child->command('s');
    ASSERT_EQ(child->answer(), '0' + IBV_WC_SUCCESS);
    cq_event(cq.get());
    ASSERT_EQ(req_notify_cq(cq.get(), false), 0);
    ASSERT_EQ(completion_event(channel, 0), UINT64_MAX);
  }

  static constexpr uint64_t kHandle = 0xc0;
  int channel = -1;
  const QpSetup setup{.timeout = 12, .retry_cnt = 1};
  TemporaryNode node;
  int to_child[2], from_child[2];
  std::unique_ptr<Child> child;
  Owned<Context> scene_context;
  Owned<Pd> pd;
  Owned<Cq> cq;
  std::unique_ptr<Region> memory;
  Owned<Qp> qp;
  AddressOfQp there{};
};

TEST_F(TwoProcesses, Write) {
  ASSERT_EQ(write_there(), 0);
  EXPECT_EQ(completion(cq.get()).status, IBV_WC_SUCCESS);
}

TEST_F(TwoProcesses, WriteToOneThatIsStopped) {
  child->stop();
  ASSERT_EQ(write_there(), 0);
  EXPECT_EQ(completion(cq.get()).status, IBV_WC_SUCCESS);
  child->go_on();
}

TEST_F(TwoProcesses, Send) {
  ASSERT_EQ(send(qp.get(), {memory->sge(0, 64)}), 0);
  EXPECT_EQ(completion(cq.get()).status, IBV_WC_SUCCESS);
  child->command('p');
  EXPECT_EQ(child->answer(), '0' + IBV_WC_SUCCESS);
}

TEST_F(TwoProcesses, FetchBackWhatWasSentAndNotPolled) {
  memory->fill(1);
  ASSERT_EQ(send(qp.get(), {memory->sge(0, 64)}), 0);
  ASSERT_EQ(rdma(qp.get(), IBV_WR_RDMA_READ, {memory->sge(1024, 64)}, there.at, there.rkey), 0);
  completions(cq.get(), 2);
  EXPECT_EQ(std::memcmp(memory->data(), memory->data() + 1024, 64), 0);
}

TEST_F(TwoProcesses, WriteToOneThatWasKilledFailsInTime) {
  child->kill_now();
  const int64_t began = now_ns();
  ASSERT_EQ(write_there(), 0);
  EXPECT_EQ(completion(cq.get()).status, IBV_WC_RETRY_EXC_ERR);
  EXPECT_GE(now_ns() - began, 2 * 16'777'216);
}

TEST_F(TwoProcesses, EventThatAKilledSenderLeftBehindComesWithTheEndOfTheConnection) {
  take_message_without_event();
  child->kill_now();
  ASSERT_EQ(to_state(qp.get(), IBV_QPS_ERR), 0);
  EXPECT_EQ(completion_event(channel, 20000), kHandle);
}

TEST_F(TwoProcesses, EndOfTheConnectionRaisesNoEventWhileTheSenderLives) {
  take_message_without_event();
  ASSERT_EQ(to_state(qp.get(), IBV_QPS_ERR), 0);
  EXPECT_EQ(completion_event(channel, 0), UINT64_MAX);
}

}  // namespace
}  // namespace verbena
