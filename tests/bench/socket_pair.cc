// SPDX-License-Identifier: BSD-2-Clause
//
// Yardsticks of our own between two processes, which may be in different network namespaces: what plain
// sockets do over the same link. Prints one line of JSON at the client.
//
//   verbena_bench_socket_pair MEASURE --port P [options]        the server
//   verbena_bench_socket_pair MEASURE --port P [options] HOST   the client, which measures
//
//   udp_ping_pong      datagrams there and back, one at a time, both ends polling: half round trips
//   tcp_stream         one stream from the client to the server, which reads what is there
//
//   --size BYTES       of a datagram (8), or of one send() of the stream
//   --count N          datagrams there and back (50000), or send() calls; before them go 1,000
//
// The two agree over a TCP connection to port P; the stream is that connection. A datagram that is lost ends
// the program. Sources: udp(7), tcp(7).
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "talk.h"

namespace verbena::bench {
namespace {

constexpr unsigned kTimeLimitSeconds = 60;
constexpr uint64_t kWarmUp = 1000;

struct Options {
  std::string measure;
  std::string host;  // empty: the server
  std::string port;
  uint64_t size = 8;
  uint64_t count = 50000;
};

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// A UDP socket at the address of this end of `talk`, connected to that of the other.
int connected_datagrams(Talk& talk) {
  sockaddr_storage name{};
  socklen_t length = sizeof name;
  if (getsockname(talk.fd(), reinterpret_cast<sockaddr*>(&name), &length) != 0) die("getsockname", errno);
  auto* const port = name.ss_family == AF_INET ? &reinterpret_cast<sockaddr_in&>(name).sin_port
                                               : &reinterpret_cast<sockaddr_in6&>(name).sin6_port;
  *port = 0;
  const int fd = socket(name.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0 || bind(fd, reinterpret_cast<sockaddr*>(&name), length) != 0 ||
      getsockname(fd, reinterpret_cast<sockaddr*>(&name), &length) != 0)
    die("bind", errno);
  const uint16_t others = talk.exchange(*port);
  if (getpeername(talk.fd(), reinterpret_cast<sockaddr*>(&name), &length) != 0) die("getpeername", errno);
  *port = others;
  if (connect(fd, reinterpret_cast<sockaddr*>(&name), length) != 0) die("connect", errno);
  return fd;
}

void poll_datagram(int fd, std::vector<char>& bytes) {
  while (recv(fd, bytes.data(), bytes.size(), MSG_DONTWAIT) < 0)
    if (errno != EAGAIN) die("recv", errno);
}

void send_datagram(int fd, const std::vector<char>& bytes) {
  if (send(fd, bytes.data(), bytes.size(), 0) < 0) die("send", errno);
}

void ping_pong(const Options& options, Talk& talk) {
  const int fd = connected_datagrams(talk);
  std::vector<char> bytes(options.size, 1);
  talk.exchange(char{0});  // both sockets are connected
  std::vector<double> samples;
  samples.reserve(options.count);
  for (uint64_t i = 0; i < options.count + kWarmUp; ++i) {
    if (options.host.empty()) {
      poll_datagram(fd, bytes);
      send_datagram(fd, bytes);
      continue;
    }
    const auto begin = Clock::now();
    send_datagram(fd, bytes);
    poll_datagram(fd, bytes);
    if (i >= kWarmUp) samples.push_back(seconds_since(begin) * 1e6 / 2);
  }
  if (options.host.empty()) return;
  std::sort(samples.begin(), samples.end());
  double sum = 0;
  for (const double each : samples) sum += each;
  std::printf("{\"median_us\": %.4f, \"mean_us\": %.4f, \"min_us\": %.4f}\n", samples[samples.size() / 2],
              sum / static_cast<double>(samples.size()), samples.front());
}

void send_stream(int fd, const std::vector<char>& bytes, uint64_t times) {
  for (; times > 0; --times)
    for (size_t done = 0; done < bytes.size();) {
      const ssize_t sent = send(fd, bytes.data() + done, bytes.size() - done, MSG_NOSIGNAL);
      if (sent <= 0) die("send", errno);
      done += static_cast<size_t>(sent);
    }
}

void stream(const Options& options, Talk& talk) {
  std::vector<char> bytes(options.size, 1);
  if (!options.host.empty()) {
    send_stream(talk.fd(), bytes, std::min(kWarmUp, options.count));
    const auto begin = Clock::now();
    send_stream(talk.fd(), bytes, options.count);
    if (shutdown(talk.fd(), SHUT_WR) != 0) die("shutdown", errno);
    char end;
    if (recv(talk.fd(), &end, 1, 0) != 0) die("recv", errno);  // the server has read everything
    const double seconds = seconds_since(begin);
    const double total = static_cast<double>(options.size * options.count);
    std::printf("{\"gbytes_per_second\": %.4f, \"gbytes\": %.4f}\n", total / seconds / 1e9, total / 1e9);
    return;
  }
  ssize_t got;
  while ((got = recv(talk.fd(), bytes.data(), bytes.size(), 0)) > 0) {
  }
  if (got < 0) die("recv", errno);
}

[[noreturn]] void usage() {
  std::fprintf(
      stderr,
      "usage: verbena_bench_socket_pair udp_ping_pong|tcp_stream --port P [--size BYTES] [--count N] "
      "[HOST]\n");
  std::exit(2);
}

Options parse(int argc, char** argv) {
  Options options;
  if (argc < 2) usage();
  options.measure = argv[1];
  int i = 2;
  for (; i + 1 < argc && argv[i][0] == '-'; i += 2) {
    const std::string_view name = argv[i];
    if (name == "--port")
      options.port = argv[i + 1];
    else if (name == "--size")
      options.size = std::strtoull(argv[i + 1], nullptr, 10);
    else if (name == "--count")
      options.count = std::strtoull(argv[i + 1], nullptr, 10);
    else
      usage();
  }
  if (i < argc) options.host = argv[i++];
  if (i != argc || options.port.empty() || options.size == 0 || options.count == 0) usage();
  return options;
}

int run(int argc, char** argv) {
  const Options options = parse(argc, argv);
  alarm(kTimeLimitSeconds);
  Talk talk(options.host, options.port);
  if (options.measure == "udp_ping_pong")
    ping_pong(options, talk);
  else if (options.measure == "tcp_stream")
    stream(options, talk);
  else
    usage();
  return 0;
}

}  // namespace
}  // namespace verbena::bench

int main(int argc, char** argv) { return verbena::bench::run(argc, argv); }
