// SPDX-License-Identifier: BSD-2-Clause
//
// An XRC domain as one context has it open (ibv_open_xrcd(3)).
#pragma once

#include <atomic>
#include <cstdint>

#include "engine/objects/context_use.h"

namespace verbena {

struct Xrcd {
  ContextUse context;
  uint32_t entry = 0;              // in the node's table of handles
  uint32_t number = 0;             // of the domain on the node
  std::atomic<uint32_t> users{0};  // SRQs and QPs made with this handle
};

}  // namespace verbena
