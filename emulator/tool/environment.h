// SPDX-License-Identifier: BSD-2-Clause
//
// The environment in which a program sees the node's devices.
#pragma once

#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

#include "fabric/installation.h"
#include "tool/command.h"

namespace verbena::tool {

using Lookup = std::string (*)(const std::string& name);  // a variable's value; "" if it is not set

struct Variable {
  std::string name;
  std::string value;
};

// The variables to set. Their present contents are kept:
//   VERBENA_NODE   the node
//   VERBENA_NODE_OPTIONS  how to make it again (wire/node_recipe.h)
//   LD_PRELOAD     our library goes last, so that the others keep their places (a sanitizer's runtime must be
//                  first). In a build with a sanitizer the sanitizer's runtime goes first.
//   RDMAV_DRIVERS  our driver goes last. The contents of IBV_DRIVERS are taken over, since libibverbs reads
//                  only one of the two.
//   ASAN_OPTIONS   verify_asan_link_order=0: gcc's ASan refuses to start behind any preloaded library
//   LSAN_OPTIONS   unless it is set: the suppressions of the leaks that librdmacm and libibverbs have
// An entry of an earlier (or another) Verbena is replaced, so that the command may be nested.
std::vector<Variable> program_environment(const Installation& installation, const std::string& node,
                                          const std::string& recipe, const std::string& sanitizer_runtimes,
                                          Lookup current);

// The libraries that this build's sanitizer needs preloaded first, separated by ':'. "" in a plain build.
std::string sanitizer_runtimes(const Installation& installation);

// The file with this place, seen from the folder of the command. "": there is none.
std::string file_beside_command(const char* relative);

std::string current_environment(const std::string& name);

// Finds the installation, makes the node, and stores the environment for it in *out. The node stays while the
// process `holder` lives. 0, or kFailed with *problem.
int prepare(const NodeOptions& options, pid_t holder, std::vector<Variable>* out, std::string* problem);

// `value`, any string, as one word for a POSIX shell.
std::string shell_quoted(const std::string& value);

}  // namespace verbena::tool
