// SPDX-License-Identifier: BSD-2-Clause
//
// One end of a connection, or of a service ID resolution, of InfiniBand's communication manager: its state,
// its messages and replies, its retries and timeouts. InfiniBand Architecture Specification, volume 1,
// chapter 12.9. Where the specification leaves a choice: Linux (drivers/infiniband/core/cm.c).
//
// No locks here: the service's lock guards everything. Events reach the owner within receive(),
// ConnectionTable::lose() and AlarmClock::ring_due(), never within a call of the owner.
#pragma once

#include <infiniband/verbs.h>

#include <compare>
#include <cstdint>
#include <span>

#include "cm/alarm.h"
#include "cm/cm.h"
#include "cm/message.h"
#include "cm/paths.h"

namespace verbena::cm {

class ConnectionTable;

// A process of the node, or of another one. A new process in the same slot is another peer.
struct Peer {
  uint32_t slot;
  uint32_t generation;
  uint64_t node = 0;  // 0: this node; else its id, or kNodeToBeFound
  bool is_remote() const { return node != 0; }
  friend auto operator<=>(const Peer&, const Peer&) = default;
};

// The unknown process that serves a service at an address of another node. Until it is known, slot and
// generation are a mere number (Links::connect).
inline constexpr uint64_t kNodeToBeFound = ~uint64_t{0};

// On a node with RoCE v2 a peer is the whole node at an address, whose processes are not known (mads.cc).
Peer peer_at(const Gid& address);

// There communication IDs have the slot of their process in the bits from this one on.
inline constexpr unsigned kIdSlotShift = 22;

// enum ib_cm_state, without listening (a listener is no connection).
enum class CmState : uint8_t {
  kIdle,
  kReqSent,
  kReqReceived,
  kMraReqSent,
  kMraReqReceived,
  kRepSent,
  kRepReceived,
  kMraRepSent,
  kMraRepReceived,
  kEstablished,
  kDreqSent,
  kDreqReceived,
  kTimewait,
  kSidrReqSent,
  kSidrReqReceived,
};

// enum ib_cm_event_type, those that an owner gets.
enum class CmEvent : uint8_t {
  kNone,
  kReqError,  // no reply came
  kRepError,
  kDreqError,
  kSidrReqError,
  kRepReceived,
  kRtuReceived,
  kDreqReceived,
  kDrepReceived,
  kRejReceived,
  kSidrRepReceived,
  kTimewaitExit,
};

class ConnectionOwner {
 public:
  // `message`: the cause; nullptr for kTimewaitExit and the errors.
  virtual void connection_event(CmEvent event, const Message* message) = 0;

 protected:
  ~ConnectionOwner() = default;
};

// The time of a 5-bit field: about 4.096 us * 2^n (cm.c: cm_convert_to_ms).
constexpr uint64_t milliseconds_of(unsigned timeout) {
  return uint64_t{1} << (timeout > 8 ? timeout - 8 : 0);
}

inline constexpr uint8_t kResponseTimeout = 20;  // cma.c: CMA_CM_RESPONSE_TIMEOUT
inline constexpr uint8_t kCmRetries = 15;        // cma.c: CMA_MAX_CM_RETRIES
inline constexpr uint8_t kMraTimeout = 24;       // cma.c: CMA_CM_MRA_SETTING

struct ReqParameters {
  Peer peer;
  uint64_t service_id;
  uint64_t ca_guid;
  uint8_t ack_delay;  // of this device
  ibv_qp_type qp_type;
  uint32_t qp_number;
  uint32_t psn;
  bool srq;
  uint8_t responder_resources, initiator_depth, flow_control, retry_count, rnr_retry_count;
  Ece ece;
  Path primary;
  const Path* alternate;  // or nullptr
  std::span<const uint8_t> private_data;
};

struct RepParameters {
  uint64_t ca_guid;
  uint8_t ack_delay;
  uint32_t qp_number;
  uint32_t psn;
  bool srq;
  uint8_t responder_resources, initiator_depth, flow_control, rnr_retry_count;
  Ece ece;
  std::span<const uint8_t> private_data;
};

struct SidrReqParameters {
  Peer peer;
  uint64_t service_id;
  Path path;
  std::span<const uint8_t> private_data;
};

struct SidrRepParameters {
  SidrStatus status;
  uint32_t qp_number, qkey;
  std::span<const uint8_t> private_data;
};

// The facts that a queue pair of this connection needs (connection_qp.h).
struct ConnectionFacts {
  CmState state = CmState::kIdle;
  ibv_qp_type qp_type = IBV_QPT_RC;
  uint32_t local_qpn = 0, remote_qpn = 0;
  uint32_t rq_psn = 0, sq_psn = 0;
  uint8_t mtu = 0;  // enum ibv_mtu
  uint8_t responder_resources = 0, initiator_depth = 0;
  uint8_t retry_count = 0, rnr_retry_count = 0;
  uint8_t timeout = 0;  // of the queue pair
  Path path{};          // from here to the peer
  Path alternate{};     // from here to the peer
  bool has_alternate = false;
};

class Connection {
 public:
  Connection(ConnectionTable& table, ConnectionOwner* owner);
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  // Ends the connection as cm.c's cm_destroy_id: a peer in the middle of an exchange is notified.
  ~Connection();
  // Only notifies the peer: the process exits.
  void notify_of_end();

