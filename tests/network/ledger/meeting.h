// SPDX-License-Identifier: BSD-2-Clause
//
// Where the two programs of a test exchange what they need to know: a unix socket in the file system, which
// no fault of the network affects.
#pragma once

#include <sys/socket.h>

#include <cerrno>
#include <string>
#include <vector>

namespace verbena::network {

// Prints what failed, with errno, and ends the process with status 2.
[[noreturn]] void give_up(const char* what);

// The server makes the socket, prints "listening" and waits; the client connects. Returns the connection.
int meet(const std::string& path, bool serve);

template <typename T>
void tell(int fd, const std::vector<T>& values) {
  const size_t size = values.size() * sizeof(T);
  if (send(fd, values.data(), size, MSG_NOSIGNAL) != static_cast<ssize_t>(size) && errno != EPIPE &&
      errno != ECONNRESET)
    give_up("send");
}

// False: the other end has closed.
template <typename T>
bool hear(int fd, std::vector<T>& values) {
  const size_t size = values.size() * sizeof(T);
  return size == 0 || recv(fd, values.data(), size, MSG_WAITALL) == static_cast<ssize_t>(size);
}

}  // namespace verbena::network
