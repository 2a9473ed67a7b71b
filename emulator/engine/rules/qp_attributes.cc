// SPDX-License-Identifier: BSD-2-Clause
#include "engine/rules/qp_attributes.h"

#include <cerrno>

#include "adapter/access_rules.h"
#include "engine/rules/program_enum.h"
#include "engine/rules/psn.h"
#include "engine/rules/qp_state_table.h"

// Where the sources differ, and what is done here:
// - timeout, retry_cnt, rnr_retry, min_rnr_timer above their 5 or 3 bits: refused. The specification gives
//   ranges (vol. 1, 11.2.5.2). mlx5 drops the excess bits silently; rxe refuses timeout > 31 and accepts the
//   others.
// - dest_qp_num above 24 bits: refused, since no such QP can exist. mlx5 drops the excess bits; rxe accepts
//   it.
// - PSNs above 24 bits: not refused. The kernel truncates them for every device, with a warning (verbs.c,
//   _ib_modify_qp()).
// - qp_access_flags: every IBV_ACCESS_ flag is accepted, other bits are refused. mlx5 reads the REMOTE_ bits
//   alone; rxe refuses unknown bits. Programs pass the flags of their ibv_reg_mr(3), and FLUSH rights to any
//   device (pyverbs).
// - path_mtu: a code from 256 to 4096 (mlx5), and not above the port's active MTU. rxe accepts codes up to
//   the port's max_mtu.
// - cur_qp_state: refused if the QP is in another state. The kernel believes it and looks up the transition
//   from there; the firmware of mlx5 then refuses.
// - Alternate path: refused on RoCE, as in the kernel (verbs.c, _ib_modify_qp(): EINVAL). On InfiniBand it
//   needs IBV_DEVICE_AUTO_PATH_MIG.
// - path_mig_state: MIGRATED is the state of every QP without migration, and accepted. REARM needs the
//   capability. ARMED is not for consumers to set (11.2.5.2).
// - SQD -> RTS while requests are still under way: refused, as in rxe (rxe_qp.c, __qp_chk_state()). mlx5
//   leaves it to the firmware.

namespace verbena {
namespace {

constexpr uint8_t kFiveBits = 31;
constexpr uint8_t kThreeBits = 7;
constexpr uint8_t kMaxServiceLevel = 15;
constexpr uint32_t kMaxQpn = 0xffffff;
constexpr uint32_t kPrivilegedQkey = 0x80000000;
constexpr uint16_t kFirstMulticastLid = 0xc000;
constexpr uint8_t kMulticastGidPrefix = 0xff;

constexpr unsigned kAccessFlags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                                  IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND | IBV_ACCESS_ZERO_BASED |
                                  IBV_ACCESS_ON_DEMAND | IBV_ACCESS_HUGETLB | IBV_ACCESS_OPTIONAL_RANGE |
                                  kAccessFlush;

struct AttributeRequest {
  const AttributeLimits& limits;
  const ibv_qp_attr& attr;
  int mask;
  bool migrates;  // the type of the QP has alternate paths here

