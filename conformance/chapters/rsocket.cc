// SPDX-License-Identifier: BSD-2-Clause
//
// Sockets over the device, rsocket(7): both ends are in this process, on an address that the rdma_cm binds to
// the port.
#include <fcntl.h>
#include <poll.h>
#include <rdma/rsocket.h>
#include <sys/mman.h>

#include <cstring>
#include <future>
#include <thread>

#include "support/cm.h"

namespace conformance::rsocket_chapter {
namespace {

struct Socket {
  int fd = -1;

  Socket() = default;
  explicit Socket(int descriptor) : fd(descriptor) {}
  Socket(Socket&& other) noexcept : fd(std::exchange(other.fd, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(fd, other.fd);
    return *this;
  }
  ~Socket() {
    if (fd >= 0) rclose(fd);
  }
};

class Fixture : public CmTest {
 protected:
  Socket make(int type = SOCK_STREAM) {
    Socket socket(CALL(rsocket(address().get()->sa_family, type, 0)));
    if (socket.fd < 0) throw Deviation{"expected: an rsocket; seen: " + errno_text(errno), Where::current()};
    return socket;
  }
  Socket make_bound(int type = SOCK_STREAM) {
    Socket socket = make(type);
    EXPECT_SUCCEEDS(rbind(socket.fd, address().get(), address().size()));
    return socket;
  }
  static SocketAddress name_of(int fd, int (*ask)(int, sockaddr*, socklen_t*)) {
    sockaddr_storage name = {};
    socklen_t size = sizeof name;
    EXPECT_SUCCEEDS(ask(fd, reinterpret_cast<sockaddr*>(&name), &size));
    return SocketAddress(reinterpret_cast<sockaddr*>(&name));
  }
  // What the library asks for by default (rdma-core librdmacm/rsocket.c, rs_create_ep): elements for the end
  // of the peer's ring and its beginning, and small messages inline.
  void need_queue() {
    const Pd pd = make_pd(device());
    const Cq cq = make_cq(device());
    ibv_qp_init_attr attr = init_attributes({}, cq, cq);
    attr.cap.max_send_sge = 2;
    attr.cap.max_inline_data = 64;
    const Qp qp(CALL(ibv_create_qp(pd, &attr)));
    if (qp == nullptr && is_refusal_of_qp(errno))
      throw NotClaimed{"a QP with 2 elements and 64 bytes inline is refused with " + errno_text(errno)};
  }
  // near_ connects, far_ is accepted; `mappings` of either end's memory may be written by the other.
  void connect_pair(int mappings = 0) {
    need_queue();
    const Socket listener = make_bound();
    near_ = make();
    for (const int fd : {listener.fd, near_.fd}) {
      if (mappings == 0) continue;
      EXPECT_SUCCEEDS(rsetsockopt(fd, SOL_RDMA, RDMA_IOMAPSIZE, &mappings, sizeof mappings));
    }
    ASSERT_SUCCEEDS(rlisten(listener.fd, 1));
    const SocketAddress to = name_of(listener.fd, rgetsockname);
    std::thread accepting([&] { far_ = Socket(raccept(listener.fd, nullptr, nullptr)); });
    const int result = CALL(rconnect(near_.fd, to.get(), to.size()));
    const int error = errno;
    if (result != 0) rclose(std::exchange(const_cast<Socket&>(listener).fd, -1));
    accepting.join();
    ASSERT_EQ(result, 0) << errno_text(error);
    ASSERT_GE(far_.fd, 0);
  }
  static bool is_readable(int fd, std::chrono::milliseconds time) {
    pollfd entry = {fd, POLLIN, 0};
    return rpoll(&entry, 1, static_cast<int>(scaled(time).count())) == 1 && (entry.revents & POLLIN) != 0;
  }
  static void send(int fd, const std::vector<uint8_t>& bytes) {
    for (size_t sent = 0; sent < bytes.size();) {
      const ssize_t count = rsend(fd, bytes.data() + sent, bytes.size() - sent, 0);
      if (count <= 0)
        throw Deviation{"expected: bytes are sent; seen: " + errno_text(errno), Where::current()};
      sent += static_cast<size_t>(count);
    }
  }
  static std::vector<uint8_t> receive(int fd, size_t length, int flags = 0) {
    std::vector<uint8_t> bytes(length);
    size_t received = 0;
    while (received < length) {
      const ssize_t count = rrecv(fd, bytes.data() + received, length - received, flags);
      if (count <= 0) break;
      received += static_cast<size_t>(count);
    }
    bytes.resize(received);
    return bytes;
  }

