// SPDX-License-Identifier: BSD-2-Clause
#include "wire/hand_on.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "fabric/descriptors_of_parent.h"
#include "fabric/unix_address.h"

namespace verbena::wire {
namespace {

constexpr const char* kSocketName = "callers";
constexpr size_t kSize = kHelloSize + sizeof(Digest);

struct Descriptor {
  int fd = -1;
  ~Descriptor() { reset(-1); }
  void reset(int other) {
    if (fd >= 0) close(fd);
    fd = other;
  }
};

// The connection that came along; false: it is not from this user.
bool read_attached(msghdr* message, Descriptor* connection) {
  bool same_user = false;
  for (cmsghdr* header = CMSG_FIRSTHDR(message); header != nullptr; header = CMSG_NXTHDR(message, header)) {
    if (header->cmsg_level != SOL_SOCKET) continue;
    if (header->cmsg_type == SCM_RIGHTS) {
      const size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
      for (size_t i = 0; i < count; ++i) {
        int fd;
        std::memcpy(&fd, CMSG_DATA(header) + i * sizeof fd, sizeof fd);
        connection->reset(fd);
      }
    }
    if (header->cmsg_type == SCM_CREDENTIALS && header->cmsg_len >= CMSG_LEN(sizeof(ucred))) {
      ucred sender;
      std::memcpy(&sender, CMSG_DATA(header), sizeof sender);
      same_user = sender.uid == geteuid();
    }
  }
  return same_user;
}

}  // namespace

int listen_for_callers(const std::string& folder) {
  UnixAddress address;
  if (const int error = address.set(folder, kSocketName); error != 0) {
    errno = error;
    return -1;
  }
  Descriptor bound{socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
  const int on = 1;
  if (bound.fd < 0 || setsockopt(bound.fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof on) != 0) return -1;
  unlink(reinterpret_cast<const sockaddr_un*>(address.get())->sun_path);
  if (bind(bound.fd, address.get(), UnixAddress::size()) != 0) return -1;
  return std::exchange(bound.fd, -1);
}

int hand_on(const std::string& folder, const Admitted& admitted, int connection) {
  UnixAddress address;
  if (const int error = address.set(folder, kSocketName); error != 0) return error;
  const Descriptor sending{socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
  if (sending.fd < 0) return errno;
  std::array<uint8_t, kSize> bytes;
  const auto hello = encode(admitted.hello);
  std::copy(hello.begin(), hello.end(), bytes.begin());
  std::copy(admitted.transcript.begin(), admitted.transcript.end(), bytes.begin() + kHelloSize);
  iovec data{bytes.data(), bytes.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_name = const_cast<sockaddr*>(address.get());
  message.msg_namelen = UnixAddress::size();
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &connection, sizeof connection);
  while (sendmsg(sending.fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
    if (errno != EINTR) return errno == EWOULDBLOCK ? EAGAIN : errno;
  return 0;
}

bool take_caller(int listener, Admitted* admitted, int* connection) {
  for (;;) {
    std::array<uint8_t, kSize + 1> bytes;
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int)) + CMSG_SPACE(sizeof(ucred))] = {};
    iovec data{bytes.data(), bytes.size()};
    msghdr message{};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    const ssize_t got = recvmsg(listener, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return false;
    Descriptor passed;
    if (!read_attached(&message, &passed) || passed.fd < 0 || got != kSize) continue;
    const auto hello = std::span<const uint8_t>(bytes).first<kHelloSize>();
    if (decode(hello, &admitted->hello) != Refusal::kNone) continue;
    std::copy_n(bytes.begin() + kHelloSize, sizeof(Digest), admitted->transcript.begin());
    *connection = std::exchange(passed.fd, -1);
    keep_from_children(*connection);
    return true;
  }
}

}  // namespace verbena::wire
