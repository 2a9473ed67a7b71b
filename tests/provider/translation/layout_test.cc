// SPDX-License-Identifier: BSD-2-Clause
#include "rdma_core/layout.h"

#include <gtest/gtest.h>

#include <cstring>

namespace verbena::rdma_core {
namespace {

bool as_35(const char*, const char*) { return false; }
bool as_36(const char* symbol, const char*) { return strcmp(symbol, "ibv_query_qp_data_in_order") == 0; }
bool as_59(const char* symbol, const char* version) {
  return as_36(symbol, version) || strcmp(version, "IBVERBS_1.15") == 0;
}
bool as_64(const char* symbol, const char* version) {
  return as_59(symbol, version) || strcmp(version, "IBVERBS_1.17") == 0;
}

TEST(Layout, BeforeRdmaCore36) { EXPECT_EQ(layout_of(as_35), Layout::kBeforeRdmaCore36); }
TEST(Layout, RdmaCore36) { EXPECT_EQ(layout_of(as_36), Layout::kRdmaCore36); }
TEST(Layout, RdmaCore59IsUnknown) { EXPECT_EQ(layout_of(as_59), Layout::kUnknown); }
TEST(Layout, RdmaCore64IsUnknown) { EXPECT_EQ(layout_of(as_64), Layout::kUnknown); }
TEST(Layout, TheInstalledOneIsKnown) { EXPECT_EQ(installed_layout(), Layout::kRdmaCore36); }
TEST(Layout, EachRefusalIsOneLine) {
  for (Layout layout : {Layout::kBeforeRdmaCore36, Layout::kUnknown}) {
    EXPECT_GT(strlen(refusal(layout)), 0u);
    EXPECT_EQ(strchr(refusal(layout), '\n'), nullptr);
  }
}

}  // namespace
}  // namespace verbena::rdma_core
