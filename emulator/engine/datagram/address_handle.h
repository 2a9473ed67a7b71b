// SPDX-License-Identifier: BSD-2-Clause
//
// Address handles (ibv_create_ah(3)).
#pragma once

#include <infiniband/verbs.h>

#include "engine/datagram/datagram_header.h"

namespace verbena {

struct Pd;

struct Ah {
  Pd* pd = nullptr;
  ibv_ah_attr attr{};
  DatagramHeader header;   // of its datagrams; kNone without a GRH
  bool multicast = false;  // the GID is a group's
};

}  // namespace verbena
