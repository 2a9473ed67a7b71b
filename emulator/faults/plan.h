// SPDX-License-Identifier: BSD-2-Clause
//
// Faults on purpose: what networks and adapters do to a program, as a list of rules. `verbena run --faults`
// makes the plan from a file, `--chaos` from a seed, `verbena check --like` from what a family of adapters
// may do; the programs of the run read it from their environment.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace verbena::faults {

inline constexpr const char* kVariable = "VERBENA_FAULTS";  // the plan, as to_text() writes it

enum class Fault : uint8_t {
  kLose,     // a request is lost: sent again after the timeout (RC, XRC), gone (UC, UD)
  kDelay,    // a request starts later
  kRnr,      // the peer answers a request with RNR, though it has a receive request
  kFail,     // a request fails with a vendor_err
  kDie,      // the process ends by SIGKILL
  kRefuse,   // a verb that makes an object fails with ENOMEM
  kHold,     // ibv_poll_cq finds nothing for a time; only CQs without a completion channel
  kWake,     // arming a CQ raises an event, with or without a completion
  kLoseAck,  // a request was carried out, and its acknowledgement is lost
  kShuffle,  // the bytes of a request are placed in pieces, in any order; within the node
  kLate,     // ibv_get_cq_event returns later
  // Of RoCE v2 packets that leave the process:
  kLosePacket,
  kRepeatPacket,  // it leaves twice
  kDelayPacket,   // it leaves later: others overtake it
};
inline constexpr size_t kFaults = 14;
const char* word_of(Fault fault);  // "lose", ...
bool parse_fault(std::string_view word, Fault* out);

inline constexpr uint32_t kAny = UINT32_MAX;

// What packets are of; stands in the place of Rule::opcode. kAny: requests and responses.
enum class PacketKind : uint32_t {
  kRequest,
  kResponse,  // acknowledgements, and the responses to READs and atomics
  kMad,       // of the connection managers
};
const char* word_of(PacketKind kind);  // "request", ...
bool parse_packet_kind(std::string_view word, PacketKind* out);

// When it happens: to each event that all of its conditions let through.
struct Rule {
  Fault what = Fault::kDelay;
  uint32_t object =
      kAny;  // index of the queue pair or CQ in its process, from 0; kRefuse: a kind, of enum Counted
  uint32_t opcode = kAny;       // enum ibv_wr_opcode, of the request; of a packet: enum PacketKind
  uint64_t nth = 0;             // only the n-th event that the conditions above let through; 0: each
  uint64_t every = 0;           // only each n-th; 0: each
  double probability = 1;       // of what is left
  uint64_t times = UINT64_MAX;  // at most
  uint64_t from_ns = 0;         // time since the process opened its first device
  uint64_t until_ns = UINT64_MAX;
  uint64_t least_ns = 0;  // kDelay, kHold, kLate, kDelayPacket: how long, drawn evenly
  uint64_t most_ns = 0;
  uint32_t vendor_err = 0;  // kFail: enum class VendorError

  bool operator==(const Rule&) const = default;
};

// The model of a link: each queue pair's requests take the time of their bytes, one after the other, and
// arrive after the latency.
struct Link {
  uint64_t bits_per_second = 0;  // 0: any number
  uint64_t latency_ns = 0;
  bool operator==(const Link&) const = default;
};

struct Plan {
  uint64_t seed = 0;
  // What it does must be legal for an adapter: a loss is repeated until it arrives, and RNR too, as long as
  // the queue pair's own limits allow.
  bool only_legal = false;
  Link link;
  std::vector<Rule> rules;
  bool operator==(const Plan&) const = default;
};

// One line, for an environment variable.
std::string to_text(const Plan& plan);
// false: `text` is no such line.
bool parse_plan(const std::string& text, Plan* out);

// Only what adapters and networks may do to a correct program, as much of it as the seed says.
Plan chaos(uint64_t seed);

}  // namespace verbena::faults
