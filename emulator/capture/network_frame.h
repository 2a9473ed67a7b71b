// SPDX-License-Identifier: BSD-2-Clause
//
// A RoCE v2 packet as it would be on an Ethernet: link header, IP, UDP, the packet, its ICRC.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
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

// Makes frames, millions in a second: what packets have in common is kept from one to the next.
class FrameWriter {
 public:
  // `devices` must live as long.
  explicit FrameWriter(const DeviceTable& devices) : devices_(devices) {}

  // The whole frame, valid until the next call. IPv4 if both addresses are IPv4-mapped, else IPv6.
  // Identification 0, don't fragment; over IPv4 UDP has no checksum (RFC 768), over IPv6 it has (RFC 8200,
  // 8.1).
  std::span<const uint8_t> make(const PacketRoute& route, uint16_t port, const roce::Packet& packet);

 private:
  using Gid = std::array<uint8_t, 16>;
  struct Known {
    Gid gid{};
    HardwareAddress address{};
    bool is_set = false;
  };
  const HardwareAddress& address_of(const Gid& gid);

  const DeviceTable& devices_;
  std::array<Known, 8> known_;
  size_t next_ = 0;  // of known_ to be replaced
  std::vector<uint8_t> frame_;
};

}  // namespace verbena::capture
