// SPDX-License-Identifier: BSD-2-Clause
//
// One line about a packet, for people.
#pragma once

#include <string>

#include "capture/packet_builder.h"

namespace verbena::capture {

// "10.0.0.1 > 10.0.0.2 RC SEND_ONLY QP 0x000011 PSN 0x123456 64 bytes"; of the frame of a raw packet queue
// pair "02:00:00:00:00:01 > ff:ff:ff:ff:ff:ff Ethernet, type 0x0806, 60 bytes"
std::string packet_text(const CapturedPacket& packet);

}  // namespace verbena::capture
