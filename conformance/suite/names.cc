// SPDX-License-Identifier: BSD-2-Clause
#include "suite/names.h"

#include <ostream>
#include <utility>

namespace conformance {
namespace {

template <typename Enum, size_t count>
std::string find(const std::pair<Enum, const char*> (&names)[count], Enum value, const char* type) {
  for (const auto& [enumerator, name] : names)
    if (enumerator == value) return name;
  return std::string(type) + ' ' + std::to_string(static_cast<long long>(value));
}

}  // namespace

#define NAME(enumerator) \
  { enumerator, #enumerator }

std::string name_of(ibv_wc_status value) {
  static constexpr std::pair<ibv_wc_status, const char*> names[] = {NAME(IBV_WC_SUCCESS),
                                                                    NAME(IBV_WC_LOC_LEN_ERR),
                                                                    NAME(IBV_WC_LOC_QP_OP_ERR),
                                                                    NAME(IBV_WC_LOC_EEC_OP_ERR),
                                                                    NAME(IBV_WC_LOC_PROT_ERR),
                                                                    NAME(IBV_WC_WR_FLUSH_ERR),
                                                                    NAME(IBV_WC_MW_BIND_ERR),
                                                                    NAME(IBV_WC_BAD_RESP_ERR),
                                                                    NAME(IBV_WC_LOC_ACCESS_ERR),
                                                                    NAME(IBV_WC_REM_INV_REQ_ERR),
                                                                    NAME(IBV_WC_REM_ACCESS_ERR),
                                                                    NAME(IBV_WC_REM_OP_ERR),
                                                                    NAME(IBV_WC_RETRY_EXC_ERR),
                                                                    NAME(IBV_WC_RNR_RETRY_EXC_ERR),
                                                                    NAME(IBV_WC_LOC_RDD_VIOL_ERR),
                                                                    NAME(IBV_WC_REM_INV_RD_REQ_ERR),
                                                                    NAME(IBV_WC_REM_ABORT_ERR),
                                                                    NAME(IBV_WC_INV_EECN_ERR),
                                                                    NAME(IBV_WC_INV_EEC_STATE_ERR),
                                                                    NAME(IBV_WC_FATAL_ERR),
                                                                    NAME(IBV_WC_RESP_TIMEOUT_ERR),
                                                                    NAME(IBV_WC_GENERAL_ERR),
                                                                    NAME(IBV_WC_TM_ERR),
                                                                    NAME(IBV_WC_TM_RNDV_INCOMPLETE)};
  return find(names, value, "ibv_wc_status");
}

std::string name_of(ibv_wc_opcode value) {
  static constexpr std::pair<ibv_wc_opcode, const char*> names[] = {
      NAME(IBV_WC_SEND),      NAME(IBV_WC_RDMA_WRITE),
      NAME(IBV_WC_RDMA_READ), NAME(IBV_WC_COMP_SWAP),
      NAME(IBV_WC_FETCH_ADD), NAME(IBV_WC_BIND_MW),
      NAME(IBV_WC_LOCAL_INV), NAME(IBV_WC_TSO),
      NAME(IBV_WC_RECV),      NAME(IBV_WC_RECV_RDMA_WITH_IMM),
      NAME(IBV_WC_TM_ADD),    NAME(IBV_WC_TM_DEL),
      NAME(IBV_WC_TM_SYNC),   NAME(IBV_WC_TM_RECV),
      NAME(IBV_WC_TM_NO_TAG)};
  return find(names, value, "ibv_wc_opcode");
}

std::string name_of(ibv_wr_opcode value) {
  static constexpr std::pair<ibv_wr_opcode, const char*> names[] = {NAME(IBV_WR_RDMA_WRITE),
                                                                    NAME(IBV_WR_RDMA_WRITE_WITH_IMM),
                                                                    NAME(IBV_WR_SEND),
                                                                    NAME(IBV_WR_SEND_WITH_IMM),
                                                                    NAME(IBV_WR_RDMA_READ),
                                                                    NAME(IBV_WR_ATOMIC_CMP_AND_SWP),
                                                                    NAME(IBV_WR_ATOMIC_FETCH_AND_ADD),
                                                                    NAME(IBV_WR_LOCAL_INV),
                                                                    NAME(IBV_WR_BIND_MW),
                                                                    NAME(IBV_WR_SEND_WITH_INV),
                                                                    NAME(IBV_WR_TSO)};
  return find(names, value, "ibv_wr_opcode");
}

std::string name_of(ibv_qp_state value) {
  static constexpr std::pair<ibv_qp_state, const char*> names[] = {
      NAME(IBV_QPS_RESET), NAME(IBV_QPS_INIT), NAME(IBV_QPS_RTR), NAME(IBV_QPS_RTS),
      NAME(IBV_QPS_SQD),   NAME(IBV_QPS_SQE),  NAME(IBV_QPS_ERR)};
  return find(names, value, "ibv_qp_state");
}

std::string name_of(ibv_qp_type value) {
  static constexpr std::pair<ibv_qp_type, const char*> names[] = {
      NAME(IBV_QPT_RC),       NAME(IBV_QPT_UC),       NAME(IBV_QPT_UD),    NAME(IBV_QPT_RAW_PACKET),
      NAME(IBV_QPT_XRC_SEND), NAME(IBV_QPT_XRC_RECV), NAME(IBV_QPT_DRIVER)};
  return find(names, value, "ibv_qp_type");
}

std::string name_of(ibv_mig_state value) {
  static constexpr std::pair<ibv_mig_state, const char*> names[] = {NAME(IBV_MIG_MIGRATED),
                                                                    NAME(IBV_MIG_REARM), NAME(IBV_MIG_ARMED)};
  return find(names, value, "ibv_mig_state");
}

std::string name_of(ibv_mtu value) {
  static constexpr std::pair<ibv_mtu, const char*> names[] = {
      NAME(IBV_MTU_256), NAME(IBV_MTU_512), NAME(IBV_MTU_1024), NAME(IBV_MTU_2048), NAME(IBV_MTU_4096)};
  return find(names, value, "ibv_mtu");
}

std::string name_of(ibv_port_state value) {
  static constexpr std::pair<ibv_port_state, const char*> names[] = {
      NAME(IBV_PORT_NOP),   NAME(IBV_PORT_DOWN),   NAME(IBV_PORT_INIT),
      NAME(IBV_PORT_ARMED), NAME(IBV_PORT_ACTIVE), NAME(IBV_PORT_ACTIVE_DEFER)};
  return find(names, value, "ibv_port_state");
}

std::string name_of(ibv_atomic_cap value) {
  static constexpr std::pair<ibv_atomic_cap, const char*> names[] = {
      NAME(IBV_ATOMIC_NONE), NAME(IBV_ATOMIC_HCA), NAME(IBV_ATOMIC_GLOB)};
  return find(names, value, "ibv_atomic_cap");
}

std::string name_of(ibv_event_type value) {
  static constexpr std::pair<ibv_event_type, const char*> names[] = {NAME(IBV_EVENT_CQ_ERR),
                                                                     NAME(IBV_EVENT_QP_FATAL),
                                                                     NAME(IBV_EVENT_QP_REQ_ERR),
                                                                     NAME(IBV_EVENT_QP_ACCESS_ERR),
                                                                     NAME(IBV_EVENT_COMM_EST),
                                                                     NAME(IBV_EVENT_SQ_DRAINED),
                                                                     NAME(IBV_EVENT_PATH_MIG),
                                                                     NAME(IBV_EVENT_PATH_MIG_ERR),
                                                                     NAME(IBV_EVENT_DEVICE_FATAL),
                                                                     NAME(IBV_EVENT_PORT_ACTIVE),
                                                                     NAME(IBV_EVENT_PORT_ERR),
                                                                     NAME(IBV_EVENT_LID_CHANGE),
                                                                     NAME(IBV_EVENT_PKEY_CHANGE),
                                                                     NAME(IBV_EVENT_SM_CHANGE),
                                                                     NAME(IBV_EVENT_SRQ_ERR),
                                                                     NAME(IBV_EVENT_SRQ_LIMIT_REACHED),
                                                                     NAME(IBV_EVENT_QP_LAST_WQE_REACHED),
                                                                     NAME(IBV_EVENT_CLIENT_REREGISTER),
                                                                     NAME(IBV_EVENT_GID_CHANGE),
                                                                     NAME(IBV_EVENT_WQ_FATAL)};
  return find(names, value, "ibv_event_type");
}

std::string name_of(ibv_srq_type value) {
  static constexpr std::pair<ibv_srq_type, const char*> names[] = {NAME(IBV_SRQT_BASIC), NAME(IBV_SRQT_XRC),
                                                                   NAME(IBV_SRQT_TM)};
  return find(names, value, "ibv_srq_type");
}

std::string name_of(rdma_cm_event_type value) {
  static constexpr std::pair<rdma_cm_event_type, const char*> names[] = {
      NAME(RDMA_CM_EVENT_ADDR_RESOLVED),   NAME(RDMA_CM_EVENT_ADDR_ERROR),
      NAME(RDMA_CM_EVENT_ROUTE_RESOLVED),  NAME(RDMA_CM_EVENT_ROUTE_ERROR),
      NAME(RDMA_CM_EVENT_CONNECT_REQUEST), NAME(RDMA_CM_EVENT_CONNECT_RESPONSE),
      NAME(RDMA_CM_EVENT_CONNECT_ERROR),   NAME(RDMA_CM_EVENT_UNREACHABLE),
      NAME(RDMA_CM_EVENT_REJECTED),        NAME(RDMA_CM_EVENT_ESTABLISHED),
      NAME(RDMA_CM_EVENT_DISCONNECTED),    NAME(RDMA_CM_EVENT_DEVICE_REMOVAL),
      NAME(RDMA_CM_EVENT_MULTICAST_JOIN),  NAME(RDMA_CM_EVENT_MULTICAST_ERROR),
      NAME(RDMA_CM_EVENT_ADDR_CHANGE),     NAME(RDMA_CM_EVENT_TIMEWAIT_EXIT)};
  return find(names, value, "rdma_cm_event_type");
}

std::string send_flags_text(unsigned flags) {
  static constexpr std::pair<unsigned, const char*> names[] = {NAME(IBV_SEND_FENCE), NAME(IBV_SEND_SIGNALED),
                                                               NAME(IBV_SEND_SOLICITED),
                                                               NAME(IBV_SEND_INLINE), NAME(IBV_SEND_IP_CSUM)};
  std::string out;
  for (const auto& [flag, name] : names) {
    if ((flags & flag) == 0) continue;
    out += (out.empty() ? "" : "|") + std::string(name);
    flags &= ~flag;
  }
  if (flags != 0 || out.empty()) out += (out.empty() ? "" : "|") + std::to_string(flags);
  return out;
}

#undef NAME

}  // namespace conformance

void PrintTo(ibv_wc_status value, std::ostream* out) { *out << conformance::name_of(value); }
void PrintTo(ibv_wc_opcode value, std::ostream* out) { *out << conformance::name_of(value); }
void PrintTo(ibv_wr_opcode value, std::ostream* out) { *out << conformance::name_of(value); }
void PrintTo(ibv_qp_state value, std::ostream* out) { *out << conformance::name_of(value); }
void PrintTo(ibv_qp_type value, std::ostream* out) { *out << conformance::name_of(value); }
void PrintTo(ibv_mig_state value, std::ostream* out) { *out << conformance::name_of(value); }
void PrintTo(ibv_mtu value, std::ostream* out) { *out << conformance::name_of(value); }
void PrintTo(ibv_port_state value, std::ostream* out) { *out << conformance::name_of(value); }
void PrintTo(ibv_atomic_cap value, std::ostream* out) { *out << conformance::name_of(value); }
void PrintTo(ibv_event_type value, std::ostream* out) { *out << conformance::name_of(value); }
void PrintTo(ibv_srq_type value, std::ostream* out) { *out << conformance::name_of(value); }
void PrintTo(rdma_cm_event_type value, std::ostream* out) { *out << conformance::name_of(value); }
