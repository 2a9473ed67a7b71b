// SPDX-License-Identifier: BSD-2-Clause
//
// Invalidation of a memory window's key: by IBV_WR_LOCAL_INV on its own adapter, or by the SEND_WITH_INV of a peer.
#pragma once

#include "adapter/memory_table.h"
#include "engine/rules/send_rules.h"

namespace verbena {

// May queue pair `qpn` of protection domain `pd` invalidate `rkey`, whose window is `window` (nullptr: there is none)?
// none, rkey_unknown, rkey_other_pd, rkey_no_right (a type 1 window), rkey_other_qp.
VendorError check_invalidation(const SharedMr* window, uint32_t rkey, uint32_t pd, uint32_t qpn);

// SEND_WITH_INV that arrives at queue pair `there` of the adapter `view`. none: the key has ended. Otherwise
// an error as of check_invalidation(), and nothing has happened. The caller holds a hazard guard on the
// adapter.
VendorError invalidate_window(const SegmentView& view, const SharedQp& there, uint32_t rkey);

}  // namespace verbena
