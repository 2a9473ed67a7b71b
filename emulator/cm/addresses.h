// SPDX-License-Identifier: BSD-2-Clause
//
// Addresses of the connection manager:
// - sockaddr_in, sockaddr_in6 and sockaddr_ib as one type,
// - what Linux' rdma_cm (drivers/infiniband/core/cma.c, addr.c, include/rdma/ib_addr.h) calls any, loopback
//   and equal,
// - service ids,
// - the device of the node that has an address.
// All functions are pure, except choose_source(), which asks the machine for its route. Ports and service ids
// are in host byte order.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <string>

#include "cm/cm.h"
#include "fabric/device_table.h"

namespace verbena::cm {

using Gid = std::array<uint8_t, 16>;  // network byte order

inline constexpr sa_family_t kFamilyIb = 27;  // AF_IB

// struct sockaddr_ib (librdmacm's infiniband/ib.h, Linux' rdma/ib.h). Network byte order, except scope_id.
struct SockaddrIb {
  sa_family_t family;
  uint16_t pkey;
  uint32_t flowinfo;
  Gid address;
  uint64_t sid;
  uint64_t sid_mask;
  uint64_t scope_id;
};
static_assert(sizeof(SockaddrIb) == 48);

// A sockaddr of one of the three families, or none (family 0, all zero). Bytes that a family does not use are
// zero.
struct Address {
  alignas(8) std::array<uint8_t, 48> bytes{};

  sa_family_t family() const;
  bool none() const { return family() == 0; }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(bytes.data()); }
  sockaddr* get() { return reinterpret_cast<sockaddr*>(bytes.data()); }
  socklen_t size() const;  // of its family's sockaddr; 0: none

  sockaddr_in in4() const;  // precondition: family() matches
  sockaddr_in6 in6() const;
  SockaddrIb ib() const;
  static Address of(const sockaddr_in& in);  // the family is set
  static Address of(const sockaddr_in6& in);
  static Address of(const SockaddrIb& ib);

  friend bool operator==(const Address&, const Address&) = default;  // every byte; see also same_host()
};
static_assert(sizeof(Address) == 48);

// Reads as many bytes as the family has. False: another family (EAFNOSUPPORT) or nullptr; `*out` is none.
bool read_address(const sockaddr* from, Address* out);
void write_address(const Address& from, sockaddr_storage* out);  // the rest is zero

uint16_t port_of(const Address& a);             // AF_IB: the low 16 bits of sid & sid_mask (cma_port)
void set_port(Address* a, uint16_t port);       // AF_IB: as cma_bind_port, the mask is all ones then
void set_scope(Address* a, uint32_t scope_id);  // of an IPv6 address; nothing else changes

bool is_zero(const Address& a);        // 0.0.0.0, ::, the zero GID; true for none
bool is_loopback(const Address& a);    // 127/8, ::1, the GID ::1
bool is_any(const Address& a);         // is_zero or is_loopback: cma_any_addr
bool is_link_local(const Address& a);  // fe80::/10 of IPv6
bool is_multicast(const Address& a);   // 224/4, ff00::/8

// EINVAL: a link-local IPv6 address without a scope (cma_check_linklocal).
int check_scope(const Address& a);

// True: the same family and host, whatever the port (cma_addr_cmp() == 0). Scopes count for link-local
// addresses.
bool same_host(const Address& a, const Address& b);

// The same family, zero host and port.
Address wildcard_like(const Address& a);
Address loopback_like(const Address& a);  // cma_set_loopback: 127.0.0.1, ::1; keeps the port

// ---- GIDs (rdma_ip2gid, rdma_gid2ip) --------------------------------------------------------------------

Gid gid_of(const Address& a);        // IPv4: ::ffff:a.b.c.d; IPv6 and AF_IB: the address itself
Address address_of(const Gid& gid);  // ::ffff:a.b.c.d: IPv4; else IPv6, of scope 0
Address ib_address_of(const Gid& gid, uint64_t service_id, uint16_t pkey);  // AF_IB, mask all ones

// ---- service ids (rdma_get_service_id; InfiniBand Annex A11, RDMA IP CM service) --------------------------

inline constexpr uint64_t kPortMask = 0xffff;  // RDMA_IB_IP_PORT_MASK

// The service id of (space, port of a). AF_IB: the address's own sid.
uint64_t service_id(PortSpace space, const Address& a);
constexpr PortSpace space_of_service(uint64_t sid) { return static_cast<PortSpace>(sid >> 16 & 0xffff); }
constexpr uint16_t port_of_service(uint64_t sid) { return static_cast<uint16_t>(sid & kPortMask); }

// The space in which an id of `space` binds its local address `a`. It is `space` itself. With AF_IB it is
// given by the sid and its mask (cma_select_ib_ps), which are then completed in `*a`. False: EPROTONOSUPPORT.
bool select_space(PortSpace space, Address* a, PortSpace* bound);

// ---- devices ---------------------------------------------------------------------------------------------

// The port and GID of an address on the node.
struct Place {
  uint32_t device;     // index in the device table
  uint8_t port;        // of the device, from 1
  uint32_t gid_index;  // index in the port's GID table
  Gid gid;             // the GID there: required as a path's sgid or dgid
};

// The port that has `a`, the first one if several have it. False (ENODEV): none, or is_zero(a).
// - A loopback address without a GID of its own belongs to every device: device 0, at the GID of 127.0.0.1 if
//   there is one, else at index 0. Exception: an address of another node.
// - Link-local IPv6 addresses of the machine have no GID of their own: device 0, index 0.
// - On the InfiniBand link layer the GID table has no IP addresses: each address of the machine
//   (is_of_machine) belongs to device 0, port 1, index 0.
// - AF_IB: the port that has the GID; the loopback GID as above.
bool find_place(const DeviceTable& devices, const Address& a, Place* out);

// True: this IP address belongs to another node. On a node with a network that is every address that is not
// the node's own. Of 127/8 and ::1, the addresses 127.0.0.1 and ::1 always name the node itself.
bool is_remote(const DeviceTable& devices, const Address& a);

// The place of a GID. `device`: kAnyDevice, or the only device to consider.
inline constexpr uint32_t kAnyDevice = 0xffffffff;
bool find_gid(const DeviceTable& devices, const Gid& gid, uint32_t device, Place* out);

// True: this IP address is one of the machine's own now. (bind(2) of a UDP socket accepts it.) AF_IB: false.
bool is_of_machine(const Address& a);

// The address from which the machine reaches `destination`, by its route (connect(2) of a UDP socket,
// getsockname(2)). The port is 0.
// - Zero and loopback destinations: the loopback address.
// - AF_IB: the first GID of the first device with the destination's subnet prefix, else of device 0.
// - Multicast groups have a source, too.
// 0, or an error of the machine: ENETUNREACH, EHOSTUNREACH, EINVAL (no scope), EADDRNOTAVAIL, ENODEV. Never
// blocks; not a cancellation point.
int choose_source(const DeviceTable& devices, const Address& destination, Address* source);

// ---- text for messages and `verbena status` ----

// "10.0.0.1:7471", "[fe80::1%2]:7471", "[fe80::1]:0x1060001 (ib)"; none: "-".
std::string to_text(const Address& a);
std::string to_text(const Gid& gid);
std::string_view name_of(PortSpace space);  // "TCP", "UDP", "IPOIB", "IB", "?"

}  // namespace verbena::cm
