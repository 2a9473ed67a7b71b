// SPDX-License-Identifier: BSD-2-Clause
#include "engine/remote/remote_requests.h"

#include <algorithm>
#include <cstring>
#include <mutex>

#include "engine/objects/memory_objects.h"
#include "engine/objects/process.h"
#include "engine/objects/qp.h"
#include "engine/objects/send_request.h"
#include "engine/remote/peer.h"
#include "engine/remote/remote_path.h"
#include "engine/requester/local_bytes.h"
#include "engine/requester/requester.h"
#include "engine/rules/pacing.h"
#include "fabric/hazards.h"

namespace verbena {
namespace {

using wire::FrameKind;
using wire::RequestHead;

void fill_head(const Qp& qp, const RemotePath& path, const SendRequest& request, uint32_t psn,
               RequestHead* head) {
  *head = {};
  head->kind = FrameKind::kRequest;
  head->opcode = static_cast<uint8_t>(request.opcode);
  head->flags = (request.flags & IBV_SEND_SOLICITED) != 0 ? RequestHead::kSolicited : uint8_t{0};
  head->connection =
      static_cast<uint8_t>(static_cast<unsigned>(qp.type) | unsigned{qp.shared->path_mtu} << 4);
  head->target_qpn = path.qpn;
  head->source_qpn = qp.shared->qpn;
  head->path_generation = path.path_generation;
  head->number = request.number;
  head->finished_below = qp.sq_next;
  head->psn = psn;
  head->size = request.length;
  head->offset = request.done;
  head->immediate = request.immediate;
  head->remote_address = request.remote_address;
  head->rkey = request.rkey;
  head->srqn = request.remote_srqn;
  head->compare_add = request.compare_add;
  head->swap = request.swap;
}

// One frame with the whole message. The caller holds the hazard guard of the ranges.
SendOutcome send_copied(RemotePeer& peer, RequestHead& head, const iovec* ranges, size_t count,
                        uint32_t bytes) {
  std::byte* to = append_request(peer, sizeof head + bytes);
  if (to == nullptr) return SendOutcome::kBlocked;
  head.length = static_cast<uint32_t>(sizeof head + bytes);
  std::memcpy(to, &head, sizeof head);
  to += sizeof head;
  for (size_t i = 0; i < count; ++i) {
    std::memcpy(to, ranges[i].iov_base, ranges[i].iov_len);
    to += ranges[i].iov_len;
  }
  return SendOutcome::kSent;
}

// The next chunk of a long message, sent from the program's memory. With UC nothing says that it has arrived:
// the request is complete, and the memory the program's again, once the last chunk has been sent.
SendOutcome send_chunk(Qp& qp, RemotePath& path, RemotePeer& peer, RequestHead& head, SendRequest& request) {
  if (request.done == request.length)
    return peer.out.has_bulk() && peer.bulks == path.bulk ? SendOutcome::kBlocked : SendOutcome::kSent;
  if (peer.out.has_bulk()) return SendOutcome::kBlocked;
  std::byte* const to = append_request(peer, sizeof head);
  if (to == nullptr) return SendOutcome::kBlocked;
  const uint32_t size = std::min(request.length - request.done, piece_of(qp.pacing, wire::kChunkBytes));
  head.length = static_cast<uint32_t>(sizeof head + size);
  std::memcpy(to, &head, sizeof head);
  peer.bulk.clear();
  uint64_t skip = request.done, left = size;
  for (uint32_t i = 0; i < request.sge_count && left != 0; ++i) {
    const ibv_sge& sge = request.sges[i];
    if (skip >= sge.length) {
      skip -= sge.length;
      continue;
    }
    const uint64_t n = std::min<uint64_t>(sge.length - skip, left);
    peer.bulk.push_back({sge.lkey, false, qp.pd->handle, 0, MemoryUse::local_gather, sge.addr + skip, n});
    skip = 0;
    left -= n;
  }
  begin_bulk(peer, size);
  path.bulk = peer.bulks;
  request.done += size;
  return request.done == request.length && is_acknowledged(qp.type) ? SendOutcome::kSent : SendOutcome::kPart;
}

}  // namespace

SendResult send_request(Qp& qp, RemotePath& path, const SendOperation& operation, SendRequest& request) {
  RemotePeer& peer = *path.peer;
  RequestHead head;
  fill_head(qp, path, request, next_psn(qp), &head);
  const bool answered = brings_response(operation);
  const bool long_message = request.length > kCopied && !answered && !request.is_inline;
  iovec ranges[PeerAdapter::kMaxRanges];
  size_t count = 0;
  SendOutcome sent;
  std::lock_guard out(peer.out_mutex);
  {
    const HazardGuard guard(qp.process->hazards(), qp.process->membership().slot());
    VendorError error = VendorError::none;
    if (!answered) error = find_local_bytes(qp, operation, request, ranges, &count);
    if (error != VendorError::none) return {SendOutcome::kFailed, error};
    if (peer.epoch.load(std::memory_order_relaxed) != path.epoch) return {SendOutcome::kBlocked};
    if (long_message)
      sent = send_chunk(qp, path, peer, head, request);
    else
      sent = send_copied(peer, head, ranges, count, answered ? 0 : request.length);
  }
  const bool alone = !is_acknowledged(qp.type) || !peer.awaits_answer;
  if (long_message || sent == SendOutcome::kBlocked || alone || peer.out.gathered() >= kGathered) {
    peer.awaits_answer = is_acknowledged(qp.type);
    flush(peer);
  }
  return {sent};
}

}  // namespace verbena
