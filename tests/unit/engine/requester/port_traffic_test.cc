// SPDX-License-Identifier: BSD-2-Clause
//
// What the two ends of a connection count for their port (adapter/traffic.h), on the fast path and off it.
// The path MTU is 1024.
#include <gtest/gtest.h>

#include <string>

#include "adapter/traffic.h"
#include "engine/local/fast_path.h"
#include "engine/objects/qp.h"
#include "unit/engine/scene.h"

namespace verbena {
namespace {

constexpr uint32_t kLength = 5000;  // 5 packets

class PortTrafficTest : public ::testing::TestWithParam<bool> {
 protected:
  PortTrafficTest() : before_(fast_path_enabled.exchange(GetParam())) {}
  ~PortTrafficTest() override { fast_path_enabled.store(before_); }

  // "octets in packets; ..." that were sent; and that were received
  static std::string traffic(const Qp& qp) {
    const PortCountValues values = traffic_of(*qp.shared);
    const auto text = [&](PortCount count) { return std::to_string(values[static_cast<size_t>(count)]); };
    return text(PortCount::kSentOctets) + " in " + text(PortCount::kSentUnicast) + "; " +
           text(PortCount::kReceivedOctets) + " in " + text(PortCount::kReceivedUnicast);
  }
  void carry_out(ibv_wr_opcode opcode, uint32_t length) {
    ASSERT_EQ(rdma(*pair_.a, opcode, {here_.sge(0, length)}, there_.address(), there_.rkey()), 0);
    ASSERT_EQ(pair_.a.sent().status, IBV_WC_SUCCESS);
  }

 private:
  const bool before_;

 protected:
  Pair pair_;
  Region here_{pair_.pd.get(), kLength}, there_{pair_.pd.get(), kLength};
};

TEST_P(PortTrafficTest, OfASend) {
  ASSERT_EQ(receive(*pair_.b, {there_.sge(0, 64)}), 0);
  ASSERT_EQ(send(*pair_.a, {here_.sge(0, 64)}), 0);
  ASSERT_EQ(pair_.a.sent().status, IBV_WC_SUCCESS);
  ASSERT_EQ(pair_.b.received().status, IBV_WC_SUCCESS);
  EXPECT_EQ(traffic(**pair_.a), "64 in 1; 0 in 1");
  EXPECT_EQ(traffic(**pair_.b), "0 in 1; 64 in 1");
}

TEST_P(PortTrafficTest, OfWrites) {
  carry_out(IBV_WR_RDMA_WRITE, 64);
  carry_out(IBV_WR_RDMA_WRITE, kLength);
  EXPECT_EQ(traffic(**pair_.a), "5064 in 6; 0 in 2");
  EXPECT_EQ(traffic(**pair_.b), "0 in 2; 5064 in 6");
}

TEST_P(PortTrafficTest, OfReads) {
  carry_out(IBV_WR_RDMA_READ, 64);
  carry_out(IBV_WR_RDMA_READ, kLength);
  EXPECT_EQ(traffic(**pair_.a), "0 in 2; 5064 in 6");
  EXPECT_EQ(traffic(**pair_.b), "5064 in 6; 0 in 2");
  EXPECT_EQ(requests_of(*(*pair_.a)->shared).bytes_out, 5064u);
  EXPECT_EQ(requests_of(*(*pair_.b)->shared).bytes_in, 5064u);
}

TEST_P(PortTrafficTest, OfARequestThatIsRefused) {
  ASSERT_EQ(rdma(*pair_.a, IBV_WR_RDMA_WRITE, {here_.sge(0, 8)}, there_.address(), there_.rkey() ^ 0x100), 0);
  ASSERT_EQ(pair_.a.sent().status, IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(traffic(**pair_.a), "0 in 0; 0 in 0");
  EXPECT_EQ(traffic(**pair_.b), "0 in 0; 0 in 0");
}

INSTANTIATE_TEST_SUITE_P(Paths, PortTrafficTest, ::testing::Bool(),
                         [](const auto& path) { return path.param ? "Fast" : "Slow"; });

}  // namespace
}  // namespace verbena
