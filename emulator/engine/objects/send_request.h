// SPDX-License-Identifier: BSD-2-Clause
//
// A send request as the requester keeps it.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

#include "engine/objects/request.h"

namespace verbena {

struct Ah;

// The lists point into the program's memory during the program's call, and into the QP's own copies
// afterwards.
struct SendRequest : Request {
  uint64_t wr_id;
  const Ah* ah;  // UD: the destination
  uint32_t remote_qpn;
  uint32_t remote_qkey;
  const ibv_sge* sges;
  uint32_t sge_count;
  bool is_inline;  // the bytes are copied already: sges[0].addr points at the QP's copy
  bool answered;   // by a peer on another node, with all requested bytes
  // Not the program's: it fetches the message of a tag of the SRQ, or reports that to the peer. 1 + its index.
  uint32_t tag;
};

}  // namespace verbena
