// SPDX-License-Identifier: BSD-2-Clause
//
// Path records: the results of rdma_resolve_route(3). On Ethernet they are derived from the addresses, as in
// Linux (cma.c: cma_resolve_iboe_route). On the InfiniBand link layer they are what a subnet administrator
// would return (IBA 15.2.5.16 PathRecord). Pure functions. Integers are in host byte order here; the
// converted formats have their own.
#pragma once

#include <infiniband/verbs.h>
#include <rdma/ib_user_sa.h>

#include <cstdint>

#include "cm/addresses.h"
#include "fabric/device_table.h"

namespace verbena::cm {

inline constexpr uint8_t kRocePacketLifeTime = 16;  // CMA_IBOE_PACKET_LIFETIME: 4.096 us * 2^16 = 0.27 s
inline constexpr uint8_t kIbPacketLifeTime = 18;    // OpenSM's default (subnet_timeout)
inline constexpr uint8_t kSelectEqual = 2;          // IB_SA_EQ
inline constexpr uint16_t kDefaultPkey = 0xffff;

struct Path {
  Gid sgid, dgid;
  uint16_t slid, dlid;
  uint64_t service_id;
  uint32_t flow_label;
  uint16_t pkey;
  uint16_t qos_class;
  uint8_t hop_limit;
  uint8_t traffic_class;
  uint8_t sl;
  uint8_t mtu;   // enum ibv_mtu
  uint8_t rate;  // enum ibv_rate; IBV_RATE_MAX (0): the port's own (IB_RATE_PORT_CURRENT)
  uint8_t packet_life_time;
  uint8_t mtu_selector, rate_selector, packet_life_time_selector;
  uint8_t numb_path;
  uint8_t preference;
  bool reversible;
  bool raw_traffic;
  friend bool operator==(const Path&, const Path&) = default;
};

// The facts that a path is derived from.
struct PathFacts {
  LinkLayer link_layer;
  Gid sgid, dgid;
  uint16_t slid, dlid;   // InfiniBand link layer
  uint8_t mtu;           // enum ibv_mtu: the smaller of both ports' active MTU
  uint8_t service_type;  // RDMA_OPTION_ID_TOS, or 0
  uint8_t ack_timeout;   // RDMA_OPTION_ID_ACK_TIMEOUT, or 0: not set
  bool on_one_link;      // AF_IB, or an address of this machine's own links: hop limit 1
  bool ipv6;             // the addresses' family: determines the position of the service type on InfiniBand
  uint64_t service_id;
};
PathFacts path_facts(const DeviceDescription& source, const Place& from, const DeviceDescription& destination,
                     const Place& to);  // service type, timeout and service id: 0
Path make_path(const PathFacts& facts);

// RDMA_USER_CM_CMD_QUERY_ROUTE (struct ib_user_path_rec; ib_copy_path_rec_to_user).
ib_user_path_rec to_user(const Path& path);

// RDMA_USER_CM_QUERY_PATH: struct ibv_path_data with a packed PathRecord (IBA 15.2.5.16). Flags:
// IB_PATH_GMP | IB_PATH_PRIMARY | IB_PATH_BIDIRECTIONAL.
ib_path_rec_data to_data(const Path& path);

// RDMA_OPTION_IB_PATH: the first of `paths` with exactly those flags (ucma_set_ib_path). EINVAL: there is
// none, its MTU or rate is not in the enumerations, or its MTU is above `max_mtu`.
int read_path(const ib_path_rec_data* paths, size_t count, uint8_t max_mtu, Path* out);

// The address vector of the path (ib_init_ah_attr_from_path): with a GRH always on Ethernet, and on
// InfiniBand if hop_limit > 1. `gid_index` and `port`: of the path's sgid.
ibv_ah_attr address_vector(const Path& path, LinkLayer link_layer, uint32_t gid_index, uint8_t port);

// The path from the other end, for the accepting side (cm_format_paths_from_req of a reversible path).
Path reversed(const Path& path);

// Local ACK timeout (log2, in 4.096 us; IBA 12.7.34) of a path to a CA with this ack delay (cm.c:
// cm_ack_timeout).
uint8_t ack_timeout_of(uint8_t packet_life_time, uint8_t ca_ack_delay);

}  // namespace verbena::cm
