// SPDX-License-Identifier: BSD-2-Clause
#include "wire/connection_passing.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "fabric/descriptor.h"
#include "fabric/fd_passing.h"
#include "fabric/fork_descriptors.h"
#include "fabric/unix_address.h"

namespace verbena::wire {
namespace {

constexpr const char* kSocketName = "connections";
constexpr size_t kSize = kHelloSize + sizeof(Digest);

}  // namespace

int listen_for_passed_connections(const std::string& folder) {
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
  return bound.release();
}

int pass_connection(const std::string& folder, const Admitted& admitted, int connection) {
  UnixAddress address;
  if (const int error = address.set(folder, kSocketName); error != 0) return error;
  const Descriptor sending{socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
  if (sending.fd < 0) return errno;
  std::array<uint8_t, kSize> bytes;
  const auto hello = encode(admitted.hello);
  std::copy(hello.begin(), hello.end(), bytes.begin());
  std::copy(admitted.transcript.begin(), admitted.transcript.end(), bytes.begin() + kHelloSize);
  if (connect(sending.fd, address.get(), UnixAddress::size()) != 0) return errno;
  const int error = pass_fds(sending.fd, bytes.data(), bytes.size(), &connection, 1, MSG_DONTWAIT);
  return error == EWOULDBLOCK ? EAGAIN : error;
}

bool take_passed_connection(int listener, Admitted* admitted, int* connection) {
  for (;;) {
    std::array<uint8_t, kSize + 1> bytes;
    Descriptor passed;
    const ssize_t got = receive_attached(listener, bytes.data(), bytes.size(), &passed);
    if (got < 0 && errno != EPERM && errno != EMSGSIZE) return false;
    if (got != kSize || passed.fd < 0) continue;
    const auto hello = std::span<const uint8_t>(bytes).first<kHelloSize>();
    if (decode(hello, &admitted->hello) != Refusal::kNone) continue;
    std::copy_n(bytes.begin() + kHelloSize, sizeof(Digest), admitted->transcript.begin());
    *connection = passed.release();
    keep_from_children(*connection);
    return true;
  }
}

}  // namespace verbena::wire
