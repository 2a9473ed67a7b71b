// SPDX-License-Identifier: BSD-2-Clause
#include "engine/rules/device_attributes.h"

#include <endian.h>
#include <unistd.h>

#include <cstring>

#include "adapter/layout.h"
#include "engine/rules/multicast_limits.h"

namespace verbena {
namespace {

// IB_UVERBS_DEVICE_ATOMIC_WRITE of the kernel's <rdma/ib_user_verbs.h>. libibverbs has no name for it.
constexpr uint64_t kCapAtomicWrite = uint64_t{1} << 40;

constexpr uint64_t kHashFields = IBV_RX_HASH_SRC_IPV4 | IBV_RX_HASH_DST_IPV4 | IBV_RX_HASH_SRC_IPV6 |
                                 IBV_RX_HASH_DST_IPV6 | IBV_RX_HASH_SRC_PORT_TCP | IBV_RX_HASH_DST_PORT_TCP |
                                 IBV_RX_HASH_SRC_PORT_UDP | IBV_RX_HASH_DST_PORT_UDP;

// Pages are resolved when they are accessed, on every transport.
void describe_paging(ibv_device_attr_ex* out) {
  constexpr uint32_t kSends = IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_SRQ_RECV;
  constexpr uint32_t kAll = kSends | IBV_ODP_SUPPORT_WRITE | IBV_ODP_SUPPORT_READ | IBV_ODP_SUPPORT_ATOMIC;
  out->odp_caps.general_caps = IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT;
  out->odp_caps.per_transport_caps.rc_odp_caps = kAll;
  out->odp_caps.per_transport_caps.uc_odp_caps = kSends | IBV_ODP_SUPPORT_WRITE;
  out->odp_caps.per_transport_caps.ud_odp_caps = kSends;
  out->xrc_odp_caps = kAll & ~uint32_t{IBV_ODP_SUPPORT_RECV};
}

int claimed(uint64_t limit) { return static_cast<int>(limit); }  // no limit is above INT_MAX (all_limits())

}  // namespace

void describe_device(const DeviceDescription& device, ibv_device_attr_ex* out) {
  *out = {};
  ibv_device_attr& attr = out->orig_attr;
  std::strncpy(attr.fw_ver, VERBENA_VERSION, sizeof attr.fw_ver - 1);
  attr.node_guid = htobe64(device.node_guid);
  attr.sys_image_guid = htobe64(device.node_guid);
  const DeviceLimits& limits = device.limits;
  attr.max_mr_size = limits.max_mr_size;
  attr.page_size_cap = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  // The defaults are no real vendor's ids: programs that know an adapter by its ids expect its private
  // features.
  attr.vendor_id = static_cast<uint32_t>(limits.vendor_id);
  attr.vendor_part_id = static_cast<uint32_t>(limits.vendor_part_id);
  attr.hw_ver = static_cast<uint32_t>(limits.hw_ver);
  attr.max_qp = claimed(limits.max_qp);
  attr.max_qp_wr = claimed(limits.max_qp_wr);
  attr.device_cap_flags = IBV_DEVICE_RC_RNR_NAK_GEN | IBV_DEVICE_CURR_QP_STATE_MOD |
                          IBV_DEVICE_SYS_IMAGE_GUID | IBV_DEVICE_N_NOTIFY_CQ | IBV_DEVICE_MEM_MGT_EXTENSIONS |
                          IBV_DEVICE_PORT_ACTIVE_EVENT | IBV_DEVICE_BAD_QKEY_CNTR |
                          IBV_DEVICE_BAD_PKEY_CNTR;
  // Migration needs two paths. The kernel refuses alternate paths on RoCE (verbs.c, _ib_modify_qp()).
  if (has_path_migration(device)) attr.device_cap_flags |= IBV_DEVICE_AUTO_PATH_MIG;
  if (limits.max_flow != 0 && device.link_layer == LinkLayer::kEthernet)
    attr.device_cap_flags |= IBV_DEVICE_MANAGED_FLOW_STEERING | IBV_DEVICE_RAW_IP_CSUM;
  if (limits.max_srq != 0) attr.device_cap_flags |= IBV_DEVICE_SRQ_RESIZE;
  if (limits.max_mw != 0) attr.device_cap_flags |= IBV_DEVICE_MEM_WINDOW | IBV_DEVICE_MEM_WINDOW_TYPE_2B;
  if (limits.max_xrcd != 0) attr.device_cap_flags |= IBV_DEVICE_XRC;
  attr.max_sge = claimed(limits.max_sge);
  attr.max_sge_rd = claimed(limits.max_sge_rd);
  attr.max_cq = claimed(limits.max_cq);
  attr.max_cqe = claimed(limits.max_cqe);
  attr.max_mr = claimed(limits.max_mr);
  attr.max_mw = claimed(limits.max_mw);
  attr.max_pd = claimed(limits.max_pd);
  attr.max_qp_rd_atom = claimed(limits.max_qp_rd_atom);
  attr.max_qp_init_rd_atom = claimed(limits.max_qp_init_rd_atom);
  attr.max_res_rd_atom = claimed(limits.max_res_rd_atom);
  attr.max_srq = claimed(limits.max_srq);
  attr.max_srq_wr = claimed(limits.max_srq_wr);
  attr.max_srq_sge = claimed(limits.max_srq_sge);
  attr.atomic_cap = limits.max_qp_rd_atom != 0 ? IBV_ATOMIC_HCA : IBV_ATOMIC_NONE;
  attr.max_ah = claimed(limits.max_ah);
  attr.max_mcast_grp = claimed(limits.max_mcast_grp);
  attr.max_mcast_qp_attach = claimed(limits.max_mcast_qp_attach);
  attr.max_total_mcast_qp_attach = claimed(limits.max_total_mcast_qp_attach);
  attr.max_pkeys = static_cast<uint16_t>(device.pkey_count);
  attr.local_ca_ack_delay = 0;
  attr.phys_port_cnt = static_cast<uint8_t>(device.count_ports());
  out->phys_port_cnt_ex = device.count_ports();
  out->device_cap_flags_ex = attr.device_cap_flags | kCapAtomicWrite;
  out->completion_timestamp_mask = UINT64_MAX;
  out->hca_core_clock = 1'000'000;  // kHz: adapter/clock.h counts nanoseconds
  out->cq_mod_caps = {.max_cq_count = UINT16_MAX, .max_cq_period = UINT16_MAX};
  out->max_dm_size = limits.max_dm_size;
  // The kernel's mlx5 sets this flag for devices that carry out a rendezvous by themselves (hw/mlx5/main.c).
  if (limits.max_num_tags != 0 && limits.max_srq != 0)
    out->tm_caps = {.max_rndv_hdr_size = kTagHeaderSize,
                    .max_num_tags = static_cast<uint32_t>(limits.max_num_tags),
                    .flags = IBV_TM_CAP_RC,
                    .max_ops = static_cast<uint32_t>(limits.max_tag_ops),
                    .max_sge = 1};
  if (limits.qp_rate_limit_max != 0)
    out->packet_pacing_caps = {.qp_rate_limit_min = static_cast<uint32_t>(limits.qp_rate_limit_min),
                               .qp_rate_limit_max = static_cast<uint32_t>(limits.qp_rate_limit_max),
                               .supported_qpts = 1u << IBV_QPT_RC | 1u << IBV_QPT_UC | 1u << IBV_QPT_UD |
                                                 (limits.max_xrcd != 0 ? 1u << IBV_QPT_XRC_SEND : 0)};
  // Work queues count as queue pairs (engine/queue_pair/work_queue.h).
  if (limits.max_flow != 0 && device.link_layer == LinkLayer::kEthernet) {
    out->max_wq_type_rq = static_cast<uint32_t>(limits.max_qp);
    out->raw_packet_caps = IBV_RAW_PACKET_CAP_IP_CSUM;
    out->rss_caps = {.supported_qpts = 1u << IBV_QPT_RAW_PACKET,
                     .max_rwq_indirection_tables = static_cast<uint32_t>(limits.max_qp),
                     .max_rwq_indirection_table_size = 512,
                     .rx_hash_fields_mask = kHashFields,
                     .rx_hash_function = IBV_RX_HASH_FUNC_TOEPLITZ};
  }
  describe_paging(out);
}

bool has_path_migration(const DeviceDescription& device) {
  return device.link_layer == LinkLayer::kInfiniband && (device.count_ports() > 1 || device.lmc != 0);
}

void describe_port(const DeviceDescription& device, uint32_t number, bool down, ibv_port_attr* attr) {
  const PortDescription& port = device.port(number);
  *attr = {};
  const bool infiniband = device.link_layer == LinkLayer::kInfiniband;
  attr->state = down ? IBV_PORT_DOWN : IBV_PORT_ACTIVE;
  attr->max_mtu = IBV_MTU_4096;
  attr->active_mtu = static_cast<ibv_mtu>(device.active_mtu);
  attr->gid_tbl_len = static_cast<int>(port.gid_count);
  attr->port_cap_flags = infiniband ? 0 : IBV_PORT_CM_SUP | IBV_PORT_IP_BASED_GIDS;
  attr->max_msg_sz = static_cast<uint32_t>(device.limits.max_msg_sz);
  attr->pkey_tbl_len = static_cast<uint16_t>(device.pkey_count);
  attr->lid = static_cast<uint16_t>(port.lid);
  attr->lmc = static_cast<uint8_t>(device.lmc);
  attr->max_vl_num = 1;
  attr->active_width = 2;                                 // 4X
  attr->active_speed = 64;                                // HDR lanes: 200 Gb/s
  attr->phys_state = down ? 3 : 5;                        // Disabled (as mlx5 without a carrier), LinkUp
  attr->link_layer = infiniband ? IBV_LINK_LAYER_INFINIBAND : IBV_LINK_LAYER_ETHERNET;
  // As the kernel for ports of RoCE (uverbs_std_types_device.c, copy_port_attr_to_resp();
  // include/rdma/ib_verbs.h, RDMA_CORE_CAP_IB_GRH_REQUIRED).
  attr->flags = infiniband ? 0 : IBV_QPF_GRH_REQUIRED;
}

AttributeLimits attribute_limits(const DeviceDescription& device) {
  AttributeLimits limits;
  limits.ports = static_cast<uint8_t>(device.count_ports());
  limits.link_layer =
      device.link_layer == LinkLayer::kInfiniband ? IBV_LINK_LAYER_INFINIBAND : IBV_LINK_LAYER_ETHERNET;
  limits.active_mtu = device.active_mtu;
  limits.pkeys = static_cast<uint16_t>(device.pkey_count);
  for (uint32_t i = 0; i < kMaxPorts; ++i) limits.gids[i] = static_cast<int>(device.ports[i].gid_count);
  limits.path_migration = has_path_migration(device);
  limits.max_rd_atomic = static_cast<uint8_t>(device.limits.max_qp_init_rd_atom);
  limits.rate_limit_min = static_cast<uint32_t>(device.limits.qp_rate_limit_min);
  limits.rate_limit_max = static_cast<uint32_t>(device.limits.qp_rate_limit_max);
  limits.max_dest_rd_atomic = static_cast<uint8_t>(device.limits.max_qp_rd_atom);
  return limits;
}

}  // namespace verbena
