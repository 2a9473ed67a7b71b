// SPDX-License-Identifier: BSD-2-Clause
#include "support/objects.h"

#include <algorithm>
#include <cerrno>

namespace conformance {
namespace {

template <typename Object>
Object* required(Object* object, const char* what, Where where) {
  if (object == nullptr)
    throw Deviation{
        std::string(what) + " is needed; expected: not null; seen: null, errno " + errno_text(errno), where};
  return object;
}

template <typename Object>
Object* optional(Object* object, const char* what, Where where) {
  if (object == nullptr && is_refusal_of_qp(errno))
    throw NotClaimed{std::string(what) + " refused with " + errno_text(errno)};
  return required(object, what, where);
}

}  // namespace

bool is_refusal(int error) {
  return error == EOPNOTSUPP || error == ENOSYS || error == EPROTONOSUPPORT || error == EINVAL;
}

bool is_refusal_of_qp(int error) { return error == 0 || is_refusal(error); }

Pd make_pd(Device& device, Where where) {
  return Pd(required(CALL(ibv_alloc_pd(device.context())), "a PD", where));
}

Cq make_cq(Device& device, int entries, ibv_comp_channel* channel, Where where) {
  entries = std::min(entries, device.attributes().max_cqe);
  Cq cq(CALL(ibv_create_cq(device.context(), entries, nullptr, channel, 0)));
  if (channel != nullptr) expect_cq_of_channel(cq);
  required(cq.get(), "a CQ", where);
  return cq;
}

void expect_cq_of_channel(const ibv_cq* cq) {
  if (cq == nullptr && (errno == EOPNOTSUPP || errno == ENOSYS))
    throw NotClaimed{"a CQ with a completion channel refused with " + errno_text(errno)};
}

Channel make_channel(Device& device, Where where) {
  return Channel(required(CALL(ibv_create_comp_channel(device.context())), "a completion channel", where));
}

Mr make_mr(ibv_pd* pd, const Buffer& buffer, int access, Where where) {
  // Calls the function: ibv_reg_mr is a macro that drops optional access flags.
  return Mr(required(CALL((ibv_reg_mr)(pd, buffer.data(), buffer.size(), access)), "an MR", where));
}

int claimed_access(const Device& device, int access) {
  constexpr unsigned windows =
      IBV_DEVICE_MEM_WINDOW | IBV_DEVICE_MEM_WINDOW_TYPE_2A | IBV_DEVICE_MEM_WINDOW_TYPE_2B;
  if (device.attributes().atomic_cap == IBV_ATOMIC_NONE) access &= ~IBV_ACCESS_REMOTE_ATOMIC;
  if ((device.attributes().device_cap_flags & windows) == 0) access &= ~IBV_ACCESS_MW_BIND;
  return access;
}

Mr make_mr_of(ibv_qp_type type, ibv_pd* pd, const Buffer& buffer, int access, Where where) {
  if (type == IBV_QPT_UD) {
    Mr mr(CALL((ibv_reg_mr)(pd, buffer.data(), buffer.size(), access)));
    if (mr || errno != EOPNOTSUPP) return Mr(required(mr.release(), "an MR", where));
    access &= ~all_remote_access | IBV_ACCESS_LOCAL_WRITE;
  }
  return make_mr(pd, buffer, access, where);
}

Srq make_srq(Device& device, ibv_pd* pd, uint32_t depth, uint32_t sges, Where where, ibv_srq_attr* made) {
  if (device.attributes().max_srq == 0) throw NotClaimed{"max_srq is 0"};
  ibv_srq_init_attr attr = {};
  attr.attr.max_wr = std::min(depth, static_cast<uint32_t>(device.attributes().max_srq_wr));
  attr.attr.max_sge = std::min(sges, static_cast<uint32_t>(device.attributes().max_srq_sge));
  Srq srq(required(CALL(ibv_create_srq(pd, &attr)), "an SRQ", where));
  if (made != nullptr) *made = attr.attr;
  return srq;
}

Mw make_mw(ibv_pd* pd, ibv_mw_type type, Where where) {
  ibv_device_attr attributes = {};
  if (ibv_query_device(pd->context, &attributes) == 0) {
    const unsigned flags = attributes.device_cap_flags;
    const bool claimed = type == IBV_MW_TYPE_1
                             ? (flags & IBV_DEVICE_MEM_WINDOW) != 0
                             : (flags & (IBV_DEVICE_MEM_WINDOW_TYPE_2A | IBV_DEVICE_MEM_WINDOW_TYPE_2B)) != 0;
    if (!claimed) throw NotClaimed{"device_cap_flags has no memory windows of this type"};
  }
  ibv_mw* mw = CALL(ibv_alloc_mw(pd, type));
  // Only where it is refused as well: some devices with windows say 0.
  if (mw == nullptr && attributes.max_mw <= 0 && is_refusal(errno)) throw NotClaimed{"max_mw is 0"};
  return Mw(required(mw, "a memory window", where));
}

ibv_qp_init_attr init_attributes(const QpSpec& spec, ibv_cq* send_cq, ibv_cq* receive_cq) {
  ibv_qp_init_attr attr = {};
  attr.qp_context = spec.qp_context;
  attr.send_cq = send_cq;
  attr.recv_cq = receive_cq;
  attr.srq = spec.srq;
  attr.qp_type = spec.type;
  attr.sq_sig_all = spec.signal_all ? 1 : 0;
  attr.cap = {spec.send_depth, spec.receive_depth, spec.send_sges, spec.receive_sges, spec.inline_data};
  return attr;
}

QpSpec within_limits(ibv_context* context, QpSpec spec) {
  ibv_device_attr limits = {};
  if (ibv_query_device(context, &limits) != 0) return spec;
  const auto most = static_cast<uint32_t>(limits.max_qp_wr), sges = static_cast<uint32_t>(limits.max_sge);
  spec.send_depth = std::min(spec.send_depth, most);
  spec.send_sges = std::min(spec.send_sges, sges);
  if (spec.srq != nullptr) return spec;
  spec.receive_depth = std::min(spec.receive_depth, most);
  spec.receive_sges = std::min(spec.receive_sges, sges);
  return spec;
}

Qp make_qp(ibv_pd* pd, ibv_cq* cq, const QpSpec& spec, Where where) {
  return make_qp(pd, cq, cq, spec, where);
}

Qp make_qp(ibv_pd* pd, ibv_cq* send_cq, ibv_cq* receive_cq, const QpSpec& spec, Where where,
           ibv_qp_cap* made) {
  ibv_qp_init_attr attr = init_attributes(within_limits(pd->context, spec), send_cq, receive_cq);
  const std::string what = std::string("a QP of type ") + type_name(spec.type);
  Qp qp(optional(CALL(ibv_create_qp(pd, &attr)), what.c_str(), where));
  if (made != nullptr) *made = attr.cap;
  return qp;
}

const char* type_name(ibv_qp_type type) {
  switch (type) {
    case IBV_QPT_RC:
      return "RC";
    case IBV_QPT_UC:
      return "UC";
    case IBV_QPT_UD:
      return "UD";
    case IBV_QPT_RAW_PACKET:
      return "RAW_PACKET";
    case IBV_QPT_XRC_SEND:
      return "XRC_SEND";
    case IBV_QPT_XRC_RECV:
      return "XRC_RECV";
    default:
      return "?";
  }
}

const char* state_name(ibv_qp_state state) {
  constexpr const char* names[] = {"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"};
  return static_cast<size_t>(state) < std::size(names) ? names[state] : "?";
}

}  // namespace conformance
