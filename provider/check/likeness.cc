// SPDX-License-Identifier: BSD-2-Clause
#include "check/likeness.h"

#include <stdlib.h>

#include "check/report.h"
#include "findings/families.h"
#include "findings/variables.h"

namespace verbena::check {
namespace {

const findings::Family* family() {
  static const findings::Family* const wanted = [] {
    const char* const id = getenv(findings::kLikeVariable);
    return id != nullptr ? findings::find_family(id) : nullptr;
  }();
  return wanted;
}

uint32_t ability_of(ibv_qp_type type) {
  switch (type) {
    case IBV_QPT_RC:
      return findings::kRc;
    case IBV_QPT_UC:
      return findings::kUc;
    case IBV_QPT_XRC_SEND:
    case IBV_QPT_XRC_RECV:
      return findings::kXrc;
    case IBV_QPT_RAW_PACKET:
      return findings::kRawPacket;
    default:
      return 0;
  }
}

void compare(const findings::Rule& rule, const char* name, uint32_t value, uint32_t limit,
             const Stack& stack) {
  if (limit == 0 || value <= limit) return;
  report(rule,
         text("%s %u: %s has %u (%s)", name, value, family()->id.data(), limit, family()->source.data()),
         {{"called here", keep_stack(stack)}});
}

}  // namespace

void compare_qp(ibv_qp_type type, const ibv_qp_cap& cap, bool has_srq, const Stack& stack) {
  if (family() == nullptr) return;
  const Locked locked;
  if ((ability_of(type) & ~family()->abilities) != 0)
    report(rule("like-type"),
           text("qp_type %d: %s does not have it (%s)", static_cast<int>(type), family()->id.data(),
                family()->source.data()),
           {{"called here", keep_stack(stack)}});
  compare(rule("like-queue-size"), "max_send_wr", cap.max_send_wr, family()->max_wr, stack);
  compare(rule("like-sge"), "max_send_sge", cap.max_send_sge, family()->max_send_sge, stack);
  compare(rule("like-inline"), "max_inline_data", cap.max_inline_data, family()->max_inline, stack);
  if (has_srq) return;
  compare(rule("like-queue-size"), "max_recv_wr", cap.max_recv_wr, family()->max_wr, stack);
  compare(rule("like-sge"), "max_recv_sge", cap.max_recv_sge, family()->max_recv_sge, stack);
}

void compare_cq(int entries, const Stack& stack) {
  if (family() == nullptr || entries < 0) return;
  const Locked locked;
  compare(rule("like-cqe"), "cqe", static_cast<uint32_t>(entries), family()->max_cqe, stack);
}

void compare_ability(unsigned ability, const char* what, const Stack& stack) {
  if (family() == nullptr || (family()->abilities & ability) != 0) return;
  const Locked locked;
  report(ability == findings::kAtomics ? rule("like-atomics") : rule("like-object"),
         text("%s: %s does not have it (%s)", what, family()->id.data(), family()->source.data()),
         {{"called here", keep_stack(stack)}});
}

}  // namespace verbena::check
