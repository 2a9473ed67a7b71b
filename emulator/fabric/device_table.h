// SPDX-License-Identifier: BSD-2-Clause
//
// The node's devices: names, GUIDs, GIDs, link layer. The table is written once when the node is created, and
// only read afterwards. It lies in the node directory (node_directory.h) and is the source of the sysfs tree
// that programs read, so that both always agree.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "fabric/address_range.h"
#include "fabric/device_limits.h"

namespace verbena {

inline constexpr uint32_t kMaxDevices = 16;
inline constexpr uint32_t kMaxPorts = 2;   // per device
inline constexpr uint32_t kMaxGids = 32;   // per port
inline constexpr uint32_t kMaxPkeys = 16;  // per port
inline constexpr uint32_t kMaxLmc = 7;     // PortInfo:LMC has 3 bits (vol. 1, 14.2.5.6)
inline constexpr uint16_t kDefaultPkey = 0xffff;
inline constexpr uint32_t kMaxNameLength = 64;  // IBV_SYSFS_NAME_MAX, the terminating zero included

enum class LinkLayer : uint32_t { kEthernet = 0, kInfiniband = 1 };
enum class GidType : uint32_t { kIb = 0, kRoceV2 = 1 };

struct GidEntry {
  std::array<uint8_t, 16> raw;  // network byte order; all zero: empty
  GidType type;
  uint32_t interface_index;             // if_nametoindex(3) when the node was created
  std::array<char, 16> interface_name;  // IFNAMSIZ, zero-terminated
};
static_assert(sizeof(GidEntry) == 40);

struct PortDescription {
  uint32_t lid;        // the base LID; 0 on Ethernet
  uint32_t gid_count;  // gids[0 .. gid_count) are in use, densely
  std::array<GidEntry, kMaxGids> gids;
};

// Ports are numbered from 1. They share link layer, MTU and P_Keys.
struct DeviceDescription {
  std::array<char, kMaxNameLength> name;  // "verbena0", zero-terminated
  uint64_t node_guid;                     // host byte order
  LinkLayer link_layer;
  uint32_t active_mtu;  // enum ibv_mtu, of limits.active_mtu
  uint32_t port_count;  // ports[0] is port 1
  uint32_t lmc;         // a port has 1 << lmc LIDs, from `lid` on
  uint32_t pkey_count;
  uint32_t reserved;
  std::array<uint16_t, kMaxPkeys> pkeys;  // host byte order; pkeys[0 .. pkey_count), none is 0
  std::array<PortDescription, kMaxPorts> ports;
  DeviceLimits limits;

  // 1 to kMaxPorts, whatever a damaged table says.
  uint32_t count_ports() const {
    return port_count == 0 ? 1 : port_count < kMaxPorts ? port_count : kMaxPorts;
  }
  // Port 1 in place of a port that the device does not have.
  const PortDescription& port(uint32_t number) const {
    return ports[number >= 1 && number <= count_ports() ? number - 1 : 0];
  }
  // 0 in place of an entry that the table does not have.
  uint16_t pkey(uint32_t index) const {
    return index < pkey_count && index < kMaxPkeys ? pkeys[index] : uint16_t{0};
  }
};

// The place of a port in what the node counts and marks by port. Port 1 of device d: d.
inline constexpr uint32_t kPortPlaces = kMaxDevices * kMaxPorts;
constexpr uint32_t port_place(uint32_t device, uint32_t port) {
  return (port == 2 ? kMaxDevices : 0) + device % kMaxDevices;
}
constexpr uint32_t port_bit(uint32_t device, uint32_t port) { return 1u << port_place(device, port); }
static_assert(kPortPlaces == 32 && kMaxPorts == 2);

enum class NetworkKind : uint32_t {
  kFrames = 0,  // our own frames over TCP (wire/frame.h)
  kRoce = 1,    // RoCE v2 packets over UDP (engine/roce_transport)
};

// The addresses where the node's processes are reached by other nodes (wire/connection_listener.h); they are
// among the GIDs.
struct NetworkDescription {
  uint32_t enabled;  // 0: no network, all else is 0
  uint32_t port;     // TCP, host byte order; kRoce: UDP, always 4791
  uint32_t count;
  NetworkKind kind;
  std::array<std::array<uint8_t, 16>, kMaxGids> addresses;  // as in a GID
  uint32_t peer_range_count;                                // kRoce; 0: packets come from anywhere
  std::array<AddressRange, kMaxPeerRanges> peer_ranges;

  // May packets come from this address? Whatever a damaged table says.
  bool takes_from(const std::array<uint8_t, 16>& address) const {
    return is_in(std::span(peer_ranges).first(std::min(peer_range_count, kMaxPeerRanges)), address);
  }
};

// Do processes prove that they have the fabric's key? RoCE v2 knows no such thing.
constexpr bool has_key(const NetworkDescription& network) {
  return network.enabled != 0 && network.kind == NetworkKind::kFrames;
}

// The devices of a node that is seen beside the machine's (--beside) have other numbers than the machine's:
// uverbsN, and the index of NETLINK_RDMA.
inline constexpr uint32_t kNumbersBeside = 128;

struct DeviceTable {
  uint32_t count;
  uint32_t first_number;  // of device 0: 0, or kNumbersBeside
  std::array<DeviceDescription, kMaxDevices> devices;
  NetworkDescription network;
};

inline constexpr uint16_t kDefaultPort = 47910;  // up to kLastPort is documented; one fabric, one port
inline constexpr uint16_t kRocePort = 4791;      // of RoCE v2
inline constexpr uint16_t kLastPort = 47919;
using NetworkKey = std::array<uint8_t, 32>;

// `verbena run --ip | --net | --roce`. A network requires Ethernet: InfiniBand's GIDs are not addresses.
struct NetworkOptions {
  bool enabled = false;
  NetworkKind kind = NetworkKind::kFrames;
  uint16_t port = kDefaultPort;
  std::vector<std::array<uint8_t, 16>> addresses;  // the machine's; empty: all that it has
  std::vector<AddressRange> peer_ranges;           // kRoce: packets of others are dropped; empty: of nobody
  NetworkKey key{};                                // node.h: lies in <node>/key
};

struct DeviceTableOptions {
  uint32_t count = 1;
  uint32_t ports = 1;  // of each device
  uint32_t lmc = 0;
  std::vector<uint16_t> pkeys{kDefaultPkey};  // of each port
  LinkLayer link_layer = LinkLayer::kEthernet;
  DeviceLimits limits{};
  NetworkOptions network{};
  bool beside = false;  // programs see the machine's devices as well
};

// Describes `options.count` devices with the addresses that the machine has now. Every device has its own
// GUID. Every port has its own link-local GID (fe80::/64 + the EUI-64 of the port's GUID) at index 0; the
// GUID of port 1 is that of the device, and that of port 2 has another bit 32.
// - Ethernet: ::ffff:a.b.c.d of every IPv4 address follows (the loopback's last), then the IPv6 addresses of
//   global scope. All are RoCE v2.
// - InfiniBand: index 0 is the only entry (type IB). LIDs count from 1 << lmc, in steps of 1 << lmc, over the
//   ports of all devices.
// - With a network of packets the active MTU fits the MTU of the interfaces of the addresses.
// - With options.network.addresses: those replace the machine's addresses, in their order.
// - Two ports: the machine's interfaces belong to them in turn, each with all its addresses; so do the single
//   addresses of options.network.addresses.
DeviceTable describe_devices(const DeviceTableOptions& options);

}  // namespace verbena
