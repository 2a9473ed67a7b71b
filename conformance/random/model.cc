// SPDX-License-Identifier: BSD-2-Clause
//
// What comes of everything posted when a program settles. What the other steps do: steps.cc. What is wrong
// with a request: judgement.cc. What is kept out of programs: admission.cc.
#include "random/model.h"

#include <algorithm>
#include <cstring>

namespace conformance::random {
namespace {

using Bytes = std::vector<PossibleByte>;

constexpr std::initializer_list<ibv_wc_status> any_error = {
    IBV_WC_LOC_LEN_ERR,    IBV_WC_LOC_QP_OP_ERR, IBV_WC_LOC_PROT_ERR,   IBV_WC_WR_FLUSH_ERR,
    IBV_WC_LOC_ACCESS_ERR, IBV_WC_REM_OP_ERR,    IBV_WC_REM_ACCESS_ERR, IBV_WC_REM_INV_REQ_ERR,
    IBV_WC_GENERAL_ERR,    IBV_WC_FATAL_ERR};

ibv_wc_opcode completion_opcode(ibv_wr_opcode opcode) {
  switch (opcode) {
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_WRITE_WITH_IMM:
      return IBV_WC_RDMA_WRITE;
    case IBV_WR_RDMA_READ:
      return IBV_WC_RDMA_READ;
    case IBV_WR_ATOMIC_CMP_AND_SWP:
      return IBV_WC_COMP_SWAP;
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
      return IBV_WC_FETCH_ADD;
    case IBV_WR_BIND_MW:
      return IBV_WC_BIND_MW;
    case IBV_WR_LOCAL_INV:
      return IBV_WC_LOCAL_INV;
    default:
      return IBV_WC_SEND;
  }
}

bool has_imm(ibv_wr_opcode opcode) {
  return opcode == IBV_WR_SEND_WITH_IMM || opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

}  // namespace

Model::Model(const Setup& setup, const Claims& claims) : setup_(setup), claims_(claims) {
  for (const uint32_t size : setup.buffers) now_.memory.emplace_back(size, PossibleByte::of(0));
  now_.generations.resize(setup.regions.size());
  now_.windows.resize(setup.windows.size());
  now_.connections.resize(setup.connections.size());
  now_.ends.resize(2 * setup.connections.size());
}

void Model::observe(uint32_t buffer, const uint8_t* bytes) {
  for (PossibleByte& byte : now_.memory[buffer]) byte = PossibleByte::of(*bytes++);
}

// ---- Settle: everything that can complete does ----

// Carries out what is posted. Runs twice: the first time on a copy, to find the bytes that several queues use
// while one of them writes. These then have any value.
class Model::Execution {
 public:
  Execution(const Model& model, State& state, Expectations* expected)
      : model_(model), state_(state), expected_(expected) {
    for (const auto& buffer : state.memory) uses_.emplace_back(buffer.size());
  }

  // Of the first run.
  void avoid(const Execution& first) {
    uses_ = first.uses_;
    is_second_ = true;
  }
  bool was_written(uint32_t buffer, uint32_t at) const { return uses_[buffer][at].is_written; }

  void run() {
    for (EndIndex end = 0; end < state_.ends.size(); ++end) run(end);
    if (!is_second_) return;
    for (size_t buffer = 0; buffer < uses_.size(); ++buffer)
      for (size_t at = 0; at < uses_[buffer].size(); ++at)
        if (uses_[buffer][at].is_raced()) state_.memory[buffer][at] = PossibleByte::any();
  }

 private:
  enum class Side : uint8_t { kRequester, kResponder, kCompletion };
  struct Use {
    uint32_t by = 0;
    bool is_used = false, by_several = false, is_written = false;
    bool is_raced() const { return by_several && is_written; }
  };
  // A READ whose place in the order is open until a fence.
  struct OpenRead {
    std::vector<Span> from, into;
    Bytes before;  // what the bytes of `into` were
    Bytes data;
  };

