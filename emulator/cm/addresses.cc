// SPDX-License-Identifier: BSD-2-Clause
#include "cm/addresses.h"

#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

namespace verbena::cm {
namespace {

constexpr uint64_t kSpaceMask = ~kPortMask;  // RDMA_IB_IP_PS_MASK

constexpr Gid kLoopbackGid{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
constexpr Gid kIpv4Loopback{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 1};

constexpr uint64_t service_base(PortSpace space) { return static_cast<uint64_t>(space) << 16; }

// The spaces of an AF_IB sid, in the order in which cma_select_ib_ps tries them, and the spaces whose ids may
// use each.
struct IbSpace {
  PortSpace bound;
  PortSpace also_of;  // besides kIb
};
constexpr IbSpace kIbSpaces[] = {
    {PortSpace::kIb, PortSpace::kIb}, {PortSpace::kTcp, PortSpace::kTcp}, {PortSpace::kUdp, PortSpace::kUdp}};

template <typename Sockaddr>
Sockaddr as(const Address& a) {
  Sockaddr out;
  std::memcpy(&out, a.bytes.data(), sizeof out);
  return out;
}

template <typename Sockaddr>
Address from(const Sockaddr& in) {
  Address a;
  std::memcpy(a.bytes.data(), &in, sizeof in);
  return a;
}

Gid host_gid(const Address& a) { return a.none() ? Gid{} : gid_of(a); }

Place place_at(const DeviceTable& devices, uint32_t device, uint8_t port, uint32_t gid_index) {
  return {device, port, gid_index, devices.devices[device].port(port).gids[gid_index].raw};
}

// The first GID, in the order of devices, ports and tables, that `fits`.
template <typename Fits>
bool find_first(const DeviceTable& devices, uint32_t device, const Fits& fits, Place* out) {
  for (uint32_t d = 0; d < std::min(devices.count, kMaxDevices); ++d) {
    if (device != kAnyDevice && device != d) continue;
    const DeviceDescription& description = devices.devices[d];
    for (uint32_t p = 1; p <= description.count_ports(); ++p) {
      const PortDescription& port = description.port(p);
      for (uint32_t g = 0; g < std::min(port.gid_count, kMaxGids); ++g) {
        if (!fits(port.gids[g].raw)) continue;
        *out = place_at(devices, d, static_cast<uint8_t>(p), g);
        return true;
      }
    }
  }
  return false;
}

uint32_t device_count(const DeviceTable& devices) { return std::min(devices.count, kMaxDevices); }

bool first_place(const DeviceTable& devices, Place* out) {
  if (device_count(devices) == 0) return false;
  *out = place_at(devices, 0, 1, 0);
  return true;
}

// A UDP socket for one query of the machine's route. Raw system calls, because these functions are no
// cancellation points.
class RouteQuery {
 public:
  explicit RouteQuery(sa_family_t family)
      : fd_(static_cast<int>(syscall(SYS_socket, family, SOCK_DGRAM | SOCK_CLOEXEC, 0))) {}
  RouteQuery(const RouteQuery&) = delete;
  RouteQuery& operator=(const RouteQuery&) = delete;
  ~RouteQuery() {
    if (fd_ >= 0) syscall(SYS_close, fd_);
  }
  int error() const { return fd_ < 0 ? errno : 0; }
  int bind_to(const Address& a) const {
    return syscall(SYS_bind, fd_, a.bytes.data(), a.size()) == 0 ? 0 : errno;
  }
  int connect_to(const Address& a) const {
    return syscall(SYS_connect, fd_, a.bytes.data(), a.size()) == 0 ? 0 : errno;
  }
  int name(Address* out) const {
    *out = Address{};
    socklen_t size = static_cast<socklen_t>(out->bytes.size());
    return syscall(SYS_getsockname, fd_, out->bytes.data(), &size) == 0 ? 0 : errno;
  }

 private:
  int fd_;
};

// The source address of the machine's route.
int route_source(const Address& destination, Address* source) {
  const RouteQuery machine(destination.family());
  if (const int error = machine.error(); error != 0) return error;
  Address target = destination;
  set_port(&target, 9);  // any: connect(2) of a UDP socket sends nothing
  if (const int error = machine.connect_to(target); error != 0) return error;
  if (const int error = machine.name(source); error != 0) return error;
  set_port(source, 0);
  return 0;
}

// A request to another node comes from one of this node's own addresses: the route's source if it is one,
// else the one with the longest common prefix with the destination.
int remote_source(const DeviceTable& devices, const Address& destination, Address* source) {
  if (const int error = route_source(destination, source); error != 0) return error;
  Place place;
  if (find_gid(devices, gid_of(*source), kAnyDevice, &place)) return 0;
  const Gid to = gid_of(destination);
  size_t best = 0;
  for (uint32_t i = 0; i < std::min(devices.network.count, kMaxGids); ++i) {
    const Gid& own = devices.network.addresses[i];
    const Address candidate = address_of(own);
    const auto alike =
        static_cast<size_t>(std::mismatch(to.begin(), to.end(), own.begin()).first - to.begin()) + 1;
    if (candidate.family() != destination.family() || alike <= best) continue;
    best = alike;
    *source = candidate;
  }
  return best != 0 ? 0 : ENETUNREACH;
}

int ib_source(const DeviceTable& devices, const Address& destination, Address* source) {
  const SockaddrIb to = destination.ib();
  Place found;
  if (!first_place(devices, &found)) return ENODEV;
  const auto in_subnet = [&](const Gid& gid) {
    return std::equal(to.address.begin(), to.address.begin() + 8, gid.begin());
  };
  find_first(devices, kAnyDevice, in_subnet, &found);
  *source = ib_address_of(found.gid, 0, ntohs(to.pkey));
  return 0;
}

}  // namespace

// ---- the type --------------------------------------------------------------------------------------------

sa_family_t Address::family() const {
  sa_family_t family;
  std::memcpy(&family, bytes.data(), sizeof family);
  return family;
}

socklen_t Address::size() const {
  switch (family()) {
    case AF_INET:
      return sizeof(sockaddr_in);
    case AF_INET6:
      return sizeof(sockaddr_in6);
    case kFamilyIb:
      return sizeof(SockaddrIb);
    default:
      return 0;
  }
}

sockaddr_in Address::in4() const { return as<sockaddr_in>(*this); }
sockaddr_in6 Address::in6() const { return as<sockaddr_in6>(*this); }
SockaddrIb Address::ib() const { return as<SockaddrIb>(*this); }

Address Address::of(const sockaddr_in& in) {
  sockaddr_in full = in;
  full.sin_family = AF_INET;
  std::memset(full.sin_zero, 0, sizeof full.sin_zero);
  return from(full);
}
Address Address::of(const sockaddr_in6& in) {
  sockaddr_in6 full = in;
  full.sin6_family = AF_INET6;
  return from(full);
}
Address Address::of(const SockaddrIb& ib) {
  SockaddrIb full = ib;
  full.family = kFamilyIb;
  return from(full);
}

bool read_address(const sockaddr* given, Address* out) {
  *out = Address{};
  if (given == nullptr) return false;
  Address probe;
  std::memcpy(probe.bytes.data(), &given->sa_family, sizeof given->sa_family);
  const socklen_t size = probe.size();
  if (size == 0) return false;
  std::memcpy(out->bytes.data(), given, size);
  if (out->family() == AF_INET) *out = Address::of(out->in4());
  return true;
}

void write_address(const Address& a, sockaddr_storage* out) {
  std::memset(out, 0, sizeof *out);
  std::memcpy(out, a.bytes.data(), a.bytes.size());
}

// ---- ports, scopes, kinds ----

uint16_t port_of(const Address& a) {
  switch (a.family()) {
    case AF_INET:
      return ntohs(a.in4().sin_port);
    case AF_INET6:
      return ntohs(a.in6().sin6_port);
    case kFamilyIb:
      return static_cast<uint16_t>(be64toh(a.ib().sid) & be64toh(a.ib().sid_mask));
    default:
      return 0;
  }
}

void set_port(Address* a, uint16_t port) {
  if (a->family() == AF_INET) {
    sockaddr_in in = a->in4();
    in.sin_port = htons(port);
    *a = Address::of(in);
  } else if (a->family() == AF_INET6) {
    sockaddr_in6 in = a->in6();
    in.sin6_port = htons(port);
    *a = Address::of(in);
  } else if (a->family() == kFamilyIb) {
    SockaddrIb ib = a->ib();
    const uint64_t space = be64toh(ib.sid) & be64toh(ib.sid_mask) & kSpaceMask;
    ib.sid = htobe64(space | port);
    ib.sid_mask = ~uint64_t{0};
    *a = Address::of(ib);
  }
}

void set_scope(Address* a, uint32_t scope_id) {
  if (a->family() != AF_INET6) return;
  sockaddr_in6 in = a->in6();
  in.sin6_scope_id = scope_id;
  *a = Address::of(in);
}

bool is_zero(const Address& a) {
  if (a.family() == AF_INET) return a.in4().sin_addr.s_addr == 0;
  return host_gid(a) == Gid{};
}

bool is_loopback(const Address& a) {
  if (a.family() == AF_INET) return ntohl(a.in4().sin_addr.s_addr) >> 24 == 127;
  return host_gid(a) == kLoopbackGid;
}

bool is_any(const Address& a) { return is_zero(a) || is_loopback(a); }

bool is_link_local(const Address& a) {
  if (a.family() != AF_INET6) return false;
  const Gid host = gid_of(a);
  return host[0] == 0xfe && (host[1] & 0xc0) == 0x80;
}

bool is_multicast(const Address& a) {
  if (a.family() == AF_INET) return ntohl(a.in4().sin_addr.s_addr) >> 28 == 14;
  return !a.none() && gid_of(a)[0] == 0xff;
}

int check_scope(const Address& a) { return is_link_local(a) && a.in6().sin6_scope_id == 0 ? EINVAL : 0; }

bool same_host(const Address& a, const Address& b) {
  if (a.family() != b.family() || host_gid(a) != host_gid(b)) return false;
  return !is_link_local(a) || a.in6().sin6_scope_id == b.in6().sin6_scope_id;
}

Address wildcard_like(const Address& a) {
  Address zero;
  std::copy_n(a.bytes.begin(), sizeof(sa_family_t), zero.bytes.begin());
  return zero;
}

Address loopback_like(const Address& a) {
  if (a.family() == AF_INET) {
    sockaddr_in in = a.in4();
    in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return Address::of(in);
  }
  if (a.family() == AF_INET6) {
    sockaddr_in6 in = a.in6();
    in.sin6_addr = in6addr_loopback;
    return Address::of(in);
  }
  if (a.family() == kFamilyIb) {
    SockaddrIb ib = a.ib();
    ib.address = kLoopbackGid;
    return Address::of(ib);
  }
  return a;
}

// ---- GIDs and service ids ----

Gid gid_of(const Address& a) {
  Gid gid{};
  if (a.family() == AF_INET) {
    const sockaddr_in in = a.in4();
    gid[10] = gid[11] = 0xff;
    std::memcpy(&gid[12], &in.sin_addr, 4);
  } else if (a.family() == AF_INET6) {
    const sockaddr_in6 in = a.in6();
    std::memcpy(gid.data(), &in.sin6_addr, 16);
  } else if (a.family() == kFamilyIb) {
    gid = a.ib().address;
  }
  return gid;
}

Address address_of(const Gid& gid) {
  in6_addr host;
  std::memcpy(&host, gid.data(), 16);
  if (IN6_IS_ADDR_V4MAPPED(&host)) {
    sockaddr_in in{};
    std::memcpy(&in.sin_addr, &gid[12], 4);
    return Address::of(in);
  }
  sockaddr_in6 in{};
  in.sin6_addr = host;
  return Address::of(in);
}

Address ib_address_of(const Gid& gid, uint64_t sid, uint16_t pkey) {
  SockaddrIb ib{};
  ib.address = gid;
  ib.sid = htobe64(sid);
  ib.sid_mask = ~uint64_t{0};
  ib.pkey = htons(pkey);
  return Address::of(ib);
}

uint64_t service_id(PortSpace space, const Address& a) {
  if (a.family() == kFamilyIb) return be64toh(a.ib().sid);
  return service_base(space) + port_of(a);
}

bool select_space(PortSpace space, Address* a, PortSpace* bound) {
  if (a->family() != kFamilyIb) {
    *bound = space;
    return name_of(space) != "?";
  }
  SockaddrIb ib = a->ib();
  const uint64_t mask = be64toh(ib.sid_mask) & kSpaceMask;
  const uint64_t sid = be64toh(ib.sid) & mask;
  for (const IbSpace& candidate : kIbSpaces) {
    const uint64_t base = service_base(candidate.bound);
    if ((space != PortSpace::kIb && space != candidate.also_of) || sid != (base & mask)) continue;
    ib.sid = htobe64(base | port_of(*a));
    ib.sid_mask |= htobe64(kSpaceMask);
    *a = Address::of(ib);
    *bound = candidate.bound;
    return true;
  }
  return false;
}

// ---- devices ----

bool find_gid(const DeviceTable& devices, const Gid& gid, uint32_t device, Place* out) {
  return find_first(devices, device, [&](const Gid& other) { return other == gid; }, out);
}

bool is_remote(const DeviceTable& devices, const Address& a) {
  if (devices.network.enabled == 0 || (a.family() != AF_INET && a.family() != AF_INET6)) return false;
  if (is_zero(a) || is_multicast(a) || is_link_local(a) || same_host(a, loopback_like(a))) return false;
  Place own;
  return !find_gid(devices, gid_of(a), kAnyDevice, &own);
}

bool find_place(const DeviceTable& devices, const Address& a, Place* out) {
  if (is_zero(a) || device_count(devices) == 0 || is_remote(devices, a)) return false;
  if (is_loopback(a) && find_gid(devices, gid_of(a), kAnyDevice, out)) return true;
  if (is_loopback(a)) return find_gid(devices, kIpv4Loopback, kAnyDevice, out) || first_place(devices, out);
  if (find_gid(devices, gid_of(a), kAnyDevice, out)) return true;
  const bool without_gid = is_link_local(a) || devices.devices[0].link_layer == LinkLayer::kInfiniband;
  return without_gid && is_of_machine(a) && first_place(devices, out);
}

bool is_of_machine(const Address& a) {
  if (a.family() != AF_INET && a.family() != AF_INET6) return false;
  if (is_zero(a) || is_multicast(a)) return false;
  const RouteQuery machine(a.family());
  Address local = a;
  set_port(&local, 0);
  return machine.error() == 0 && machine.bind_to(local) == 0;
}

int choose_source(const DeviceTable& devices, const Address& destination, Address* source) {
  if (const int error = check_scope(destination); error != 0) return error;
  if (is_remote(devices, destination)) return remote_source(devices, destination, source);
  if (is_any(destination)) {
    *source = loopback_like(wildcard_like(destination));
    return destination.none() ? EINVAL : 0;
  }
  return destination.family() == kFamilyIb ? ib_source(devices, destination, source)
                                           : route_source(destination, source);
}

// ---- for people ----

std::string to_text(const Gid& gid) {
  char text[INET6_ADDRSTRLEN] = "?";
  inet_ntop(AF_INET6, gid.data(), text, sizeof text);
  return text;
}

std::string to_text(const Address& a) {
  char text[128] = "-";
  if (a.family() == AF_INET) {
    char host[INET_ADDRSTRLEN] = "?";
    const sockaddr_in in = a.in4();
    inet_ntop(AF_INET, &in.sin_addr, host, sizeof host);
    std::snprintf(text, sizeof text, "%s:%u", host, port_of(a));
  } else if (a.family() == AF_INET6) {
    const uint32_t scope = a.in6().sin6_scope_id;
    const std::string zone = scope != 0 ? "%" + std::to_string(scope) : "";
    std::snprintf(text, sizeof text, "[%s%s]:%u", to_text(gid_of(a)).c_str(), zone.c_str(), port_of(a));
  } else if (a.family() == kFamilyIb) {
    std::snprintf(text, sizeof text, "[%s]:0x%llx (ib)", to_text(gid_of(a)).c_str(),
                  static_cast<unsigned long long>(be64toh(a.ib().sid)));
  }
  return text;
}

std::string_view name_of(PortSpace space) {
  switch (space) {
    case PortSpace::kIpoib:
      return "IPOIB";
    case PortSpace::kTcp:
      return "TCP";
    case PortSpace::kUdp:
      return "UDP";
    case PortSpace::kIb:
      return "IB";
  }
  return "?";
}

}  // namespace verbena::cm
