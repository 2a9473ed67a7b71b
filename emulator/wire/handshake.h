// SPDX-License-Identifier: BSD-2-Clause
//
// The handshake of two processes of different nodes. Both prove that they have the fabric's key without
// disclosing it, and the called one says which process it is. Pure: bytes in, bytes out; no socket, no clock,
// no randomness of its own.
//
//   connecting                                called
//   Hello      own id, target, from, to,
//              nonce                     ──▶
//              ◀── nonce, proof of the key     Challenge
//   Proof      proof of the key           ──▶
//              ◀── own id, proof               Welcome   (by the process of the target: it may be another)
//
// All four messages have fixed sizes and little-endian fields. With T = SHA-256(Hello, Challenge up to its
// proof), each proof is HMAC-SHA-256(key, label, T, the message's contents).
// - The labels differ, so that no proof can be returned as another one.
// - Both nonces are in T, so that no proof can be replayed.
// - Refusals before the connecting side's proof are not authenticated. They are hints: a forged one can only
//   prevent the connection.
// - What follows the handshake is neither encrypted nor signed. An attacker that can change packets on the
//   way can change it (docs/NETWORK.md).
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

using Nonce = std::array<uint8_t, 32>;  // random, for this handshake only

struct Hello {
  ProcessId initiator;
  NetAddress from;  // of the connecting node
  NetAddress to;    // of the called node, which checks that the address is its own
  Target target;
  Nonce nonce{};
};

std::array<uint8_t, kHelloSize> encode(const Hello& hello);
// Returns kNone, kMalformed or kVersion (then *out is unchanged).
Refusal decode(std::span<const uint8_t, kHelloSize> bytes, Hello* out);

// Passed from the process that did the handshake to the process that sends the welcome.
struct Admitted {
  Hello hello;
  Digest transcript{};  // T
};

// The called side, up to the connecting side's proof.
class ResponderHandshake {
 public:
  enum class Step : uint8_t { kHello, kProof, kAdmitted, kRefused };

  ResponderHandshake(const NetworkKey& key, const Nonce& nonce) : key_(key), nonce_(nonce) {}

  Step step() const { return step_; }
  size_t wanted() const;  // size of the next message; 0: none is expected any more

  // Takes the message, exactly wanted() bytes. The reply to a hello is then in challenge(), for an accepted
  // hello and for a refused one. `own`: the addresses of the called node.
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

// `welcomer`: the process of the target. With a refusal (kNobody, kBusy): the process that refuses.
std::array<uint8_t, kWelcomeSize> welcome(const NetworkKey& key, const Digest& transcript,
                                          const ProcessId& welcomer, Refusal refusal);

class InitiatorHandshake {
 public:
  enum class Step : uint8_t { kChallenge, kWelcome, kDone, kRefused };

  InitiatorHandshake(const NetworkKey& key, const Hello& hello)
      : key_(key), hello_(hello), hello_bytes_(encode(hello)) {}

  Step step() const { return step_; }
  size_t wanted() const;

  const std::array<uint8_t, kHelloSize>& hello() const { return hello_bytes_; }  // to be sent first
  // Then proof() must be sent, also when the result is kKey: that proof is invalid, so that the other end can
  // report kKey, too.
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