  // ---- bytes ----
  void use(const Span& span, Side side, bool to_write) {
    if (is_second_) return;
    const uint32_t actor = 3 * end_ + static_cast<uint32_t>(side);
    for (uint32_t i = 0; i < span.length; ++i) {
      Use& use = uses_[span.buffer][span.begin + i];
      use.by_several |= use.is_used && use.by != actor;
      use.by = actor;
      use.is_used = true;
      use.is_written |= to_write;
    }
  }
  Bytes read(const std::vector<Span>& spans, Side side) {
    Bytes out;
    for (const Span& span : spans) {
      use(span, side, false);
      for (uint32_t i = 0; i < span.length; ++i) {
        const uint32_t at = span.begin + i;
        PossibleByte byte = state_.memory[span.buffer][at];
        // A READ that is still open has filled it, or not yet.
        for (const OpenRead& open : open_) add_at(open.into, open.before, span.buffer, at, &byte);
        out.push_back(uses_[span.buffer][at].is_raced() ? PossibleByte::any() : byte);
      }
    }
    return out;
  }
  // Writes as many bytes as there are in `data`.
  void write(const std::vector<Span>& spans, Side side, const Bytes& data, bool perhaps = false) {
    size_t next = 0;
    for (const Span& span : spans) {
      const auto length = static_cast<uint32_t>(std::min<size_t>(span.length, data.size() - next));
      use({span.buffer, span.begin, length}, side, true);
      for (uint32_t i = 0; i < length; ++i, ++next) {
        const uint32_t at = span.begin + i;
        PossibleByte& byte = state_.memory[span.buffer][at];
        PossibleByte result = perhaps ? either(data[next], byte) : data[next];
        for (OpenRead& open : open_) {
          // The open READ may fill the byte after this write, and may see what this one wrote.
          add_at(open.into, open.data, span.buffer, at, &result);
          see_later(open, span.buffer, at, data[next]);
        }
        byte = uses_[span.buffer][at].is_raced() ? PossibleByte::any() : result;
      }
    }
  }
  static void add_at(const std::vector<Span>& spans, const Bytes& values, uint32_t buffer, uint32_t at,
                     PossibleByte* byte) {
    size_t first = 0;
    for (const Span& span : spans) {
      if (span.buffer == buffer && at >= span.begin && at < span.begin + span.length)
        byte->add(values[first + (at - span.begin)]);
      first += span.length;
    }
  }
  void see_later(OpenRead& open, uint32_t buffer, uint32_t at, const PossibleByte& written) {
    size_t first = 0;
    for (const Span& span : open.from) {
      if (span.buffer == buffer && at >= span.begin && at < span.begin + span.length) {
        const size_t index = first + (at - span.begin);
        open.data[index].add(written);
        size_t begin = 0;
        for (const Span& into : open.into) {
          if (index >= begin && index < begin + into.length)
            state_.memory[into.buffer][into.begin + (index - begin)].add(written);
          begin += into.length;
        }
      }
      first += span.length;
    }
  }
  std::vector<Span> spans_of(const std::vector<KeyedElement>& elements) const {
    std::vector<Span> out;
    for (const KeyedElement& each : elements) {
      const Region& region = model_.setup_.regions[each.element.region];
      out.push_back({region.buffer, region.begin + each.element.offset, each.element.length});
    }
    return out;
  }
  // Those that may have been written before something was found wrong.
  void spoil(const std::vector<KeyedElement>& elements, Side side) {
    for (const KeyedElement& each : elements) {
      if (!model_.is_valid(each, true)) continue;
      const std::vector<Span> spans = spans_of({each});
      write(spans, side, Bytes(each.element.length, PossibleByte::any()));
    }
  }
  static bool overlap(const std::vector<Span>& one, const std::vector<Span>& other) {
    for (const Span& a : one)
      for (const Span& b : other)
        if (a.buffer == b.buffer && a.begin < b.begin + b.length && b.begin < a.begin + a.length) return true;
    return false;
  }
  // Within the elements of one list.
  static bool overlap_each_other(const std::vector<Span>& spans) {
    for (size_t i = 1; i < spans.size(); ++i)
      if (overlap({spans.begin(), spans.begin() + static_cast<ptrdiff_t>(i)}, {spans[i]})) return true;
    return false;
  }
  // Bytes that are copied onto themselves, or twice to one place, have any value.
  static Bytes copied(const std::vector<Span>& from, const std::vector<Span>& to, Bytes data) {
    if (overlap(from, to) || overlap_each_other(to)) std::fill(data.begin(), data.end(), PossibleByte::any());
    return data;
  }

