// SPDX-License-Identifier: BSD-2-Clause
//
// A connection request to another node: repeated attempts until one succeeds or no further attempt can help.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "wire/handshake.h"

namespace verbena::wire {

class Outgoing {
 public:
  struct ConnectRequest {
    uint64_t request_id;
    NetAddress to;
    NetAddress from;  // of this node, of the family of `to`
    uint16_t port;
    Target target;
    int64_t deadline_ns;
  };

  Outgoing(const ConnectRequest& request, const NetworkKey& key, const ProcessId& self)
      : request_(request), key_(key), self_(self) {}
  ~Outgoing() { hang_up(); }
  Outgoing(const Outgoing&) = delete;
  Outgoing& operator=(const Outgoing&) = delete;

  enum class State : uint8_t { kGoesOn, kConnected, kFailed };

  // Makes progress without blocking. `ready`: poll(2) has reported an event of fd().
  State progress(int64_t now, bool ready);

  int fd() const { return fd_; }                   // -1: between two attempts
  bool wants_room() const { return connecting_; }  // EPOLLOUT, else EPOLLIN
  int64_t due_ns() const { return due_ns_; }       // when progress() is due without a word of poll(2)
  int give_away();
  const ConnectRequest& request() const { return request_; }
  const ProcessId& welcomer() const { return handshake_->welcomer(); }
  Refusal refusal() const { return refusal_; }  // when it has failed: the last attempt's
  uint32_t their_version() const { return handshake_ ? handshake_->their_version() : 0; }

  // The first attempt's wait for a reply: a stopped listener is bypassed soon.
  static constexpr int64_t kFirstPatience = 250'000'000;
  static constexpr int64_t kLastPatience = 8'000'000'000;
  // The pause between a refused attempt and the next.
  static constexpr int64_t kFirstPause = 10'000'000;
  static constexpr int64_t kLastPause = 1'000'000'000;

 private:
  State begin(int64_t now);
  State connected(int64_t now);
  State read(int64_t now);
  State missed(int64_t now, Refusal refusal);
  bool say(const uint8_t* bytes, size_t size);
  void hang_up();

  const ConnectRequest request_;
  const NetworkKey key_;
  const ProcessId self_;
  int fd_ = -1;
  bool connecting_ = false;
  int64_t due_ns_ = 0;
  int64_t patience_ = kFirstPatience;
  int64_t pause_ = kFirstPause;
  std::optional<InitiatorHandshake> handshake_;
  Refusal refusal_ = Refusal::kNone;
  std::array<uint8_t, kChallengeSize> bytes_{};
  size_t filled_ = 0;
};

}  // namespace verbena::wire
