// SPDX-License-Identifier: BSD-2-Clause
#include "adapter/lower_count.h"

#include <gtest/gtest.h>

namespace verbena {
namespace {

TEST(LowerCount, TakesWhatIsThere) {
  std::atomic<uint32_t> count{5};
  lower_count(count, 2);
  EXPECT_EQ(count.load(), 3u);
}

TEST(LowerCount, StopsAtZero) {
  std::atomic<uint32_t> count{1};
  lower_count(count, 2);
  EXPECT_EQ(count.load(), 0u);
  lower_count(count, 1);
  EXPECT_EQ(count.load(), 0u);
}

}  // namespace
}  // namespace verbena
