// SPDX-License-Identifier: BSD-2-Clause
//
// Carries out a random program on a device, or on two, and compares what comes with what the model expects.
#pragma once

#include <chrono>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "random/messages.h"
#include "random/model.h"
#include "random/program.h"
#include "support/pair.h"

namespace conformance::random {

struct Finding {
  enum class About : uint8_t { kCall, kCompletion, kState, kMemory };
  About about;
  std::string text;  // expected and seen
};

// What the device claims, or both devices of a pair do.
Claims claims_of(Topology& topology);

class Machine {
 public:
  // Makes the objects, and connects the queue pairs. Throws what support/objects.h does.
  Machine(Topology& topology, const Setup& setup, const Claims& claims);

  // Carries out one step that `model` has taken already. Nothing: as the model says so far. After Settle the
  // model is told the values of all bytes.
  std::optional<Finding> run(const Step& step, Model& model);
  // The device has done something legal that the model cannot follow: a request with a wrong lkey was refused
  // when it was posted, or a key that receives may still name has come back (Linux
  // drivers/infiniband/hw/mlx5/mr.c, pop_stored_mkey()); or an answer was lost, and the device is known to
  // ask again for ever. What is left of the program tells nothing.
  bool has_ended() const { return has_ended_; }
  // The limits of the waits in which nothing came, without --time-scale.
  std::chrono::milliseconds waited_in_vain() const { return waited_in_vain_; }

 private:
  // The side whose objects carry out the step; of Reconnect both do.
  uint32_t side_of(const Step& step) const;
  Link& at(uint32_t side) const { return is_split_ && side == 1 ? far_ : near_; }
  std::optional<Finding> carry_out(const Step& step);
  void connect(uint32_t connection);
  void exchange_keys();

  std::optional<Finding> settle(Model& model);
  std::vector<wire::Completion> poll();
  std::optional<Finding> take_completions(const Expectations& expected);
  std::optional<Finding> compare(const Expected& expected, const wire::Completion& seen, EndIndex end) const;
  std::optional<Finding> compare_states(const Expectations& expected);
  std::optional<Finding> compare_memory(Model& model);

  Link &near_, &far_;
  const bool is_split_;
  const Known known_;
  const Setup& setup_;
  Keys keys_[2];  // of the near objects, and of the far ones
  std::set<uint32_t> former_lkeys_[2];
  bool has_ended_ = false;
  std::chrono::milliseconds waited_in_vain_{0};
};

}  // namespace conformance::random
