// SPDX-License-Identifier: BSD-2-Clause
#include "fabric/device_limits.h"

#include <algorithm>
#include <climits>

#include "adapter/layout.h"
#include "fabric/device_table.h"
#include "fabric/flow_table.h"
#include "fabric/multicast_table.h"
#include "fabric/xrc_domains.h"

namespace verbena {
namespace {

using L = DeviceLimits;

// ibv_device_attr has type int for most of them.
constexpr uint64_t kInt = INT_MAX;
// Regions and windows share one table of keys. Its entry 0 is never used.
constexpr uint64_t kKeys = kMaxMrsPerProcess - 1;
// The receive queues of UD QPs lie in the table of the SRQs (SharedSrq).
constexpr uint64_t kSharedQueues = kMaxSrqsPerProcess;
// A queue's memory is reserved from its creation on.
constexpr uint64_t kWr = 1u << 20;
constexpr uint64_t kSge = 60;  // PeerAdapter::kMaxRanges, less what a message is split into

// Every device of a node can use its full number of entries in the node's table. The table is searched with
// every attachment.
constexpr uint64_t kGroupMembers = 512;
static_assert(kGroupMembers * kMaxDevices <= kMulticastEntries);

// The same for flow rules, all of which a sender of frames looks at.
constexpr uint64_t kFlows = kFlowEntries / kMaxDevices;

// The same for handles of XRC domains.
constexpr uint64_t kXrcDomains = kMaxXrcDomainHandles / kMaxDevices;

constexpr Limit kLimits[] = {
    {"max_qp", &L::max_qp, 1, kMaxQpsPerProcess},
    {"max_cq", &L::max_cq, 1, kMaxCqsPerProcess},
    {"max_mr", &L::max_mr, 1, kKeys},
    {"max_mw", &L::max_mw, 0, kKeys},
    {"max_pd", &L::max_pd, 1, kInt},
    {"max_ah", &L::max_ah, 0, kInt},
    {"max_srq", &L::max_srq, 0, kSharedQueues},
    {"max_xrcd", &L::max_xrcd, 0, kXrcDomains},
    {"max_mcast_grp", &L::max_mcast_grp, 0, kGroupMembers},
    {"max_total_mcast_qp_attach", &L::max_total_mcast_qp_attach, 0, kGroupMembers},
    {"max_flow", &L::max_flow, 0, kFlows},
    {"max_res_rd_atom", &L::max_res_rd_atom, 1, kInt},
    {"max_qp_wr", &L::max_qp_wr, 1, kWr},
    {"max_sge", &L::max_sge, 1, kSge},
    {"max_sge_rd", &L::max_sge_rd, 1, kSge},
    {"max_inline_data", &L::max_inline_data, 0, 4096},
    {"max_cqe", &L::max_cqe, 1, 4u << 20},
    {"max_mr_size", &L::max_mr_size, 4096, UINT64_MAX},
    {"max_srq_wr", &L::max_srq_wr, 0, kWr},
    {"max_srq_sge", &L::max_srq_sge, 0, kSge},
    {"max_num_tags", &L::max_num_tags, 0, 4096},
    {"max_tag_ops", &L::max_tag_ops, 0, kWr},
    {"max_qp_rd_atom", &L::max_qp_rd_atom, 0, UINT8_MAX},
    {"max_qp_init_rd_atom", &L::max_qp_init_rd_atom, 0, UINT8_MAX},
    {"max_mcast_qp_attach", &L::max_mcast_qp_attach, 0, 240},
    {"max_dm_size", &L::max_dm_size, 0, 1u << 30},
    {"max_msg_sz", &L::max_msg_sz, 256, 1u << 31},  // InfiniBand 1.5, 9.7.1.5.1: at most 2^31 bytes
    {"active_mtu", &L::active_mtu, 256, 4096},
    {"qp_rate_limit_min", &L::qp_rate_limit_min, 0, UINT32_MAX},
    {"qp_rate_limit_max", &L::qp_rate_limit_max, 0, UINT32_MAX},
    {"vendor_id", &L::vendor_id, 0, UINT32_MAX},
    {"vendor_part_id", &L::vendor_part_id, 0, UINT32_MAX},
    {"hw_ver", &L::hw_ver, 0, UINT32_MAX},
};

struct Rule {
  uint64_t DeviceLimits::*field;
  bool (*broken)(const DeviceLimits&);
  const char* text;
};

constexpr Rule kRules[] = {
    {&L::active_mtu, [](const L& l) { return (l.active_mtu & (l.active_mtu - 1)) != 0; },
     "active_mtu is 256, 512, 1024, 2048 or 4096"},
    {&L::max_sge_rd, [](const L& l) { return l.max_sge_rd > l.max_sge; }, "max_sge_rd is at most max_sge"},
    {&L::max_mw, [](const L& l) { return l.max_mr + l.max_mw > kKeys; },
     "max_mr and max_mw are together more than there are keys"},
    {&L::max_srq, [](const L& l) { return l.max_srq + l.max_qp > kSharedQueues; },
     "max_srq and max_qp are together at most 131072"},
    {&L::max_srq_wr, [](const L& l) { return (l.max_srq == 0) != (l.max_srq_wr == 0); },
     "max_srq_wr is 0 when max_srq is, and only then"},
    {&L::max_srq_sge, [](const L& l) { return (l.max_srq == 0) != (l.max_srq_sge == 0); },
     "max_srq_sge is 0 when max_srq is, and only then"},
    {&L::max_tag_ops, [](const L& l) { return (l.max_num_tags == 0) != (l.max_tag_ops == 0); },
     "max_tag_ops is 0 when max_num_tags is, and only then"},
    {&L::max_res_rd_atom, [](const L& l) { return l.max_res_rd_atom < l.max_qp_rd_atom; },
     "max_res_rd_atom is at least max_qp_rd_atom"},
    {&L::qp_rate_limit_min,
     [](const L& l) {
       return l.qp_rate_limit_min > l.qp_rate_limit_max ||
              (l.qp_rate_limit_min == 0) != (l.qp_rate_limit_max == 0);
     },
     "qp_rate_limit_min is 1 to qp_rate_limit_max, or both are 0"},
};

static_assert(kSharedQueues == 131072, "the rule's text says so");

}  // namespace

std::span<const Limit> all_limits() { return kLimits; }

const char* check_limits(const DeviceLimits& limits, const Limit** field) {
  for (const Rule& rule : kRules) {
    if (!rule.broken(limits)) continue;
    *field = std::find_if(std::begin(kLimits), std::end(kLimits),
                          [&](const Limit& limit) { return limit.value == rule.field; });
    return rule.text;
  }
  return nullptr;
}

uint64_t fingerprint(const DeviceLimits& limits) {
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  const auto add = [&](uint8_t byte) { hash = (hash ^ byte) * 0x100000001b3; };
  for (const char c : limits.profile) add(static_cast<uint8_t>(c));
  for (const Limit& limit : kLimits)
    for (unsigned shift = 0; shift < 64; shift += 8) add(static_cast<uint8_t>(limits.*limit.value >> shift));
  return hash;
}

}  // namespace verbena
