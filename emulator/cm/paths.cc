// SPDX-License-Identifier: BSD-2-Clause
#include "cm/paths.h"

#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <infiniband/sa.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace verbena::cm {
namespace {

static_assert(sizeof(ibv_path_record) == sizeof(ib_path_rec_data::path_rec));

constexpr uint32_t kPathFlags = IB_PATH_GMP | IB_PATH_PRIMARY | IB_PATH_BIDIRECTIONAL;
// The default of ip_default_ttl. In Linux addr.c takes the TTL from the route.
constexpr uint8_t kHopsOfRoutes =
    64;
constexpr uint8_t kReversible = 0x80;

bool known_mtu(uint8_t mtu) { return mtu >= IBV_MTU_256 && mtu <= IBV_MTU_4096; }
bool known_rate(uint8_t rate) { return rate == IBV_RATE_MAX || (rate >= 2 && rate <= IBV_RATE_1200_GBPS); }

Path unpack(const ibv_path_record& record) {
  Path path{};
  std::memcpy(path.dgid.data(), record.dgid.raw, 16);
  std::memcpy(path.sgid.data(), record.sgid.raw, 16);
  path.service_id = be64toh(record.service_id);
  path.dlid = ntohs(record.dlid);
  path.slid = ntohs(record.slid);
  const uint32_t flow_and_hops = ntohl(record.flowlabel_hoplimit);
  path.flow_label = flow_and_hops >> 8 & 0xfffff;
  path.hop_limit = static_cast<uint8_t>(flow_and_hops);
  path.raw_traffic = flow_and_hops >> 31 != 0;
  path.traffic_class = record.tclass;
  path.reversible = (record.reversible_numpath & kReversible) != 0;
  path.numb_path = record.reversible_numpath & 0x7f;
  path.pkey = ntohs(record.pkey);
  const uint16_t qos_and_sl = ntohs(record.qosclass_sl);
  path.qos_class = qos_and_sl >> 4;
  path.sl = qos_and_sl & 0xf;
  path.mtu_selector = record.mtu >> 6;
  path.mtu = record.mtu & 0x3f;
  path.rate_selector = record.rate >> 6;
  path.rate = record.rate & 0x3f;
  path.packet_life_time_selector = record.packetlifetime >> 6;
  path.packet_life_time = record.packetlifetime & 0x3f;
  path.preference = record.preference;
  return path;
}

ibv_path_record pack(const Path& path) {
  ibv_path_record record{};
  std::memcpy(record.dgid.raw, path.dgid.data(), 16);
  std::memcpy(record.sgid.raw, path.sgid.data(), 16);
  record.service_id = htobe64(path.service_id);
  record.dlid = htons(path.dlid);
  record.slid = htons(path.slid);
  record.flowlabel_hoplimit =
      htonl(uint32_t{path.raw_traffic} << 31 | (path.flow_label & 0xfffff) << 8 | uint32_t{path.hop_limit});
  record.tclass = path.traffic_class;
  record.reversible_numpath =
      static_cast<uint8_t>((path.reversible ? kReversible : 0) | (path.numb_path & 0x7f));
  record.pkey = htons(path.pkey);
  record.qosclass_sl = htons(static_cast<uint16_t>(path.qos_class << 4 | (path.sl & 0xf)));
  record.mtu = static_cast<uint8_t>(path.mtu_selector << 6 | (path.mtu & 0x3f));
  record.rate = static_cast<uint8_t>(path.rate_selector << 6 | (path.rate & 0x3f));
  record.packetlifetime =
      static_cast<uint8_t>(path.packet_life_time_selector << 6 | (path.packet_life_time & 0x3f));
  record.preference = path.preference;
  return record;
}

}  // namespace

PathFacts path_facts(const DeviceDescription& source, const Place& from, const DeviceDescription& destination,
                     const Place& to) {
  PathFacts facts{};
  facts.link_layer = source.link_layer;
  facts.sgid = from.gid;
  facts.dgid = to.gid;
  facts.slid = static_cast<uint16_t>(source.port(from.port).lid);
  facts.dlid = static_cast<uint16_t>(destination.port(to.port).lid);
  facts.mtu = static_cast<uint8_t>(std::min(source.active_mtu, destination.active_mtu));
  return facts;
}

