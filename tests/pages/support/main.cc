// SPDX-License-Identifier: BSD-2-Clause
//
// Calls without a channel block until they are done; here none may do so for ever. And this program is also
// the second process of the tests that need one (peer.h).
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstring>

#include "peer.h"

namespace {

constexpr unsigned kSecondsPerTest = 20;

void too_late(int) {
  static const char words[] = "a call has not come back in time\n";
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, words, sizeof(words) - 1);
  _exit(1);
}

class Watch : public testing::EmptyTestEventListener {
  void OnTestStart(const testing::TestInfo&) override { alarm(kSecondsPerTest); }
  void OnTestEnd(const testing::TestInfo&) override { alarm(0); }
};

}  // namespace

int main(int count, char** arguments) {
  signal(SIGALRM, too_late);
  if (count >= 2 && strcmp(arguments[1], verbena::pages::kRoleOption) == 0) {
    alarm(kSecondsPerTest);
    return verbena::pages::play_role(count - 2, arguments + 2);
  }
  testing::InitGoogleTest(&count, arguments);
  testing::UnitTest::GetInstance()->listeners().Append(new Watch);
  return RUN_ALL_TESTS();
}
