// SPDX-License-Identifier: BSD-2-Clause
#include "engine/roce_transport/packet_sender.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <array>

#include "adapter/clock.h"
#include "engine/roce_transport/source_port.h"
#include "fabric/fork_descriptors.h"
#include "observe/log.h"
#include "observe/observer.h"
#include "roce/mad.h"

namespace verbena {
namespace {

constexpr uint8_t kHopLimit = 64;  // ip(7), ip_default_ttl
constexpr unsigned kPorts = 0x4000, kPortTries = 64;

// The faults on purpose tell packets apart by their BTH.
faults::PacketKind kind_of(std::span<const uint8_t> datagram) {
  const uint8_t operation = datagram[0] & 0x1f;
  const uint32_t qpn = uint32_t{datagram[5]} << 16 | uint32_t{datagram[6]} << 8 | datagram[7];
  if (qpn == roce::kManagementQpn) return faults::PacketKind::kMad;
  const bool is_response =
      operation >= 0x0d && operation <= 0x12;  // RDMA READ response first ... ATOMIC acknowledge
  return is_response ? faults::PacketKind::kResponse : faults::PacketKind::kRequest;
}

}  // namespace

int PacketSender::open(const wire::NetAddress& address, std::string* problem) {
  const auto pid = static_cast<unsigned>(getpid());
  int error = EADDRINUSE;
  for (unsigned i = 0; i < kPortTries && error == EADDRINUSE; ++i) {
    const unsigned port = kFirstSourcePort + (pid * 61 + i * 97) % kPorts;
    error = sockets_[0].open(address, static_cast<uint16_t>(port), problem);
  }
  if (error == EADDRINUSE) error = sockets_[0].open(address, 0, problem);
  if (error != 0) return error;
  keep_from_children(sockets_[0].fd());
  trains_ = std::make_unique_for_overwrite<PacketTrain[]>(kTrains);
  return 0;
}

uint32_t PacketSender::choose_socket(uint16_t port) {
  const uint32_t index = port % kMostSockets;
  std::lock_guard lock(opening_);
  udp::RoceSocket& socket = sockets_[index];
  if (socket.fd() >= 0) return index;
  int error = socket.open(address(), port, nullptr);
  if (error == EADDRINUSE) error = socket.open(address(), 0, nullptr);
  if (error != 0) return 0;
  keep_from_children(socket.fd());
  return index;
}

// Headers are written in front of the payload, and the padding behind it.
void PacketTrain::add() {
  const roce::Packet& packet = next_.packet;
  const size_t size = roce::packet_size(packet), payload = packet.payload.size();
  const size_t headers = size - (payload + 3) / 4 * 4;
  const std::span<uint8_t> datagram(next_.space - headers, size + roce::kIcrcSize);
  if (size == 0 || roce::write(packet, datagram) == 0) return;
  datagrams_[count_++] = datagram;
  used_ += stride(size - headers);
}

PacketTrain* PacketSender::borrow() {
  for (size_t i = 0; i < kTrains; ++i) {
    PacketTrain& train = trains_[i];
    if (train.is_borrowed_.load(std::memory_order_relaxed) ||
        train.is_borrowed_.exchange(true, std::memory_order_acquire))
      continue;
    train.clear();
    return &train;
  }
  return nullptr;
}

void PacketSender::note_refused(int error, size_t size, const wire::NetAddress& to) {
  if (const uint32_t count = refused_.fetch_add(1, std::memory_order_relaxed); (count & (count + 1)) == 0)
    VERBENA_WARN(roce_not_sent, "a RoCE packet of %zu bytes from %s to %s is not sent: %s%s", size,
                 address().text().c_str(), to.text().c_str(), strerror(error),
                 error == EMSGSIZE ? ": the path MTU of the queue pair is more than the network takes" : "");
}

void PacketSender::tell_observer(uint16_t port, const wire::NetAddress& to, const udp::IpFields& fields,
                                 std::span<const uint8_t> packet) const {
  Observer* const seen = observer();
  if (seen == nullptr) [[likely]]
    return;
  PacketRoute route;
  route.source = address().bytes;
  route.destination = to.bytes;
  route.traffic_class = fields.traffic_class;
  route.flow_label = fields.flow_label;
  route.hop_limit = fields.hop_limit != 0 ? fields.hop_limit : kHopLimit;
  seen->on_packet({route, port, packet});
}

bool PacketSender::send_datagram(const wire::NetAddress& to, const udp::IpFields& fields,
                                 std::span<uint8_t> datagram, uint32_t socket) {
  const int error = sockets_[socket].send({to, udp::kRocePort}, fields, datagram);
  if (error == 0)
    tell_observer(sockets_[socket].own().port, to, fields, datagram.first(datagram.size() - roce::kIcrcSize));
  if (error == EAGAIN || error == ENOBUFS) return false;
  if (error != 0) note_refused(error, datagram.size() - roce::kIcrcSize, to);
  return true;
}

// A packet that is lost on purpose is not told to observers either: it never was on the wire.
[[gnu::cold]] bool PacketSender::send_at_risk(const wire::NetAddress& to, const udp::IpFields& fields,
                                              std::span<uint8_t> datagram, uint32_t socket,
                                              faults::Injection& injection) {
  using Kind = faults::PacketVerdict::Kind;
  const int64_t now = now_ns();
  for (DelayedPackets::Packet& late : delayed_.take_due(now))
    send_datagram(late.to, late.fields, late.bytes, late.socket);
  const faults::PacketVerdict verdict = injection.on_packet(kind_of(datagram), now);
  if (verdict.kind == Kind::kLose ||
      (verdict.kind == Kind::kDelay && delayed_.keep(to, fields, socket, datagram, verdict.until)))
    return true;
  if (verdict.kind == Kind::kRepeat) send_datagram(to, fields, datagram, socket);
  return send_datagram(to, fields, datagram, socket);
}

bool PacketSender::send(const wire::NetAddress& to, const udp::IpFields& fields, const roce::Packet& packet,
                        uint32_t socket) {
  std::array<uint8_t, roce::kMaxPacket> bytes;
  const size_t size = roce::write(packet, bytes);
  if (size == 0) return true;
  const auto datagram = std::span(bytes).first(size + roce::kIcrcSize);
  if (faults::Injection* const injection = faults::injection(); injection != nullptr) [[unlikely]]
    return send_at_risk(to, fields, datagram, socket, *injection);
  return send_datagram(to, fields, datagram, socket);
}

size_t PacketSender::send(const wire::NetAddress& to, const udp::IpFields& fields, const PacketTrain& train,
                          uint32_t socket) {
  const auto datagrams = train.datagrams();
  size_t done = 0;
  if (faults::Injection* const injection = faults::injection(); injection != nullptr) [[unlikely]] {
    while (done < datagrams.size() && send_at_risk(to, fields, datagrams[done], socket, *injection)) ++done;
    return done;
  }
  while (done < datagrams.size()) {
    size_t sent = 0;
    const int error = sockets_[socket].send({to, udp::kRocePort}, fields, datagrams.subspan(done), &sent);
    for (const auto& datagram : datagrams.subspan(done, sent))
      tell_observer(sockets_[socket].own().port, to, fields,
                    datagram.first(datagram.size() - roce::kIcrcSize));
    done += sent;
    if (error == EAGAIN || error == ENOBUFS) return done;
    if (error != 0) note_refused(error, datagrams[done++].size(), to);
  }
  return done;
}

bool PacketSender::wait(int64_t until) const {
  pollfd writable{sockets_[0].fd(), POLLOUT, 0};
  int64_t left;
  do {  // signals of the program end ppoll(2)
    left = std::max<int64_t>(until - now_ns(), 0);
    const timespec timeout{left / 1'000'000'000, left % 1'000'000'000};
    if (syscall(SYS_ppoll, &writable, 1, &timeout, nullptr, 0) > 0) return true;
  } while (left > 0);
  return false;
}

}  // namespace verbena