Path make_path(const PathFacts& facts) {
  const bool ethernet = facts.link_layer == LinkLayer::kEthernet;
  Path path{};
  path.sgid = facts.sgid;
  path.dgid = facts.dgid;
  path.service_id = facts.service_id;
  path.pkey = kDefaultPkey;
  path.mtu = facts.mtu;
  path.rate = IBV_RATE_MAX;
  path.mtu_selector = path.rate_selector = path.packet_life_time_selector = kSelectEqual;
  path.numb_path = 1;
  path.reversible = true;
  if (ethernet) {
    path.traffic_class = facts.service_type;
    path.hop_limit = facts.on_one_link ? 1 : kHopsOfRoutes;
    // The local ACK timeout is twice the packet life time (IBA 12.7.34), so the logarithm is one less.
    path.packet_life_time =
        facts.ack_timeout != 0 ? static_cast<uint8_t>(facts.ack_timeout - 1) : kRocePacketLifeTime;
    return path;
  }
  // On one subnet. The service type selects the quality of service (cma.c: cma_query_ib_route).
  path.slid = facts.slid;
  path.dlid = facts.dlid;
  path.hop_limit = 0;
  path.packet_life_time = kIbPacketLifeTime;
  if (facts.ipv6)
    path.traffic_class = facts.service_type;
  else
    path.qos_class = facts.service_type;
  return path;
}

ib_user_path_rec to_user(const Path& path) {
  ib_user_path_rec user{};
  std::memcpy(user.dgid, path.dgid.data(), 16);
  std::memcpy(user.sgid, path.sgid.data(), 16);
  user.dlid = htons(path.dlid);
  user.slid = htons(path.slid);
  user.raw_traffic = path.raw_traffic;
  user.flow_label = htonl(path.flow_label);
  user.reversible = path.reversible;
  user.mtu = path.mtu;
  user.pkey = htons(path.pkey);
  user.hop_limit = path.hop_limit;
  user.traffic_class = path.traffic_class;
  user.numb_path = path.numb_path;
  user.sl = path.sl;
  user.mtu_selector = path.mtu_selector;
  user.rate_selector = path.rate_selector;
  user.rate = path.rate;
  user.packet_life_time_selector = path.packet_life_time_selector;
  user.packet_life_time = path.packet_life_time;
  user.preference = path.preference;
  return user;
}

ib_path_rec_data to_data(const Path& path) {
  ib_path_rec_data data{};
  data.flags = kPathFlags;
  const ibv_path_record record = pack(path);
  std::memcpy(data.path_rec, &record, sizeof record);
  return data;
}

int read_path(const ib_path_rec_data* paths, size_t count, uint8_t max_mtu, Path* out) {
  const ib_path_rec_data* end = paths + count;
  const auto* chosen = std::find_if(paths, end, [](const auto& path) { return path.flags == kPathFlags; });
  if (chosen == end) return EINVAL;
  ibv_path_record record;
  std::memcpy(&record, chosen->path_rec, sizeof record);
  const Path path = unpack(record);
  if (!known_mtu(path.mtu) || path.mtu > max_mtu || !known_rate(path.rate)) return EINVAL;
  *out = path;
  return 0;
}

ibv_ah_attr address_vector(const Path& path, LinkLayer link_layer, uint32_t gid_index, uint8_t port) {
  const bool ethernet = link_layer == LinkLayer::kEthernet;
  ibv_ah_attr vector{};
  vector.dlid = ethernet ? uint16_t{0} : path.dlid;
  vector.sl = path.sl;
  vector.static_rate = path.rate;
  vector.port_num = port;
  if (!ethernet && path.hop_limit <= 1) return vector;
  vector.is_global = 1;
  std::memcpy(vector.grh.dgid.raw, path.dgid.data(), 16);
  vector.grh.sgid_index = static_cast<uint8_t>(gid_index);
  vector.grh.flow_label = path.flow_label;
  vector.grh.hop_limit = path.hop_limit;
  vector.grh.traffic_class = path.traffic_class;
  return vector;
}

Path reversed(const Path& path) {
  Path back = path;
  std::swap(back.sgid, back.dgid);
  std::swap(back.slid, back.dlid);
  return back;
}

uint8_t ack_timeout_of(uint8_t packet_life_time, uint8_t ca_ack_delay) {
  // 2 * life time + delay, rounded up to a power of two: the larger exponent, plus one if the other is close.
  const int flight = packet_life_time + 1;
  const int larger = std::max<int>(flight, ca_ack_delay);
  const int smaller = std::min<int>(flight, ca_ack_delay);
  const int exponent = larger + (smaller >= larger - 1 ? 1 : 0);
  return static_cast<uint8_t>(std::min(exponent, 31));
}

}  // namespace verbena::cm
