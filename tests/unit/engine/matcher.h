// SPDX-License-Identifier: BSD-2-Clause
//
// The receiving end of tag matching (ibv_post_srq_ops(3)).
#pragma once

#include <endian.h>
#include <infiniband/tm_types.h>

#include <cstring>
#include <memory>

#include "unit/engine/scene.h"

namespace verbena {

inline constexpr uint32_t kTmh = sizeof(ibv_tmh), kRoom = 4096, kUnexpectedRoom = 4096;
inline constexpr uint64_t kAllBits = UINT64_MAX;

struct DestroyTagSrq : Destroy {
  using Destroy::operator();
  void operator()(Srq* srq) const {
    uint32_t async_events;
    EXPECT_EQ(destroy_srq(srq, &async_events), 0);
  }
};

inline void write_header(uint8_t* to, ibv_tmh_op opcode, uint64_t tag, uint32_t context = 0) {
  ibv_tmh header{};
  header.opcode = static_cast<uint8_t>(opcode);
  header.app_ctx = htobe32(context);
  header.tag = htobe64(tag);
  std::memcpy(to, &header, sizeof header);
}

struct Polled {
  ibv_wc wc;
  ibv_wc_tm_info tag;
};

// The receiving end: an SRQ with tags, and its memory. Buffer i of `tagged` is for tags, that of `plain` for
// others.
struct Matcher {
  static constexpr uint32_t kTags = 4, kPlain = 8;

  Matcher(Context* context, Pd* protection, const ibv_tm_cap& room = {kTags, 8})
      : pd(protection),
        cq(make_cq(context, 256)),
        tagged(pd, kTags * kRoom),
        plain(pd, kPlain * kUnexpectedRoom) {
    ibv_srq_attr attr{kPlain, 1, 0};
    Srq* made = nullptr;
    EXPECT_EQ(create_tag_srq(pd, &attr, room, cq.get(), 0, &made), 0);
    srq.reset(made);
    for (uint32_t i = 0; i < kPlain; ++i) fill(i);
  }
  void fill(uint64_t i) {
    Sges sges{plain.sge(i * kUnexpectedRoom, kUnexpectedRoom)};
    ibv_recv_wr wr{100 + i, nullptr, sges.data(), 1}, *bad = nullptr;
    EXPECT_EQ(post_srq_recv(srq.get(), &wr, &bad), 0);
  }
  Owned<Qp> make_receiver(Cq* send_cq, uint32_t send_wr = 0) {
    ibv_qp_init_attr init{};
    init.cap = {send_wr, 0, 1, 0, 0};
    init.qp_type = IBV_QPT_RC;
    Qp* qp = nullptr;
    EXPECT_EQ(create_qp(pd, &init, send_cq, send_cq, 0, &qp, srq.get()), 0);
    return Owned<Qp>(qp);
  }
  int operate(ibv_ops_wr wr, uint32_t* handle = nullptr) {
    ibv_ops_wr* bad = nullptr;
    const int error = post_srq_ops(srq.get(), &wr, &bad);
    if (handle != nullptr) *handle = wr.tm.handle;
    return error;
  }
  int add(uint32_t buffer, uint64_t tag, int flags = 0, uint32_t length = kRoom, uint32_t* handle = nullptr,
          uint64_t mask = kAllBits) {
    ibv_sge sge = tagged.sge(uint64_t{buffer} * kRoom, length);
    ibv_ops_wr wr{};
    wr.wr_id = 50 + buffer;
    wr.opcode = IBV_WR_TAG_ADD;
    wr.flags = flags;
    wr.tm.add = {buffer, &sge, 1, tag, mask};
    return operate(wr, handle);
  }
  int remove(uint32_t handle) {
    ibv_ops_wr wr{};
    wr.wr_id = 7;
    wr.opcode = IBV_WR_TAG_DEL;
    wr.flags = IBV_OPS_SIGNALED;
    wr.tm.handle = handle;
    return operate(wr);
  }
  int sync(uint32_t handled) {
    ibv_ops_wr wr{};
    wr.wr_id = 8;
    wr.opcode = IBV_WR_TAG_SYNC;
    wr.flags = IBV_OPS_SIGNALED | IBV_OPS_TM_SYNC;
    wr.tm.unexpected_cnt = handled;
    return operate(wr);
  }
  bool poll(Polled* polled) {
    *polled = {};
    return poll_cq(cq.get(), 1, &polled->wc, nullptr, &polled->tag) == 1;
  }
  Polled next() {
    Polled polled;
    for (const int64_t end = now_ns() + 20'000'000'000; now_ns() < end; sched_yield())
      if (poll(&polled)) return polled;
    ADD_FAILURE() << "no completion";
    polled.wc.status = IBV_WC_GENERAL_ERR;
    return polled;
  }
  const uint8_t* buffer(uint64_t i) { return tagged.data() + i * kRoom; }
  const uint8_t* plain_buffer(uint64_t wr_id) { return plain.data() + (wr_id - 100) * kUnexpectedRoom; }

  Pd* pd;
  Owned<Cq> cq;
  Region tagged, plain;
  std::unique_ptr<Srq, DestroyTagSrq> srq;
};

}  // namespace verbena
