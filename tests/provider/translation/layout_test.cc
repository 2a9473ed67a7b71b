// SPDX-License-Identifier: BSD-2-Clause
#include "rdma_core/layout.h"

#include <gtest/gtest.h>

#include <cstring>

#include "rdma_core/pabi34_rdma_core36.h"

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

// A libibverbs whose struct ibv_qp_ex is `kBeyond` bytes longer than the oldest one.
template <size_t kBeyond>
ibv_qp_ex* to_extended(ibv_qp* qp) {
  uint32_t mask;
  memcpy(&mask, reinterpret_cast<char*>(qp) + offsetof(ibv_qp_ex, wr_abort) + sizeof(void*) + kBeyond,
         sizeof mask);
  return (mask & PABI34_QP_EX) != 0 ? reinterpret_cast<ibv_qp_ex*>(qp) : nullptr;
}
TEST(Layout, TheMarkOfAnExtendedQpIsFoundWhereverItIs) {
  EXPECT_EQ(qp_mask_offset(to_extended<16>) - qp_mask_offset(to_extended<0>), 16u);
}
TEST(Layout, ALibraryWithoutExtendedQpsHasNoMark) {
  EXPECT_EQ(qp_mask_offset([](ibv_qp*) -> ibv_qp_ex* { return nullptr; }), 0u);
}
TEST(Layout, TheInstalledLibrarysMarkIsWhereItsHeadersSay) {
  EXPECT_EQ(installed_qp_mask_offset(), offsetof(pabi34_qp, comp_mask));
}

TEST(Layout, EachRefusalIsOneLine) {
  for (Layout layout : {Layout::kBeforeRdmaCore36, Layout::kUnknown}) {
    EXPECT_GT(strlen(refusal(layout)), 0u);
    EXPECT_EQ(strchr(refusal(layout), '\n'), nullptr);
  }
}

}  // namespace
}  // namespace verbena::rdma_core
