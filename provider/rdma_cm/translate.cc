// SPDX-License-Identifier: BSD-2-Clause
#include "rdma_cm/translate.h"

#include <endian.h>
#include <infiniband/sa.h>

#include <algorithm>
#include <cstring>

#include "rdma_cm/addresses.h"

namespace verbena::rdma_cm {
namespace {

ib_uverbs_ah_attr to_response(const ibv_ah_attr& from) {
  ib_uverbs_ah_attr to = {};
  memcpy(to.grh.dgid, from.grh.dgid.raw, sizeof to.grh.dgid);
  to.grh.flow_label = from.grh.flow_label;
  to.grh.sgid_index = from.grh.sgid_index;
  to.grh.hop_limit = from.grh.hop_limit;
  to.grh.traffic_class = from.grh.traffic_class;
  to.dlid = from.dlid;
  to.sl = from.sl;
  to.src_path_bits = from.src_path_bits;
  to.static_rate = from.static_rate;
  to.is_global = from.is_global;
  to.port_num = from.port_num;
  return to;
}

template <typename Parameters>
void copy_private_data(const cm::PrivateData& from, Parameters* to) {
  memcpy(to->private_data, from.bytes, from.length);
  to->private_data_len = from.length;
}

template <typename Target>
void copy_address(const sockaddr_storage& from, size_t size, Target* to) {
  memcpy(to, &from, std::min(size, sizeof *to));
}

// ucma_query_route copies sizeof(sockaddr_in6) bytes of every address that is not a sockaddr_in.
size_t size_in_route(const sockaddr_storage& address) {
  return address.ss_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
}

// librdmacm compares the index with ibv_get_device_index(3). libibverbs knows one from netlink only, and not where
// the kernel lets no NETLINK_RDMA socket be made (boundary/netlink.h). So the reply has what librdmacm takes for "the kernel gives
// no index" (cma.c, UCMA_INVALID_IB_INDEX): it then goes by the GUID. Releases before 40 do so only if the
// reply has no index, later ones also if libibverbs has none.
constexpr uint32_t kNoIndex = UINT32_MAX;

void copy_device(const cm::Route& route, rdma_ucm_query_addr_resp* to) {
  if (!route.has_device) return;
  to->node_guid = route.node_guid;
  to->port_num = route.port;
  to->pkey = htobe16(route.pkey);
  to->ibdev_index = kNoIndex;
}

// rdma_get_service_id (cma.c): the port space and the port.
uint64_t service_id(const sockaddr_storage& address, cm::PortSpace space) {
  in_port_t port = 0;
  if (address.ss_family == AF_INET) port = reinterpret_cast<const sockaddr_in&>(address).sin_port;
  if (address.ss_family == AF_INET6) port = reinterpret_cast<const sockaddr_in6&>(address).sin6_port;
  return htobe64(uint64_t{static_cast<uint16_t>(space)} << 16 | be16toh(port));
}

template <typename Target>
uint16_t gid_address(const sockaddr_storage& address, const ibv_gid& gid, uint16_t pkey, cm::PortSpace space,
                     Target* to) {
  if (address.ss_family == AF_IB) {
    copy_address(address, sizeof(sockaddr_ib), to);
    return sizeof(sockaddr_ib);
  }
  sockaddr_ib written = {};
  written.sib_family = AF_IB;
  written.sib_pkey = pkey;
  memcpy(&written.sib_addr, gid.raw, sizeof gid.raw);
  written.sib_sid = service_id(address, space);
  memcpy(to, &written, sizeof written);
  return sizeof(sockaddr_ib);
}

}  // namespace

rdma_ucm_event_resp to_response(const cm::Event& event) {
  rdma_ucm_event_resp to = {};
  to.event = static_cast<uint32_t>(event.type);
  to.status = static_cast<uint32_t>(event.status);
  to.ece = {event.ece.vendor_id, event.ece.attr_mod};
  if (event.is_datagram) {
    const cm::DatagramParameters& from = event.datagram;
    copy_private_data(from.private_data, &to.param.ud);
    to.param.ud.ah_attr = to_response(from.address);
    to.param.ud.qp_num = from.qp_number;
    to.param.ud.qkey = from.qkey;
    return to;
  }
  const cm::ConnectionParameters& from = event.connection;
  copy_private_data(from.private_data, &to.param.conn);
  to.param.conn.responder_resources = from.responder_resources;
  to.param.conn.initiator_depth = from.initiator_depth;
  to.param.conn.flow_control = from.flow_control;
  to.param.conn.retry_count = from.retry_count;
  to.param.conn.rnr_retry_count = from.rnr_retry_count;
  to.param.conn.srq = from.srq ? 1 : 0;
  to.param.conn.qp_num = from.qp_number;
  return to;
}

ib_uverbs_qp_attr to_response(const ibv_qp_attr& from, int mask) {
  ib_uverbs_qp_attr to = {};
  to.qp_attr_mask = static_cast<uint32_t>(mask);
  to.qp_state = from.qp_state;
  to.cur_qp_state = from.cur_qp_state;
  to.path_mtu = from.path_mtu;
  to.path_mig_state = from.path_mig_state;
  to.qkey = from.qkey;
  to.rq_psn = from.rq_psn;
  to.sq_psn = from.sq_psn;
  to.dest_qp_num = from.dest_qp_num;
  to.qp_access_flags = from.qp_access_flags;
  to.ah_attr = to_response(from.ah_attr);
  to.alt_ah_attr = to_response(from.alt_ah_attr);
  to.max_send_wr = from.cap.max_send_wr;
  to.max_recv_wr = from.cap.max_recv_wr;
  to.max_send_sge = from.cap.max_send_sge;
  to.max_recv_sge = from.cap.max_recv_sge;
  to.max_inline_data = from.cap.max_inline_data;
  to.pkey_index = from.pkey_index;
  to.alt_pkey_index = from.alt_pkey_index;
  to.en_sqd_async_notify = from.en_sqd_async_notify;
  to.sq_draining = from.sq_draining;
  to.max_rd_atomic = from.max_rd_atomic;
  to.max_dest_rd_atomic = from.max_dest_rd_atomic;
  to.min_rnr_timer = from.min_rnr_timer;
  to.port_num = from.port_num;
  to.timeout = from.timeout;
  to.retry_cnt = from.retry_cnt;
  to.rnr_retry = from.rnr_retry;
  to.alt_port_num = from.alt_port_num;
  to.alt_timeout = from.alt_timeout;
  return to;
}

cm::PrivateData private_data(const uint8_t* bytes, uint8_t size) {
  cm::PrivateData data = {};
  memcpy(data.bytes, bytes, size);
  data.length = size;
  return data;
}

cm::ConnectionParameters from_request(const rdma_ucm_conn_param& from) {
  cm::ConnectionParameters to = {};
  to.qp_number = from.qp_num;
  to.qkey = from.qkey;
  to.private_data = private_data(from.private_data, from.private_data_len);
  to.srq = from.srq != 0;
  to.responder_resources = from.responder_resources;
  to.initiator_depth = from.initiator_depth;
  to.flow_control = from.flow_control;
  to.retry_count = from.retry_count;
  to.rnr_retry_count = from.rnr_retry_count;
  return to;
}

rdma_ucm_query_route_resp route_response(const cm::Route& route) {
  rdma_ucm_query_route_resp to = {};
  copy_address(route.source, size_in_route(route.source), &to.src_addr);
  copy_address(route.destination, size_in_route(route.destination), &to.dst_addr);
  if (!route.has_device) return to;
  to.node_guid = route.node_guid;
  to.port_num = route.port;
  to.ibdev_index = kNoIndex;
  to.num_paths = route.path_count;
  if (route.path_count == 0) {
    memcpy(to.ib_route[0].dgid, route.destination_gid.raw, sizeof to.ib_route[0].dgid);
    memcpy(to.ib_route[0].sgid, route.source_gid.raw, sizeof to.ib_route[0].sgid);
    to.ib_route[0].pkey = htobe16(route.pkey);
  }
  for (uint32_t i = 0; i < route.path_count && i < 2; ++i) to.ib_route[i] = route.paths[i];
  return to;
}

rdma_ucm_query_addr_resp address_response(const cm::Route& route) {
  rdma_ucm_query_addr_resp to = {};
  to.src_size = static_cast<uint16_t>(address_size(route.source.ss_family));
  copy_address(route.source, to.src_size, &to.src_addr);
  to.dst_size = static_cast<uint16_t>(address_size(route.destination.ss_family));
  copy_address(route.destination, to.dst_size, &to.dst_addr);
  copy_device(route, &to);
  return to;
}

rdma_ucm_query_addr_resp gid_response(const cm::Route& route, cm::PortSpace space) {
  rdma_ucm_query_addr_resp to = {};
  copy_device(route, &to);
  to.src_size = gid_address(route.source, route.source_gid, to.pkey, space, &to.src_addr);
  to.dst_size = gid_address(route.destination, route.destination_gid, to.pkey, space, &to.dst_addr);
  return to;
}

// ib_sa_pack_path: the PathRecord attribute in wire format (InfiniBand Architecture Specification, volume 1,
// 15.2.5.16).
ib_path_rec_data path_response(const ib_user_path_rec& path) {
  ibv_path_record record = {};
  memcpy(record.dgid.raw, path.dgid, sizeof path.dgid);
  memcpy(record.sgid.raw, path.sgid, sizeof path.sgid);
  record.dlid = path.dlid;
  record.slid = path.slid;
  record.flowlabel_hoplimit = htobe32((be32toh(path.flow_label) & 0xfffff) << 8 | path.hop_limit);
  record.tclass = path.traffic_class;
  record.reversible_numpath =
      static_cast<uint8_t>((path.reversible != 0 ? 0x80 : 0) | (path.numb_path & 0x7f));
  record.pkey = path.pkey;
  record.qosclass_sl = htobe16(path.sl & 0xf);
  record.mtu = static_cast<uint8_t>(path.mtu_selector << 6 | (path.mtu & 0x3f));
  record.rate = static_cast<uint8_t>(path.rate_selector << 6 | (path.rate & 0x3f));
  record.packetlifetime =
      static_cast<uint8_t>(path.packet_life_time_selector << 6 | (path.packet_life_time & 0x3f));
  record.preference = path.preference;

  ib_path_rec_data to = {};
  static_assert(sizeof to.path_rec == sizeof record);
  to.flags = IB_PATH_GMP | IB_PATH_PRIMARY | IB_PATH_BIDIRECTIONAL;
  memcpy(to.path_rec, &record, sizeof record);
  return to;
}

}  // namespace verbena::rdma_cm
