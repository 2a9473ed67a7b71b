// SPDX-License-Identifier: BSD-2-Clause
//
// Extended QPs and the ibv_wr_* interface.
#include <arpa/inet.h>

#include <algorithm>
#include <cstring>

#include "chapters/wr_fixture.h"
#include "support/waiting_call.h"

namespace conformance::wr_chapter {
namespace {

using Fixture = ExtendedQpTest;

CONFORMANCE_TEST(wr, ExtendedQpIsAQp, "ibv_create_qp_ex.pointer", "ibv_create_qp_ex.cap",
                 "ibv_qp_to_qp_ex.pointer") {
  ibv_qp_init_attr_ex attr = attributes(IBV_QPT_RC, rc_operations);
  attr.cap = {13, 11, 1, 1, 0};
  Qp qp = create(attr);
  ABOUT("ibv_create_qp_ex.cap") {
    EXPECT_GE(attr.cap.max_send_wr, 13u);
    EXPECT_GE(attr.cap.max_recv_wr, 11u);
    EXPECT_GE(attr.cap.max_send_sge, 1u);
  }
  ABOUT("ibv_qp_to_qp_ex.pointer") EXPECT_NE(CALL(ibv_qp_to_qp_ex(qp)), nullptr);
  const About about("ibv_create_qp_ex.pointer");
  EXPECT_EQ(qp->pd, pd_.get());
  EXPECT_EQ(qp->send_cq, cq_.get());
  EXPECT_EQ(state_of(qp), IBV_QPS_RESET);
  EXPECT_SUCCEEDS(qp.destroy());
}

CONFORMANCE_TEST(wr, NonsenseIsRefused, "ibv_create_qp_ex.unknown-mask", "ibv_create_qp_ex.ops-unsupported",
                 "ibv_create_qp_ex.source-qpn") {
  ibv_qp_init_attr_ex attr = attributes(IBV_QPT_RC, rc_operations);
  create(attr);
  {
    const About about("ibv_create_qp_ex.unknown-mask");
    attr.comp_mask |= 1u << 31;
    EXPECT_EQ(CALL(ibv_create_qp_ex(context(), &attr)), nullptr);  // the page does not speak of errno
  }
  {
    const About about("ibv_create_qp_ex.ops-unsupported");
    ibv_qp_init_attr_ex other = attributes(IBV_QPT_UD, IBV_QP_EX_WITH_RDMA_READ);
    EXPECT_EQ(CALL(ibv_create_qp_ex(context(), &other)), nullptr) << "reads on a UD QP";
    other = attributes(IBV_QPT_RC, 1ull << 60);
    EXPECT_EQ(CALL(ibv_create_qp_ex(context(), &other)), nullptr) << "an operation that does not exist";
  }
  const About about("ibv_create_qp_ex.source-qpn");
  ibv_qp_init_attr_ex source = attributes(IBV_QPT_RC, 0);
  source.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS;
  source.create_flags = IBV_QP_CREATE_SOURCE_QPN;
  source.source_qpn = 77;
  EXPECT_EQ(CALL(ibv_create_qp_ex(context(), &source)), nullptr);
}

CONFORMANCE_TEST(wr, SrqMakesReceivesIrrelevant, "ibv_create_qp_ex.srq-ignores-recv") {
  ibv_qp_init_attr_ex attr = attributes(IBV_QPT_RC, rc_operations);
  create(attr);
  const Srq srq = make_srq(device(), pd_);
  attr = attributes(IBV_QPT_RC, rc_operations);
  attr.srq = srq;
  attr.cap.max_recv_wr = attr.cap.max_recv_sge = 0x7fffffff;
  const Qp qp(CALL(ibv_create_qp_ex(context(), &attr)));
  EXPECT_NE(qp, nullptr) << "errno " << errno_text(errno);
}

CONFORMANCE_TEST(wr, NothingBeforeComplete, "ibv_wr_start.nothing-before-complete", "ibv_wr_complete.zero") {
  connect();
  buffer_[0] = 0x77;
  start();
  write();
  ABOUT("ibv_wr_start.nothing-before-complete") {
    ASSERT_TRUE(stays_empty(cq_));
    EXPECT_TRUE(far().untouched(0, 4096));
  }
  const About about("ibv_wr_complete.zero");
  EXPECT_EQ(complete(), 0);
  EXPECT_EQ(status(), IBV_WC_SUCCESS);
  EXPECT_TRUE(far().has(2048, 1, 0x77));
}

CONFORMANCE_TEST(wr, AbortDiscards, "ibv_wr_abort.discards") {
  connect();
  buffer_[0] = 0x77;
  start();
  write();
  CALL(ibv_wr_abort(qpx_));
  EXPECT_TRUE(stays_empty(cq_));
  EXPECT_TRUE(far().untouched(2048, 1));
  start();
  qpx_->wr_id = 2;
  write(2100);
  EXPECT_EQ(complete(), 0);
  EXPECT_EQ(completion(cq_).wr_id, 2u);
  EXPECT_TRUE(far().untouched(2048, 1));
}

CONFORMANCE_TEST(wr, FailureAbortsTheBatch, "ibv_wr_complete.failure") {
  connect();
  start();
  // More than there is room for, also in a queue that is counted in units of memory.
  for (uint32_t i = 0; i <= 16 * made_.max_send_wr + 1024; ++i) {
    ibv_wr_rdma_write(qpx_, far_rkey(), far().address(2048));
    sge(0, 8);
  }
  EXPECT_TRUE(refused(complete()));
  EXPECT_TRUE(stays_empty(cq_));
  EXPECT_TRUE(far().untouched(2048, 1));
}

CONFORMANCE_TEST(wr, CompletionsHaveTheirIds, "ibv_wr_post.wr-id", "ibv_wr_post.write",
                 "ibv_wr_post.signaled") {
  connect();
  buffer_[0] = 0x77;
  start();
  for (uint64_t id = 1; id <= 3; ++id) {
    qpx_->wr_id = id;
    qpx_->wr_flags = id == 2 ? 0 : IBV_SEND_SIGNALED;
    write(2048 + static_cast<int64_t>(id) * 16);
  }
  ASSERT_EQ(complete(), 0);
  for (const uint64_t id : {1, 3}) {
    ibv_wc wc = {};
    ABOUT("ibv_wr_post.signaled") wc = completion(cq_);
    if (wc.wr_id == 2) {
      ABOUT("ibv_wr_post.signaled") FAIL() << "the second write was not signaled";
    }
    ABOUT("ibv_wr_post.wr-id") EXPECT_EQ(wc.wr_id, id);
    ABOUT("ibv_wr_post.write") EXPECT_EQ(wc.opcode, IBV_WC_RDMA_WRITE);
  }
  ABOUT("ibv_wr_post.signaled") EXPECT_TRUE(stays_empty(cq_));
  const About about("ibv_wr_post.write");
  for (uint64_t id = 1; id <= 3; ++id) EXPECT_TRUE(far().has(2048 + id * 16, 1, 0x77));
}

CONFORMANCE_TEST(wr, OrdinaryPostsMayComeBetween, "ibv_wr_post.interleave") {
  connect();
  for (uint64_t id = 1; id <= 4; ++id) {
    if (id % 2 == 1) {
      start();
      qpx_->wr_id = id;
      write();
      ASSERT_EQ(complete(), 0);
      continue;
    }
    ibv_sge element{buffer_.address(), 8, mr_->lkey};
    ibv_send_wr wr = {};
    wr.wr_id = id;
    wr.sg_list = &element;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_RDMA_WRITE;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.wr.rdma = {far().address(2048), far_rkey()};
    ibv_send_wr* bad;
    ASSERT_EQ(CALL(ibv_post_send(qp_, &wr, &bad)), 0);
  }
  uint64_t id = 0;
  for (const ibv_wc& wc : completions(cq_, 4)) EXPECT_EQ(wc.wr_id, ++id);
}

CONFORMANCE_TEST(wr, SendsArrive, "ibv_wr_post.send", "ibv_wr_post.send-imm") {
  connect();
  buffer_[3] = 0x77;
  receive();
  start();
  CALL(ibv_wr_send(qpx_));
  sge(3, 5);
  ASSERT_EQ(complete(), 0);
  EXPECT_EQ(status(), IBV_WC_SUCCESS);
  EXPECT_EQ(far().received().bytes, 5u);
  EXPECT_TRUE(far().has(1024, 1, 0x77));
  const About about("ibv_wr_post.send-imm");
  receive();
  start();
  CALL(ibv_wr_send_imm(qpx_, htonl(0x01020304)));
  sge(0, 8);
  ASSERT_EQ(complete(), 0);
  const Completion received = far().received();
  EXPECT_NE(received.flags & IBV_WC_WITH_IMM, 0u);
  EXPECT_EQ(received.imm, 0x01020304u);
}

CONFORMANCE_TEST(wr, ElementsAreJoined, "ibv_wr_post.sge-list") {
  connect();
  for (size_t i = 0; i < 64; ++i) buffer_[i] = static_cast<uint8_t>(i);
  if (device().attributes().max_sge < 2) throw NotClaimed{"max_sge is 1"};
  receive();
  start();
  CALL(ibv_wr_send(qpx_));
  const ibv_sge list[] = {{buffer_.address(10), 3, mr_->lkey}, {buffer_.address(0), 1, mr_->lkey}};
  ibv_wr_set_sge_list(qpx_, 2, list);
  ASSERT_EQ(complete(), 0);
  ASSERT_EQ(status(), IBV_WC_SUCCESS);
  EXPECT_EQ(far().received().bytes, 4u);
  EXPECT_EQ(far().read(1024, 4), std::string("\x0a\x0b\x0c\x00", 4));
}

CONFORMANCE_TEST(wr, WriteWithImmediateAndRead, "ibv_wr_post.write-imm", "ibv_wr_post.read") {
  connect();
  buffer_[0] = 0x77;
  {
    const About about("ibv_wr_post.write-imm");
    receive();
    start();
    CALL(ibv_wr_rdma_write_imm(qpx_, far_rkey(), far().address(2048), htonl(0x01020304)));
    sge(0, 8);
    ASSERT_EQ(complete(), 0);
    EXPECT_EQ(status(), IBV_WC_SUCCESS);
    const Completion received = far().received();
    EXPECT_EQ(received.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
    EXPECT_EQ(received.imm, 0x01020304u);
    EXPECT_TRUE(far().has(2048, 1, 0x77));
  }
  const About about("ibv_wr_post.read");
  far().fill(0, 8, 0x66);
  start();
  CALL(ibv_wr_rdma_read(qpx_, far_rkey(), far().address()));
  sge(3000, 8);
  ASSERT_EQ(complete(), 0);
  EXPECT_EQ(status(), IBV_WC_SUCCESS);
  EXPECT_EQ(buffer_[3000], 0x66);
}

CONFORMANCE_TEST(wr, Atomics, "ibv_wr_post.cmp-swp", "ibv_wr_post.fetch-add") {
  if (device().attributes().atomic_cap == IBV_ATOMIC_NONE) throw NotClaimed{"atomic_cap is none"};
  connect(rc_operations | atomic_operations);
  if (far().facts().atomics == IBV_ATOMIC_NONE) throw NotTested{"the far end has no atomics"};
  const uint64_t& result = *reinterpret_cast<uint64_t*>(buffer_.data());
  far().set_word(2048, 40);
  start();
  CALL(ibv_wr_atomic_fetch_add(qpx_, far_rkey(), far().address(2048), 2));
  sge(0, 8);
  ASSERT_EQ(complete(), 0);
  EXPECT_EQ(status(), IBV_WC_SUCCESS);
  EXPECT_EQ(result, 40u);
  EXPECT_EQ(far().word(2048), 42u);
  const About about("ibv_wr_post.cmp-swp");
  for (const auto& [compare, expected] : {std::pair<uint64_t, uint64_t>{41, 42}, {42, 7}}) {
    start();
    CALL(ibv_wr_atomic_cmp_swp(qpx_, far_rkey(), far().address(2048), compare, 7));
    sge(0, 8);
    ASSERT_EQ(complete(), 0);
    EXPECT_EQ(status(), IBV_WC_SUCCESS);
    EXPECT_EQ(result, 42u);
    EXPECT_EQ(far().word(2048), expected) << "compared with " << compare;
  }
}

CONFORMANCE_TEST(wr, DatagramsNeedTheirAddress, "ibv_wr_post.ud-addr") {
  connect(IBV_QP_EX_WITH_SEND, IBV_QPT_UD);
  ibv_gid gid;
  std::copy(far().facts().gid.begin(), far().facts().gid.end(), gid.raw);
  ibv_ah_attr address = device().address_of(gid, static_cast<uint16_t>(far().facts().lid));
  const Ah ah(CALL(ibv_create_ah(pd_, &address)));
  ASSERT_NE(ah, nullptr);
  buffer_[0] = 0x77;
  receive();
  start();
  CALL(ibv_wr_send(qpx_));
  CALL(ibv_wr_set_ud_addr(qpx_, ah, far().facts().qpn, 0x11111111));
  sge(0, 8);
  ASSERT_EQ(complete(), 0);
  EXPECT_EQ(status(), IBV_WC_SUCCESS);
  EXPECT_EQ(far().received().bytes, 48u);
  EXPECT_TRUE(far().has(1024 + 40, 1, 0x77));
}

CONFORMANCE_TEST(wr, InlineDataAreCopied, "ibv_wr_post.inline") {
  connect(rc_operations, IBV_QPT_RC, 16);
  uint8_t bytes[8] = {0x77};
  start();
  CALL(ibv_wr_rdma_write(qpx_, far_rkey(), far().address(2048)));
  ibv_wr_set_inline_data(qpx_, bytes, sizeof bytes);
  bytes[0] = 0x11;
  ASSERT_EQ(complete(), 0);
  EXPECT_EQ(status(), IBV_WC_SUCCESS);
  EXPECT_TRUE(far().has(2048, 1, 0x77));
}

CONFORMANCE_TEST(wr, InlineListIsJoined, "ibv_wr_post.inline-list") {
  connect(rc_operations, IBV_QPT_RC, 16);
  uint8_t first[] = {1, 2}, second[] = {3};
  const ibv_data_buf list[] = {{first, sizeof first}, {second, sizeof second}};
  start();
  CALL(ibv_wr_rdma_write(qpx_, far_rkey(), far().address(2200)));
  ibv_wr_set_inline_data_list(qpx_, 2, list);
  ASSERT_EQ(complete(), 0);
  EXPECT_EQ(status(), IBV_WC_SUCCESS);
  EXPECT_EQ(far().read(2200, 3), "\x01\x02\x03");
}

CONFORMANCE_TEST(wr, FenceWaitsForTheRead, "ibv_wr_post.fence") {
  connect();
  far().fill(2048, 1, 0x77);
  buffer_[0] = 0x11;
  start();
  CALL(ibv_wr_rdma_read(qpx_, far_rkey(), far().address(2048)));
  sge(0, 1);
  qpx_->wr_flags = IBV_SEND_SIGNALED | IBV_SEND_FENCE;
  CALL(ibv_wr_rdma_write(qpx_, far_rkey(), far().address(3000)));
  sge(0, 1);  // what the read has brought
  ASSERT_EQ(complete(), 0);
  for (const ibv_wc& wc : completions(cq_, 2)) EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_TRUE(far().has(3000, 1, 0x77));
}

CONFORMANCE_TEST(wr, SectionIsExclusive, "ibv_wr_post.exclusive") {
  connect();
  start();
  WaitingCall other([&] {
    ibv_wr_start(qpx_);
    ibv_wr_abort(qpx_);
    return 0;
  });
  EXPECT_TRUE(other.waits()) << "another thread is in the section";
  CALL(ibv_wr_abort(qpx_));
  EXPECT_EQ(other.result(), 0);
}

}  // namespace
}  // namespace conformance::wr_chapter
