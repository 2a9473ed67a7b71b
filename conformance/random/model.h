// SPDX-License-Identifier: BSD-2-Clause
//
// The model: what may come of a program's steps, as the manual pages promise it. No device, no waiting. It
// keeps the bytes of every buffer, the receives that are posted, keys, and the completions that must come, in
// their order.
//
// A step whose outcome the pages leave open is not taken: it waits until all that is outstanding has
// completed (needs_drain), or is left undone (apply gives nothing). So there is one outcome, and anything
// else is a deviation.
#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "random/program.h"

namespace conformance::random {

// What both devices claim.
struct Claims {
  bool atomics = false, windows = false;
  uint32_t inline_data = 0;  // of every queue pair
};

constexpr size_t queue_depth = 16;  // of send and receive queues

struct Expected {
  uint64_t id = 0;
  ibv_wc_status status = IBV_WC_SUCCESS;
  ibv_wc_opcode opcode = IBV_WC_SEND;
  uint32_t bytes = 0;  // of a receive
  std::optional<uint32_t> imm;
  const char* clause = "";  // that promises it
  bool any_error = false;   // another status than success will do
};

// What to do for a step that is taken.
struct Action {
  Kind kind = Kind::drain;
  size_t pair = 0, end = 0, other = 0;  // end: 2 * pair, and 1 more for the far one
  uint64_t id = 0;
  uint32_t imm = 0, local = 0, remote = 0, length = 0;
  size_t key = 0;  // of the other end's memory; of add_region and add_window: the new one
  unsigned access = 0;
  bool has_imm = false, is_inline = false, is_signaled = true;
  uint64_t compare_add = 0, swap = 0;
};

class Model {
 public:
  Model(const Program& program, const Claims& claims);

  bool needs_drain(const Step& step) const;
  std::optional<Action> apply(const Step& step);
  // Requests that end the queues with a completion, where their last ones have none: to be posted before what
  // is outstanding is waited for.
  std::vector<Action> closing();
  // All that was expected has been seen.
  void drained();

  size_t end_count() const { return ends_.size(); }
  const std::deque<Expected>& sends(size_t end) const {
    return ends_[end].sends;
  }  // in the order of the queue
  const std::deque<Expected>& receives(size_t end) const { return ends_[end].received; }  // likewise
  size_t memory_of(size_t end) const { return ends_[end].memory; }
  size_t memory_count() const { return memories_.size(); }
  // Where `bytes` of this memory are not what they must be, or nothing.
  std::optional<uint32_t> mismatch(size_t memory, const std::string& bytes) const;
  uint8_t byte(size_t memory, uint32_t at) const { return static_cast<uint8_t>(memories_[memory].bytes[at]); }
  // The clause of the last step that wrote there.
  const char* writer(size_t memory, uint32_t at) const;
  // The pattern that a memory has at the beginning (support/pattern.h).
  static uint64_t pattern(size_t memory) { return 1000 + memory; }

 private:
  static constexpr int16_t unknown = -1;
  struct Range {
    size_t memory;
    uint32_t begin, end;
    bool is_write, is_remote;
  };
  struct Outstanding {
    size_t end;
    bool is_rc;
    std::vector<Range> ranges;
  };
  struct Key {
    uint32_t offset, length;
    unsigned access;
    bool is_alive, is_window;
  };
  struct Memory {
    std::vector<int16_t> bytes;
    std::vector<const char*> writers;
    std::vector<Key> keys;
  };
  struct Receive {
    uint64_t id;
    uint32_t offset, length;
  };
  struct End {
    size_t memory = 0;
    bool is_failed = false;
    std::deque<Receive> receives;
    std::deque<Expected> sends, received;
    size_t requests = 0;         // since the last drain, without completions too
    bool is_unsignaled = false;  // the last of them
  };
  enum class Outcome : uint8_t { undone, success, too_long, denied };

  const Shape& shape_of(size_t end) const { return program_.shapes[end / 2]; }
  size_t end_of(const Step& step) const { return step.pair % program_.shapes.size() * 2 + step.from_far; }
  bool is_rc(size_t end) const { return shape_of(end).type == IBV_QPT_RC; }
  uint32_t length_of(const Step& step) const;
  uint32_t remote_of(const Step& step) const;
  bool consumes(const Step& step) const {
    return step.kind == Kind::send || (step.kind == Kind::write && step.has_imm);
  }
  const Key* key_of(const Step& step) const;
  Outcome outcome_of(const Step& step, const char** clause) const;
  Outcome access_of(const Step& step, const char** clause) const;
  std::vector<Range> ranges_of(const Step& step) const;
  bool is_open(const Step& step, const std::vector<Range>& ranges) const;

  void copy(size_t from, uint32_t at, size_t to, uint32_t where, uint32_t length, const char* clause);
  void forget(size_t memory, uint32_t at, uint32_t length);
  void carry_out(const Step& step, const Action& action, const char* clause);
  void fail(const Step& step, const Action& action, Outcome outcome, const char* clause);
  std::optional<Action> change_keys(const Step& step, Action action);

  const Program& program_;
  const Claims claims_;
  std::vector<End> ends_;
  std::vector<Memory> memories_;
  std::vector<Outstanding> outstanding_;
  uint64_t next_id_ = 1;
};

// Every clause that a program may be about.
std::vector<std::string> model_clauses();

}  // namespace conformance::random
