// SPDX-License-Identifier: BSD-2-Clause
//
// The requests of a queue pair, and the packets of its port that they are. Pure functions on the counters in
// SharedQp.
//
// A request is as many packets as its payload fills at the path MTU (packets_of(), engine/rules/psn.h), its
// response as well. An acknowledgement is one packet for each request of a type that has them. What is sent
// again is not counted.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "adapter/layout.h"

namespace verbena {

// What passes a port. Octets are those of the payload, without headers.
enum class PortCount : uint32_t {
  kSentOctets,
  kReceivedOctets,
  kSentUnicast,  // packets, as are the next three
  kReceivedUnicast,
  kSentMulticast,
  kReceivedMulticast,  // once for each queue pair that takes it
  // The port itself:
  kLinkDowned,
  kCounts
};
inline constexpr size_t kPortCounts = static_cast<size_t>(PortCount::kCounts);
using PortCountValues = std::array<uint64_t, kPortCounts>;

enum class Passing : uint8_t {
  kRequest,   // the payload is the request's: SEND, WRITE
  kResponse,  // the response's: READ, atomics
  kToGroup,   // UD: to a multicast group
};

constexpr Passing passing_of(bool brings_response) {
  return brings_response ? Passing::kResponse : Passing::kRequest;
}

// By the only writer of the word.
inline void add_alone(std::atomic<uint64_t>& word, uint64_t value) {
  word.store(word.load(std::memory_order_relaxed) + value, std::memory_order_relaxed);
}

// A message of `length` bytes in `packets` packets was carried out: `requests` and `bytes` are those of
// SharedQp in the direction of `counts`. One thread at a time for each direction.
inline void count_passing(std::atomic<uint64_t>& requests, std::atomic<uint64_t>& bytes, PacketCounts& counts,
                          Passing passing, uint32_t length, uint64_t packets) {
  add_alone(passing == Passing::kToGroup ? counts.group_datagrams : requests, 1);
  if (passing == Passing::kResponse) {
    add_alone(counts.response_bytes, length);
    if (packets > 1) add_alone(counts.more_responses, packets - 1);
  } else {
    add_alone(bytes, length);
    if (packets > 1) add_alone(counts.more_packets, packets - 1);
  }
}

// Requests of all kinds and their bytes, those of responses among them.
struct RequestCounts {
  uint64_t requests_out, bytes_out, requests_in, bytes_in;
};

// Any process; the values are those of slightly different moments. None falls as long as the queue pair
// exists.
inline RequestCounts requests_of(const SharedQp& qp) {
  const auto read = [](const std::atomic<uint64_t>& word) { return word.load(std::memory_order_acquire); };
  // A request and its bytes are read at almost one moment: they are in one line.
  RequestCounts counts{read(qp.requests_out), read(qp.bytes_out), read(qp.requests_in), read(qp.bytes_in)};
  counts.requests_out += read(qp.packets_out.group_datagrams);
  counts.bytes_out += read(qp.packets_out.response_bytes);
  counts.requests_in += read(qp.packets_in.group_datagrams);
  counts.bytes_in += read(qp.packets_in.response_bytes);
  return counts;
}

// As requests_of(): what the queue pair has sent and received through its port.
inline PortCountValues traffic_of(const SharedQp& qp) {
  const auto read = [](const std::atomic<uint64_t>& word) { return word.load(std::memory_order_acquire); };
  const uint8_t type = __atomic_load_n(&qp.type, __ATOMIC_ACQUIRE);
  const bool is_acknowledged = type == IBV_QPT_RC || type == IBV_QPT_XRC_SEND || type == IBV_QPT_XRC_RECV;
  const bool is_frames = type == IBV_QPT_RAW_PACKET;  // each is a packet, whatever its length
  const PacketCounts& out = qp.packets_out;
  const PacketCounts& in = qp.packets_in;
  const uint64_t requests_out = read(qp.requests_out), requests_in = read(qp.requests_in);
  PortCountValues values{};
  const auto put = [&](PortCount count, uint64_t value) { values[static_cast<size_t>(count)] = value; };
  put(PortCount::kSentOctets, read(qp.bytes_out) + read(in.response_bytes));
  put(PortCount::kReceivedOctets, read(qp.bytes_in) + read(out.response_bytes));
  put(PortCount::kSentUnicast, requests_out + (is_frames ? 0 : read(out.more_packets)) +
                                   (is_acknowledged ? requests_in + read(in.more_responses) : 0));
  put(PortCount::kReceivedUnicast, requests_in + (is_frames ? 0 : read(in.more_packets)) +
                                       (is_acknowledged ? requests_out + read(out.more_responses) : 0));
  put(PortCount::kSentMulticast, read(out.group_datagrams));
  put(PortCount::kReceivedMulticast, read(in.group_datagrams));
  return values;
}

}  // namespace verbena
