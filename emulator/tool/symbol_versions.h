// SPDX-License-Identifier: BSD-2-Clause
//
// Symbol versions of rdma-core's libraries: a program that was built with a newer rdma-core may need one that
// the installed library does not have. The loader then refuses to start the program.
#pragma once

#include <string>
#include <vector>

namespace verbena::tool {

struct MissingVersion {
  std::string library;    // the path of the library that does not have it
  std::string version;    // "IBVERBS_1.14"
  std::string needed_by;  // the path of the program, or of a library that it loads
};

// From what the loader writes to stderr, also when it only lists libraries: lines of the form "PROGRAM:
// LIBRARY: version `VERSION' not found (required by FILE)" (glibc, elf/dl-version.c). Lines of another form
// are left out.
std::vector<MissingVersion> missing_versions(const std::string& said_by_loader);

// The first release of rdma-core whose libraries have `version` (libibverbs.map.in, librdmacm.map). 0: not
// known.
int release_with(const std::string& version);

// What is to be said about it. `newest`: the newest version of the same kind that the library has; "": none.
std::string describe(const MissingVersion& missing, const std::string& newest);

// What to do about it.
std::string remedy(const MissingVersion& missing);

}  // namespace verbena::tool
