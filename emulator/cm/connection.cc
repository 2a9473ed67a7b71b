// SPDX-License-Identifier: BSD-2-Clause
//
// The actions of a connection on its owner's behalf. Comments name the functions of cm.c that they follow.
#include "cm/connection.h"

#include <errno.h>

#include <algorithm>
#include <cstring>

#include "cm/connection_table.h"

namespace verbena::cm {

using enum Field;

Connection::Connection(ConnectionTable& table, ConnectionOwner* owner)
    : table_(table), owner_(owner), local_id_(table.add(this)), alarm_(table.clock_, alarm_rang, this) {}

// cm_destroy_id.
Connection::~Connection() {
  owner_ = nullptr;
  notify_of_end();
  reset_to_idle();
  if (listed_sidr_) table_.by_sidr_request_.erase({peer_, remote_id_});
  table_.by_local_id_.erase(local_id_);
}

void Connection::notify_of_end() {
  switch (facts_.state) {
    case CmState::kSidrReqReceived:
      send_sidr_rep({.status = kSidrReject, .qp_number = 0, .qkey = 0, .private_data = {}});
      break;
    case CmState::kReqSent:
    case CmState::kMraReqReceived: {
      uint8_t guid[8];
      for (int i = 0; i < 8; ++i) guid[i] = static_cast<uint8_t>(ca_guid_ >> (56 - 8 * i));
      send_rej(kRejectTimeout, {}, guid);
      break;
    }
    case CmState::kReqReceived:
    case CmState::kMraReqSent:
    case CmState::kRepSent:
    case CmState::kMraRepReceived:
    case CmState::kRepReceived:
    case CmState::kMraRepSent:
      send_rej(kRejectConsumer);
      break;
    case CmState::kEstablished:
      // An XRC target QP outlives its id.
      if (facts_.qp_type != IBV_QPT_XRC_RECV) send_dreq();
      break;
    case CmState::kDreqReceived:
      send_drep();
      break;
    default:
      break;
  }
}

void Connection::forget() {
  reset_to_idle();
  if (listed_sidr_) table_.by_sidr_request_.erase({peer_, remote_id_});
  listed_sidr_ = false;
}

Message Connection::begin(MessageKind kind) const {
  Message message;
  message.kind = kind;
  message.source = source_;
  message.destination = destination_;
  message[kTransaction] = transaction_;
  message[kLocalId] = local_id_;
  message[kRemoteId] = remote_id_;
  return message;
}

void Connection::post(const Message& message) { table_.wire_.send(peer_, message); }

void Connection::post_until_answered(const Message& message) {
  unanswered_ = message;
  retries_left_ = max_retries_;
  post(message);
  alarm_.set_after_ms(timeout_ms_);
}

namespace {

void put_data(Message& message, std::span<const uint8_t> data) {
  if (!data.empty()) std::memcpy(message.private_data.data(), data.data(), data.size());
}

// cm_msgs.h: cm_req_set_qp_type.
struct Transport {
  ibv_qp_type type;
  uint8_t transport, extended;
};
constexpr Transport kTransports[] = {{IBV_QPT_RC, 0, 0}, {IBV_QPT_UC, 1, 0}, {IBV_QPT_XRC_SEND, 3, 1}};

// IB_LID_PERMISSIVE stands for a LID that only a router knows (cm_format_req).
uint16_t lid_for(const Path& path, uint16_t lid) { return path.hop_limit <= 1 ? lid : 0xffff; }

}  // namespace

// ib_send_cm_req, cm_format_req.
int Connection::send_req(const ReqParameters& p) {
  const auto* transport = std::find_if(std::begin(kTransports), std::end(kTransports),
                                       [&](const Transport& t) { return t.type == p.qp_type; });
  if (facts_.state != CmState::kIdle || transport == std::end(kTransports) ||
      p.private_data.size() > kReqPrivateData || p.primary.mtu < IBV_MTU_256 || p.primary.mtu > IBV_MTU_4096)
    return EINVAL;
  if (p.alternate != nullptr && (p.alternate->pkey != p.primary.pkey || p.alternate->mtu != p.primary.mtu))
    return EINVAL;
  peer_ = p.peer;
  service_id_ = p.service_id;
  ca_guid_ = p.ca_guid;
  source_ = p.primary.sgid;
  destination_ = p.primary.dgid;
  transaction_ = uint64_t{table_.next_id_} << 32 | local_id_;
  timeout_ms_ = milliseconds_of(p.primary.packet_life_time) * 2 + milliseconds_of(kResponseTimeout);
  max_retries_ = kCmRetries;
  facts_.qp_type = p.qp_type;
  facts_.local_qpn = p.qp_number & 0xffffff;
  facts_.rq_psn = p.psn & 0xffffff;
  facts_.mtu = p.primary.mtu;
  facts_.responder_resources = p.responder_resources;
  facts_.initiator_depth = p.initiator_depth;
  facts_.retry_count = p.retry_count;
  facts_.timeout = static_cast<uint8_t>(p.primary.packet_life_time + 1);
  facts_.path = p.primary;
  facts_.has_alternate = p.alternate != nullptr;
  if (p.alternate != nullptr) facts_.alternate = *p.alternate;

  Message m = begin(MessageKind::kReq);
  m[kServiceId] = p.service_id;
  m[kCaGuid] = p.ca_guid;
  m[kQpn] = p.qp_number;
  m[kInitiatorDepth] = p.initiator_depth;
  m[kRemoteResponseTimeout] = m[kLocalResponseTimeout] = kResponseTimeout;
  m[kTransportType] = transport->transport;
  m[kExtendedTransportType] = transport->extended;
  m[kFlowControl] = p.flow_control != 0;
  m[kPsn] = p.psn;
  m[kPkey] = p.primary.pkey;
  m[kMtu] = p.primary.mtu;
  m[kMaxCmRetries] = max_retries_;
  m[kVendorId] = p.ece.vendor_id;
  m[kAttributeModifier] = p.ece.attr_mod;
  if (p.qp_type != IBV_QPT_XRC_SEND) {
    m[kResponderResources] = p.responder_resources;
    m[kRetryCount] = p.retry_count;
    m[kRnrRetryCount] = p.rnr_retry_count;
    m[kSrq] = p.srq;
  }
  m.primary_local = source_;
  m.primary_remote = destination_;
  m[kPrimaryLocalLid] = lid_for(p.primary, p.primary.slid);
  m[kPrimaryRemoteLid] = lid_for(p.primary, p.primary.dlid);
  m[kPrimaryFlowLabel] = p.primary.flow_label;
  m[kPrimaryRate] = p.primary.rate;
  m[kPrimaryTrafficClass] = p.primary.traffic_class;
  m[kPrimaryHopLimit] = p.primary.hop_limit;
  m[kPrimarySl] = p.primary.sl;
  m[kPrimarySubnetLocal] = p.primary.hop_limit <= 1;
  m[kPrimaryAckTimeout] = ack_timeout_of(p.primary.packet_life_time, p.ack_delay);
  if (const Path* a = p.alternate; a != nullptr) {
    m.alternate_local = a->sgid;
    m.alternate_remote = a->dgid;
    m[kAlternateLocalLid] = lid_for(*a, a->slid);
    m[kAlternateRemoteLid] = lid_for(*a, a->dlid);
    m[kAlternateFlowLabel] = a->flow_label;
    m[kAlternateRate] = a->rate;
    m[kAlternateTrafficClass] = a->traffic_class;
    m[kAlternateHopLimit] = a->hop_limit;
    m[kAlternateSl] = a->sl;
    m[kAlternateSubnetLocal] = a->hop_limit <= 1;
    m[kAlternateAckTimeout] = ack_timeout_of(a->packet_life_time, p.ack_delay);
  }
  put_data(m, p.private_data);
  go(CmState::kReqSent);
  post_until_answered(m);
  return 0;
}

// ib_send_cm_rep, cm_format_rep.
int Connection::send_rep(const RepParameters& p) {
  if (p.private_data.size() > kRepPrivateData) return EINVAL;
  if (facts_.state != CmState::kReqReceived && facts_.state != CmState::kMraReqSent) return EINVAL;
  ca_guid_ = p.ca_guid;
  facts_.local_qpn = p.qp_number & 0xffffff;
  facts_.rq_psn = p.psn & 0xffffff;
  facts_.initiator_depth = p.initiator_depth;
  facts_.responder_resources = p.responder_resources;
  Message m = begin(MessageKind::kRep);
  m[kPsn] = p.psn;
  m[kResponderResources] = p.responder_resources;
  m[kTargetAckDelay] = p.ack_delay;
  m[kRnrRetryCount] = p.rnr_retry_count;
  m[kCaGuid] = p.ca_guid;
  m[kVendorId] = p.ece.vendor_id >> 16 & 0xff;
  m[kVendorMiddle] = p.ece.vendor_id >> 8 & 0xff;
  m[kVendorLow] = p.ece.vendor_id & 0xff;
  m[kAttributeModifier] = p.ece.attr_mod;
  if (facts_.qp_type != IBV_QPT_XRC_RECV) {
    m[kInitiatorDepth] = p.initiator_depth;
    m[kFlowControl] = p.flow_control != 0;
    m[kSrq] = p.srq;
    m[kQpn] = p.qp_number;
  } else {
    m[kSrq] = 1;
    m[kEecn] = p.qp_number;
  }
  put_data(m, p.private_data);
  go(CmState::kRepSent);
  post_until_answered(m);
  return 0;
}

// ib_send_cm_rtu.
int Connection::send_rtu() {
  if (facts_.state != CmState::kRepReceived && facts_.state != CmState::kMraRepSent) return EINVAL;
  go(CmState::kEstablished);
  post(begin(MessageKind::kRtu));
  return 0;
}

// cm_format_rej.
Message Connection::rejection(RejectReason reason) const {
  Message m = begin(MessageKind::kRej);
  m[kReason] = reason;
  m[kWhichMessage] = kAnsweredOther;
  switch (facts_.state) {
    case CmState::kReqReceived:
      m[kLocalId] = 0;
      m[kWhichMessage] = kAnsweredReq;
      break;
    case CmState::kMraReqSent:
      m[kWhichMessage] = kAnsweredReq;
      break;
    case CmState::kRepReceived:
    case CmState::kMraRepSent:
      m[kWhichMessage] = kAnsweredRep;
      break;
    default:
      break;
  }
  return m;
}

// ib_send_cm_rej.
int Connection::send_rej(RejectReason reason, std::span<const uint8_t> data, std::span<const uint8_t> info) {
  if (data.size() > kRejPrivateData || info.size() > kInfoSize) return EINVAL;
  Message m = rejection(reason);
  m[kInfoLength] = info.size();
  if (!info.empty()) std::memcpy(m.info.data(), info.data(), info.size());
  put_data(m, data);
  switch (facts_.state) {
    case CmState::kReqSent:
    case CmState::kMraReqReceived:
    case CmState::kReqReceived:
    case CmState::kMraReqSent:
    case CmState::kRepReceived:
    case CmState::kMraRepSent:
      reset_to_idle();
      break;
    case CmState::kRepSent:
    case CmState::kMraRepReceived:
      enter_timewait();
      break;
    default:
      return EINVAL;
  }
  post(m);
  return 0;
}

// ib_send_cm_dreq.
int Connection::send_dreq() {
  if (facts_.state != CmState::kEstablished) return EINVAL;
  Message m = begin(MessageKind::kDreq);
  m[kTransaction] = uint64_t{table_.next_id_} << 32 | local_id_;
  m[kRemoteQpn] = facts_.remote_qpn;
  go(CmState::kDreqSent);
  post_until_answered(m);
  return 0;
}

// ib_send_cm_drep.
int Connection::send_drep() {
  if (facts_.state != CmState::kDreqReceived) return EINVAL;
  enter_timewait();
  post(begin(MessageKind::kDrep));
  return 0;
}

// ib_send_cm_sidr_req.
int Connection::send_sidr_req(const SidrReqParameters& p) {
  if (facts_.state != CmState::kIdle || p.private_data.size() > kSidrReqPrivateData) return EINVAL;
  peer_ = p.peer;
  service_id_ = p.service_id;
  source_ = p.path.sgid;
  destination_ = p.path.dgid;
  transaction_ = uint64_t{table_.next_id_} << 32 | local_id_;
  timeout_ms_ = milliseconds_of(kResponseTimeout);
  max_retries_ = kCmRetries;
  facts_.qp_type = IBV_QPT_UD;
  facts_.path = p.path;
  Message m = begin(MessageKind::kSidrReq);
  m[kPkey] = p.path.pkey;
  m[kServiceId] = p.service_id;
  put_data(m, p.private_data);
  go(CmState::kSidrReqSent);
  post_until_answered(m);
  return 0;
}

// ib_send_cm_sidr_rep.
int Connection::send_sidr_rep(const SidrRepParameters& p) {
  if (facts_.state != CmState::kSidrReqReceived || p.private_data.size() > kSidrRepPrivateData) return EINVAL;
  Message m = begin(MessageKind::kSidrRep);
  m[kLocalId] = remote_id_;  // the request's own ID comes back
  m[kStatus] = p.status;
  m[kQpn] = p.qp_number;
  m[kQkey] = p.qkey;
  m[kServiceId] = service_id_;
  put_data(m, p.private_data);
  go(CmState::kIdle);
  if (listed_sidr_) table_.by_sidr_request_.erase({peer_, remote_id_});
  listed_sidr_ = false;
  post(m);
  return 0;
}

// ib_send_cm_mra with IB_CM_MRA_FLAG_DELAY.
void Connection::delay() {
  service_timeout_ = kMraTimeout;
  if (facts_.state == CmState::kReqReceived) go(CmState::kMraReqSent);
  if (facts_.state == CmState::kRepReceived) go(CmState::kMraRepSent);
}

// cm_establish.
int Connection::establish() {
  if (facts_.state == CmState::kEstablished) return EISCONN;
  if (facts_.state != CmState::kRepSent && facts_.state != CmState::kMraRepReceived) return EINVAL;
  go(CmState::kEstablished);
  alarm_.cancel();
  return 0;
}

}  // namespace verbena::cm
