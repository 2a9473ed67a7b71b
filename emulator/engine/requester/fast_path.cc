// SPDX-License-Identifier: BSD-2-Clause
#include "engine/requester/fast_path.h"

#include "adapter/memory_table.h"

namespace verbena {

bool find_local_slowly(Qp& qp, KnownRegion& known, MemoryUse use, const ibv_sge& sge, uint64_t* address) {
  const SegmentView& view = qp.process->view();
  const Translation place = translate(view, sge.lkey, false, qp.pd->handle, use, sge.addr, sge.length);
  *address = place.address;
  if (place.check != KeyCheck::kOk || place.on_demand) return false;
  known.remember(view, sge.lkey, qp.pd->handle, use);
  return true;
}

}  // namespace verbena
