// SPDX-License-Identifier: BSD-2-Clause
#include "engine/roce_transport/port_sharing.h"

#include <errno.h>
#include <sys/socket.h>
#include <time.h>

#include <array>
#include <cstring>

#include "adapter/clock.h"
#include "fabric/node.h"
#include "fabric/node_directory.h"
#include "fabric/service_socket.h"

namespace verbena {
namespace {

// Two processes that begin at once find each other in this time; so does one that follows another that ends.
constexpr int64_t kOpenPatience = 3'000'000'000;
constexpr int kReplyPatience = 200;  // ms; a process that is stopped replies later, or never
constexpr timespec kBeforeNextTry{0, 5'000'000};
// A process that has not taken a connection is not asked again sooner.
constexpr int64_t kCallAgain = 100'000'000;
// The kernel takes less if net.core.wmem_max is less.
constexpr int kForwardBuffer = 4 << 20;

std::span<const uint8_t> bytes_in(const PacketsCall& call) {
  return {reinterpret_cast<const uint8_t*>(&call), sizeof call};
}

bool ask_for_port(const NodeMembership& membership, uint32_t slot, uint32_t generation, uint32_t index,
                  Descriptor* out) {
  MessageSocket connection;
  const PacketsCall call{PacketsCall::Kind::kSocket, index};
  if (call_service(slot_address(membership.directory(), membership.node(), slot, generation),
                   ServiceNumber::kPackets, bytes_in(call), &connection) != 0)
    return false;
  connection.wait(kReplyPatience);
  std::array<uint8_t, sizeof call> reply;
  std::array<Descriptor, 1> passed;
  if (connection.receive(reply, passed) != sizeof call || passed[0].fd < 0) return false;
  out->reset(passed[0].release());
  return true;
}

bool ask_all_for_port(const NodeMembership& membership, uint32_t index, Descriptor* out) {
  const NodeDirectory& directory = membership.directory();
  for (uint32_t slot = 0; slot < kMaxSlots; ++slot) {
    const uint32_t generation = directory.slot(slot).generation.load(std::memory_order_acquire);
    if (slot != membership.slot() && directory.alive(slot, generation) &&
        ask_for_port(membership, slot, generation, index, out))
      return true;
  }
  return false;
}

}  // namespace

int open_shared_port(const NodeMembership& membership, uint32_t index, const wire::NetAddress& address,
                     udp::RoceSocket* out, std::string* problem) {
  const int64_t give_up_at = now_ns() + kOpenPatience;
  for (;;) {
    Descriptor passed;
    if (ask_all_for_port(membership, index, &passed) &&
        out->adopt(passed.release(), address, udp::kRocePort) == 0)
      return 0;
    const int error = out->open(address, udp::kRocePort, problem);
    if (error != EADDRINUSE || now_ns() > give_up_at) return error;
    nanosleep(&kBeforeNextTry, nullptr);
  }
}

bool PacketForwarder::forward(uint32_t qpn, const ForwardedPacket& way, std::span<const uint8_t> datagram) {
  QpnEntry found;
  if (!process_.directory().find_qpn(qpn, &found)) return false;
  Neighbour* const neighbour = reach(found.slot);
  if (neighbour != nullptr && neighbour->is_new) let_take(*neighbour);
  pass_on(neighbour, way, datagram);
  return true;
}

void PacketForwarder::forward_to_all(const ForwardedPacket& way, std::span<const uint8_t> datagram) {
  const NodeDirectory& directory = process_.directory();
  for (uint32_t slot = 0; slot < kMaxSlots; ++slot)
    if (slot != process_.membership().slot() &&
        directory.alive(slot, directory.slot(slot).generation.load(std::memory_order_acquire)))
      forward_to(slot, way, datagram);
}

void PacketForwarder::forward_to(uint32_t slot, const ForwardedPacket& way,
                                 std::span<const uint8_t> datagram) {
  pass_on(reach(slot), way, datagram);
}

PacketForwarder::Neighbour* PacketForwarder::reach(uint32_t slot) {
  const NodeMembership& membership = process_.membership();
  const NodeDirectory& directory = membership.directory();
  if (slot == membership.slot() || slot >= kMaxSlots) return nullptr;
  const uint32_t generation = directory.slot(slot).generation.load(std::memory_order_acquire);
  Neighbour& neighbour = neighbours_[slot];
  if (neighbour.connection.is_open() && neighbour.generation == generation) return &neighbour;
  if (neighbour.generation == generation && now_ns() < neighbour.call_again_at) return nullptr;
  neighbour.generation = generation;
  neighbour.call_again_at = now_ns() + kCallAgain;
  neighbour.is_new = true;
  neighbour.connection.close();
  if (call_service(slot_address(directory, membership.node(), slot, generation), ServiceNumber::kPackets,
                   bytes_in({PacketsCall::Kind::kForward, 0}), &neighbour.connection) != 0) {
    neighbour.connection.close();
    return nullptr;
  }
  setsockopt(neighbour.connection.fd(), SOL_SOCKET, SO_SNDBUF, &kForwardBuffer, sizeof kForwardBuffer);
  return &neighbour;
}

// Once: a process that is stopped must not stop this one.
void PacketForwarder::let_take(Neighbour& neighbour) {
  neighbour.is_new = false;
  std::array<uint8_t, 1> reply;
  if (neighbour.connection.receive(reply) == -EAGAIN) neighbour.connection.wait(kTakePatience);
}

void PacketForwarder::pass_on(Neighbour* neighbour, const ForwardedPacket& way,
                              std::span<const uint8_t> datagram) {
  if (datagram.size() > roce::kMaxPacket) return;
  if (neighbour == nullptr) {
    process_.directory().count_drop(PacketDrop::kNotPassedOn);
    return;
  }
  std::array<uint8_t, kForwardedBytes> message;
  ForwardedPacket stamped = way;
  stamped.read_at = now_ns();
  std::memcpy(message.data(), &stamped, sizeof stamped);
  std::memcpy(message.data() + sizeof way, datagram.data(), datagram.size());
  const int error = neighbour->connection.send(std::span(message).first(sizeof way + datagram.size()));
  if (error == 0) return;
  process_.directory().count_drop(PacketDrop::kNotPassedOn);
  if (error != EAGAIN) neighbour->connection.close();
}

}  // namespace verbena
