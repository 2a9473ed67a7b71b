// SPDX-License-Identifier: BSD-2-Clause
//
// What a program needs in its environment to see the node's devices.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "fabric/installation.h"
#include "tool/command.h"

namespace verbena::tool {

using Lookup = std::string (*)(const std::string& name);  // a variable's value; "" when it is not set

struct Variable {
  std::string name;
  std::string value;
};

// The variables to set, with what stands in them now kept:
//  VERBENA_NODE  the node.
//  LD_PRELOAD    ours goes last, so that what was there keeps its place (a sanitizer's runtime insists on the
//                first). In a build with a sanitizer that sanitizer's runtime goes first.
//  RDMAV_DRIVERS ours goes last; IBV_DRIVERS is taken over, as libibverbs reads only one of the two.
//  ASAN_OPTIONS  verify_asan_link_order=0: gcc's ASan refuses to start behind any preloaded library.
// An entry of an earlier (or another) Verbena is replaced, so that the command may be nested.
std::vector<Variable> program_environment(const Installation& installation, const std::string& node,
                                          const std::string& sanitizer_runtimes, Lookup current);

// What this build's sanitizer wants preloaded before everything else, ':' between; "" in a plain build.
std::string sanitizer_runtimes(const Installation& installation);

std::string current_environment(const std::string& name);

// Finds the installation, makes the node and answers the environment for it. 0, or kFailed with *problem.
int prepare(const NodeOptions& options, std::vector<Variable>* out, std::string* problem);

// `value` as one word for a POSIX shell, whatever it holds.
std::string shell_quoted(const std::string& value);

}  // namespace verbena::tool
