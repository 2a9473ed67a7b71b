// SPDX-License-Identifier: BSD-2-Clause
//
// Function, file and line of return addresses, from addr2line(1), as the sanitizers do. Without that program
// a frame keeps the name that the dynamic linker knows.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tool/check_findings.h"

namespace verbena::tool {

class Symbolizer {
 public:
  // Replaces each frame by what it stands for: functions that were inlined become frames of their own.
  void resolve(CheckFinding& finding);

 private:
  using Place = std::pair<std::string, uint64_t>;

  void look_up(const std::string& module, const std::vector<uint64_t>& offsets);

  std::map<Place, std::vector<CheckFrame>> known_;
};

}  // namespace verbena::tool
