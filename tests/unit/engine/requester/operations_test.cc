// SPDX-License-Identifier: BSD-2-Clause
//
// Every operation of RC with messages of every kind of size: the bytes, and nothing beside them, the
// completions, the immediate.
#include <gtest/gtest.h>

#include <numeric>

#include "unit/engine/scene.h"

namespace verbena {
namespace {

constexpr size_t kSizes[] = {0,    1,    31,   32,    33,     255,    256,    257,
                             4095, 4096, 4097, 65536, 262143, 262144, 262145, (1 << 20) + 1};

// The parts of `size` bytes at `at`, unevenly cut: one byte, most of it, the rest.
Sges cut(const Region& region, uint64_t at, size_t size, size_t parts) {
  Sges sges;
  for (size_t i = 0; i < parts; ++i) {
    const size_t part = i + 1 == parts ? size : std::min<size_t>(size, i == 0 ? 1 : size - size / 3);
    sges.push_back(region.sge(at, part));
    at += part;
    size -= part;
  }
  return sges;
}

class Sized : public ::testing::TestWithParam<size_t> {
 protected:
  Sized() : from(pair.pd.get(), size() + 16), to(pair.pd.get(), size() + 16) { from.fill(3); }
  static size_t size() { return GetParam(); }
  // Exactly the message lies in `to`, between untouched margins of 8 bytes.
  void expect_message() {
    ASSERT_EQ(std::memcmp(to.data() + 8, from.data() + 8, size()), 0);
    EXPECT_EQ(std::accumulate(to.data(), to.data() + 8, 0), 0) << "before";
    EXPECT_EQ(std::accumulate(to.data() + 8 + size(), to.data() + to.size(), 0), 0) << "behind";
  }
  Sges source() const { return cut(from, 8, size(), 3); }
  Sges target() const { return cut(to, 8, size(), 4); }
  int write(ibv_wr_opcode opcode) {
    Sges sges = source();
    ibv_send_wr wr = request(opcode, sges, 11);
    wr.imm_data = 0x01020304;
    wr.wr.rdma = {to.address(8), to.rkey()};
    return post(*pair.a, wr);
  }

