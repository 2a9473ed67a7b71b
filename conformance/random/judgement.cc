// SPDX-License-Identifier: BSD-2-Clause
//
// Keys, bounds, rights and lengths: what is found wrong with a request, and by which side.
#include <algorithm>

#include "random/model.h"

namespace conformance::random {

// IBA 10.6.3, 10.7.2: the key names a region of the queue pair's PD, the bytes lie within, and it has the
// right.
bool Model::is_valid(const KeyedElement& keyed, bool to_write) const {
  const Element& element = keyed.element;
  const Region& region = setup_.regions[element.region];
  return !element.bad_key && keyed.generation == now_.generations[element.region] && !region.in_other_pd &&
         uint64_t{element.offset} + element.length <= region.length &&
         (!to_write || (region.access & IBV_ACCESS_LOCAL_WRITE) != 0);
}

std::optional<Span> Model::target_span(const Target& target, uint32_t length) const {
  uint32_t region = target.index, begin = target.offset;
  if (target.is_window) {
    const Bind& bind = now_.windows[target.index].bind;
    region = bind.region;
    begin += bind.offset;
  }
  const Region& whole = setup_.regions[region];
  if (uint64_t{begin} + length > whole.length) return std::nullopt;
  return Span{whole.buffer, whole.begin + begin, length};
}

// IBA 9.7.4.1.5, 10.6.7: the rkey, the bounds, the rights of region or window, and those of the queue pair.
Model::Fault Model::judge_target(EndIndex responder, const Request& request, uint32_t length) const {
  const Target& target = *request.target;
  const unsigned needed = is_write(request.opcode)             ? IBV_ACCESS_REMOTE_WRITE
                          : request.opcode == IBV_WR_RDMA_READ ? IBV_ACCESS_REMOTE_READ
                                                               : IBV_ACCESS_REMOTE_ATOMIC;
  if ((connection_of(responder).access[responder & 1] & needed) == 0) return Fault::kQpAccess;
  if (target.bad_key) return Fault::kAccess;
  if (target.is_window) {
    const Window& window = now_.windows[target.index];
    if (window.use != WindowUse::kBound || (window.bind.access & needed) == 0 ||
        uint64_t{target.offset} + length > window.bind.length)
      return Fault::kAccess;
    // A window of type 2 belongs to the queue pair that it was bound on (ibv_alloc_mw(3)).
    if (setup_.windows[target.index] == IBV_MW_TYPE_2 && window.end != responder) return Fault::kAccess;
  } else {
    const Region& region = setup_.regions[target.index];
    if (region.in_other_pd || (static_cast<unsigned>(region.access) & needed) == 0 ||
        uint64_t{target.offset} + length > region.length)
      return Fault::kAccess;
  }
  return Fault::kNone;
}

Model::Fault Model::judge(EndIndex end, const PostedRequest& posted, const PostedReceive* receive) const {
  const Request& request = posted.request;
  const bool to_write = request.opcode == IBV_WR_RDMA_READ || is_atomic_operation(request.opcode);
  // The lkeys of inline data are not used (ibv_post_send(3), IBV_SEND_INLINE).
  if (!request.inlined)
    for (const KeyedElement& element : posted.elements)
      if (!is_valid(element, to_write)) return Fault::kLocal;
  const uint32_t length = length_of(request.elements);
  if (request.target)
    if (const Fault fault = judge_target(other_end(end), request, length); fault != Fault::kNone)
      return fault;
  if (receive == nullptr || !is_send(request.opcode)) return Fault::kNone;
  if (length > 0 && !receive->elements.empty() && !is_valid(receive->elements.front(), true))
    return Fault::kReceive;
  const uint32_t header = connection_of(end).type == IBV_QPT_UD ? kGrh : 0;
  uint32_t room = 0;
  for (const KeyedElement& element : receive->elements) room += element.element.length;
  return header + length > room ? Fault::kTooLong : Fault::kNone;
}

bool Model::may_be_refused(const Step& step) const {
  const auto is_wrong = [&](const std::vector<KeyedElement>& elements, bool to_write) {
    return std::any_of(elements.begin(), elements.end(),
                       [&](const KeyedElement& each) { return !is_valid(each, to_write); });
  };
  if (const auto* receives = std::get_if<PostReceives>(&step))
    return std::any_of(receives->list.begin(), receives->list.end(),
                       [&](const Receive& each) { return is_wrong(posted(each).elements, true); });
  const auto* sends = std::get_if<PostSends>(&step);
  return sends != nullptr && std::any_of(sends->list.begin(), sends->list.end(), [&](const Request& each) {
           const bool to_write = each.opcode == IBV_WR_RDMA_READ || is_atomic_operation(each.opcode);
           return !each.inlined && is_wrong(posted(each, 0).elements, to_write);
         });
}

}  // namespace conformance::random
