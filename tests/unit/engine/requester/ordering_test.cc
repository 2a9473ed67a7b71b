// SPDX-License-Identifier: BSD-2-Clause
//
// Requests of one QP take effect in order, also while a small message is still in the receive slot.
#include <gtest/gtest.h>

#include "unit/engine/scene.h"

namespace verbena {
namespace {

class Ordering : public ::testing::TestWithParam<uint32_t> {  // size of the message
 protected:
  Ordering() : from(pair.pd.get(), 4096), to(pair.pd.get(), 4096), back(pair.pd.get(), 4096) {
    from.fill(1);
    EXPECT_EQ(receive(*pair.b, {to.sge(0, size())}, 22), 0);
    EXPECT_EQ(send(*pair.a, {from.sge(0, size())}), 0);
  }
  static uint32_t size() { return GetParam(); }
  bool arrived() { return std::memcmp(to.data(), from.data(), size()) == 0; }

  Pair pair;
  Region from, to, back;
};
INSTANTIATE_TEST_SUITE_P(Bytes, Ordering, ::testing::Values(1u, 8u, 32u, 33u, 256u, 257u, 4096u),
                         [](const auto& size) { return std::to_string(size.param); });

TEST_P(Ordering, AReadAfterASendFindsItsBytes) {
  ASSERT_EQ(rdma(*pair.a, IBV_WR_RDMA_READ, {back.sge(0, size())}, to.address(), to.rkey()), 0);
  completions(pair.a.send_cq.get(), 2);
  EXPECT_EQ(std::memcmp(back.data(), from.data(), size()), 0);
}

TEST_P(Ordering, AWriteAfterASendStays) {
  back.fill(99);
  ASSERT_EQ(rdma(*pair.a, IBV_WR_RDMA_WRITE, {back.sge(0, size())}, to.address(), to.rkey()), 0);
  completions(pair.a.send_cq.get(), 2);
  EXPECT_EQ(pair.b.received().status, IBV_WC_SUCCESS);
  EXPECT_EQ(std::memcmp(to.data(), back.data(), size()), 0);
}

TEST_P(Ordering, DeregisteringPutsTheBytesWhereTheyBelong) {
  to.deregister();
  EXPECT_TRUE(arrived());
  to.clear();
  EXPECT_EQ(pair.b.received().status, IBV_WC_SUCCESS);
  EXPECT_EQ(to.data()[0], 0) << "nothing may be written after dereg_mr";
}

TEST_P(Ordering, PollingPutsTheBytesWhereTheyBelong) {
  EXPECT_EQ(pair.b.received().byte_len, size());
  EXPECT_TRUE(arrived());
}

TEST_P(Ordering, AnotherRegionsEndChangesNothing) {
  Region other(pair.pd.get(), 64);
  other.deregister();
  EXPECT_EQ(pair.b.received().status, IBV_WC_SUCCESS);
  EXPECT_TRUE(arrived());
}

TEST_P(Ordering, TheLastOfManySendsIntoOneBufferStays) {
  for (uint8_t seed = 2; seed < 20; ++seed) {
    from.fill(seed);
    ASSERT_EQ(receive(*pair.b, {to.sge(0, size())}), 0);
    ASSERT_EQ(send(*pair.a, {from.sge(0, size())}), 0);
  }
  for (const ibv_wc& wc : completions(pair.b.recv_cq.get(), 19)) EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_TRUE(arrived());
}

class Deregistered : public ::testing::TestWithParam<uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Bytes, Deregistered, ::testing::Values(1u, 33u, 300u),
                         [](const auto& size) { return std::to_string(size.param); });

// The key ended after the receive was posted and before the message came.
TEST_P(Deregistered, ReceiveMemoryFailsBothSides) {
  Pair pair;
  Region from(pair.pd.get(), 4096), to(pair.pd.get(), 4096);
  ASSERT_EQ(receive(*pair.b, {to.sge(0, 4096)}, 22), 0);
  to.deregister();
  from.fill(1);
  ASSERT_EQ(send(*pair.a, {from.sge(0, GetParam())}), 0);
  EXPECT_EQ(pair.b.received().status, IBV_WC_LOC_PROT_ERR);
  EXPECT_EQ(pair.a.sent().status, IBV_WC_REM_OP_ERR);
  EXPECT_EQ(to.data()[0], 0);
}

TEST(Failure, HidesWhatWasPostedBehindIt) {
  Pair pair;
  Region from(pair.pd.get(), 64), to(pair.pd.get(), 64);
  from.fill(1);
  Sges sges{from.sge(0, 8)};
  ibv_send_wr good = request(IBV_WR_RDMA_WRITE, sges, 2), bad = request(IBV_WR_RDMA_WRITE, sges, 1), *refused;
  good.wr.rdma = {to.address(), to.rkey()};
  bad.wr.rdma = {to.address(), to.rkey() + 0x200};
  bad.next = &good;
  ASSERT_EQ(post_send(*pair.a, &bad, &refused), 0);
  const auto wcs = completions(pair.a.send_cq.get(), 2);
  EXPECT_EQ(wcs[0].status, IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(wcs[1].status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(to.data()[0], 0);
}

}  // namespace
}  // namespace verbena
