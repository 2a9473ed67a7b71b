// SPDX-License-Identifier: BSD-2-Clause
//
// Tag matching of messages from another node: by frames that are copied, and by frames that are placed.
#include <gtest/gtest.h>

#include "unit/engine/matcher.h"
#include "unit/engine/two_nodes.h"

namespace verbena {
namespace {

constexpr uint32_t kMatched[] = {0, 1, 300, 4000, 16384, 16400, 300000, 1048577};
constexpr uint32_t kLongest = 2 * 1024 * 1024;
constexpr uint32_t kFetched = 300000;  // bytes

struct Tagged {
  explicit Tagged(End& own) : end(own), matcher(own.context.get(), own.pd.get()) {
    end.qp = matcher.make_receiver(end.send_cq.get());
  }
  ~Tagged() { end.qp.reset(); }
  // A tag for all the memory of the end.
  int add(uint64_t tag) {
    ibv_sge sge = end.memory.sge(0, kLongest);
    ibv_ops_wr wr{};
    wr.opcode = IBV_WR_TAG_ADD;
    wr.tm.add = {tag, &sge, 1, tag, kAllBits};
    return matcher.operate(wr);
  }
  End& end;
  Matcher matcher;
};

bool holds(End& end, uint32_t size, uint32_t skipped, uint8_t seed) {
  for (uint32_t i = 0; i < size; ++i) {
    const uint32_t at = i + skipped;
    if (end.memory.data()[i] != static_cast<uint8_t>(seed + at * 7 + (at >> 8))) return false;
  }
  return true;
}

TEST(RemoteTags, EagerMessagesGoToTheirTags) {
  play(
      [](End& end) {
        end.start();
        for (uint32_t size : kMatched) {
          end.memory.fill(3);
          write_header(end.memory.data(), IBV_TMH_EAGER, size, 5);
          end.together();
          ASSERT_EQ(send(end.qp.get(), {end.memory.sge(0, kTmh + size)}), 0);
          EXPECT_EQ(end.sent().status, IBV_WC_SUCCESS) << size;
        }
        end.together();
      },
      [](End& end) {
        Tagged tags(end);
        end.start();
        for (uint32_t size : kMatched) {
          ASSERT_EQ(tags.add(size), 0);
          end.together();
          Polled polled = tags.matcher.next();
          if (kTmh + size > 1024) {
            EXPECT_EQ(polled.wc.wc_flags, unsigned{IBV_WC_TM_MATCH});
            polled = tags.matcher.next();
          }
          ASSERT_EQ(polled.wc.status, IBV_WC_SUCCESS) << size;
          EXPECT_NE(polled.wc.wc_flags & IBV_WC_TM_DATA_VALID, 0u);
          EXPECT_EQ(polled.wc.wr_id, size);
          EXPECT_EQ(polled.wc.byte_len, size);
          EXPECT_EQ(polled.tag.tag, size);
          EXPECT_EQ(polled.tag.priv, 5u);
          EXPECT_TRUE(holds(end, size, kTmh, 3)) << size;
          end.memory.clear();
        }
        end.together();
      });
}

TEST(RemoteTags, UnexpectedMessagesTakeReceiveRequests) {
  play(
      [](End& end) {
        end.start();
        write_header(end.memory.data(), IBV_TMH_EAGER, 7);
        ASSERT_EQ(send(end.qp.get(), {end.memory.sge(0, kTmh + 100)}), 0);
        EXPECT_EQ(end.sent().status, IBV_WC_SUCCESS);
        end.together();
        end.together();
        ASSERT_EQ(send(end.qp.get(), {end.memory.sge(0, kTmh + 100)}), 0);
        EXPECT_EQ(end.sent().status, IBV_WC_SUCCESS);
        end.together();
      },
      [](End& end) {
        Tagged tags(end);
        end.start();
        const Polled polled = tags.matcher.next();
        EXPECT_EQ(polled.wc.opcode, IBV_WC_TM_RECV);
        EXPECT_EQ(polled.wc.wc_flags, 0u);
        EXPECT_EQ(polled.wc.wr_id, 100u);
        end.together();
        ASSERT_EQ(tags.add(7), 0);
        ASSERT_EQ(tags.matcher.sync(1), 0);
        EXPECT_EQ(tags.matcher.next().wc.opcode, IBV_WC_TM_SYNC);
        end.together();
        EXPECT_EQ(tags.matcher.next().wc.wr_id, 7u);
        end.together();
      });
}

TEST(RemoteTags, ARendezvousFetchesTheMessage) {
  play(
      [](End& end) {
        end.start();
        end.memory.fill(9);
        write_header(end.memory.data(), IBV_TMH_RNDV, 7);
        const ibv_rvh header{htobe64(end.memory.address()), htobe32(end.memory.rkey()), htobe32(kFetched)};
        std::memcpy(end.memory.data() + kTmh, &header, sizeof header);
        ASSERT_EQ(receive(end.qp.get(), {end.memory.sge(kLongest, 256)}), 0);
        end.together();
        ASSERT_EQ(send(end.qp.get(), {end.memory.sge(0, kTmh + sizeof header)}), 0);
        EXPECT_EQ(end.sent().status, IBV_WC_SUCCESS);
        EXPECT_EQ(end.received().byte_len, kTmh + sizeof header);
        EXPECT_EQ(end.memory.data()[kLongest], IBV_TMH_FIN);
        end.together();
      },
      [](End& end) {
        Tagged tags(end);
        end.start();
        ASSERT_EQ(tags.add(7), 0);
        end.together();
        EXPECT_EQ(tags.matcher.next().wc.wc_flags, unsigned{IBV_WC_TM_MATCH});
        const Polled polled = tags.matcher.next();
        EXPECT_EQ(polled.wc.status, IBV_WC_SUCCESS);
        EXPECT_EQ(polled.wc.wc_flags, unsigned{IBV_WC_TM_DATA_VALID});
        EXPECT_EQ(polled.wc.byte_len, kFetched);
        for (uint32_t i = 64; i < kFetched; ++i)
          ASSERT_EQ(end.memory.data()[i], static_cast<uint8_t>(9 + i * 7 + (i >> 8))) << i;
        end.together();
      });
}

}  // namespace
}  // namespace verbena
