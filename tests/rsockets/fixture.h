// SPDX-License-Identifier: BSD-2-Clause
//
// rsocket(7): a listening stream rsocket on an address of the device, and a connected pair.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <rdma/rsocket.h>

#include <cerrno>
#include <cstring>
#include <thread>
#include <vector>

#include "pages/support/addresses.h"

namespace verbena::rsockets {

using pages::Address;

class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd) : fd_(fd) {}
  Socket(Socket&& other) : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) {
    close();
    fd_ = std::exchange(other.fd_, -1);
    return *this;
  }
  ~Socket() { close(); }
  int get() const { return fd_; }
  void close() {
    if (fd_ >= 0) rclose(std::exchange(fd_, -1));
  }

 private:
  int fd_ = -1;
};

// Those of `events` that are there at once; 0: none.
inline short ready_now(const Socket& socket, short events) {
  pollfd entry = {.fd = socket.get(), .events = events, .revents = 0};
  return rpoll(&entry, 1, 0) == 1 ? entry.revents : short{0};
}
// Waits for one of `events`, without rpoll's time limit: librdmacm counts the elapsed time several times over
// (docs/FEATURES.md, "rpoll with a time limit"). main.cc's alarm ends a wait without end.
inline short becomes(const Socket& socket, short events) {
  pollfd entry = {.fd = socket.get(), .events = events, .revents = 0};
  return rpoll(&entry, 1, -1) == 1 ? entry.revents : short{0};
}
inline void make_nonblocking(const Socket& socket) {
  ASSERT_EQ(rfcntl(socket.get(), F_SETFL, O_NONBLOCK), 0);
}

class StreamTest : public testing::Test {
 protected:
  void SetUp() override {
    host_ = Address::of_device(AF_INET);
    ASSERT_NE(host_, "") << "no device: these tests run under `verbena run`";
    listener_ = make_stream();
    Address any_port(host_, 0);
    ASSERT_EQ(rbind(listener_.get(), any_port.get(), any_port.size()), 0) << strerror(errno);
    ASSERT_EQ(rlisten(listener_.get(), 8), 0) << strerror(errno);
    address_ = name_of(listener_);
  }

  static Socket make_stream() {
    Socket socket(rsocket(AF_INET, SOCK_STREAM, 0));
    EXPECT_GE(socket.get(), 0) << strerror(errno);
    return socket;
  }
  static Address name_of(const Socket& socket) {
    Address address("0.0.0.0", 0);
    socklen_t size = sizeof(sockaddr_storage);
    EXPECT_EQ(rgetsockname(socket.get(), address.get(), &size), 0) << strerror(errno);
    return address;
  }
  // Like two programs, each in a thread of its own.
  void connect_pair() {
    std::thread server([this] { passive_ = Socket(raccept(listener_.get(), nullptr, nullptr)); });
    active_ = make_stream();
    EXPECT_EQ(rconnect(active_.get(), address_.get(), address_.size()), 0) << strerror(errno);
    server.join();
    ASSERT_GE(passive_.get(), 0) << strerror(errno);
  }
  static bool send_all(const Socket& socket, const std::vector<uint8_t>& bytes) {
    for (size_t done = 0; done < bytes.size();) {
      const ssize_t sent = rsend(socket.get(), bytes.data() + done, bytes.size() - done, 0);
      if (sent <= 0) return false;
      done += static_cast<size_t>(sent);
    }
    return true;
  }
  static std::vector<uint8_t> receive_all(const Socket& socket, size_t size) {
    std::vector<uint8_t> bytes(size);
    size_t done = 0;
    while (done < size) {
      const ssize_t got = rrecv(socket.get(), bytes.data() + done, size - done, 0);
      if (got <= 0) break;
      done += static_cast<size_t>(got);
    }
    bytes.resize(done);
    return bytes;
  }

  std::string host_;
  Address address_;
  Socket listener_, passive_, active_;
};

class PairTest : public StreamTest {
 protected:
  void SetUp() override {
    StreamTest::SetUp();
    if (!HasFatalFailure()) connect_pair();
  }
};

// Bytes without short periods: a 64-bit LCG, its high byte.
inline std::vector<uint8_t> pattern(size_t size) {
  std::vector<uint8_t> bytes(size);
  uint64_t state = 88172645463325252;
  for (uint8_t& byte : bytes) {
    state = state * 6364136223846793005 + 1442695040888963407;
    byte = static_cast<uint8_t>(state >> 56);
  }
  return bytes;
}

}  // namespace verbena::rsockets
