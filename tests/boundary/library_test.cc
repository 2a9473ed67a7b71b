// SPDX-License-Identifier: BSD-2-Clause
//
// What the library brings into a process: hooks of libc's functions, the functions of the seam, and
// nothing else.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <sstream>

#include "run.h"

namespace verbena::testing {
namespace {

TEST(Library, ExportsHooksAndTheSeamOnly) {
  const Outcome symbols = run("nm -D --defined-only " VERBENA_PRELOAD " | awk '{ print $NF }'");
  ASSERT_EQ(symbols.status, 0) << symbols.output;
  void* libc = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
  ASSERT_NE(libc, nullptr);
  std::istringstream names(symbols.output);
  int count = 0;
  for (std::string name; names >> name; ++count) {
    const bool seam = name == "verbena_boundary_claim" || name == "verbena_boundary_release" ||
                      name == "verbena_boundary_find" || name == "verbena_boundary_watch" ||
                      name == "verbena_boundary_was_shared" || name == "verbena_boundary_watch_memory" ||
                      name == "verbena_boundary_has_advised";
    EXPECT_TRUE(seam || dlsym(libc, name.c_str()) != nullptr) << name;
  }
  EXPECT_GT(count, 50);
}

TEST(Library, NeedsLibcOnly) {
  const Outcome needed =
      run("readelf -d " VERBENA_PRELOAD " | grep NEEDED | grep -vE 'libc\\.so|libdl\\.so'");
  EXPECT_EQ(needed.output, "");
}

}  // namespace
}  // namespace verbena::testing
