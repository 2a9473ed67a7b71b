// SPDX-License-Identifier: BSD-2-Clause
//
// Long messages from another node come in chunks (wire/frame.h). What the responder has begun belongs to that
// message alone: not to a frame that claims to be its next chunk, nor to the next message.
#include <fcntl.h>
#include <gtest/gtest.h>

#include <memory>

#include "unit/engine/played_node.h"

namespace verbena {
namespace {

using wire::AnswerHead;
using wire::FrameKind;
using wire::RequestHead;

constexpr uint32_t kLongMessage = 40'000, kFirstChunk = 30'000;

RequestHead request_head(const Qp* qp, ibv_qp_type requester, ibv_wr_opcode opcode) {
  RequestHead head{};
  head.kind = FrameKind::kRequest;
  head.opcode = static_cast<uint8_t>(opcode);
  head.connection = static_cast<uint8_t>(requester | IBV_MTU_1024 << 4);
  head.target_qpn = qp_number(qp);
  head.source_qpn = PlayedNode::kQpn;
  head.path_generation = 1;
  head.size = kLongMessage;
  return head;
}

// The queue pair may be written but not read; the region may be read, too.
TEST(Chunk, OfAnotherOperationIsNone) {
  PlayedNode there;
  QpSetup setup;
  setup.access = IBV_ACCESS_REMOTE_WRITE;
  connect(there.end.qp.get(), PlayedNode::kQpn, End::address_of(false), setup);
  there.meet();
  RequestHead head = request_head(there.end.qp.get(), IBV_QPT_RC, IBV_WR_RDMA_WRITE);
  head.remote_address = there.end.memory.address();
  head.rkey = there.end.memory.rkey();
  there.say(head, std::vector<std::byte>(kFirstChunk, std::byte{1}));
  head.offset = kFirstChunk;
  RequestHead other = head;
  other.opcode = IBV_WR_RDMA_READ;
  there.say(other);
  there.say(head, std::vector<std::byte>(kLongMessage - kFirstChunk, std::byte{2}));
  const AnswerHead answer = there.hear_answer();
  EXPECT_EQ(answer.kind, FrameKind::kAck) << "what was read that may not be read";
  EXPECT_EQ(answer.number, 1u);
  EXPECT_EQ(there.end.memory.data()[kFirstChunk - 1], 1);
  EXPECT_EQ(there.end.memory.data()[kLongMessage - 1], 2);
}

// ---- XRC: each request names the SRQ whose receive request it takes ----

struct CloseDomain {
  void operator()(Xrcd* xrcd) const { EXPECT_EQ(close_xrcd(xrcd), 0); }
};
struct DestroyXrcSrq {
  void operator()(Srq* srq) const {
    uint32_t events = 0;
    EXPECT_EQ(destroy_srq(srq, &events), 0);
  }
};
struct CloseXrcQp {
  void operator()(Qp* qp) const {
    uint32_t events = 0;
    EXPECT_EQ(close_qp(qp, 7, &events), 0);
  }
};

class XrcChunk : public ::testing::Test {
 protected:
  XrcChunk() {
    Xrcd* opened = nullptr;
    EXPECT_EQ(open_xrcd(there.end.context.get(), -1, O_CREAT, &opened), 0);
    domain.reset(opened);
    for (auto* srq : {&first, &second}) {
      ibv_srq_attr attr{16, 1, 0};
      Srq* made = nullptr;
      EXPECT_EQ(create_srq(there.end.pd.get(), &attr, {domain.get(), there.end.recv_cq.get()}, 0, &made), 0);
      srq->reset(made);
    }
    Qp* made = nullptr;
    EXPECT_EQ(create_xrc_recv_qp(domain.get(), 7, &made), 0);
    qp.reset(made);
    connect();
    there.meet();
  }
  void connect() { verbena::connect(qp.get(), PlayedNode::kQpn, End::address_of(false)); }

