// SPDX-License-Identifier: BSD-2-Clause
//
// Any bytes from another machine: to both sides of the handshake by themselves, and to a whole connection
// listener over its TCP port. No crash; a peer without the key is refused, and a peer with it is still
// admitted.
#include "wire/handshake.h"

#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "fabric/node_membership.h"
#include "input.h"
#include "loopback_node.h"
#include "wire/connection_listener.h"

namespace verbena::fuzz {
namespace {

using namespace wire;

constexpr uint16_t kPort = 47918;
// Whom the connections without the key claim to be.
constexpr ProcessId kStranger{1, 2, 3};
// A peer with the key is admitted within so many seconds, also where hundreds of processes want the
// processor: a listener that does not reply is left after 0.25 s at first, later after up to 8 s, and tried
// again.
constexpr int kPatience = 100;

int64_t seconds_from_now(int64_t seconds) {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (t.tv_sec + seconds) * 1'000'000'000 + t.tv_nsec;
}

// A process of a node of its own.
struct Inhabitant final : ConnectionObserver {
  Inhabitant(const std::string& folder, uint8_t last) {
    const std::string node = make_node(folder, last, kPort);
    require(membership.enter(node, &Inhabitant::serve, this) == 0, "a process can live on the node");
    std::string problem;
    const bool opened = connection_listener.open(membership, *this, &problem) == 0;
    require(opened, problem.c_str());
    open.store(true);
    membership.kick();
  }
  static int64_t serve(void* self) {
    auto* here = static_cast<Inhabitant*>(self);
    if (!here->open.load()) return -1;
    const int64_t next = here->connection_listener.serve();
    return next == INT64_MAX ? -1 : std::max<int64_t>(next - seconds_from_now(0), 0);
  }
  void arrived(const EstablishedConnection& arrived) override {
    close(arrived.fd);
    if (arrived.begun_here) connected.fetch_add(1);
    if (!arrived.begun_here && arrived.peer == kStranger) strangers.fetch_add(1);
  }
  void failed(uint64_t, Refusal refusal) override {
    last_refusal.store(refusal);
    failures.fetch_add(1);
  }

  NodeMembership membership;
  wire::ConnectionListener connection_listener;
  std::atomic<bool> open{false};
  std::atomic<uint64_t> connected{0}, failures{0};  // requests of this process that have ended
  std::atomic<uint64_t> strangers{0};               // connections of kStranger
  std::atomic<Refusal> last_refusal{Refusal::kNone};
};

// One of each, as long as the process.
struct Scene {
  Scene() {
    folder = make_folder();
    here = new Inhabitant(folder, 2);
    there = new Inhabitant(folder, 3);
  }
  ~Scene() {
    std::error_code ignored;
    std::filesystem::remove_all(folder, ignored);
  }
  std::string folder;
  Inhabitant *here, *there;
};

// Bytes of the input, or the message that the protocol expects with some bytes changed.
template <size_t size>
std::array<uint8_t, size> mixed(Input& input, const std::array<uint8_t, size>& proper) {
  std::array<uint8_t, size> bytes = proper;
  const uint8_t how = input.below(4);
  if (how == 0) input.take(bytes.data(), size);
  for (uint8_t i = 0; i < how && how < 3; ++i) bytes[input.take<uint16_t>() % size] ^= input.byte();
  return bytes;
}

void shake(Input& input) {
  const NetworkKey key = fabric_key();
  Hello hello{{1, 2, 3}, loopback(2), loopback(3), Target::queue_pair(input.take<uint32_t>() & 0xffffff), {}};
  input.take(hello.nonce.data(), 4);
  InitiatorHandshake caller(key, hello);
  ResponderHandshake called(key, Nonce{});
  const NetAddress own[] = {loopback(3)};
  const auto said = mixed(input, caller.hello());
  called.hello_arrived(said, 9, own);
  const auto challenge = mixed(input, called.challenge());
  caller.challenge_arrived(challenge);
  const auto proof = mixed(input, caller.proof());
  called.proof_arrived(proof);
  const bool whole = said == caller.hello() && challenge == called.challenge() && proof == caller.proof();
  require(whole == (called.step() == ResponderHandshake::Step::kAdmitted), "a changed byte is refused");
  if (!whole) return;
  const auto answer = welcome(key, called.admitted().transcript, {9, 1, 1}, Refusal::kNone);
  const auto heard = mixed(input, answer);
  caller.welcome_arrived(heard);
  require(!(caller.step() == InitiatorHandshake::Step::kDone) || heard == answer,
          "a changed welcome is refused");
}

void knock(const Scene& scene, Input& input) {
  sockaddr_storage where;
  const socklen_t size = loopback(3).to_socket_address(kPort, &where);
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const linger at_once{1, 0};  // no connections left in TIME_WAIT
  setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  if (connect(fd, reinterpret_cast<const sockaddr*>(&where), size) == 0) {
    const Hello hello{kStranger, loopback(2), loopback(3), Target::any_process(), {}};
    const auto said = mixed(input, encode(hello));
    const size_t cut = input.byte() % 3 == 0 ? input.byte() % kHelloSize : kHelloSize;
    [[maybe_unused]] ssize_t done = send(fd, said.data(), cut, MSG_NOSIGNAL);
    std::array<uint8_t, kProofSize> proof{};
    if (input.byte() % 2 == 0) input.take(proof.data(), proof.size());
    done = send(fd, proof.data(), input.byte() % (kProofSize + 1), MSG_NOSIGNAL);
  }
  close(fd);
  require(scene.there->strangers.load() == 0, "a stranger is not let in");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static Scene scene;
  Input input(data, size);
  for (int i = 0; i < 8 && !input.empty(); ++i) shake(input);
  knock(scene, input);
  if (input.byte() % 32 != 0) return 0;
  // A peer with the key is admitted all the same. The listener may have admitted several attempts of one
  // request, if this process was not scheduled in time to read the reply to the first.
  const uint64_t connected = scene.here->connected.load(), failed = scene.here->failures.load();
  scene.here->connection_listener.connect(loopback(3), {}, Target::any_process(),
                                          seconds_from_now(kPatience));
  const int64_t end = seconds_from_now(kPatience + 10);
  const auto has_ended = [&] {
    return scene.here->connected.load() != connected || scene.here->failures.load() != failed;
  };
  while (!has_ended() && seconds_from_now(0) < end) usleep(1000);
  require(scene.here->failures.load() == failed, words(scene.here->last_refusal.load()));
  require(scene.here->connected.load() == connected + 1, "a peer with the key is admitted");
  return 0;
}

}  // namespace verbena::fuzz
