// SPDX-License-Identifier: BSD-2-Clause
//
// A key ends while a peer writes through it: once the call has returned, or the completion says so, not a
// byte is written any more (dereg_mr, rereg_mr, dealloc_mw, invalidation, binding again).
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "unit/engine/scene.h"

namespace verbena {
namespace {

constexpr size_t kSize = 64 * 1024;
constexpr int kWindowAccess = kAllAccess | IBV_ACCESS_MW_BIND;
constexpr int kRounds = 3;

// What the peer writes through, and how its key ends.
struct Target {
  Pair& pair;
  std::vector<uint8_t> bytes = std::vector<uint8_t>(kSize);
  std::vector<uint8_t> others = std::vector<uint8_t>(kSize);
  Mr* mr = nullptr;
  Mw* mw = nullptr;
  uint32_t rkey = 0;

  explicit Target(Pair& the_pair) : pair(the_pair) {
    EXPECT_EQ(reg_mr(pair.pd.get(), bytes.data(), kSize, address(), kWindowAccess, &mr), 0);
    rkey = mr_rkey(mr);
  }
  ~Target() {
    if (mw != nullptr) {
      EXPECT_EQ(dealloc_mw(mw), 0);
    }
    if (mr != nullptr) {
      EXPECT_EQ(dereg_mr(mr), 0);
    }
  }
  uint64_t address() const { return reinterpret_cast<uint64_t>(bytes.data()); }

  // The peer's next write may be refused before the request that ends its key completes. That puts the
  // target's QP into ERR and the request is flushed: its completion says nothing about the key then.
  bool flushed = false;

