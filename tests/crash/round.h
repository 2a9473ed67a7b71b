// SPDX-License-Identifier: BSD-2-Clause
//
// The roles of a round: a victim that sends to a target; a neighbour that sends to the same target, by way of
// the same CQ there; and two bystanders that exchange messages with each other only.
#pragma once

#include <memory>
#include <vector>
#include <set>
#include <string>

#include "driver.h"
#include "node_check.h"

namespace verbena::crash {

// timeout 8 and one retry: a peer is given up after 2 * 4.096 us * 2^8 (ibv_modify_qp(3)).
struct Times {
  int timeout = 8;
  int retry_count = 1;
  constexpr int64_t failure_ns() const { return (retry_count + 1) * (int64_t{4096} << timeout); }
};

// A flow from `from` to `to`.
struct Link {
  RoleProcess* from = nullptr;
  RoleProcess* to = nullptr;
  int from_flow = 0;
  int to_flow = 0;
  Kind kind = Kind::kMixed;
  uint32_t from_qpn = 0;
  uint32_t to_qpn = 0;

  FlowReport& sent() const { return from->flow(from_flow); }
  FlowReport& arrived() const { return to->flow(to_flow); }

  void connect(const Times& times);
  // Both sides begin.
  void start(uint32_t pace_us = 0, uint64_t limit = UINT64_MAX);
  void start_target(uint64_t salt);
  void start_initiator(uint64_t salt, uint32_t pace_us, uint64_t limit);
  void await_progress(uint64_t messages, const std::string& when) const;
};

// The initiator of `link` outlives its target: undelivered requests fail in time, and the rest is flushed.
void expect_retry_exceeded(const Link& link, const Times& times, int64_t died_ns);
// The target of `link` outlives its initiator: what has arrived is whole, what is posted can be flushed, and
// the target's own requests fail in time.
void expect_intact(const Link& link);
void expect_target_can_end(const Link& link, const Times& times);

class Ensemble {
 public:
  explicit Ensemble(bool with_channels);
  ~Ensemble() = default;

  // Starts a victim and a target where there are none.
  void fill_up();
  // Connects the roles that are not connected; traffic of `kind` from victim to target runs when this
  // returns.
  void start_round(Kind kind, const Times& times);
  // Connects neighbour and target if they are not.
  void start_side(const Times& times);
  // Takes down the queue pairs of the round that are left.
  void end_round();
  // Checks that the node has nothing of any other process.
  void expect_only_the_living();
  // All roles end; nothing is left.
  void finish();

  bool with_channels;
  NodeCheck node;
  std::unique_ptr<RoleProcess> victim, target, neighbour, left, right;
  Link main;       // victim to target
  Link side;       // neighbour to target
  Link bystander;  // left to right

 private:
  std::unique_ptr<RoleProcess> make(const char* name);
  void expect_no_numbers_left();

  std::vector<uint32_t> gone;  // numbers of queue pairs that were destroyed since the last check
};

}  // namespace verbena::crash
