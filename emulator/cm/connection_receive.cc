// SPDX-License-Identifier: BSD-2-Clause
//
// The actions of a connection on its peer's messages, and on timeouts.
#include "cm/connection.h"

#include <algorithm>

#include "cm/connection_table.h"

namespace verbena::cm {

using enum Field;
using enum CmState;

namespace {

enum class Action : uint8_t {
  kGo,        // to the state `to`
  kTimewait,  // as kGo, through enter_timewait()
  kReset,     // also through reset_to_idle(), but a stale connection waits
  kAgain,     // the message is a repetition: our reply must have been lost
};

struct Row {
  MessageKind kind;
  CmState from;
  Action action;
  CmState to;
  CmEvent event;
};

// Messages that are not listed are ignored. cm_rep_handler, cm_dup_rep_handler, cm_rtu_handler,
// cm_dreq_handler, cm_drep_handler, cm_rej_handler, cm_mra_handler, cm_sidr_rep_handler.
constexpr Row kRows[] = {
    {MessageKind::kRep, kReqSent, Action::kGo, kRepReceived, CmEvent::kRepReceived},
    {MessageKind::kRep, kMraReqReceived, Action::kGo, kRepReceived, CmEvent::kRepReceived},
    {MessageKind::kRep, kEstablished, Action::kAgain, kEstablished, CmEvent::kNone},
    {MessageKind::kRep, kMraRepSent, Action::kAgain, kMraRepSent, CmEvent::kNone},
    {MessageKind::kRtu, kRepSent, Action::kGo, kEstablished, CmEvent::kRtuReceived},
    {MessageKind::kRtu, kMraRepReceived, Action::kGo, kEstablished, CmEvent::kRtuReceived},
    {MessageKind::kDreq, kRepSent, Action::kGo, kDreqReceived, CmEvent::kDreqReceived},
    {MessageKind::kDreq, kMraRepReceived, Action::kGo, kDreqReceived, CmEvent::kDreqReceived},
    {MessageKind::kDreq, kEstablished, Action::kGo, kDreqReceived, CmEvent::kDreqReceived},
    {MessageKind::kDreq, kDreqSent, Action::kGo, kDreqReceived, CmEvent::kDreqReceived},
    {MessageKind::kDreq, kTimewait, Action::kAgain, kTimewait, CmEvent::kNone},
    {MessageKind::kDrep, kDreqSent, Action::kTimewait, kTimewait, CmEvent::kDrepReceived},
    {MessageKind::kDrep, kDreqReceived, Action::kTimewait, kTimewait, CmEvent::kDrepReceived},
    {MessageKind::kRej, kReqSent, Action::kReset, kIdle, CmEvent::kRejReceived},
    {MessageKind::kRej, kMraReqReceived, Action::kReset, kIdle, CmEvent::kRejReceived},
    {MessageKind::kRej, kReqReceived, Action::kReset, kIdle, CmEvent::kRejReceived},
    {MessageKind::kRej, kMraReqSent, Action::kReset, kIdle, CmEvent::kRejReceived},
    {MessageKind::kRej, kRepSent, Action::kReset, kIdle, CmEvent::kRejReceived},
    {MessageKind::kRej, kMraRepReceived, Action::kReset, kIdle, CmEvent::kRejReceived},
    {MessageKind::kRej, kDreqSent, Action::kTimewait, kTimewait, CmEvent::kRejReceived},
    {MessageKind::kRej, kRepReceived, Action::kTimewait, kTimewait, CmEvent::kRejReceived},
    {MessageKind::kRej, kMraRepSent, Action::kTimewait, kTimewait, CmEvent::kRejReceived},
    {MessageKind::kRej, kEstablished, Action::kTimewait, kTimewait, CmEvent::kRejReceived},
    {MessageKind::kMra, kReqSent, Action::kGo, kMraReqReceived, CmEvent::kNone},
    {MessageKind::kMra, kRepSent, Action::kGo, kMraRepReceived, CmEvent::kNone},
    {MessageKind::kSidrRep, kSidrReqSent, Action::kGo, kIdle, CmEvent::kSidrRepReceived},
};

// When no reply came (cm_process_send_error).
struct Silence {
  CmState from;
  Action action;
  CmEvent event;
};
constexpr Silence kSilences[] = {
    {kReqSent, Action::kReset, CmEvent::kReqError},
    {kMraReqReceived, Action::kReset, CmEvent::kReqError},
    {kRepSent, Action::kReset, CmEvent::kRepError},
    {kMraRepReceived, Action::kReset, CmEvent::kRepError},
    {kDreqSent, Action::kTimewait, CmEvent::kDreqError},
    {kSidrReqSent, Action::kReset, CmEvent::kSidrReqError},
};

// The message that the peer would have sent if it had been destroyed properly instead of dying (cm_destroy_id
// at its end).
struct DeathMessage {
  CmState state;  // ours
  MessageKind kind;
  RejectReason reason;
};
constexpr DeathMessage kDeathMessages[] = {
    {kReqSent, MessageKind::kRej, kRejectConsumer},
    {kMraReqReceived, MessageKind::kRej, kRejectConsumer},
    {kReqReceived, MessageKind::kRej, kRejectTimeout},
    {kMraReqSent, MessageKind::kRej, kRejectTimeout},
    {kRepSent, MessageKind::kRej, kRejectConsumer},
    {kMraRepReceived, MessageKind::kRej, kRejectConsumer},
    {kRepReceived, MessageKind::kRej, kRejectConsumer},
    {kMraRepSent, MessageKind::kRej, kRejectConsumer},
    {kEstablished, MessageKind::kDreq, {}},
    {kDreqSent, MessageKind::kDrep, {}},
    {kDreqReceived, MessageKind::kDrep, {}},
    {kSidrReqSent, MessageKind::kSidrRep, {}},
};

}  // namespace

void Connection::raise(CmEvent event, const Message* message) {
  if (owner_ != nullptr && event != CmEvent::kNone)
    owner_->connection_event(event, message);  // may destroy us
}

void Connection::receive(const Message& m) {
  const auto* row = std::find_if(std::begin(kRows), std::end(kRows),
                                 [&](const Row& r) { return r.kind == m.kind && r.from == facts_.state; });
  if (row == std::end(kRows)) return;
  if (m.kind == MessageKind::kDreq && m[kRemoteQpn] != facts_.local_qpn) return;
  if (m.kind == MessageKind::kMra) {
    if (m[kWhichMessage] != (facts_.state == kReqSent ? kAnsweredReq : kAnsweredRep)) return;
    timeout_ms_ =
        milliseconds_of(static_cast<unsigned>(m[kServiceTimeout])) + milliseconds_of(facts_.timeout);
    alarm_.set_after_ms(timeout_ms_);
    go(row->to);
    return;
  }
  if (row->action == Action::kAgain) return answer_again(m);
  if (m.kind == MessageKind::kRep && !take_rep(m)) return;
  if (m.kind == MessageKind::kDreq) transaction_ = m[kTransaction];
  alarm_.cancel();
  const bool stale = m.kind == MessageKind::kRej && m[kReason] == kRejectStaleConnection;
  if (row->action == Action::kTimewait || (row->action == Action::kReset && stale))
    enter_timewait();
  else if (row->action == Action::kReset)
    reset_to_idle();
  else
    go(row->to);
  raise(row->event, &m);
}

void Connection::answer_again(const Message& m) {
  if (m.kind == MessageKind::kDreq) return post(begin(MessageKind::kDrep));
  if (facts_.state == kEstablished) return post(begin(MessageKind::kRtu));
  Message mra = begin(MessageKind::kMra);
  mra[kWhichMessage] = m.kind == MessageKind::kReq ? kAnsweredReq : kAnsweredRep;
  mra[kServiceTimeout] = service_timeout_;
  post(mra);
}

bool Connection::take_rep(const Message& m) {
  const auto id = static_cast<uint32_t>(m[kLocalId]);
  const auto qpn = static_cast<uint32_t>(m[facts_.qp_type == IBV_QPT_XRC_SEND ? kEecn : kQpn]);
  if (table_.by_remote_id_.contains({peer_, id})) return false;
  if (table_.by_remote_qpn_.contains({peer_, qpn})) {
    table_.reject_stale(peer_, m, kAnsweredRep);
    table_.by_remote_qpn_.at({peer_, qpn})->send_dreq();
    return false;
  }
  remote_id_ = id;
  facts_.remote_qpn = qpn;
  table_.by_remote_id_[{peer_, remote_id_}] = this;
  table_.by_remote_qpn_[{peer_, qpn}] = this;
  listed_id_ = listed_qpn_ = true;
  facts_.initiator_depth = static_cast<uint8_t>(m[kResponderResources]);
  facts_.responder_resources = static_cast<uint8_t>(m[kInitiatorDepth]);
  facts_.sq_psn = static_cast<uint32_t>(m[kPsn]);
  facts_.rnr_retry_count = static_cast<uint8_t>(m[kRnrRetryCount]);
  facts_.timeout = ack_timeout_of(facts_.path.packet_life_time, static_cast<uint8_t>(m[kTargetAckDelay]));
  return true;
}

namespace {

// cm_req_get_qp_type: the type of the other end of such a connection.
ibv_qp_type passive_type(const Message& m) {
  switch (m[kTransportType]) {
    case 0:
      return IBV_QPT_RC;
    case 1:
      return IBV_QPT_UC;
    default:
      return IBV_QPT_XRC_RECV;
  }
}

}  // namespace

// The requester and the service, which requests of both kinds name.
void Connection::be_asked(const Peer& peer, const Message& m) {
  peer_ = peer;
  remote_id_ = static_cast<uint32_t>(m[kLocalId]);
  service_id_ = m[kServiceId];
  transaction_ = m[kTransaction];
  source_ = m.destination;
  destination_ = m.source;
}

// cm_req_handler, cm_format_paths_from_req.
void Connection::take_req(const Peer& peer, const Message& m) {
  be_asked(peer, m);
  timeout_ms_ = milliseconds_of(static_cast<unsigned>(m[kLocalResponseTimeout]));
  max_retries_ = static_cast<uint8_t>(m[kMaxCmRetries]);
  facts_.remote_qpn = static_cast<uint32_t>(m[kQpn]);
  facts_.initiator_depth = static_cast<uint8_t>(m[kResponderResources]);
  facts_.responder_resources = static_cast<uint8_t>(m[kInitiatorDepth]);
  facts_.mtu = static_cast<uint8_t>(m[kMtu]);
  facts_.sq_psn = static_cast<uint32_t>(m[kPsn]);
  facts_.retry_count = static_cast<uint8_t>(m[kRetryCount]);
  facts_.rnr_retry_count = static_cast<uint8_t>(m[kRnrRetryCount]);
  facts_.qp_type = passive_type(m);
  Path& path = facts_.path;
  path = Path{};
  path.sgid = m.primary_remote;
  path.dgid = m.primary_local;
  path.slid = static_cast<uint16_t>(m[kPrimaryRemoteLid]);
  path.dlid = static_cast<uint16_t>(m[kPrimaryLocalLid]);
  path.service_id = service_id_;
  path.flow_label = static_cast<uint32_t>(m[kPrimaryFlowLabel]);
  path.pkey = static_cast<uint16_t>(m[kPkey]);
  path.hop_limit = static_cast<uint8_t>(m[kPrimaryHopLimit]);
  path.traffic_class = static_cast<uint8_t>(m[kPrimaryTrafficClass]);
  path.sl = static_cast<uint8_t>(m[kPrimarySl]);
  path.mtu = facts_.mtu;
  path.rate = static_cast<uint8_t>(m[kPrimaryRate]);
  path.packet_life_time = static_cast<uint8_t>(m[kPrimaryAckTimeout]);
  path.packet_life_time -= path.packet_life_time > 0;
  path.mtu_selector = path.rate_selector = path.packet_life_time_selector = kSelectEqual;
  path.reversible = true;
  facts_.timeout = static_cast<uint8_t>(path.packet_life_time + 1);
  go(kReqReceived);
}

void Connection::take_sidr_req(const Peer& peer, const Message& m) {
  be_asked(peer, m);
  facts_.qp_type = IBV_QPT_UD;
  go(kSidrReqReceived);
}

void Connection::alarm_rang(void* self) { static_cast<Connection*>(self)->timed_out(); }

void Connection::timed_out() {
  if (facts_.state == kTimewait) {
    go(kIdle);
    return raise(CmEvent::kTimewaitExit, nullptr);
  }
  const auto* silence = std::find_if(std::begin(kSilences), std::end(kSilences),
                                     [&](const Silence& s) { return s.from == facts_.state; });
  if (silence == std::end(kSilences)) return;
  if (retries_left_ > 0) {
    --retries_left_;
    post(unanswered_);
    return alarm_.set_after_ms(timeout_ms_);
  }
  if (silence->action == Action::kTimewait)
    enter_timewait();
  else
    reset_to_idle();
  raise(silence->event, nullptr);
}

void Connection::lose_peer() {
  const auto* message = std::find_if(std::begin(kDeathMessages), std::end(kDeathMessages),
                                     [&](const DeathMessage& w) { return w.state == facts_.state; });
  if (message == std::end(kDeathMessages)) return;
  Message m;
  m.kind = message->kind;
  m[kReason] = message->reason;
  m[kRemoteQpn] = facts_.local_qpn;
  m[kStatus] = kSidrReject;
  receive(m);
}

// cm_enter_timewait.
void Connection::enter_timewait() {
  reset_to_idle();
  go(kTimewait);
  alarm_.set_after_ms(milliseconds_of(facts_.timeout));
}

void Connection::reset_to_idle() {
  if (listed_id_) table_.by_remote_id_.erase({peer_, remote_id_});
  if (listed_qpn_) table_.by_remote_qpn_.erase({peer_, facts_.remote_qpn});
  listed_id_ = listed_qpn_ = false;
  alarm_.cancel();
  go(kIdle);
}

}  // namespace verbena::cm
