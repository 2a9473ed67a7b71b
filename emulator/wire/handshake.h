// SPDX-License-Identifier: BSD-2-Clause
//
// What two processes of different nodes say to each other before anything else: both show that they have the
// fabric's key without showing the key, and the one that was called says which process it is. Pure: bytes in,
// bytes out; no socket, no clock, no randomness of its own.
//
//   caller                                     called
//   Hello      who, whom, from, to, nonce ──▶
//              ◀── nonce, proof of the key     Challenge
//   Proof      proof of the key           ──▶
//              ◀── which process, proof        Welcome      (by the process that has the target: it may be
//              another)
//
// All four have fixed sizes and little-endian fields. With T = SHA-256(Hello, Challenge up to its proof),
// each proof is HMAC-SHA-256(key, label, T, what the message says); the labels differ, so that no proof can
// be given back as another, and both nonces are in T, so that none can be shown twice. Refusals before the
// caller's proof are not proven: they are hints, and lead to nothing worse than a connection that does not
// come about. What follows the handshake is neither encrypted nor signed: who can change packets on the way
// can do so (docs/NETWORK.md).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "fabric/device_table.h"
#include "wire/net_address.h"
#include "wire/process_id.h"
#include "wire/refusal.h"
#include "wire/sha256.h"
#include "wire/target.h"

namespace verbena::wire {

inline constexpr uint32_t kProtocolVersion = 2;
inline constexpr size_t kHelloSize = 136;
inline constexpr size_t kChallengeSize = 88;
inline constexpr size_t kProofSize = 40;
inline constexpr size_t kWelcomeSize = 64;

using Nonce = std::array<uint8_t, 32>;  // random, for this one handshake

struct Hello {
  ProcessId caller;
  NetAddress from;  // of the caller's node
  NetAddress to;    // that he calls: who is called looks whether it is his
  Target target;
  Nonce nonce{};
};

std::array<uint8_t, kHelloSize> encode(const Hello& hello);
// kNone; kMalformed; kVersion (then *out is untouched).
Refusal decode(std::span<const uint8_t, kHelloSize> bytes, Hello* out);

// What goes from the process that shook hands to the one that welcomes.
struct Admitted {
  Hello hello;
  Digest transcript{};  // T
};

// The called side as far as the caller's proof.
class CalledHandshake {
 public:
  enum class Step : uint8_t { kHello, kProof, kAdmitted, kRefused };

  CalledHandshake(const NetworkKey& key, const Nonce& nonce) : key_(key), nonce_(nonce) {}

  Step step() const { return step_; }
  size_t wanted() const;  // bytes that the next message has; 0: none is wanted any more

  // Takes the message, exactly wanted() bytes. When the answer to a hello is due it is in challenge(): an
  // accepted hello's, or a refusal's. `own`: the node that is called, whose addresses these are.
  void hello_arrived(std::span<const uint8_t, kHelloSize> bytes, uint64_t own_node,
                     std::span<const NetAddress> own);
  void proof_arrived(std::span<const uint8_t, kProofSize> bytes);

  const std::array<uint8_t, kChallengeSize>& challenge() const { return challenge_; }
  const Admitted& admitted() const { return admitted_; }
  Refusal refusal() const { return refusal_; }
  uint32_t their_version() const { return their_version_; }

 private:
  const NetworkKey key_;
  const Nonce nonce_;
  Step step_ = Step::kHello;
  Refusal refusal_ = Refusal::kNone;
  uint32_t their_version_ = 0;
  Admitted admitted_;
  std::array<uint8_t, kChallengeSize> challenge_{};
};

// `welcomer`: the process that has the target; with a refusal (kNobody, kBusy) whoever says so.
std::array<uint8_t, kWelcomeSize> welcome(const NetworkKey& key, const Digest& transcript,
                                          const ProcessId& welcomer, Refusal refusal);

class CallerHandshake {
 public:
  enum class Step : uint8_t { kChallenge, kWelcome, kDone, kRefused };

  CallerHandshake(const NetworkKey& key, const Hello& hello)
      : key_(key), hello_(hello), hello_bytes_(encode(hello)) {}

  Step step() const { return step_; }
  size_t wanted() const;

  const std::array<uint8_t, kHelloSize>& hello() const { return hello_bytes_; }  // to be sent first
  // Then proof() is to be sent; also when it ends in kKey: a proof of nothing, so that the other end can say
  // so, too.
  void challenge_arrived(std::span<const uint8_t, kChallengeSize> bytes);
  const std::array<uint8_t, kProofSize>& proof() const { return proof_; }
  void welcome_arrived(std::span<const uint8_t, kWelcomeSize> bytes);

  const ProcessId& welcomer() const { return welcomer_; }  // when kDone
  Refusal refusal() const { return refusal_; }
  uint32_t their_version() const { return their_version_; }

 private:
  void refuse(Refusal refusal);

  const NetworkKey key_;
  const Hello hello_;
  const std::array<uint8_t, kHelloSize> hello_bytes_;
  Step step_ = Step::kChallenge;
  Refusal refusal_ = Refusal::kNone;
  uint32_t their_version_ = 0;
  Digest transcript_{};
  ProcessId welcomer_;
  std::array<uint8_t, kProofSize> proof_{};
};

}  // namespace verbena::wire
