// SPDX-License-Identifier: BSD-2-Clause
#include "random/program.h"

#include <random>

namespace conformance::random {
namespace {

// std::mt19937_64 is the same everywhere; the standard's distributions are not.
class Dice {
 public:
  explicit Dice(uint64_t seed) : engine_(seed) {}
  uint32_t below(uint32_t end) { return static_cast<uint32_t>(engine_() % end); }
  bool one_in(uint32_t count) { return below(count) == 0; }

  // Short ones, those around powers of two (and so around every path MTU), and any.
  uint32_t length() {
    constexpr uint32_t most = 4097;
    if (one_in(3)) return 1 + below(16);
    if (one_in(2)) return std::min(most, std::max(1u, (64u << below(7)) + below(3) - 1));
    return 1 + below(most);
  }
  uint32_t offset(uint32_t length) { return below(buffer_size - length + 1); }

 private:
  std::mt19937_64 engine_;
};

constexpr struct {
  Kind kind;
  uint32_t weight;
} weights[] = {{Kind::receive, 24},    {Kind::send, 18},        {Kind::write, 18},     {Kind::read, 12},
               {Kind::fetch_add, 5},   {Kind::compare_swap, 5}, {Kind::add_region, 5}, {Kind::add_window, 3},
               {Kind::drop_region, 2}, {Kind::drain, 5},        {Kind::recover, 3}};

Kind kind(Dice& dice) {
  uint32_t all = 0;
  for (const auto& one : weights) all += one.weight;
  uint32_t at = dice.below(all);
  for (const auto& one : weights) {
    if (at < one.weight) return one.kind;
    at -= one.weight;
  }
  return Kind::drain;
}

Step step(Dice& dice, uint32_t pairs) {
  Step out;
  out.kind = kind(dice);
  out.pair = static_cast<uint8_t>(dice.below(pairs));
  out.from_far = dice.one_in(2);
  out.length = dice.length();
  if (out.kind == Kind::receive && !dice.one_in(8)) out.length = 4096 + grh_size;  // most messages fit
  out.local = dice.offset(out.length);
  out.remote = dice.offset(out.length);
  out.key = static_cast<uint8_t>(dice.one_in(2) ? 0 : dice.below(6));
  out.has_imm = dice.one_in(3);
  out.is_inline = dice.one_in(4);
  out.is_signaled = !dice.one_in(3);
  for (const unsigned right : {IBV_ACCESS_REMOTE_WRITE, IBV_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_ATOMIC})
    if (!dice.one_in(3)) out.access |= right;
  return out;
}

std::string name_of(const Shape& shape) {
  return std::string(shape.type == IBV_QPT_RC   ? "RC"
                     : shape.type == IBV_QPT_UC ? "UC"
                                                : "UD") +
         (shape.has_srq ? ", SRQ" : "") + (shape.shares ? ", the memory of pair 0" : "");
}

std::string rights_of(unsigned access) {
  std::string out;
  if ((access & IBV_ACCESS_REMOTE_WRITE) != 0) out += " remote write";
  if ((access & IBV_ACCESS_REMOTE_READ) != 0) out += " remote read";
  if ((access & IBV_ACCESS_REMOTE_ATOMIC) != 0) out += " remote atomic";
  return out.empty() ? " no remote right" : out;
}

}  // namespace

Program generate(uint64_t seed) {
  Dice dice(seed);
  Program out;
  out.seed = seed;
  const uint32_t pairs = 1 + dice.below(4);
  for (uint32_t i = 0; i < pairs; ++i) {
    constexpr ibv_qp_type types[] = {IBV_QPT_RC, IBV_QPT_RC, IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD};
    Shape shape;
    shape.type = types[dice.below(std::size(types))];
    shape.has_srq = shape.type != IBV_QPT_UC && dice.one_in(3);
    shape.shares = i > 0 && dice.one_in(2);
    out.shapes.push_back(shape);
  }
  const uint32_t steps = 20 + dice.below(80);
  for (uint32_t i = 0; i < steps; ++i) out.steps.push_back(step(dice, pairs));
  return out;
}

std::string text_of(const Program& program, const Step& step) {
  const size_t pair = step.pair % program.shapes.size();
  const std::string here = step.from_far ? "the far end" : "the near end",
                    there = step.from_far ? "near" : "far";
  const auto text = [](uint32_t number) { return std::to_string(number); };
  std::string out = "pair " + std::to_string(pair) + ": " + here + ' ';
  const std::string by_key = " by key " + text(step.key) + " of the " + there + " end";
  switch (step.kind) {
    case Kind::receive:
      return out + "posts a receive of " + text(step.length) + " bytes at " + text(step.local);
    case Kind::send:
      out += "sends " + text(step.length) + " bytes from " + text(step.local);
      break;
    case Kind::write:
      out += "writes " + text(step.length) + " bytes from " + text(step.local) + " to " + text(step.remote) +
             by_key;
      break;
    case Kind::read:
      out += "reads " + text(step.length) + " bytes at " + text(step.remote) + by_key + " to " +
             text(step.local);
      break;
    case Kind::fetch_add:
      out += "fetches and adds at " + text(step.remote / 8 * 8) + by_key;
      break;
    case Kind::compare_swap:
      out += "compares and swaps at " + text(step.remote / 8 * 8) + by_key;
      break;
    case Kind::add_region:
    case Kind::add_window:
      return "pair " + std::to_string(pair) + ": the " + there + " end " +
             (step.kind == Kind::add_region ? "registers " : "binds a window to ") + text(step.length) +
             " bytes at " + text(step.remote) + ',' + rights_of(step.access);
    case Kind::drop_region:
      return "pair " + std::to_string(pair) + ": the " + there + " end deregisters key " + text(step.key);
    case Kind::drain:
      return "all that is outstanding completes";
    case Kind::recover:
      return "pair " + std::to_string(pair) + ": both ends to RESET, and connected again";
  }
  if (step.has_imm && (step.kind == Kind::send || step.kind == Kind::write)) out += ", with immediate data";
  if (step.is_inline && (step.kind == Kind::send || step.kind == Kind::write)) out += ", inline if it fits";
  return out + (step.is_signaled ? "" : ", unsignaled");
}

std::string text_of(const Program& program) {
  std::string out;
  for (size_t i = 0; i < program.shapes.size(); ++i)
    out += "pair " + std::to_string(i) + ": " + name_of(program.shapes[i]) + '\n';
  for (const Step& step : program.steps) out += "  " + text_of(program, step) + '\n';
  return out;
}

}  // namespace conformance::random
