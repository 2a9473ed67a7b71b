// SPDX-License-Identifier: BSD-2-Clause
//
// UC: connected as RC, but nothing is acknowledged. The sender's requests complete, whether they arrive or
// not.
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/objects/cq.h"
#include "engine/objects/memory_objects.h"
#include "engine/objects/qp.h"
#include "unit/engine/scene.h"

namespace verbena {
namespace {

struct UcSetup {
  unsigned access = IBV_ACCESS_REMOTE_WRITE;
  uint32_t sq_psn = 7, rq_psn = 7;
};

class UnreliableConnection : public ::testing::Test, protected Scene {
 protected:
  UnreliableConnection() : a(make(0xa)), b(make(0xb)) {
    join(*a, b.number());
    join(*b, a.number());
    out.fill(9);
    in.clear();
  }
  Side make(uint64_t handle) {
    Side side;
    side.send_cq = make_cq(context.get(), 512);
    side.recv_cq = make_cq(context.get(), 512);
    ibv_qp_init_attr init{};
    init.cap = {64, 64, 4, 4, 0};
    init.qp_type = IBV_QPT_UC;
    Qp* qp = nullptr;
    EXPECT_EQ(create_qp(pd.get(), &init, side.send_cq.get(), side.recv_cq.get(), handle, &qp), 0);
    side.qp.reset(qp);
    return side;
  }
  void join(Qp* qp, uint32_t dest, const UcSetup& setup = {}) {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    attr.qp_access_flags = setup.access;
    EXPECT_EQ(modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), 0);
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = IBV_MTU_1024;
    attr.dest_qp_num = dest;
    attr.rq_psn = setup.rq_psn;
    attr.ah_attr.is_global = 1;
    attr.ah_attr.port_num = 1;
    std::memcpy(attr.ah_attr.grh.dgid.raw, gid().raw.data(), 16);
    EXPECT_EQ(
        modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN),
        0);
    attr.qp_state = IBV_QPS_RTS;
    attr.sq_psn = setup.sq_psn;
    EXPECT_EQ(modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN), 0);
  }
  void begin_again(const Side& side, uint32_t dest, const UcSetup& setup) {
    EXPECT_EQ(to_state(*side, IBV_QPS_RESET), 0);
    join(*side, dest, setup);
  }
  // Posted, and completed with success.
  void sent(const ibv_sge& sge) {
    ASSERT_EQ(send(*a, {sge}, 1), 0);
    EXPECT_EQ(a.sent().status, IBV_WC_SUCCESS);
  }
  void written(ibv_wr_opcode opcode, size_t length, uint32_t rkey) {
    ASSERT_EQ(rdma(*a, opcode, {out.sge(0, length)}, in.address(), rkey, 1), 0);
    EXPECT_EQ(a.sent().status, IBV_WC_SUCCESS);
  }
  bool same(size_t length) { return std::memcmp(in.data(), out.data(), length) == 0; }
  bool untouched(size_t length) {
    return std::all_of(in.data(), in.data() + length, [](uint8_t byte) { return byte == 0; });
  }
  uint32_t dropped() const { return (*b)->shared->dropped.load(); }
  // After a drop: the next message finds everything as before.
  void the_next_arrives(uint64_t receive_id) {
    sent(out.sge(0, 16));
    const ibv_wc wc = b.received();
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
    EXPECT_EQ(wc.wr_id, receive_id);
    EXPECT_EQ(qp_state(*b), IBV_QPS_RTS);
  }

  Region out{pd.get(), 1 << 20}, in{pd.get(), 1 << 20};
  Side a, b;
};

class UcSize : public UnreliableConnection, public ::testing::WithParamInterface<uint32_t> {};

TEST_P(UcSize, Send) {
  ASSERT_EQ(receive(*b, {in.sge(0, in.size())}, 5), 0);
  ASSERT_EQ(send(*a, {out.sge(0, GetParam())}), 0);
  const ibv_wc wc = b.received();
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(wc.byte_len, GetParam());
  EXPECT_EQ(wc.src_qp, a.number());
  EXPECT_TRUE(same(GetParam()));
  EXPECT_EQ(a.sent().status, IBV_WC_SUCCESS);
}

TEST_P(UcSize, Write) {
  ASSERT_EQ(rdma(*a, IBV_WR_RDMA_WRITE, {out.sge(0, GetParam())}, in.address(), in.rkey()), 0);
  EXPECT_EQ(a.sent().status, IBV_WC_SUCCESS);
  EXPECT_TRUE(same(GetParam()));
}

