// SPDX-License-Identifier: BSD-2-Clause
//
// A random program: the objects that it begins with, and the steps that it takes. A program is data. The
// generator makes it (generator.h), the model says what may come of it (model.h), the machine carries it out
// on a device or on two (machine.h), and what is left of it after shrinking is shown as text (text.h).
//
// With two devices, side 0 of each connection is on the near one, and side 1 on the far one. So are the
// buffers, with their regions, and the windows of even and of odd numbers.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

namespace conformance::random {

// For messages (support/wire.h).
#define RANDOM_FIELDS(...)                         \
  template <typename Archive>                      \
  void fields([[maybe_unused]] Archive& archive) { \
    archive(__VA_ARGS__);                          \
  }
template <typename Archive, typename Value>
void optional_field(Archive& archive, std::optional<Value>& value) {
  bool is_there = value.has_value();
  archive(is_there);
  if (is_there != value.has_value()) value.emplace();
  if (is_there) archive(*value);
}

// What the device is known to do otherwise than promised (known.h). The model allows it, or keeps what meets
// it out of programs.
struct Known {
  bool local_key_status = false;   // an lkey that cannot be used: IBV_WC_LOC_QP_OP_ERR
  bool too_long_status = false;    // a message longer than its receive: IBV_WC_REM_OP_ERR
  bool window_bounds = false;      // bounds of windows are not checked
  bool invalidation_flag = false;  // IBV_WC_WITH_INV is missing, or is another flag
  bool endless_retries = false;    // a retry_cnt of 7 never ends
  // A fenced request that is sent again waits for READs and atomics behind it.
  bool fence_counts_later = false;
};

// What the device has, or both have. What it has not is in no program.
struct Claims {
  bool is_split = false;  // two devices
  bool uc = false, ud = false, xrc = false, srq = false, atomics = false;
  bool window1 = false, window2 = false, send_with_invalidate = false;
  uint32_t inline_data = 0, send_sges = 1, receive_sges = 1, srq_sges = 1, reads = 1, mtu = 1024;
  int32_t cqe = 64;
  Known known{};  // in no message: the objects do not ask
  RANDOM_FIELDS(is_split, uc, ud, xrc, srq, atomics, window1, window2, send_with_invalidate, inline_data,
                send_sges, receive_sges, srq_sges, reads, mtu, cqe)
};

// ---- what a program begins with ----

// A part of a buffer, registered in the PD of the queue pairs or in another one.
struct Region {
  uint32_t buffer, begin, length;
  int32_t access;
  bool in_other_pd = false;
  RANDOM_FIELDS(buffer, begin, length, access, in_other_pd)
};

struct Connection {
  ibv_qp_type type;              // IBV_QPT_XRC_SEND: from side 0, an XRC_SEND QP, to side 1, an XRC_RECV QP
  bool shared_receives = false;  // both ends take receives from the SRQ. Always the case with XRC
  uint32_t send_cq[2] = {}, receive_cq[2] = {};
  unsigned access[2] = {};  // qp_access_flags
  bool signal_all = false;
  RANDOM_FIELDS(type, shared_receives, send_cq[0], send_cq[1], receive_cq[0], receive_cq[1], access[0],
                access[1], signal_all)
};

struct Setup {
  std::vector<uint32_t> buffers;  // sizes in bytes
  std::vector<Region> regions;
  std::vector<ibv_mw_type> windows;
  std::vector<Connection> connections;
  uint32_t cqs = 1;  // of each device
  RANDOM_FIELDS(buffers, regions, windows, connections, cqs)
};

constexpr uint32_t kDepth = 16;  // of every send, receive and shared receive queue

// End 2 * c + s is side s of connection c.
using EndIndex = uint32_t;
constexpr EndIndex other_end(EndIndex end) { return end ^ 1; }
constexpr uint32_t side_of_end(EndIndex end) { return end & 1; }
constexpr uint32_t side_of_buffer(uint32_t buffer) { return buffer & 1; }
constexpr uint32_t side_of_window(uint32_t window) { return window & 1; }

// ---- steps ----

// Bytes of a region, from its first byte on. They may lie behind its end.
struct Element {
  uint32_t region, offset, length;
  bool bad_key = false;  // the lkey is one that names nothing
  RANDOM_FIELDS(region, offset, length, bad_key)
};

struct Receive {
  uint64_t id;  // also the wr_id. Unique in a program
  std::vector<Element> elements;
  RANDOM_FIELDS(id, elements)
};

// What an RDMA operation or an atomic is aimed at.
struct Target {
  bool is_window = false;
  uint32_t index = 0;   // of the region or window
  uint32_t offset = 0;  // from the first byte of the region or of what the window is bound to
  bool bad_key = false;
  RANDOM_FIELDS(is_window, index, offset, bad_key)
};

struct Bind {
  uint32_t window, region, offset, length;
  unsigned access;
  RANDOM_FIELDS(window, region, offset, length, access)
};

struct Request {
  uint64_t id = 0;  // also the wr_id. Unique in a program, receives included
  ibv_wr_opcode opcode = IBV_WR_SEND;
  bool signaled = true, fenced = false, inlined = false, solicited = false;
  std::vector<Element> elements{};
  uint32_t imm = 0;
  std::optional<Target> target{};
  uint64_t compare_add = 0, swap = 0;
  std::optional<Bind> bind{};  // IBV_WR_BIND_MW; of a window of type 1 by ibv_bind_mw
  std::optional<uint32_t>
      window{};             // IBV_WR_SEND_WITH_INV, IBV_WR_LOCAL_INV: the window that becomes invalid
  bool wrong_qkey = false;  // UD
  template <typename Archive>
  void fields(Archive& archive) {
    archive(id, opcode, signaled, fenced, inlined, solicited, elements, imm, compare_add, swap, wrong_qkey);
    optional_field(archive, target);
    optional_field(archive, bind);
    optional_field(archive, window);
  }
};

// Posted in one list.
struct PostReceives {
  std::optional<EndIndex> end;  // none: the SRQ, or with `xrc` the SRQ of XRC
  bool xrc = false;
  std::vector<Receive> list;
  template <typename Archive>
  void fields(Archive& archive) {
    archive(xrc, list);
    optional_field(archive, end);
  }
};
struct PostSends {
  EndIndex end;
  std::vector<Request> list;
  RANDOM_FIELDS(end, list)
};
// The CPU writes bytes that depend on `seed`.
struct Fill {
  uint32_t buffer, begin, length;
  uint64_t seed;
  RANDOM_FIELDS(buffer, begin, length, seed)
};
// The region is registered again as it was, and the former one deregistered: its keys change.
struct RegisterAgain {
  uint32_t region;
  RANDOM_FIELDS(region)
};
struct ToError {
  EndIndex end;
  RANDOM_FIELDS(end)
};
// Both ends of the connection go through RESET to RTS.
struct Reconnect {
  uint32_t connection;
  RANDOM_FIELDS(connection)
};
// Waits until everything that must complete has completed, then compares completions, states and memory.
struct Settle {
  RANDOM_FIELDS()
};
#undef RANDOM_FIELDS

using Step = std::variant<PostReceives, PostSends, Fill, RegisterAgain, ToError, Reconnect, Settle>;

struct Program {
  uint64_t seed = 0;
  Setup setup;
  std::vector<Step> steps;
};

// Byte `index` of what Fill writes.
constexpr uint8_t filled_byte(uint64_t seed, uint64_t index) {
  uint64_t word = (seed + 1) * 0x9e3779b97f4a7c15u + index * 0xbf58476d1ce4e5b9u;
  word ^= word >> 29;
  word *= 0x94d049bb133111ebu;
  return static_cast<uint8_t>(word >> 56);
}

inline uint32_t length_of(const std::vector<Element>& elements) {
  uint32_t sum = 0;
  for (const Element& element : elements) sum += element.length;
  return sum;
}

constexpr bool is_atomic_operation(ibv_wr_opcode opcode) {
  return opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}
constexpr bool consumes_a_receive(ibv_wr_opcode opcode) {
  return opcode == IBV_WR_SEND || opcode == IBV_WR_SEND_WITH_IMM || opcode == IBV_WR_SEND_WITH_INV ||
         opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}
constexpr bool is_send(ibv_wr_opcode opcode) {
  return consumes_a_receive(opcode) && opcode != IBV_WR_RDMA_WRITE_WITH_IMM;
}
constexpr bool is_write(ibv_wr_opcode opcode) {
  return opcode == IBV_WR_RDMA_WRITE || opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

}  // namespace conformance::random
