// SPDX-License-Identifier: BSD-2-Clause
//
// Makes of records what adapters would have put on the wire: the packets of a request and of its response,
// one after the other, cut at the path MTU; and the frames of raw packet queue pairs as they are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "capture/network_frame.h"
#include "fabric/device_table.h"
#include "record/record.h"
#include "roce/packet.h"

namespace verbena::capture {

struct CapturedPacket {
  int64_t time;                    // ns, CLOCK_MONOTONIC
  std::span<const uint8_t> frame;  // what was kept of it
  uint32_t length;                 // of the whole frame, bytes
  // Of a packet of RoCE v2; nullptr: the frame of a raw packet queue pair.
  const PacketRoute* route = nullptr;
  const roce::Packet* packet = nullptr;  // its payload: what was kept, then zeros
};

class PacketBuilder {
 public:
  using Sink = std::function<void(const CapturedPacket&)>;

  // `devices` must live as long. `snap`: most bytes of a frame.
  PacketBuilder(const DeviceTable& devices, uint32_t snap, Sink sink)
      : frames_(devices), snap_(snap), sink_(std::move(sink)) {}

  // `ring`: the number of the ring that the record comes from. What is no record of packets is ignored, and
  // so is what cannot be one.
  void take(uint32_t ring, std::span<const std::byte> record);

  // Packets that cannot be made, because a record before has been lost.
  uint64_t incomplete() const { return incomplete_; }

 private:
  // A packet of which a chunk has brought only the beginning.
  struct Partial {
    uint32_t psn = 0, packet = 0;
    std::vector<uint8_t> bytes;
  };
  struct Message;

  void take_message(uint32_t ring, const record::MessageRecord& record, std::span<const uint8_t> payload);
  void take_packet(const record::PacketRecord& record, std::span<const uint8_t> bytes);
  void take_frame(const record::FrameRecord& record, std::span<const uint8_t> bytes);
  template <typename Each>
  void for_each_packet(const Message& message, Each each);
  void send_data(const Message& message);
  void send_request(const Message& message);
  void send_response(const Message& message);
  void reply(const Message& message, uint32_t psn, uint8_t syndrome);
  roce::Packet begin(const Message& message, roce::PacketType type, uint32_t psn, bool is_reply) const;
  void emit(const Message& message, const roce::Packet& packet, size_t kept, bool is_reply);

  FrameWriter frames_;
  uint32_t snap_;
  Sink sink_;
  uint64_t incomplete_ = 0;
  uint32_t mad_psn_ = 0;                                      // of the next MAD: records of them have none
  std::map<std::pair<uint32_t, uint32_t>, Partial> partial_;  // by ring and queue pair
};

}  // namespace verbena::capture
