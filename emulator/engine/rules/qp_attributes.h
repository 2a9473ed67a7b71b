// SPDX-License-Identifier: BSD-2-Clause
//
// Are the values given to ibv_modify_qp(3) ones that this device, this port and this QP can take? A pure
// function; which attributes belong to which transition is qp_state_table.h's business and checked before.
//
// Sources: ibv_modify_qp(3), ibv_create_ah(3); the kernel's uverbs_cmd.c modify_qp(), verbs.c
// _ib_modify_qp(), rxe_qp.c rxe_qp_chk_attr(), mlx5 qp.c mlx5_ib_modify_qp().
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

namespace verbena {

struct AttributeLimits {
  uint8_t ports = 1;                             // ports are 1 .. ports
  uint8_t link_layer = IBV_LINK_LAYER_ETHERNET;  // of the port: IBV_LINK_LAYER_*
  ibv_mtu active_mtu = IBV_MTU_4096;             // of the port
  uint16_t pkeys = 1;                            // entries of the port's P_Key table
  int gids = 1;                                  // entries of the port's GID table
  uint8_t max_rd_atomic = 16;                    // as initiator: ibv_device_attr::max_qp_init_rd_atom
  uint8_t max_dest_rd_atomic = 16;               // as responder: ibv_device_attr::max_qp_rd_atom
  uint32_t rate_limit_min = 0;                   // kbps; ibv_packet_pacing_caps
  uint32_t rate_limit_max = 0;                   // 0: nothing paces
  bool path_migration = false;                   // IBV_DEVICE_AUTO_PATH_MIG
  bool privileged_qkey = false;                  // may set a Q_Key with the top bit (CAP_NET_RAW)

  // The QP as it is.
  ibv_qp_state current_state = IBV_QPS_RESET;
  uint8_t port = 0;          // set on the way to INIT; 0 before
  bool sq_draining = false;  // in SQD, and requests are still under way
};

// 0, or the errno of the refusal; *why (if `why` is not null) then names the rule in one line, a constant
// string that is never freed, and is null after success; *value (if not null) is what the program gave.
// Attributes outside `mask` are not looked at.
//   EINVAL  a value out of range
//   EOPNOTSUPP  a rate, and nothing paces
//   EPERM   a Q_Key with the top bit, without the privilege
// PSNs are never refused: bits above 24 are dropped as the kernel drops them (psn.h, psn_of()).
int check_attributes(const AttributeLimits& limits, ibv_qp_type type, const ibv_qp_attr& attr, int mask,
                     const char** why, uint64_t* value = nullptr) noexcept;

// The same for an address vector alone: the core of ibv_create_ah(3) and of ah_attr above. `connected` is
// true for ah_attr of RC, UC and XRC, where no multicast address may stand. 0 or EINVAL.
int check_address(const AttributeLimits& limits, const ibv_ah_attr& ah, bool connected,
                  const char** why, uint64_t* value = nullptr) noexcept;

}  // namespace verbena