  // ---- completions ----
  void expect(EndIndex end, Expected completion) {
    if (expected_ == nullptr) return;
    (completion.is_receive ? expected_->receives : expected_->sends)[end].push_back(std::move(completion));
  }
  void complete(EndIndex end, const PostedRequest& posted, std::set<ibv_wc_status> statuses) {
    const bool succeeds = statuses.count(IBV_WC_SUCCESS) != 0;
    if (succeeds && !posted.request.signaled && !model_.connection_of(end).signal_all) return;
    state_.ends[end].released = posted.serial + 1;
    expect(end, {posted.request.id, false, std::move(statuses), completion_opcode(posted.request.opcode)});
  }
  void flush_sends(EndIndex end) {
    for (const PostedRequest& posted : state_.ends[end].sends) complete(end, posted, {IBV_WC_WR_FLUSH_ERR});
    state_.ends[end].sends.clear();
  }
  void flush_receives(EndIndex end) {
    for (const PostedReceive& receive : state_.ends[end].receives)
      expect(end, {receive.id, true, {IBV_WC_WR_FLUSH_ERR}});
    state_.ends[end].receives.clear();
  }
  void to_error(EndIndex end) {
    state_.ends[end].state = IBV_QPS_ERR;
    flush_sends(end);
    flush_receives(end);
    state_.connections[end / 2].is_broken = true;
  }
  // Takes it from the queue.
  PostedReceive take(std::deque<PostedReceive>& queue) {
    PostedReceive out = std::move(queue.front());
    queue.pop_front();
    return out;
  }

  // ---- requests ----
  void run(EndIndex end) {
    end_ = end;
    open_.clear();
    std::deque<PostedRequest>& sends = state_.ends[end].sends;
    while (!sends.empty()) {
      if (state_.ends[end].state != IBV_QPS_RTS) return flush_sends(end);
      const PostedRequest& posted = sends.front();
      std::deque<PostedReceive>& queue = model_.receive_queue(state_, other_end(end));
      const bool takes = model_.takes_receive(posted.request);
      const Fault fault = model_.judge(end, posted, takes && !queue.empty() ? &queue.front() : nullptr);
      if (fault != Fault::kNone) return fail(end, fault);
      if (takes && queue.empty()) return wait(end);
      succeed(end, queue);
    }
  }

  // Receiver not ready. The bytes of a WRITE with immediate may be there already.
  void wait(EndIndex end) {
    const PostedRequest& posted = state_.ends[end].sends.front();
    if (!is_write(posted.request.opcode)) return;
    const std::vector<Span> target = target_of(posted.request);
    write(target, Side::kResponder, copied(spans_of(posted.elements), target, gather(posted)), true);
  }

  std::vector<Span> target_of(const Request& request) const {
    return {*model_.target_span(*request.target, length_of(request.elements))};
  }

  Bytes gather(const PostedRequest& posted) {
    if (posted.request.inlined) return posted.earlier;
    Bytes data = read(spans_of(posted.elements), Side::kRequester);
    for (size_t i = 0; i < posted.earlier.size(); ++i) data[i].add(posted.earlier[i]);
    return data;
  }

  void succeed(EndIndex end, std::deque<PostedReceive>& queue) {
    const PostedRequest posted = state_.ends[end].sends.front();
    const Request& request = posted.request;
    if (request.fenced) {
      const bool may_wait = model_.connection_of(end).signal_all;  // for the CPU that takes the completion
      std::erase_if(open_, [&](auto& open) { return !may_wait || open.data.size() > kInCompletion; });
    }
    if (request.opcode == IBV_WR_RDMA_READ)
      fetch(posted);
    else if (is_atomic_operation(request.opcode))
      change(posted);
    else if (is_write(request.opcode))
      write(target_of(request), Side::kResponder,
            copied(gathered_from(posted), target_of(request), gather(posted)));
    if (model_.takes_receive(request)) deliver(end, posted, take(queue));
    state_.ends[end].sends.pop_front();
    complete(end, posted, {IBV_WC_SUCCESS});
  }

