// SPDX-License-Identifier: BSD-2-Clause
//
// What steps do at once. What comes of them is told when the program settles (model.cc).
#include "random/model.h"

namespace conformance::random {

void Model::apply(const PostReceives& step) {
  std::deque<PostedReceive>& queue = step.end   ? now_.ends[*step.end].receives
                                     : step.xrc ? now_.xrc_shared
                                                : now_.shared;
  for (const Receive& receive : step.list) queue.push_back(posted(receive));
}

void Model::apply(const PostSends& step) {
  End& end = now_.ends[step.end];
  for (const Request& request : step.list) {
    PostedRequest posted_request = posted(request, end.posted++);
    const size_t taking = consumers(step.end);
    const std::deque<PostedReceive>& queue = receive_queue(other_end(step.end));
    const bool takes = takes_receive(request) && taking < queue.size();
    if (judge(step.end, posted_request, takes ? &queue[taking] : nullptr) != Fault::kNone)
      now_.connections[step.end / 2].fails = true;
    posted_request.met_none = takes_receive(request) && taking >= queue.size();
    if (request.bind) {
      Window& window = now_.windows[request.bind->window];
      window.use = WindowUse::kChanging;
      window.after = WindowUse::kBound;
      window.next = *request.bind;
      window.end = step.end;
    }
    if (request.window) {
      Window& window = now_.windows[*request.window];
      window.use = WindowUse::kChanging;
      window.after = WindowUse::kUnbound;
      window.next = window.bind;
    }
    end.sends.push_back(std::move(posted_request));
  }
}

void Model::apply(const Fill& step) {
  for (uint32_t i = 0; i < step.length; ++i)
    now_.memory[step.buffer][step.begin + i] = PossibleByte::of(filled_byte(step.seed, i));
}

// What is posted completes with the flush error (ibv_modify_qp(3); IBA 10.3.1.7).
void Model::apply(const ToError& step) {
  End& end = now_.ends[step.end];
  end.state = IBV_QPS_ERR;
  expected_.receives.resize(now_.ends.size());
  for (const PostedReceive& receive : end.receives)
    expected_.receives[step.end].push_back({receive.id, true, {IBV_WC_WR_FLUSH_ERR}});
  end.receives.clear();
  now_.connections[step.end / 2].is_broken = true;
}

// In RESET the queues are empty, and completions that were not polled are gone or not: none is left here.
void Model::apply(const Reconnect& step) {
  for (const EndIndex end : {2 * step.connection, 2 * step.connection + 1}) {
    End fresh;
    now_.ends[end] = fresh;
    for (Window& window : now_.windows)
      if (window.use == WindowUse::kBound && window.end == end) window.use = WindowUse::kUnknown;
  }
  now_.connections[step.connection] = {};
}

}  // namespace conformance::random
