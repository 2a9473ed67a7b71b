// SPDX-License-Identifier: BSD-2-Clause
#include "fabric/device_table.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "fabric/descriptor.h"
#include "mix.h"

namespace verbena {
namespace {

// enum ibv_mtu of 256, 512, ... 4096 bytes.
uint32_t mtu_code(uint64_t bytes) { return static_cast<uint32_t>(std::countr_zero(bytes)) - 7; }

struct Address {
  std::array<uint8_t, 16> gid{};
  std::string interface_name;
  uint32_t interface_index = 0;
  bool ipv4 = false;
  bool loopback = false;
  uint32_t port = 1;
};

std::array<uint8_t, 16> mapped(const in_addr& address) {
  std::array<uint8_t, 16> gid{};
  gid[10] = gid[11] = 0xff;
  std::memcpy(&gid[12], &address, 4);
  return gid;
}

// Excludes addresses that are bound to one link or to the machine itself: a peer could not reach them, or not
// without a zone.
bool global_scope(const in6_addr& address) {
  return !IN6_IS_ADDR_LINKLOCAL(&address) && !IN6_IS_ADDR_LOOPBACK(&address) &&
         !IN6_IS_ADDR_MULTICAST(&address) && !IN6_IS_ADDR_UNSPECIFIED(&address);
}

// True: `gid` is in the network that the interface has with this entry. IPv4: 127.0.0.2 belongs to lo, as
// 127.0.0.1 does.
bool in_network_of(const ifaddrs& entry, const std::array<uint8_t, 16>& gid) {
  if (entry.ifa_addr == nullptr || entry.ifa_netmask == nullptr || entry.ifa_addr->sa_family != AF_INET)
    return false;
  sockaddr_in address, mask;
  std::memcpy(&address, entry.ifa_addr, sizeof address);
  std::memcpy(&mask, entry.ifa_netmask, sizeof mask);
  in_addr wanted;
  std::memcpy(&wanted, &gid[12], 4);
  return gid == mapped(wanted) &&
         (wanted.s_addr & mask.sin_addr.s_addr) == (address.sin_addr.s_addr & mask.sin_addr.s_addr);
}

bool read_address(const ifaddrs& entry, Address* out) {
  if (entry.ifa_addr == nullptr || (entry.ifa_flags & IFF_UP) == 0) return false;
  out->interface_index = if_nametoindex(entry.ifa_name);
  char name[IF_NAMESIZE];  // ifa_name may be a label, "eth0:1"; the GID table wants the netdev
  if (if_indextoname(out->interface_index, name) == nullptr) return false;
  out->interface_name = name;
  out->loopback = (entry.ifa_flags & IFF_LOOPBACK) != 0;
  if (entry.ifa_addr->sa_family == AF_INET) {
    sockaddr_in address;
    std::memcpy(&address, entry.ifa_addr, sizeof address);
    out->ipv4 = true;
    out->gid = mapped(address.sin_addr);
    return true;
  }
  if (entry.ifa_addr->sa_family == AF_INET6) {
    sockaddr_in6 address;
    std::memcpy(&address, entry.ifa_addr, sizeof address);
    std::memcpy(out->gid.data(), &address.sin6_addr, 16);
    return global_scope(address.sin6_addr);
  }
  return false;
}

// In the order of the GID table: IPv4 first, the loopback as the last of these; then IPv6.
std::vector<Address> machine_addresses() {
  std::vector<Address> addresses;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return addresses;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    Address address;
    if (!read_address(*entry, &address)) continue;
    const auto same = [&](const Address& other) { return other.gid == address.gid; };
    if (std::none_of(addresses.begin(), addresses.end(), same)) addresses.push_back(address);
  }
  freeifaddrs(list);
  const auto rank = [](const Address& a) { return a.ipv4 ? (a.loopback ? 1 : 0) : 2; };
  std::stable_sort(addresses.begin(), addresses.end(),
                   [&](const Address& a, const Address& b) { return rank(a) < rank(b); });
  return addresses;
}

// The addresses that the user has named, each with its interface. An address that no interface has gets the
// loopback.
std::vector<Address> named_addresses(const std::vector<std::array<uint8_t, 16>>& gids) {
  std::vector<Address> addresses;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) list = nullptr;
  for (const auto& gid : gids) {
    Address chosen;
    chosen.gid = gid;
    chosen.interface_name = "lo";
    bool exact = false, near = false;
    for (const ifaddrs* entry = list; entry != nullptr && !exact; entry = entry->ifa_next) {
      Address address;
      // the result is ignored: it is false for IPv6's loopback, which counts here
      read_address(*entry, &address);
      if (address.interface_index == 0) continue;
      exact = address.gid == gid;
      if (!exact && (near || !in_network_of(*entry, gid))) continue;
      near = true;
      chosen.interface_name = address.interface_name;
    }
    chosen.interface_index = if_nametoindex(chosen.interface_name.c_str());
    addresses.push_back(chosen);
  }
  if (list != nullptr) freeifaddrs(list);
  return addresses;
}

