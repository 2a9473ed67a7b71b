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

#include <atomic>
#include <cstdint>

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

// The responder's decision about one request, or about one chunk of it.
struct ResponseEvent {
  uint32_t source_qpn;
  uint32_t target_qpn;
  uint32_t psn;
  uint32_t length;
  uint8_t opcode;
  uint8_t verdict;  // enum class Answer
  uint8_t vendor_err;
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
