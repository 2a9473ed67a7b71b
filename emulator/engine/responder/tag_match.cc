// SPDX-License-Identifier: BSD-2-Clause
#include "engine/responder/tag_match.h"

#include <endian.h>
#include <infiniband/tm_types.h>

#include <algorithm>
#include <cstring>

#include "engine/completion/completion_writer.h"
#include "engine/responder/payload_stream.h"

namespace verbena {
namespace {

constexpr uint32_t kTmhSize = sizeof(ibv_tmh), kBothSizes = kTmhSize + sizeof(ibv_rvh);

struct MessageHeaders {
  ibv_tmh tmh{};
  ibv_rvh rvh{};
};
static_assert(sizeof(MessageHeaders) == kBothSizes);

// The first bytes of the message. False: they have not come yet.
bool read_headers(RequesterContext& requester, const Request& request, const LocalBytes& local,
                  MessageHeaders* headers) {
  const uint32_t size = std::min(request.length, kBothSizes);
  auto* const to = reinterpret_cast<std::byte*>(headers);
  if (requester.payload != nullptr) return requester.payload->peek(to, size);
  uint32_t done = 0;
  for (size_t i = 0; i < local.count && done < size; ++i) {
    const size_t n = std::min<size_t>(local.ranges[i].iov_len, size - done);
    std::memcpy(to + done, local.ranges[i].iov_base, n);
    done += static_cast<uint32_t>(n);
  }
  return true;
}

constexpr uint8_t opcode_in_entry(ibv_wc_opcode opcode) {
  return static_cast<uint8_t>(opcode & ~IBV_WC_RECV);
}

// Can a tag take the message? A request for a rendezvous has both headers, and is not too long.
bool may_match(const Request& request, const MessageHeaders& headers) {
  if (request.length < kTmhSize) return false;
  if (headers.tmh.opcode == IBV_TMH_EAGER) return true;
  return headers.tmh.opcode == IBV_TMH_RNDV && request.length >= kBothSizes &&
         request.length <= kTagHeaderSize;
}

bool is_tagged(const Request& request, const MessageHeaders& headers) {
  return request.length >= kTmhSize &&
         (headers.tmh.opcode == IBV_TMH_EAGER || headers.tmh.opcode == IBV_TMH_RNDV);
}

// A message that has taken a tag: what is skipped, and what its completions say.
void describe_match(const PeerPath& path, const Request& request, const MessageHeaders& headers,
                    TagMessage* message) {
  message->opcode = opcode_in_entry(IBV_WC_TM_RECV);
  if (headers.tmh.opcode == IBV_TMH_EAGER) {
    message->skipped = kTmhSize;
    message->byte_len = request.length - kTmhSize;
    return;
  }
  const uint32_t room = std::atomic_ref(taken_tag(path).sge.length).load(std::memory_order_relaxed);
  message->byte_len = be32toh(headers.rvh.len);
  message->announced = true;
  message->wc_flags = IBV_WC_TM_MATCH;
  message->incomplete = message->byte_len > room;
  // The program goes on with a message that does not fit: it gets the headers.
  message->skipped = message->incomplete ? 0 : request.length;
  message->end = message->incomplete ? TagEnd::kFree : TagEnd::kRendezvous;
}

// An eager message of several packets: that it has met its tag is told at once. False: the CQ has failed.
bool tell_match(RequesterContext& requester) {
  PeerPath& path = requester.path;
  const TagMessage& message = path.tag_message;
  const Room room = append_without_event(
      receive_cq(requester),
      {.qp_index = path.index,
       .qp_incarnation = path.incarnation,
       .index = path.current_wqe - 1,
       .byte_len = message.byte_len,
       .opcode = message.opcode,
       .flags = kCqeReceive | kCqeFromShared},
      TagCompletion{
          .tag = message.tag, .app_ctx = message.app_ctx, .wc_flags = IBV_WC_TM_MATCH, .end = TagEnd::kMore});
  path.event_due = std::max<uint8_t>(path.event_due, 1);
  return room != Room::kOverrun;
}

}  // namespace

std::optional<Response> match_message(RequesterContext& requester, const Request& request,
                                      const LocalBytes& local) {
  PeerPath& path = requester.path;
  if (request.done != 0) return std::nullopt;
  MessageHeaders headers;
  if (!read_headers(requester, request, local, &headers)) return Response{Answer::kPartial};
  TagMessage& message = path.tag_message;
  const uint64_t enabled = message.unexpected && path.current_wqe != 0 ? message.enabled : 0;
  message = {};
  if (request.length >= kTmhSize) {
    message.tag = be64toh(headers.tmh.tag);
    message.app_ctx = be32toh(headers.tmh.app_ctx);
  }
  message.opcode = opcode_in_entry(is_tagged(request, headers) ? IBV_WC_TM_RECV : IBV_WC_TM_NO_TAG);
  message.byte_len = request.length;
  message.unexpected = is_tagged(request, headers);
  message.enabled = enabled;
  bool is_new = false;
  if (path.current_wqe == 0 && is_tagged(request, headers)) {
    uint32_t index = 0;
    if (may_match(request, headers) &&
        path.tags.take(message.tag, requester.process->membership().worker(), &index, &message.enabled)) {
      path.current_wqe = (kTagSlot | index) + 1;
      path.qp->srq_slot.store(path.current_wqe, std::memory_order_release);
      is_new = true;
    } else if (!may_match(request, headers)) {
      message.enabled = path.tags.phase().enabled;
    }
  }
  if (!has_taken_tag(path)) {
    message.tag = message.app_ctx =
        0;  // rdma-core's test_tag_matching.py, of mlx5: they are those of a match
    return std::nullopt;
  }
  message.unexpected = false;
  describe_match(path, request, headers, &message);
  if (message.skipped == kTmhSize && headers.tmh.opcode == IBV_TMH_EAGER) {
    const bool several = request.length > requester.mtu;
    message.wc_flags = IBV_WC_TM_DATA_VALID | (several ? 0u : unsigned{IBV_WC_TM_MATCH});
    if (several && is_new && !tell_match(requester))
      return Response{Answer::kNak, VendorError::remote_operation_failed};
  }
  return std::nullopt;
}

void describe_tag_completion(const PeerPath& path, Completion* completion, TagCompletion* payload) {
  const TagMessage& message = path.tag_message;
  completion->opcode = message.opcode;
  // Packets tell the length of a SEND with the last of them.
  const uint32_t come = std::max(completion->byte_len, message.skipped) - message.skipped;
  completion->byte_len = message.announced ? message.byte_len : come;
  if (completion->status == IBV_WC_SUCCESS && message.incomplete)
    completion->status = IBV_WC_TM_RNDV_INCOMPLETE;
  *payload = {
      .tag = message.tag, .app_ctx = message.app_ctx, .wc_flags = message.wc_flags, .end = message.end};
  if (message.unexpected && completion->status == IBV_WC_SUCCESS) path.tags.count_unexpected(message.enabled);
}

}  // namespace verbena
