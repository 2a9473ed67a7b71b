// SPDX-License-Identifier: BSD-2-Clause
//
// Requests as frames: how one of a queue pair, or its next chunk, gets into the stream to its peer. When it
// may, and what becomes of it, is remote_path.cc's.
#pragma once

#include <cstdint>

#include "engine/objects/transport.h"

namespace verbena {

struct Qp;
struct SendRequest;

struct RemotePath;

// Puts `request`, or its next chunk, into the stream of the peer, who is connected, and sends what has gathered unless that
// can wait. kSent, kPart, kBlocked (no room, or the connection is another one), kFailed. The caller holds send_lock, and no
// hazard.
SendResult send_request(Qp& qp, RemotePath& path, const SendOperation& operation, SendRequest& request);

}  // namespace verbena
