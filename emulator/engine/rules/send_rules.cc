// SPDX-License-Identifier: BSD-2-Clause
#include "engine/rules/send_rules.h"

#include <algorithm>
#include <cerrno>
#include <cstddef>

#include "engine/rules/program_enum.h"

namespace verbena {
namespace {

// ---- operations ---------------------------------------------------------------------------------------

// 0 for numbers above 31: a program may have written any.
constexpr uint32_t bit(ibv_qp_type type) noexcept {
  return static_cast<unsigned>(type) < 32 ? 1u << static_cast<unsigned>(type) : 0;
}

constexpr uint32_t kUd = bit(IBV_QPT_UD);
constexpr uint32_t kReliable = bit(IBV_QPT_RC) | bit(IBV_QPT_XRC_SEND);
constexpr uint32_t kConnected = kReliable | bit(IBV_QPT_UC);
constexpr uint32_t kRaw = bit(IBV_QPT_RAW_PACKET);

constexpr unsigned kAlways = IBV_SEND_SIGNALED | IBV_SEND_FENCE;
constexpr unsigned kData = kAlways | IBV_SEND_INLINE;
constexpr unsigned kMessage = kData | IBV_SEND_SOLICITED;

// By opcode. qp_types: the table of opcodes in ibv_post_send(3).
// clang-format off
constexpr SendOperation kOperations[] = {
    {.opcode = IBV_WR_RDMA_WRITE, .name = "RDMA_WRITE", .qp_types = kConnected, .send_flags = kData,
     .sges = SgeUse::gather, .completion = IBV_WC_RDMA_WRITE, .remote_address = true,
     .remote_access = IBV_ACCESS_REMOTE_WRITE},
    {.opcode = IBV_WR_RDMA_WRITE_WITH_IMM, .name = "RDMA_WRITE_WITH_IMM", .qp_types = kConnected,
     .send_flags = kMessage, .sges = SgeUse::gather, .completion = IBV_WC_RDMA_WRITE, .remote_address = true,
     .carries_immediate = true, .consumes_receive = true, .remote_access = IBV_ACCESS_REMOTE_WRITE,
     .received = IBV_WC_RECV_RDMA_WITH_IMM, .received_flags = IBV_WC_WITH_IMM},
    {.opcode = IBV_WR_SEND, .name = "SEND", .qp_types = kConnected | kUd | kRaw, .send_flags = kMessage,
     .sges = SgeUse::gather, .completion = IBV_WC_SEND, .consumes_receive = true},
    {.opcode = IBV_WR_SEND_WITH_IMM, .name = "SEND_WITH_IMM", .qp_types = kConnected | kUd, .send_flags = kMessage,
     .sges = SgeUse::gather, .completion = IBV_WC_SEND, .carries_immediate = true, .consumes_receive = true,
     .received_flags = IBV_WC_WITH_IMM},
    {.opcode = IBV_WR_RDMA_READ, .name = "RDMA_READ", .qp_types = kReliable, .send_flags = kAlways,
     .sges = SgeUse::scatter, .completion = IBV_WC_RDMA_READ, .remote_address = true, .awaits_response = true,
     .remote_access = IBV_ACCESS_REMOTE_READ},
    {.opcode = IBV_WR_ATOMIC_CMP_AND_SWP, .name = "ATOMIC_CMP_AND_SWP", .qp_types = kReliable, .send_flags = kAlways,
     .sges = SgeUse::scatter, .completion = IBV_WC_COMP_SWAP, .remote_address = true, .atomic = true,
     .awaits_response = true, .remote_access = IBV_ACCESS_REMOTE_ATOMIC},
    {.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD, .name = "ATOMIC_FETCH_AND_ADD", .qp_types = kReliable,
     .send_flags = kAlways, .sges = SgeUse::scatter, .completion = IBV_WC_FETCH_ADD, .remote_address = true,
     .atomic = true, .awaits_response = true, .remote_access = IBV_ACCESS_REMOTE_ATOMIC},
    {.opcode = IBV_WR_LOCAL_INV, .name = "LOCAL_INV", .qp_types = kConnected, .send_flags = kAlways,
     .sges = SgeUse::none, .completion = IBV_WC_LOCAL_INV},
    {.opcode = IBV_WR_BIND_MW, .name = "BIND_MW", .qp_types = kConnected, .send_flags = kAlways,
     .sges = SgeUse::none, .completion = IBV_WC_BIND_MW},
    {.opcode = IBV_WR_SEND_WITH_INV, .name = "SEND_WITH_INV", .qp_types = kConnected, .send_flags = kMessage,
     .sges = SgeUse::gather, .completion = IBV_WC_SEND, .carries_invalidate = true, .consumes_receive = true,
     .received_flags = IBV_WC_WITH_INV},
    {.opcode = IBV_WR_TSO, .name = "TSO", .qp_types = kUd | kRaw, .send_flags = kAlways, .sges = SgeUse::gather,
     .completion = IBV_WC_TSO, .consumes_receive = true},
};
// clang-format on

// Since rdma-core 43; its number leaves a gap. Rights are those of a WRITE, resources those of an atomic
// (vol. 1 rel. 1.5, 9.4.8; the kernel's rxe_resp.c).
constexpr SendOperation kAtomicWriteOperation = {
    .opcode = kAtomicWrite, .name = "ATOMIC_WRITE", .qp_types = kReliable, .send_flags = kData,
    .sges = SgeUse::gather, .completion = static_cast<ibv_wc_opcode>(9), .remote_address = true, .atomic = true,
    .awaits_response = true, .remote_access = IBV_ACCESS_REMOTE_WRITE};

constexpr size_t kOpcodes = sizeof(kOperations) / sizeof(kOperations[0]);

constexpr bool each_stands_at_its_opcode() noexcept {
  for (size_t i = 0; i < kOpcodes; ++i)
    if (static_cast<size_t>(kOperations[i].opcode) != i) return false;
  return true;
}
static_assert(each_stands_at_its_opcode());

constexpr uint64_t kAtomicBytes = 8;

int refuse(int error, const char* reason, const char** why) noexcept {
  if (why != nullptr) *why = reason;
  return error;
}

// The type of requester whose requests arrive at a QP of type `responder`, as a bit. 0: none.
constexpr uint32_t initiators_of(ibv_qp_type responder) noexcept {
  return responder == IBV_QPT_XRC_RECV
             ? bit(IBV_QPT_XRC_SEND)
             : bit(responder) & ~bit(IBV_QPT_XRC_SEND);  // XRC_SEND receives nothing
}

}  // namespace

const SendOperation* find_send_operation(const ibv_wr_opcode& opcode) noexcept {
  const unsigned index = number_in(opcode);
  if (index == static_cast<unsigned>(kAtomicWrite)) return &kAtomicWriteOperation;
  return index < kOpcodes ? &kOperations[index] : nullptr;
}

uint64_t message_length(const ibv_send_wr& wr) noexcept {
  uint64_t length = 0;
  for (int i = 0; i < wr.num_sge; ++i) length += wr.sg_list[i].length;
  return length;
}

int check_send_wr(const SendLimits& limits, ibv_qp_type type, const ibv_send_wr& wr,
                  const char** why) noexcept {
  const SendOperation* operation = find_send_operation(wr.opcode);
  if (operation == nullptr) return refuse(EINVAL, "opcode is no IBV_WR_ value", why);
  if ((operation->qp_types & bit(type)) == 0)
    return refuse(EINVAL, "opcode is not for this type of QP (table in ibv_post_send(3))", why);
  if ((limits.opcodes >> operation->opcode & 1) == 0)
    return refuse(EOPNOTSUPP, "the device does not offer this opcode", why);

  const bool is_inline = (wr.send_flags & IBV_SEND_INLINE) != 0;
  if (is_inline && (operation->send_flags & IBV_SEND_INLINE) == 0)
    return refuse(EINVAL, "IBV_SEND_INLINE is for SEND and RDMA_WRITE only", why);

  if (wr.num_sge < 0) return refuse(EINVAL, "num_sge is negative", why);
  if (static_cast<uint32_t>(wr.num_sge) > limits.max_sge)
    return refuse(ENOMEM, "num_sge is above the QP's max_send_sge", why);
  if (operation->opcode == IBV_WR_RDMA_READ && static_cast<uint32_t>(wr.num_sge) > limits.max_sge_read)
    return refuse(ENOMEM, "num_sge is above the device's max_sge_rd", why);
  if (wr.num_sge > 0 && wr.sg_list == nullptr)
    return refuse(EINVAL, "num_sge is not 0, and sg_list is null", why);
  const uint32_t max_inline =
      operation == &kAtomicWriteOperation ? std::max(limits.max_inline, kAtomicWriteSize) : limits.max_inline;
  if (is_inline && message_length(wr) > max_inline)
    return refuse(ENOMEM, "the inline message is longer than the QP's max_inline_data", why);
  if (wr.opcode == IBV_WR_BIND_MW && wr.bind_mw.mw == nullptr)
    return refuse(EINVAL, "bind_mw.mw is null", why);
  // As ibv_bind_mw(3) does for windows of type 1.
  if (const ibv_mw_bind_info& info = wr.bind_mw.bind_info;
      wr.opcode == IBV_WR_BIND_MW && info.mr == nullptr && (info.addr != 0 || info.length != 0))
    return refuse(EINVAL, "bind_info names a range and no memory region", why);
  return refuse(0, nullptr, why);
}

int check_recv_wr(uint32_t max_sge, const ibv_recv_wr& wr, const char** why) noexcept {
  if (wr.num_sge < 0) return refuse(EINVAL, "num_sge is negative", why);
  if (static_cast<uint32_t>(wr.num_sge) > max_sge)
    return refuse(EINVAL, "num_sge is above max_recv_sge", why);
  if (wr.num_sge > 0 && wr.sg_list == nullptr)
    return refuse(EINVAL, "num_sge is not 0, and sg_list is null", why);
  return refuse(0, nullptr, why);
}

VendorError check_send_length(const SendLimits& limits, const SendOperation& operation,
                              uint64_t length) noexcept {
  if (operation.atomic) return length == kAtomicBytes ? VendorError::none : VendorError::atomic_not_8_bytes;
  return length <= limits.max_message ? VendorError::none : VendorError::message_too_long;
}

VendorError check_request(const SendOperation& operation, ibv_qp_type responder, unsigned qp_access,
                          uint8_t max_dest_rd_atomic, uint64_t remote_address) noexcept {
  if ((operation.qp_types & initiators_of(responder)) == 0) return VendorError::remote_opcode_refused;
  if ((qp_access & operation.remote_access) != operation.remote_access)
    return VendorError::remote_qp_no_right;
  if (operation.awaits_response && max_dest_rd_atomic == 0) return VendorError::remote_no_read_resources;
  if (operation.atomic && remote_address % kAtomicBytes != 0) return VendorError::remote_atomic_misaligned;
  return VendorError::none;
}

}  // namespace verbena
