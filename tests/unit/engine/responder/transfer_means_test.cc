// SPDX-License-Identifier: BSD-2-Clause
#include "engine/rules/transfer_means.h"

#include <gtest/gtest.h>

namespace verbena {
namespace {

struct MeansRow {
  const char* what;
  Reach reach;  // within_reach, mapped, writable, takes_sigbus
  TransferMeans writing, reading;
};

TEST(TransferMeans, FollowTheTable) {
  using enum TransferMeans;
  constexpr MeansRow kRows[] = {
      {"mapped", {true, true, true, true}, kCopy, kCopy},
      {"mapped for reading", {true, true, false, true}, kSystemCall, kCopy},
      {"mapped, but the thread blocks SIGBUS", {true, true, true, false}, kSystemCall, kSystemCall},
      {"not mapped", {true, false, false, true}, kSystemCall, kSystemCall},
      {"out of reach", {false, false, false, true}, kFrames, kFrames},
      {"out of reach, whatever is mapped", {false, true, true, true}, kFrames, kFrames},
  };
  for (const MeansRow& row : kRows) {
    EXPECT_EQ(choose_means(row.reach, true), row.writing) << row.what;
    EXPECT_EQ(choose_means(row.reach, false), row.reading) << row.what;
  }
}

}  // namespace
}  // namespace verbena