  // Inline data are not gathered any more.
  std::vector<Span> gathered_from(const PostedRequest& posted) const {
    return posted.request.inlined ? std::vector<Span>() : spans_of(posted.elements);
  }

  void deliver(EndIndex end, const PostedRequest& posted, const PostedReceive& receive) {
    const Request& request = posted.request;
    const uint32_t length = length_of(request.elements);
    const uint32_t header = model_.connection_of(end).type == IBV_QPT_UD ? kGrh : 0;
    if (is_send(request.opcode)) {
      Bytes data(header, PossibleByte::any());  // the GRH, which has clauses of its own
      const Bytes message = gather(posted);
      data.insert(data.end(), message.begin(), message.end());
      const std::vector<Span> into = spans_of(receive.elements);
      write(into, length <= kInCompletion ? Side::kCompletion : Side::kResponder,
            copied(gathered_from(posted), into, std::move(data)));
    }
    Expected completion{receive.id, true, {IBV_WC_SUCCESS}};
    completion.opcode = is_send(request.opcode) ? IBV_WC_RECV : IBV_WC_RECV_RDMA_WITH_IMM;
    completion.bytes = header + length;
    if (has_imm(request.opcode)) completion.imm = request.imm;
    if (request.opcode == IBV_WR_SEND_WITH_INV) completion.invalidated = request.window;
    expect(other_end(end), std::move(completion));
  }

  void fetch(const PostedRequest& posted) {
    OpenRead open;
    open.from = target_of(posted.request);
    open.into = spans_of(posted.elements);
    open.data = copied(open.from, open.into, read(open.from, Side::kResponder));
    open.before = read(open.into, Side::kRequester);
    write(open.into, Side::kRequester, open.data);
    open_.push_back(std::move(open));
  }

