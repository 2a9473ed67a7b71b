// SPDX-License-Identifier: BSD-2-Clause
//
// The attributes of an XRC_RECV queue pair that only queries ask for: its address and what belongs to that.
// They lie in SharedQp::path_words, so that a handle in another process can be asked for them
// (ibv_open_qp(3), ibv_query_qp(3)), and so that they outlive the owner. Those of a queue pair whose peer is
// reached by frames lie there, too, for `verbena status`, which looks at the GID alone: the first four words.
#pragma once

#include <infiniband/verbs.h>

#include "adapter/layout.h"

namespace verbena {

// The owner, one thread at a time.
void publish_path(SharedQp& qp, const ibv_qp_attr& attr);

// Anybody under a hazard guard: sets the same attributes of `attr`. Waits for nobody: if the owner has died,
// or is stopped, in the middle of publishing, what was there before may be mixed with what was to come.
void read_path(const SharedQp& qp, ibv_qp_attr* attr);

}  // namespace verbena
