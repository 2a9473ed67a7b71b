// SPDX-License-Identifier: BSD-2-Clause
#include "rdma_core/layout.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace verbena::rdma_core {
namespace {

// What a libibverbs exports, as far as it matters: the public symbol versions up to IBVERBS_1.<newest>, and
// one private ABI.
struct Library {
  int abi;
  int newest;
};
Library library;

// The public function by which each version is known, and its version.
constexpr struct {
  int version;
  std::string_view function;
} kFunctions[] = {{8, "ibv_reg_mr_iova2"},   {10, "ibv_import_device"},    {11, "_ibv_query_gid_ex"},
                  {12, "ibv_reg_dmabuf_mr"}, {13, "ibv_import_dm"},        {14, "ibv_query_qp_data_in_order"},
                  {15, "ibv_alloc_dmah"},    {16, "ibv_query_port_speed"}, {17, "ibv_alloc_buf"}};

bool has(const char* symbol, const char* version) {
  const std::string abi = std::to_string(library.abi);
  if (version == "IBVERBS_PRIVATE_" + abi) return symbol == "verbs_register_driver_" + abi;
  constexpr std::string_view kPublic = "IBVERBS_1.";
  if (std::string_view(version).substr(0, kPublic.size()) != kPublic) return false;
  const int number = atoi(version + kPublic.size());
  if (number > library.newest) return false;
  if (std::string_view(symbol) == version) return true;
  for (const auto& each : kFunctions)
    if (each.version == number && each.function == symbol) return true;
  return false;
}

// The release whose layout a library has; 0: refused.
int release_of(int abi, int newest) {
  library = {abi, newest};
  const Layout* layout = layout_of(has);
  return layout != nullptr ? layout->release : 0;
}

// Each release of rdma-core from 28 to 64, by its private ABI and its newest public symbol version
// (libibverbs/libibverbs.map.in of the release).
TEST(Layout, EveryReleaseHasItsOwn) {
  EXPECT_EQ(release_of(25, 8), 28);   // 28, 29
  EXPECT_EQ(release_of(25, 9), 28);   // 30
  EXPECT_EQ(release_of(25, 10), 31);  // 31
  EXPECT_EQ(release_of(25, 11), 31);  // 32
  EXPECT_EQ(release_of(33, 11), 33);
  EXPECT_EQ(release_of(34, 12), 34);
  EXPECT_EQ(release_of(34, 13), 35);
  EXPECT_EQ(release_of(34, 14), 36);  // 36 to 56
  EXPECT_EQ(release_of(57, 14), 57);  // 57, 58
  EXPECT_EQ(release_of(59, 15), 59);  // 59 to 61
  EXPECT_EQ(release_of(59, 16), 62);  // 62, 63
  EXPECT_EQ(release_of(64, 17), 64);
}

TEST(Layout, AnOlderLibraryIsRefusedAsOlder) {
  EXPECT_EQ(release_of(25, 7), 0);
  EXPECT_NE(strstr(refusal(has), "older than rdma-core 28"), nullptr) << refusal(has);
}

TEST(Layout, AnUnknownAbiIsRefusedAsNewer) {
  EXPECT_EQ(release_of(65, 17), 0);
  EXPECT_NE(strstr(refusal(has), "newer than rdma-core 64"), nullptr) << refusal(has);
}

// rdma-core 35, 36 and 62 changed the layout of an ABI without another name. The next one may, too.
TEST(Layout, ANewerVersionOfAKnownAbiIsRefusedAsNewer) {
  EXPECT_EQ(release_of(64, 18), 0);
  EXPECT_NE(strstr(refusal(has), "newer than rdma-core 64"), nullptr) << refusal(has);
}

TEST(Layout, ARefusalIsOneSentenceThatSaysWhatToDo) {
  for (const Library& each : {Library{25, 7}, Library{65, 18}}) {
    library = each;
    const std::string_view said = refusal(has);
    EXPECT_EQ(said.find('\n'), std::string_view::npos);
    EXPECT_NE(said.find("install a newer"), std::string_view::npos) << said;
  }
}

TEST(Layout, TheInstalledOneIsKnown) { EXPECT_NE(installed_layout(), nullptr); }

TEST(Layout, TheInstalledOneHasTheContextWhereTheHeadersHaveIt) {
  EXPECT_EQ(installed_layout()->context_offset, offsetof(verbs_context, context));
}

// ---- the table of operations ----

// Never called: only its address counts.
template <int>
void operation() {}

// A table in which every operation is set: `reg_mr` to mark<1>, the others to mark<0>.
ContextOps all_operations() {
  ContextOps ops;
#define SET(releases, result, name, arguments) ops.name = reinterpret_cast<decltype(ops.name)>(&operation<0>);
  PABI_OPERATIONS(SET)
#undef SET
  ops.reg_mr = reinterpret_cast<decltype(ops.reg_mr)>(&operation<1>);
  return ops;
}

struct Table {
  size_t size;    // operations
  size_t reg_mr;  // its index
};

Table table_of(int abi, int newest) {
  library = {abi, newest};
  Table table = {};
  for (Operation each : operations_of(*layout_of(has), all_operations())) {
    if (each == nullptr) break;
    if (each == &operation<1>) table.reg_mr = table.size;
    ++table.size;
  }
  return table;
}

// The sizes and places in struct verbs_context_ops of libibverbs/driver.h in these releases.
TEST(Layout, TheTableOfEachReleaseHasItsSizeAndOrder) {
  constexpr struct {
    int abi, newest;
    size_t size, reg_mr;
  } kTables[] = {{25, 8, 67, 63},  {25, 10, 73, 66}, {33, 11, 72, 65}, {34, 12, 73, 66}, {34, 13, 75, 67},
                 {34, 14, 76, 68}, {57, 14, 76, 68}, {59, 15, 79, 70}, {59, 16, 81, 72}, {64, 17, 83, 74}};
  for (const auto& wanted : kTables) {
    const Table table = table_of(wanted.abi, wanted.newest);
    EXPECT_EQ(table.size, wanted.size) << "ABI " << wanted.abi << ", IBVERBS_1." << wanted.newest;
    EXPECT_EQ(table.reg_mr, wanted.reg_mr) << "ABI " << wanted.abi << ", IBVERBS_1." << wanted.newest;
  }
}

}  // namespace
}  // namespace verbena::rdma_core
