// SPDX-License-Identifier: BSD-2-Clause
//
// Datagrams as they travel between nodes, and who stands for their senders towards the queue pairs of this
// one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "engine/datagram/datagram.h"
#include "wire/frame.h"

namespace verbena {

// A sender for the datagrams of another process. Throws std::bad_alloc.
std::unique_ptr<DatagramSender> make_remote_sender(Process& process);

// What a frame says whose bytes are at `bytes`. They stay where they are.
RemoteDatagram remote_datagram(const wire::DatagramHead& head, const void* bytes, uint32_t size);

}  // namespace verbena
