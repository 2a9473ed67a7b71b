// SPDX-License-Identifier: BSD-2-Clause
//
// The part of a segment that names the objects with something to tell their owner.
#pragma once

#include "adapter/change_set.h"
#include "adapter/layout.h"

namespace verbena {

// Which table entries have something to tell the owner (PeerAdapter::report). Written by peers and by the
// owner.
struct Changes {
  alignas(kCacheLine) ChangeSet<kMaxQpsPerProcess> qps;
  alignas(kCacheLine) ChangeSet<kMaxCqsPerProcess> cqs;
  alignas(kCacheLine) ChangeSet<kMaxSrqsPerProcess> srqs;
};
static_assert(kChangesOffset + sizeof(Changes) <= kQpTableOffset);

}  // namespace verbena
