// SPDX-License-Identifier: BSD-2-Clause
//
// The requester of an RC or UC connection over packets: a deterministic machine without sockets, threads or
// clock. Requests go in by post(), packets that have come by on_packet(), the time by on_timer(); packets to
// be sent are taken out by next_packet(), one at a time, when the network takes one. What happens to a
// request is reported to a RequesterHost.
//
// It divides messages by the path MTU, numbers packets, limits packets in flight to a congestion window
// (congestion_window.h), and requests acknowledgements; it goes back to the first packet that is missing
// after a NAK, after a lost response, and after silence (timeout, retry_cnt); it waits after RNR NAKs
// (rnr_retry).
//
// If nothing comes for some round trips, it sends the first packet that is not acknowledged again, and
// nothing else until the peer answers: a NAK that is lost must not cost a timeout. Such a probe is no retry.
//
// The transport of a queue pair owns one (roce_transport/roce_path.h). Times and retries are counted here.
//
// Sources: InfiniBand Architecture Specification vol. 1, 9.7.3 to 9.7.7, 9.8 (UC); the kernel's rxe_req.c and
// rxe_comp.c.
//
// Not thread-safe. After construction nothing allocates. Times are ns of any monotonic clock.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/packets/congestion_window.h"
#include "engine/packets/packet_request.h"

namespace verbena::packets {

enum class Failure : uint8_t {
  kLocalProtection,  // gather() or scatter() refused
  kBadResponse,      // a response that does not fit its request
  kInvalidRequest,   // NAK codes
  kRemoteAccess,
  kRemoteOperation,
  kRetryExceeded,
  kRnrRetryExceeded,
};

// Called by the machine during on_packet(), on_timer() and next_packet(). It must not call the machine.
class RequesterHost {
 public:
  // Bytes [offset, offset + to.size()) of the message of a SEND, WRITE or ATOMIC WRITE. False: the request
  // fails.
  virtual bool gather(uint64_t number, uint32_t offset, std::span<uint8_t> to) = 0;
  // Bytes of the response to a READ. Never the same bytes twice. False: the request fails.
  virtual bool scatter(uint64_t number, uint32_t offset, std::span<const uint8_t> from) = 0;
  // What was in memory before an atomic. False: the request fails.
  virtual bool atomic_result(uint64_t number, uint64_t before) = 0;
  // In the order of the requests, each once. After failed() the machine sends nothing more and forgets all.
  virtual void completed(uint64_t number) = 0;
  virtual void failed(uint64_t number, Failure failure) = 0;
  // To be counted: an RNR NAK has come; packets are sent again after a timeout or a NAK, which is a retry.
  virtual void got_rnr_nak() {}
  virtual void retried() {}

 protected:
  ~RequesterHost() = default;
};

struct RequesterOptions {
  Connection connection{};
  uint32_t first_psn = 0;
  uint32_t depth = 128;              // requests that it holds at once
  uint32_t window = 64;              // request packets in flight, at most
  uint32_t first_window = 64;        // in the beginning; at most `window` counts
  uint32_t max_rd_atomic = 1;        // READs and atomics in flight
  uint64_t timeout_ns = UINT64_MAX;  // ack_timeout_ns(ibv_qp_attr::timeout); UINT64_MAX: none
  uint32_t retry_cnt = 7;
  uint32_t rnr_retry = 7;  // 7: without end
};

inline constexpr int64_t kNoTimer = INT64_MAX;

// What ibv_modify_qp(3) may change while requests are in flight, as in RequesterOptions.
struct RequesterLimits {
  uint32_t max_rd_atomic = 1;
  uint64_t timeout_ns = UINT64_MAX;
  uint32_t retry_cnt = 7;
  uint32_t rnr_retry = 7;

  bool operator==(const RequesterLimits&) const = default;
};

class RequesterMachine {
 public:
  RequesterMachine(const RequesterOptions& options, RequesterHost& host);

  // Begins again with this PSN. It is idle, and has not failed.
  void begin(uint32_t first_psn);
  void set_limits(const RequesterLimits& limits);

  // False: `depth` requests are held already.
  bool post(const PacketRequest& request);

