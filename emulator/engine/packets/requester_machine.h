// SPDX-License-Identifier: BSD-2-Clause
//
// The requester of an RC or UC connection over packets: a deterministic machine without sockets, threads or
// clock. Requests go in by post(), packets that have come by on_packet(), the time by on_timer(); packets to
// be sent are taken out by next_packet(), one at a time, when the network takes one. What happens to a
// request is reported to a RequesterHost.
//
// It divides messages by the path MTU, numbers packets, limits packets in flight to a window, and requests
// acknowledgements; it goes back to the first packet that is missing after a NAK, after a lost response, and
// after silence (timeout, retry_cnt); it waits after RNR NAKs (rnr_retry).
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
  // Bytes [offset, offset + to.size()) of the message of a SEND or WRITE. False: the request fails.
  virtual bool gather(uint64_t number, uint32_t offset, std::span<uint8_t> to) = 0;
  // Bytes of the response to a READ. Never the same bytes twice. False: the request fails.
  virtual bool scatter(uint64_t number, uint32_t offset, std::span<const uint8_t> from) = 0;
  // What was in memory before an atomic. False: the request fails.
  virtual bool atomic_result(uint64_t number, uint64_t before) = 0;
  // In the order of the requests, each once. After failed() the machine sends nothing more and forgets all.
  virtual void completed(uint64_t number) = 0;
  virtual void failed(uint64_t number, Failure failure) = 0;

 protected:
  ~RequesterHost() = default;
};

struct RequesterOptions {
  Connection connection{};
  uint32_t first_psn = 0;
  uint32_t depth = 128;              // requests that it holds at once
  uint32_t window = 64;              // request packets in flight
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

  // The packet of the last next_packet() was not sent, since the network is full: the next one is the same.
  // RC only; nothing else was called in between.
  void take_back();

  // An acknowledgement or response of the peer: well-formed, from its address, and for this queue pair.
  void on_packet(const roce::Packet& packet, int64_t now);

  // When to call on_timer() at the latest; kNoTimer.
  int64_t timer() const;
  void on_timer(int64_t now);

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
  uint32_t in_flight() const;
  bool build(Slot& slot, OutgoingPacket* out);
  void after_sending(const Slot& slot, int64_t now);

  bool acknowledge_below(uint32_t end, int64_t now);
  void progress(uint32_t acknowledged, int64_t now);
  void complete_head(int64_t now);
  void go_back();
  void lose(int64_t now);
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
  bool recovering_ = false;        // went back, without progress since
  bool failed_ = false;
  uint64_t repeated_ = 0;
  struct {
    uint64_t cursor;
    uint32_t cursor_psn, sent_psn, since_request;
  } before_{};  // the last packet
};

}  // namespace verbena::packets
