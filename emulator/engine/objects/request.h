// SPDX-License-Identifier: BSD-2-Clause
//
// A request as it travels: the part of a work request that the responder needs. The requester's part is
// SendRequest (send_request.h).
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

namespace verbena {

struct Request {
  uint64_t number;  // running number, of the requester's queue pair
  ibv_wr_opcode opcode;
  unsigned flags;      // ibv_send_flags
  uint32_t immediate;  // network byte order; with SEND_WITH_INV the rkey
  uint32_t rkey;
  uint64_t remote_address;
  uint64_t compare_add;
  uint64_t swap;
  uint32_t remote_srqn;  // XRC
  uint32_t length;       // bytes of the message
  uint32_t done;         // bytes moved so far: a long message takes several steps
};

}  // namespace verbena
