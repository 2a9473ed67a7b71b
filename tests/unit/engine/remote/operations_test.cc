// SPDX-License-Identifier: BSD-2-Clause
//
// Queue pairs of two nodes: the operations, over a stream between two processes.
#include <gtest/gtest.h>

#include "unit/engine/two_nodes.h"

namespace verbena {
namespace {

constexpr uint32_t kSizes[] = {0,    1,     8,     96,    200,    256,    257,
                               4096, 16384, 16385, 65536, 262144, 262145, 1048577};
constexpr uint64_t kThere = 2 * 1024 * 1024;

bool same(const End& end, uint64_t at, uint32_t size, uint8_t seed) {
  Region& memory = const_cast<Region&>(end.memory);
  for (uint32_t i = 0; i < size; ++i)
    if (memory.data()[at + i] != static_cast<uint8_t>(seed + i * 7 + (i >> 8))) return false;
  return true;
}

TEST(RemoteNode, SendsArriveWhole) {
  play(
      [](End& end) {
        end.start();
        end.memory.fill(3);
        for (uint32_t size : kSizes) {
          end.together();
          ASSERT_EQ(send(end.qp.get(), {end.memory.sge(0, size)}, size), 0);
          const ibv_wc wc = end.sent();
          EXPECT_EQ(wc.status, IBV_WC_SUCCESS) << size;
          EXPECT_EQ(wc.wr_id, size);
        }
        end.together();
      },
      [](End& end) {
        end.start();
        for (uint32_t size : kSizes) {
          ASSERT_EQ(receive(end.qp.get(), {end.memory.sge(0, 2 * 1024 * 1024)}, size), 0);
          end.together();
          const ibv_wc wc = end.received();
          EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
          EXPECT_EQ(wc.byte_len, size);
          EXPECT_TRUE(same(end, 0, size, 3)) << size;
          end.memory.clear();
        }
        end.together();
      });
}

TEST(RemoteNode, WritesArriveWhileTheTargetDoesNothing) {
  play(
      [](End& end) {
        end.start();
        end.memory.fill(5);
        for (uint32_t size : kSizes) {
          ASSERT_EQ(end.write_there(0, kThere, size, size), 0);
          EXPECT_EQ(end.sent().status, IBV_WC_SUCCESS) << size;
          end.together();
          end.together();
        }
      },
      [](End& end) {
        end.start();
        for (uint32_t size : kSizes) {
          end.together();
          EXPECT_TRUE(same(end, kThere, size, 5)) << size;
          end.memory.clear();
          end.together();
        }
      });
}

// Binding and invalidating a window are carried out where they are posted: the requests behind them must not
// look like requests behind a lost one.
TEST(RemoteNode, WhatIsCarriedOutHereIsNotMissedThere) {
  constexpr uint64_t kRounds = 4;
  play(
      [](End& end) {
        end.start();
        Mw* window = nullptr;
        ASSERT_EQ(alloc_mw(end.pd.get(), IBV_MW_TYPE_2, &window), 0);
        Region memory(end.pd.get(), 64, kAllAccess | IBV_ACCESS_MW_BIND);
        ibv_mr region{};
        region.lkey = memory.lkey();
        ibv_mw handle{};
        handle.type = IBV_MW_TYPE_2;
        handle.rkey = mw_rkey(window);
        for (uint64_t i = 0; i < kRounds; ++i) {
          ibv_send_wr wr{}, *bad = nullptr;
          wr.opcode = IBV_WR_BIND_MW;
          wr.bind_mw = {
              &handle, ibv_inc_rkey(handle.rkey), {&region, memory.address(), 64, IBV_ACCESS_REMOTE_WRITE}};
          ASSERT_EQ(post_send(end.qp.get(), &wr, &bad), 0);
          ASSERT_EQ(end.write_there(0, kThere, 8, 3 * i), 0);
          wr.opcode = IBV_WR_LOCAL_INV;
          wr.invalidate_rkey = handle.rkey = ibv_inc_rkey(handle.rkey);
          wr.send_flags = IBV_SEND_SIGNALED;
          wr.wr_id = 3 * i + 1;
          ASSERT_EQ(post_send(end.qp.get(), &wr, &bad), 0);
          ASSERT_EQ(end.write_there(0, kThere, 8, 3 * i + 2), 0);
          for (uint64_t id = 3 * i; id < 3 * i + 3; ++id) {
            const ibv_wc wc = end.sent();
            ASSERT_EQ(wc.status, IBV_WC_SUCCESS) << id;
            EXPECT_EQ(wc.wr_id, id);
          }
        }
        EXPECT_EQ(dealloc_mw(window), 0);
        end.together();
      },
      [](End& end) {
        end.start();
        end.together();
      });
}

// The rate that the queue pair was given (ibv_modify_qp_rate_limit(3)).
TEST(RemoteNode, PacedWritesTakeTheirTime) {
  constexpr uint32_t kSize = 512 * 1024, kKbps = 80'000;
  play(
      [](End& end) {
        end.start();
        const ibv_qp_rate_limit_attr attr{kKbps, 0, 0, 0};
        ASSERT_EQ(modify_qp_rate_limit(end.qp.get(), &attr), 0);
        const int64_t began = now_ns();
        ASSERT_EQ(end.write_there(0, kThere, kSize), 0);
        EXPECT_EQ(end.sent().status, IBV_WC_SUCCESS);
        EXPECT_GE(now_ns() - began, (int64_t{kSize} - 65536) * 8'000'000 / kKbps);
        end.together();
      },
      [](End& end) {
        end.start();
        end.together();
      });
}

TEST(RemoteNode, ReadsBringWhatIsThere) {
  play(
      [](End& end) {
        end.start();
        for (uint32_t size : kSizes) {
          ASSERT_EQ(end.read_there(kThere, 0, size), 0);
          EXPECT_EQ(end.sent().status, IBV_WC_SUCCESS) << size;
          EXPECT_TRUE(same(end, kThere, size, 7)) << size;
          end.memory.clear();
        }
        end.together();
      },
      [](End& end) {
        end.memory.fill(7);
        end.start();
        end.together();
      });
}

TEST(RemoteNode, AtomicsHappenOnce) {
  play(
      [](End& end) {
        end.start();
        for (uint64_t i = 0; i < 100; ++i) {
          Sges sges{end.memory.sge(0, 8)};
          ibv_send_wr wr = request(IBV_WR_ATOMIC_FETCH_AND_ADD, sges);
          wr.wr.atomic = {end.peer.address, 3, 0, end.peer.rkey};
          ASSERT_EQ(post(end.qp.get(), wr), 0);
          ASSERT_EQ(end.sent().status, IBV_WC_SUCCESS);
          uint64_t before;
          std::memcpy(&before, end.memory.data(), 8);
          ASSERT_EQ(before, 3 * i);
        }
        end.together();
      },
      [](End& end) {
        end.start();
        end.together();
        uint64_t sum;
        std::memcpy(&sum, end.memory.data(), 8);
        EXPECT_EQ(sum, 300u);
      });
}

TEST(RemoteNode, RequestsOfAllKindsFinishInOrder) {
  constexpr int kMany = 500;
  play(
      [](End& end) {
        end.start();
        end.memory.fill(9);
        end.together();
        int posted = 0;
        for (int done = 0; done < kMany;) {
          for (; posted < kMany && posted - done < 60; ++posted) {
            const auto id = static_cast<uint64_t>(posted);
            const uint32_t size = posted % 7 == 0 ? 100000 : 100;
            int error = 0;
            if (posted % 3 == 0)
              error = send(end.qp.get(), {end.memory.sge(0, size)}, id);
            else if (posted % 3 == 1)
              error = end.write_there(0, kThere, size, id);
            else
              error = end.read_there(kThere, 0, size, id);
            ASSERT_EQ(error, 0);
          }
          const ibv_wc wc = end.sent();
          ASSERT_EQ(wc.status, IBV_WC_SUCCESS) << done;
          ASSERT_EQ(wc.wr_id, static_cast<uint64_t>(done));
          ++done;
        }
        end.together();
      },
      [](End& end) {
        end.start();
        int received = 0, posted = 0;
        const int wanted = (kMany + 2) / 3;
        for (; posted < 60; ++posted) ASSERT_EQ(receive(end.qp.get(), {end.memory.sge(0, 200000)}), 0);
        end.together();
        for (; received < wanted; ++received) {
          ASSERT_EQ(end.received().status, IBV_WC_SUCCESS);
          if (posted >= wanted) continue;
          ASSERT_EQ(receive(end.qp.get(), {end.memory.sge(0, 200000)}), 0);
          ++posted;
        }
        end.together();
      });
}

}  // namespace
}  // namespace verbena
