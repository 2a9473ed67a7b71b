// SPDX-License-Identifier: BSD-2-Clause
//
// Events of a device as a whole: which contexts get them, what passes a port that is down, what the verbs of
// a failed device return.
#include <errno.h>
#include <fcntl.h>
#include <gtest/gtest.h>

#include <functional>

#include "engine/rules/send_rules.h"
#include "fabric/device_events.h"
#include "unit/common/child.h"
#include "unit/engine/scene.h"

namespace verbena {
namespace {

void raise(const TemporaryNode& node, ibv_event_type type, uint32_t device = 0) {
  uint32_t told = 0;
  EXPECT_EQ(raise_device_event(node.directory(), node.path(), device, type, &told), 0);
}

struct DeviceEvents : ::testing::Test {
  Scene scene;
  void raise(ibv_event_type type, uint32_t device = 0) { verbena::raise(scene.node, type, device); }
  uint32_t next() { return async_event(scene.context.get()).type; }
  bool quiet(Context* context) { return async_event(context, 0).type == UINT32_MAX; }
};

TEST_F(DeviceEvents, NameThePort) {
  raise(IBV_EVENT_PORT_ERR);
  EXPECT_EQ(async_event(scene.context.get()).element, 1u);
}

TEST_F(DeviceEvents, ComeInOrderAndOnce) {
  const ibv_event_type all[] = {IBV_EVENT_PORT_ERR, IBV_EVENT_GID_CHANGE, IBV_EVENT_PORT_ACTIVE,
                                IBV_EVENT_GID_CHANGE, IBV_EVENT_DEVICE_FATAL};
  for (const ibv_event_type type : all) raise(type);
  for (const ibv_event_type type : all) EXPECT_EQ(next(), type);
  EXPECT_TRUE(quiet(scene.context.get()));
}

TEST_F(DeviceEvents, AreToldToEveryContextOfTheDevice) {
  const Owned<Context> second = open_device();
  raise(IBV_EVENT_GID_CHANGE);
  EXPECT_EQ(next(), IBV_EVENT_GID_CHANGE);
  EXPECT_EQ(async_event(second.get()).type, IBV_EVENT_GID_CHANGE);
}

TEST_F(DeviceEvents, AreNotToldToAnotherDevicesContext) {
  const Owned<Context> other = open_device("verbena1");
  raise(IBV_EVENT_GID_CHANGE);
  next();  // the service thread has seen all contexts, or is about to: the next one reports
  raise(IBV_EVENT_PORT_ERR, 1);
  EXPECT_EQ(async_event(other.get()).type, IBV_EVENT_PORT_ERR);
}

TEST_F(DeviceEvents, FromBeforeTheOpenAreNotTold) {
  raise(IBV_EVENT_GID_CHANGE);
  const Owned<Context> late = open_device();
  raise(IBV_EVENT_PORT_ERR);
  EXPECT_EQ(async_event(late.get()).type, IBV_EVENT_PORT_ERR);
}

TEST_F(DeviceEvents, ReachOtherProcesses) {
  Child other([](const Child& self) {
    const Owned<Context> theirs = open_device();
    self.tell('o');
    return async_event(theirs.get()).type == IBV_EVENT_GID_CHANGE ? 0 : 1;
  });
  ASSERT_EQ(other.answer(), 'o');
  raise(IBV_EVENT_GID_CHANGE);
  EXPECT_EQ(other.finish(), 0);
}

TEST_F(DeviceEvents, ReachAStoppedProcessWhenItGoesOn) {
  Child other([](const Child& self) {
    const Owned<Context> theirs = open_device();
    self.tell('o');
    return async_event(theirs.get()).type == IBV_EVENT_GID_CHANGE ? 0 : 1;
  });
  ASSERT_EQ(other.answer(), 'o');
  other.stop();
  raise(IBV_EVENT_GID_CHANGE);
  other.go_on();
  EXPECT_EQ(other.finish(), 0);
}

TEST_F(DeviceEvents, APortThatIsDownGoesNoFurtherDown) {
  raise(IBV_EVENT_PORT_ERR);
  uint32_t told = 0;
  EXPECT_EQ(raise_device_event(scene.node.directory(), scene.node.path(), 0, IBV_EVENT_PORT_ERR, &told),
            EALREADY);
  raise(IBV_EVENT_PORT_ACTIVE);
  EXPECT_EQ(next(), IBV_EVENT_PORT_ERR);
  EXPECT_EQ(next(), IBV_EVENT_PORT_ACTIVE);
}

TEST_F(DeviceEvents, QueryPortSaysDown) {
  raise(IBV_EVENT_PORT_ERR);
  ibv_port_attr attr;
  ASSERT_EQ(query_port(scene.context.get(), 1, &attr), 0);
  EXPECT_EQ(attr.state, IBV_PORT_DOWN);
  EXPECT_EQ(attr.phys_state, 3);  // Disabled
}

TEST_F(DeviceEvents, QueryPortSaysActiveAgain) {
  raise(IBV_EVENT_PORT_ERR);
  raise(IBV_EVENT_PORT_ACTIVE);
  ibv_port_attr attr;
  ASSERT_EQ(query_port(scene.context.get(), 1, &attr), 0);
  EXPECT_EQ(attr.state, IBV_PORT_ACTIVE);
}

// ---- a port that is down ----------------------------------------------------------------------------------

struct PortDown : ::testing::Test {
  QpSetup setup;
  std::unique_ptr<Pair> pair;
  std::unique_ptr<Region> memory;
  void make(uint8_t timeout = 0, uint8_t retries = 7) {
    setup.timeout = timeout;
    setup.retry_cnt = retries;
    pair = std::make_unique<Pair>(setup);
    memory = std::make_unique<Region>(pair->pd.get(), 8192);
  }
  // One message first, so that the fast path of small sends is open.
  void warm_up() {
    ASSERT_EQ(receive(*pair->b, {memory->sge(4096, 64)}), 0);
    ASSERT_EQ(send(*pair->a, {memory->sge(0, 8)}), 0);
    ASSERT_EQ(pair->a.sent().status, IBV_WC_SUCCESS);
    ASSERT_EQ(pair->b.received().status, IBV_WC_SUCCESS);
  }
};

TEST_F(PortDown, NothingPassesUntilItIsUp) {
  make();
  warm_up();
  raise(pair->node, IBV_EVENT_PORT_ERR);
  ASSERT_EQ(receive(*pair->b, {memory->sge(4096, 64)}), 0);
  ASSERT_EQ(send(*pair->a, {memory->sge(0, 8)}), 0);
  EXPECT_TRUE(nothing(pair->b.recv_cq.get()));
  raise(pair->node, IBV_EVENT_PORT_ACTIVE);
  EXPECT_EQ(pair->a.sent().status, IBV_WC_SUCCESS);
  EXPECT_EQ(pair->b.received().status, IBV_WC_SUCCESS);
}

TEST_F(PortDown, RdmaWaitsToo) {
  make();
  raise(pair->node, IBV_EVENT_PORT_ERR);
  ASSERT_EQ(rdma(*pair->a, IBV_WR_RDMA_WRITE, {memory->sge(0, 4000)}, memory->address(4096), memory->rkey()),
            0);
  EXPECT_TRUE(nothing(pair->a.send_cq.get()));
  raise(pair->node, IBV_EVENT_PORT_ACTIVE);
  EXPECT_EQ(pair->a.sent().status, IBV_WC_SUCCESS);
}

TEST_F(PortDown, ForLongerThanTheRetriesLastFails) {
  make(10, 1);  // 2 * 4.2 ms
  raise(pair->node, IBV_EVENT_PORT_ERR);
  ASSERT_EQ(send(*pair->a, {memory->sge(0, 8)}), 0);
  const ibv_wc wc = pair->a.sent();
  EXPECT_EQ(wc.status, IBV_WC_RETRY_EXC_ERR);
  EXPECT_EQ(wc.vendor_err, static_cast<uint32_t>(VendorError::port_down));
}

TEST_F(PortDown, OverThereCountsAsWell) {
  Scene scene;
  const Owned<Context> other = open_device("verbena1");
  const Owned<Pd> other_pd = make_pd(other.get());
  const Owned<Cq> cq = make_cq(scene.context.get()), other_cq = make_cq(other.get());
  const Owned<Qp> qp = make_qp(scene.pd.get(), cq.get(), cq.get());
  const Owned<Qp> other_qp = make_qp(other_pd.get(), other_cq.get(), other_cq.get());
  connect(qp.get(), qp_number(other_qp.get()), scene.gid(1));
  connect(other_qp.get(), qp_number(qp.get()), scene.gid(0));
  Region bytes(scene.pd.get(), 64);
  Region there(other_pd.get(), 64);
  ASSERT_EQ(receive(other_qp.get(), {there.sge(0, 64)}), 0);
  raise(scene.node, IBV_EVENT_PORT_ERR, 1);
  ASSERT_EQ(send(qp.get(), {bytes.sge(0, 8)}), 0);
  EXPECT_TRUE(nothing(cq.get()));
  raise(scene.node, IBV_EVENT_PORT_ACTIVE, 1);
  EXPECT_EQ(completion(cq.get()).status, IBV_WC_SUCCESS);
}

TEST_F(PortDown, OfADeviceThatHasNoPartInItMattersNot) {
  make();
  raise(pair->node, IBV_EVENT_PORT_ERR, 1);
  ASSERT_EQ(receive(*pair->b, {memory->sge(4096, 64)}), 0);
  ASSERT_EQ(send(*pair->a, {memory->sge(0, 8)}), 0);
  EXPECT_EQ(pair->a.sent().status, IBV_WC_SUCCESS);
}

// ---- a device that has failed ----

struct FailedDevice : PortDown {
  void fail() {
    raise(pair->node, IBV_EVENT_DEVICE_FATAL);
    ASSERT_EQ(async_event(pair->context.get()).type, static_cast<uint32_t>(IBV_EVENT_DEVICE_FATAL));
  }
  void SetUp() override { make(); }
};

TEST_F(FailedDevice, FlushesWhatWasPosted) {
  ASSERT_EQ(receive(*pair->b, {memory->sge(4096, 64)}, 17), 0);
  fail();
  const ibv_wc wc = pair->b.received();
  EXPECT_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(wc.wr_id, 17u);
}

TEST_F(FailedDevice, EndsWaitingForEver) {
  raise(pair->node, IBV_EVENT_PORT_ERR);
  ASSERT_EQ(async_event(pair->context.get()).type, static_cast<uint32_t>(IBV_EVENT_PORT_ERR));
  ASSERT_EQ(send(*pair->a, {memory->sge(0, 8)}), 0);
  fail();
  EXPECT_EQ(pair->a.sent().status, IBV_WC_WR_FLUSH_ERR);
}

// Arguments for verbs after the failure. They are destroyed afterwards: destroying still works.
struct BeforeItFailed {
  explicit BeforeItFailed(Pair& pair) {
    ibv_srq_attr attr{4, 1, 0};
    EXPECT_EQ(create_srq(pair.pd.get(), &attr, {}, 0, &srq), 0);
    EXPECT_EQ(open_xrcd(pair.context.get(), -1, O_CREAT, &xrcd), 0);
    EXPECT_EQ(create_xrc_recv_qp(xrcd, kHandle, &receiver), 0);
    number = qp_number(receiver);
    ibv_alloc_dm_attr dm_attr{};
    dm_attr.length = 64;
    EXPECT_EQ(alloc_dm(pair.context.get(), &dm_attr, &dm), 0);
    ibv_qp_init_attr init{};
    init.cap = {1, 1, 1, 1, 0};
    init.qp_type = IBV_QPT_UD;
    Qp* made = nullptr;
    EXPECT_EQ(create_qp(pair.pd.get(), &init, pair.a.send_cq.get(), pair.a.recv_cq.get(), 0, &made), 0);
    datagrams.reset(made);
  }
  ~BeforeItFailed() {
    uint32_t events = 0;
    EXPECT_EQ(close_qp(receiver, kHandle, &events), 0);
    EXPECT_EQ(close_xrcd(xrcd), 0);
    EXPECT_EQ(destroy_srq(srq, &events), 0);
    EXPECT_EQ(free_dm(dm), 0);
  }
  static constexpr uint64_t kHandle = 7;
  Srq* srq = nullptr;
  Xrcd* xrcd = nullptr;
  Qp* receiver = nullptr;
  uint32_t number = 0;
  Dm* dm = nullptr;
  Owned<Qp> datagrams;
};

TEST_F(FailedDevice, AnswersEveryVerbWithEio) {
  Mr* of_before = nullptr;
  ASSERT_EQ(reg_mr(pair->pd.get(), memory->data(), 8, memory->address(), 0, &of_before), 0);
  const Owned<Mr> owned(of_before);
  Context* context = pair->context.get();
  BeforeItFailed before(*pair);
  fail();
  ibv_device_attr_ex device;
  ibv_port_attr port;
  ibv_qp_attr qp_attr{};
  ibv_qp_init_attr init{};
  Pd* pd = nullptr;
  Mr* mr = nullptr;
  Cq* cq = nullptr;
  Qp* qp = nullptr;
  Mw* mw = nullptr;
  Ah* ah = nullptr;
  Dm* dm = nullptr;
  Srq* srq = nullptr;
  Xrcd* xrcd = nullptr;
  ibv_srq_attr srq_attr{4, 1, 0};
  Sges sges{memory->sge(0, 8)};
  ibv_recv_wr receive_wr{1, nullptr, sges.data(), 1}, *bad = nullptr;
  const ibv_gid group = {.raw = {0xff, 0x12}};
  ibv_ah_attr ah_attr{};
  ibv_alloc_dm_attr dm_attr{};
  ibv_qp_rate_limit_attr rate{};
  int fd = -1;
  const std::pair<const char*, int> answers[] = {
      {"query_device", query_device(context, &device)},
      {"query_port", query_port(context, 1, &port)},
      {"alloc_pd", alloc_pd(context, &pd)},
      {"reg_mr", reg_mr(pair->pd.get(), memory->data(), 8, memory->address(), 0, &mr)},
      {"create_comp_channel", create_comp_channel(context, &fd)},
      {"create_cq", create_cq(context, 4, -1, 0, 0, &cq)},
      {"req_notify_cq", req_notify_cq(pair->a.send_cq.get(), false)},
      {"poll_cq", -poll_cq(pair->a.send_cq.get(), 0, nullptr)},
      {"create_qp", create_qp(pair->pd.get(), &init, pair->a.send_cq.get(), pair->a.send_cq.get(), 0, &qp)},
      {"modify_qp", to_state(*pair->a, IBV_QPS_RESET)},
      {"query_qp", query_qp(*pair->a, &qp_attr, &init)},
      {"alloc_mw", alloc_mw(pair->pd.get(), IBV_MW_TYPE_1, &mw)},
      {"create_ah", create_ah(pair->pd.get(), &ah_attr, &ah)},
      {"alloc_dm", alloc_dm(context, &dm_attr, &dm)},
      {"alloc_null_mr", alloc_null_mr(pair->pd.get(), &mr)},
      {"rereg_mr", rereg_mr(owned.get(), IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, 0)},
      {"modify_cq", modify_cq(pair->a.send_cq.get(), 1, 1)},
      {"post_send", send(*pair->a, {memory->sge(0, 8)})},
      {"post_recv", receive(*pair->a, {memory->sge(0, 8)})},
      {"create_srq", create_srq(pair->pd.get(), &srq_attr, {}, 0, &srq)},
      {"create_srq of XRC",
       create_srq(pair->pd.get(), &srq_attr, {before.xrcd, pair->a.recv_cq.get()}, 0, &srq)},
      {"modify_srq", modify_srq(before.srq, &srq_attr, IBV_SRQ_LIMIT)},
      {"query_srq", query_srq(before.srq, &srq_attr)},
      {"post_srq_recv", post_srq_recv(before.srq, &receive_wr, &bad)},
      {"open_xrcd", open_xrcd(context, -1, O_CREAT, &xrcd)},
      {"create_xrc_recv_qp", create_xrc_recv_qp(before.xrcd, 1, &qp)},
      {"open_qp", open_qp(context, before.xrcd, before.number, 2, &qp)},
      {"attach_mcast", attach_mcast(before.datagrams.get(), &group, 0)},
      {"detach_mcast", detach_mcast(before.datagrams.get(), &group, 0)},
      {"resize_cq", resize_cq(pair->a.recv_cq.get(), 512)},
      {"reg_dmabuf_mr", reg_dmabuf_mr(pair->pd.get(), 0, 8, 0, 0, 0, &mr)},
      {"reg_dm_mr", reg_dm_mr(pair->pd.get(), before.dm, 0, 8, IBV_ACCESS_ZERO_BASED, &mr)},
      {"modify_qp_rate_limit", modify_qp_rate_limit(*pair->a, &rate)},
  };
  for (const auto& [verb, error] : answers) EXPECT_EQ(error, EIO) << verb;
}

TEST_F(FailedDevice, WorksWhenOpenedAgain) {
  fail();
  const Owned<Context> again = open_device();
  EXPECT_NE(make_pd(again.get()), nullptr);
}

TEST(FailedDevicesPeer, GetsNoAnswerAnyMore) {
  Scene scene;
  const Owned<Context> other = open_device("verbena1");
  const Owned<Pd> other_pd = make_pd(other.get());
  const Owned<Cq> cq = make_cq(scene.context.get()), other_cq = make_cq(other.get());
  const QpSetup setup{.timeout = 10, .retry_cnt = 1};
  const Owned<Qp> qp = make_qp(scene.pd.get(), cq.get(), cq.get());
  const Owned<Qp> other_qp = make_qp(other_pd.get(), other_cq.get(), other_cq.get());
  connect(qp.get(), qp_number(other_qp.get()), scene.gid(1), setup);
  connect(other_qp.get(), qp_number(qp.get()), scene.gid(0));
  Region bytes(scene.pd.get(), 64);
  raise(scene.node, IBV_EVENT_DEVICE_FATAL, 1);
  ASSERT_EQ(async_event(other.get()).type, static_cast<uint32_t>(IBV_EVENT_DEVICE_FATAL));
  ASSERT_EQ(send(qp.get(), {bytes.sge(0, 8)}), 0);
  EXPECT_EQ(completion(cq.get()).status, IBV_WC_RETRY_EXC_ERR);
}

}  // namespace
}  // namespace verbena
