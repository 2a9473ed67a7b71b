// SPDX-License-Identifier: BSD-2-Clause
//
// How the command names objects of a snapshot.
#pragma once

#include <cstdint>
#include <string>

#include "survey/snapshot.h"

namespace verbena::tool {

std::string device_name(const NodeSnapshot& node, uint32_t index);  // its number, where it has no name

std::string qpn_text(uint32_t qpn);  // "0x001234"

// "0x001234 of 4711 (rping)", "0x001234 at 192.0.2.1"; "-": not connected.
std::string peer_text(const PeerSnapshot& peer);

}  // namespace verbena::tool
