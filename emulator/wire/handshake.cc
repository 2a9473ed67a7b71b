// SPDX-License-Identifier: BSD-2-Clause
//
// Offsets and (sizes) in bytes. All messages: magic 0 (4), version 4 (4). Then
// - Hello: node 8 (8), slot 16 (4), generation 20 (4), from 24 (16), to 40 (16), kind 56 (1), zero 57 (3),
//   number 60 (4), service 64 (8), process: node 72 (8), slot 80 (4), generation 84 (4); nonce 88 (32), zero
//   120 (16)
// - Challenge: refusal 8 (4), zero 12 (4), node 16 (8), nonce 24 (32), proof 56 (32)
// - Proof: proof 8 (32)
// - Welcome: refusal 8 (4), zero 12 (4), node 16 (8), slot 24 (4), generation 28 (4), proof 32 (32)
#include "wire/handshake.h"

#include <algorithm>
#include <string_view>

#include "wire/bytes.h"

namespace verbena::wire {
namespace {

enum class Magic : uint32_t {  // "VHEL", "VCHA", "VPRO", "VWEL"
  kHello = 0x4c454856,
  kChallenge = 0x41484356,
  kProof = 0x4f525056,
  kWelcome = 0x4c455756,
};

constexpr size_t kChallengeProof = 56;
constexpr size_t kWelcomeProof = 32;

std::span<const uint8_t> label(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}
constexpr std::string_view kCalled = "verbena called", kCaller = "verbena caller",
                           kWelcomes = "verbena welcomes";

void begin(uint8_t* to, Magic magic) {
  put32(to, static_cast<uint32_t>(magic));
  put32(to + 4, kProtocolVersion);
}

void put(uint8_t* to, const ProcessId& id) {
  put64(to, id.node);
  put32(to + 8, id.slot);
  put32(to + 12, id.generation);
}

ProcessId get_process(const uint8_t* from) { return {get64(from), get32(from + 8), get32(from + 12)}; }

void put(uint8_t* to, std::span<const uint8_t> bytes) { std::copy(bytes.begin(), bytes.end(), to); }

template <typename Array>
Array get_array(const uint8_t* from) {
  Array out;
  std::copy(from, from + out.size(), out.begin());
  return out;
}

bool all_zero(const uint8_t* from, size_t size) {
  return std::all_of(from, from + size, [](uint8_t byte) { return byte == 0; });
}

// A refusal that may be sent.
Refusal travelling(uint32_t word) {
  const auto refusal = static_cast<Refusal>(word);
  return refusal <= Refusal::kSelf ? refusal : Refusal::kMalformed;
}

// The fields that a target of this kind has; the others are zero. False: no such kind.
bool is_proper(const Target& target) {
  Target expected{target.kind, 0, 0, {}};
  switch (target.kind) {
    case TargetKind::kQueuePair:
      expected.number = target.number;
      break;
    case TargetKind::kCmListener:
      expected.service = target.service;
      break;
    case TargetKind::kProcess:
    case TargetKind::kCmProcess:
      expected.process = target.process;
      break;
    case TargetKind::kNode:
    case TargetKind::kGreeting:
      break;
    default:
      return false;
  }
  const bool one_process = target.kind == TargetKind::kProcess || target.kind == TargetKind::kCmProcess;
  return expected == target && one_process == target.process.somebody() && target.number < 1u << 24;
}

Digest transcript_of(std::span<const uint8_t> hello, std::span<const uint8_t> challenge) {
  Sha256 hash;
  hash.add(hello);
  hash.add(challenge.first(kChallengeProof));
  return hash.finish();
}

}  // namespace

std::array<uint8_t, kHelloSize> encode(const Hello& hello) {
  std::array<uint8_t, kHelloSize> bytes{};
  uint8_t* to = bytes.data();
  begin(to, Magic::kHello);
  put(to + 8, hello.initiator);
  put(to + 24, hello.from.bytes);
  put(to + 40, hello.to.bytes);
  to[56] = static_cast<uint8_t>(hello.target.kind);
  put32(to + 60, hello.target.number);
  put64(to + 64, hello.target.service);
  put(to + 72, hello.target.process);
  put(to + 88, hello.nonce);
  return bytes;
}

Refusal decode(std::span<const uint8_t, kHelloSize> bytes, Hello* out) {
  const uint8_t* from = bytes.data();
  if (get32(from) != static_cast<uint32_t>(Magic::kHello)) return Refusal::kMalformed;
  if (get32(from + 4) != kProtocolVersion) return Refusal::kVersion;
  Hello hello;
  hello.initiator = get_process(from + 8);
  hello.from.bytes = get_array<std::array<uint8_t, 16>>(from + 24);
  hello.to.bytes = get_array<std::array<uint8_t, 16>>(from + 40);
  hello.target.kind = static_cast<TargetKind>(from[56]);
  hello.target.number = get32(from + 60);
  hello.target.service = get64(from + 64);
  hello.target.process = get_process(from + 72);
  hello.nonce = get_array<Nonce>(from + 88);
  if (!all_zero(from + 57, 3) || !all_zero(from + 120, 16) || !hello.initiator.somebody() ||
      !is_proper(hello.target))
    return Refusal::kMalformed;
  *out = hello;
  return Refusal::kNone;
}

size_t ResponderHandshake::wanted() const {
  switch (step_) {
    case Step::kHello:
      return kHelloSize;
    case Step::kProof:
      return kProofSize;
    default:
      return 0;
  }
}

void ResponderHandshake::hello_arrived(std::span<const uint8_t, kHelloSize> bytes, uint64_t own_node,
                                    std::span<const NetAddress> own) {
  if (step_ != Step::kHello) return;
  their_version_ = get32(bytes.data() + 4);
  refusal_ = decode(bytes, &admitted_.hello);
  const Hello& hello = admitted_.hello;
  if (refusal_ == Refusal::kNone && hello.initiator.node == own_node) refusal_ = Refusal::kSelf;
  if (refusal_ == Refusal::kNone && std::find(own.begin(), own.end(), hello.to) == own.end())
    refusal_ = Refusal::kAddress;
  step_ = refusal_ == Refusal::kNone ? Step::kProof : Step::kRefused;
  uint8_t* to = challenge_.data();
  begin(to, Magic::kChallenge);
  put32(to + 8, static_cast<uint32_t>(refusal_));
  put64(to + 16, own_node);
  if (refusal_ != Refusal::kNone) return;  // a peer with a malformed hello gets no proof
  put(to + 24, nonce_);
  admitted_.transcript = transcript_of(bytes, challenge_);
  put(to + kChallengeProof, hmac_sha256(key_, {label(kCalled), admitted_.transcript}));
}

void ResponderHandshake::proof_arrived(std::span<const uint8_t, kProofSize> bytes) {
  if (step_ != Step::kProof) return;
  const uint8_t* from = bytes.data();
  const Digest expected = hmac_sha256(key_, {label(kCaller), admitted_.transcript});
  if (get32(from) != static_cast<uint32_t>(Magic::kProof) || get32(from + 4) != kProtocolVersion)
    refusal_ = Refusal::kMalformed;
  else if (!equal_in_constant_time(expected, get_array<Digest>(from + 8)))
    refusal_ = Refusal::kKey;
  step_ = refusal_ == Refusal::kNone ? Step::kAdmitted : Step::kRefused;
}

std::array<uint8_t, kWelcomeSize> welcome(const NetworkKey& key, const Digest& transcript,
                                          const ProcessId& welcomer, Refusal refusal) {
  std::array<uint8_t, kWelcomeSize> bytes{};
  uint8_t* to = bytes.data();
  begin(to, Magic::kWelcome);
  put32(to + 8, static_cast<uint32_t>(refusal));
  put(to + 16, welcomer);
  put(to + kWelcomeProof,
      hmac_sha256(key, {label(kWelcomes), transcript, std::span<const uint8_t>(bytes).first(kWelcomeProof)}));
  return bytes;
}

size_t InitiatorHandshake::wanted() const {
  switch (step_) {
    case Step::kChallenge:
      return kChallengeSize;
    case Step::kWelcome:
      return kWelcomeSize;
    default:
      return 0;
  }
}

void InitiatorHandshake::refuse(Refusal refusal) {
  refusal_ = refusal;
  step_ = Step::kRefused;
}

void InitiatorHandshake::challenge_arrived(std::span<const uint8_t, kChallengeSize> bytes) {
  if (step_ != Step::kChallenge) return;
  const uint8_t* from = bytes.data();
  their_version_ = get32(from + 4);
  if (get32(from) != static_cast<uint32_t>(Magic::kChallenge)) return refuse(Refusal::kMalformed);
  if (their_version_ != kProtocolVersion) return refuse(Refusal::kVersion);
  if (const Refusal refusal = travelling(get32(from + 8)); refusal != Refusal::kNone) return refuse(refusal);
  if (!all_zero(from + 12, 4)) return refuse(Refusal::kMalformed);
  transcript_ = transcript_of(hello_bytes_, bytes);
  begin(proof_.data(), Magic::kProof);
  const Digest expected = hmac_sha256(key_, {label(kCalled), transcript_});
  if (!equal_in_constant_time(expected, get_array<Digest>(from + kChallengeProof)))
    return refuse(Refusal::kKey);
  // Our own hello has been relayed to us.
  if (get64(from + 16) == hello_.initiator.node) return refuse(Refusal::kSelf);
  put(proof_.data() + 8, hmac_sha256(key_, {label(kCaller), transcript_}));
  step_ = Step::kWelcome;
}

void InitiatorHandshake::welcome_arrived(std::span<const uint8_t, kWelcomeSize> bytes) {
  if (step_ != Step::kWelcome) return;
  const uint8_t* from = bytes.data();
  const ProcessId welcomer = get_process(from + 16);
  const Refusal refusal = travelling(get32(from + 8));
  const auto expected = welcome(key_, transcript_, welcomer, static_cast<Refusal>(get32(from + 8)));
  if (get32(from) != static_cast<uint32_t>(Magic::kWelcome) || get32(from + 4) != kProtocolVersion ||
      !all_zero(from + 12, 4))
    return refuse(Refusal::kMalformed);
  if (!equal_in_constant_time(get_array<Digest>(expected.data() + kWelcomeProof),
                              get_array<Digest>(from + kWelcomeProof)))
    return refuse(Refusal::kKey);
  if (refusal != Refusal::kNone) return refuse(refusal);
  if (!welcomer.somebody() || welcomer.node == hello_.initiator.node) return refuse(Refusal::kMalformed);
  welcomer_ = welcomer;
  step_ = Step::kDone;
}

}  // namespace verbena::wire
