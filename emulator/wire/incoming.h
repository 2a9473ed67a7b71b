// SPDX-License-Identifier: BSD-2-Clause
//
// A connection that somebody from another node has begun, as far as his proof. A slow one has a time limit;
// whoever holds many of these drops the oldest (connection_listener.cc).
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "wire/handshake.h"

namespace verbena::wire {

class Incoming {
 public:
  // Owns `fd`, non-blocking. `deadline_ns`: when it is given up.
  Incoming(int fd, const NetAddress& peer, const NetworkKey& key, const Nonce& nonce, int64_t deadline_ns)
      : fd_(fd), peer_(peer), deadline_ns_(deadline_ns), handshake_(key, nonce) {}
  ~Incoming();
  Incoming(const Incoming&) = delete;
  Incoming& operator=(const Incoming&) = delete;

  enum class State : uint8_t { kGoesOn, kAdmitted, kOver };

  // Reads what is there and answers. kOver: refusal() says why.
  State progress(uint64_t own_node, std::span<const NetAddress> own);

  int fd() const { return fd_; }
  int give_away();  // the descriptor, which is the caller's from then on
  const NetAddress& peer() const { return peer_; }
  int64_t deadline_ns() const { return deadline_ns_; }
  Refusal refusal() const { return refusal_; }
  const CalledHandshake& handshake() const { return handshake_; }

 private:
  State end(Refusal refusal);

  int fd_;
  const NetAddress peer_;
  const int64_t deadline_ns_;
  CalledHandshake handshake_;
  Refusal refusal_ = Refusal::kNone;
  std::array<uint8_t, kHelloSize> bytes_{};
  size_t filled_ = 0;
};

}  // namespace verbena::wire
