// SPDX-License-Identifier: BSD-2-Clause
#include "support/transitions.h"

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <string>

#include "suite/family.h"
#include "support/objects.h"

namespace conformance {
namespace {

constexpr int pkey = IBV_QP_PKEY_INDEX, port = IBV_QP_PORT, qkey = IBV_QP_QKEY, access = IBV_QP_ACCESS_FLAGS,
              cur = IBV_QP_CUR_STATE, av = IBV_QP_AV, timeout = IBV_QP_TIMEOUT, retry = IBV_QP_RETRY_CNT,
              rnr_retry = IBV_QP_RNR_RETRY, sq_psn = IBV_QP_SQ_PSN, reads = IBV_QP_MAX_QP_RD_ATOMIC,
              resources = IBV_QP_MAX_DEST_RD_ATOMIC, min_rnr = IBV_QP_MIN_RNR_TIMER,
              notify = IBV_QP_EN_SQD_ASYNC_NOTIFY;
constexpr int path = av | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;

constexpr int responders_own = resources | min_rnr, requesters_own = reads | retry | rnr_retry;

struct Masks {
  int rc, uc, ud;
  int of(ibv_qp_type type) const {
    switch (type) {
      case IBV_QPT_RC:
        return rc;
      case IBV_QPT_UC:
        return uc;
      case IBV_QPT_XRC_SEND:  // RC's halves
        return rc & ~responders_own;
      case IBV_QPT_XRC_RECV:
        return rc & ~requesters_own;
      default:
        return ud;
    }
  }
};

struct Row {
  ibv_qp_state from, to;
  Masks required, optional;
};

// clang-format off
constexpr Row rows[] = {
    {IBV_QPS_RESET, IBV_QPS_RESET, {}, {}},
    {IBV_QPS_RESET, IBV_QPS_INIT, {pkey | port | access, pkey | port | access, pkey | port | qkey}, {}},
    {IBV_QPS_INIT, IBV_QPS_RESET, {}, {}},
    {IBV_QPS_INIT, IBV_QPS_INIT, {}, {pkey | port | access, pkey | port | access, pkey | port | qkey}},
    {IBV_QPS_INIT, IBV_QPS_RTR, {path | resources | min_rnr, path, 0}, {access | pkey, access | pkey, pkey | qkey}},
    {IBV_QPS_INIT, IBV_QPS_ERR, {}, {}},
    {IBV_QPS_RTR, IBV_QPS_RESET, {}, {}},
    {IBV_QPS_RTR, IBV_QPS_RTS, {sq_psn | reads | retry | rnr_retry | timeout, sq_psn, sq_psn},
                               {cur | access | min_rnr, cur | access, cur | qkey}},
    {IBV_QPS_RTR, IBV_QPS_ERR, {}, {}},
    {IBV_QPS_RTS, IBV_QPS_RESET, {}, {}},
    {IBV_QPS_RTS, IBV_QPS_RTS, {}, {cur | access | min_rnr, cur | access, cur | qkey}},
    {IBV_QPS_RTS, IBV_QPS_SQD, {}, {notify, notify, notify}},
    {IBV_QPS_RTS, IBV_QPS_ERR, {}, {}},
    {IBV_QPS_SQD, IBV_QPS_RESET, {}, {}},
    {IBV_QPS_SQD, IBV_QPS_RTS, {}, {cur | access | min_rnr, cur | access, cur | qkey}},
    {IBV_QPS_SQD, IBV_QPS_SQD, {}, {av | timeout | retry | rnr_retry | reads | resources | access | pkey | min_rnr | port,
                                    access | pkey | av, pkey | qkey}},
    {IBV_QPS_SQD, IBV_QPS_ERR, {}, {}},
    {IBV_QPS_SQE, IBV_QPS_RESET, {}, {}},
    {IBV_QPS_SQE, IBV_QPS_RTS, {}, {0, cur | access, cur | qkey}},
    {IBV_QPS_SQE, IBV_QPS_ERR, {}, {}},
    {IBV_QPS_ERR, IBV_QPS_RESET, {}, {}},
    {IBV_QPS_ERR, IBV_QPS_ERR, {}, {}},
};
// clang-format on

struct Name {
  int bit;
  const char* name;
};
#define ATTRIBUTE(name) \
  { name, #name }
constexpr Name names[] = {ATTRIBUTE(IBV_QP_CUR_STATE),
                          ATTRIBUTE(IBV_QP_EN_SQD_ASYNC_NOTIFY),
                          ATTRIBUTE(IBV_QP_ACCESS_FLAGS),
                          ATTRIBUTE(IBV_QP_PKEY_INDEX),
                          ATTRIBUTE(IBV_QP_PORT),
                          ATTRIBUTE(IBV_QP_QKEY),
                          ATTRIBUTE(IBV_QP_AV),
                          ATTRIBUTE(IBV_QP_PATH_MTU),
                          ATTRIBUTE(IBV_QP_TIMEOUT),
                          ATTRIBUTE(IBV_QP_RETRY_CNT),
                          ATTRIBUTE(IBV_QP_RNR_RETRY),
                          ATTRIBUTE(IBV_QP_RQ_PSN),
                          ATTRIBUTE(IBV_QP_MAX_QP_RD_ATOMIC),
                          ATTRIBUTE(IBV_QP_MIN_RNR_TIMER),
                          ATTRIBUTE(IBV_QP_SQ_PSN),
                          ATTRIBUTE(IBV_QP_MAX_DEST_RD_ATOMIC),
                          ATTRIBUTE(IBV_QP_DEST_QPN)};
#undef ATTRIBUTE

std::string mask_text(int mask) {
  std::string out = (mask & IBV_QP_STATE) != 0 ? "STATE" : "";
  for (const Name& name : names)
    if ((mask & name.bit) != 0) out += (out.empty() ? "" : "|") + std::string(name.name + strlen("IBV_QP_"));
  return out.empty() ? std::to_string(mask) : out;
}

// In SQD "modify" waits until the queue is drained: a device may refuse it before (ibv_query_qp(3),
// sq_draining). Once in a test only where the device says "draining" for ever, which "ibv_query_qp.draining"
// is about: the many SQDs of one test would exceed its time.
void wait_until_drained(ibv_qp* qp) {
  static std::atomic<bool> is_in_vain{false};
  if (is_in_vain) return;
  const auto deadline = std::chrono::steady_clock::now() + scaled(std::chrono::seconds(3));
  ibv_qp_attr attr = {};
  ibv_qp_init_attr init = {};
  do {
    if (ibv_query_qp(qp, &attr, IBV_QP_STATE, &init) != 0 || attr.sq_draining == 0) return;
    give_way();
  } while (std::chrono::steady_clock::now() < deadline);
  is_in_vain = true;
}

// The states on the way from RESET.
std::vector<ibv_qp_state> way_to(ibv_qp_state state) {
  switch (state) {
    case IBV_QPS_INIT:
      return {IBV_QPS_INIT};
    case IBV_QPS_RTR:
      return {IBV_QPS_INIT, IBV_QPS_RTR};
    case IBV_QPS_RTS:
      return {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS};
    case IBV_QPS_SQD:
      return {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QPS_SQD};
    case IBV_QPS_ERR:
      return {IBV_QPS_INIT, IBV_QPS_ERR};
    default:
      return {};
  }
}

}  // namespace

std::optional<Transition> transition_of(ibv_qp_type type, ibv_qp_state from, ibv_qp_state to) {
  for (const Row& row : rows) {
    if (row.from != from || row.to != to) continue;
    if (from == IBV_QPS_SQE && type != IBV_QPT_UC && type != IBV_QPT_UD) return std::nullopt;
    return Transition{from, to, row.required.of(type), row.optional.of(type)};
  }
  return std::nullopt;
}

std::vector<int> attribute_bits() {
  std::vector<int> out;
  for (const Name& name : names) out.push_back(name.bit);
  return out;
}

const char* attribute_name(int bit) {
  for (const Name& name : names)
    if (name.bit == bit) return name.name;
  return "?";
}

ibv_qp_attr attributes_for(const Device& device, const Path& path) {
  ibv_qp_attr attr = {};
  attr.path_mtu = device.port().active_mtu;
  attr.qkey = path.qkey;
  attr.rq_psn = attr.sq_psn = path.psn;
  attr.dest_qp_num = path.destination;
  attr.qp_access_flags = static_cast<unsigned>(path.access);
  if (device.attributes().atomic_cap == IBV_ATOMIC_NONE)
    attr.qp_access_flags &= ~unsigned{IBV_ACCESS_REMOTE_ATOMIC};
  attr.ah_attr = device.own_address();
  attr.max_rd_atomic = attr.max_dest_rd_atomic = path.reads;
  attr.min_rnr_timer = path.min_rnr_timer;
  attr.port_num = device.port_number();
  attr.timeout = path.timeout;
  attr.retry_cnt = path.retry_count;
  attr.rnr_retry = path.rnr_retry;
  return attr;
}

int modify(ibv_qp* qp, ibv_qp_attr attr, int mask) {
  const std::string text =
      "ibv_modify_qp(qp, " + mask_text(mask) + ")" +
      ((mask & IBV_QP_STATE) != 0 ? std::string(" to ") + state_name(attr.qp_state) : std::string());
  return traced(text.c_str(), [&] { return ibv_modify_qp(qp, &attr, mask); });
}

void expect_sqd(int error) {
  if (error > 0) throw NotClaimed{"no SQD: RTS to SQD is refused with " + errno_text(error)};
}

void expect_query(int error) {
  if (error == EOPNOTSUPP || error == ENOSYS)
    throw NotClaimed{"ibv_query_qp is refused with " + errno_text(error)};
}

void bring_to(ibv_qp* qp, ibv_qp_state state, const ibv_qp_attr& values, Where where) {
  ibv_qp_state from = IBV_QPS_RESET;
  const bool connects = state == IBV_QPS_RTR || state == IBV_QPS_RTS || state == IBV_QPS_SQD;
  if (connects && qp->context->device->transport_type == IBV_TRANSPORT_IWARP)
    throw NotTested{"iWARP: a QP gets its connection from the connection manager"};
  if (state == IBV_QPS_ERR) need_family("family.init-err");
  for (const ibv_qp_state to : way_to(state)) {
    ibv_qp_attr attr = values;
    attr.qp_state = to;
    attr.cur_qp_state = from;
    const auto transition = transition_of(qp->qp_type, from, to);
    const int error = modify(qp, attr, IBV_QP_STATE | (transition ? transition->required : 0));
    if (to == IBV_QPS_SQD) expect_sqd(error);
    if (error != 0)
      throw Deviation{std::string("on the way to ") + state_name(state) + ": " + state_name(from) + " to " +
                          state_name(to) + "; expected: 0; seen: " + errno_text(error),
                      where};
    from = to;
  }
  if (state == IBV_QPS_SQD) wait_until_drained(qp);
}

ibv_qp_state state_of(ibv_qp* qp, Where where) {
  ibv_qp_attr attr = {};
  ibv_qp_init_attr init = {};
  const int error = CALL(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init));
  expect_query(error);
  if (error != 0) throw Deviation{"ibv_query_qp; expected: 0; seen: " + errno_text(error), where};
  return attr.qp_state;
}

}  // namespace conformance
