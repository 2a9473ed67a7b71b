// SPDX-License-Identifier: BSD-2-Clause
//
// Requests as frames: how one of a queue pair, or its next chunk, gets into the stream to its peer. When it
// may, and what becomes of it, is remote_path.cc's.
#pragma once

#include <cstdint>

#include "engine/requester/send_rules.h"

namespace verbena {

struct Qp;
struct SendRequest;

enum class Sent : uint8_t {
  kWhole,    // nothing of it is left to be sent
  kPart,     // a chunk of it; the next one follows
  kBlocked,  // nothing: there is no room now, or the connection is another one
  kFailed,   // its own memory is at fault: `error` says how
};

// Puts request RemotePath::sent, or its next chunk, into the stream of the peer, who is known, and sends what
// has gathered unless that can wait. The caller holds send_lock and holds no hazard guard.
Sent send_request(Qp& qp, const SendOperation& operation, SendRequest& request, VendorError* error);

}  // namespace verbena
