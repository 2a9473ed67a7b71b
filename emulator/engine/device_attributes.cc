// SPDX-License-Identifier: BSD-2-Clause
#include "engine/device_attributes.h"

#include <endian.h>
#include <unistd.h>

#include <cstring>

#include "engine/multicast.h"

namespace verbena {
namespace {

// IB_UVERBS_DEVICE_ATOMIC_WRITE of the kernel's <rdma/ib_user_verbs.h>; libibverbs has no name of its own for it.
constexpr uint64_t kCapAtomicWrite = uint64_t{1} << 40;

// Pages are found when they are accessed, whatever the transport.
void describe_paging(ibv_device_attr_ex* out) {
  constexpr uint32_t kSends = IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_SRQ_RECV;
  constexpr uint32_t kAll =
      kSends | IBV_ODP_SUPPORT_WRITE | IBV_ODP_SUPPORT_READ | IBV_ODP_SUPPORT_ATOMIC;
  out->odp_caps.general_caps = IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT;
  out->odp_caps.per_transport_caps.rc_odp_caps = kAll;
  out->odp_caps.per_transport_caps.uc_odp_caps = kSends | IBV_ODP_SUPPORT_WRITE;
  out->odp_caps.per_transport_caps.ud_odp_caps = kSends;
  out->xrc_odp_caps = kAll & ~uint32_t{IBV_ODP_SUPPORT_RECV};
}

}  // namespace

void describe_device(const DeviceDescription& device, ibv_device_attr_ex* out) {
  *out = {};
  ibv_device_attr& attr = out->orig_attr;
  std::strncpy(attr.fw_ver, "0.1.0", sizeof attr.fw_ver - 1);
  attr.node_guid = htobe64(device.node_guid);
  attr.sys_image_guid = htobe64(device.node_guid);
  attr.max_mr_size = UINT64_MAX;
  attr.page_size_cap = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  // No vendor's numbers: programs that know an adapter by them would expect its private features.
  attr.vendor_id = 0;
  attr.vendor_part_id = 0;
  attr.hw_ver = 1;
  attr.max_qp = kMaxQps;
  attr.max_qp_wr = kMaxWr;
  attr.device_cap_flags = IBV_DEVICE_RC_RNR_NAK_GEN | IBV_DEVICE_CURR_QP_STATE_MOD | IBV_DEVICE_SYS_IMAGE_GUID |
                          IBV_DEVICE_N_NOTIFY_CQ | IBV_DEVICE_MEM_WINDOW | IBV_DEVICE_MEM_WINDOW_TYPE_2B |
                          IBV_DEVICE_MEM_MGT_EXTENSIONS | IBV_DEVICE_XRC;
  attr.max_sge = kMaxSge;
  attr.max_sge_rd = kMaxSge;
  attr.max_cq = kMaxCqs;
  attr.max_cqe = kMaxCqe;
  attr.max_mr = static_cast<int>(kMaxMrs);
  attr.max_mw = static_cast<int>(kMaxMws);
  attr.max_pd = kMaxPds;
  attr.max_qp_rd_atom = kMaxRdAtomic;
  attr.max_qp_init_rd_atom = kMaxRdAtomic;
  attr.max_res_rd_atom = kMaxRdAtomic * kMaxQps;
  attr.max_srq = kMaxSrqs;
  attr.max_srq_wr = kMaxWr;
  attr.max_srq_sge = kMaxSge;
  attr.atomic_cap = IBV_ATOMIC_HCA;
  attr.max_ah = 1 << 20;
  attr.max_mcast_grp = static_cast<int>(kMulticastLimits.groups);
  attr.max_mcast_qp_attach = static_cast<int>(kMulticastLimits.members_of_group);
  attr.max_total_mcast_qp_attach = static_cast<int>(kMulticastLimits.members);
  attr.max_pkeys = 1;
  attr.local_ca_ack_delay = 0;
  attr.phys_port_cnt = 1;
  out->phys_port_cnt_ex = 1;
  out->device_cap_flags_ex = attr.device_cap_flags | kCapAtomicWrite;
  out->completion_timestamp_mask = UINT64_MAX;
  out->hca_core_clock = 1'000'000;  // kHz: engine/clock.h counts nanoseconds
  out->cq_mod_caps = {.max_cq_count = UINT16_MAX, .max_cq_period = UINT16_MAX};
  out->max_dm_size = kMaxDeviceMemory;
  describe_paging(out);
}

void describe_port(const DeviceDescription& device, ibv_port_attr* attr) {
  *attr = {};
  const bool infiniband = device.link_layer == LinkLayer::kInfiniband;
  attr->state = IBV_PORT_ACTIVE;
  attr->max_mtu = IBV_MTU_4096;
  attr->active_mtu = static_cast<ibv_mtu>(device.active_mtu);
  attr->gid_tbl_len = static_cast<int>(device.gid_count);
  attr->port_cap_flags = infiniband ? 0 : IBV_PORT_CM_SUP | IBV_PORT_IP_BASED_GIDS;
  attr->max_msg_sz = kMaxMessage;
  attr->pkey_tbl_len = 1;
  attr->lid = static_cast<uint16_t>(device.lid);
  attr->max_vl_num = 1;
  attr->active_width = 2;   // 4X
  attr->active_speed = 64;  // HDR lanes: 200 Gb/s
  attr->phys_state = 5;     // LinkUp
  attr->link_layer = infiniband ? IBV_LINK_LAYER_INFINIBAND : IBV_LINK_LAYER_ETHERNET;
  attr->flags = 0;
}

AttributeLimits attribute_limits(const DeviceDescription& device) {
  AttributeLimits limits;
  limits.ports = 1;
  limits.link_layer = device.link_layer == LinkLayer::kInfiniband ? IBV_LINK_LAYER_INFINIBAND
                                                                   : IBV_LINK_LAYER_ETHERNET;
  limits.active_mtu = static_cast<ibv_mtu>(device.active_mtu);
  limits.pkeys = 1;
  limits.gids = static_cast<int>(device.gid_count);
  limits.max_rd_atomic = kMaxRdAtomic;
  limits.max_dest_rd_atomic = kMaxRdAtomic;
  return limits;
}

}  // namespace verbena
