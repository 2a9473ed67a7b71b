// SPDX-License-Identifier: BSD-2-Clause
//
// Which flow rules of a device get a frame. A pure function.
//
// - Normal rules are looked at by priority, lowest value first, and by age among rules of one priority
//   (ibv_create_flow(3), "Flow domains and priority"). The first one that matches takes the frame. With
//   IBV_FLOW_ATTR_FLAGS_DONT_TRAP it gets a copy, and the search goes on.
// - Rules for the same frames with the same priority are one rule with several receivers, as on mlx5: an
// entry of its
//   flow table with several destinations (drivers/net/ethernet/mellanox/mlx5/core/fs_core.c, add_rule_fg()).
//   One that drops is alone.
// - A frame that no normal rule takes goes to every default rule for it.
// - Sniffers get every frame.
#pragma once

#include <cstdint>
#include <vector>

#include "fabric/flow_table.h"

namespace verbena {

// The rules that a frame at `device` hits, as indices into `rules`, which is sorted as FlowTable::rules().
// They are appended to *hit.
void steer(const std::vector<FlowTable::Found>& rules, uint32_t device, const FlowFields& frame,
           std::vector<uint32_t>* hit);

}  // namespace verbena
