// SPDX-License-Identifier: BSD-2-Clause
//
// Random programs (--random): pairs of connected queue pairs, and what is done with them, step by step. A
// program is data. Each part of one is a program, too: what a step refers to and does not find, it leaves
// undone.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <string>
#include <vector>

namespace conformance::random {

enum class Kind : uint8_t {
  receive,       // posts a receive request
  send,          // of `length` bytes from `local`
  write,         // to `remote` of the other end
  read,          // from there
  fetch_add,     // `remote` is rounded to eight bytes
  compare_swap,  //
  add_region,    // the other end registers `length` bytes at `remote`
  add_window,    // the other end binds a window to them
  drop_region,   // the other end deregisters region `key`
  drain,         // everything that is expected must be there now
  recover,       // of a pair that is in ERR: RESET, and connected again
};

struct Shape {
  ibv_qp_type type = IBV_QPT_RC;  // RC, UC or UD
  bool has_srq = false;
  bool shares = false;  // PD, memory and regions with the first pair
};

struct Step {
  Kind kind = Kind::drain;
  uint8_t pair = 0;                            // modulo the number of pairs
  bool from_far = false;                       // the end that posts; near otherwise
  uint32_t local = 0, remote = 0, length = 1;  // offsets in the buffers
  uint8_t key = 0;  // of the other end: 0 its whole buffer, then its regions and windows in their order
  bool has_imm = false, is_inline = false, is_signaled = true;
  unsigned access = 0;  // of add_region and add_window
};

struct Program {
  uint64_t seed = 0;
  std::vector<Shape> shapes;
  std::vector<Step> steps;
};

constexpr uint32_t buffer_size = 8192;
constexpr uint32_t grh_size = 40;  // before a datagram in its receive buffer: ibv_post_recv(3)

Program generate(uint64_t seed);

// "pair 1 (UC): the far end sends 12 bytes from 64 with immediate data"
std::string text_of(const Program& program, const Step& step);
std::string text_of(const Program& program);

}  // namespace conformance::random
