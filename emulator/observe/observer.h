// SPDX-License-Identifier: BSD-2-Clause
//
// Where a tool watches the engine at work: every request, response, completion and state change of every
// queue pair passes one call below. Tracing, capture, counters and injected faults attach here.
//
// No observer is attached by default. Each of the calls then costs one load and one predictable branch. While
// one is attached, small requests do not take the fast path (engine/local/fast_path.h).
//
//
// Threads: the calls come from any thread that uses the engine, with locks of the engine held. An observer
// must not call the engine, and must not block. set_observer() may be called at any time; a call that is
// under way may still reach the previous observer, which must outlive it.
#pragma once

#include <sys/uio.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

namespace verbena {

// A completed request of the send queue, in posting order.
struct RequestEvent {
  uint32_t qpn;
  uint64_t wr_id;
  uint64_t number;     // running number of the request on its queue pair
  uint32_t psn;        // of its first packet
  uint32_t length;     // bytes
  uint8_t opcode;      // enum ibv_wr_opcode
  uint8_t vendor_err;  // enum class VendorError; 0: success
};

// Where packets from the requester to the responder would go.
struct PacketRoute {
  std::array<uint8_t, 16> source{}, destination{};  // GIDs
  uint32_t flow_label = 0;                          // 20 bits
  uint8_t traffic_class = 0;
  uint8_t hop_limit = 0;
};

// What an adapter sends back.
enum class Reply : uint8_t {
  kNothing,       // the request has not been on its way at all
  kSilence,       // it has, and nothing comes back
  kMore,          // a part of the message has been carried out
  kAcknowledged,  // all of it
  kRnr,
  kInvalidRequest,  // and the two below: a NAK with that code
  kRemoteAccess,
  kRemoteOperation,
};

// The responder's decision about one request, or about one chunk of it.
struct ResponseEvent {
  uint32_t source_qpn;
  uint32_t target_qpn;
  uint32_t psn;
  uint32_t length;
  uint8_t opcode;
  uint8_t verdict;  // enum class Answer
  uint8_t vendor_err;
  // Of a request of a connected queue pair, what its packets would say. transport 0: not known.
  uint8_t transport = 0;  // enum ibv_qp_type of the requester
  Reply reply = Reply::kNothing;
  bool solicited = false;
  uint8_t rnr_timer = 0;     // as ibv_qp_attr::min_rnr_timer, of the responder,
  uint64_t rnr_wait_ns = 0;  // and the time that it stands for
  uint16_t pkey = 0;
  uint32_t mtu = 0;              // bytes
  uint32_t offset = 0, end = 0;  // the chunk: bytes [offset, end) of the message
  uint32_t immediate = 0;        // network byte order; or the rkey of SEND_WITH_INV
  uint32_t rkey = 0;
  uint32_t srqn = 0;  // XRC
  uint32_t msn = 0;
  uint64_t remote_address = 0;
  uint64_t compare_add = 0, swap = 0;
  const PacketRoute* route = nullptr;
  // The message in the memory of this process, from byte `ranges_at` on; of READ and atomics the response.
  // Valid during the call. 0 ranges: it is not there.
  const iovec* ranges = nullptr;
  size_t range_count = 0;
  uint32_t ranges_at = 0;
  bool may_be_gone = false;  // nobody has looked whether that memory is there
};

// A packet of RoCE v2 that is sent to another node or comes from there.
struct PacketEvent {
  const PacketRoute& route;
  uint16_t port;                   // the source port of UDP
  std::span<const uint8_t> bytes;  // from the BTH to the padding; valid during the call
};

// An Ethernet frame that a raw packet queue pair sends.
struct FrameEvent {
  uint32_t source_qpn;
  std::span<const uint8_t> bytes;  // from the destination's address on, without FCS; valid during the call
};

// A work request that has been posted.
struct PostEvent {
  uint32_t qpn;  // of an SRQ its number
  uint64_t wr_id;
  uint32_t length;     // bytes of its buffers
  uint8_t opcode = 0;  // enum ibv_wr_opcode; of a receive request 0
  bool is_receive = false;
};

// A completion that the program has polled.
struct PollEvent {
  uint32_t qpn;
  uint64_t wr_id;
  uint32_t byte_len;
  uint8_t status;  // enum ibv_wc_status
  uint8_t opcode;  // enum ibv_wc_opcode, its low bits
  bool is_receive;
};

// An asynchronous event, or an event on a completion channel.
struct RaisedEvent {
  uint32_t number;  // of the queue pair or SRQ; index of the CQ; of the port
  uint8_t type;     // enum ibv_event_type
};

// A datagram of a UD queue pair, or a MAD of the connection manager, on its way.
struct DatagramEvent {
  uint32_t source_qpn;
  uint32_t target_qpn;
  uint32_t psn;
  uint32_t qkey;
  uint32_t immediate = 0;  // network byte order
  uint16_t pkey = 0;
  bool with_immediate = false;
  bool solicited = false;
  const PacketRoute& route;
  std::span<const uint8_t> payload;  // valid during the call
};

// A published CQE, in a CQ of this process or of a peer.
struct CompletionEvent {
  uint32_t qp_index;  // in the table of the CQ's owner
  uint32_t byte_len;
  uint8_t status;  // enum ibv_wc_status
  uint8_t opcode;  // low bits of enum ibv_wc_opcode
  uint8_t flags;   // CqeFlags
  uint8_t vendor_err;
};

struct StateEvent {
  uint32_t qpn;
  uint8_t from;  // enum ibv_qp_state
  uint8_t to;
};

class Observer {
 public:
  virtual void on_request(const RequestEvent&) {}
  virtual void on_response(const ResponseEvent&) {}
  virtual void on_datagram(const DatagramEvent&) {}
  virtual void on_packet(const PacketEvent&) {}
  virtual void on_frame(const FrameEvent&) {}
  virtual void on_post(const PostEvent&) {}
  virtual void on_poll(const PollEvent&) {}
  virtual void on_event(const RaisedEvent&) {}
  virtual void on_completion(const CompletionEvent&) {}
  virtual void on_state(const StateEvent&) {}

 protected:
  ~Observer() = default;
};

inline constinit std::atomic<Observer*> attached_observer{nullptr};

// The attached observer; nullptr: none.
inline Observer* observer() { return attached_observer.load(std::memory_order_acquire); }

// nullptr: detaches.
inline void set_observer(Observer* observer) { attached_observer.store(observer, std::memory_order_release); }

}  // namespace verbena
