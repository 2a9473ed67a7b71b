// SPDX-License-Identifier: BSD-2-Clause
#include "fabric/control_rpc.h"

#include <errno.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "fabric/unix_address.h"
#include "unit/common/own_process.h"
#include "unit/common/temporary_folder.h"

namespace verbena {
namespace {

constexpr int kPatienceMs = 10000;

// Replies with the request's bytes, backwards.
size_t backwards(void*, const std::byte* request, size_t size, std::byte* reply, Descriptor&) {
  std::reverse_copy(request, request + size, reply);
  return size;
}

class ControlRpc : public ::testing::Test {
 protected:
  void SetUp() override {}
  void TearDown() override { socket_.close(); }
  void listen() { ASSERT_EQ(socket_.open(folder_), 0); }
  void answer_by(ServeRequest reply, void* context = nullptr) {
    handler_ = {reply, context};
    socket_.serve_by(
        ServiceNumber::kRequest,
        [](void* handler, ServiceCall& call) {
          serve_request(*static_cast<const RequestHandler*>(handler), call);
        },
        &handler_);
  }
  // Does a request come within the time?
  bool request_comes(int timeout_ms = kPatienceMs) const {
    pollfd listener{socket_.descriptor(), POLLIN, 0};
    return poll(&listener, 1, timeout_ms) == 1;
  }
  std::jthread owner(ServeRequest reply = backwards) {
    answer_by(reply);
    return std::jthread([this](const std::stop_token& stop) {
      while (!stop.stop_requested())
        if (request_comes(10)) socket_.serve();
    });
  }
  int put(const std::string& request, int timeout_ms = kPatienceMs) {
    std::array<std::byte, kMaxMessage> bytes{};
    size_t size = 0;
    const int error = send_request(folder_, request.data(), request.size(), bytes.data(), &size, timeout_ms);
    reply_.assign(reinterpret_cast<const char*>(bytes.data()), size);
    return error;
  }
  // Sends something that is no request: `bytes`, with these descriptors.
  void send_raw(size_t length, const std::vector<int>& fds) {
    UnixAddress address;
    ASSERT_EQ(address.set(folder_, ServiceSocket::kName), 0);
    const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    ASSERT_EQ(connect(fd, address.get(), UnixAddress::size()), 0);
    std::string bytes(length, 'x');
    iovec data{bytes.data(), bytes.size()};
    alignas(cmsghdr) char control[CMSG_SPACE(4 * sizeof(int))] = {};
    msghdr message{};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    if (!fds.empty()) {
      message.msg_control = control;
      message.msg_controllen = CMSG_SPACE(fds.size() * sizeof(int));
      cmsghdr* header = CMSG_FIRSTHDR(&message);
      header->cmsg_level = SOL_SOCKET;
      header->cmsg_type = SCM_RIGHTS;
      header->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
      std::memcpy(CMSG_DATA(header), fds.data(), fds.size() * sizeof(int));
    }
    EXPECT_EQ(sendmsg(fd, &message, MSG_NOSIGNAL), static_cast<ssize_t>(length));
    close(fd);
  }

  const TemporaryFolder temporary_;
  std::string folder_ = temporary_.path(), reply_;
  ServiceSocket socket_;
  RequestHandler handler_;
};

TEST_F(ControlRpc, IsAnswered) {
  listen();
  const auto answering = owner();
  ASSERT_EQ(put("abc"), 0);
  EXPECT_EQ(reply_, "cba");
  std::string longest(kMaxMessage, 'x');
  longest.back() = 'y';
  ASSERT_EQ(put(longest), 0);
  EXPECT_EQ(reply_.front(), 'y');
}

TEST_F(ControlRpc, InAFolderLongerThanASocketAddress) {
  folder_ += "/" + std::string(200, 'x');
  std::filesystem::create_directory(folder_);
  listen();
  const auto answering = owner();
  EXPECT_EQ(put("abc"), 0);
}

TEST_F(ControlRpc, NoProcessIsEnoent) { EXPECT_EQ(put("abc"), ENOENT); }

TEST_F(ControlRpc, ADeadProcessIsEconnrefused) {
  listen();
  socket_.close();
  EXPECT_EQ(put("abc"), ECONNREFUSED);
}

TEST_F(ControlRpc, AProcessThatDiesWithTheRequestIsEconnrefused) {
  listen();
  std::jthread dies([this] {
    EXPECT_TRUE(request_comes());
    socket_.close();
  });
  EXPECT_EQ(put("abc"), ECONNREFUSED);
}

TEST_F(ControlRpc, AProcessThatDoesNotReplyIsEtimedout) {
  listen();
  EXPECT_EQ(put("abc", 50), ETIMEDOUT);
}

TEST_F(ControlRpc, AProcessWithoutAReplyIsEconnrefused) {
  listen();
  const auto answering =
      owner([](void*, const std::byte*, size_t, std::byte*, Descriptor&) { return size_t{0}; });
  EXPECT_EQ(put("abc"), ECONNREFUSED);
}

// The owner may take an offered descriptor; one that it does not take is closed.
TEST_F(ControlRpc, ADescriptorCanBeOffered) {
  listen();
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  const Descriptor here(ends[0]);
  Descriptor there(ends[1]);
  ASSERT_EQ(offer(folder_, "take", 4, there.fd), 0);
  ASSERT_EQ(offer(folder_, "leave", 5, there.fd), 0);
  there.reset();
  Descriptor taken;
  answer_by(
      [](void* to, const std::byte*, size_t size, std::byte*, Descriptor& passed) {
        if (size == 4) static_cast<Descriptor*>(to)->reset(passed.release());
        return size_t{0};
      },
      &taken);
  socket_.serve();
  ASSERT_GE(taken.fd, 0);
  EXPECT_EQ(write(taken.fd, "x", 1), 1);
  char byte = 0;
  EXPECT_EQ(read(here.fd, &byte, 1), 1);
  EXPECT_EQ(byte, 'x');
  taken.reset();
  EXPECT_EQ(read(here.fd, &byte, 1), 0);
}

TEST_F(ControlRpc, NothingCanBeOfferedToOneThatIsGone) {
  listen();
  socket_.close();
  EXPECT_EQ(offer(folder_, "take", 4, 0), ECONNREFUSED);
  EXPECT_EQ(offer(folder_ + "-not", "take", 4, 0), ENOENT);
}

// What is no request is ignored, and its descriptors are closed.
TEST_F(ControlRpc, AnythingElseIsPassedOver) {
  listen();
  const size_t before = open_descriptors();
  const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  send_raw(3, {});
  send_raw(3, {null});
  send_raw(3, {null, null, null});
  send_raw(2 * kMaxMessage, {null});
  close(null);
  answer_by(backwards);
  socket_.serve();
  EXPECT_EQ(open_descriptors(), before);
  const auto answering = owner();
  EXPECT_EQ(put("abc"), 0);
}

TEST_F(ControlRpc, AProcessWithAFullBacklogIsEtimedout) {
  listen();
  int waiting = 0;
  while (MessageSocket().connect_to(folder_, ServiceSocket::kName) == 0) ++waiting;
  EXPECT_GT(waiting, 10);
  EXPECT_EQ(offer(folder_, "x", 1, 0), EAGAIN);
  EXPECT_EQ(put("abc", 50), ETIMEDOUT);
}

TEST_F(ControlRpc, ARequestIsLimitedInSize) {
  listen();
  EXPECT_EQ(put(std::string(kMaxMessage + 1, 'x')), EMSGSIZE);
}

}  // namespace
}  // namespace verbena