  // IBA 9.4.5: the value that was there comes back, in the byte order of the requester.
  void change(const PostedRequest& posted) {
    const Request& request = posted.request;
    const std::vector<Span> at = {*model_.target_span(*request.target, 8)};
    const Bytes before = read(at, Side::kResponder);
    uint8_t bytes[8];
    const bool is_known = std::all_of(before.begin(), before.end(), [](auto& b) { return b.is_known(); });
    Bytes after(8, PossibleByte::any());
    if (is_known) {
      for (size_t i = 0; i < 8; ++i) bytes[i] = before[i].value();
      uint64_t value;
      memcpy(&value, bytes, 8);
      if (request.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
        value += request.compare_add;
      else if (value == request.compare_add)
        value = request.swap;
      memcpy(bytes, &value, 8);
      for (size_t i = 0; i < 8; ++i) after[i] = PossibleByte::of(bytes[i]);
    }
    write(at, Side::kResponder, after);
    OpenRead open;  // its result comes at any time before the next fence
    open.into = spans_of(posted.elements);
    open.before = read(open.into, Side::kRequester);
    open.data = copied(at, open.into, before);
    write(open.into, Side::kRequester, open.data);
    open_.push_back(std::move(open));
  }

  // ---- failures ----
  using Statuses = std::set<ibv_wc_status>;
  Statuses local_key_statuses() const {
    Statuses out = {IBV_WC_LOC_PROT_ERR};
    if (model_.claims_.known.local_key_status) out.insert(IBV_WC_LOC_QP_OP_ERR);
    return out;
  }
  Statuses too_long_statuses() const {
    Statuses out = {IBV_WC_REM_INV_REQ_ERR};
    if (model_.claims_.known.too_long_status) out.insert(IBV_WC_REM_OP_ERR);
    return out;
  }

  // Of what the responder finds. It is in ERR afterwards: if its answer is lost on the way, none follows.
  Statuses or_lost(Statuses statuses) const {
    if (model_.claims_.is_split) statuses.insert(IBV_WC_RETRY_EXC_ERR);
    return statuses;
  }

  void fail(EndIndex end, Fault fault) {
    const PostedRequest posted = state_.ends[end].sends.front();
    state_.ends[end].sends.pop_front();
    const EndIndex responder = other_end(end);
    std::deque<PostedReceive>& queue = model_.receive_queue(state_, responder);
    switch (fault) {
      case Fault::kLocal:  // IBA 10.10.2.2: the responder has seen a part of the message, or nothing
        complete(end, posted, local_key_statuses());
        if (posted.request.opcode == IBV_WR_RDMA_READ) spoil(posted.elements, Side::kRequester);
        if (is_send(posted.request.opcode) && !queue.empty()) spoil(queue.front().elements, Side::kResponder);
        if (is_write(posted.request.opcode))
          write(target_of(posted.request), Side::kResponder,
                Bytes(length_of(posted.request.elements), PossibleByte::any()));
        return to_error(end);
      case Fault::kAccess:
        complete(end, posted, or_lost({IBV_WC_REM_ACCESS_ERR}));
        break;
      case Fault::kQpAccess:
        complete(end, posted, or_lost({IBV_WC_REM_ACCESS_ERR, IBV_WC_REM_INV_REQ_ERR}));
        break;
      case Fault::kTooLong:
      case Fault::kReceive: {
        const PostedReceive receive = take(queue);
        spoil(receive.elements, Side::kResponder);
        complete(end, posted,
                 or_lost(fault == Fault::kTooLong ? too_long_statuses() : Statuses{IBV_WC_REM_OP_ERR}));
        expect(responder, {receive.id, true, any_error});
        break;
      }
      case Fault::kNone:
        break;
    }
    to_error(end);
    // A WRITE with immediate would have completed this receive: whether it completes as flushed is open.
    auto& own = state_.ends[responder].receives;
    if (model_.takes_receive(posted.request) && !is_send(posted.request.opcode) && !own.empty())
      expect(responder, {take(own).id, true, any_error});
    to_error(responder);
  }

  const Model& model_;
  State& state_;
  Expectations* expected_;  // nullptr in the first run
  std::vector<std::vector<Use>> uses_;
  bool is_second_ = false;
  EndIndex end_ = 0;            // whose requests run
  std::vector<OpenRead> open_;  // of the queue that runs
};

// Adds the values that the bytes of a request have had since the last Settle.
void Model::add_written(const Execution& execution, PostedRequest* posted) const {
  posted->earlier.resize(length_of(posted->request.elements));
  size_t next = 0;
  for (const KeyedElement& each : posted->elements) {
    const Region& region = setup_.regions[each.element.region];
    for (uint32_t i = 0; i < each.element.length; ++i, ++next) {
      const uint32_t at = region.begin + each.element.offset + i;
      if (execution.was_written(region.buffer, at))
        posted->earlier[next] = PossibleByte::any();
      else if (!posted->request.inlined)
        posted->earlier[next].add(now_.memory[region.buffer][at]);
    }
  }
}

void Model::apply(const Settle&) {
  const size_t ends = now_.ends.size();
  // What ToError has flushed is expected already.
  expected_.sends.resize(ends);
  expected_.receives.resize(ends);
  State copy = now_;
  Execution first(*this, copy, nullptr);
  first.run();
  // Inline data were taken when they were posted: before or after the other writes since the last Settle.
  for (End& end : now_.ends)
    for (PostedRequest& posted : end.sends)
      if (posted.is_new && posted.request.inlined) add_written(first, &posted);
  Execution second(*this, now_, &expected_);
  second.avoid(first);
  second.run();
  // What waits may have been gathered by now.
  for (End& end : now_.ends)
    for (PostedRequest& posted : end.sends) {
      if (!posted.request.inlined) add_written(first, &posted);
      posted.is_new = false;
    }
  expected_.states.clear();
  for (const End& end : now_.ends) expected_.states.push_back(end.state);
  for (ConnectionState& connection : now_.connections) connection.fails = false;
  for (Window& window : now_.windows)
    if (window.use == WindowUse::kChanging) window.use = window.after, window.bind = window.next;
  changed_ = 0;
}

void Model::apply(const Step& step) {
  const bool settles = std::holds_alternative<Settle>(step);
  if (changed_ == 0) expected_ = {};
  std::visit([&](const auto& each) { apply(each); }, step);
  if (!settles) ++changed_;
}

}  // namespace conformance::random
