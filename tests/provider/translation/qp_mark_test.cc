// SPDX-License-Identifier: BSD-2-Clause
#include "rdma_core/qp_mark.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>

#include "rdma_core/structures.h"

namespace verbena::rdma_core {
namespace {

// A libibverbs whose struct ibv_qp_ex is `kBeyond` bytes longer than the oldest one.
template <size_t kBeyond>
ibv_qp_ex* to_extended(ibv_qp* qp) {
  uint32_t mask;
  memcpy(&mask, reinterpret_cast<char*>(qp) + offsetof(ibv_qp_ex, wr_abort) + sizeof(void*) + kBeyond,
         sizeof mask);
  return (mask & PABI_QP_EX) != 0 ? reinterpret_cast<ibv_qp_ex*>(qp) : nullptr;
}

TEST(QpMark, OfAnExtendedQpIsFoundWhereverItIs) {
  EXPECT_EQ(qp_mark_offset(to_extended<16>) - qp_mark_offset(to_extended<0>), 16u);
}

TEST(QpMark, ALibraryWithoutExtendedQpsHasNone) {
  EXPECT_EQ(qp_mark_offset([](ibv_qp*) -> ibv_qp_ex* { return nullptr; }), 0u);
}

TEST(QpMark, OfTheInstalledLibraryIsWhereItsHeadersSay) {
  EXPECT_EQ(installed_qp_mark_offset(), sizeof(ibv_qp_ex));
}

}  // namespace
}  // namespace verbena::rdma_core
