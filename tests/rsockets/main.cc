// SPDX-License-Identifier: BSD-2-Clause
//
// The calls block; in these tests none may do so without end.
#include <gtest/gtest.h>
#include <unistd.h>

namespace {

class Watch : public testing::EmptyTestEventListener {
  void OnTestStart(const testing::TestInfo&) override { alarm(40); }
  void OnTestEnd(const testing::TestInfo&) override { alarm(0); }
};

}  // namespace

int main(int count, char** arguments) {
  testing::InitGoogleTest(&count, arguments);
  testing::UnitTest::GetInstance()->listeners().Append(new Watch);
  return RUN_ALL_TESTS();
}
