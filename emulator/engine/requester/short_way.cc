// SPDX-License-Identifier: BSD-2-Clause
#include "engine/requester/short_way.h"

#include "adapter/memory_table.h"

namespace verbena {

bool find_gathered_anew(Qp& qp, const ibv_sge& sge, uint64_t* address) {
  const SegmentView& view = qp.process->view();
  const Translation place =
      translate(view, sge.lkey, false, qp.pd->handle, MemoryUse::local_gather, sge.addr, sge.length);
  *address = place.address;
  if (place.check != KeyCheck::kOk || place.on_demand) return false;
  qp.gathered.remember(view, sge.lkey, qp.pd->handle, MemoryUse::local_gather);
  return true;
}

}  // namespace verbena
