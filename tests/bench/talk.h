// SPDX-License-Identifier: BSD-2-Clause
//
// The TCP connection over which the two processes of a measure prepare it: server and client send each other
// values of the same type. Ends the program with a message when something fails; getaddrinfo(3), tcp(7).
#pragma once

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <type_traits>

namespace verbena::bench {

[[noreturn]] inline void die(const char* what, const char* why) {
  std::fprintf(stderr, "%s: %s failed: %s\n", program_invocation_short_name, what, why);
  std::exit(1);
}

[[noreturn]] inline void die(const char* what, int error) { die(what, std::strerror(error)); }

class Talk {
 public:
  // With a host: the client, which connects to it. Without one: the server, which accepts one connection by
  // `family`.
  Talk(const std::string& host, const std::string& port, int family = AF_INET)
      : fd_(host.empty() ? accept_one(port, family) : call(host, port)) {}
  ~Talk() { close(fd_); }
  Talk(const Talk&) = delete;
  Talk& operator=(const Talk&) = delete;

  // This end's address as text, in numbers.
  std::string address() const {
    sockaddr_storage name{};
    socklen_t size = sizeof name;
    char host[NI_MAXHOST];
    auto* any = reinterpret_cast<sockaddr*>(&name);
    if (getsockname(fd_, any, &size) != 0) die("getsockname", errno);
    if (const int error = getnameinfo(any, size, host, sizeof host, nullptr, 0, NI_NUMERICHOST)) {
      die("getnameinfo", gai_strerror(error));
    }
    return host;
  }

  // Sends `bytes` bytes and receives as many. At most what a socket buffers, since both sides send first.
  void exchange(const void* mine, void* others, size_t bytes) {
    if (send(fd_, mine, bytes, MSG_NOSIGNAL) != static_cast<ssize_t>(bytes)) die("send", errno);
    if (recv(fd_, others, bytes, MSG_WAITALL) != static_cast<ssize_t>(bytes))
      die("recv", "the other end has gone");
  }

  template <typename Value>
  Value exchange(const Value& mine) {
    static_assert(std::is_trivially_copyable_v<Value>);
    Value others{};
    exchange(&mine, &others, sizeof mine);
    return others;
  }

  int fd() const { return fd_; }

  bool closed_by_other() const {
    char byte;
    return recv(fd_, &byte, 1, MSG_DONTWAIT) == 0;
  }

 private:
  static int accept_one(const std::string& port, int family) {
    const int listener = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int on = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    addrinfo* name = resolve(nullptr, port, family);
    if (bind(listener, name->ai_addr, name->ai_addrlen) != 0 || listen(listener, 1) != 0)
      die("listen", errno);
    freeaddrinfo(name);
    const int fd = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    if (fd < 0) die("accept", errno);
    close(listener);
    return fd;
  }

  static int call(const std::string& host, const std::string& port) {
    addrinfo* name = resolve(host.c_str(), port, AF_UNSPEC);
    const int fd = socket(name->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(fd, name->ai_addr, name->ai_addrlen) != 0) die("connect", errno);
    freeaddrinfo(name);
    return fd;
  }

  static addrinfo* resolve(const char* host, const std::string& port, int family) {
    addrinfo hints{};
    hints.ai_family = family;
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_PASSIVE;
    addrinfo* found = nullptr;
    if (const int error = getaddrinfo(host, port.c_str(), &hints, &found))
      die("getaddrinfo", gai_strerror(error));
    return found;
  }

  int fd_;
};

}  // namespace verbena::bench
