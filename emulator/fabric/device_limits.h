// SPDX-License-Identifier: BSD-2-Clause
//
// The limits of a device of the node: the numbers that ibv_query_device_ex(3) and ibv_query_port(3) report
// and that creation and execution enforce. They come from a profile (docs/PROFILES.md), lie in the node
// directory as part of the device's description, and never change while the node exists. The initial values
// below are the profile `default`.
//
// Each field has its name in <infiniband/verbs.h> and the type uint64_t, so that one table (kLimits) can give
// the allowed values of every field.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

namespace verbena {

struct DeviceLimits {
  std::array<char, 32> profile{'d', 'e', 'f', 'a', 'u', 'l', 't'};  // its name, zero-terminated

  // The number of objects on the device, over all processes of the node (engine/device/quota.h).
  uint64_t max_qp = 16384;
  uint64_t max_cq = 16384;
  uint64_t max_mr = (1u << 20) - 1;
  uint64_t max_mw = 1u << 20;
  uint64_t max_pd = 1u << 20;
  uint64_t max_ah = 1u << 20;
  uint64_t max_srq = 16384;
  uint64_t max_xrcd = 1024;  // ibv_query_device(3) does not say it
  uint64_t max_mcast_grp = 512;
  uint64_t max_total_mcast_qp_attach = 512;
  uint64_t max_flow = 128;  // flow rules; 0: no raw packet QPs either. ibv_query_device(3) does not say it
  uint64_t max_res_rd_atom = 16 * 16384;  // sum of max_dest_rd_atomic over the QPs

  // The capacity of one object.
  uint64_t max_qp_wr = 32768;
  uint64_t max_sge = 30;            // of a send and of a receive
  uint64_t max_sge_rd = 30;         // of an RDMA READ
  uint64_t max_inline_data = 1024;  // bytes; ibv_query_device(3) does not say it
  uint64_t max_cqe = 4u << 20;
  uint64_t max_mr_size = UINT64_MAX;  // bytes
  uint64_t max_srq_wr = 32768;
  uint64_t max_srq_sge = 30;
  uint64_t max_num_tags = 127;          // of an SRQ that matches tags; 0: none does
  uint64_t max_tag_ops = 8192;          // on its tags, that are not polled: tm_caps.max_ops
  uint64_t max_qp_rd_atom = 16;         // as responder
  uint64_t max_qp_init_rd_atom = 16;    // as initiator
  uint64_t max_mcast_qp_attach = 240;   // QPs in one group
  uint64_t max_dm_size = 256 * 1024;    // bytes, over all processes of the node
  uint64_t max_msg_sz = 1u << 30;       // bytes
  uint64_t active_mtu = 4096;           // bytes
  uint64_t qp_rate_limit_min = 1;               // kbps
  uint64_t qp_rate_limit_max = 100'000'000;     // kbps; 0: nothing paces

  // The identity of the device.
  uint64_t vendor_id = 0xffffff;  // RXE_VENDOR_ID: the value for an adapter without an IEEE company id
  uint64_t vendor_part_id = 0;
  uint64_t hw_ver = 1;

  bool operator==(const DeviceLimits&) const = default;
};

// The values that a profile may give one field. The upper bounds are what the emulator can support, so that
// every reported limit is true.
struct Limit {
  std::string_view name;
  uint64_t DeviceLimits::*value;
  uint64_t least, most;
};
std::span<const Limit> all_limits();

// Checks the rules between fields. nullptr: all are kept. Else the broken rule in one line, and *field is the
// field that breaks it.
const char* check_limits(const DeviceLimits& limits, const Limit** field);

// Equal limits, including the profile's name, have equal fingerprints. Different limits almost certainly have
// different ones.
uint64_t fingerprint(const DeviceLimits& limits);

}  // namespace verbena
