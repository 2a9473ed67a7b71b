// SPDX-License-Identifier: BSD-2-Clause
//
// The findings of `verbena check`, as the programs have written them (findings/variables.h).
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "findings/rules.h"

namespace verbena::tool {

struct CheckFrame {
  std::string module;
  uint64_t offset = 0;   // of the return address, in the module
  std::string function;  // "": unknown
  std::string file;      // "": unknown
  unsigned line = 0;
};

struct CheckCall {
  std::string what;  // "posted here"
  std::vector<CheckFrame> stack;
};

struct CheckFinding {
  const findings::Rule* rule = nullptr;
  int pid = 0;  // of the first process that has reported it
  std::string program;
  std::string what;
  std::vector<CheckCall> calls;
  unsigned objects = 1;    // of leaks: with this stack, in that process
  unsigned processes = 1;  // that have reported the same
};

class FindingReader {
 public:
  // Takes what the file has more than before, of which the last line may be unfinished. Lines that are no
  // findings are skipped.
  void take(std::string_view bytes);

  // New findings since the last call, each reported once whatever the number of processes. Leaks come with
  // the call after end().
  std::vector<CheckFinding> collect();

  // The programs have ended: leaks that were not retracted count now.
  void end();

  // Has a process opened a device, with the checker in it?
  bool saw_device() const { return saw_device_; }

 private:
  void take_line(const std::string& line);
  void add(CheckFinding finding);

  std::string rest_;
  std::vector<CheckFinding> fresh_;
  std::map<std::pair<int, uint64_t>, CheckFinding> leaks_;  // by process and number
  std::set<std::string> seen_;
  bool saw_device_ = false;
};

// The same rule broken at the same place: equal for equal findings of different processes.
std::string identity_of(const CheckFinding& finding);

}  // namespace verbena::tool
