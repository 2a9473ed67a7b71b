// SPDX-License-Identifier: BSD-2-Clause
#include "tool/recorded_node.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <bit>
#include <cstring>

#include "fabric/instrument_entry.h"
#include "fabric/node.h"

namespace verbena::tool {

int RecordedNode::open(const NodeOptions& options, std::string* problem) {
  if (prepare(options, getpid(), &environment, problem) != 0) return kFailed;
  for (const Variable& variable : environment)
    if (variable.name == kNodeVariable) path = variable.value;
  const int error = directory.open(directory_path(path).c_str());
  if (error == 0) return 0;
  *problem = "cannot read the node " + path + ": " + std::strerror(error);
  return kFailed;
}

std::string too_many_instruments() {
  return "there are " + std::to_string(kMaxInstruments) + " instruments on this node already";
}

void add_ring_option(CLI::App& command, uint32_t* mib) {
  command.add_option("--ring", *mib, "memory for the records of each process, MiB, a power of two")
      ->type_name("MIB")
      ->check(CLI::Range(1u, 1024u))
      ->capture_default_str();
}

void check_ring_option(const std::string& command, uint32_t mib) {
  if (!std::has_single_bit(mib)) throw UsageError{command + ": --ring: a power of two"};
}

}  // namespace verbena::tool