  void post(const std::unique_ptr<Srq, DestroyXrcSrq>& srq, uint64_t wr_id) {
    ibv_sge sge = there.end.memory.sge(wr_id * 65536, 65536);
    ibv_recv_wr wr{wr_id, nullptr, &sge, 1}, *bad = nullptr;
    ASSERT_EQ(post_srq_recv(srq.get(), &wr, &bad), 0);
  }
  RequestHead send_to(const std::unique_ptr<Srq, DestroyXrcSrq>& srq) const {
    RequestHead head = request_head(qp.get(), IBV_QPT_XRC_SEND, IBV_WR_SEND);
    head.srqn = srq_number(srq.get());
    return head;
  }
  // A whole message, and a part of one.
  void send_one_and_a_half() {
    for (const uint64_t wr_id : {1, 2}) post(first, wr_id);
    post(second, 3);
    RequestHead head = send_to(first);
    there.say(head, std::vector<std::byte>(kLongMessage, std::byte{1}));
    const ibv_wc whole = there.end.received();
    EXPECT_EQ(whole.wr_id, 1u);
    EXPECT_EQ(whole.status, IBV_WC_SUCCESS);
    head.number = 1;
    head.psn = 40;
    there.say(head, std::vector<std::byte>(kFirstChunk, std::byte{2}));
    const uint8_t* last = there.end.memory.data() + 2 * 65536 + kFirstChunk - 1;
    EXPECT_TRUE(eventually([&] { return std::atomic_ref(const_cast<uint8_t&>(*last)).load() == 2; }));
  }
  void expect_flushed() const {
    const ibv_wc cut = there.end.received();
    EXPECT_EQ(cut.wr_id, 2u);
    EXPECT_EQ(cut.status, IBV_WC_WR_FLUSH_ERR);
  }
  // A whole message to the second, while the first has a part of another.
  void expect_second_receives(RequestHead head) {
    there.say(head, std::vector<std::byte>(kLongMessage, std::byte{3}));
    expect_flushed();
    const ibv_wc next = there.end.received();
    EXPECT_EQ(next.wr_id, 3u);
    EXPECT_EQ(next.status, IBV_WC_SUCCESS);
    EXPECT_EQ(next.byte_len, kLongMessage);
    EXPECT_EQ(there.end.memory.data()[3 * 65536 + kLongMessage - 1], 3);
  }

  PlayedNode there;
  std::unique_ptr<Xrcd, CloseDomain> domain;
  std::unique_ptr<Srq, DestroyXrcSrq> first, second;
  std::unique_ptr<Qp, CloseXrcQp> qp;
};

TEST_F(XrcChunk, ForAnotherSrqIsNone) {
  send_one_and_a_half();
  RequestHead head = send_to(second);
  head.number = 1;
  head.psn = 40;
  head.offset = kFirstChunk;
  there.say(head, std::vector<std::byte>(kLongMessage - kFirstChunk, std::byte{9}));
  head.srqn = srq_number(first.get());
  there.say(head, std::vector<std::byte>(kLongMessage - kFirstChunk, std::byte{4}));
  const ibv_wc whole = there.end.received();
  EXPECT_EQ(whole.wr_id, 2u);
  EXPECT_EQ(whole.status, IBV_WC_SUCCESS);
  EXPECT_EQ(there.end.memory.data()[2 * 65536 + kLongMessage - 1], 4);
  EXPECT_TRUE(nothing(there.end.recv_cq.get()));
}

// The requester's queue pair has been through RESET, and so has this one.
TEST_F(XrcChunk, OfAFormerGenerationDoesNotReachTheNext) {
  send_one_and_a_half();
  ASSERT_EQ(to_state(qp.get(), IBV_QPS_RESET), 0);
  connect();
  RequestHead head = send_to(second);
  head.path_generation = 2;
  expect_second_receives(head);
}

// A chunk of the same request that names another SRQ.
TEST_F(XrcChunk, BegunAgainForAnotherSrqTakesItsReceiveRequest) {
  send_one_and_a_half();
  RequestHead head = send_to(second);
  head.number = 1;
  head.psn = 40;
  expect_second_receives(head);
}

TEST_F(XrcChunk, GivesItsReceiveRequestBackWithTheQueuePair) {
  send_one_and_a_half();
  qp.reset();
  expect_flushed();
}

}  // namespace
}  // namespace verbena
