// SPDX-License-Identifier: BSD-2-Clause
#include "engine/ethernet/steering.h"

#include "engine/rules/flow_fields.h"

namespace verbena {

void steer(const std::vector<FlowTable::Found>& rules, uint32_t device, const FlowFields& frame,
           std::vector<uint32_t>* hit) {
  const FlowRule* taker = nullptr;
  for (uint32_t i = 0; i < rules.size(); ++i) {
    const FlowRule& rule = rules[i].rule;
    if (rule.device != device || !matches(frame, rule.values, rule.mask)) continue;
    switch (rule.kind) {
      case FlowKind::kNormal:
        if (taker != nullptr && (taker->drops || rule.drops || !rule.is_beside(*taker))) continue;
        if (!rule.passes && taker == nullptr) taker = &rule;
        break;
      case FlowKind::kAllDefault:
      case FlowKind::kMulticastDefault:
        if (taker != nullptr) continue;
        break;
      case FlowKind::kSniffer:
        break;
    }
    hit->push_back(i);
  }
}

}  // namespace verbena
