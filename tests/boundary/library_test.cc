// SPDX-License-Identifier: BSD-2-Clause
//
// What the library brings into a process: hooks of libc's functions, the functions of the seam, and
// nothing else.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/shm.h>

#include <sstream>
#include <string>
#include <utility>

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
    if (name.starts_with("GLIBC_")) continue;  // the version itself
    name = name.substr(0, name.find('@'));
    const bool seam = name == "verbena_boundary_claim" || name == "verbena_boundary_release" ||
                      name == "verbena_boundary_find" || name == "verbena_boundary_watch" ||
                      name == "verbena_boundary_was_shared" || name == "verbena_boundary_watch_memory" ||
                      name == "verbena_boundary_has_advised";
    EXPECT_TRUE(seam || dlsym(libc, name.c_str()) != nullptr) << name;
  }
  EXPECT_GT(count, 50);
}

std::string library_of(const void* function) {
  Dl_info found{};
  return dladdr(function, &found) != 0 ? found.dli_fname : "";
}

// UCX and its like write a jump over what dlsym finds, which has to be the function that free(3) calls as
// well.
TEST(Library, HooksOfMemoryAreForCallsAndNotForDlsym) {
  const std::pair<const char*, const void*> hooks[] = {{"mmap", reinterpret_cast<const void*>(&mmap)},
                                                       {"mmap64", reinterpret_cast<const void*>(&mmap64)},
                                                       {"munmap", reinterpret_cast<const void*>(&munmap)},
                                                       {"mremap", reinterpret_cast<const void*>(&mremap)},
                                                       {"madvise", reinterpret_cast<const void*>(&madvise)},
                                                       {"shmat", reinterpret_cast<const void*>(&shmat)}};
  for (const auto& [name, called] : hooks) {
    EXPECT_EQ(library_of(called), VERBENA_PRELOAD) << name;
    EXPECT_NE(library_of(dlsym(RTLD_DEFAULT, name)), VERBENA_PRELOAD) << name;
  }
}

TEST(Library, NeedsLibcOnly) {
  const Outcome needed =
      run("readelf -d " VERBENA_PRELOAD " | grep NEEDED | grep -vE 'libc\\.so|libdl\\.so'");
  EXPECT_EQ(needed.output, "");
}

}  // namespace
}  // namespace verbena::testing