  void set_owner(ConnectionOwner* owner) { owner_ = owner; }
  const ConnectionFacts& facts() const { return facts_; }
  CmState state() const { return facts_.state; }
  const Peer& peer() const { return peer_; }

  // 0; EINVAL: not in this state, private data too long, or a parameter that no message can carry.
  int send_req(const ReqParameters& parameters);
  int send_rep(const RepParameters& parameters);
  int send_rtu();
  int send_rej(RejectReason reason, std::span<const uint8_t> private_data = {},
               std::span<const uint8_t> info = {});
  int send_dreq();
  int send_drep();
  int send_sidr_req(const SidrReqParameters& parameters);
  int send_sidr_rep(const SidrRepParameters& parameters);

  // From now on a repeated REQ or REP is answered by an MRA that asks for time. Nothing is sent now.
  void delay();

  // The queue pair has received a message from the peer, whose RTU may be late. 0; EISCONN; EINVAL.
  int establish();

  // Drops a request that no handler has seen, as if it had never arrived: its repetition counts as a new one.
  void forget();

 private:
  friend class ConnectionTable;
  static void alarm_rang(void* self);
  void timed_out();
  void receive(const Message& message);
  void be_asked(const Peer& peer, const Message& message);
  void take_req(const Peer& peer, const Message& message);
  void take_sidr_req(const Peer& peer, const Message& message);
  bool take_rep(const Message& message);
  void answer_again(const Message& message);
  Message begin(MessageKind kind) const;
  void post(const Message& message);                 // sends once
  void post_until_answered(const Message& message);  // sends, and repeats until a reply
  Message rejection(RejectReason reason) const;
  void go(CmState state) { facts_.state = state; }
  void enter_timewait();
  void reset_to_idle();
  void lose_peer();
  void raise(CmEvent event, const Message* message);

  ConnectionTable& table_;
  ConnectionOwner* owner_;
  ConnectionFacts facts_;
  Peer peer_{};
  uint32_t local_id_;
  uint32_t remote_id_ = 0;
  uint64_t transaction_ = 0;
  uint64_t service_id_ = 0;
  uint64_t ca_guid_ = 0;
  Gid source_{}, destination_{};                                       // of messages that leave
  bool listed_id_ = false, listed_qpn_ = false, listed_sidr_ = false;  // in the table
  uint64_t timeout_ms_ = 0;
  uint8_t max_retries_ = 0, retries_left_ = 0;
  uint8_t service_timeout_ = 0;  // of an MRA
  Message unanswered_;
  Alarm alarm_;  // repeats `unanswered_`, or ends TIMEWAIT
};

}  // namespace verbena::cm
