// SPDX-License-Identifier: BSD-2-Clause
//
// Requests as frames. Whether a request may be sent, and what becomes of it, is decided in the requester and
// in remote_path.cc.
#pragma once

#include <cstdint>

#include "engine/objects/transport.h"

namespace verbena {

struct Qp;
struct SendRequest;

struct RemotePath;

// Appends `request`, or its next chunk, to the stream of the peer, which is connected. Sends what has
// gathered unless that can wait. The caller holds send_lock and no hazard guard.
// - kSent, kPart: the whole request was appended, or a chunk of it.
// - kBlocked: there is no room, or the connection is another one since.
// - kFailed: the local memory may not be used.
SendResult send_request(Qp& qp, RemotePath& path, const SendOperation& operation, SendRequest& request);

}  // namespace verbena
