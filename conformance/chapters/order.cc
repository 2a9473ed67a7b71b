// SPDX-License-Identifier: BSD-2-Clause
//
// Ordering: of completions, of effects, behind fences and errors.
#include <string>

#include "support/pair.h"

namespace conformance::order_chapter {
namespace {

class Fixture : public PairTest {
 protected:
  static PairSpec of(ibv_qp_type type, uint8_t reads = 1) {
    PairSpec spec;
    spec.both.type = type;
    spec.both.send_depth = spec.both.receive_depth = 32;
    spec.both.buffer = 1 << 20;
    spec.path.reads = reads;
    return spec;
  }
  SendRequest remote(ibv_wr_opcode opcode, const std::vector<Element>& elements, int64_t at,
                     uint64_t id = 1) {
    return remote_request(opcode, elements, far().facts(), at, id);
  }
  static SendRequest unsignaled(SendRequest request) {
    request.flags &= ~uint32_t{IBV_SEND_SIGNALED};
    return request;
  }
  static SendRequest fenced(SendRequest request) {
    request.flags |= IBV_SEND_FENCE;
    return request;
  }
  void need_atomics() {
    if (device().attributes().atomic_cap == IBV_ATOMIC_NONE) throw NotClaimed{"atomic_cap is none"};
    if (!pair().has_atomics()) throw NotTested{"the far end has no atomics"};
  }

