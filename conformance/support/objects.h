// SPDX-License-Identifier: BSD-2-Clause
//
// Objects that a test needs and does not examine. Each function throws Deviation when the device does not
// create the object, or NotClaimed where the device may say that it has none (with a proper errno value).
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

#include "suite/test.h"
#include "support/buffer.h"
#include "support/device.h"
#include "support/owned.h"

namespace conformance {

constexpr int all_remote_access =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

// Does this errno value say that the device has no such thing?
bool is_refusal(int error);
// The same of an object that was not created. Most pages promise NULL and no errno value, and a provider may
// set none for what it does not have.
bool is_refusal_of_qp(int error);

Pd make_pd(Device& device, Where where = Where::current());
// At most max_cqe entries. NotClaimed as expect_cq_of_channel() says.
Cq make_cq(Device& device, int entries = 16, ibv_comp_channel* channel = nullptr,
           Where where = Where::current());
// To be called while errno is still that of the call. No capability says whether the CQs of a device can have
// a channel: throws NotClaimed where a CQ with one is refused as not supported.
void expect_cq_of_channel(const ibv_cq* cq);
Channel make_channel(Device& device, Where where = Where::current());
Mr make_mr(ibv_pd* pd, const Buffer& buffer, int access = IBV_ACCESS_LOCAL_WRITE,
           Where where = Where::current());
// Without the rights for atomics and windows where the device claims none: it may refuse them.
int claimed_access(const Device& device, int access);
// Of an end of this type. A device that has no QPs but those of datagrams may refuse remote rights as not
// supported: a datagram's region is then made without them.
Mr make_mr_of(ibv_qp_type type, ibv_pd* pd, const Buffer& buffer, int access, Where where = Where::current());
// `made`: the attributes that ibv_create_srq tells.
Srq make_srq(Device& device, ibv_pd* pd, uint32_t depth = 8, uint32_t sges = 1, Where where = Where::current(),
             ibv_srq_attr* made = nullptr);
Mw make_mw(ibv_pd* pd, ibv_mw_type type, Where where = Where::current());

struct QpSpec {
  ibv_qp_type type = IBV_QPT_RC;
  uint32_t send_depth = 8, receive_depth = 8, send_sges = 1, receive_sges = 1, inline_data = 0;
  ibv_srq* srq = nullptr;
  bool signal_all = false;
  void* qp_context = nullptr;
};
ibv_qp_init_attr init_attributes(const QpSpec& spec, ibv_cq* send_cq, ibv_cq* receive_cq);
// The depths and numbers of elements are cut to what the device claims.
QpSpec within_limits(ibv_context* context, QpSpec spec);
Qp make_qp(ibv_pd* pd, ibv_cq* cq, const QpSpec& spec = {}, Where where = Where::current());
// `made`: the capabilities that ibv_create_qp tells.
Qp make_qp(ibv_pd* pd, ibv_cq* send_cq, ibv_cq* receive_cq, const QpSpec& spec,
           Where where = Where::current(), ibv_qp_cap* made = nullptr);

const char* type_name(ibv_qp_type type);     // "RC"
const char* state_name(ibv_qp_state state);  // "RTS"

}  // namespace conformance
