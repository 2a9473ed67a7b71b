// SPDX-License-Identifier: BSD-2-Clause
#include "faults/plan.h"

#include <inttypes.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>

#include "faults/draw.h"

namespace verbena::faults {
namespace {

constexpr std::array<const char*, kFaults> kWords = {
    "lose", "delay",    "rnr",     "fail", "die",         "refuse",        "hold",
    "wake", "lose_ack", "shuffle", "late", "lose_packet", "repeat_packet", "delay_packet"};
constexpr std::array<const char*, 3> kPacketWords = {"request", "response", "mad"};

// Of one rule, separated by spaces, in this order.
constexpr int kFields = 12;

bool parse_number(std::string_view word, uint64_t* out) {
  const auto [rest, error] = std::from_chars(word.data(), word.data() + word.size(), *out);
  return error == std::errc{} && rest == word.data() + word.size();
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(separator, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

// Probabilities are kept in millionths of millionths: exact enough, and the same in every locale.
constexpr double kParts = 1e12;

bool parse_rule(std::string_view text, Rule* out) {
  const auto words = split(text, ' ');
  if (words.size() != kFields || !parse_fault(words[0], &out->what)) return false;
  uint64_t numbers[kFields];
  for (size_t i = 1; i < kFields; ++i)
    if (!parse_number(words[i], &numbers[i])) return false;
  if (numbers[1] > UINT32_MAX || numbers[2] > UINT32_MAX || numbers[11] > UINT32_MAX) return false;
  out->object = static_cast<uint32_t>(numbers[1]);
  out->opcode = static_cast<uint32_t>(numbers[2]);
  out->nth = numbers[3];
  out->every = numbers[4];
  out->probability = static_cast<double>(numbers[5]) / kParts;
  out->times = numbers[6];
  out->from_ns = numbers[7];
  out->until_ns = numbers[8];
  out->least_ns = numbers[9];
  out->most_ns = numbers[10];
  out->vendor_err = static_cast<uint32_t>(numbers[11]);
  return true;
}

std::string rule_text(const Rule& rule) {
  char text[320];
  snprintf(text, sizeof text,
           "%s %u %u %" PRIu64 " %" PRIu64 " %.0f %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64
           " %u",
           word_of(rule.what), rule.object, rule.opcode, rule.nth, rule.every, rule.probability * kParts,
           rule.times, rule.from_ns, rule.until_ns, rule.least_ns, rule.most_ns, rule.vendor_err);
  return text;
}

}  // namespace

const char* word_of(Fault fault) { return kWords[static_cast<size_t>(fault) % kFaults]; }

const char* word_of(PacketKind kind) { return kPacketWords[static_cast<size_t>(kind) % kPacketWords.size()]; }

bool parse_packet_kind(std::string_view word, PacketKind* out) {
  const auto found = std::find(kPacketWords.begin(), kPacketWords.end(), word);
  if (found == kPacketWords.end()) return false;
  *out = static_cast<PacketKind>(found - kPacketWords.begin());
  return true;
}

bool parse_fault(std::string_view word, Fault* out) {
  const auto found = std::find(kWords.begin(), kWords.end(), word);
  if (found == kWords.end()) return false;
  *out = static_cast<Fault>(found - kWords.begin());
  return true;
}

std::string to_text(const Plan& plan) {
  char head[128];
  snprintf(head, sizeof head, "%" PRIu64 " %d %" PRIu64 " %" PRIu64, plan.seed, plan.only_legal ? 1 : 0,
           plan.link.bits_per_second, plan.link.latency_ns);
  std::string text = head;
  for (const Rule& rule : plan.rules) text += ";" + rule_text(rule);
  return text;
}

bool parse_plan(const std::string& text, Plan* out) {
  *out = {};
  const auto parts = split(text, ';');
  const auto head = split(parts[0], ' ');
  uint64_t only_legal = 0;
  if (head.size() != 4 || !parse_number(head[0], &out->seed) || !parse_number(head[1], &only_legal) ||
      !parse_number(head[2], &out->link.bits_per_second) || !parse_number(head[3], &out->link.latency_ns))
    return false;
  out->only_legal = only_legal != 0;
  for (size_t i = 1; i < parts.size(); ++i) {
    Rule rule;
    if (!parse_rule(parts[i], &rule)) return false;
    out->rules.push_back(rule);
  }
  return true;
}

// UC and UD messages may be lost by any network, but few programs count on it: they are spared. So is what
// ends a process or a queue pair.
Plan chaos(uint64_t seed) {
  Plan plan;
  plan.seed = seed;
  plan.only_legal = true;
  const auto amount = [seed](uint64_t what) { return fraction(draw({seed, what})); };
  const auto add = [&plan](Fault what, double probability, uint64_t least_ns, uint64_t most_ns) {
    Rule rule;
    rule.what = what;
    rule.probability = probability;
    rule.least_ns = least_ns;
    rule.most_ns = most_ns;
    plan.rules.push_back(rule);
  };
  // Each of them in about three of four seeds.
  if (amount(1) < 0.75)
    add(Fault::kDelay, 0.1 * amount(2), 0, 1'000 + static_cast<uint64_t>(200'000 * amount(3)));
  if (amount(4) < 0.75) add(Fault::kLose, 0.005 * amount(5), 0, 0);
  if (amount(6) < 0.75) add(Fault::kRnr, 0.01 * amount(7), 0, 0);
  if (amount(8) < 0.75)
    add(Fault::kHold, 0.05 * amount(9), 0, 1'000 + static_cast<uint64_t>(100'000 * amount(10)));
  if (amount(15) < 0.75) add(Fault::kLoseAck, 0.001 * amount(16), 0, 0);
  if (amount(17) < 0.75) add(Fault::kShuffle, amount(18), 0, 0);
  if (amount(19) < 0.75)
    add(Fault::kLate, 0.1 * amount(20), 0, 1'000 + static_cast<uint64_t>(100'000 * amount(21)));
  if (amount(13) < 0.25) plan.link.latency_ns = static_cast<uint64_t>(5'000 * amount(14));
  return plan;
}

}  // namespace verbena::faults
