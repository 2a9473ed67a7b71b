// SPDX-License-Identifier: BSD-2-Clause
#include "fabric/message_socket.h"

#include <errno.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <thread>

namespace verbena {
namespace {

// A peer sends and closes while this process is in the middle of receive(). Without another processor that
// never happens, and the test shows nothing.
TEST(MessageSocketTest, APeerThatSendsAndClosesIsHeard) {
  constexpr int kRounds = 50'000;
  const std::string name = "verbena-unit-message-socket-" + std::to_string(getpid());
  MessageSocket listener;
  ASSERT_EQ(listener.listen_as(name, 8), 0);
  std::atomic<int> round{0};
  std::jthread server([&](const std::stop_token& stop) {
    for (int served = 0; served < kRounds; ++served) {
      MessageSocket peer;
      while (peer.accept_from(listener) != 0)
        if (stop.stop_requested()) return;
      for (int looks = 0; round.load() <= served; ++looks) {
        if (stop.stop_requested()) return;
        if (looks > 10'000) std::this_thread::yield();
      }
      const uint8_t word = 1;
      EXPECT_EQ(peer.send({&word, 1}), 0);
    }
  });
  for (int i = 1; i <= kRounds; ++i) {
    MessageSocket client;
    ASSERT_EQ(client.connect_to_abstract(name, 10'000), 0);
    round.store(i);
    const auto next = [&client] {
      uint8_t word = 0;
      ssize_t got;
      do got = client.receive({&word, 1});
      while (got == -EAGAIN);
      return got;
    };
    ASSERT_EQ(next(), 1) << "round " << i;
    ASSERT_EQ(next(), 0);
  }
}

}  // namespace
}  // namespace verbena
