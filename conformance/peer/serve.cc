// SPDX-License-Identifier: BSD-2-Clause
#include "peer/serve.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <iostream>
#include <stdexcept>

#include "suite/test.h"
#include "support/device.h"
#include "support/host.h"

namespace conformance {
namespace {

constexpr int most_children = 64;

volatile sig_atomic_t ended = 0;
void end(int) { ended = 1; }
void wake_up(int) {}

void handle(int signal, void (*handler)(int)) {
  struct sigaction action = {};
  action.sa_handler = handler;
  sigaction(signal, &action, nullptr);
}

// The descriptor, or -1.
int listen_on(const addrinfo& address) {
  const int descriptor = socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (descriptor < 0) return -1;
  const int on = 1;
  setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (bind(descriptor, address.ai_addr, address.ai_addrlen) == 0 && listen(descriptor, 64) == 0)
    return descriptor;
  close(descriptor);
  return -1;
}

int open_listener(const Options& options) {
  const std::string port = std::to_string(options.tcp_port < 0 ? default_tcp_port : options.tcp_port);
  addrinfo hints = {}, *list = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  const char* node = options.bind.empty() ? nullptr : options.bind.c_str();
  if (const int error = getaddrinfo(node, port.c_str(), &hints, &list); error != 0)
    throw std::runtime_error("--bind: " + std::string(gai_strerror(error)));
  int descriptor = -1, error = 0;
  for (const addrinfo* each = list; each != nullptr && descriptor < 0; each = each->ai_next) {
    descriptor = listen_on(*each);
    error = errno;
  }
  freeaddrinfo(list);
  if (descriptor < 0) throw std::runtime_error("cannot listen on port " + port + ": " + errno_text(error));
  return descriptor;
}

void announce(int listener) {
  sockaddr_storage address = {};
  socklen_t size = sizeof address;
  char host[NI_MAXHOST], port[NI_MAXSERV];
  getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size);
  if (getnameinfo(reinterpret_cast<sockaddr*>(&address), size, host, sizeof host, port, sizeof port,
                  NI_NUMERICHOST | NI_NUMERICSERV) == 0)
    std::cout << "listening on " << host << ", port " << port << std::endl;
}

[[noreturn]] void serve_in_this_process(int descriptor, const Options& options) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  use_options(options);
  try {
    Device device(options);
    Host host(device);
    serve_stream(descriptor, host);
    _exit(0);
  } catch (const std::exception& error) {  // no device: the client sees the end of its stream
    std::cerr << "verbs-conformance --serve: " << error.what() << std::endl;
    _exit(1);
  }
}

void reap(int& children) {
  while (waitpid(-1, nullptr, WNOHANG) > 0) --children;
}

}  // namespace

void serve(const Options& options) {
  const int listener = open_listener(options);
  sigset_t blocked, before;
  sigemptyset(&blocked);
  for (const int signal : {SIGCHLD, SIGTERM, SIGINT}) sigaddset(&blocked, signal);
  sigprocmask(SIG_BLOCK, &blocked, &before);
  handle(SIGCHLD, wake_up), handle(SIGTERM, end), handle(SIGINT, end);
  announce(listener);
  for (int children = 0; ended == 0; reap(children)) {
    pollfd waiting{children < most_children ? listener : -1, POLLIN, 0};
    if (ppoll(&waiting, 1, nullptr, &before) <= 0) continue;
    const int connection = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (connection < 0) continue;
    const pid_t pid = fork();
    if (pid == 0) {
      close(listener);
      for (const int signal : {SIGCHLD, SIGTERM, SIGINT}) handle(signal, SIG_DFL);
      sigprocmask(SIG_SETMASK, &before, nullptr);
      serve_in_this_process(connection, options);
    }
    children += pid > 0;
    close(connection);
  }
  close(listener);
}

int fork_host(const Options& options) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    throw NotTested{"no socket pair: " + errno_text(errno)};
  const pid_t pid = fork();
  if (pid == 0) {
    close(ends[0]);
    serve_in_this_process(ends[1], options);
  }
  close(ends[1]);
  if (pid > 0) return ends[0];
  close(ends[0]);
  throw NotTested{"no process: " + errno_text(errno)};
}

}  // namespace conformance
