// SPDX-License-Identifier: BSD-2-Clause
#include "engine/roce_transport/roce_path.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cstring>
#include <mutex>

#include "adapter/clock.h"
#include "engine/objects/process.h"
#include "engine/objects/qp.h"
#include "engine/objects/requester_context.h"
#include "engine/objects/send_request.h"
#include "engine/requester/local_bytes.h"
#include "engine/requester/observed_retry.h"
#include "engine/requester/requester.h"
#include "engine/responder/payload_stream.h"
#include "engine/responder/peer_path.h"
#include "engine/roce_transport/packet_sender.h"
#include "engine/roce_transport/source_port.h"
#include "engine/rules/psn.h"
#include "engine/rules/timers.h"
#include "fabric/hazards.h"
#include "fabric/port_counters.h"
#include "roce/syndrome.h"

namespace verbena {
namespace {

using packets::Failure;
using packets::Kind;
using packets::PacketRequest;

// Packets in flight of one queue pair, at most and in the beginning. The receive buffer of a socket holds
// about 90 of 1 KiB by default.
constexpr uint32_t kPacketWindow = 128, kFirstWindow = 32;
// While so many packets are in flight, requests wait for each other until so many may go together: a system
// call for each of them would cost more than all else. Acknowledgements come meanwhile, and they are sent
// then as well; at the latest after this time, ns.
constexpr uint32_t kBusy = 8, kTogether = 16;
constexpr int64_t kLongestHold = 20'000;
constexpr uint32_t kLongestHeld = 1024;  // bytes
// When the network is full, this long until the next attempt.
constexpr int64_t kFullPause = 100'000;

packets::Connection connection_of(const Qp& qp, const ibv_qp_attr& attr, uint32_t remote_qpn) {
  const bool is_extended = qp.type == IBV_QPT_XRC_SEND || qp.type == IBV_QPT_XRC_RECV;
  return {qp.type != IBV_QPT_UC, mtu_bytes(attr.path_mtu), remote_qpn, roce::kDefaultPkey, is_extended};
}

packets::RequesterOptions requester_options(const Qp& qp, const ibv_qp_attr& attr, uint32_t remote_qpn) {
  packets::RequesterOptions options;
  options.connection = connection_of(qp, attr, remote_qpn);
  options.depth = static_cast<uint32_t>(qp.sq.size());
  options.window = kPacketWindow;
  options.first_window = kFirstWindow;
  return options;
}

// The hop limit is the route's, whatever the attributes say (the kernel's ib_resolve_unicast_gid_dmac()); the
// ECN bits are ours (mlx5_set_path() takes the DSCP alone). RFC 8085, 3.1.7: ECT only if marks are obeyed.
udp::IpFields ip_fields_of(const ibv_qp_attr& attr, bool obeys_marks) {
  const ibv_global_route& route = attr.ah_attr.grh;
  const auto dscp = static_cast<uint8_t>(route.traffic_class & ~udp::kEcnMask);
  return {static_cast<uint8_t>(dscp | (obeys_marks ? udp::kEcnCapable : 0)), 0, route.flow_label & 0xfffff};
}

uint16_t port_of_path(const Qp& qp, const ibv_qp_attr& attr) {
  const uint32_t label = attr.ah_attr.grh.flow_label & 0xfffff;
  return source_port_of(label != 0 ? label : flow_label_of(qp.shared->qpn, attr.dest_qp_num));
}

// Is there nothing that lowers the rate of such answers?
bool has_no_window(const roce::Packet& packet) {
  const roce::OpcodeInfo* const info = roce::find_opcode(packet.bth.opcode);
  return info->operation == roce::Operation::kReadResponse || info->operation == roce::Operation::kCongestion;
}

packets::RequesterLimits limits_of(const ibv_qp_attr& attr) {
  return {attr.max_rd_atomic, ack_timeout_ns(attr.timeout), attr.retry_cnt, attr.rnr_retry};
}

// Nothing: packets have no such operation.
bool packet_kind(ibv_wr_opcode opcode, Kind* kind) {
  if (opcode == kAtomicWrite) {
    *kind = Kind::kAtomicWrite;
    return true;
  }
  switch (opcode) {
    case IBV_WR_SEND:
    case IBV_WR_SEND_WITH_IMM:
    case IBV_WR_SEND_WITH_INV:
      *kind = Kind::kSend;
      return true;
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_WRITE_WITH_IMM:
      *kind = Kind::kWrite;
      return true;
    case IBV_WR_RDMA_READ:
      *kind = Kind::kRead;
      return true;
    case IBV_WR_ATOMIC_CMP_AND_SWP:
      *kind = Kind::kCompareSwap;
      return true;
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
      *kind = Kind::kFetchAdd;
      return true;
    default:
      return false;
  }
}

PacketRequest packet_request(const SendRequest& request, const SendOperation& operation, Kind kind) {
  PacketRequest made;
  made.number = request.number;
  made.kind = kind;
  made.solicited = (request.flags & IBV_SEND_SOLICITED) != 0;
  made.fenced = (request.flags & IBV_SEND_FENCE) != 0;
  made.has_immediate = operation.carries_immediate;
  made.has_invalidate = operation.carries_invalidate;
  made.immediate = operation.carries_invalidate ? request.immediate : ntohl(request.immediate);
  made.length = request.length;
  made.remote_address = request.remote_address;
  made.rkey = request.rkey;
  made.compare_add = request.compare_add;
  made.swap = request.swap;
  made.srqn = request.remote_srqn;
  return made;
}

// Any packet with a wrong PSN causes one, also one that is not the peer's.
bool is_sequence_nak(const roce::Packet& packet) {
  const roce::OpcodeInfo* const info = roce::find_opcode(packet.bth.opcode);
  return info != nullptr && info->operation == roce::Operation::kAcknowledge &&
         packet.aeth.syndrome == roce::nak_syndrome(roce::NakCode::kSequence);
}

VendorError failure_error(Failure failure, VendorError local) {
  switch (failure) {
    case Failure::kLocalProtection:
      return local;
    case Failure::kBadResponse:
      return VendorError::bad_response;
    case Failure::kInvalidRequest:
      return VendorError::remote_opcode_refused;
    case Failure::kRemoteAccess:
      return VendorError::rkey_no_right;
    case Failure::kRemoteOperation:
      return VendorError::remote_operation_failed;
    case Failure::kRetryExceeded:
      return VendorError::peer_silent;
    case Failure::kRnrRetryExceeded:
      return VendorError::no_receive_posted;
  }
  return VendorError::peer_silent;
}

}  // namespace

RocePath::RocePath(Qp& qp, const ibv_qp_attr& attr, const RocePeer& peer, PacketSender& sender,
                   RocePathOwner& owner)
    : qp_(qp),
      peer_(peer),
      sender_(sender),
      socket_(sender.choose_socket(port_of_path(qp, attr))),
      owner_(owner),
      mtu_(mtu_bytes(attr.path_mtu)),
      fields_(ip_fields_of(attr, is_acknowledged(qp.type))),
      unlimited_(ip_fields_of(attr, false)),
      requester_(requester_options(qp, attr, peer.qpn), *this),
      host_(qp, peer_.address, peer.qpn, psn_of(attr.rq_psn)),
      responder_({connection_of(qp, attr, peer.qpn), psn_of(attr.rq_psn), attr.max_dest_rd_atomic}, host_) {}

SendRequest& RocePath::request(uint64_t number) const { return qp_.sq[number & (qp_.sq.size() - 1)]; }

const wire::NetAddress& RocePath::own_address() const { return sender_.address(); }

bool RocePath::is_in_use() const {
  const ibv_qp_state state = qp_.state.load(std::memory_order_relaxed);
  return begun_ && qp_.frame_path.get() == this && (state == IBV_QPS_RTS || state == IBV_QPS_SQD);
}

// ---- posting ----

void RocePath::begin() {
  if (!begun_) {
    begun_ = true;
    requester_.begin(next_psn(qp_));
    completed_below_ = qp_.sq_next;
  }
  requester_.set_limits(limits_of(qp_.attr));
}

SendResult RocePath::send(Qp& qp, const SendOperation& operation, SendRequest& request) {
  Kind kind{};
  if (!packet_kind(request.opcode, &kind)) return {SendOutcome::kFailed, VendorError::remote_opcode_refused};
  begin();
  if (has_failed_ || !requester_.post(packet_request(request, operation, kind)))
    return {SendOutcome::kBlocked};
  const bool is_alone = qp.sq_next == request.number;
  if (may_hold(request)) {
    if (held_until_ == kEndOfTime) owner_.note_timer(held_until_ = now_ns() + kLongestHold);
    return {SendOutcome::kSent};
  }
  send_packets(now_ns(), is_reporting_);  // reports come from the receiving thread
  if (is_alone && has_failed_ && failed_number_ == request.number) {
    has_failed_ = false;
    return {SendOutcome::kFailed, error_};
  }
  if (is_alone && completed_below_ == request.number + 1) {  // UC
    complete_request(qp, request);
    return {SendOutcome::kCompleted};
  }
  if (!is_watched_) {
    is_watched_ = true;
    owner_.watch(shared_from_this());
  }
  return {SendOutcome::kSent};
}

// Only what goes together with others is worth waiting for: single packets.
bool RocePath::may_hold(const SendRequest& request) {
  return is_watched_ && is_acknowledged(qp_.type) && request.length <= kLongestHeld &&
         requester_.requests_unsent() < kTogether && requester_.in_flight() >= kBusy;
}

void RocePath::send_packets(int64_t now, bool receives) {
  is_full_ = false;
  held_until_ = kEndOfTime;
  if (requester_.requests_unsent() == 0) return;
  if (const BorrowedTrain train(sender_); train) return send_trains(*train, now, receives);
  packets::OwnedOutgoingPacket out;
  for (;;) {
    const Before before = before_packet();
    if (!requester_.next_packet(now, &out)) return;
    if (!ports_up(qp_.requester) || sender_.send(peer_.address, fields_, out.packet, socket_)) continue;
    return take_back(before, now);
  }
}

void RocePath::take_back(const Before& before, int64_t now) {
  requester_.take_back(before.position);
  completed_below_ = before.completed_below;
  is_full_ = true;
  owner_.note_timer(now + kFullPause);
}

void RocePath::send_trains(PacketTrain& train, int64_t now, bool receives) {
  train_ = &train;
  filled_at_ = now;
  fill_and_send(train, now, receives);
  train_ = nullptr;
  ahead_ = {};
}

void RocePath::fill_and_send(PacketTrain& train, int64_t now, bool receives) {
  Before before[PacketTrain::kMost];
  for (bool more = true; more;) {
    train.clear();
    ahead_ = {};
    while (more && !train.is_full()) {
      before[train.size()] = before_packet();
      more = requester_.next_packet(now, &train.next());
      if (more) train.add();
    }
    const size_t requests = train.size();
    if (requests == 0 || !ports_up(qp_.requester)) continue;
    if (!more) add_acknowledgement(train, receives);
    const size_t sent = sender_.send(peer_.address, fields_, train, socket_);
    if (sent < requests) return take_back(before[sent], now);
  }
}

// A reply and the acknowledgement of what it replies to are one datagram for the kernel, where it may divide.
void RocePath::add_acknowledgement(PacketTrain& train, bool receives) {
  if (!is_waiting_.load(std::memory_order_relaxed) || train.is_full()) return;
  std::unique_lock<std::timed_mutex> lock;
  if (!receives) lock = owner_.try_receiving();
  if ((receives || lock.owns_lock()) && responder_.may_wait() && responder_.next_packet(&train.next()))
    train.add();
}

// Tells the requester what has become of its requests. It may post further ones meanwhile.
void RocePath::report() {
  if (is_reporting_) return;
  is_reporting_ = true;
  for (uint64_t reported = qp_.sq_next; reported < completed_below_;) {
    const uint64_t until = completed_below_;
    for (; reported < until; ++reported)
      if (SendRequest* const read = find_awaiting_response(qp_, reported))
        responded(qp_, *read, VendorError::none);
    acknowledged(qp_, until);
  }
  if (has_failed_) {
    has_failed_ = false;
    refused(qp_, failed_number_, error_);
  }
  is_reporting_ = false;
}

// ---- packets::RequesterHost ----

void RocePath::failed(uint64_t number, Failure failure) {
  has_failed_ = true;
  failed_number_ = number;
  error_ = failure_error(failure, local_error_);
}

void RocePath::got_rnr_nak() {
  qp_.shared->rnr_naks.fetch_add(1, std::memory_order_relaxed);
  if (qp_.sq_next != qp_.sq_posted)
    observe_retry(qp_, request(qp_.sq_next), qp_.requester.psn, VendorError::no_receive_posted);
}

void RocePath::retried() {
  qp_.shared->retries.fetch_add(1, std::memory_order_relaxed);
  if (qp_.sq_next != qp_.sq_posted)
    observe_retry(qp_, request(qp_.sq_next), qp_.requester.psn, VendorError::peer_silent);
}

// Moves bytes between `here` and [offset, ...) of the memory of a request.
VendorError RocePath::move(uint64_t number, uint32_t offset, std::span<const iovec> here, bool to_program) {
  size_t size = 0;
  for (const iovec& part : here) size += part.iov_len;
  if (size == 0) return VendorError::none;
  const SendRequest& wanted = request(number);
  Process& process = *qp_.process;
  const HazardGuard guard(process.hazards(), process.membership().slot());
  iovec ranges[PeerAdapter::kMaxRanges], parts[PeerAdapter::kMaxRanges];
  size_t count = 0;
  const VendorError error =
      find_local_bytes(qp_, *find_send_operation(wanted.opcode), wanted, ranges, &count);
  if (error != VendorError::none) return error;
  count = cut_ranges(ranges, count, offset, size, parts, PeerAdapter::kMaxRanges);
  if (!to_program && here.size() == 1 && (wanted.is_inline || size <= kBounceSize)) {
    auto* to = static_cast<uint8_t*>(here[0].iov_base);
    for (size_t i = 0; i < count; ++i) {
      std::memcpy(to, parts[i].iov_base, parts[i].iov_len);
      to += parts[i].iov_len;
    }
    return VendorError::none;
  }
  PeerAdapter& self = process.self();
  const int failed = to_program ? self.write(process.directory(), here.data(), here.size(), parts, count)
                                : self.read(process.directory(), here.data(), here.size(), parts, count);
  return failed == 0 ? VendorError::none : VendorError::local_memory_gone;
}

// The packets that follow in the same message will be asked for next, and it is known where they will lie:
// one system call for all. True: the bytes are there.
bool RocePath::gather_ahead(uint64_t number, uint32_t offset, std::span<uint8_t> to) {
  const auto size = static_cast<uint32_t>(to.size());
  if (ahead_.number == number && offset > ahead_.begin && offset < ahead_.end)
    return to.data() == ahead_.at + (offset - ahead_.begin) / mtu_ * PacketTrain::stride(mtu_);
  const SendRequest& wanted = request(number);
  if (train_ == nullptr || wanted.is_inline || size != mtu_ || wanted.length - offset <= mtu_) return false;
  iovec here[PacketTrain::kMost];
  const size_t most = std::min<size_t>(train_->space(mtu_), requester_.room(filled_at_));
  size_t count = 0;
  uint32_t end = offset;
  for (; count < most && end < wanted.length; ++count) {
    const uint32_t next = std::min(mtu_, wanted.length - end);
    here[count] = {to.data() + count * PacketTrain::stride(mtu_), next};
    end += next;
  }
  if (count < 2 || move(number, offset, {here, count}, false) != VendorError::none) return false;
  ahead_ = {number, offset, end, to.data()};
  return true;
}

bool RocePath::gather(uint64_t number, uint32_t offset, std::span<uint8_t> to) {
  if (gather_ahead(number, offset, to)) return true;
  const iovec here{to.data(), to.size()};
  local_error_ = move(number, offset, {&here, 1}, false);
  return local_error_ == VendorError::none;
}

bool RocePath::scatter(uint64_t number, uint32_t offset, std::span<const uint8_t> from) {
  const iovec here{const_cast<uint8_t*>(from.data()), from.size()};
  local_error_ = move(number, offset, {&here, 1}, true);
  return local_error_ == VendorError::none;
}

bool RocePath::atomic_result(uint64_t number, uint64_t before) {
  const iovec here{&before, sizeof before};
  local_error_ = move(number, 0, {&here, 1}, true);
  return local_error_ == VendorError::none;
}

// ---- the receiving thread ----

void RocePath::take_response(const roce::Packet& packet, int64_t now) {
  std::lock_guard lock(qp_.send_lock);
  if (!is_in_use()) return;
  if (packet.bth.opcode == roce::kCnpOpcode)
    requester_.on_congestion(now);
  else
    requester_.on_packet(packet, now);
  report();
}

int64_t RocePath::send_requests(int64_t now) {
  std::lock_guard lock(qp_.send_lock);
  if (!is_in_use()) return kEndOfTime;
  send_packets(now, true);
  report();
  return next_timer(now);
}

bool RocePath::take_request(const roce::Packet& packet) {
  if (!host_.is_ready()) return false;
  if (is_acknowledged(qp_.type)) {
    const int32_t ahead = psn_distance(responder_.expected_psn(), packet.bth.psn);
    if (ahead != 0 && !responder_.has_failed()) [[unlikely]]
      count_event(qp_.process->directory(), *qp_.shared,
                  ahead > 0 ? HwCounter::kOutOfSequence : HwCounter::kDuplicates);
  }
  const bool was_due = responder_.is_nak_due();
  responder_.on_packet(packet);
  return !was_due && responder_.is_nak_due();
}

void RocePath::take_mark(int64_t now) {
  if (host_.is_ready()) responder_.on_mark(now);
}

bool RocePath::is_answer_due() const { return responder_.is_answer_due(); }

bool RocePath::let_wait() {
  const bool may_wait = responder_.may_wait();
  is_waiting_.store(may_wait, std::memory_order_relaxed);
  return may_wait;
}

// What the network does not take is lost: the peer asks again.
bool RocePath::send_answers(int most, const std::function<bool(const wire::NetAddress&)>& may_refuse) {
  is_waiting_.store(false, std::memory_order_relaxed);
  const auto is_wanted = [&](const roce::Packet& packet) {
    return !is_sequence_nak(packet) || may_refuse(peer_.address);
  };
  if (const BorrowedTrain train(sender_); train) {
    for (bool more = true; more;) {
      train->clear();
      bool unlimited = false;
      while (more && most > 0 && !train->is_full()) {
        more = responder_.next_packet(&train->next());
        if (!more) break;
        const roce::Packet& packet = train->next().packet;
        unlimited |= has_no_window(packet);
        if (is_wanted(packet)) train->add();
        --most;
      }
      if (train->size() != 0 && ports_up(qp_.requester) &&
          sender_.send(peer_.address, unlimited ? unlimited_ : fields_, *train, socket_) < train->size())
        qp_.process->directory().count_drop(PacketDrop::kNotSent);
      if (most == 0) return false;
    }
    return true;
  }
  packets::OwnedOutgoingPacket out;
  while (responder_.next_packet(&out)) {
    if (is_wanted(out.packet) && ports_up(qp_.requester) &&
        !sender_.send(peer_.address, has_no_window(out.packet) ? unlimited_ : fields_, out.packet, socket_))
      qp_.process->directory().count_drop(PacketDrop::kNotSent);
    if (--most == 0) return false;
  }
  return true;
}

int64_t RocePath::next_timer(int64_t now) const {
  const int64_t at = std::min(requester_.timer(), held_until_);
  return is_full_ ? std::min(at, now + kFullPause) : at;
}

int64_t RocePath::on_timer(int64_t now) {
  std::lock_guard lock(qp_.send_lock);
  if (is_in_use() && requester_.is_idle()) report();
  if (!is_in_use() || requester_.is_idle()) {
    is_watched_ = false;
    return kEndOfTime;
  }
  if (next_timer(now) <= now || is_full_) {
    requester_.on_timer(now);
    send_packets(now, true);
    report();
  }
  return std::min(next_timer(now), kEndOfTime - 1);
}

}  // namespace verbena
