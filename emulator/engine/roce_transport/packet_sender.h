// SPDX-License-Identifier: BSD-2-Clause
//
// Sends packets from one address of the node. Each process has sockets of its own for that, with ports of
// their own: receivers take packets from any source port (Annex A17 uses it for the choice of a path alone).
// There are few, kMostSockets, which queue pairs share: a descriptor for each queue pair would be too many
// for a program. Any thread. Nothing allocates but open() and choose_socket(), and nothing waits.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>

#include "engine/packets/packet_request.h"
#include "engine/roce_transport/delayed_packets.h"
#include "faults/injection.h"
#include "roce/packet.h"
#include "udp/roce_socket.h"
#include "wire/net_address.h"

namespace verbena {

// Packets of one queue pair that leave together. Their payloads are put where they are sent from.
class PacketTrain {
 public:
  static constexpr size_t kMost = 64;

  // The next packet, to be filled in; add() takes it. is_full(): there is no space for one.
  bool is_full() const { return count_ == kMost || bytes_.size() - used_ < kSlot; }
  packets::OutgoingPacket& next() {
    next_.space = &bytes_[used_ + kHeaders];
    return next_;
  }
  void add();
  // If the next packets have `payload` bytes each, a multiple of 4, their payloads lie so far apart, and so
  // many of them have space.
  static constexpr size_t stride(size_t payload) {
    return (kHeaders + payload + roce::kIcrcSize + kLine - 1) / kLine * kLine;
  }
  size_t space(size_t payload) const {
    const size_t left = bytes_.size() - used_;
    return left < kSlot ? 0 : std::min(kMost - count_, (left - kSlot) / stride(payload) + 1);
  }
  void clear() { count_ = used_ = 0; }

  size_t size() const { return count_; }
  std::span<const std::span<uint8_t>> datagrams() const { return std::span(datagrams_).first(count_); }

 private:
  friend class PacketSender;
  static constexpr size_t kLine = 64;
  static constexpr size_t kHeaders = (roce::kMaxHeaders + kLine - 1) / kLine * kLine;
  static constexpr size_t kSlot = kHeaders + packets::kMostPayload + kLine;
  static constexpr size_t kLongest = 16;  // packets of the greatest MTU

  std::atomic<bool> is_borrowed_{false};
  size_t count_ = 0, used_ = 0;
  packets::OutgoingPacket next_{nullptr};
  std::array<std::span<uint8_t>, kMost> datagrams_;
  alignas(kLine) std::array<uint8_t, kLongest * kSlot> bytes_;
};

class PacketSender {
 public:
  // As RoceSocket::open().
  int open(const wire::NetAddress& address, std::string* problem);

  // The socket for a connection that is to have this source port. It is opened when the first one asks; if
  // that fails, connections share one that is open. Not for the data path.
  uint32_t choose_socket(uint16_t port);

  // `socket`: from choose_socket(); 0 is always open. False: the network takes nothing now, and the packet
  // was not sent. Whatever else is wrong loses the packet, as a wire does; the first time the log says why.
  bool send(const wire::NetAddress& to, const udp::IpFields& fields, const roce::Packet& packet,
            uint32_t socket = 0);
  // The same for several. Returns how many of them are sent or lost, from the first on.
  size_t send(const wire::NetAddress& to, const udp::IpFields& fields, const PacketTrain& train,
              uint32_t socket);
  // Waits until the network takes packets of socket 0 again. False: at `until`, ns, it does not. It has been
  // asked then, however late it is: this thread may not have been scheduled.
  bool wait(int64_t until) const;

  // One of a few trains, which is empty, for the calling thread. nullptr: all are in use.
  PacketTrain* borrow();
  static void give_back(PacketTrain* train) { train->is_borrowed_.store(false, std::memory_order_release); }

  const wire::NetAddress& address() const { return sockets_[0].own().address; }

 private:
  static constexpr size_t kTrains = 4, kMostSockets = 8;

  void note_refused(int error, size_t size, const wire::NetAddress& to);
  // One packet, with the space of its ICRC. False: as send().
  bool send_datagram(const wire::NetAddress& to, const udp::IpFields& fields, std::span<uint8_t> datagram,
                     uint32_t socket);
  // The same with what the faults on purpose say of it.
  bool send_at_risk(const wire::NetAddress& to, const udp::IpFields& fields, std::span<uint8_t> datagram,
                    uint32_t socket, faults::Injection& injection);
  // A packet without its ICRC has been sent.
  void tell_observer(uint16_t port, const wire::NetAddress& to, const udp::IpFields& fields,
                     std::span<const uint8_t> packet) const;

  std::array<udp::RoceSocket, kMostSockets> sockets_;
  std::mutex opening_;  // of all but the first
  std::unique_ptr<PacketTrain[]> trains_;
  std::atomic<uint32_t> refused_{0};
  DelayedPackets delayed_;
};

// The train of a scope.
class BorrowedTrain {
 public:
  explicit BorrowedTrain(PacketSender& sender) : train_(sender.borrow()) {}
  BorrowedTrain(const BorrowedTrain&) = delete;
  BorrowedTrain& operator=(const BorrowedTrain&) = delete;
  ~BorrowedTrain() {
    if (train_ != nullptr) PacketSender::give_back(train_);
  }
  explicit operator bool() const { return train_ != nullptr; }
  PacketTrain* operator->() const { return train_; }
  PacketTrain& operator*() const { return *train_; }

 private:
  PacketTrain* const train_;
};

}  // namespace verbena