  // The next packet to be sent. False: none, until a request, a packet or a timer comes. `out` is then
  // undefined.
  bool next_packet(int64_t now, OutgoingPacket* out);

  // Where next_packet() is.
  struct Position {
    uint64_t head, cursor;
    uint32_t cursor_psn, acked_psn, sent_psn, since_request, in_flight;
    uint64_t repeated;
  };
  Position position() const;
  // The packets since then were not sent, as the network is full: the next ones are the same. Nothing but
  // next_packet() was called in between. UC: completed() of requests since then did not count.
  void take_back(const Position& position);

  // An acknowledgement or response of the peer: well-formed, from its address, and for this queue pair.
  void on_packet(const roce::Packet& packet, int64_t now);

  // The peer has seen packets of this connection that were marked on the way (CNP).
  void on_congestion(int64_t now);

  // When to call on_timer() at the latest; kNoTimer.
  int64_t timer() const;
  void on_timer(int64_t now);

  // Packets that the window and the pace let go now.
  uint32_t room(int64_t now);
  // Requests that have packets which were never sent.
  uint64_t requests_unsent() const { return tail_ - cursor_; }
  // Packets in flight, a READ being one.
  uint32_t in_flight();

  bool is_idle() const { return head_ == tail_; }
  bool has_failed() const { return failed_; }
  uint64_t packets_repeated() const { return repeated_; }

 private:
  struct Slot {
    PacketRequest request;
    uint32_t first_psn;
    uint32_t packets;  // PSNs that it takes
  };
  Slot& at(uint64_t index) { return slots_[index % slots_.size()]; }
  const Slot& at(uint64_t index) const { return slots_[index % slots_.size()]; }

  bool may_start(const Slot& slot) const;
  uint32_t count_in_flight() const;
  uint32_t window() const { return is_probing_ ? 1 : window_.packets(); }
  bool build(Slot& slot, OutgoingPacket* out);
  void after_sending(const Slot& slot, int64_t now);
  void time_packet(int64_t now);
  int64_t probe_time(int64_t now) const;

  bool acknowledge_below(uint32_t end, int64_t now);
  void progress(uint32_t acknowledged, int64_t now);
  void complete_head(int64_t now);
  void go_back();
  void lose(int64_t now);
  void probe(int64_t now);
  void end_probe(uint32_t acknowledged, int64_t now);
  void fail(Failure failure);
  void on_nak(const roce::Packet& packet, int64_t now);
  void on_response(const roce::Packet& packet, int64_t now);

  RequesterOptions options_;
  RequesterHost& host_;
  std::vector<Slot> slots_;
  uint64_t head_ = 0;    // the first request that is not completed
  uint64_t cursor_ = 0;  // the request that is sent next
  uint64_t tail_ = 0;    // the first that is not posted
  uint32_t next_psn_;    // of the next request that is posted
  uint32_t cursor_psn_;  // of the next packet
  uint32_t acked_psn_;   // the first PSN that is not acknowledged
  uint32_t sent_psn_;    // the first PSN that was never sent
  uint32_t retries_left_;
  uint32_t rnr_tries_ = 0;
  uint32_t since_request_ = 0;  // packets since an acknowledgement was requested
  int64_t deadline_ = kNoTimer;
  int64_t held_until_ = kNoTimer;  // after an RNR NAK
  bool expects_gap_ = false;       // a NAK for packets behind that of an RNR NAK
  bool recovering_ = false;        // went back, without progress since
  bool failed_ = false;
  uint64_t repeated_ = 0;

  CongestionWindow window_;
  uint32_t in_flight_ = 0;  // count_in_flight(), unless kUnknown
  bool is_timed_ = false;   // `timed_psn_` was sent at `timed_at_`, once
  uint32_t timed_psn_ = 0;
  int64_t timed_at_ = 0;
  int64_t paced_until_ = kNoTimer;
  int64_t probe_at_ = kNoTimer;
  uint32_t probes_ = 0;      // since the last progress
  bool is_probing_ = false;  // until the peer answers
  // Before the probe, where next_packet() was.
  uint64_t cursor_before_probe_ = 0;
  uint32_t psn_before_probe_ = 0;

  static constexpr uint32_t kUnknown = UINT32_MAX;
};

}  // namespace verbena::packets
