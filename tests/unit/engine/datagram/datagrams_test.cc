// SPDX-License-Identifier: BSD-2-Clause
//
// Which datagrams arrive, which are dropped, and what becomes of the sender.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "engine/objects/cq.h"
#include "engine/objects/qp.h"
#include "engine/receive/shared_receive_queue.h"
#include "unit/engine/datagram_scene.h"

namespace verbena {
namespace {

class Datagram : public ::testing::Test, protected DatagramScene {
 protected:
  Datagram() {
    out.fill(3);
    in.clear();
  }
  bool arrived(size_t length, size_t at = 0) {
    return std::memcmp(in.data() + at + kGrh, out.data(), length) == 0;
  }
  uint32_t dropped(const Side& side) const { return (*side)->shared->dropped.load(); }
  // Datagrams that came to the device and that no QP took.
  uint32_t strays(uint32_t device = 0) const {
    return node.directory().header().stray_datagrams[device].load();
  }
  uint32_t violations(const Side& side) const { return (*side)->shared->qkey_violations.load(); }
};

class DatagramOfSize : public Datagram, public ::testing::WithParamInterface<uint32_t> {};

TEST_P(DatagramOfSize, Arrives) {
  const uint32_t size = GetParam();
  ASSERT_EQ(receive(*b, {in.sge(0, kGrh + size)}, 7), 0);
  sent(a, b.number(), out.sge(0, size));
  const ibv_wc wc = b.received();
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(wc.opcode, IBV_WC_RECV);
  EXPECT_EQ(wc.wr_id, 7u);
  EXPECT_EQ(wc.byte_len, kGrh + size);
  EXPECT_TRUE(arrived(size));
}
// Around what travels in the entry (88), in the bounce buffer (256), and the MTU.
INSTANTIATE_TEST_SUITE_P(Sizes, DatagramOfSize,
                         ::testing::Values(0, 1, 8, 47, 48, 49, 215, 216, 217, 1000, 4095, 4096));

TEST_F(Datagram, TellsTheSender) {
  ASSERT_EQ(receive(*b, {in.sge(0, 100)}), 0);
  sent(a, b.number(), out.sge(0, 8));
  const ibv_wc wc = b.received();
  EXPECT_EQ(wc.src_qp, a.number());
  EXPECT_EQ(wc.qp_num, b.number());
  EXPECT_EQ(wc.wc_flags, static_cast<unsigned>(IBV_WC_GRH));
}

TEST_F(Datagram, CarriesItsImmediate) {
  ASSERT_EQ(receive(*b, {in.sge(0, 100)}), 0);
  Sges sges{out.sge(0, 8)};
  ibv_send_wr wr = datagram(sges, b.number());
  wr.opcode = IBV_WR_SEND_WITH_IMM;
  wr.imm_data = 0x11223344;
  ASSERT_EQ(post(*a, wr), 0);
  const ibv_wc wc = b.received();
  EXPECT_EQ(wc.imm_data, 0x11223344u);
  EXPECT_EQ(wc.wc_flags, static_cast<unsigned>(IBV_WC_GRH | IBV_WC_WITH_IMM));
}

TEST_F(Datagram, BeginsWithItsHeader) {
  ASSERT_EQ(receive(*b, {in.sge(0, 100)}), 0);
  sent(a, b.number(), out.sge(0, 8));
  ASSERT_EQ(b.received().status, IBV_WC_SUCCESS);
  ibv_grh grh;
  std::memcpy(&grh, in.data(), sizeof grh);
  EXPECT_EQ(std::memcmp(grh.sgid.raw, gid().raw.data(), 16), 0);
  EXPECT_EQ(std::memcmp(grh.dgid.raw, gid().raw.data(), 16), 0);
  EXPECT_EQ(grh.hop_limit, 64);
}

TEST_F(Datagram, IsScatteredOverSeveralBuffers) {
  ASSERT_EQ(receive(*b, {in.sge(0, 20), in.sge(100, 30), in.sge(200, 400)}), 0);
  sent(a, b.number(), out.sge(0, 300));
  ASSERT_EQ(b.received().status, IBV_WC_SUCCESS);
  EXPECT_EQ(std::memcmp(in.data() + 120, out.data(), 10), 0);
  EXPECT_EQ(std::memcmp(in.data() + 200, out.data() + 10, 290), 0);
}

TEST_F(Datagram, IsGatheredFromSeveralBuffers) {
  ASSERT_EQ(receive(*b, {in.sge(0, 200)}), 0);
  ASSERT_EQ(send_to(a, b.number(), {out.sge(0, 10), out.sge(10, 50)}), 0);
  EXPECT_EQ(b.received().byte_len, kGrh + 60);
  EXPECT_TRUE(arrived(60));
}

TEST_F(Datagram, GoesToItself) {
  ASSERT_EQ(receive(*a, {in.sge(0, 100)}), 0);
  sent(a, a.number(), out.sge(0, 8));
  EXPECT_EQ(a.received().src_qp, a.number());
  EXPECT_TRUE(arrived(8));
}

TEST_F(Datagram, OneQueuePairReceivesFromMany) {
  Side c = make(0xc);
  ASSERT_EQ(receive(*b, {in.sge(0, 100)}), 0);
  ASSERT_EQ(receive(*b, {in.sge(100, 100)}), 0);
  sent(a, b.number(), out.sge(0, 8));
  sent(c, b.number(), out.sge(0, 8));
  EXPECT_EQ(b.received().src_qp, a.number());
  EXPECT_EQ(b.received().src_qp, c.number());
}

TEST_F(Datagram, OneQueuePairSendsToMany) {
  Side c = make(0xc);
  for (int round = 0; round < 3; ++round) {
    ASSERT_EQ(receive(*b, {in.sge(0, 100)}), 0);
    ASSERT_EQ(receive(*c, {in.sge(100, 100)}), 0);
    sent(a, b.number(), out.sge(0, 8));
    sent(a, c.number(), out.sge(0, 8));
    EXPECT_EQ(b.received().status, IBV_WC_SUCCESS);
    EXPECT_EQ(c.received().status, IBV_WC_SUCCESS);
  }
}

TEST_F(Datagram, ReceiveSlotsComeBackWhenPolled) {
  for (int i = 0; i < 1000; ++i) {
    ASSERT_EQ(receive(*b, {in.sge(0, 100)}, static_cast<uint64_t>(i)), 0) << i;
    sent(a, b.number(), out.sge(0, 8));
    ASSERT_EQ(b.received().wr_id, static_cast<uint64_t>(i));
  }
}

// ---- dropped ------------------------------------------------------------------------------------------

TEST_F(Datagram, WithoutAReceiveIsDropped) {
  sent(a, b.number(), out.sge(0, 8));
  EXPECT_TRUE(nothing(b.recv_cq.get()));
  EXPECT_EQ(dropped(b), 1u);
}

TEST_F(Datagram, ThatDoesNotFitIsDropped) {
  ASSERT_EQ(receive(*b, {in.sge(0, kGrh + 7)}), 0);
  sent(a, b.number(), out.sge(0, 8));
  EXPECT_TRUE(nothing(b.recv_cq.get()));
  EXPECT_EQ(dropped(b), 1u);
}

TEST_F(Datagram, ThatDoesNotFitLeavesTheReceive) {
  ASSERT_EQ(receive(*b, {in.sge(0, kGrh + 7)}, 9), 0);
  sent(a, b.number(), out.sge(0, 8));
  sent(a, b.number(), out.sge(0, 7));
  EXPECT_EQ(b.received().wr_id, 9u);
}

TEST_F(Datagram, WithAnotherQkeyIsDropped) {
  ASSERT_EQ(receive(*b, {in.sge(0, 100)}), 0);
  sent(a, b.number(), out.sge(0, 8), kQkey + 1);
  EXPECT_TRUE(nothing(b.recv_cq.get()));
  EXPECT_EQ(violations(b), 1u);
}

TEST_F(Datagram, WithAnotherQkeyIsCountedAtThePort) {
  ibv_port_attr port;
  ASSERT_EQ(query_port(context.get(), 1, &port), 0);
  ASSERT_EQ(port.qkey_viol_cntr, 0u);
  for (int i = 0; i < 3; ++i) sent(a, b.number(), out.sge(0, 8), kQkey + 1);
  ASSERT_EQ(query_port(context.get(), 1, &port), 0);
  EXPECT_EQ(port.qkey_viol_cntr, 3u);
}

// PortInfo:Q_KeyViolations has 16 bits (vol. 1, 14.2.5.6).
TEST_F(Datagram, ThePortsCounterStaysAtItsMost) {
  node.directory().header().qkey_violations[0] = UINT16_MAX;
  sent(a, b.number(), out.sge(0, 8), kQkey + 1);
  ibv_port_attr port;
  ASSERT_EQ(query_port(context.get(), 1, &port), 0);
  EXPECT_EQ(port.qkey_viol_cntr, uint32_t{UINT16_MAX});
}

// The small message waits in its receive slot to be polled, the large one is placed at once.
TEST_F(Datagram, IsNotOverwrittenByAnEarlierSmallOne) {
  for (uint64_t id : {1, 2}) ASSERT_EQ(receive(*b, {in.sge(0, 2000)}, id), 0);
  sent(a, b.number(), out.sge(1500, 8));
  sent(a, b.number(), out.sge(0, 1500));
  ASSERT_EQ(b.received().wr_id, 1u);
  ASSERT_EQ(b.received().wr_id, 2u);
  EXPECT_TRUE(arrived(1500));
}

TEST_F(Datagram, IsNotOverwrittenByAnEarlierSmallOneOfAnotherSender) {
  const Side c = make(0xc);
  for (uint64_t id : {1, 2}) ASSERT_EQ(receive(*b, {in.sge(0, 2000)}, id), 0);
  sent(a, b.number(), out.sge(1500, 8));
  sent(c, b.number(), out.sge(0, 1500));
  ASSERT_EQ(b.received().wr_id, 1u);
  ASSERT_EQ(b.received().wr_id, 2u);
  EXPECT_TRUE(arrived(1500));
}

// The buffer holds the message that came second.
TEST_F(Datagram, OfTwoSendersAtOnceEndInTheOrderOfTheirCompletions) {
  constexpr size_t kSmall = 64, kLarge = 1500;
  const Side c = make(0xc);
  std::memset(out.data(), 1, kLarge);
  std::memset(out.data() + kLarge, 2, kSmall);
  std::atomic<int> round{0}, sent_small{0};
  constexpr int kRounds = 50;
  std::jthread small([&] {
    for (int i = 1; i <= kRounds; ++i) {
      while (round.load() < i) sched_yield();
      sent(a, b.number(), out.sge(kLarge, kSmall));
      sent_small = i;
    }
  });
  for (int i = 1; i <= kRounds; ++i) {
    for (uint64_t id : {1, 2}) EXPECT_EQ(receive(*b, {in.sge(0, 2000)}, id), 0);
    round = i;
    sent(c, b.number(), out.sge(0, kLarge));
    EXPECT_TRUE(eventually([&] { return sent_small == i; }));
    b.received();
    const bool large_is_last = b.received().byte_len == kGrh + kLarge;
    EXPECT_EQ(in.data()[kGrh + kSmall - 1], large_is_last ? 1 : 2) << i;
    EXPECT_EQ(in.data()[kGrh + kSmall], 1) << i;
  }
}

// Two queue pairs take their receives from one SRQ: it is one queue.
TEST_F(Datagram, IsNotOverwrittenByAnEarlierSmallOneToAnotherQueuePairOfTheSrq) {
  ibv_srq_attr attr{4, 1, 0};
  Srq* srq = nullptr;
  ASSERT_EQ(create_srq(pd.get(), &attr, {}, 0, &srq), 0);
  {
    const Owned<Cq> cq = make_cq(context.get());
    const auto make_fed = [&] {
      ibv_qp_init_attr init{};
      init.cap = {1, 0, 1, 0, 0};
      init.qp_type = IBV_QPT_UD;
      Qp* qp = nullptr;
      EXPECT_EQ(create_qp(pd.get(), &init, cq.get(), cq.get(), 0, &qp, srq), 0);
      start(qp);
      return Owned<Qp>(qp);
    };
    const Owned<Qp> first = make_fed(), second = make_fed();
    for (uint64_t id : {1, 2}) {
      Sges sges{in.sge(0, 2000)};
      ibv_recv_wr wr{id, nullptr, sges.data(), 1}, *bad = nullptr;
      ASSERT_EQ(post_srq_recv(srq, &wr, &bad), 0);
    }
    sent(a, qp_number(first.get()), out.sge(1500, 8));
    sent(a, qp_number(second.get()), out.sge(0, 1500));
    EXPECT_EQ(completions(cq.get(), 2)[1].wr_id, 2u);
    EXPECT_TRUE(arrived(1500));
  }
  uint32_t events;
  EXPECT_EQ(destroy_srq(srq, &events), 0);
}

TEST_F(Datagram, WithTheHighBitInItsQkeyUsesTheSendersOwn) {
  ASSERT_EQ(receive(*b, {in.sge(0, 100)}), 0);
  sent(a, b.number(), out.sge(0, 8), 0x80000000);
  EXPECT_EQ(b.received().status, IBV_WC_SUCCESS);
}

TEST_F(Datagram, ToANumberNobodyHasIsDropped) {
  ASSERT_EQ(receive(*b, {in.sge(0, 100)}), 0);
  sent(a, 0xfffff0, out.sge(0, 8));
  EXPECT_TRUE(nothing(b.recv_cq.get()));
  EXPECT_EQ(strays(), 1u);
}

TEST_F(Datagram, ToAConnectedQueuePairIsDropped) {
  const QpSetup setup;
  Owned<Cq> cq = make_cq(context.get());
  Owned<Qp> rc = make_qp(pd.get(), cq.get(), cq.get(), setup);
  connect(rc.get(), a.number(), gid());
  ASSERT_EQ(receive(rc.get(), {in.sge(0, 100)}), 0);
  sent(a, qp_number(rc.get()), out.sge(0, 8));
  EXPECT_TRUE(nothing(cq.get()));
  EXPECT_EQ(strays(), 1u);
}

TEST_F(Datagram, ToAQueuePairThatIsNotReadyIsDropped) {
  ASSERT_EQ(to_state(*b, IBV_QPS_RESET), 0);
  ASSERT_EQ(to_init(*b), 0);
  ASSERT_EQ(receive(*b, {in.sge(0, 100)}), 0);
  sent(a, b.number(), out.sge(0, 8));
  EXPECT_TRUE(nothing(b.recv_cq.get()));
  EXPECT_EQ(strays(), 1u);
}

TEST_F(Datagram, ThatArrivesOrIsDroppedByItsQueuePairIsNoStray) {
  ASSERT_EQ(receive(*b, {in.sge(0, 100)}), 0);
  sent(a, b.number(), out.sge(0, 8));
  sent(a, b.number(), out.sge(0, 8));  // without a receive
  EXPECT_EQ(dropped(b), 1u);
  EXPECT_EQ(strays(), 0u);
}

// What is sent to a port that is down has never come to the device.
TEST_F(Datagram, IsTheStrayOfTheDeviceItCameTo) {
  Address to_other(pd.get(), address_of(gid(1)));
  Sges sges{out.sge(0, 8)};
  ibv_send_wr wr = datagram(sges, 0xfffff0);
  wr.wr.ud.ah = to_other.ah();
  for (const uint32_t ports_down : {0u, 2u}) {
    node.directory().header().ports_down = ports_down;
    ASSERT_EQ(post(*a, wr), 0);
    EXPECT_EQ(a.sent().status, IBV_WC_SUCCESS);
    EXPECT_EQ(strays(0), 0u);
    EXPECT_EQ(strays(1), 1u) << "ports down: " << ports_down;
  }
}

TEST_F(Datagram, ReachesAQueuePairInRtr) {
  ASSERT_EQ(to_state(*b, IBV_QPS_RESET), 0);
  ASSERT_EQ(to_init(*b), 0);
  ASSERT_EQ(to_state(*b, IBV_QPS_RTR), 0);
  ASSERT_EQ(receive(*b, {in.sge(0, 100)}), 0);
  sent(a, b.number(), out.sge(0, 8));
  EXPECT_EQ(b.received().status, IBV_WC_SUCCESS);
}

TEST_F(Datagram, ReachesAQueuePairThatBeganAgain) {
  ASSERT_EQ(receive(*b, {in.sge(0, 100)}), 0);
  sent(a, b.number(), out.sge(0, 8));
  ASSERT_EQ(b.received().status, IBV_WC_SUCCESS);
  ASSERT_EQ(to_state(*b, IBV_QPS_RESET), 0);
  start(*b);
  ASSERT_EQ(receive(*b, {in.sge(0, 100)}, 5), 0);
  sent(a, b.number(), out.sge(0, 8));
  EXPECT_EQ(b.received().wr_id, 5u);
}

TEST_F(Datagram, ToADestroyedQueuePairIsDropped) {
  ASSERT_EQ(receive(*b, {in.sge(0, 100)}), 0);
  sent(a, b.number(), out.sge(0, 8));
  const uint32_t number = b.number();
  b.qp.reset();
  sent(a, number, out.sge(0, 8));
  EXPECT_EQ(strays(), 1u);
}

TEST_F(Datagram, ByAnAddressOfNoDeviceIsDropped) {
  GidEntry nowhere = gid();
  nowhere.raw[15] ^= 0xff;
  Address ah(pd.get(), address_of(nowhere));
  ASSERT_EQ(receive(*b, {in.sge(0, 100)}), 0);
  Sges sges{out.sge(0, 8)};
  ibv_send_wr wr = datagram(sges, b.number());
  wr.wr.ud.ah = ah.ah();
  ASSERT_EQ(post(*a, wr), 0);
  EXPECT_EQ(a.sent().status, IBV_WC_SUCCESS);
  EXPECT_TRUE(nothing(b.recv_cq.get()));
  EXPECT_EQ(strays(), 0u);
}

// ---- what a completion says of the packet --------------------------------------------------------------

TEST_F(Datagram, OverRoceTellsThePacketTypeAsServiceLevel) {
  ASSERT_EQ(receive(*b, {in.sge(0, 1000)}), 0);
  sent(a, b.number(), out.sge(0, 8));
  const ibv_wc wc = b.received();
  ASSERT_EQ(wc.status, IBV_WC_SUCCESS);
  const bool is_ipv4 = in.data()[20] == 0x45;
  EXPECT_EQ(wc.sl, is_ipv4 ? 0xa : 0x9);
}

// ---- source addresses on InfiniBand --------------------------------------------------------------------

// The port has one LID (LMC 0, ibv_query_port(3)), so no address handle has path bits.
TEST(InfinibandDatagram, TellsServiceLevelAndLid) {
  DatagramScene scene(LinkLayer::kInfiniband);
  ibv_port_attr port;
  ASSERT_EQ(query_port(scene.context.get(), 1, &port), 0);
  ASSERT_EQ(port.lmc, 0);
  ibv_ah_attr attr{};
  attr.dlid = port.lid;
  attr.sl = 5;
  attr.src_path_bits = 0x7f;
  attr.port_num = 1;
  Address by_lid(scene.pd.get(), attr);
  ASSERT_EQ(receive(*scene.b, {scene.in.sge(0, 100)}), 0);
  Sges sges{scene.out.sge(0, 8)};
  ibv_send_wr wr = scene.datagram(sges, scene.b.number());
  wr.wr.ud.ah = by_lid.ah();
  ASSERT_EQ(post(*scene.a, wr), 0);
  const ibv_wc wc = scene.b.received();
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(wc.sl, 5);
  EXPECT_EQ(wc.slid, port.lid);
  EXPECT_EQ(wc.dlid_path_bits, 0);
  EXPECT_EQ(wc.wc_flags & IBV_WC_GRH, 0u);
}

// ---- errors of the receiver -----------------------------------------------------------------------------

TEST_F(Datagram, IntoMemoryThatIsNoLongerRegisteredFailsTheReceive) {
  ASSERT_EQ(receive(*b, {in.sge(0, 1000)}, 4), 0);
  in.deregister();
  sent(a, b.number(), out.sge(0, 8));
  const ibv_wc wc = b.received();
  EXPECT_EQ(wc.status, IBV_WC_LOC_PROT_ERR);
  EXPECT_EQ(wc.wr_id, 4u);
}

TEST_F(Datagram, IntoMemoryThatIsNoLongerRegisteredPutsTheReceiverIntoError) {
  ASSERT_EQ(receive(*b, {in.sge(0, 1000)}), 0);
  ASSERT_EQ(receive(*b, {in.sge(0, 1000)}, 2), 0);
  in.deregister();
  sent(a, b.number(), out.sge(0, 8));
  ASSERT_EQ(b.received().status, IBV_WC_LOC_PROT_ERR);
  const ibv_wc flushed = b.received();
  EXPECT_EQ(flushed.status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(flushed.wr_id, 2u);
}

TEST_F(Datagram, ReceivesAreFlushedInOrder) {
  for (uint64_t i = 0; i < 3; ++i) ASSERT_EQ(receive(*b, {in.sge(0, 100)}, i), 0);
  ASSERT_EQ(to_state(*b, IBV_QPS_ERR), 0);
  for (uint64_t i = 0; i < 3; ++i) {
    const ibv_wc wc = b.received();
    EXPECT_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
    EXPECT_EQ(wc.wr_id, i);
  }
}

TEST_F(Datagram, AReceivePostedInErrorIsFlushed) {
  ASSERT_EQ(to_state(*b, IBV_QPS_ERR), 0);
  ASSERT_EQ(receive(*b, {in.sge(0, 100)}, 6), 0);
  const ibv_wc wc = b.received();
  EXPECT_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(wc.wr_id, 6u);
}

TEST_F(Datagram, AReceivePostedInResetIsRefused) {
  ASSERT_EQ(to_state(*b, IBV_QPS_RESET), 0);
  EXPECT_EQ(receive(*b, {in.sge(0, 100)}), EINVAL);
}

TEST_F(Datagram, TheReceiveQueueHoldsWhatItWasMadeFor) {
  for (int i = 0; i < 64; ++i) ASSERT_EQ(receive(*b, {in.sge(0, 100)}), 0);
  EXPECT_EQ(receive(*b, {in.sge(0, 100)}), ENOMEM);
}

TEST_F(Datagram, ResetForgetsWhatWasPosted) {
  for (int i = 0; i < 64; ++i) ASSERT_EQ(receive(*b, {in.sge(0, 100)}), 0);
  sent(a, b.number(), out.sge(0, 8));
  ASSERT_EQ(to_state(*b, IBV_QPS_RESET), 0);
  start(*b);
  EXPECT_TRUE(nothing(b.recv_cq.get()));
  for (int i = 0; i < 64; ++i) ASSERT_EQ(receive(*b, {in.sge(0, 100)}), 0);
}

TEST_F(Datagram, EagerDataIsScatteredBeforeItsMemoryIsGivenBack) {
  ASSERT_EQ(receive(*b, {in.sge(0, 100)}), 0);
  sent(a, b.number(), out.sge(0, 8));
  in.deregister();
  EXPECT_TRUE(arrived(8));
  EXPECT_EQ(b.received().status, IBV_WC_SUCCESS);
}

// ---- from an SRQ of the program -------------------------------------------------------------------------

struct DestroySrq {
  void operator()(Srq* srq) const {
    uint32_t events;
    EXPECT_EQ(destroy_srq(srq, &events), 0);
  }
};

class DatagramOnSrq : public Datagram {
 protected:
  DatagramOnSrq() {
    ibv_srq_attr attr{16, 2, 0};
    Srq* srq = nullptr;
    EXPECT_EQ(create_srq(pd.get(), &attr, {}, 0, &srq), 0);
    srq_.reset(srq);
    ibv_qp_init_attr init{};
    init.cap = {16, 0, 1, 0, 0};
    init.qp_type = IBV_QPT_UD;
    Qp* qp = nullptr;
    EXPECT_EQ(create_qp(pd.get(), &init, a.send_cq.get(), a.recv_cq.get(), 0, &qp, srq), 0);
    qp_.reset(qp);
    start(qp);
  }
  int post_receive(uint64_t id) {
    ibv_sge sge = in.sge(0, 100);
    ibv_recv_wr wr{id, nullptr, &sge, 1};
    ibv_recv_wr* bad = nullptr;
    return post_srq_recv(srq_.get(), &wr, &bad);
  }
  std::unique_ptr<Srq, DestroySrq> srq_;
  Owned<Qp> qp_;
};

TEST_F(DatagramOnSrq, TakesItsRequest) {
  ASSERT_EQ(post_receive(8), 0);
  sent(b, qp_number(qp_.get()), out.sge(0, 8));
  const ibv_wc wc = completion(a.recv_cq.get());
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(wc.wr_id, 8u);
  EXPECT_EQ(wc.src_qp, b.number());
  EXPECT_EQ(wc.qp_num, qp_number(qp_.get()));
  EXPECT_TRUE(arrived(8));
}

TEST_F(DatagramOnSrq, ThatDoesNotFitLeavesTheRequest) {
  ASSERT_EQ(post_receive(8), 0);
  sent(b, qp_number(qp_.get()), out.sge(0, 61));
  EXPECT_TRUE(nothing(a.recv_cq.get()));
  sent(b, qp_number(qp_.get()), out.sge(0, 60));
  EXPECT_EQ(completion(a.recv_cq.get()).wr_id, 8u);
}

}  // namespace
}  // namespace verbena
