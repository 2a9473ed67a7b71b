// SPDX-License-Identifier: BSD-2-Clause
//
// Datagrams as they travel between nodes, and the DatagramSender that stands for their senders here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "engine/datagram/datagram.h"
#include "wire/frame.h"

namespace verbena {

// A sender for the datagrams of another process. Throws std::bad_alloc.
std::unique_ptr<DatagramSender> make_remote_sender(Process& process);

// The datagram of a frame whose payload is at `bytes`. The payload is not copied.
RemoteDatagram remote_datagram(const wire::DatagramHead& head, const void* bytes, uint32_t size);

}  // namespace verbena