  Pair pair;
  Region from, to;
};
INSTANTIATE_TEST_SUITE_P(Bytes, Sized, ::testing::ValuesIn(kSizes),
                         [](const auto& size) { return std::to_string(size.param); });

TEST_P(Sized, Send) {
  ASSERT_EQ(receive(*pair.b, target(), 22), 0);
  ASSERT_EQ(send(*pair.a, source(), 11), 0);
  const ibv_wc sent = pair.a.sent(), received = pair.b.received();
  EXPECT_EQ(sent.status, IBV_WC_SUCCESS);
  EXPECT_EQ(sent.opcode, IBV_WC_SEND);
  EXPECT_EQ(sent.wr_id, 11u);
  EXPECT_EQ(received.status, IBV_WC_SUCCESS);
  EXPECT_EQ(received.opcode, IBV_WC_RECV);
  EXPECT_EQ(received.wr_id, 22u);
  EXPECT_EQ(received.byte_len, size());
  EXPECT_EQ(received.wc_flags, 0u);
  EXPECT_EQ(received.qp_num, pair.b.number());
  expect_message();
}

TEST_P(Sized, SendWithImmediate) {
  ASSERT_EQ(receive(*pair.b, target(), 22), 0);
  Sges sges = source();
  ibv_send_wr wr = request(IBV_WR_SEND_WITH_IMM, sges, 11);
  wr.imm_data = 0x01020304;
  ASSERT_EQ(post(*pair.a, wr), 0);
  const ibv_wc received = pair.b.received();
  EXPECT_EQ(pair.a.sent().opcode, IBV_WC_SEND);
  EXPECT_EQ(received.opcode, IBV_WC_RECV);
  EXPECT_EQ(received.wc_flags, unsigned{IBV_WC_WITH_IMM});
  EXPECT_EQ(received.imm_data, 0x01020304u);
  EXPECT_EQ(received.byte_len, size());
  expect_message();
}

TEST_P(Sized, SendIntoAQueueThatWaitsInRnr) {
  ASSERT_EQ(send(*pair.a, source(), 11), 0);
  ASSERT_TRUE(nothing(pair.a.send_cq.get()));
  ASSERT_EQ(receive(*pair.b, target(), 22), 0);
  EXPECT_EQ(pair.a.sent().status, IBV_WC_SUCCESS);
  EXPECT_EQ(pair.b.received().byte_len, size());
  expect_message();
}

TEST_P(Sized, Write) {
  ASSERT_EQ(write(IBV_WR_RDMA_WRITE), 0);
  const ibv_wc sent = pair.a.sent();
  EXPECT_EQ(sent.status, IBV_WC_SUCCESS);
  EXPECT_EQ(sent.opcode, IBV_WC_RDMA_WRITE);
  EXPECT_TRUE(nothing(pair.b.recv_cq.get()));
  expect_message();
}

TEST_P(Sized, WriteWithImmediate) {
  ASSERT_EQ(receive(*pair.b, {}, 22), 0);
  ASSERT_EQ(write(IBV_WR_RDMA_WRITE_WITH_IMM), 0);
  const ibv_wc sent = pair.a.sent(), received = pair.b.received();
  EXPECT_EQ(sent.opcode, IBV_WC_RDMA_WRITE);
  EXPECT_EQ(received.status, IBV_WC_SUCCESS);
  EXPECT_EQ(received.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
  EXPECT_EQ(received.wr_id, 22u);
  EXPECT_EQ(received.wc_flags, unsigned{IBV_WC_WITH_IMM});
  EXPECT_EQ(received.imm_data, 0x01020304u);
  EXPECT_EQ(received.byte_len, size());
  expect_message();
}

TEST_P(Sized, Read) {
  ASSERT_EQ(rdma(*pair.a, IBV_WR_RDMA_READ, target(), from.address(8), from.rkey(), 11), 0);
  const ibv_wc sent = pair.a.sent();
  EXPECT_EQ(sent.status, IBV_WC_SUCCESS);
  EXPECT_EQ(sent.opcode, IBV_WC_RDMA_READ);
  EXPECT_EQ(sent.byte_len, size());
  expect_message();
}

TEST(Inline, IsTakenWhenPosted) {
  Pair pair({.inline_size = 200});
  Region to(pair.pd.get(), 200);
  std::vector<uint8_t> bytes(200, 7);  // not registered
  const ibv_sge sge{reinterpret_cast<uint64_t>(bytes.data()), 200, 0};
  ASSERT_EQ(send(*pair.a, {sge}, 1, IBV_SEND_SIGNALED | IBV_SEND_INLINE), 0);
  std::fill(bytes.begin(), bytes.end(), uint8_t{9});
  ASSERT_EQ(receive(*pair.b, {to.sge(0, 200)}), 0);
  EXPECT_EQ(pair.a.sent().status, IBV_WC_SUCCESS);
  EXPECT_EQ(pair.b.received().byte_len, 200u);
  EXPECT_EQ(std::vector<uint8_t>(to.data(), to.data() + 200), std::vector<uint8_t>(200, 7));
}

class Atomic : public ::testing::Test {
 protected:
  Atomic() : here(pair.pd.get(), 8), there(pair.pd.get(), 16) {}
  uint64_t word(Region& region) const {
    uint64_t value;
    std::memcpy(&value, region.data(), 8);
    return value;
  }
  void set(uint64_t value) { std::memcpy(there.data(), &value, 8); }
  ibv_wc change(ibv_wr_opcode opcode, uint64_t compare_add, uint64_t swap) {
    Sges sges{here.sge(0, 8)};
    ibv_send_wr wr = request(opcode, sges);
    wr.wr.atomic = {there.address(), compare_add, swap, there.rkey()};
    EXPECT_EQ(post(*pair.a, wr), 0);
    return pair.a.sent();
  }
  Pair pair;
  Region here, there;
};

TEST_F(Atomic, FetchAndAddAnswersWhatWasThere) {
  set(UINT64_MAX - 1);
  const ibv_wc wc = change(IBV_WR_ATOMIC_FETCH_AND_ADD, 3, 0);
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(wc.opcode, IBV_WC_FETCH_ADD);
  EXPECT_EQ(wc.byte_len, 8u);
  EXPECT_EQ(word(here), UINT64_MAX - 1);
  EXPECT_EQ(word(there), 1u);
}

TEST_F(Atomic, CompareAndSwapSwapsWhatIsEqual) {
  set(5);
  EXPECT_EQ(change(IBV_WR_ATOMIC_CMP_AND_SWP, 5, 6).opcode, IBV_WC_COMP_SWAP);
  EXPECT_EQ(word(here), 5u);
  EXPECT_EQ(word(there), 6u);
}

TEST_F(Atomic, CompareAndSwapLeavesWhatIsNot) {
  set(5);
  EXPECT_EQ(change(IBV_WR_ATOMIC_CMP_AND_SWP, 4, 6).status, IBV_WC_SUCCESS);
  EXPECT_EQ(word(here), 5u);
  EXPECT_EQ(word(there), 5u);
}

}  // namespace
}  // namespace verbena
