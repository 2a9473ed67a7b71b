// SPDX-License-Identifier: BSD-2-Clause
//
// Checks the values given to ibv_modify_qp(3) against the device, the port and the QP. Pure functions. Which
// attributes belong to which transition is checked before (qp_state_table.h).
//
// Sources: ibv_modify_qp(3), ibv_create_ah(3); the kernel's uverbs_cmd.c modify_qp(), verbs.c
// _ib_modify_qp(), rxe_qp.c rxe_qp_chk_attr(), mlx5 qp.c mlx5_ib_modify_qp().
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstdint>

namespace verbena {

struct AttributeLimits {
  uint8_t ports = 1;                             // ports are 1 .. ports
  uint8_t link_layer = IBV_LINK_LAYER_ETHERNET;  // of the port: IBV_LINK_LAYER_*
  uint32_t active_mtu = IBV_MTU_4096;            // enum ibv_mtu, of the port; any number from a damaged node
  uint16_t pkeys = 1;                            // entries of the port's P_Key table
  std::array<int, 2> gids{1, 1};                 // entries of the GID tables of port 1 and 2
  uint8_t max_rd_atomic = 16;                    // as initiator: ibv_device_attr::max_qp_init_rd_atom
  uint8_t max_dest_rd_atomic = 16;               // as responder: ibv_device_attr::max_qp_rd_atom
  uint32_t rate_limit_min = 0;                   // kbps; ibv_packet_pacing_caps
  uint32_t rate_limit_max = 0;                   // 0: the device has no pacing
  bool path_migration = false;                   // IBV_DEVICE_AUTO_PATH_MIG
  bool privileged_qkey = false;                  // may set a Q_Key with the top bit (CAP_NET_RAW)

  // The present state of the QP.
  ibv_qp_state current_state = IBV_QPS_RESET;
  uint8_t port = 0;          // set on the way to INIT; 0 before
  bool has_alternate = false;  // an alternate path was given
  bool sq_draining = false;  // in SQD, and requests are still under way
};

// Returns 0, or the errno of the refusal:
//   EINVAL      a value is out of range
//   EOPNOTSUPP  a rate, and the device has no pacing
//   EPERM       a Q_Key with the top bit, without the privilege
// After a refusal *why (if `why` is not null) names the rule in one line, a constant string, and *value (if
// `value` is not null) is the program's value. After success *why is null. Attributes outside `mask` are not
// read. PSNs are never refused: bits above 24 are dropped, as in the kernel (psn.h, psn_of()).
int check_attributes(const AttributeLimits& limits, ibv_qp_type type, const ibv_qp_attr& attr, int mask,
                     const char** why, uint64_t* value = nullptr) noexcept;

// The same for an address vector alone, as for ibv_create_ah(3) and ah_attr. `connected`: true for ah_attr of
// RC, UC and XRC, which cannot be a multicast address. Returns 0 or EINVAL.
int check_address(const AttributeLimits& limits, const ibv_ah_attr& ah, bool connected,
                  const char** why, uint64_t* value = nullptr) noexcept;

}  // namespace verbena