  bool goes_to(ibv_qp_state state) const noexcept {
    return (mask & IBV_QP_STATE) != 0 && number_in(attr.qp_state) == state;
  }
};

bool exists_port(const AttributeLimits& limits, uint8_t port) noexcept {
  return port >= 1 && port <= limits.ports;
}

// One rule about the attributes `bits`. It applies only if all of them are in the mask.
struct Rule {
  int bits;
  bool (*holds)(const AttributeRequest&) noexcept;
  int refusal;
  const char* why;
  uint64_t (*value)(const ibv_qp_attr&) noexcept;  // the value that the rule is about
};

// In the order of the kernel's checks: uverbs (ports, states, Q_Key), then the driver.
constexpr Rule kRules[] = {
    {IBV_QP_PORT, [](const AttributeRequest& r) noexcept { return exists_port(r.limits, r.attr.port_num); }, EINVAL,
     "port_num is no port of the device",
     [](const ibv_qp_attr& a) noexcept -> uint64_t { return a.port_num; }},
    // uverbs_cmd.c, modify_qp(): in INIT -> RTR the address must be on the port chosen in RESET -> INIT.
    {IBV_QP_AV | IBV_QP_STATE,
     [](const AttributeRequest& r) noexcept {
       return !r.goes_to(IBV_QPS_RTR) || r.attr.ah_attr.port_num == r.limits.port;
     },
     EINVAL, "ah_attr.port_num is not the port that the QP was given in INIT",
     [](const ibv_qp_attr& a) noexcept -> uint64_t { return a.ah_attr.port_num; }},
    {IBV_QP_AV | IBV_QP_PORT,
     [](const AttributeRequest& r) noexcept { return r.attr.ah_attr.port_num == r.attr.port_num; }, EINVAL,
     "ah_attr.port_num and port_num differ",
     [](const ibv_qp_attr& a) noexcept -> uint64_t { return a.ah_attr.port_num; }},
    {IBV_QP_ALT_PATH, [](const AttributeRequest& r) noexcept { return exists_port(r.limits, r.attr.alt_port_num); },
     EINVAL, "alt_port_num is no port of the device",
     [](const ibv_qp_attr& a) noexcept -> uint64_t { return a.alt_port_num; }},
    {IBV_QP_ALT_PATH,
     [](const AttributeRequest& r) noexcept { return r.attr.alt_ah_attr.port_num == r.attr.alt_port_num; }, EINVAL,
     "alt_ah_attr.port_num and alt_port_num differ",
     [](const ibv_qp_attr& a) noexcept -> uint64_t { return a.alt_ah_attr.port_num; }},
    {IBV_QP_CUR_STATE,
     [](const AttributeRequest& r) noexcept { return number_in(r.attr.cur_qp_state) == r.limits.current_state; },
     EINVAL, "cur_qp_state is not the state that the QP is in",
     [](const ibv_qp_attr& a) noexcept -> uint64_t { return number_in(a.cur_qp_state); }},
    {IBV_QP_STATE,
     [](const AttributeRequest& r) noexcept {
       return !(r.limits.sq_draining && r.limits.current_state == IBV_QPS_SQD && r.goes_to(IBV_QPS_RTS));
     },
     EINVAL, "the send queue is still draining: RTS only after IBV_EVENT_SQ_DRAINED",
     [](const ibv_qp_attr& a) noexcept -> uint64_t { return number_in(a.qp_state); }},
    {IBV_QP_QKEY,
     [](const AttributeRequest& r) noexcept {
       return r.limits.privileged_qkey || (r.attr.qkey & kPrivilegedQkey) == 0;
     },
     EPERM, "a qkey with the top bit needs CAP_NET_RAW",
     [](const ibv_qp_attr& a) noexcept -> uint64_t { return a.qkey; }},

    {IBV_QP_ALT_PATH,
     [](const AttributeRequest& r) noexcept {
       return r.limits.path_migration && r.limits.link_layer == IBV_LINK_LAYER_INFINIBAND && r.migrates;
     },
     EINVAL, "an alternate path needs RC or UC, InfiniBand and IBV_DEVICE_AUTO_PATH_MIG",
     [](const ibv_qp_attr& a) noexcept -> uint64_t { return a.alt_port_num; }},
    {IBV_QP_ALT_PATH, [](const AttributeRequest& r) noexcept { return r.attr.alt_timeout <= kFiveBits; }, EINVAL,
     "alt_timeout is above 31", [](const ibv_qp_attr& a) noexcept -> uint64_t { return a.alt_timeout; }},
    {IBV_QP_ALT_PATH, [](const AttributeRequest& r) noexcept { return r.attr.alt_pkey_index < r.limits.pkeys; },
     EINVAL, "alt_pkey_index is behind the end of the P_Key table",
     [](const ibv_qp_attr& a) noexcept -> uint64_t { return a.alt_pkey_index; }},
    {IBV_QP_PATH_MIG_STATE,
     [](const AttributeRequest& r) noexcept {
       return number_in(r.attr.path_mig_state) == IBV_MIG_MIGRATED ||
              (r.limits.path_migration && r.migrates && number_in(r.attr.path_mig_state) == IBV_MIG_REARM &&
               (r.limits.has_alternate || (r.mask & IBV_QP_ALT_PATH) != 0));
     },
     EINVAL, "path_mig_state may become MIGRATED only, or REARM with IBV_DEVICE_AUTO_PATH_MIG and an alternate path",
     [](const ibv_qp_attr& a) noexcept -> uint64_t { return number_in(a.path_mig_state); }},

    {IBV_QP_PKEY_INDEX, [](const AttributeRequest& r) noexcept { return r.attr.pkey_index < r.limits.pkeys; }, EINVAL,
     "pkey_index is behind the end of the P_Key table",
     [](const ibv_qp_attr& a) noexcept -> uint64_t { return a.pkey_index; }},
    {IBV_QP_ACCESS_FLAGS,
     [](const AttributeRequest& r) noexcept { return (r.attr.qp_access_flags & ~kAccessFlags) == 0; }, EINVAL,
     "qp_access_flags has bits that are no IBV_ACCESS_ flag",
     [](const ibv_qp_attr& a) noexcept -> uint64_t { return a.qp_access_flags; }},
    {IBV_QP_PATH_MTU, [](const AttributeRequest& r) noexcept { return mtu_bytes(number_in(r.attr.path_mtu)) != 0; },
     EINVAL, "path_mtu is no IBV_MTU_ value",
     [](const ibv_qp_attr& a) noexcept -> uint64_t { return number_in(a.path_mtu); }},
    {IBV_QP_PATH_MTU,
     [](const AttributeRequest& r) noexcept { return number_in(r.attr.path_mtu) <= r.limits.active_mtu; }, EINVAL,
     "path_mtu is above the port's active_mtu",
     [](const ibv_qp_attr& a) noexcept -> uint64_t { return number_in(a.path_mtu); }},
    {IBV_QP_MAX_QP_RD_ATOMIC,
     [](const AttributeRequest& r) noexcept { return r.attr.max_rd_atomic <= r.limits.max_rd_atomic; }, EINVAL,
     "max_rd_atomic is above the device's max_qp_init_rd_atom",
     [](const ibv_qp_attr& a) noexcept -> uint64_t { return a.max_rd_atomic; }},
    {IBV_QP_MAX_DEST_RD_ATOMIC,
     [](const AttributeRequest& r) noexcept { return r.attr.max_dest_rd_atomic <= r.limits.max_dest_rd_atomic; },
     EINVAL, "max_dest_rd_atomic is above the device's max_qp_rd_atom",
     [](const ibv_qp_attr& a) noexcept -> uint64_t { return a.max_dest_rd_atomic; }},
    {IBV_QP_TIMEOUT, [](const AttributeRequest& r) noexcept { return r.attr.timeout <= kFiveBits; }, EINVAL,
     "timeout is above 31", [](const ibv_qp_attr& a) noexcept -> uint64_t { return a.timeout; }},
    {IBV_QP_RETRY_CNT, [](const AttributeRequest& r) noexcept { return r.attr.retry_cnt <= kThreeBits; }, EINVAL,
     "retry_cnt is above 7", [](const ibv_qp_attr& a) noexcept -> uint64_t { return a.retry_cnt; }},
    {IBV_QP_RNR_RETRY, [](const AttributeRequest& r) noexcept { return r.attr.rnr_retry <= kThreeBits; }, EINVAL,
     "rnr_retry is above 7", [](const ibv_qp_attr& a) noexcept -> uint64_t { return a.rnr_retry; }},
    {IBV_QP_MIN_RNR_TIMER, [](const AttributeRequest& r) noexcept { return r.attr.min_rnr_timer <= kFiveBits; },
     EINVAL, "min_rnr_timer is above 31",
     [](const ibv_qp_attr& a) noexcept -> uint64_t { return a.min_rnr_timer; }},
    {IBV_QP_RATE_LIMIT, [](const AttributeRequest& r) noexcept { return r.limits.rate_limit_max != 0; }, EOPNOTSUPP,
     "rate_limit: the device paces nothing (packet_pacing_caps)",
     [](const ibv_qp_attr& a) noexcept -> uint64_t { return a.rate_limit; }},
    // 0 removes the limit (drivers/infiniband/hw/mlx5/qp.c, modify_raw_packet_qp_sq(): index 0 of the table
    // of rates).
    {IBV_QP_RATE_LIMIT,
     [](const AttributeRequest& r) noexcept {
       return r.attr.rate_limit == 0 ||
              (r.attr.rate_limit >= r.limits.rate_limit_min && r.attr.rate_limit <= r.limits.rate_limit_max);
     },
     EINVAL, "rate_limit is outside of qp_rate_limit_min and qp_rate_limit_max",
     [](const ibv_qp_attr& a) noexcept -> uint64_t { return a.rate_limit; }},
    {IBV_QP_DEST_QPN, [](const AttributeRequest& r) noexcept { return r.attr.dest_qp_num <= kMaxQpn; }, EINVAL,
     "dest_qp_num has more than 24 bits",
     [](const ibv_qp_attr& a) noexcept -> uint64_t { return a.dest_qp_num; }},
};

struct Address {
  const AttributeLimits& limits;
  const ibv_ah_attr& ah;
  bool connected;

