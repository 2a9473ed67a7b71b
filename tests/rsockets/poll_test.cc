// SPDX-License-Identifier: BSD-2-Clause
//
// rsocket(7): rpoll, rselect, and rsockets that do not block.
#include <unistd.h>

#include "fixture.h"

namespace verbena::rsockets {
namespace {

TEST_F(StreamTest, NonblockingAcceptWithoutACallIsEagain) {
  make_nonblocking(listener_);
  errno = 0;
  EXPECT_EQ(raccept(listener_.get(), nullptr, nullptr), -1);
  EXPECT_EQ(errno, EAGAIN);
}

TEST_F(StreamTest, NonblockingConnectComesBackAndIsWritableOnceAccepted) {
  make_nonblocking(listener_);
  active_ = make_stream();
  make_nonblocking(active_);
  errno = 0;
  if (rconnect(active_.get(), address_.get(), address_.size()) != 0) {
    ASSERT_EQ(errno, EINPROGRESS);  // 0: the other side was that fast
  }
  ASSERT_NE(becomes(listener_, POLLIN) & POLLIN, 0);
  passive_ = Socket(raccept(listener_.get(), nullptr, nullptr));
  ASSERT_GE(passive_.get(), 0);
  ASSERT_NE(becomes(active_, POLLOUT) & POLLOUT, 0);
  int error = -1;
  socklen_t size = sizeof(error);
  ASSERT_EQ(rgetsockopt(active_.get(), SOL_SOCKET, SO_ERROR, &error, &size), 0);
  EXPECT_EQ(error, 0);
}

TEST_F(PairTest, NonblockingReceiveWithoutBytesIsEagain) {
  make_nonblocking(passive_);
  char byte;
  errno = 0;
  EXPECT_EQ(rrecv(passive_.get(), &byte, 1, 0), -1);
  EXPECT_EQ(errno, EAGAIN);
}

TEST_F(PairTest, DontWaitIsForOneCall) {
  char byte;
  errno = 0;
  EXPECT_EQ(rrecv(passive_.get(), &byte, 1, MSG_DONTWAIT), -1);
  EXPECT_EQ(errno, EAGAIN);
}

TEST_F(PairTest, NonblockingSendIntoFullBuffersIsEagainUntilTheyAreRead) {
  make_nonblocking(active_);
  std::vector<uint8_t> chunk(65536);
  size_t sent = 0;
  ssize_t last = 0;
  while ((last = rsend(active_.get(), chunk.data(), chunk.size(), 0)) > 0) {
    sent += static_cast<size_t>(last);
    ASSERT_LT(sent, 100'000'000u);
  }
  ASSERT_EQ(last, -1);
  ASSERT_EQ(errno, EAGAIN);
  EXPECT_EQ(ready_now(active_, POLLOUT) & POLLOUT, 0);
  EXPECT_EQ(receive_all(passive_, sent).size(), sent);
  EXPECT_NE(becomes(active_, POLLOUT) & POLLOUT, 0);
}

TEST_F(PairTest, PollSeesBytes) {
  EXPECT_EQ(ready_now(passive_, POLLIN), 0);
  ASSERT_EQ(rsend(active_.get(), "x", 1, 0), 1);
  EXPECT_NE(becomes(passive_, POLLIN) & POLLIN, 0);
}

TEST_F(PairTest, PollWaitsForBytes) {
  std::thread sender([this] { EXPECT_EQ(rsend(active_.get(), "x", 1, 0), 1); });
  EXPECT_NE(becomes(passive_, POLLIN) & POLLIN, 0);
  sender.join();
}

TEST_F(PairTest, PollSeesTheEnd) {
  active_.close();
  EXPECT_NE(becomes(passive_, POLLIN) & (POLLIN | POLLHUP), 0);
}

TEST_F(PairTest, PollTakesOrdinaryDescriptorsToo) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  pollfd entries[2] = {{.fd = passive_.get(), .events = POLLIN, .revents = 0},
                       {.fd = ends[0], .events = POLLIN, .revents = 0}};
  ASSERT_EQ(write(ends[1], "x", 1), 1);
  EXPECT_EQ(rpoll(entries, 2, -1), 1);
  EXPECT_NE(entries[1].revents & POLLIN, 0);
  close(ends[0]);
  close(ends[1]);
}

TEST_F(PairTest, SelectSeesBytes) {
  ASSERT_EQ(rsend(active_.get(), "x", 1, 0), 1);
  fd_set readable;
  FD_ZERO(&readable);
  FD_SET(passive_.get(), &readable);
  EXPECT_EQ(rselect(passive_.get() + 1, &readable, nullptr, nullptr, nullptr), 1);
  EXPECT_TRUE(FD_ISSET(passive_.get(), &readable));
}

}  // namespace
}  // namespace verbena::rsockets
