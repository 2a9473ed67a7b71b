// SPDX-License-Identifier: BSD-2-Clause
//
// Frames between processes of the node, and what becomes of the rules of a process that ends.
#include <errno.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <vector>

#include "engine/objects/context.h"
#include "engine/objects/process.h"
#include "fabric/flow_table.h"
#include "observe/observer.h"
#include "unit/common/child.h"
#include "unit/engine/scene.h"

namespace verbena {
namespace {

constexpr uint32_t kFrameSize = 300;

struct FrameEnd {
  Owned<Context> context = open_device();
  Owned<Pd> pd = make_pd(context.get());
  Owned<Cq> cq = make_cq(context.get());
  Region memory{pd.get(), 4096};
  Owned<Qp> qp = make();

  Owned<Qp> make() {
    ibv_qp_init_attr attr{};
    attr.qp_type = IBV_QPT_RAW_PACKET;
    attr.cap = {8, 8, 1, 1, 0};
    Qp* made = nullptr;
    EXPECT_EQ(create_qp(pd.get(), &attr, cq.get(), cq.get(), 0, &made), 0);
    ibv_qp_attr state{};
    state.port_num = 1;
    for (const ibv_qp_state to : {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS}) {
      state.qp_state = to;
      EXPECT_EQ(modify_qp(made, &state, IBV_QP_STATE | (to == IBV_QPS_INIT ? IBV_QP_PORT : 0)), 0);
    }
    return Owned<Qp>(made);
  }
  SteeredFlow* steer_all() {
    ibv_flow_attr attr{};
    attr.size = sizeof attr;
    attr.port = 1;
    SteeredFlow* flow = nullptr;
    EXPECT_EQ(create_flow(qp.get(), &attr, &flow), 0);
    return flow;
  }
  void receive_into(uint64_t id) {
    ibv_sge sge = memory.sge(id * 512, 512);
    ibv_recv_wr wr{id, nullptr, &sge, 1}, *bad = nullptr;
    EXPECT_EQ(post_recv(qp.get(), &wr, &bad), 0);
  }
  void send_frame_of(uint8_t filling) {
    memset(memory.data() + 2048, filling, kFrameSize);
    ibv_sge sge = memory.sge(2048, kFrameSize);
    ibv_send_wr wr{}, *bad = nullptr;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_SEND;
    EXPECT_EQ(post_send(qp.get(), &wr, &bad), 0);
  }
  ibv_wc next() {
    ibv_wc wc{};
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (poll_cq(cq.get(), 1, &wc) == 0 && std::chrono::steady_clock::now() < end) sched_yield();
    return wc;
  }
};

TEST(Frames, ReachAnotherProcess) {
  const TemporaryNode node;
  Child sender([](const Child& self) {
    FrameEnd there;
    self.tell('r');
    if (self.hear() != 's') return 1;
    there.send_frame_of(0x44);
    return ::testing::Test::HasFailure() ? 2 : 0;
  });
  ASSERT_EQ(sender.answer(), 'r');
  FrameEnd here;
  SteeredFlow* const flow = here.steer_all();
  here.receive_into(1);
  sender.command('s');
  const ibv_wc wc = here.next();
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(wc.byte_len, kFrameSize);
  for (uint32_t i = 0; i < kFrameSize; ++i) ASSERT_EQ(here.memory.data()[512 + i], 0x44) << i;
  EXPECT_EQ(destroy_flow(flow), 0);
  EXPECT_EQ(sender.finish(), 0);
}

// What an observer is told: each frame that is sent, whether a queue pair receives it or not.
struct FrameWatcher final : Observer {
  FrameWatcher() { set_observer(this); }
  ~FrameWatcher() { set_observer(nullptr); }
  void on_frame(const FrameEvent& event) override {
    source_qpn = event.source_qpn;
    frames.emplace_back(event.bytes.begin(), event.bytes.end());
  }
  uint32_t source_qpn = 0;
  std::vector<std::vector<uint8_t>> frames;
};

TEST(Frames, AnObserverSeesThem) {
  const TemporaryNode node;
  FrameEnd here;
  const FrameWatcher watcher;
  here.send_frame_of(0x55);
  SteeredFlow* const flow = here.steer_all();
  here.receive_into(1);
  here.send_frame_of(0x66);
  EXPECT_EQ(destroy_flow(flow), 0);
  EXPECT_EQ(watcher.source_qpn, qp_number(here.qp.get()));
  EXPECT_EQ(watcher.frames, (std::vector<std::vector<uint8_t>>{std::vector<uint8_t>(kFrameSize, 0x55),
                                                               std::vector<uint8_t>(kFrameSize, 0x66)}));
}

// The process that replaces the dead one in its slot takes its rules away.
TEST(Frames, OfAKilledProcessTheRulesEnd) {
  const TemporaryNode node;
  const FlowTable table(node.directory());
  Child receiver([](const Child& self) {
    FrameEnd there;
    there.steer_all();
    self.tell('r');
    return self.hear() == 0 ? 0 : 1;
  });
  ASSERT_EQ(receiver.answer(), 'r');
  FrameEnd here;
  EXPECT_EQ(table.rules().size(), 1u);
  here.send_frame_of(1);  // nobody has posted a receive
  receiver.kill_now();
  here.send_frame_of(2);
  EXPECT_TRUE(eventually([&] {
    Child next([](const Child&) {
      FrameEnd once;
      return 0;
    });
    next.finish();
    return table.rules().empty();
  }));
}

TEST(Frames, TheTableGivesRulesInTheirOrder) {
  const TemporaryNode node;
  FrameEnd here;
  const FlowTable table(node.directory());
  FlowRule rule;
  rule.qp = {here.context->process->membership().slot(), here.context->process->membership().generation(), 0,
             1};
  std::array<FlowTable::Handle, 4> handles;
  const uint16_t priorities[] = {7, 3, 3, 0};
  for (size_t i = 0; i < 4; ++i) {
    rule.priority = priorities[i];
    rule.kind = i == 3 ? FlowKind::kSniffer : FlowKind::kNormal;
    rule.values.hop_limit = static_cast<uint8_t>(i);
    ASSERT_EQ(table.add(rule, 4, &handles[i]), 0);
  }
  FlowTable::Handle fifth;
  EXPECT_EQ(table.add(rule, 4, &fifth), ENOMEM);
  const auto all = table.rules();
  ASSERT_EQ(all.size(), 4u);
  const int order[] = {1, 2, 0, 3};
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(all[i].rule.values.hop_limit, order[i]) << i;
  const uint64_t version = table.version();
  for (const FlowTable::Handle& handle : handles) {
    EXPECT_TRUE(table.is_still(handle));
    table.count(handle, 100);
    table.end(handle);
    EXPECT_FALSE(table.is_still(handle));
    EXPECT_EQ(table.counts(handle).bytes, 100u);
    table.free_entry(handle);
  }
  EXPECT_NE(table.version(), version);
  EXPECT_TRUE(table.rules().empty());
}

}  // namespace
}  // namespace verbena