  int gids() const noexcept { return limits.gids[ah.port_num == 2 ? 1 : 0]; }
  bool on_infiniband() const noexcept { return limits.link_layer == IBV_LINK_LAYER_INFINIBAND; }
};

struct AddressRule {
  bool (*holds)(const Address&) noexcept;
  const char* why;
  uint64_t (*value)(const ibv_ah_attr&) noexcept;
};

// All are refused with EINVAL: mlx5 verbs.c mlx5_create_ah(), kernel mlx5 qp.c mlx5_set_path(), rxe_av.c
// rxe_av_chk_attr().
constexpr AddressRule kAddressRules[] = {
    {[](const Address& a) noexcept { return exists_port(a.limits, a.ah.port_num); },
     "ah_attr.port_num is no port of the device",
     [](const ibv_ah_attr& a) noexcept -> uint64_t { return a.port_num; }},
    {[](const Address& a) noexcept { return a.ah.is_global != 0 || a.on_infiniband(); },
     "an Ethernet port needs a GRH: is_global = 1 and a GID",
     [](const ibv_ah_attr& a) noexcept -> uint64_t { return a.is_global; }},
    {[](const Address& a) noexcept { return a.ah.is_global == 0 || a.ah.grh.sgid_index < a.gids(); },
     "grh.sgid_index is behind the end of the GID table",
     [](const ibv_ah_attr& a) noexcept -> uint64_t { return a.grh.sgid_index; }},
    // LID 0 is reserved (vol. 1, 4.1.1). With a GRH the GID is the destination.
    {[](const Address& a) noexcept { return a.ah.is_global != 0 || a.ah.dlid != 0; },
     "dlid 0 without a GRH leads nowhere", [](const ibv_ah_attr& a) noexcept -> uint64_t { return a.dlid; }},
    {[](const Address& a) noexcept { return a.ah.sl <= kMaxServiceLevel; }, "sl is above 15",
     [](const ibv_ah_attr& a) noexcept -> uint64_t { return a.sl; }},
    {[](const Address& a) noexcept {
       return !a.connected || !a.on_infiniband() || a.ah.dlid < kFirstMulticastLid;
     },
     "dlid is a multicast LID, and the QP is connected",
     [](const ibv_ah_attr& a) noexcept -> uint64_t { return a.dlid; }},
    {[](const Address& a) noexcept {
       return !a.connected || a.ah.is_global == 0 || a.ah.grh.dgid.raw[0] != kMulticastGidPrefix;
     },
     "grh.dgid is a multicast GID, and the QP is connected",
     [](const ibv_ah_attr& a) noexcept -> uint64_t { return a.grh.dgid.raw[0]; }},
};

int refuse(int error, const char* reason, const char** why) noexcept {
  if (why != nullptr) *why = reason;
  return error;
}

template <typename Rule, typename Attributes>
int refuse(const Rule& rule, int error, const Attributes& attributes, const char** why, uint64_t* value) noexcept {
  if (value != nullptr) *value = rule.value(attributes);
  return refuse(error, rule.why, why);
}

}  // namespace

int check_attributes(const AttributeLimits& limits, ibv_qp_type type, const ibv_qp_attr& attr, int mask,
                     const char** why, uint64_t* value) noexcept {
  const bool migrates = type == IBV_QPT_RC || type == IBV_QPT_UC;
  const AttributeRequest request{limits, attr, mask & ~ignored_attribute_bits(type), migrates};
  for (const Rule& rule : kRules)
    if ((request.mask & rule.bits) == rule.bits && !rule.holds(request))
      return refuse(rule, rule.refusal, attr, why, value);
  if ((request.mask & IBV_QP_AV) != 0)
    if (const int error = check_address(limits, attr.ah_attr, true, why, value)) return error;
  if ((request.mask & IBV_QP_ALT_PATH) != 0) return check_address(limits, attr.alt_ah_attr, true, why, value);
  return refuse(0, nullptr, why);
}

int check_address(const AttributeLimits& limits, const ibv_ah_attr& ah, bool connected,
                  const char** why, uint64_t* value) noexcept {
  const Address address{limits, ah, connected};
  for (const AddressRule& rule : kAddressRules)
    if (!rule.holds(address)) return refuse(rule, EINVAL, ah, why, value);
  return refuse(0, nullptr, why);
}

}  // namespace verbena
