// SPDX-License-Identifier: BSD-2-Clause
//
// verbena doctor --peer: connects to another node step by step, as a process that uses the network does.
#include <errno.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>

#include "adapter/clock.h"
#include "fabric/descriptor.h"
#include "fabric/node.h"
#include "tool/finding.h"
#include "tool/resolve_host.h"
#include "wire/handshake.h"
#include "wire/key.h"

namespace verbena::tool {
namespace {

using wire::InitiatorHandshake;
using wire::NetAddress;
using wire::Refusal;

constexpr int kPatienceMs = 3000;

int wait_for(int fd, short events) {
  pollfd watched{fd, events, 0};
  const int ready = poll(&watched, 1, kPatienceMs);
  return ready > 0 ? 0 : ready == 0 ? ETIMEDOUT : errno;
}

// Connects from address `from`, unless it is all zero.
int connect_to(const NetAddress& to, uint16_t port, const NetAddress& from, int fd) {
  sockaddr_storage where;
  if (from != NetAddress{}) {
    const socklen_t size = from.to_socket_address(0, &where);
    if (bind(fd, reinterpret_cast<const sockaddr*>(&where), size) != 0) return errno;
  }
  const socklen_t size = to.to_socket_address(port, &where);
  if (connect(fd, reinterpret_cast<const sockaddr*>(&where), size) == 0) return 0;
  if (errno != EINPROGRESS) return errno;
  if (const int error = wait_for(fd, POLLOUT); error != 0) return error;
  int error = 0;
  socklen_t length = sizeof error;
  getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length);
  return error;
}

template <size_t size>
Refusal receive(int fd, std::array<uint8_t, size>* out) {
  for (size_t filled = 0; filled < size;) {
    if (wait_for(fd, POLLIN) != 0) return Refusal::kSilent;
    const ssize_t got = recv(fd, out->data() + filled, size - filled, MSG_DONTWAIT);
    if (got <= 0) return Refusal::kClosed;
    filled += static_cast<size_t>(got);
  }
  return Refusal::kNone;
}

struct Shaken {
  Refusal refusal = Refusal::kNone;
  uint32_t their_version = 0;
  int64_t nanoseconds = 0;  // between the hello and its reply
  uint64_t node = 0;
};

Shaken shake_hands(int fd, const NetworkKey& key, const NetAddress& to) {
  wire::Hello hello;
  hello.to = to;
  hello.target = wire::Target::greeting();
  hello.initiator.generation = 1;
  sockaddr_storage own{};
  socklen_t size = sizeof own;
  getsockname(fd, reinterpret_cast<sockaddr*>(&own), &size);
  NetAddress::from_socket_address(own, &hello.from);
  if (getrandom(&hello.initiator.node, sizeof hello.initiator.node, 0) < 0 ||
      getrandom(hello.nonce.data(), hello.nonce.size(), 0) < 0)
    return {Refusal::kNoResources};
  InitiatorHandshake handshake(key, hello);
  const int64_t begun = now_ns();
  send(fd, handshake.hello().data(), handshake.hello().size(), MSG_NOSIGNAL);
  std::array<uint8_t, wire::kChallengeSize> challenge;
  if (const Refusal refusal = receive(fd, &challenge); refusal != Refusal::kNone) return {refusal};
  const int64_t answered = now_ns() - begun;
  handshake.challenge_arrived(challenge);
  if (handshake.step() == InitiatorHandshake::Step::kWelcome || handshake.refusal() == Refusal::kKey)
    send(fd, handshake.proof().data(), handshake.proof().size(), MSG_NOSIGNAL);
  if (handshake.step() == InitiatorHandshake::Step::kWelcome) {
    std::array<uint8_t, wire::kWelcomeSize> welcome;
    if (const Refusal refusal = receive(fd, &welcome); refusal != Refusal::kNone) return {refusal};
    handshake.welcome_arrived(welcome);
  }
  return {handshake.refusal(), handshake.their_version(), answered, handshake.welcomer().node};
}

const char* remedy_of(Refusal refusal) {
  switch (refusal) {
    case Refusal::kVersion:
      return "install the same version of Verbena on both machines";
    case Refusal::kKey:
      return "copy one key file to both machines and name it with --key FILE on both, here as well";
    case Refusal::kAddress:
      return "start the programs there with --ip and this address (or --net), or ask for an address that "
             "they have";
    case Refusal::kSilent:
      return "the process that was to answer may be stopped: verbena status, on that machine";
    case Refusal::kMalformed:
      return "another program listens there: take another port for the fabric, with --port on all nodes";
    default:
      return "try again; what programs there say with VERBENA_LOG=warn tells more";
  }
}

}  // namespace

void examine_peer(const PeerProbe& probe, Findings* findings) {
  const auto add = [&](Verdict verdict, const std::string& what, const std::string& remedy) {
    findings->push_back({verdict, "peer " + probe.host, what, remedy});
  };
  NetAddress to;
  std::string problem;
  if (!resolve_host(probe.host, AF_UNSPEC, &to, &problem))
    return add(Verdict::kBad, "is no address, and no name that resolves: " + problem, "give its IP address");
  NetworkKey key;
  const int bad_key = probe.key_file.empty() ? wire::user_key(nodes_folder(), &key, &problem)
                                             : wire::read_key(probe.key_file, &key, &problem);
  if (bad_key != 0) return add(Verdict::kBad, problem, "verbena key FILE makes one");

  const Descriptor socket{
      ::socket(to.is_ipv4() ? AF_INET : AF_INET6, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)};
  if (socket.fd < 0) return add(Verdict::kBad, std::strerror(errno), "");
  const int error = connect_to(to, probe.port, probe.from, socket.fd);
  const std::string port = "port " + std::to_string(probe.port);
  if (error == ECONNREFUSED)
    return add(Verdict::kBad, fmt::format("{} can be reached, but nobody listens at its {}", to.text(), port),
               "a node listens while a program uses its device: start one there with --ip " + to.text() +
                   ", and the same --port as here");
  if (error == ETIMEDOUT)
    return add(Verdict::kBad, fmt::format("{} {} does not answer", to.text(), port),
               "is the machine up, and does a firewall on the way let TCP " + port + " pass?");
  if (error != 0)
    return add(Verdict::kBad, fmt::format("{} cannot be reached: {}", to.text(), std::strerror(error)),
               error == EADDRNOTAVAIL
                   ? "--ip has to name an address of this machine"
                   : "ip route get " + to.text() + " says how this machine would go there");
  const Shaken shaken = shake_hands(socket.fd, key, to);
  if (shaken.refusal == Refusal::kNone)
    return add(Verdict::kGood,
               fmt::format("{} {} answers in {:.2f} ms, has the same key, and is node {:016x}", to.text(),
                           port, static_cast<double>(shaken.nanoseconds) / 1e6, shaken.node),
               "");
  std::string what = wire::words(shaken.refusal);
  if (shaken.refusal == Refusal::kVersion)
    what += fmt::format(" (theirs {}, ours {})", shaken.their_version, wire::kProtocolVersion);
  add(Verdict::kBad, fmt::format("{} {}: {}", to.text(), port, what), remedy_of(shaken.refusal));
}

}  // namespace verbena::tool