  // Posts on the target's own QP and waits.
  void carry_out(const ibv_send_wr& wr) {
    ASSERT_EQ(post(*pair.b, wr), 0);
    const ibv_wc_status status = pair.b.sent().status;
    flushed = status == IBV_WC_WR_FLUSH_ERR;
    if (!flushed) {
      EXPECT_EQ(status, IBV_WC_SUCCESS);
    }
  }
  void bind(uint8_t tag, uint64_t length) {
    ibv_mr region{};
    region.lkey = mr_lkey(mr);
    ibv_mw window{};
    window.rkey = mw_rkey(mw);
    ibv_send_wr wr{};
    wr.opcode = IBV_WR_BIND_MW;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.bind_mw.mw = &window;
    wr.bind_mw.rkey = tag;
    if (length != 0) wr.bind_mw.bind_info = {&region, address(), length, IBV_ACCESS_REMOTE_WRITE};
    carry_out(wr);
  }
  void open_window(ibv_mw_type type) {
    ASSERT_EQ(alloc_mw(pair.pd.get(), type, &mw), 0);
    bind(7, kSize);
    rkey = (mw_rkey(mw) & ~0xffu) | 7;
  }
};

struct Way {
  const char* name;
  void (*open)(Target&);
  void (*end)(Target&);
};

const Way kWays[] = {
    {"Dereg", [](Target&) {},
     [](Target& t) {
       EXPECT_EQ(dereg_mr(t.mr), 0);
       t.mr = nullptr;
     }},
    {"Rereg", [](Target&) {},
     [](Target& t) {
       EXPECT_EQ(rereg_mr(t.mr, IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, t.others.data(), kSize, 0), 0);
     }},
    {"LocalInvalidation", [](Target& t) { t.open_window(IBV_MW_TYPE_2); },
     [](Target& t) {
       ibv_send_wr wr{};
       wr.opcode = IBV_WR_LOCAL_INV;
       wr.send_flags = IBV_SEND_SIGNALED;
       wr.invalidate_rkey = t.rkey;
       t.carry_out(wr);
     }},
    {"BindingToNothing", [](Target& t) { t.open_window(IBV_MW_TYPE_1); }, [](Target& t) { t.bind(8, 0); }},
    {"BindingAnew", [](Target& t) { t.open_window(IBV_MW_TYPE_1); }, [](Target& t) { t.bind(8, kSize); }},
    {"Deallocation", [](Target& t) { t.open_window(IBV_MW_TYPE_2); },
     [](Target& t) {
       EXPECT_EQ(dealloc_mw(t.mw), 0);
       t.mw = nullptr;
     }},
};

class ThreadsAndKeys : public ::testing::TestWithParam<Way> {};
INSTANTIATE_TEST_SUITE_P(Ways, ThreadsAndKeys, ::testing::ValuesIn(kWays),
                         [](const auto& way) { return std::string(way.param.name); });

TEST_P(ThreadsAndKeys, NothingIsWrittenOnceTheKeyHasEnded) {
  for (int round = 0; round < kRounds; ++round) {
    Pair pair;
    Target target(pair);
    GetParam().open(target);
    Region source(pair.pd.get(), 2 * kSize);
    source.fill(static_cast<uint8_t>(round));
    std::atomic<int> written{0};
    ibv_wc_status last = IBV_WC_SUCCESS;
    std::jthread peer([&] {
      for (uint64_t i = 0; last == IBV_WC_SUCCESS; ++i) {
        EXPECT_EQ(rdma(*pair.a, IBV_WR_RDMA_WRITE, {source.sge(i % 2 * kSize, kSize)}, target.address(),
                       target.rkey),
                  0);
        last = pair.a.sent().status;
        ++written;
      }
    });
    for (const int64_t end = now_ns() + 20'000'000'000; written < 20 && now_ns() < end;) sched_yield();
    GetParam().end(target);
    if (target.flushed) peer.join();
    const std::vector<uint8_t> after = target.bytes;
    if (peer.joinable()) peer.join();
    EXPECT_EQ(last, IBV_WC_REM_ACCESS_ERR);
    EXPECT_EQ(target.bytes, after);
  }
}

// Windows of several QPs are bound and invalidated by several threads at once.
TEST(ThreadsAndWindows, EachHasItsOwn) {
  constexpr int kThreads = 4;
  constexpr int kEach = 200;
  Scene scene;
  std::vector<uint8_t> bytes(kSize);
  const auto address = reinterpret_cast<uint64_t>(bytes.data());
  Mr* mr = nullptr;
  ASSERT_EQ(reg_mr(scene.pd.get(), bytes.data(), kSize, address, kWindowAccess, &mr), 0);
  std::vector<std::jthread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      Owned<Cq> cq = make_cq(scene.context.get());
      Owned<Qp> qp = make_qp(scene.pd.get(), cq.get(), cq.get());
      connect(qp.get(), qp_number(qp.get()), scene.gid());
      Region own(scene.pd.get(), 64);
      own.fill(static_cast<uint8_t>(t));
      Mw* mw = nullptr;
      ASSERT_EQ(alloc_mw(scene.pd.get(), IBV_MW_TYPE_2, &mw), 0);
      ibv_mr region{};
      region.lkey = mr_lkey(mr);
      ibv_mw window{};
      window.rkey = mw_rkey(mw);
      const uint64_t place = address + static_cast<uint64_t>(t) * 64;
      for (int i = 0; i < kEach; ++i) {
        ibv_send_wr bind{};
        bind.opcode = IBV_WR_BIND_MW;
        bind.bind_mw.mw = &window;
        bind.bind_mw.rkey = static_cast<uint32_t>(i) & 0xff;
        bind.bind_mw.bind_info = {&region, place, 64, IBV_ACCESS_REMOTE_WRITE};
        ASSERT_EQ(post(qp.get(), bind), 0);
        const uint32_t rkey = (window.rkey & ~0xffu) | (static_cast<uint32_t>(i) & 0xff);
        ASSERT_EQ(rdma(qp.get(), IBV_WR_RDMA_WRITE, {own.sge(0, 64)}, place, rkey), 0);
        ASSERT_EQ(completion(cq.get()).status, IBV_WC_SUCCESS);
        ibv_send_wr invalidate{};
        invalidate.opcode = IBV_WR_LOCAL_INV;
        invalidate.send_flags = IBV_SEND_SIGNALED;
        invalidate.invalidate_rkey = rkey;
        ASSERT_EQ(post(qp.get(), invalidate), 0);
        ASSERT_EQ(completion(cq.get()).status, IBV_WC_SUCCESS);
      }
      EXPECT_EQ(std::memcmp(bytes.data() + t * 64, own.data(), 64), 0);
      EXPECT_EQ(dealloc_mw(mw), 0);
    });
  }
  threads.clear();
  EXPECT_EQ(dereg_mr(mr), 0);
}

}  // namespace
}  // namespace verbena