  Socket near_, far_;
};

constexpr std::chrono::seconds patience(5);

CONFORMANCE_TEST(cm_verbs, SocketsCarryAStream, "rsocket.stream", "rsocket.names", "rsocket.shutdown") {
  connect_pair();
  const std::vector<uint8_t> bytes = pattern(300'000);
  auto sending = std::async(std::launch::async, [&] { send(near_.fd, bytes); });
  EXPECT_EQ(receive(far_.fd, bytes.size()), bytes);
  sending.get();  // throws what it threw
  send(far_.fd, pattern(7));
  EXPECT_EQ(receive(near_.fd, 7), pattern(7));
  {
    const About about("rsocket.names");
    EXPECT_TRUE(name_of(near_.fd, rgetpeername) == name_of(far_.fd, rgetsockname));
    EXPECT_TRUE(name_of(far_.fd, rgetpeername) == name_of(near_.fd, rgetsockname));
  }
  const About about("rsocket.shutdown");
  send(near_.fd, pattern(3));
  EXPECT_SUCCEEDS(rshutdown(near_.fd, SHUT_WR));
  EXPECT_EQ(receive(far_.fd, 3), pattern(3));
  uint8_t byte = 0;
  EXPECT_EQ(CALL(rrecv(far_.fd, &byte, 1, 0)), 0);
}

CONFORMANCE_TEST(cm_verbs, SocketsTellWhatHasCome, "rsocket.dontwait", "rsocket.poll", "rsocket.peek") {
  connect_pair();
  uint8_t byte = 0;
  {
    const About about("rsocket.dontwait");
    EXPECT_TRUE(minus_one(static_cast<int>(CALL(rrecv(far_.fd, &byte, 1, MSG_DONTWAIT))), {EAGAIN}));
    ASSERT_SUCCEEDS(rfcntl(far_.fd, F_SETFL, O_NONBLOCK));
    EXPECT_TRUE(minus_one(static_cast<int>(CALL(rrecv(far_.fd, &byte, 1, 0))), {EAGAIN}));
  }
  {
    const About about("rsocket.poll");
    EXPECT_FALSE(is_readable(far_.fd, std::chrono::milliseconds(5)));
    send(near_.fd, {42});
    ASSERT_TRUE(is_readable(far_.fd, patience));
  }
  const About about("rsocket.peek");
  EXPECT_EQ(CALL(rrecv(far_.fd, &byte, 1, MSG_PEEK)), 1);
  EXPECT_EQ(byte, 42);
  byte = 0;
  EXPECT_EQ(CALL(rrecv(far_.fd, &byte, 1, 0)), 1);
  EXPECT_EQ(byte, 42);
}

CONFORMANCE_TEST(cm_verbs, SocketsOfNobodyAreRefused, "rsocket.refused") {
  need_queue();
  SocketAddress to;
  {
    const Socket gone = make_bound();
    to = name_of(gone.fd, rgetsockname);
  }
  const Socket socket = make();
  EXPECT_TRUE(minus_one(CALL(rconnect(socket.fd, to.get(), to.size())), {ECONNREFUSED}));
}

CONFORMANCE_TEST(cm_verbs, SocketsHaveTheSizesThatWereSet, "rsocket.options") {
  const Socket socket = make();
  for (const auto& [option, value] : {std::pair(RDMA_SQSIZE, 64), {RDMA_RQSIZE, 128}, {RDMA_INLINE, 16}}) {
    int seen = 0;
    socklen_t size = sizeof seen;
    EXPECT_SUCCEEDS(rsetsockopt(socket.fd, SOL_RDMA, option, &value, sizeof value));
    EXPECT_SUCCEEDS(rgetsockopt(socket.fd, SOL_RDMA, option, &seen, &size));
    EXPECT_EQ(seen, value) << "option " << option;
  }
}

CONFORMANCE_TEST(cm_verbs, SocketsCarryDatagrams, "rsocket.datagram") {
  if (device().is_ethernet())  // rdma-core librdmacm/rsocket.c, ds_add_qp_dest
    throw NotTested{
        "the library makes the address handle to itself without a GRH, which no Ethernet port takes"};
  near_ = make_bound(SOCK_DGRAM);
  far_ = make_bound(SOCK_DGRAM);
  const SocketAddress to = name_of(far_.fd, rgetsockname);
  const std::vector<uint8_t> sent = pattern(100);
  ASSERT_EQ(CALL(rsendto(near_.fd, sent.data(), sent.size(), 0, to.get(), to.size())), 100);
  ASSERT_TRUE(is_readable(far_.fd, patience));
  std::vector<uint8_t> seen(200);
  sockaddr_storage from = {};
  socklen_t size = sizeof from;
  const ssize_t count =
      CALL(rrecvfrom(far_.fd, seen.data(), seen.size(), 0, reinterpret_cast<sockaddr*>(&from), &size));
  ASSERT_EQ(count, 100);
  seen.resize(100);
  EXPECT_EQ(seen, sent);
  EXPECT_TRUE(SocketAddress(reinterpret_cast<sockaddr*>(&from)) == name_of(near_.fd, rgetsockname));
}

CONFORMANCE_TEST(cm_verbs, SocketsWriteIntoMappedBuffers, "riowrite.before", "riounmap.zero") {
  connect_pair(4);
  std::vector<uint8_t> target(8192);
  ASSERT_EQ(CALL(riomap(far_.fd, target.data(), target.size(), PROT_WRITE, 0, 4096)), 4096)
      << errno_text(errno);
  send(far_.fd, {1});
  ASSERT_EQ(receive(near_.fd, 1).size(), 1u) << "the mapping is there";
  const std::vector<uint8_t> bytes = pattern(5000);
  EXPECT_EQ(CALL(riowrite(near_.fd, bytes.data(), bytes.size(), 4096 + 100, 0)), bytes.size());
  send(near_.fd, {2});
  ASSERT_EQ(receive(far_.fd, 1).size(), 1u);
  EXPECT_EQ(memcmp(target.data() + 100, bytes.data(), bytes.size()), 0);
  EXPECT_EQ(target[99], 0);
  EXPECT_EQ(target[5100], 0);
  const About about("riounmap.zero");
  EXPECT_SUCCEEDS(riounmap(far_.fd, target.data(), target.size()));
}

}  // namespace
}  // namespace conformance::rsocket_chapter
