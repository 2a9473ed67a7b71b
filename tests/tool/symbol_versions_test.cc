// SPDX-License-Identifier: BSD-2-Clause
#include "tool/symbol_versions.h"

#include <gtest/gtest.h>

namespace verbena::tool {
namespace {

TEST(SymbolVersions, AreReadFromWhatTheLoaderSays) {
  const auto missing = missing_versions(
      "\tlinux-vdso.so.1 (0x00007f7016164000)\n"
      "./app: /lib/libibverbs.so.1: version `IBVERBS_1.14' not found (required by ./app)\n"
      "./app: /lib/librdmacm.so.1: version `RDMACM_1.4' not found (required by /opt/lib/libplugin.so)\n");
  ASSERT_EQ(missing.size(), 2u);
  EXPECT_EQ(missing[0].library, "/lib/libibverbs.so.1");
  EXPECT_EQ(missing[0].version, "IBVERBS_1.14");
  EXPECT_EQ(missing[0].needed_by, "./app");
  EXPECT_EQ(missing[1].version, "RDMACM_1.4");
  EXPECT_EQ(missing[1].needed_by, "/opt/lib/libplugin.so");
}

TEST(SymbolVersions, LinesOfAnotherFormAreLeftOut) {
  EXPECT_TRUE(missing_versions("./app: version `' not found (required by \n: version `x\n").empty());
}

TEST(SymbolVersions, NameTheReleasesAndTheRemedy) {
  const MissingVersion missing{"/lib/libibverbs.so.1", "IBVERBS_1.14", "./app"};
  EXPECT_EQ(
      describe(missing, "IBVERBS_1.13"),
      "needs the symbol version IBVERBS_1.14 (rdma-core 36), and /lib/libibverbs.so.1 has no newer one than "
      "IBVERBS_1.13 (rdma-core 35), so that the loader refuses the program");
  EXPECT_EQ(
      remedy(missing),
      "put the libraries of rdma-core 36 or newer first in LD_LIBRARY_PATH, or build the program on this "
      "machine");
}

TEST(SymbolVersions, OfTheCLibraryHaveAnotherRemedy) {
  EXPECT_EQ(remedy({"/lib/libc.so.6", "GLIBC_2.99", "./app"}),
            "build the program on this machine, or use a build of it for this system");
}

}  // namespace
}  // namespace verbena::tool
