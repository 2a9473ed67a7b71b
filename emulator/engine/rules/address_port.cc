// SPDX-License-Identifier: BSD-2-Clause
#include "engine/rules/address_port.h"

#include <algorithm>
#include <cstring>

namespace verbena {
namespace {

bool leads_to(const ibv_ah_attr& address, const PortDescription& port) {
  return std::any_of(
      port.gids.begin(), port.gids.begin() + std::min(port.gid_count, kMaxGids),
      [&](const GidEntry& gid) { return std::memcmp(gid.raw.data(), address.grh.dgid.raw, 16) == 0; });
}

}  // namespace

uint8_t find_port(const ibv_ah_attr& address, const DeviceDescription& device) {
  if (address.is_global == 0 && device.link_layer != LinkLayer::kInfiniband) return 0;
  for (uint32_t i = 0; i < device.count_ports(); ++i) {
    const PortDescription& port = device.ports[i];
    const bool found = address.is_global != 0 ? leads_to(address, port)
                                              : uint32_t{address.dlid} >> device.lmc == port.lid >> device.lmc;
    if (found) return static_cast<uint8_t>(i + 1);
  }
  return 0;
}

}  // namespace verbena
