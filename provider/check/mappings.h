// SPDX-License-Identifier: BSD-2-Clause
#pragma once

#include <cstdint>
#include <vector>

namespace verbena::check {

// A mapping of this process: proc(5), /proc/PID/maps.
struct Mapping {
  uintptr_t begin;
  uintptr_t end;
  char rights[5];  // "rw-p"

  bool is_shared() const { return rights[3] == 's'; }
  bool is_plain_data() const { return rights[0] == 'r' && rights[1] == 'w' && rights[2] == '-'; }
};

// All of them, in order. Empty: they cannot be read.
std::vector<Mapping> read_mappings();

}  // namespace verbena::check
