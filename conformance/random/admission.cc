// SPDX-License-Identifier: BSD-2-Clause
//
// Which steps a program may take: those whose outcome the model can tell.
#include <algorithm>

#include "random/model.h"

namespace conformance::random {

bool Model::admits(const Step& step) const {
  return std::visit([&](const auto& each) { return admits(each); }, step);
}

bool Model::has_pending() const {
  return std::any_of(now_.ends.begin(), now_.ends.end(), [](const End& end) { return !end.sends.empty(); });
}

bool Model::is_reliable(EndIndex end) const {
  const ibv_qp_type type = connection_of(end).type;
  return type == IBV_QPT_RC || type == IBV_QPT_XRC_SEND;
}

bool Model::takes_receive(const Request& request) const {
  return consumes_a_receive(request.opcode) && !request.wrong_qkey;
}

std::deque<Model::PostedReceive>& Model::receive_queue(State& state, EndIndex responder) const {
  const Connection& connection = connection_of(responder);
  if (connection.type == IBV_QPT_XRC_SEND) return state.xrc_shared;
  return connection.shared_receives ? state.shared : state.ends[responder].receives;
}

const std::deque<Model::PostedReceive>& Model::receive_queue(EndIndex responder) const {
  return receive_queue(const_cast<State&>(now_), responder);
}

size_t Model::receives_of(EndIndex end) const { return receive_queue(end).size(); }

// Do requests of both ends take their receives from one queue?
bool Model::shares_receives(EndIndex one, EndIndex other) const {
  return &receive_queue(other_end(one)) == &receive_queue(other_end(other));
}

size_t Model::consumers(EndIndex end) const {
  const auto& sends = now_.ends[end].sends;
  return static_cast<size_t>(
      std::count_if(sends.begin(), sends.end(), [&](auto& posted) { return takes_receive(posted.request); }));
}

Model::PostedRequest Model::posted(const Request& request, uint32_t serial) const {
  PostedRequest out{request, {}, {}, serial};
  for (const Element& element : request.elements) {
    out.elements.push_back({element, now_.generations[element.region]});
    if (!request.inlined) continue;
    const Region& region = setup_.regions[element.region];
    const auto begin = now_.memory[region.buffer].begin() + region.begin + element.offset;
    out.earlier.insert(out.earlier.end(), begin, begin + element.length);
  }
  return out;
}

Model::PostedReceive Model::posted(const Receive& receive) const {
  PostedReceive out{receive.id, {}};
  for (const Element& element : receive.elements)
    out.elements.push_back({element, now_.generations[element.region]});
  return out;
}

// Receives that are wrong are so in their only element: which elements a device checks is open.
bool Model::admits(const PostReceives& step) const {
  const auto& queue = step.end ? now_.ends[*step.end].receives : step.xrc ? now_.xrc_shared : now_.shared;
  if (step.list.empty() || queue.size() + step.list.size() > kDepth) return false;
  if (step.end) {
    const Connection& connection = connection_of(*step.end);
    const ConnectionState& state = now_.connections[*step.end / 2];
    if (connection.shared_receives || connection.type == IBV_QPT_XRC_SEND || state.is_broken || state.fails)
      return false;
  }
  // The requests that wait for these receives.
  std::vector<const PostedRequest*> waiting;
  EndIndex waiting_end = 0;
  for (EndIndex end = 0; end < now_.ends.size(); ++end) {
    if (&receive_queue(other_end(end)) != &queue) continue;
    for (const PostedRequest& each : now_.ends[end].sends)
      if (takes_receive(each.request)) waiting.push_back(&each), waiting_end = end;
  }
  const size_t limit = step.end || step.xrc ? claims_.receive_sges : claims_.srq_sges;
  for (size_t i = 0; i < step.list.size(); ++i) {
    const PostedReceive receive = posted(step.list[i]);
    if (receive.elements.size() > limit) return false;
    const bool is_wrong = std::any_of(receive.elements.begin(), receive.elements.end(),
                                      [&](auto& element) { return !is_valid(element, true); });
    if (is_wrong && (receive.elements.size() != 1 || !step.end || !is_reliable(*step.end))) return false;
    for (const KeyedElement& each : receive.elements) {
      const Region& region = setup_.regions[each.element.region];
      const uint64_t end = uint64_t{region.begin} + each.element.offset + each.element.length;
      if (each.element.length == 0 || end > setup_.buffers[region.buffer]) return false;
      // Of one that ends behind its region a device may look at what a message needs.
      if (uint64_t{each.element.offset} + each.element.length > region.length) return false;
    }
    const size_t place = queue.size() + i;
    if (place < waiting.size() && judge(waiting_end, *waiting[place], &receive) != Fault::kNone) return false;
  }
  return true;
}

bool Model::is_wellformed(EndIndex end, const Request& request) const {
  const ibv_qp_type type = connection_of(end).type;
  const bool is_bind = request.opcode == IBV_WR_BIND_MW, is_local = request.opcode == IBV_WR_LOCAL_INV;
  if (type == IBV_QPT_UD && request.opcode != IBV_WR_SEND && request.opcode != IBV_WR_SEND_WITH_IMM)
    return false;
  const bool only_rc = request.opcode == IBV_WR_RDMA_READ || is_atomic_operation(request.opcode) || is_bind ||
                       is_local || request.opcode == IBV_WR_SEND_WITH_INV;
  if (type == IBV_QPT_UC && only_rc) return false;
  if (type == IBV_QPT_XRC_SEND && (is_bind || is_local || request.opcode == IBV_WR_SEND_WITH_INV))
    return false;
  if (is_atomic_operation(request.opcode) && (!claims_.atomics || length_of(request.elements) != 8))
    return false;
  if (request.elements.size() > claims_.send_sges) return false;
  if (request.wrong_qkey && type != IBV_QPT_UD) return false;
  const uint32_t length = length_of(request.elements);
  if (type == IBV_QPT_UD && length > claims_.mtu) return false;
  const bool may_inline = is_send(request.opcode) || is_write(request.opcode);
  if (request.inlined && (!may_inline || length > claims_.inline_data)) return false;
  for (const Element& element : request.elements) {
    const Region& region = setup_.regions[element.region];
    if (element.length == 0) return false;  // 0 is 2^31 to some
    if (request.inlined && element.offset + element.length > region.length) return false;
    if (region.begin + element.offset + element.length > setup_.buffers[region.buffer]) return false;
  }
  const bool is_remote =
      is_write(request.opcode) || request.opcode == IBV_WR_RDMA_READ || is_atomic_operation(request.opcode);
  if (is_remote != request.target.has_value()) return false;
  if (is_bind != request.bind.has_value()) return false;
  if ((is_local || request.opcode == IBV_WR_SEND_WITH_INV) != request.window.has_value()) return false;
  if ((is_bind || is_local) && !request.elements.empty()) return false;
  // An address that is not a multiple of 8 may be refused when the request is posted, or by the responder.
  if (is_atomic_operation(request.opcode) && !request.target->is_window &&
      (setup_.regions[request.target->index].begin + request.target->offset) % 8 != 0)
    return false;
  // Whether the keys of 0 bytes are looked at is open (IBA 9.4.3).
  return !is_remote || length > 0;
}

// Binds and invalidations are those that succeed, at once.
bool Model::may_bind(EndIndex end, const Request& request) const {
  if (!request.bind && !request.window) return true;
  const uint32_t index = request.bind ? request.bind->window : *request.window;
  const Window& window = now_.windows[index];
  const bool is_second_type = setup_.windows[index] == IBV_MW_TYPE_2;
  if (consumers(end) > receives_of(other_end(end))) return false;
  for (const End& each : now_.ends)
    for (const PostedRequest& posted : each.sends)
      if (posted.request.target && posted.request.target->is_window && posted.request.target->index == index)
        return false;
  if (request.window) {
    const EndIndex binder = request.opcode == IBV_WR_LOCAL_INV ? end : other_end(end);
    if (request.opcode == IBV_WR_SEND_WITH_INV && !claims_.send_with_invalidate) return false;
    return is_second_type && window.use == WindowUse::kBound && window.end == binder;
  }
  const Bind& bind = *request.bind;
  const Region& region = setup_.regions[bind.region];
  const bool writes = (bind.access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) != 0;
  if (window.use == WindowUse::kChanging || window.use == WindowUse::kUnknown) return false;
  if (is_second_type && window.use == WindowUse::kBound) return false;
  if ((bind.access & IBV_ACCESS_REMOTE_ATOMIC) != 0) return false;  // "if supported": clauses of their own
  return !region.in_other_pd && (region.access & IBV_ACCESS_MW_BIND) != 0 &&
         (!writes || (region.access & IBV_ACCESS_LOCAL_WRITE) != 0) && bind.length > 0 &&
         bind.offset + bind.length <= region.length;
}

// Is there a READ or an atomic behind a fenced request, and that request, or one in front of it, has met no
// receive? It is sent again then (Known::fence_counts_later).
bool Model::fence_counts_later(const PostSends& step) const {
  bool is_sent_again = false, is_fenced = false;
  const auto is_behind = [&](const Request& request, bool met_none) {
    if (is_fenced && (request.opcode == IBV_WR_RDMA_READ || is_atomic_operation(request.opcode))) return true;
    is_sent_again |= met_none;
    is_fenced |= is_sent_again && request.fenced;
    return false;
  };
  for (const PostedRequest& each : now_.ends[step.end].sends)
    if (is_behind(each.request, each.met_none)) return true;
  size_t taking = consumers(step.end);
  const size_t receives = receives_of(other_end(step.end));
  for (const Request& each : step.list) {
    const bool takes = takes_receive(each);
    if (is_behind(each, takes && taking >= receives)) return true;
    taking += takes;
  }
  return false;
}

bool Model::admits(const PostSends& step) const {
  const End& end = now_.ends[step.end];
  const EndIndex peer = other_end(step.end);
  const Connection& connection = connection_of(step.end);
  const ConnectionState& state = now_.connections[step.end / 2];
  if (step.list.empty() || state.is_broken || state.fails || end.state != IBV_QPS_RTS) return false;
  if (connection.type == IBV_QPT_XRC_SEND && (step.end & 1) != 0) return false;
  if (end.posted - end.released + step.list.size() > kDepth) return false;
  // The end of a list tells that all of it has arrived.
  const Request& last = step.list.back();
  if (is_reliable(step.end) && !last.signaled) return false;
  if (connection.type == IBV_QPT_UC && !takes_receive(last)) return false;
  if (claims_.known.fence_counts_later && fence_counts_later(step)) return false;
  // One queue at a time takes shared receives.
  const bool takes =
      std::any_of(step.list.begin(), step.list.end(), [&](auto& r) { return takes_receive(r); });
  for (EndIndex each = 0; takes && each < now_.ends.size(); ++each)
    if (each != step.end && shares_receives(each, step.end) && consumers(each) > 0) return false;

  size_t taking = consumers(step.end);
  const auto& queue = receive_queue(peer);
  bool fails = false;
  for (const Request& request : step.list) {
    if (!is_wellformed(step.end, request) || !may_bind(step.end, request)) return false;
    if ((request.bind || request.window) && step.list.size() != 1) return false;
    if (request.bind && setup_.windows[request.bind->window] == IBV_MW_TYPE_1 && request.fenced) return false;
    if (request.target && request.target->is_window) {
      const WindowUse use = now_.windows[request.target->index].use;
      if (use == WindowUse::kChanging || use == WindowUse::kUnknown) return false;
      // Never bound, it has no place.
      if (use == WindowUse::kUnbound && now_.windows[request.target->index].bind.length == 0) return false;
      if (is_atomic_operation(request.opcode)) return false;
      const uint64_t last_byte = uint64_t{request.target->offset} + length_of(request.elements);
      if (claims_.known.window_bounds && last_byte > now_.windows[request.target->index].bind.length)
        return false;
    }
    const bool takes_one = takes_receive(request);
    const PostedReceive* receive = takes_one && taking < queue.size() ? &queue[taking] : nullptr;
    // What is lost on the way cannot be told from what is late.
    if (takes_one && receive == nullptr && !is_reliable(step.end)) return false;
    taking += takes_one;
    if (request.window && request.opcode == IBV_WR_SEND_WITH_INV && receive == nullptr) return false;
    if (fails) {
      // What is flushed behind a request that fails is of any kind, except for what changes windows.
      if (request.bind || request.window) return false;
      continue;
    }
    const PostedRequest posted_request = posted(request, 0);
    const Fault fault = judge(step.end, posted_request, receive);
    if (fault == Fault::kNone) {
      // A wrong receive that this one takes without looking at it.
      if (receive != nullptr && !receive->elements.empty() && !is_valid(receive->elements.front(), true))
        return false;
      continue;
    }
    // A request that fails: for one reason, with nothing else under way, and not behind one that waits for a
    // receive. Else it fails when the receive is posted, at any moment of what comes after.
    if (!is_reliable(step.end) || !now_.ends[peer].sends.empty() || taking > queue.size()) return false;
    if ((connection.shared_receives || connection.type == IBV_QPT_XRC_SEND) && takes_one) return false;
    if (request.bind || request.window) return false;
    if (fault == Fault::kLocal) {
      if (request.target && judge_target(peer, request, length_of(request.elements)) != Fault::kNone)
        return false;
      if (is_atomic_operation(request.opcode)) return false;  // it has been carried out, or not
      const bool is_short = length_of(request.elements) <= kInCompletion;
      if (request.opcode == IBV_WR_RDMA_READ && connection.signal_all && is_short) return false;
      // Found before anything was sent.
      if (is_valid(posted_request.elements.front(), request.opcode == IBV_WR_RDMA_READ)) return false;
    }
    if (fault == Fault::kReceive || fault == Fault::kTooLong) {
      if (length_of(request.elements) <= kInCompletion) return false;
      uint32_t room = 0;
      for (const KeyedElement& each : receive->elements) room += each.element.length;
      if (fault == Fault::kReceive && length_of(request.elements) > room) return false;
      const bool is_wrong = !receive->elements.empty() && !is_valid(receive->elements.front(), true);
      if (fault == Fault::kTooLong && is_wrong) return false;
    }
    fails = true;
  }
  return true;
}

bool Model::admits(const Fill& step) const {
  return !has_pending() && uint64_t{step.begin} + step.length <= setup_.buffers[step.buffer];
}

bool Model::admits(const RegisterAgain& step) const {
  if (has_pending()) return false;
  // Receives become wrong by it: those that may be (see PostReceives).
  const auto names_it = [&](const PostedReceive& receive) {
    return std::any_of(receive.elements.begin(), receive.elements.end(),
                       [&](auto& each) { return each.element.region == step.region; });
  };
  for (EndIndex end = 0; end < now_.ends.size(); ++end)
    for (const PostedReceive& receive : now_.ends[end].receives)
      if (names_it(receive) && (!is_reliable(end) || receive.elements.size() > 1)) return false;
  for (const auto* shared : {&now_.shared, &now_.xrc_shared})
    if (std::any_of(shared->begin(), shared->end(), names_it)) return false;
  return std::none_of(now_.windows.begin(), now_.windows.end(), [&](const Window& window) {
    return window.use != WindowUse::kUnbound && window.bind.region == step.region;
  });
}

bool Model::admits(const ToError& step) const {
  const ConnectionState& state = now_.connections[step.end / 2];
  return !state.is_broken && !state.fails && now_.ends[step.end].sends.empty() &&
         now_.ends[other_end(step.end)].sends.empty();
}

bool Model::admits(const Reconnect& step) const {
  return changed_ == 0 && now_.ends[2 * step.connection].sends.empty() &&
         now_.ends[2 * step.connection + 1].sends.empty();
}

}  // namespace conformance::random