// With more addresses than table entries, IPv6 addresses are dropped first. One entry stays for the loopback,
// the fallback of programs on one machine.
std::vector<Address> choose(const std::vector<Address>& all, size_t room) {
  std::vector<Address> chosen = all;
  if (chosen.size() <= room) return chosen;
  const auto loopback =
      std::find_if(all.begin(), all.end(), [](const Address& a) { return a.ipv4 && a.loopback; });
  chosen.resize(room);
  if (loopback != all.end() && static_cast<size_t>(loopback - all.begin()) >= room) chosen.back() = *loopback;
  return chosen;
}

// The interface behind the link-local GID: that of the first address, else any existing one, the loopback
// first.
Address default_interface(const std::vector<Address>& addresses) {
  if (!addresses.empty()) return addresses.front();
  Address interface;
  struct if_nameindex* interfaces = if_nameindex();
  if (interfaces == nullptr) return interface;
  for (const struct if_nameindex* i = interfaces; i->if_index != 0; ++i) {
    if (interface.interface_index != 0 && i->if_index >= interface.interface_index) continue;
    interface.interface_index = i->if_index;
    interface.interface_name = i->if_name;
  }
  if_freenameindex(interfaces);
  return interface;
}

uint64_t fnv1a(uint64_t hash, std::string_view text) {
  for (const char c : text) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3;
  return hash;
}

// An EUI-64 of this machine, this user and this device, the same each time. The bit for "locally
// administered" is set and the bit for "group" is clear (IEEE Std 802, 8.2), because no registry has assigned
// it.
uint64_t device_guid(uint32_t device, LinkLayer link_layer) {
  std::string machine;
  if (std::ifstream file("/etc/machine-id"); file) std::getline(file, machine);
  char host[256] = "";
  gethostname(host, sizeof host - 1);
  uint64_t hash = fnv1a(0xcbf29ce484222325, machine);
  hash = fnv1a(hash, std::string("/") + host + "/" + std::to_string(getuid()));
  hash = mix(hash + uint64_t{device} * 2 + static_cast<uint64_t>(link_layer));
  return (hash & ~(uint64_t{0x03} << 56)) | uint64_t{0x02} << 56;
}

GidEntry gid_entry(const std::array<uint8_t, 16>& raw, GidType type, const Address& interface) {
  GidEntry entry{};
  entry.raw = raw;
  entry.type = type;
  entry.interface_index = interface.interface_index;
  interface.interface_name.copy(entry.interface_name.data(), entry.interface_name.size() - 1);
  return entry;
}

uint64_t port_guid(uint64_t device, uint32_t port) {
  return port == 1 ? device : device ^ uint64_t { 1 } << 32;
}

// `by_interface`: an interface has one port for all its addresses.
void deal_to_ports(std::vector<Address>& addresses, uint32_t ports, bool by_interface) {
  uint32_t next = 0;
  for (size_t i = 0; i < addresses.size(); ++i) {
    const auto here = addresses.begin() + static_cast<ptrdiff_t>(i);
    const auto same = std::find_if(addresses.begin(), here, [&](const Address& other) {
      return by_interface && other.interface_index == here->interface_index;
    });
    here->port = same != here ? same->port : next++ % ports + 1;
  }
}

