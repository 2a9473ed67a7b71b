// SPDX-License-Identifier: BSD-2-Clause
//
// Requests to an end, wherever it is. Nothing here contains a pointer. A field `end` is the number from
// MakeEnd; offsets are those of the end's buffer.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "support/transitions.h"

namespace conformance::wire {

// Raised whenever a message changes: ends of different versions refuse each other.
constexpr uint32_t magic = 0x76636631, version = 6;
constexpr uint32_t largest_message = 64u << 20;

#define CONFORMANCE_FIELDS(...)                    \
  template <typename Archive>                      \
  void fields([[maybe_unused]] Archive& archive) { \
    archive(__VA_ARGS__);                          \
  }

// Requests of the data path; others (support/service.h) have numbers of their own from 100 on.
enum class Kind : uint16_t {
  hello = 1,
  make,
  connect,
  modify,
  query,
  send,
  receive,
  poll,
  write,
  read,
  fill,
  check,
  register_region,
  deregister_region,
  bind_window,
  destroy,
  async_event,
  arm,
  cq_event,
  hammer,
  multicast,
};

struct Nothing {
  CONFORMANCE_FIELDS()
};

struct Result {  // errno value, or 0
  int32_t error = 0;
  CONFORMANCE_FIELDS(error)
};

struct Hello {
  uint32_t its_magic = magic, its_version = version;
  CONFORMANCE_FIELDS(its_magic, its_version)
};

struct HelloAnswer {
  uint32_t its_version = version;
  std::vector<std::string> facts;  // NAME=VALUE, as facts_of() has them
  CONFORMANCE_FIELDS(its_version, facts)
};

// A queue pair with all that it needs. For XRC it is two, a sending and a receiving one.
struct MakeEnd {
  ibv_qp_type type = IBV_QPT_RC;  // IBV_QPT_XRC_SEND: both halves, an SRQ and a domain
  uint32_t send_depth = 8, receive_depth = 8, send_sges = 1, receive_sges = 1, inline_data = 0;
  bool signal_all = false;
  int32_t access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                   IBV_ACCESS_REMOTE_ATOMIC;  // of the region of the whole buffer; cut to what is claimed
  uint64_t buffer = 16384;
  int32_t cq_entries = 64;
  bool separate_cqs = false;  // of send and receive queue
  bool srq = false;           // receives come from an SRQ
  bool channel = false;       // for arm and cq_event
  uint32_t shares = 0;      // another end of this host; its PD, buffer, region, XRC domain are this one's too
  bool shares_cqs = false;  // and its CQs
  CONFORMANCE_FIELDS(type, send_depth, receive_depth, send_sges, receive_sges, inline_data, signal_all,
                     access, buffer, cq_entries, separate_cqs, srq, channel, shares, shares_cqs)
};

// What the other end, and the test, must know about an end.
struct EndFacts {
  uint32_t end = 0;
  uint32_t qpn = 0, receiving_qpn = 0, srqn = 0;  // receiving_qpn: of XRC the other half, otherwise the same
  uint32_t lid = 0;
  std::array<uint8_t, 16> gid = {};
  ibv_mtu mtu = IBV_MTU_256;
  uint64_t address = 0, length = 0;  // of the buffer
  uint32_t lkey = 0, rkey = 0;
  uint32_t send_depth = 0, receive_depth = 0, send_sges = 0, receive_sges = 0, inline_data = 0;  // as given
  ibv_atomic_cap atomics = IBV_ATOMIC_NONE;
  uint32_t largest = 0;                                     // max_msg_sz
  uint32_t reads_as_responder = 0, reads_as_requester = 0;  // max_qp_rd_atom, max_qp_init_rd_atom
  std::vector<uint16_t> pkeys;  // the first ones of the port's table, in the machine's order
  CONFORMANCE_FIELDS(end, qpn, receiving_qpn, srqn, lid, gid, mtu, address, length, lkey, rkey, send_depth,
                     receive_depth, send_sges, receive_sges, inline_data, atomics, largest,
                     reads_as_responder, reads_as_requester, pkeys)
};

struct Connect {
  uint32_t end = 0;
  EndFacts other;
  ibv_qp_state state = IBV_QPS_RTS;
  uint32_t psn = 0x123456, qkey = 0x11111111;
  int32_t access = 0;
  uint8_t timeout = 14, retry_count = 7, rnr_retry = 7, min_rnr_timer = 12, reads = 1;
  uint16_t pkey_index = 0;
  ibv_mtu mtu = IBV_MTU_4096;  // cut to what both ports have
  CONFORMANCE_FIELDS(end, other, state, psn, qkey, access, timeout, retry_count, rnr_retry, min_rnr_timer,
                     reads, pkey_index, mtu)
};

// The attributes that tests change afterwards.
struct Modify {
  uint32_t end = 0;
  int32_t mask = 0;
  ibv_qp_state state = IBV_QPS_RESET, current = IBV_QPS_RESET;
  uint32_t access = 0, qkey = 0;
  uint8_t timeout = 0, retry_count = 0, rnr_retry = 0, min_rnr_timer = 0;
  bool notify = false;
  ibv_mig_state migration = IBV_MIG_MIGRATED;  // IBV_QP_ALT_PATH: the way it is connected by, once more
  CONFORMANCE_FIELDS(end, mask, state, current, access, qkey, timeout, retry_count, rnr_retry, min_rnr_timer,
                     notify, migration)
};

struct OfEnd {
  uint32_t end = 0;
  CONFORMANCE_FIELDS(end)
};

struct State {
  ibv_qp_state state = IBV_QPS_RESET;
  bool draining = false;
  CONFORMANCE_FIELDS(state, draining)
};

constexpr uint64_t own_key = ~uint64_t{0};

struct Element {
  int64_t offset = 0;  // may be outside of the buffer, on purpose
  uint32_t length = 0;
  uint64_t key = own_key;
  CONFORMANCE_FIELDS(offset, length, key)
};

struct SendRequest {
  ibv_wr_opcode opcode = IBV_WR_SEND;
  uint32_t flags = IBV_SEND_SIGNALED;
  uint64_t id = 1;
  uint32_t imm = 0;  // in the machine's order; travels in the network's
  std::vector<Element> elements;
  uint64_t remote = 0;
  uint32_t rkey = 0;
  uint64_t compare_add = 0, swap = 0;
  uint32_t qpn = 0, qkey = 0;  // UD: other than the connected end's where not 0
  uint32_t srqn = 0;           // XRC: likewise
  CONFORMANCE_FIELDS(opcode, flags, id, imm, elements, remote, rkey, compare_add, swap, qpn, qkey, srqn)
};

struct Send {
  uint32_t end = 0;
  std::vector<SendRequest> list;
  CONFORMANCE_FIELDS(end, list)
};

struct ReceiveRequest {
  uint64_t id = 1;
  std::vector<Element> elements;
  CONFORMANCE_FIELDS(id, elements)
};

struct Receive {
  uint32_t end = 0;
  std::vector<ReceiveRequest> list;
  CONFORMANCE_FIELDS(end, list)
};

struct Poll {
  uint32_t end = 0;
  bool receives = false;  // the receive queue's CQ, where there are two
  uint32_t count = 1;
  uint32_t milliseconds = 0;  // until so many are there
  CONFORMANCE_FIELDS(end, receives, count, milliseconds)
};

struct Completion {
  uint64_t id = 0;
  ibv_wc_status status = IBV_WC_SUCCESS;
  ibv_wc_opcode opcode = IBV_WC_SEND;
  uint32_t bytes = 0, imm = 0, qpn = 0, source = 0, flags = 0, slid = 0;
  uint32_t invalidated = 0;  // the rkey, with IBV_WC_WITH_INV
  CONFORMANCE_FIELDS(id, status, opcode, bytes, imm, qpn, source, flags, slid, invalidated)
};

struct Completions {
  std::vector<Completion> list;
  CONFORMANCE_FIELDS(list)
};

struct Bytes {  // both directions
  uint32_t end = 0;
  uint64_t offset = 0, length = 0;  // length: of a read
  std::string bytes;
  CONFORMANCE_FIELDS(end, offset, length, bytes)
};

// The pattern of support/pattern.h, or one byte.
struct Pattern {
  uint32_t end = 0;
  uint64_t offset = 0, length = 0;
  uint64_t seed = 0;   // 0: `byte` everywhere
  uint64_t first = 0;  // position in the pattern of the first byte
  uint8_t byte = 0;
  CONFORMANCE_FIELDS(end, offset, length, seed, first, byte)
};

struct Mismatch {
  uint64_t offset = 0;  // the first byte that differs; ~0 where there is none
  uint8_t seen = 0, expected = 0;
  CONFORMANCE_FIELDS(offset, seen, expected)
};

// Joins the end to a group (ibv_attach_mcast(3)), or takes it out of it.
struct Multicast {
  uint32_t end = 0;
  bool attach = true;
  std::array<uint8_t, 16> gid = {};
  uint16_t lid = 0;
  CONFORMANCE_FIELDS(end, attach, gid, lid)
};

struct RegisterRegion {
  uint32_t end = 0;
  uint64_t offset = 0, length = 0;
  int32_t access = 0;
  bool in_other_pd = false;  // of a PD that the end has besides its own
  CONFORMANCE_FIELDS(end, offset, length, access, in_other_pd)
};

struct Region {
  uint32_t region = 0, lkey = 0, rkey = 0;
  int32_t error = 0;  // an errno value where there is no region
  CONFORMANCE_FIELDS(region, lkey, rkey, error)
};

struct OfRegion {
  uint32_t end = 0, region = 0;
  CONFORMANCE_FIELDS(end, region)
};

struct BindWindow {
  uint32_t end = 0;
  bool second_type = false;
  uint64_t offset = 0, length = 0;
  uint32_t access = 0;
  CONFORMANCE_FIELDS(end, second_type, offset, length, access)
};

struct Window {
  uint32_t rkey = 0;
  ibv_wc_status status = IBV_WC_SUCCESS;  // of the bind
  CONFORMANCE_FIELDS(rkey, status)
};

enum class Part : uint8_t { qp, all };

struct Destroy {
  uint32_t end = 0;
  Part part = Part::all;
  CONFORMANCE_FIELDS(end, part)
};

struct AwaitEvent {
  uint32_t end = 0;
  uint32_t milliseconds = 0;
  CONFORMANCE_FIELDS(end, milliseconds)
};

struct Event {
  bool there = false;
  ibv_event_type type = IBV_EVENT_CQ_ERR;
  bool of_end = false;  // of this end's QP, CQ or SRQ
  CONFORMANCE_FIELDS(there, type, of_end)
};

struct Arm {
  uint32_t end = 0;
  bool receives = true, solicited_only = false;
  CONFORMANCE_FIELDS(end, receives, solicited_only)
};

// One request again and again, as many at a time as the queue holds.
struct Hammer {
  uint32_t end = 0;
  uint32_t times = 1;
  uint32_t milliseconds = 0;
  SendRequest request;
  CONFORMANCE_FIELDS(end, times, milliseconds, request)
};

struct HammerAnswer {
  uint32_t completed = 0;
  ibv_wc_status status = IBV_WC_SUCCESS;  // the first that was none
  CONFORMANCE_FIELDS(completed, status)
};

#undef CONFORMANCE_FIELDS

}  // namespace conformance::wire
