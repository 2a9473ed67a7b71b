// SPDX-License-Identifier: BSD-2-Clause
#include "engine/roce_transport/packet_sender.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include <array>

#include "fabric/fork_descriptors.h"
#include "observe/log.h"
#include "observe/observer.h"

namespace verbena {
namespace {

// Source ports of RoCE v2 lie here (Annex A17, A17.3.2; the kernel's rdma_flow_label_to_udp_sport()).
constexpr uint16_t kFirstPort = 0xc000;
constexpr uint8_t kHopLimit = 64;  // ip(7), ip_default_ttl
constexpr unsigned kPorts = 0x4000, kPortTries = 64;

}  // namespace

int PacketSender::open(const wire::NetAddress& address, std::string* problem) {
  const auto pid = static_cast<unsigned>(getpid());
  int error = EADDRINUSE;
  for (unsigned i = 0; i < kPortTries && error == EADDRINUSE; ++i) {
    const unsigned port = kFirstPort + (pid * 61 + i * 97) % kPorts;
    error = socket_.open(address, static_cast<uint16_t>(port), problem);
  }
  if (error == EADDRINUSE) error = socket_.open(address, 0, problem);
  if (error == 0) keep_from_children(socket_.fd());
  return error;
}

bool PacketSender::send(const wire::NetAddress& to, const roce::Packet& packet) {
  std::array<uint8_t, roce::kMaxPacket> bytes;
  const size_t size = roce::write(packet, bytes);
  if (size == 0) return true;
  const int error = socket_.send({to, udp::kRocePort}, std::span(bytes).first(size + roce::kIcrcSize));
  if (error == 0) {
    if (Observer* const seen = observer(); seen != nullptr) [[unlikely]] {
      PacketRoute route;
      route.source = address().bytes;
      route.destination = to.bytes;
      route.hop_limit = kHopLimit;
      seen->on_packet({route, socket_.own().port, std::span(bytes).first(size)});
    }
    return true;
  }
  if (error == EAGAIN || error == ENOBUFS) return false;
  if (const uint32_t count = refused_.fetch_add(1, std::memory_order_relaxed); (count & (count + 1)) == 0)
    VERBENA_WARN(roce_not_sent, "a RoCE packet of %zu bytes from %s to %s is not sent: %s%s", size,
                 address().text().c_str(), to.text().c_str(), strerror(error),
                 error == EMSGSIZE ? ": the path MTU of the queue pair is more than the network takes" : "");
  return true;
}

}  // namespace verbena
