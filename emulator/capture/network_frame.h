// SPDX-License-Identifier: BSD-2-Clause
//
// A RoCE v2 packet as it would be on an Ethernet: link header, IP, UDP, the packet, its ICRC. Pure functions.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "fabric/device_table.h"
#include "observe/observer.h"
#include "roce/packet.h"

namespace verbena::capture {

using HardwareAddress = std::array<uint8_t, 6>;

// The source port of UDP that the kernel gives packets of a connection without a flow label, and with one
// (include/rdma/ib_verbs.h: rdma_calc_flow_label(), rdma_flow_label_to_udp_sport()).
uint16_t source_port(uint32_t flow_label, uint32_t source_qpn, uint32_t target_qpn) noexcept;

// Of the port with this GID: from the GUID of the device, as in the EUI-64 of a link-local address; of a
// group as RFC 1112 and RFC 2464 say; of others a local one (bit 1 of the first byte) with the last bytes of
// the address.
HardwareAddress hardware_address(const std::array<uint8_t, 16>& gid, const DeviceTable& devices) noexcept;

// The whole frame. IPv4 if both addresses are IPv4-mapped, else IPv6. Identification 0, don't fragment; over
// IPv4 UDP has no checksum (RFC 768), over IPv6 it has (RFC 8200, 8.1).
std::vector<uint8_t> make_frame(const PacketRoute& route, uint16_t port, const roce::Packet& packet,
                                const DeviceTable& devices);

}  // namespace verbena::capture
