// SPDX-License-Identifier: BSD-2-Clause
//
// Devices with two ports, several P_Keys and LMC (`verbena run --ports --pkey --lmc`), and automatic path
// migration between the ports (engine/qp_state/migration.h).
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "fabric/device_events.h"
#include "unit/engine/scene.h"

namespace verbena {
namespace {

constexpr int kInitMask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
constexpr int kRtrMask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;

struct Where {
  uint8_t port = 1;
  uint16_t pkey_index = 0;
};

class TwoPorts : public ::testing::Test {
 protected:
  explicit TwoPorts(DeviceTableOptions options = {.count = 1,
                                                  .ports = 2,
                                                  .lmc = 1,
                                                  .pkeys = {0xffff, 0x8001, 0x0001},
                                                  .link_layer = LinkLayer::kInfiniband})
      : node(options) {
    out.fill(5);
  }

  ibv_port_attr port(uint8_t number) {
    ibv_port_attr attr{};
    EXPECT_EQ(query_port(context.get(), number, &attr), 0);
    return attr;
  }
  ibv_ah_attr address(uint8_t from, uint8_t to) {
    ibv_ah_attr attr{};
    attr.port_num = from;
    attr.dlid = port(to).lid;
    return attr;
  }
  Side make(ibv_qp_type type, uint64_t handle) {
    Side side;
    side.send_cq = make_cq(context.get(), 64);
    side.recv_cq = make_cq(context.get(), 64);
    ibv_qp_init_attr init{};
    init.cap = {16, 16, 1, 1, 0};
    init.qp_type = type;
    Qp* qp = nullptr;
    EXPECT_EQ(create_qp(pd.get(), &init, side.send_cq.get(), side.recv_cq.get(), handle, &qp), 0);
    side.qp.reset(qp);
    return side;
  }
  void connect(Side& side, uint32_t peer, Where own, uint8_t peer_port) {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = own.port;
    attr.pkey_index = own.pkey_index;
    attr.qp_access_flags = kAllAccess;
    ASSERT_EQ(modify_qp(*side, &attr, kInitMask | IBV_QP_ACCESS_FLAGS), 0);
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = IBV_MTU_1024;
    attr.dest_qp_num = peer;
    attr.max_dest_rd_atomic = 1;
    attr.ah_attr = address(own.port, peer_port);
    ASSERT_EQ(modify_qp(*side, &attr, kRtrMask | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER), 0);
    attr.qp_state = IBV_QPS_RTS;
    attr.timeout = 10;  // 4 ms
    attr.retry_cnt = 1;
    attr.max_rd_atomic = 1;
    ASSERT_EQ(modify_qp(*side, &attr,
                        IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                            IBV_QP_MAX_QP_RD_ATOMIC),
              0);
  }
  void connect_both(Where left = {}, Where right = {}) {
    a.qp.reset();  // before its CQs
    b.qp.reset();
    a = make(IBV_QPT_RC, 0xa);
    b = make(IBV_QPT_RC, 0xb);
    connect(a, b.number(), left, right.port);
    connect(b, a.number(), right, left.port);
  }
  // The alternate path of an end: from its port 2 to the peer's port `to`.
  int rearm(Side& side, uint8_t to = 2) {
    ibv_qp_attr attr{};
    attr.alt_ah_attr = address(2, to);
    attr.alt_port_num = 2;
    attr.alt_timeout = 11;
    attr.path_mig_state = IBV_MIG_REARM;
    return modify_qp(*side, &attr, IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE);
  }
  int migrate(Side& side) {
    ibv_qp_attr attr{};
    attr.path_mig_state = IBV_MIG_MIGRATED;
    return modify_qp(*side, &attr, IBV_QP_PATH_MIG_STATE);
  }
  ibv_qp_attr query(Side& side) {
    ibv_qp_attr attr{};
    ibv_qp_init_attr init{};
    EXPECT_EQ(query_qp(*side, &attr, &init), 0);
    return attr;
  }
  void raise(ibv_event_type type, uint32_t number) {
    uint32_t told = 0;
    ASSERT_EQ(raise_device_event(node.directory(), node.path(), 0, type, &told, number), 0);
  }
  void expect_transfer(Side& from, Side& to) {
    in.clear();
    ASSERT_EQ(receive(*to, {in.sge(0, 700)}), 0);
    ASSERT_EQ(send(*from, {out.sge(0, 700)}), 0);
    EXPECT_EQ(from.sent().status, IBV_WC_SUCCESS);
    EXPECT_EQ(to.received().status, IBV_WC_SUCCESS);
    EXPECT_EQ(std::memcmp(in.data(), out.data(), 700), 0);
  }
  // The next `count` events of queue pairs: their elements.
  std::vector<uint64_t> events(ibv_event_type type, size_t count) {
    std::vector<uint64_t> elements;
    while (elements.size() < count) {
      const AsyncEvent event = async_event(context.get());
      if (event.type == UINT32_MAX) break;
      if (event.type == type) elements.push_back(event.element);
    }
    std::sort(elements.begin(), elements.end());
    return elements;
  }