TEST_P(UcSize, WriteWithImmediate) {
  ASSERT_EQ(receive(*b, {}, 5), 0);
  Sges sges{out.sge(0, GetParam())};
  ibv_send_wr wr = request(IBV_WR_RDMA_WRITE_WITH_IMM, sges);
  wr.imm_data = 0x77;
  wr.wr.rdma = {in.address(), in.rkey()};
  ASSERT_EQ(post(*a, wr), 0);
  const ibv_wc wc = b.received();
  EXPECT_EQ(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
  EXPECT_EQ(wc.imm_data, 0x77u);
  EXPECT_TRUE(same(GetParam()));
}
INSTANTIATE_TEST_SUITE_P(Sizes, UcSize, ::testing::Values(0, 1, 96, 97, 256, 257, 4096, 1 << 20));

// ---- memory windows: ibv_post_send(3) lists BIND_MW, LOCAL_INV and SEND_WITH_INV for UC, too ----

struct UcWindow : UnreliableConnection {
  UcWindow() {
    Mr* mr = nullptr;
    EXPECT_EQ(reg_mr(pd.get(), in.data(), in.size(), in.address(), kAllAccess | IBV_ACCESS_MW_BIND, &mr), 0);
    region.reset(mr);
    EXPECT_EQ(alloc_mw(pd.get(), IBV_MW_TYPE_2, &mw), 0);
  }
  ~UcWindow() override { EXPECT_EQ(dealloc_mw(mw), 0); }
  // b binds the first 64 bytes under another tag than before.
  ibv_wc bound() {
    ibv_mr bound_to{};
    bound_to.lkey = mr_lkey(region.get());
    ibv_mw handle{};
    handle.rkey = mw_rkey(mw);
    handle.type = IBV_MW_TYPE_2;
    rkey = ibv_inc_rkey(rkey != 0 ? rkey : handle.rkey);
    Sges none;
    ibv_send_wr wr = request(IBV_WR_BIND_MW, none, 21);
    wr.bind_mw = {&handle, rkey, {&bound_to, in.address(), 64, IBV_ACCESS_REMOTE_WRITE}};
    EXPECT_EQ(post(*b, wr), 0);
    return b.sent();
  }
  // Does a WRITE of a through the key arrive?
  bool opens() {
    in.clear();
    written(IBV_WR_RDMA_WRITE, 64, rkey);
    return same(64);
  }
  Owned<Mr> region;
  Mw* mw = nullptr;
  uint32_t rkey = 0;
};

TEST_F(UcWindow, IsBoundAndWrittenThrough) {
  const ibv_wc wc = bound();
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(wc.opcode, IBV_WC_BIND_MW);
  EXPECT_TRUE(opens());
}

TEST_F(UcWindow, IsInvalidatedByItsOwner) {
  ASSERT_EQ(bound().status, IBV_WC_SUCCESS);
  Sges none;
  ibv_send_wr wr = request(IBV_WR_LOCAL_INV, none, 22);
  wr.invalidate_rkey = rkey;
  ASSERT_EQ(post(*b, wr), 0);
  const ibv_wc wc = b.sent();
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(wc.opcode, IBV_WC_LOCAL_INV);
  EXPECT_FALSE(opens());
  EXPECT_EQ(dropped(), 1u);
  ASSERT_EQ(bound().status, IBV_WC_SUCCESS);
  EXPECT_TRUE(opens());
}

TEST_F(UcWindow, IsInvalidatedByThePeersSend) {
  ASSERT_EQ(bound().status, IBV_WC_SUCCESS);
  ASSERT_EQ(receive(*b, {in.sge(1000, 64)}, 5), 0);
  Sges sges{out.sge(0, 16)};
  ibv_send_wr wr = request(IBV_WR_SEND_WITH_INV, sges, 23);
  wr.invalidate_rkey = rkey;
  ASSERT_EQ(post(*a, wr), 0);
  EXPECT_EQ(a.sent().status, IBV_WC_SUCCESS);
  const ibv_wc wc = b.received();
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(wc.wc_flags, static_cast<unsigned>(IBV_WC_WITH_INV));
  EXPECT_EQ(wc.invalidated_rkey, rkey);
  EXPECT_EQ(std::memcmp(in.data() + 1000, out.data(), 16), 0);
  EXPECT_FALSE(opens());
}

TEST_F(UnreliableConnection, ReadsAndAtomicsAreRefused) {
  EXPECT_EQ(rdma(*a, IBV_WR_RDMA_READ, {out.sge(0, 8)}, in.address(), in.rkey()), EINVAL);
  EXPECT_EQ(rdma(*a, IBV_WR_ATOMIC_FETCH_AND_ADD, {out.sge(0, 8)}, in.address(), in.rkey()), EINVAL);
}

TEST_F(UnreliableConnection, WithoutAReceiveTheMessageIsDropped) {
  sent(out.sge(0, 8));
  EXPECT_EQ(dropped(), 1u);
  ASSERT_EQ(receive(*b, {in.sge(0, 64)}, 5), 0);
  the_next_arrives(5);
}

TEST_F(UnreliableConnection, AMessageThatDoesNotFitIsDroppedAndLeavesTheReceive) {
  ASSERT_EQ(receive(*b, {in.sge(0, 64)}, 5), 0);
  sent(out.sge(0, 65));
  EXPECT_TRUE(nothing(b.recv_cq.get()));
  EXPECT_EQ(dropped(), 1u);
  the_next_arrives(5);
}

TEST_F(UnreliableConnection, AWrongRkeyIsDropped) {
  ASSERT_EQ(receive(*b, {in.sge(0, 64)}, 5), 0);
  written(IBV_WR_RDMA_WRITE, 64, in.rkey() ^ 0xff00);
  EXPECT_TRUE(untouched(64));
  EXPECT_EQ(dropped(), 1u);
  the_next_arrives(5);
}

TEST_F(UnreliableConnection, AWrongRkeyWithImmediateLeavesTheReceive) {
  ASSERT_EQ(receive(*b, {in.sge(0, 64)}, 5), 0);
  written(IBV_WR_RDMA_WRITE_WITH_IMM, 64, in.rkey() ^ 0xff00);
  EXPECT_TRUE(nothing(b.recv_cq.get()));
  the_next_arrives(5);
}

TEST_F(UnreliableConnection, AWriteWithImmediateWithoutAReceiveWritesNothing) {
  written(IBV_WR_RDMA_WRITE_WITH_IMM, 64, in.rkey());
  EXPECT_TRUE(untouched(64));
  EXPECT_EQ(dropped(), 1u);
}

TEST_F(UnreliableConnection, AWriteThatTheQueuePairDoesNotAllowIsDropped) {
  UcSetup setup;
  setup.access = 0;
  begin_again(b, a.number(), setup);
  begin_again(a, b.number(), {});
  written(IBV_WR_RDMA_WRITE, 64, in.rkey());
  EXPECT_TRUE(untouched(64));
  EXPECT_EQ(qp_state(*b), IBV_QPS_RTS);
}

TEST_F(UnreliableConnection, NothingIsSaidWhenNobodyReceives) {
  ASSERT_EQ(to_state(*b, IBV_QPS_RESET), 0);
  sent(out.sge(0, 8));
  EXPECT_EQ(qp_state(*a), IBV_QPS_RTS);
}

TEST_F(UnreliableConnection, NothingIsSaidWhenNobodyIsThere) {
  begin_again(a, 0xfffff0, {});
  sent(out.sge(0, 8));
  EXPECT_EQ(qp_state(*a), IBV_QPS_RTS);
}

TEST_F(UnreliableConnection, AMessageBeginsWhateverWasLostBefore) {
  UcSetup ahead;
  ahead.sq_psn = 100;
  begin_again(a, b.number(), ahead);
  begin_again(b, a.number(), {});
  ASSERT_EQ(receive(*b, {in.sge(0, 64)}, 5), 0);
  the_next_arrives(5);
}

TEST_F(UnreliableConnection, AReceiveWithAWrongKeyFails) {
  ibv_sge sge = in.sge(0, 64);
  sge.lkey ^= 0xff00;
  ASSERT_EQ(receive(*b, {sge}, 5), 0);
  sent(out.sge(0, 8));
  const ibv_wc wc = b.received();
  EXPECT_EQ(wc.status, IBV_WC_LOC_PROT_ERR);
  EXPECT_EQ(wc.wr_id, 5u);
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  ASSERT_EQ(query_qp(*b, &attr, &init), 0);
  EXPECT_EQ(attr.qp_state, IBV_QPS_ERR);
}

TEST_F(UnreliableConnection, AnErrorOfTheSenderEndsSendingOnly) {
  ibv_sge sge = out.sge(0, 8);
  sge.lkey ^= 0xff00;
  ASSERT_EQ(send(*a, {sge}, 1), 0);
  EXPECT_EQ(a.sent().status, IBV_WC_LOC_PROT_ERR);
  EXPECT_EQ(qp_state(*a), IBV_QPS_SQE);
  ASSERT_EQ(send(*a, {out.sge(0, 8)}, 2), 0);
  EXPECT_EQ(a.sent().status, IBV_WC_WR_FLUSH_ERR);
}

TEST_F(UnreliableConnection, FromSqeItGoesOnInRts) {
  ibv_sge sge = out.sge(0, 8);
  sge.lkey ^= 0xff00;
  ASSERT_EQ(send(*a, {sge}, 1), 0);
  ASSERT_EQ(a.sent().status, IBV_WC_LOC_PROT_ERR);
  ASSERT_EQ(to_state(*a, IBV_QPS_RTS), 0);
  ASSERT_EQ(receive(*b, {in.sge(0, 64)}, 5), 0);
  the_next_arrives(5);
}

}  // namespace
}  // namespace verbena
