// SPDX-License-Identifier: BSD-2-Clause
//
// Which way a QP may go, and with which attributes.
//
// Sources: ibv_modify_qp(3), NOTES, for what RC, UC and UD require from RESET to RTS; the Linux kernel's
// drivers/infiniband/core/verbs.c, qp_state_table, for the other transitions and for what is optional.
#pragma once

#include <infiniband/verbs.h>

#include <optional>
#include <span>
#include <vector>

#include "suite/test.h"
#include "support/device.h"

namespace conformance {

struct Transition {
  ibv_qp_state from, to;
  int required, optional;  // masks; IBV_QP_STATE is in neither
};

constexpr ibv_qp_state all_states[] = {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS,
                                       IBV_QPS_SQD,   IBV_QPS_SQE,  IBV_QPS_ERR};

// Of RC, UC, UD and both halves of XRC; alternate paths are left out, they are a capability of their own.
std::optional<Transition> transition_of(ibv_qp_type type, ibv_qp_state from, ibv_qp_state to);

// Every single bit of ibv_qp_attr_mask that the table speaks of.
std::vector<int> attribute_bits();
const char* attribute_name(int bit);  // "IBV_QP_PORT"

struct Path {
  uint32_t destination = 0;  // QP number
  uint32_t psn = 0x123456;
  uint32_t qkey = 0x11111111;
  int access = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
  uint8_t timeout = 14, retry_count = 7, rnr_retry = 7, min_rnr_timer = 12;
  uint8_t reads = 1;  // outstanding ones here, and resources for the other end's
};

// Every attribute with a value that is valid on this device; access is cut to what the device claims.
ibv_qp_attr attributes_for(const Device& device, const Path& path);

// Does the device refuse RTS to SQD with `error`? Then it has no SQD, as some have none: throws NotClaimed.
void expect_sqd(int error);

// Does the device refuse ibv_query_qp with `error` as not supported? Then it has none, which the kernel's
// core allows (Linux drivers/infiniband/core/device.c, ib_device_check_mandatory()): throws NotClaimed.
void expect_query(int error);

// Takes the QP from RESET through the states before `state` to it, to ERR from INIT. Throws Deviation where
// one is refused; of SQD NotClaimed; NotTested if the run has found that nothing goes from INIT to ERR.
void bring_to(ibv_qp* qp, ibv_qp_state state, const ibv_qp_attr& values, Where where = Where::current());

// The state that ibv_query_qp reports. Throws Deviation, or NotClaimed as expect_query() does.
ibv_qp_state state_of(ibv_qp* qp, Where where = Where::current());

// ibv_modify_qp with a line in the trace that says which bits and which state.
int modify(ibv_qp* qp, ibv_qp_attr attr, int mask);

}  // namespace conformance
