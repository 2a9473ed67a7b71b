// SPDX-License-Identifier: BSD-2-Clause
#include "engine/rules/route.h"

#include <algorithm>
#include <cstring>

namespace verbena {
namespace {

std::array<uint8_t, 16> gid_of_lid(uint16_t lid, const DeviceTable& table) {
  for (uint32_t i = 0; i < std::min(table.count, kMaxDevices); ++i) {
    const DeviceDescription& device = table.devices[i];
    for (uint32_t port = 1; port <= device.count_ports(); ++port)
      if (uint32_t{lid} >> device.lmc == device.port(port).lid >> device.lmc)
        return device.port(port).gids[0].raw;
  }
  return {};
}

}  // namespace

PacketRoute route_of(const ibv_ah_attr& address, uint32_t port, const DeviceDescription& device,
                     const DeviceTable& table) {
  PacketRoute route;
  route.source = device.port(port).gids[0].raw;
  route.hop_limit = 64;
  if (address.is_global == 0) {
    route.destination = gid_of_lid(address.dlid, table);
    return route;
  }
  const ibv_global_route& grh = address.grh;
  if (grh.sgid_index < kMaxGids) route.source = device.port(port).gids[grh.sgid_index].raw;
  std::memcpy(route.destination.data(), grh.dgid.raw, route.destination.size());
  route.flow_label = grh.flow_label & 0xfffff;
  route.traffic_class = grh.traffic_class;
  if (grh.hop_limit != 0) route.hop_limit = grh.hop_limit;
  return route;
}

PacketRoute route_in(std::span<const uint8_t, 40> header) {
  PacketRoute route;
  // RoCE v2 over IPv4: 20 zeros, then the header.
  if (header[0] >> 4 != 6 && header[20] == 0x45) {
    const auto mapped = [&](size_t at) {
      std::array<uint8_t, 16> gid{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
      std::copy_n(&header[at], 4, &gid[12]);
      return gid;
    };
    route.source = mapped(32);
    route.destination = mapped(36);
    route.traffic_class = header[21];
    route.hop_limit = header[28];
    return route;
  }
  std::copy_n(&header[8], 16, route.source.begin());
  std::copy_n(&header[24], 16, route.destination.begin());
  route.traffic_class = static_cast<uint8_t>(header[0] << 4 | header[1] >> 4);
  route.flow_label = (header[1] & 0xfu) << 16 | uint32_t{header[2]} << 8 | header[3];
  route.hop_limit = header[7];
  return route;
}

PacketRoute reversed(const PacketRoute& route) {
  PacketRoute back = route;
  std::swap(back.source, back.destination);
  return back;
}

}  // namespace verbena
