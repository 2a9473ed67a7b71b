// SPDX-License-Identifier: BSD-2-Clause
//
// A connection from another node, up to the peer's proof. It has a time limit. A process with many of these
// drops some (incoming_table.h).
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "wire/handshake.h"

namespace verbena::wire {

class Incoming {
 public:
  // Owns `fd`, non-blocking. `deadline_ns`: its time limit.
  Incoming(int fd, const NetAddress& peer, const NetworkKey& key, const Nonce& nonce, int64_t deadline_ns)
      : fd_(fd), peer_(peer), deadline_ns_(deadline_ns), handshake_(key, nonce) {}
  ~Incoming();
  Incoming(const Incoming&) = delete;
  Incoming& operator=(const Incoming&) = delete;

  enum class State : uint8_t { kGoesOn, kAdmitted, kOver };

  // Reads the available bytes and replies. kOver: refusal() has the reason.
  State progress(uint64_t own_node, std::span<const NetAddress> own);

  int fd() const { return fd_; }
  int give_away();  // the descriptor, owned by the caller from then on
  const NetAddress& peer() const { return peer_; }
  int64_t deadline_ns() const { return deadline_ns_; }
  Refusal refusal() const { return refusal_; }
  // It has sent a valid hello, to this node, and has not shown the key yet.
  bool has_greeted() const { return handshake_.step() == ResponderHandshake::Step::kProof; }
  const ResponderHandshake& handshake() const { return handshake_; }

 private:
  State end(Refusal refusal);

  int fd_;
  const NetAddress peer_;
  const int64_t deadline_ns_;
  ResponderHandshake handshake_;
  Refusal refusal_ = Refusal::kNone;
  std::array<uint8_t, kHelloSize> bytes_{};
  size_t filled_ = 0;
};

}  // namespace verbena::wire
