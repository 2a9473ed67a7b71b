// SPDX-License-Identifier: BSD-2-Clause
#include "support/pair.h"
namespace conformance {
namespace {
using Fixture = PairTest;
CONFORMANCE_TEST(post, PairSend, "ibv_post_send.rc.send") {
  ASSERT_EQ(far().receive(0, 64), 0);
  near().fill_pattern(0, 64, 5);
  ASSERT_EQ(near().post(send_request({{0, 64}})), 0);
  EXPECT_EQ(near().completion().status, IBV_WC_SUCCESS);
  EXPECT_EQ(far().received().bytes, 64u);
  EXPECT_TRUE(far().has_pattern(0, 64, 5));
  EXPECT_TRUE(far().untouched(64, 64));
}
}  // namespace
}  // namespace conformance
