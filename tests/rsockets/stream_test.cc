// SPDX-License-Identifier: BSD-2-Clause
//
// rsocket(7), SOCK_STREAM: connecting, data, shutting down, names and options.
#include <netinet/tcp.h>
#include <sys/uio.h>

#include <algorithm>

#include "fixture.h"

namespace verbena::rsockets {
namespace {

TEST_F(StreamTest, ConnectsAndAccepts) { connect_pair(); }

TEST_F(StreamTest, ConnectingToNobodyIsEconnrefused) {
  listener_.close();
  const Socket socket = make_stream();
  errno = 0;
  EXPECT_EQ(rconnect(socket.get(), address_.get(), address_.size()), -1);
  EXPECT_EQ(errno, ECONNREFUSED);
}

TEST_F(StreamTest, AnAddressInUseIsEaddrinuse) {
  const Socket socket = make_stream();
  errno = 0;
  EXPECT_EQ(rbind(socket.get(), address_.get(), address_.size()), -1);
  EXPECT_EQ(errno, EADDRINUSE);
}

TEST_F(PairTest, BytesArriveBothWays) {
  char word[6] = "";
  ASSERT_EQ(rsend(active_.get(), "hello", 6, 0), 6);
  ASSERT_EQ(rrecv(passive_.get(), word, 6, MSG_WAITALL), 6);
  EXPECT_STREQ(word, "hello");
  ASSERT_EQ(rwrite(passive_.get(), "world", 6), 6);
  ASSERT_EQ(rread(active_.get(), word, 6), 6);
  EXPECT_STREQ(word, "world");
}

TEST_F(PairTest, VectorsAreGathered) {
  char a[] = {'v', 'e'}, b[] = {'c', 't', 'o', 'r', 0}, word[8] = "";
  const iovec out[2] = {{a, 2}, {b, 5}};
  ASSERT_EQ(rwritev(active_.get(), out, 2), 7);
  ASSERT_EQ(rrecv(passive_.get(), word, 7, MSG_WAITALL), 7);
  EXPECT_STREQ(word, "vector");
}

// rrecvv (rsocket.c, 44.0) uses the first buffer only.
TEST_F(PairTest, OfAVectorTheFirstBufferIsFilled) {
  ASSERT_EQ(rsend(active_.get(), "vector", 6, 0), 6);
  char a[3], b[3];
  const iovec in[2] = {{a, 3}, {b, 3}};
  EXPECT_EQ(rreadv(passive_.get(), in, 2), 3);
}

TEST_F(PairTest, PeekedBytesStay) {
  ASSERT_EQ(rsend(active_.get(), "x", 1, 0), 1);
  char first = 0, second = 0;
  ASSERT_EQ(rrecv(passive_.get(), &first, 1, MSG_PEEK), 1);
  ASSERT_EQ(rrecv(passive_.get(), &second, 1, 0), 1);
  EXPECT_EQ(first, 'x');
  EXPECT_EQ(second, 'x');
}

TEST_F(PairTest, AHundredMegabytesArriveUnchanged) {
  const std::vector<uint8_t> bytes = pattern(100'000'000);
  std::thread sender([&] { EXPECT_TRUE(send_all(active_, bytes)) << strerror(errno); });
  const std::vector<uint8_t> received = receive_all(passive_, bytes.size());
  sender.join();
  EXPECT_EQ(received.size(), bytes.size());
  EXPECT_TRUE(received == bytes);
}

// Sends and receives so many bytes in one thread: with a thread for each direction, librdmacm sometimes hangs
// (docs/FEATURES.md, "Two threads on one rsocket").
void exchange(const Socket& socket, const std::vector<uint8_t>& out, std::vector<uint8_t>* in) {
  make_nonblocking(socket);
  in->resize(out.size());
  size_t sent = 0, got = 0;
  while (sent < out.size() || got < in->size()) {
    const short wanted =
        static_cast<short>((got < in->size() ? POLLIN : 0) | (sent < out.size() ? POLLOUT : 0));
    const short ready = becomes(socket, wanted);
    ASSERT_NE(ready, 0) << sent << " bytes sent, " << got << " received";
    if ((ready & POLLIN) != 0) {
      const ssize_t n = rrecv(socket.get(), in->data() + got, in->size() - got, 0);
      ASSERT_TRUE(n > 0 || errno == EAGAIN) << strerror(errno);
      if (n > 0) got += static_cast<size_t>(n);
    }
    if ((ready & POLLOUT) != 0) {
      const ssize_t n = rsend(socket.get(), out.data() + sent, std::min<size_t>(out.size() - sent, 65536), 0);
      ASSERT_TRUE(n > 0 || errno == EAGAIN) << strerror(errno);
      if (n > 0) sent += static_cast<size_t>(n);
    }
  }
}

TEST_F(PairTest, BothDirectionsAtOnce) {
  const std::vector<uint8_t> bytes = pattern(8'000'000);
  std::vector<uint8_t> at_active, at_passive;
  std::thread other([&] { exchange(passive_, bytes, &at_passive); });
  exchange(active_, bytes, &at_active);
  other.join();
  EXPECT_TRUE(at_active == bytes);
  EXPECT_TRUE(at_passive == bytes);
}

TEST_F(PairTest, AfterShutdownThePeerReadsTheEnd) {
  ASSERT_EQ(rsend(active_.get(), "x", 1, 0), 1);
  ASSERT_EQ(rshutdown(active_.get(), SHUT_WR), 0) << strerror(errno);
  char byte;
  ASSERT_EQ(rrecv(passive_.get(), &byte, 1, 0), 1) << "what was sent before comes first";
  EXPECT_EQ(rrecv(passive_.get(), &byte, 1, 0), 0);
}

TEST_F(PairTest, AfterShutdownForWritingTheOtherDirectionWorks) {
  ASSERT_EQ(rshutdown(active_.get(), SHUT_WR), 0);
  char byte = 0;
  ASSERT_EQ(rsend(passive_.get(), "y", 1, 0), 1) << strerror(errno);
  ASSERT_EQ(rrecv(active_.get(), &byte, 1, 0), 1) << strerror(errno);
  EXPECT_EQ(byte, 'y');
}

TEST_F(PairTest, AfterClosingThePeerReadsTheEnd) {
  active_.close();
  char byte;
  EXPECT_EQ(rrecv(passive_.get(), &byte, 1, 0), 0);
}

TEST_F(PairTest, BothEndsHaveNames) {
  Address peer("0.0.0.0", 0);
  socklen_t size = sizeof(sockaddr_storage);
  ASSERT_EQ(rgetpeername(active_.get(), peer.get(), &size), 0);
  EXPECT_EQ(memcmp(peer.get(), address_.get(), 8), 0);
  ASSERT_EQ(rgetpeername(passive_.get(), peer.get(), &size), 0);
  EXPECT_EQ(memcmp(peer.get(), name_of(active_).get(), 8), 0);
}

TEST_F(PairTest, OptionsAreKept) {
  int one = 1, value = 0;
  socklen_t size = sizeof(value);
  ASSERT_EQ(rsetsockopt(active_.get(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)), 0);
  ASSERT_EQ(rgetsockopt(active_.get(), IPPROTO_TCP, TCP_NODELAY, &value, &size), 0);
  EXPECT_EQ(value, 1);
  ASSERT_EQ(rgetsockopt(active_.get(), SOL_SOCKET, SO_ERROR, &value, &size), 0);
  EXPECT_EQ(value, 0);
}

TEST_F(StreamTest, BufferAndQueueSizesAreAsWanted) {
  const Socket socket = make_stream();
  int bytes = 32768, requests = 64, value = 0;
  socklen_t size = sizeof(value);
  ASSERT_EQ(rsetsockopt(socket.get(), SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes)), 0);
  ASSERT_EQ(rsetsockopt(socket.get(), SOL_RDMA, RDMA_SQSIZE, &requests, sizeof(requests)), 0);
  ASSERT_EQ(rconnect(socket.get(), address_.get(), address_.size()), 0) << strerror(errno);
  ASSERT_EQ(rgetsockopt(socket.get(), SOL_SOCKET, SO_SNDBUF, &value, &size), 0);
  EXPECT_EQ(value, 2 * 32768) << "twice as much, as for sockets (socket(7))";
  ASSERT_EQ(rgetsockopt(socket.get(), SOL_RDMA, RDMA_SQSIZE, &value, &size), 0);
  EXPECT_EQ(value, 64);
}

TEST_F(StreamTest, ASixthVersionAddressConnects) {
  const std::string host = Address::of_device(AF_INET6);
  if (host.empty()) GTEST_SKIP() << "no IPv6 address on this machine";
  listener_ = Socket(rsocket(AF_INET6, SOCK_STREAM, 0));
  Address any_port(host, 0);
  ASSERT_EQ(rbind(listener_.get(), any_port.get(), any_port.size()), 0) << strerror(errno);
  ASSERT_EQ(rlisten(listener_.get(), 1), 0);
  address_ = name_of(listener_);
  std::thread server([this] { passive_ = Socket(raccept(listener_.get(), nullptr, nullptr)); });
  active_ = Socket(rsocket(AF_INET6, SOCK_STREAM, 0));
  EXPECT_EQ(rconnect(active_.get(), address_.get(), address_.size()), 0) << strerror(errno);
  server.join();
  ASSERT_EQ(rsend(active_.get(), "x", 1, 0), 1);
  char byte = 0;
  EXPECT_EQ(rrecv(passive_.get(), &byte, 1, 0), 1);
}

}  // namespace
}  // namespace verbena::rsockets