  // Large WRITEs, then a small message: when it has been received, all of them are complete.
  void write_then(ibv_qp_type type, ibv_wr_opcode last) {
    pair(of(type));
    constexpr uint32_t size = 100'000;
    for (uint64_t round = 1; round <= 5; ++round) {
      near().fill_pattern(0, 4 * size, round);
      ASSERT_EQ(far().receive(1 << 19, 64), 0);
      std::vector<SendRequest> list;
      for (uint32_t i = 0; i < 4; ++i)
        list.push_back(unsignaled(remote(IBV_WR_RDMA_WRITE, {{i * size, size}}, i * size)));
      list.push_back(takes_a_receive(last) && last != IBV_WR_SEND ? remote(last, {}, 0)
                                                                  : send_request({{0, 8}}, 1, last));
      ASSERT_EQ(near().post(list), 0);
      EXPECT_EQ(far().received().status, IBV_WC_SUCCESS);
      EXPECT_TRUE(far().has_pattern(0, 4 * size, round)) << "round " << round;
      EXPECT_EQ(near().completion().status, IBV_WC_SUCCESS);
    }
  }
};

CONFORMANCE_TEST(order, CompletionsInOrder, "order.completions") {
  pair(of(IBV_QPT_RC));
  std::vector<SendRequest> list;
  for (uint64_t id = 0; id < 24; ++id) {
    const ibv_wr_opcode opcode = id % 3 == 0   ? IBV_WR_RDMA_READ
                                 : id % 3 == 1 ? IBV_WR_RDMA_WRITE
                                               : IBV_WR_SEND;
    const uint32_t size = id % 2 == 0 ? 50'000 : 8;
    if (opcode == IBV_WR_SEND) {
      ASSERT_EQ(far().receive(1 << 19, 50'000, id), 0);
    }
    list.push_back(remote(opcode, {{0, size}}, 0, id));
  }
  list.resize(std::min<size_t>(list.size(), near().facts().send_depth));
  ASSERT_EQ(near().post(list), 0);
  uint64_t next = 0;
  for (const Completion& done : near().completions(static_cast<uint32_t>(list.size()))) {
    EXPECT_EQ(done.status, IBV_WC_SUCCESS);
    EXPECT_EQ(done.id, next++);
  }
}

CONFORMANCE_TEST(order, UnsignaledAreDone, "order.unsignaled") {
  pair(of(IBV_QPT_RC));
  near().fill_pattern(0, 200'000, 5);
  far().fill_pattern(1 << 19, 100, 6);
  ASSERT_EQ(near().post({unsignaled(remote(IBV_WR_RDMA_WRITE, {{0, 200'000}}, 0)),
                         unsignaled(remote(IBV_WR_RDMA_READ, {{1 << 19, 100}}, 1 << 19)),
                         remote(IBV_WR_RDMA_WRITE, {{0, 8}}, 300'000, 3)}),
            0);
  EXPECT_EQ(near().completion().id, 3u);
  EXPECT_TRUE(far().has_pattern(0, 200'000, 5));
  EXPECT_TRUE(near().has_pattern(1 << 19, 100, 6));
  EXPECT_TRUE(near().stays_empty());
}

CONFORMANCE_TEST(order, UnsignaledErrorsComplete, "order.error-completes") {
  pair(of(IBV_QPT_RC));
  SendRequest wrong = unsignaled(remote(IBV_WR_RDMA_WRITE, {{0, 8}}, -4096, 7));
  ASSERT_EQ(near().post(wrong), 0);
  const Completion failed = near().completion();
  EXPECT_EQ(failed.id, 7u);
  EXPECT_NE(failed.status, IBV_WC_SUCCESS);
}

CONFORMANCE_TEST(order, WritesBeforeASend, "order.write-before-send") { write_then(IBV_QPT_RC, IBV_WR_SEND); }
CONFORMANCE_TEST(order, WritesBeforeImmediateData, "order.write-before-imm") {
  write_then(IBV_QPT_RC, IBV_WR_RDMA_WRITE_WITH_IMM);
}
CONFORMANCE_TEST(order, UcWritesBeforeASend, "order.uc-write-before-send") {
  write_then(IBV_QPT_UC, IBV_WR_SEND);
}
CONFORMANCE_TEST(order, XrcRequestsInOrder, "order.xrc") { write_then(IBV_QPT_XRC_SEND, IBV_WR_SEND); }

CONFORMANCE_TEST(order, LastWriteWins, "order.last-write-wins") {
  pair(of(IBV_QPT_RC));
  std::vector<SendRequest> list;
  const uint32_t count = std::min(20u, near().facts().send_depth);
  for (uint32_t i = 0; i < count; ++i) {
    near().fill_pattern(i * 10'000, 10'000, i + 1);
    list.push_back(remote(IBV_WR_RDMA_WRITE, {{i * 10'000, i % 2 == 0 ? 10'000u : 5'000u}}, 0));
  }
  list.back().elements[0].length = 10'000;
  ASSERT_EQ(near().post(list), 0);
  near().completions(count);
  EXPECT_TRUE(far().has_pattern(0, 10'000, count));
}

CONFORMANCE_TEST(order, ReadsSeeWrites, "order.read-sees-writes") {
  pair(of(IBV_QPT_RC));
  for (const uint32_t size : {8u, 5'000u, 200'000u}) {
    near().fill_pattern(0, size, size);
    ASSERT_EQ(near().post({unsignaled(remote(IBV_WR_RDMA_WRITE, {{0, size}}, 0)),
                           remote(IBV_WR_RDMA_READ, {{1 << 19, size}}, 0)}),
              0);
    EXPECT_EQ(near().completion().status, IBV_WC_SUCCESS);
    EXPECT_TRUE(near().has_pattern(1 << 19, size, size)) << size << " bytes";
  }
}

CONFORMANCE_TEST(order, AtomicsSeeWrites, "order.atomic-sees-writes") {
  pair(of(IBV_QPT_RC));
  need_atomics();
  near().set_word(0, 40);
  SendRequest add = remote(IBV_WR_ATOMIC_FETCH_AND_ADD, {{64, 8}}, 1024);
  add.compare_add = 2;
  ASSERT_EQ(near().post({unsignaled(remote(IBV_WR_RDMA_WRITE, {{0, 8}}, 1024)), add}), 0);
  EXPECT_EQ(near().completion().status, IBV_WC_SUCCESS);
  EXPECT_EQ(near().word(64), 40u);
  EXPECT_EQ(far().word(1024), 42u);
}

CONFORMANCE_TEST(order, FencedRequestsWaitForReads, "order.fence", "order.fence-write") {
  pair(of(IBV_QPT_RC));
  for (const uint32_t size : {8u, 5'000u, 200'000u}) {
    far().fill_pattern(0, size, size);
    near().fill(0, size, 0);
    ASSERT_EQ(far().receive(1 << 19, size), 0);
    ASSERT_EQ(near().post({unsignaled(remote(IBV_WR_RDMA_READ, {{0, size}}, 0)),
                           fenced(send_request({{0, size}}, 2)),
                           fenced(remote(IBV_WR_RDMA_WRITE, {{0, size}}, 250'000, 3))}),
              0);
    for (const Completion& done : near().completions(2)) EXPECT_EQ(done.status, IBV_WC_SUCCESS);
    EXPECT_EQ(far().received().status, IBV_WC_SUCCESS);
    EXPECT_TRUE(far().has_pattern(1 << 19, size, size)) << size << " bytes";
    const About about("order.fence-write");
    EXPECT_TRUE(far().has_pattern(250'000, size, size)) << size << " bytes";
  }
}

CONFORMANCE_TEST(order, FencedRequestsWaitForAtomics, "order.fence-atomic") {
  pair(of(IBV_QPT_RC));
  need_atomics();
  far().set_word(1024, 40);
  SendRequest add = unsignaled(remote(IBV_WR_ATOMIC_FETCH_AND_ADD, {{64, 8}}, 1024));
  add.compare_add = 2;
  ASSERT_EQ(far().receive(0, 8), 0);
  ASSERT_EQ(near().post({add, fenced(send_request({{64, 8}}))}), 0);
  EXPECT_EQ(near().completion().status, IBV_WC_SUCCESS);
  EXPECT_EQ(far().received().status, IBV_WC_SUCCESS);
  EXPECT_EQ(far().word(0), 40u);
}

// The READ behind it is on its way, or waits, when the fenced request is sent again.
CONFORMANCE_TEST(order, FencedRequestsDoNotWaitForWhatFollows, "order.fence-rnr") {
  pair(of(IBV_QPT_RC));
  near().fill_pattern(0, 8, 5);
  far().fill_pattern(1024, 8, 6);
  ASSERT_EQ(near().post({fenced(send_request({{0, 8}}, 1)), remote(IBV_WR_RDMA_READ, {{64, 8}}, 1024, 2)}),
            0);
  EXPECT_TRUE(near().stays_empty());
  ASSERT_EQ(far().receive(0, 64), 0);
  uint64_t next = 1;
  for (const Completion& done : near().completions(2)) {
    EXPECT_EQ(done.status, IBV_WC_SUCCESS);
    EXPECT_EQ(done.id, next++);
  }
  EXPECT_EQ(far().received().status, IBV_WC_SUCCESS);
  EXPECT_TRUE(far().has_pattern(0, 8, 5));
  EXPECT_TRUE(near().has_pattern(64, 8, 6));
}

CONFORMANCE_TEST(order, ReceivesInOrder, "order.receives") {
  bool is_claimed = false;
  for (const ibv_qp_type type : {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD}) {
    try {
      new_pair(of(type));
    } catch (const NotClaimed&) {
      continue;  // the other types show it
    }
    is_claimed = true;
    const uint32_t count = std::min({20u, near().facts().send_depth, far().facts().receive_depth});
    near().fill_pattern(0, 4096, 5);
    for (uint32_t i = 0; i < count; ++i) ASSERT_EQ(far().receive(i * 4096, 2048, i), 0);
    std::vector<SendRequest> list;
    for (uint32_t i = 0; i < count; ++i) list.push_back(send_request({{i, i % 2 == 0 ? 200u : 1u}}, i));
    ASSERT_EQ(near().post(list), 0);
    const auto received = far().completions(count, true);
    for (uint32_t i = 0; i < count; ++i) {
      EXPECT_EQ(received[i].id, i) << type_name(type);
      if (type == IBV_QPT_UD) continue;  // a datagram may overtake another: any of them may be here
      EXPECT_TRUE(far().has_pattern(i * 4096, 1, 5, i)) << type_name(type);
    }
  }
  if (!is_claimed) throw NotClaimed{"QPs of types RC, UC and UD are refused"};
}

CONFORMANCE_TEST(order, MoreReadsThanOutstanding, "order.reads-beyond-limit") {
  for (const uint8_t reads : {1, 2}) {
    if (reads > std::min(device().attributes().max_qp_rd_atom, device().attributes().max_qp_init_rd_atom))
      continue;
    if (reads > 1 && reads > std::min(far().facts().reads_as_responder, far().facts().reads_as_requester))
      continue;
    new_pair(of(IBV_QPT_RC, reads));
    const uint32_t count = std::min(24u, near().facts().send_depth);
    far().fill_pattern(0, 1 << 19, 5);
    std::vector<SendRequest> list;
    for (uint32_t i = 0; i < count; ++i)
      list.push_back(remote(IBV_WR_RDMA_READ, {{i * 8192, 8000}}, i * 8192, i));
    ASSERT_EQ(near().post(list), 0);
    const auto done = near().completions(count);
    for (uint32_t i = 0; i < count; ++i) {
      EXPECT_EQ(done[i].id, i);
      EXPECT_EQ(done[i].status, IBV_WC_SUCCESS);
      EXPECT_TRUE(near().has_pattern(i * 8192, 8000, 5, i * 8192));
    }
  }
}

CONFORMANCE_TEST(order, NothingBehindAnError, "order.stops-at-error") {
  pair(of(IBV_QPT_RC));
  near().fill(0, 64, 0x11);
  ASSERT_EQ(
      near().post({remote(IBV_WR_RDMA_WRITE, {{0, 8}}, 0, 1), remote(IBV_WR_RDMA_WRITE, {{0, 8}}, -4096, 2),
                   remote(IBV_WR_RDMA_WRITE, {{0, 8}}, 64, 3), remote(IBV_WR_RDMA_WRITE, {{0, 8}}, 128, 4)}),
      0);
  const auto done = near().completions(4);
  EXPECT_EQ(done[0].status, IBV_WC_SUCCESS);
  EXPECT_EQ(done[1].status, IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(done[2].status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(done[3].status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_TRUE(far().has(0, 8, 0x11));
  EXPECT_TRUE(far().untouched(8, 4096));
}

}  // namespace
}  // namespace conformance::order_chapter
