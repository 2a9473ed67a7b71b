// SPDX-License-Identifier: BSD-2-Clause
//
// What families of adapters do not have, for `verbena check --like`: what works on this device and would be refused
// there, or need not happen there.
#pragma once

#include <cstdint>
#include <string_view>

namespace verbena::findings {

enum Ability : uint32_t {
  kRc = 1u << 0,
  kUc = 1u << 1,
  kXrc = 1u << 2,
  kRawPacket = 1u << 3,
  kSharedReceive = 1u << 4,
  kWindows = 1u << 5,
  kDeviceMemory = 1u << 6,
  kAtomics = 1u << 7,
};

struct Family {
  std::string_view id;
  uint32_t abilities;
  uint32_t max_wr;          // of a queue; this and the other limits: 0: not known, or set by the firmware
  uint32_t max_send_sge;
  uint32_t max_recv_sge;
  uint32_t max_inline;      // bytes
  uint32_t max_cqe;
  bool in_order;            // bytes of a message reach memory in their order (ibv_query_qp_data_in_order(3))
  std::string_view source;
};

inline constexpr Family kFamilies[] = {
    {"mlx5", kRc | kUc | kXrc | kRawPacket | kSharedReceive | kWindows | kDeviceMemory | kAtomics, 32768, 30, 30, 0,
     4194303, false,  // unless the firmware says otherwise: mlx5_query_qp_data_in_order()
     "ibv_devinfo -v of ConnectX-5; rdma-core v44 providers/mlx5/verbs.c"},
    {"irdma", kRc | kWindows, 4063, 13, 13, 101, 0, false,  // no such operation: libibverbs/dummy_ops.c answers 0
     "Linux 6.1 drivers/infiniband/hw/irdma: user.h, ctrl.c, icrdma_hw.h, irdma_validate_qp_attrs()"},
    {"efa", 0, 0, 2, 0, 32, 0, false,  // v64 efa_query_qp_data_in_order(): never the whole message
     "rdma-core v44 providers/efa: efa_io_defs.h, verbs.c; Linux 6.1 drivers/infiniband/hw/efa/efa_verbs.c"},
    {"rxe", kRc | kUc | kSharedReceive | kWindows | kAtomics, 1u << 20, 32, 32, 512, 32767, true,  // packet after packet: rxe_resp.c
     "Linux 6.1 drivers/infiniband/sw/rxe/rxe_param.h"},
};

// nullptr: there is no such family.
constexpr const Family* find_family(std::string_view id) {
  for (const Family& family : kFamilies)
    if (family.id == id) return &family;
  return nullptr;
}

}  // namespace verbena::findings
