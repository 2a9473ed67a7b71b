// SPDX-License-Identifier: BSD-2-Clause
#include "engine/remote/frame_receiver.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "adapter/clock.h"
#include "engine/objects/process.h"
#include "engine/objects/qp.h"
#include "engine/remote/remote_requester.h"
#include "observe/log.h"

namespace verbena {
namespace {

using wire::AnswerHead;
using wire::Flow;
using wire::Frame;
using wire::FrameKind;
using wire::RequestHead;

// So often a socket is read in one call; then the next peer follows.
constexpr int kRounds = 16;
// So many frames are carried out for a program that polls. It has to post receive WQEs for the next ones.
constexpr int kMostFrames = 64;
// Frames that came before the end of a connection and cannot be carried out yet have this long.
constexpr int64_t kDrainPatience = 1'000'000'000;

// Nothing that has come from the peer is half done.
bool is_at_rest(const RemotePeer& peer) {
  return peer.in.size() == 0 && peer.bulk_in.left == 0 && peer.acknowledgements_due.empty() &&
         !peer.answers_due && !peer.stalled && !peer.broken.load(std::memory_order_relaxed) &&
         !peer.out_ended.load(std::memory_order_relaxed);
}

// Has the connection ended, and has everything been carried out that came before? A process that sends,
// answers and ends at once has sent and answered. Its bytes in the kernel outlive it, and must not be dropped
// because ours could not be delivered any more. `in_ended`: the stream has been read to its end. `progress`:
// a frame has just been carried out.
bool is_over(RemotePeer& peer, bool in_ended, bool progress) {
  if (in_ended || peer.broken.load(std::memory_order_acquire)) return true;
  if (!peer.stalled || progress || !peer.out_ended.load(std::memory_order_relaxed)) {
    peer.ended_at = 0;
    return false;
  }
  const int64_t now = now_ns();
  if (peer.ended_at == 0) peer.ended_at = now;
  return now - peer.ended_at > kDrainPatience;
}

// The requester is about to be destroyed.
void let_go(RemotePeer& peer, RemoteRequester& remote_requester) {
  remote_requester.give_back();
  std::erase(peer.acknowledgements_due, &remote_requester);
  std::erase(peer.waiting_for_receives, &remote_requester);
  if (peer.bulk_in.remote_requester == &remote_requester) peer.bulk_in.remote_requester = nullptr;
}

uint64_t key_of(const RequestHead& head) { return uint64_t{head.source_qpn} << 32 | head.target_qpn; }

void answer_not_ready(RemotePeer& peer, const RequestHead& head, VendorError error) {
  std::lock_guard out(peer.out_mutex);
  append_answer(peer, {sizeof(AnswerHead),
                       FrameKind::kNotReady,
                       0,
                       {},
                       head.source_qpn,
                       head.target_qpn,
                       head.path_generation,
                       head.number,
                       static_cast<uint64_t>(error)});
}

}  // namespace

// What take_in() has done.
struct FrameReceiver::Intake {
  int frames = 0;
  bool had_enough = false;  // more frames are there
  bool in_ended = false;    // the stream has been read to its end
};

// ---- requests ----

// The queue pair there must be the one that ours was connected to: its number, address and process.
VendorError FrameReceiver::add_requester(RemotePeer& peer, const RequestHead& head, RemoteRequester** added) {
  Route* const route = connections_.find_route(head.target_qpn);
  if (route == nullptr) return VendorError::peer_not_ready;
  if (route->path->qpn != head.source_qpn || route->path->to != peer.address ||
      (route->peer && route->peer.get() != &peer))
    return VendorError::peer_mismatch;
  if (!route->peer) connections_.bind(*route, peer.shared_from_this());
  auto made = std::make_unique<RemoteRequester>(peer, process_);
  const VendorError error = made->aim(head);
  if (error == VendorError::none) *added = (peer.remote_requesters[key_of(head)] = std::move(made)).get();
  return error;
}

// The requester of the request; nullptr: there is none, and the request was answered.
RemoteRequester* FrameReceiver::find_requester(RemotePeer& peer, const RequestHead& head) {
  if (const auto known = peer.remote_requesters.find(key_of(head)); known != peer.remote_requesters.end()) {
    known->second->expect_request();
    if (known->second->aim(head) == VendorError::none) return known->second.get();
    let_go(peer, *known->second);
    peer.remote_requesters.erase(known);
  }
  RemoteRequester* added = nullptr;
  const VendorError error = add_requester(peer, head, &added);
  if (error != VendorError::none) answer_not_ready(peer, head, error);
  return added;
}

FrameResult FrameReceiver::note_request(RemotePeer& peer, RemoteRequester& remote_requester, Taken taken) {
  if (remote_requester.acknowledgement_due &&
      (peer.acknowledgements_due.empty() || peer.acknowledgements_due.back() != &remote_requester))
    peer.acknowledgements_due.push_back(&remote_requester);
  switch (taken) {
    case Taken::kDone:
    case Taken::kSkip:
      peer.bulk_in.remote_requester = nullptr;
      return FrameResult::kDone;
    case Taken::kMore:
      return FrameResult::kMore;
    case Taken::kStalled:
      return FrameResult::kStalled;
  }
  return FrameResult::kStalled;
}

FrameResult FrameReceiver::take_request(RemotePeer& peer, const Frame& frame) {
  const RequestHead& head = frame.head.request;
  const bool large = head.size > kCopied && frame.payload != 0;
  if (!large && peer.in.size() < frame.head_size + frame.payload) return FrameResult::kMore;
  RemoteRequester* const remote_requester = find_requester(peer, head);
  if (large) {
    peer.in.consume(frame.head_size);
    peer.bulk_in = {};
    peer.bulk_in.left = frame.payload;
    peer.bulk_in.remote_requester = remote_requester;
    peer.bulk_in.request = head;
    if (remote_requester == nullptr) return FrameResult::kDone;
    return note_request(peer, *remote_requester, remote_requester->take(head, nullptr, frame.payload));
  }
  FrameResult result = FrameResult::kDone;
  if (remote_requester != nullptr)
    result = note_request(peer, *remote_requester,
                          remote_requester->take(head, peer.in.data() + frame.head_size, frame.payload));
  if (result == FrameResult::kDone) peer.in.consume(frame.head_size + frame.payload);
  return result;
}

void FrameReceiver::acknowledge(RemotePeer& peer) {
  for (RemoteRequester* remote_requester : peer.acknowledgements_due) {
    if (!remote_requester->acknowledgement_due) continue;
    remote_requester->acknowledgement_due = false;
    append_answer(peer, remote_requester->acknowledgement());
  }
  peer.acknowledgements_due.clear();
}

void FrameReceiver::tell_of_receives() {
  for (const std::shared_ptr<RemotePeer>& peer : connections_.peers().all())
    std::erase_if(peer->waiting_for_receives, [](RemoteRequester* remote_requester) {
      if (!remote_requester->tell_of_receives()) return false;
      remote_requester->waits_for_receive = false;
      return true;
    });
}

void FrameReceiver::forget(uint32_t qpn) {
  for (const std::shared_ptr<RemotePeer>& peer : connections_.peers().all()) {
    AnswerReceiver::forget(*peer, qpn);
    std::erase_if(peer->remote_requesters, [&](const auto& entry) {
      if (entry.second->target_qpn() != qpn) return false;
      let_go(*peer, *entry.second);
      return true;
    });
  }
}

// ---- queries ----

void FrameReceiver::answer_query(RemotePeer& peer, const wire::QueryHead& query) {
  const NodeDirectory& directory = process_.directory();
  wire::WhereaboutsHead head{sizeof(wire::WhereaboutsHead),
                             FrameKind::kWhereabouts,
                             {},
                             query.qpn,
                             0,
                             directory.header().node_id,
                             0,
                             0};
  if (QpnEntry found; directory.find_qpn(head.qpn, &found)) {
    head.slot = found.slot;
    head.generation = directory.slot(found.slot).generation.load(std::memory_order_acquire);
  }
  std::lock_guard out(peer.out_mutex);
  std::byte* const at = peer.out.room() >= sizeof head ? peer.out.append(sizeof head) : nullptr;
  if (at != nullptr) std::memcpy(at, &head, sizeof head);
}

// ---- frames ----

FrameResult FrameReceiver::take_bulk(RemotePeer& peer) {
  auto& bulk = peer.bulk_in;
  peer.takes_large = bulk.remote_requester != nullptr ? sizeof(RequestHead) : sizeof(AnswerHead);
  if (bulk.remote_requester != nullptr)
    return note_request(peer, *bulk.remote_requester, bulk.remote_requester->go_on(bulk.request));
  if (bulk.is_answer) return answers_.take_more(peer);
  peer.takes_large = 0;
  const uint64_t skipped = std::min<uint64_t>(bulk.left, peer.in.size());
  peer.in.consume(skipped);
  bulk.left -= skipped;
  return bulk.left == 0 ? FrameResult::kDone : FrameResult::kMore;
}

FrameResult FrameReceiver::take_frame(RemotePeer& peer) {
  if (peer.broken.load(std::memory_order_relaxed)) return FrameResult::kStalled;
  if (peer.bulk_in.left != 0) return take_bulk(peer);
  Frame frame;
  switch (wire::decode(peer.in.data(), peer.in.size(), &frame)) {
    case wire::Decoded::kIncomplete:
      return FrameResult::kMore;
    case wire::Decoded::kMalformed:
      VERBENA_WARN(peer_frame, "process %u of %s sends what is no frame: the connection ends", peer.id.slot,
                   peer.address.text().c_str());
      peer.broken.store(true, std::memory_order_relaxed);
      return FrameResult::kStalled;
    case wire::Decoded::kFrame:
      break;
  }
  switch (frame.head.start.kind) {
    case FrameKind::kRequest:
      return take_request(peer, frame);
    case FrameKind::kDatagram:
      return datagrams_.take(peer, frame);
    case FrameKind::kQuery:
      peer.in.consume(frame.head_size);
      answer_query(peer, frame.head.query);
      return FrameResult::kDone;
    case FrameKind::kWhereabouts:
      peer.in.consume(frame.head_size);
      connections_.located(peer, frame.head.whereabouts);
      return FrameResult::kDone;
    default:
      return answers_.take(peer, frame);
  }
}

// Reads the socket, and carries out what comes, until there is nothing more or it is enough.
FrameReceiver::Intake FrameReceiver::take_in(RemotePeer& peer, bool program_polls) {
  Intake intake;
  bool all = false;
  for (int round = 0; round < kRounds; ++round) {
    FrameResult result;
    do result = take_frame(peer);
    while (result == FrameResult::kDone && (++intake.frames < kMostFrames || !program_polls));
    if (result == FrameResult::kDone) {
      peer.stalled = intake.had_enough = true;
      break;
    }
    const bool takes_by_itself =
        peer.bulk_in.left != 0 && (peer.bulk_in.remote_requester || peer.bulk_in.is_answer);
    peer.stalled = result == FrameResult::kStalled;
    if (peer.stalled || all || takes_by_itself || peer.fd < 0) break;
    const size_t had = peer.in.size();
    const Flow flow =
        peer.in.receive(peer.fd, peer.takes_large != 0 ? peer.takes_large : wire::InStream::kCapacity, &all);
    intake.in_ended = flow == Flow::kEnded;
    if (flow != Flow::kMoved) break;
    peer.takes_large = 0;
    peer.bytes_in.store(peer.bytes_in.load(std::memory_order_relaxed) + peer.in.size() - had,
                        std::memory_order_relaxed);
  }
  return intake;
}

FrameReceiver::Progress FrameReceiver::drive(RemotePeer& peer, const Caller& caller) {
  if (const int64_t at = peer.try_at.load(std::memory_order_relaxed);
      at != 0 && !caller.is_service && is_at_rest(peer))
    if (now_ns() < at) return {};
  const uint64_t before = peer.bytes_in.load(std::memory_order_relaxed);
  // A thread that holds the lock is sending, or awaits an answer, which sends what has gathered (below).
  if (std::unique_lock out(peer.out_mutex, std::defer_lock);
      peer.gathered.load(std::memory_order_relaxed) && out.try_lock()) {
    if (caller.is_service) try_at_once(peer);
    flush(peer);
  }
  const Intake intake = take_in(peer, caller.program_polls);
  Progress progress;
  progress.moved = peer.bytes_in.load(std::memory_order_relaxed) != before;
  progress.lingers = intake.had_enough || peer.stalled;
  if (progress.moved) try_at_once(peer);
  if (progress.moved || !peer.acknowledgements_due.empty() || peer.answers_due) {
    std::lock_guard out(peer.out_mutex);
    peer.answers_due = false;
    // Acknowledgements alone wait for the program's reply, or for the next call.
    const bool others = !peer.out.empty() || !peer.reads.empty() || !peer.answers.empty();
    acknowledge(peer);
    peer.awaits_answer = false;
    if (caller.is_service || others)
      flush(peer);
    else
      progress.lingers |= peer.gathered.load(std::memory_order_relaxed);
  }
  if (is_over(peer, intake.in_ended, progress.moved || intake.frames != 0)) connections_.lose(peer);
  return progress;
}

}  // namespace verbena