std::array<uint8_t, 16> link_local(uint64_t guid) {
  std::array<uint8_t, 16> gid{0xfe, 0x80};
  for (unsigned i = 0; i < 8; ++i) gid[8 + i] = static_cast<uint8_t>(guid >> (56 - 8 * i));
  return gid;
}

// The longest payload of a RoCE v2 packet, of 256, 512, ... 4096 bytes, on an interface (the kernel's
// include/rdma/ib_addr.h, iboe_get_mtu(): GRH or IPv6 header, UDP, BTH, XRCETH, AtomicETH and ICRC come off).
uint64_t packet_mtu(int interface_mtu) {
  constexpr int kHeaders = 40 + 8 + 12 + 4 + 28 + 4;
  uint64_t mtu = 4096;
  while (mtu > 256 && static_cast<int>(mtu) > interface_mtu - kHeaders) mtu /= 2;
  return mtu;
}

uint64_t packet_mtu_of(const std::vector<Address>& addresses) {
  const Descriptor any(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  uint64_t least = 4096;
  for (const Address& address : addresses) {
    ifreq request{};
    address.interface_name.copy(request.ifr_name, sizeof request.ifr_name - 1);
    if (ioctl(any.fd, SIOCGIFMTU, &request) == 0) least = std::min(least, packet_mtu(request.ifr_mtu));
  }
  return least;
}

}  // namespace

DeviceTable describe_devices(const DeviceTableOptions& options) {
  const bool ethernet = options.link_layer == LinkLayer::kEthernet;
  const GidType type = ethernet ? GidType::kRoceV2 : GidType::kIb;
  const std::vector<Address> all =
      options.network.addresses.empty() ? machine_addresses() : named_addresses(options.network.addresses);
  std::vector<Address> addresses = ethernet ? choose(all, kMaxGids - 1) : std::vector<Address>{};
  const Address interface = ethernet ? default_interface(all) : Address{};
  const uint32_t ports = std::clamp(options.ports, 1u, kMaxPorts);
  const uint32_t lmc = ethernet ? 0 : std::min(options.lmc, kMaxLmc);
  deal_to_ports(addresses, ports, options.network.addresses.empty());

  uint64_t mtu = options.limits.active_mtu;
  if (options.network.enabled && options.network.kind == NetworkKind::kRoce)
    mtu = std::min(mtu, packet_mtu_of(addresses));

  DeviceTable table{};
  table.count = std::min(options.count, kMaxDevices);
  table.first_number = options.beside ? kNumbersBeside : 0;
  for (uint32_t i = 0; i < table.count; ++i) {
    DeviceDescription& device = table.devices[i];
    std::snprintf(device.name.data(), device.name.size(), "verbena%u", i);
    device.node_guid = device_guid(i, options.link_layer);
    device.link_layer = options.link_layer;
    device.port_count = ports;
    device.lmc = lmc;
    for (const uint16_t pkey : options.pkeys)
      if (device.pkey_count < kMaxPkeys) device.pkeys[device.pkey_count++] = pkey;
    device.limits = options.limits;
    device.active_mtu = mtu_code(mtu);
    for (uint32_t number = 1; number <= ports; ++number) {
      PortDescription& port = device.ports[number - 1];
      port.lid = ethernet ? 0 : (i * ports + number) << lmc;
      const auto first = std::find_if(addresses.begin(), addresses.end(),
                                      [&](const Address& address) { return address.port == number; });
      const Address& own = first != addresses.end() && number != 1 ? *first : interface;
      port.gids[port.gid_count++] = gid_entry(link_local(port_guid(device.node_guid, number)), type, own);
      for (const Address& address : addresses)
        if (address.port == number) port.gids[port.gid_count++] = gid_entry(address.gid, type, address);
    }
  }
  if (options.network.enabled) {
    table.network.enabled = 1;
    table.network.kind = options.network.kind;
    table.network.port = options.network.kind == NetworkKind::kRoce ? kRocePort : options.network.port;
    for (const Address& address : addresses) table.network.addresses[table.network.count++] = address.gid;
    for (const AddressRange& range : options.network.peer_ranges)
      if (table.network.peer_range_count < kMaxPeerRanges)
        table.network.peer_ranges[table.network.peer_range_count++] = range;
  }
  return table;
}

}  // namespace verbena