  TemporaryNode node;
  Owned<Context> context = open_device();
  Owned<Pd> pd = make_pd(context.get());
  Region out{pd.get(), 4096}, in{pd.get(), 4096};
  Side a, b;
};

TEST_F(TwoPorts, EachHasLidsAndAGidOfItsOwn) {
  const ibv_port_attr one = port(1), two = port(2);
  EXPECT_EQ(one.lmc, 1);
  EXPECT_EQ(one.lid % 2, 0) << "the low bits of a base LID are 0";
  EXPECT_EQ(two.lid, one.lid + 2);
  EXPECT_EQ(one.pkey_tbl_len, 3);
  const DeviceDescription& device = node.directory().devices().devices[0];
  EXPECT_NE(device.ports[0].gids[0].raw, device.ports[1].gids[0].raw);
  ibv_port_attr attr;
  EXPECT_EQ(query_port(context.get(), 3, &attr), EINVAL);
  EXPECT_EQ(query_port(context.get(), 0, &attr), EINVAL);
}

TEST_F(TwoPorts, AConnectionMayUseAnyTwoPorts) {
  for (const uint8_t left : {1, 2})
    for (const uint8_t right : {1, 2}) {
      connect_both({left}, {right});
      expect_transfer(a, b);
      expect_transfer(b, a);
      EXPECT_EQ(query(a).port_num, left);
    }
}

TEST_F(TwoPorts, AnAddressOfTheOtherPortLeadsNowhere) {
  a = make(IBV_QPT_RC, 0xa);
  b = make(IBV_QPT_RC, 0xb);
  connect(b, a.number(), {1}, 1);
  connect(a, b.number(), {1}, 2);  // b is on port 1
  ASSERT_EQ(receive(*b, {in.sge(0, 64)}), 0);
  ASSERT_EQ(send(*a, {out.sge(0, 64)}), 0);
  EXPECT_EQ(a.sent().status, IBV_WC_RETRY_EXC_ERR);
}

TEST_F(TwoPorts, EachGoesDownByItself) {
  connect_both({2}, {2});
  raise(IBV_EVENT_PORT_ERR, 1);
  const AsyncEvent event = async_event(context.get());
  EXPECT_EQ(event.type, static_cast<uint32_t>(IBV_EVENT_PORT_ERR));
  EXPECT_EQ(event.element, 1u);
  EXPECT_EQ(port(1).state, IBV_PORT_DOWN);
  EXPECT_EQ(port(2).state, IBV_PORT_ACTIVE);
  expect_transfer(a, b);
  raise(IBV_EVENT_PORT_ERR, 2);
  EXPECT_EQ(async_event(context.get()).element, 2u);
  ASSERT_EQ(send(*a, {out.sge(0, 64)}), 0);
  EXPECT_EQ(a.sent().status, IBV_WC_RETRY_EXC_ERR);
}

struct PkeyCase {
  uint16_t left, right;  // indices of {0xffff, 0x8001, 0x0001}
  bool is_received;
};

TEST_F(TwoPorts, PkeysOfOnePartitionTalkUnlessBothAreLimitedMembers) {
  uint32_t dropped = 0;
  for (const PkeyCase& c : {PkeyCase{1, 1, true}, {1, 2, true}, {2, 1, true}, {2, 2, false}, {0, 1, false}}) {
    SCOPED_TRACE(testing::Message() << "P_Keys " << c.left << " and " << c.right);
    connect_both({1, c.left}, {1, c.right});
    if (c.is_received) {
      expect_transfer(a, b);
      continue;
    }
    ASSERT_EQ(receive(*b, {in.sge(0, 64)}), 0);
    ASSERT_EQ(send(*a, {out.sge(0, 64)}), 0);
    EXPECT_EQ(a.sent().status, IBV_WC_RETRY_EXC_ERR);
    EXPECT_TRUE(nothing(b.recv_cq.get()));
    EXPECT_GT(port(1).bad_pkey_cntr, dropped);
    dropped = port(1).bad_pkey_cntr;
  }
}

TEST_F(TwoPorts, AnArmedConnectionMigratesWhenItsProgramSaysSo) {
  connect_both();
  ASSERT_EQ(rearm(a), 0);
  EXPECT_EQ(query(a).path_mig_state, IBV_MIG_REARM) << "the other end has no alternate path yet";
  ASSERT_EQ(rearm(b), 0);
  EXPECT_EQ(query(a).path_mig_state, IBV_MIG_ARMED);
  EXPECT_EQ(query(b).path_mig_state, IBV_MIG_ARMED);
  expect_transfer(a, b);
  ASSERT_EQ(migrate(a), 0);
  EXPECT_EQ(events(IBV_EVENT_PATH_MIG, 2), (std::vector<uint64_t>{0xa, 0xb}));
  for (Side* side : {&a, &b}) {
    const ibv_qp_attr attr = query(*side);
    EXPECT_EQ(attr.path_mig_state, IBV_MIG_MIGRATED);
    EXPECT_EQ(attr.port_num, 2);
    EXPECT_EQ(attr.ah_attr.dlid, port(2).lid);
    EXPECT_EQ(attr.timeout, 11);
    EXPECT_EQ(attr.alt_port_num, 1);
  }
  raise(IBV_EVENT_PORT_ERR, 1);  // which the connection has left
  expect_transfer(a, b);
  expect_transfer(b, a);
}

TEST_F(TwoPorts, AnArmedConnectionMigratesWhenItsRetriesAreOver) {
  connect_both();
  ASSERT_EQ(rearm(a), 0);
  ASSERT_EQ(rearm(b), 0);
  raise(IBV_EVENT_PORT_ERR, 1);
  expect_transfer(a, b);
  EXPECT_EQ(events(IBV_EVENT_PATH_MIG, 2), (std::vector<uint64_t>{0xa, 0xb}));
  EXPECT_EQ(query(b).port_num, 2);
  // And back again, once the first port is there.
  raise(IBV_EVENT_PORT_ACTIVE, 1);
  ibv_qp_attr attr{};
  attr.path_mig_state = IBV_MIG_REARM;
  ASSERT_EQ(modify_qp(*a, &attr, IBV_QP_PATH_MIG_STATE), 0);
  ASSERT_EQ(modify_qp(*b, &attr, IBV_QP_PATH_MIG_STATE), 0);
  raise(IBV_EVENT_PORT_ERR, 2);
  expect_transfer(b, a);
  EXPECT_EQ(query(a).port_num, 1);
}

TEST_F(TwoPorts, WithoutMigrationTheRequestFails) {
  connect_both();
  ASSERT_EQ(rearm(a), 0);  // the other end is not
  raise(IBV_EVENT_PORT_ERR, 1);
  ASSERT_EQ(send(*a, {out.sge(0, 64)}), 0);
  EXPECT_EQ(a.sent().status, IBV_WC_RETRY_EXC_ERR);
}

TEST_F(TwoPorts, AnAlternatePathToTheWrongPortIsAnError) {
  connect_both();
  ASSERT_EQ(rearm(a, 1), 0);  // to port 1 of b, whose alternate port is 2
  ASSERT_EQ(rearm(b), 0);
  ASSERT_EQ(migrate(a), 0);
  EXPECT_EQ(events(IBV_EVENT_PATH_MIG_ERR, 1), std::vector<uint64_t>{0xb});
  EXPECT_EQ(query(b).path_mig_state, IBV_MIG_ARMED);
}

TEST_F(TwoPorts, RearmNeedsAnAlternatePath) {
  connect_both();
  ibv_qp_attr attr{};
  attr.path_mig_state = IBV_MIG_REARM;
  EXPECT_EQ(modify_qp(*a, &attr, IBV_QP_PATH_MIG_STATE), EINVAL);
}

class OnePort : public TwoPorts {
 protected:
  OnePort() : TwoPorts({.count = 1, .link_layer = LinkLayer::kInfiniband}) {}
};

TEST_F(OnePort, HasNoAlternatePath) {
  ibv_device_attr_ex attr{};
  ASSERT_EQ(query_device(context.get(), &attr), 0);
  EXPECT_EQ(attr.orig_attr.device_cap_flags & IBV_DEVICE_AUTO_PATH_MIG, 0u);
  connect_both();
  ibv_qp_attr alternate{};
  alternate.alt_ah_attr = address(1, 1);
  alternate.alt_port_num = 1;
  EXPECT_EQ(modify_qp(*a, &alternate, IBV_QP_ALT_PATH), EINVAL);
}

}  // namespace
}  // namespace verbena
