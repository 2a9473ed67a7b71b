// SPDX-License-Identifier: BSD-2-Clause
//
// Any bytes from a peer that has the fabric's key: to the decoder of frames by itself, and over connections
// to a process that has queue pairs of each kind connected to that peer, members of multicast groups, and a
// connection manager.
// - No crash, and every wait ends.
// - Memory without remote rights neither changes nor is disclosed.
// - An honest peer is served.
#include "wire/frame.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <vector>

#include "attack.h"
#include "cm_attack.h"
#include "engine/datagram/multicast.h"
#include "fabric/node_membership.h"
#include "honest_peer.h"
#include "input.h"
#include "loopback_node.h"
#include "victim.h"
#include "wire/multicast_channel.h"

namespace verbena::fuzz {
namespace {

using namespace wire;

void decode_any(const uint8_t* data, size_t size) {
  const auto* bytes = reinterpret_cast<const std::byte*>(data);
  Frame frame;
  if (decode(bytes, size, &frame) != Decoded::kFrame) return;
  require(frame.head_size <= size, "a frame's head is there as a whole");
  require(frame.head.start.length == frame.head_size + frame.payload, "a frame is its head and its bytes");
  if (frame.head.start.kind == FrameKind::kRequest) {
    const RequestHead& head = frame.head.request;
    require(uint64_t{head.offset} + frame.payload <= head.size, "bytes lie within their message");
    require(frame.payload <= kChunkBytes && head.size <= wire::kMaxMessage, "messages are bounded");
  }
  Frame part;
  for (size_t i = 0; i < frame.head_size; ++i)
    require(decode(bytes, i, &part) != Decoded::kFrame, "part of a head is no frame");
}

// A process of another node that sends to all groups, and a sender to them without the key.
class MulticastMember {
 public:
  explicit MulticastMember(const Victim& victim)
      : victim_(victim), unsigned_(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    require(membership_.enter(make_node(victim.folder(), kMulticastMember, kPort), nullptr, nullptr) == 0,
            "a process can live on the node");
    require(multicast_channel_.open(membership_) == 0, "a process can speak to groups");
    const in_addr interface { htonl(INADDR_LOOPBACK) };
    setsockopt(unsigned_, IPPROTO_IP, IP_MULTICAST_IF, &interface, sizeof interface);
  }
  MulticastMember(const MulticastMember&) = delete;
  MulticastMember& operator=(const MulticastMember&) = delete;

  void speak(Input& input) {
    for (uint8_t i = input.below(8); i > 0; --i) {
      DatagramHead head{};
      head.kind = input.below(8) == 0 ? static_cast<FrameKind>(input.below(13)) : FrameKind::kDatagram;
      head.target_qpn = input.below(8) == 0 ? input.take<uint32_t>() : kMulticastQpn;
      head.source_qpn = theirs(input.below(4));
      head.qkey = input.below(8) == 0 ? input.byte() : kQkey;
      head.flags = input.byte();
      std::memcpy(head.destination, victim_.group.raw, 16);
      if (input.below(8) == 0) head.destination[input.below(16)] ^= input.byte();
      std::vector<uint8_t> message(sizeof head + input.below(2) * 40u + input.take<uint16_t>() % 5000, input.byte());
      head.length = static_cast<uint32_t>(message.size() + (input.below(8) == 0 ? input.below(3) : 0));
      std::memcpy(message.data(), &head, sizeof head);
      decode_any(message.data(), message.size());
      if (input.below(4) != 0)
        multicast_channel_.send(loopback(kMulticastMember), message);
      else
        speak_unsigned(input, message);
    }
  }

 private:
  // The head of multicast_channel.cc is 64 bytes.
  void speak_unsigned(Input& input, const std::vector<uint8_t>& message) {
    std::vector<uint8_t> bytes(64);
    input.take(bytes.data(), bytes.size());
    if (input.below(2) == 0) std::memcpy(bytes.data(), "VMCT\2\0\0\0", 8);
    bytes.insert(bytes.end(), message.begin(), message.end());
    bytes.resize(1 + input.take<uint16_t>() % bytes.size());
    sockaddr_in group{};
    group.sin_family = AF_INET;
    group.sin_port = htons(kPort);
    group.sin_addr.s_addr = htonl(0xefc00000u | kPort);
    [[maybe_unused]] const ssize_t sent = sendto(unsigned_, bytes.data(), bytes.size(), MSG_DONTWAIT,
                                                 reinterpret_cast<const sockaddr*>(&group), sizeof group);
  }

  const Victim& victim_;
  NodeMembership membership_;
  MulticastChannel multicast_channel_;
  const int unsigned_;
};

// Never destroyed: its threads work as long as the process.
struct Scene {
  Victim victim;
  CmVictim connections;
  HonestPeer honest{victim};
  MulticastMember multicast_channel{victim};
  uint64_t runs = 0;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static Scene& scene = *new Scene;
  static const RemoveAtExit folder{scene.victim.folder()};
  decode_any(data, size);
  Input input(data, size);
  ++scene.runs;
  if (input.below(16) == 0) {
    attack_cm(scene.connections, input);
  } else {
    scene.victim.begin_again();
    Attack attack(scene.victim, input, scene.runs);
    for (int i = 0; i < 256 && !input.empty() && attack.step(); ++i) {
      decode_any(attack.last().data(), attack.last().size());
      if (input.below(32) == 0) scene.multicast_channel.speak(input);
    }
    attack.settle();
  }
  scene.victim.poll();
  if (scene.runs % 8 == 0) scene.honest.require_served();
  scene.victim.require_untouched();
  return 0;
}

}  // namespace verbena::fuzz
