// SPDX-License-Identifier: BSD-2-Clause
#include "random/model.h"

#include <algorithm>
#include <cstring>

#include "support/pattern.h"

namespace conformance::random {
namespace {

// By kind of step and type of queue pair: the promise of a step that succeeds, and of one that is denied.
struct Promise {
  Kind kind;
  ibv_qp_type type;
  bool has_imm;
  ibv_wc_opcode opcode;
  const char *success, *denied, *bounds, *window_bounds;
};
constexpr Promise promises[] = {
    {Kind::send, IBV_QPT_RC, false, IBV_WC_SEND, "ibv_post_send.rc.send", "", "", ""},
    {Kind::send, IBV_QPT_RC, true, IBV_WC_SEND, "ibv_post_send.rc.send-imm", "", "", ""},
    {Kind::send, IBV_QPT_UC, false, IBV_WC_SEND, "ibv_post_send.uc.send", "", "", ""},
    {Kind::send, IBV_QPT_UC, true, IBV_WC_SEND, "ibv_post_send.uc.send-imm", "", "", ""},
    {Kind::send, IBV_QPT_UD, false, IBV_WC_SEND, "ibv_post_send.ud.send", "", "", ""},
    {Kind::send, IBV_QPT_UD, true, IBV_WC_SEND, "ibv_post_send.ud.send-imm", "", "", ""},
    {Kind::write, IBV_QPT_RC, false, IBV_WC_RDMA_WRITE, "ibv_post_send.rc.write", "access.mr.write.denied",
     "access.bounds.mr.write", "access.bounds.mw1.write"},
    {Kind::write, IBV_QPT_RC, true, IBV_WC_RDMA_WRITE, "ibv_post_send.rc.write-imm", "", "", ""},
    {Kind::write, IBV_QPT_UC, true, IBV_WC_RDMA_WRITE, "ibv_post_send.uc.write-imm", "", "", ""},
    {Kind::read, IBV_QPT_RC, false, IBV_WC_RDMA_READ, "ibv_post_send.rc.read", "access.mr.read.denied",
     "access.bounds.mr.read", "access.bounds.mw1.read"},
    {Kind::fetch_add, IBV_QPT_RC, false, IBV_WC_FETCH_ADD, "ibv_post_send.rc.fetch-add",
     "access.mr.fetch-add.denied", "access.bounds.mr.fetch-add", ""},
    {Kind::compare_swap, IBV_QPT_RC, false, IBV_WC_COMP_SWAP, "ibv_post_send.rc.cmp-swp",
     "access.mr.cmp-swp.denied", "access.bounds.mr.cmp-swp", ""},
};

bool is_atomic(Kind kind) { return kind == Kind::fetch_add || kind == Kind::compare_swap; }

const Promise* promise_of(Kind kind, ibv_qp_type type, bool has_imm) {
  const bool imm = has_imm && (kind == Kind::send || kind == Kind::write);
  for (const Promise& one : promises)
    if (one.kind == kind && one.type == type && one.has_imm == imm) return &one;
  return nullptr;
}

unsigned right_of(Kind kind) {
  return kind == Kind::write  ? IBV_ACCESS_REMOTE_WRITE
         : kind == Kind::read ? IBV_ACCESS_REMOTE_READ
                              : IBV_ACCESS_REMOTE_ATOMIC;
}

constexpr const char *flushed = "flush.rc.receives", *stale_key = "ibv_dereg_mr.rkey-dies",
                     *too_long = "error.rc.too-long.status", *too_long_there = "error.rc.too-long.responder",
                     *received = "ibv_poll_cq.opcode.recv", *received_imm = "ibv_poll_cq.opcode.recv-imm",
                     *untouched = "ibv_reg_mr.fields";

}  // namespace

std::vector<std::string> model_clauses() {
  std::vector<std::string> out{
      flushed,      stale_key,           too_long,           too_long_there, received,
      received_imm, "order.completions", "order.unsignaled", untouched};
  for (const Promise& one : promises)
    for (const char* id : {one.success, one.denied, one.bounds, one.window_bounds})
      if (*id != 0 && std::find(out.begin(), out.end(), id) == out.end()) out.emplace_back(id);
  return out;
}

Model::Model(const Program& program, const Claims& claims) : program_(program), claims_(claims) {
  ends_.resize(2 * program.shapes.size());
  for (size_t end = 0; end < ends_.size(); ++end) {
    if (shape_of(end).shares && end >= 2) {
      ends_[end].memory = ends_[end % 2].memory;
      continue;
    }
    ends_[end].memory = memories_.size();
    Memory memory;
    for (uint32_t i = 0; i < buffer_size; ++i)
      memory.bytes.push_back(pattern_byte(pattern(memories_.size()), i));
    memory.writers.assign(buffer_size, untouched);
    memory.keys.push_back({0, buffer_size, ~0u, true, false});
    memories_.push_back(std::move(memory));
  }
}

uint32_t Model::length_of(const Step& step) const { return is_atomic(step.kind) ? 8 : step.length; }

uint32_t Model::remote_of(const Step& step) const {
  return is_atomic(step.kind) ? std::min(step.remote / 8 * 8, buffer_size - 8) : step.remote;
}

const Model::Key* Model::key_of(const Step& step) const {
  const Memory& memory = memories_[ends_[end_of(step) ^ 1].memory];
  return step.key < memory.keys.size() ? &memory.keys[step.key] : nullptr;
}

// Of a step that names a key.
Model::Outcome Model::access_of(const Step& step, const char** clause) const {
  const Promise& promise = *promise_of(step.kind, shape_of(end_of(step)).type, step.has_imm);
  const Key* key = key_of(step);
  const uint32_t at = remote_of(step);
  if (key == nullptr) return Outcome::undone;
  // No page promises atomics through windows.
  if (is_atomic(step.kind) && (!claims_.atomics || key->is_window)) return Outcome::undone;
  const bool inside = at >= key->offset && at + length_of(step) <= key->offset + key->length;
  const bool allowed = key->is_alive && inside && (key->access & right_of(step.kind)) != 0;
  *clause = allowed          ? promise.success
            : !key->is_alive ? stale_key
            : !inside        ? (key->is_window ? promise.window_bounds : promise.bounds)
                             : promise.denied;
  return allowed ? Outcome::success : Outcome::denied;
}

Model::Outcome Model::outcome_of(const Step& step, const char** clause) const {
  const size_t end = end_of(step), other = end ^ 1;
  const Promise* promise = promise_of(step.kind, shape_of(end).type, step.has_imm);
  if (promise == nullptr || ends_[end].is_failed || ends_[other].is_failed) return Outcome::undone;
  *clause = promise->success;
  const uint32_t header = shape_of(end).type == IBV_QPT_UD ? grh_size : 0;
  // A UD message is one packet, of at least 256 bytes on every link.
  if (header > 0 && step.length > 256) return Outcome::undone;
  // Without a receive: RNR on RC, which the time decides; dropped on the others, which nobody sees.
  if (consumes(step) && ends_[other].receives.empty()) return Outcome::undone;
  if (step.kind == Kind::send) {
    if (step.length + header <= ends_[other].receives.front().length) return Outcome::success;
    return is_rc(end) ? Outcome::too_long : Outcome::undone;
  }
  const Outcome outcome = access_of(step, clause);
  // Denied with immediate data: no page tells how the receive completes that would have taken them.
  const bool is_told = is_rc(end) && !consumes(step);
  return outcome == Outcome::denied && !is_told ? Outcome::undone : outcome;
}

std::vector<Model::Range> Model::ranges_of(const Step& step) const {
  const size_t end = end_of(step), other = end ^ 1, mine = ends_[end].memory, theirs = ends_[other].memory;
  const uint32_t length = length_of(step), remote = remote_of(step);
  const bool writes_here = step.kind == Kind::read || is_atomic(step.kind);
  std::vector<Range> out{{mine, step.local, step.local + length, writes_here, false}};
  if (step.kind == Kind::send) {
    const Receive& receive = ends_[other].receives.front();
    out.push_back({theirs, receive.offset, receive.offset + receive.length, true, false});
  } else {
    out.push_back({theirs, remote, remote + length, step.kind != Kind::read, true});
  }
  return out;
}

// May the order of what is outstanding be seen in the outcome? On one RC queue pair, what is written remotely
// is there for the WRITEs, READs and atomics behind it (InfiniBand vol. 1, 10.8.3; clauses order.*); nothing
// else is assumed.
bool Model::is_open(const Step& step, const std::vector<Range>& ranges) const {
  for (const Outstanding& other : outstanding_)
    for (const Range& before : other.ranges)
      for (const Range& now : ranges) {
        if (before.memory != now.memory || before.end <= now.begin || now.end <= before.begin) continue;
        if (!before.is_write && !now.is_write) continue;
        const bool is_ordered =
            other.end == end_of(step) && other.is_rc && before.is_remote && now.is_remote && before.is_write;
        if (!is_ordered) return true;
      }
  return false;
}

bool Model::needs_drain(const Step& step) const {
  const size_t end = end_of(step);
  if (step.kind == Kind::receive) return false;
  if (step.kind == Kind::drain) return true;
  if (step.kind == Kind::add_region || step.kind == Kind::add_window || step.kind == Kind::drop_region ||
      step.kind == Kind::recover)
    return !outstanding_.empty();
  const char* clause = "";
  const Outcome outcome = outcome_of(step, &clause);
  if (outcome == Outcome::undone) return false;
  // The end of an unreliable message is not seen by its sender.
  const bool has_outstanding = std::any_of(outstanding_.begin(), outstanding_.end(),
                                           [&](const Outstanding& one) { return one.end / 2 == end / 2; });
  if (!is_rc(end) && has_outstanding) return true;
  // A failure takes both queue pairs to ERR: what the other one has posted may or may not be done by then.
  if (outcome != Outcome::success && ends_[end ^ 1].requests > 0) return true;
  if (ends_[end].requests + 1 >= queue_depth) return true;
  return is_open(step, ranges_of(step));
}

void Model::copy(size_t from, uint32_t at, size_t to, uint32_t where, uint32_t length, const char* clause) {
  const std::vector<int16_t> bytes(memories_[from].bytes.begin() + at,
                                   memories_[from].bytes.begin() + at + length);
  std::copy(bytes.begin(), bytes.end(), memories_[to].bytes.begin() + where);
  std::fill_n(memories_[to].writers.begin() + where, length, clause);
}

void Model::forget(size_t memory, uint32_t at, uint32_t length) {
  std::fill_n(memories_[memory].bytes.begin() + at, length, unknown);
}

void Model::carry_out(const Step& step, const Action& action, const char* clause) {
  End &here = ends_[action.end], &there = ends_[action.other];
  const Promise& promise = *promise_of(step.kind, shape_of(action.end).type, step.has_imm);
  if (consumes(step)) {
    const Receive receive = there.receives.front();
    there.receives.pop_front();
    const uint32_t header = shape_of(action.end).type == IBV_QPT_UD ? grh_size : 0;
    if (step.kind == Kind::send) {
      copy(here.memory, step.local, there.memory, receive.offset + header, step.length, clause);
      forget(there.memory, receive.offset, header);
    }
    const bool is_write = step.kind == Kind::write;
    there.received.push_back({receive.id, IBV_WC_SUCCESS, is_write ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV,
                              step.length + header, std::nullopt, step.has_imm ? received_imm : received});
    if (step.has_imm) there.received.back().imm = action.imm;
  }
  if (step.kind == Kind::write)
    copy(here.memory, step.local, there.memory, action.remote, step.length, clause);
  if (step.kind == Kind::read)
    copy(there.memory, action.remote, here.memory, step.local, step.length, clause);
  if (is_atomic(step.kind)) {
    uint8_t bytes[8];
    bool is_known = true;
    for (uint32_t i = 0; i < 8; ++i) {
      const int16_t byte = memories_[there.memory].bytes[action.remote + i];
      is_known &= byte != unknown;
      bytes[i] = static_cast<uint8_t>(byte);
    }
    copy(there.memory, action.remote, here.memory, step.local, 8, clause);
    uint64_t word;
    memcpy(&word, bytes, sizeof word);
    if (step.kind == Kind::fetch_add)
      word += action.compare_add;
    else if (word == action.compare_add)
      word = action.swap;
    memcpy(bytes, &word, sizeof word);
    for (uint32_t i = 0; i < 8; ++i)
      memories_[there.memory].bytes[action.remote + i] = is_known ? bytes[i] : unknown;
  }
  if (action.is_signaled)
    here.sends.push_back({action.id, IBV_WC_SUCCESS, promise.opcode, 0, std::nullopt, clause});
}

// Both queue pairs get into ERR. The receives of a queue are flushed; those of an SRQ stay in it.
void Model::fail(const Step& step, const Action& action, Outcome outcome, const char* clause) {
  End &here = ends_[action.end], &there = ends_[action.other];
  const bool is_long = outcome == Outcome::too_long;
  here.sends.push_back({action.id, is_long ? IBV_WC_REM_INV_REQ_ERR : IBV_WC_REM_ACCESS_ERR, IBV_WC_SEND, 0,
                        std::nullopt, is_long ? too_long : clause});
  if (is_long) {
    const Receive receive = there.receives.front();
    there.receives.pop_front();
    forget(there.memory, receive.offset, receive.length);
    there.received.push_back({receive.id, IBV_WC_LOC_LEN_ERR, IBV_WC_RECV, 0, std::nullopt, too_long_there});
    there.received.back().any_error = true;
  }
  if (step.kind == Kind::read || is_atomic(step.kind)) forget(here.memory, step.local, length_of(step));
  for (End* end : {&here, &there}) {
    end->is_failed = true;
    if (shape_of(action.end).has_srq) continue;
    for (const Receive& receive : end->receives)
      end->received.push_back({receive.id, IBV_WC_WR_FLUSH_ERR, IBV_WC_RECV, 0, std::nullopt, flushed});
    end->receives.clear();
  }
}

// Steps of the other end's memory.
std::optional<Action> Model::change_keys(const Step& step, Action action) {
  Memory& memory = memories_[ends_[action.other].memory];
  const bool is_window = step.kind == Kind::add_window;
  if (is_window && (!claims_.windows || !is_rc(action.end) || ends_[action.other].is_failed))
    return std::nullopt;
  if (step.kind == Kind::drop_region) {
    // A window, and the region of the whole buffer, stay.
    if (step.key == 0 || step.key >= memory.keys.size()) return std::nullopt;
    Key& key = memory.keys[step.key];
    if (!key.is_alive || key.is_window) return std::nullopt;
    key.is_alive = false;
    return action;
  }
  action.key = memory.keys.size();
  action.access = step.access | (is_window ? 0u : static_cast<unsigned>(IBV_ACCESS_LOCAL_WRITE));
  if (!claims_.atomics || is_window) action.access &= ~static_cast<unsigned>(IBV_ACCESS_REMOTE_ATOMIC);
  memory.keys.push_back({step.remote, step.length, action.access, true, is_window});
  return action;
}

std::optional<Action> Model::apply(const Step& step) {
  Action action;
  action.kind = step.kind;
  action.end = end_of(step);
  action.other = action.end ^ 1;
  action.pair = action.end / 2;
  action.local = step.local;
  action.length = length_of(step);
  action.remote = remote_of(step);
  action.key = step.key;
  End& here = ends_[action.end];
  if (step.kind == Kind::drain) return std::nullopt;
  if (step.kind == Kind::add_region || step.kind == Kind::add_window || step.kind == Kind::drop_region) {
    action.remote = step.remote;
    action.length = step.length;
    return change_keys(step, action);
  }
  if (step.kind == Kind::recover) {
    if (!here.is_failed) return std::nullopt;
    here.is_failed = ends_[action.other].is_failed = false;
    return action;
  }
  action.id = next_id_++;
  if (step.kind == Kind::receive) {
    if ((here.is_failed && !shape_of(action.end).has_srq) ||
        here.receives.size() + here.received.size() >= queue_depth)
      return std::nullopt;
    here.receives.push_back({action.id, step.local, step.length});
    return action;
  }
  const char* clause = "";
  const Outcome outcome = outcome_of(step, &clause);
  if (outcome == Outcome::undone) return std::nullopt;
  action.has_imm = step.has_imm && consumes(step);
  action.imm = static_cast<uint32_t>(0x1000000 + action.id);
  action.is_inline = step.is_inline && (step.kind == Kind::send || step.kind == Kind::write) &&
                     step.length <= claims_.inline_data;
  action.is_signaled = step.is_signaled || !is_rc(action.end);
  here.is_unsignaled = !action.is_signaled;
  action.compare_add = action.id * 3;
  action.swap = ~action.id;
  outstanding_.push_back({action.end, is_rc(action.end), ranges_of(step)});
  ++here.requests;
  if (outcome == Outcome::success)
    carry_out(step, action, clause);
  else
    fail(step, action, outcome, clause);
  return action;
}

// A WRITE of no bytes asks for no key (InfiniBand vol. 1, 9.7.4.1.5) and changes nothing.
std::vector<Action> Model::closing() {
  std::vector<Action> out;
  for (size_t end = 0; end < ends_.size(); ++end) {
    if (!ends_[end].is_unsignaled || ends_[end].is_failed) continue;
    Action action;
    action.kind = Kind::write;
    action.pair = end / 2;
    action.end = end;
    action.other = end ^ 1;
    action.id = next_id_++;
    ends_[end].sends.push_back(
        {action.id, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE, 0, std::nullopt, "order.unsignaled"});
    out.push_back(action);
  }
  return out;
}

void Model::drained() {
  outstanding_.clear();
  for (End& end : ends_) {
    end.is_unsignaled = false;
    end.sends.clear();
    end.received.clear();
    end.requests = 0;
  }
}

std::optional<uint32_t> Model::mismatch(size_t memory, const std::string& bytes) const {
  const auto& expected = memories_[memory].bytes;
  for (uint32_t i = 0; i < buffer_size && i < bytes.size(); ++i)
    if (expected[i] != unknown && expected[i] != static_cast<uint8_t>(bytes[i])) return i;
  return std::nullopt;
}

const char* Model::writer(size_t memory, uint32_t at) const { return memories_[memory].writers[at]; }

}  // namespace conformance::random
