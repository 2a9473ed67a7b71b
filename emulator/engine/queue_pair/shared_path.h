// SPDX-License-Identifier: BSD-2-Clause
//
// Attributes of an XRC_RECV queue pair that only queries use: its address vector. They are in
// SharedQp::path_words, so that handles in other processes can query them (ibv_open_qp(3), ibv_query_qp(3)),
// and so that they outlive the owner. Queue pairs whose peer is reached by frames have them there as well,
// for `verbena status`, which reads the GID: the first four words.
#pragma once

#include <infiniband/verbs.h>

#include "adapter/layout.h"

namespace verbena {

// The owner, one thread at a time.
void publish_path(SharedQp& qp, const ibv_qp_attr& attr);

// Any process under a hazard guard: sets these attributes of `attr`. Does not wait. If the owner has died or
// is stopped while it publishes, old and new values may be mixed.
void read_path(const SharedQp& qp, ibv_qp_attr* attr);

}  // namespace verbena
