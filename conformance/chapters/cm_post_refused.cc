// SPDX-License-Identifier: BSD-2-Clause
//
// rdma_cm: what the helpers of <rdma/rdma_verbs.h> return when a request cannot be posted; that
// rdma_post_recvv posts one; what rdma_reg_msgs registers.
#include <infiniband/verbs.h>
#include <rdma/rdma_verbs.h>

#include <cerrno>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "support/cm.h"

namespace conformance::cm_post_refused_chapter {
namespace {

struct RdmaMrDestroyer {
  static int destroy(ibv_mr* mr) { return rdma_dereg_mr(mr); }
};
using RdmaMr = Owned<ibv_mr, RdmaMrDestroyer>;

class Fixture : public CmTest {
 protected:
  static constexpr size_t size = 4096;

  ~Fixture() override { mr_ = RdmaMr(); }  // before its PD

  void connect_ends() {
    establish();
    message_on_iwarp();
    register_buffer();
  }
  void register_buffer() {
    mr_ = RdmaMr(CALL(rdma_reg_msgs(near_, buffer_.data(), size)));
    if (!mr_) throw Deviation{"rdma_reg_msgs gives null, " + errno_text(errno), Where::current()};
  }
  std::vector<ibv_sge> elements(uint32_t count) {
    return std::vector<ibv_sge>(count, ibv_sge{buffer_.address(), 1, mr_->lkey});
  }
  // With more elements than the queue takes.
  void too_many(uint32_t most, const std::function<int(ibv_sge*, int)>& post) {
    std::vector<ibv_sge> list = elements(most + 1);
    errno = 0;
    const int result = traced("with one element more", [&] { return post(list.data(), static_cast<int>(list.size())); });
    if (result == 0) throw NotTested{"one element more is taken"};
    EXPECT_TRUE(minus_one(result));
  }
  // Again and again, until the queue is full.
  void until_full(uint32_t depth, const std::function<int()>& post) {
    const uint32_t most = 16 * depth + 1024;  // a queue may be counted in units of memory
    for (uint32_t i = 0; i < most; ++i) {
      errno = 0;
      const int result = post();
      if (result == 0) continue;
      EXPECT_TRUE(minus_one(result)) << "when the queue is full";
      return;
    }
    throw NotTested{std::to_string(most) + " requests are taken"};
  }
  // A SEND for which the far end has no receive: what follows waits behind it.
  void block_the_queue() {
    only_infiniband();
    ASSERT_SUCCEEDS(rdma_post_send(near_, nullptr, buffer_.data(), 8, mr_, 0));
  }

  Buffer buffer_{size};
  RdmaMr mr_;
};

CONFORMANCE_TEST(cm_verbs, VectorsThatAreTooLong, "rdma_post_sendv.minus-one", "rdma_post_recvv.minus-one",
                 "rdma_post_readv.minus-one", "rdma_post_writev.minus-one") {
  connect_ends();
  const ibv_qp_cap most = made_;
  const RemoteMemory there = far().memory();
  ABOUT("rdma_post_sendv.minus-one") {
    too_many(most.max_send_sge, [&](ibv_sge* list, int count) { return rdma_post_sendv(near_, nullptr, list, count, 0); });
  }
  ABOUT("rdma_post_recvv.minus-one") {
    too_many(most.max_recv_sge, [&](ibv_sge* list, int count) { return rdma_post_recvv(near_, nullptr, list, count); });
  }
  ABOUT("rdma_post_readv.minus-one") {
    too_many(most.max_send_sge, [&](ibv_sge* list, int count) {
      return rdma_post_readv(near_, nullptr, list, count, 0, there.address, there.rkey);
    });
  }
  ABOUT("rdma_post_writev.minus-one") {
    too_many(most.max_send_sge, [&](ibv_sge* list, int count) {
      return rdma_post_writev(near_, nullptr, list, count, 0, there.address, there.rkey);
    });
  }
}

CONFORMANCE_TEST(cm_verbs, SendToAFullQueue, "rdma_post_send.minus-one") {
  connect_ends();
  block_the_queue();
  until_full(made_.max_send_wr, [&] { return rdma_post_send(near_, nullptr, buffer_.data(), 8, mr_, 0); });
}

CONFORMANCE_TEST(cm_verbs, ReceiveOfAFullQueue, "rdma_post_recv.minus-one") {
  connect_ends();
  until_full(made_.max_recv_wr, [&] { return rdma_post_recv(near_, nullptr, buffer_.data(), 64, mr_); });
}

CONFORMANCE_TEST(cm_verbs, ReadOfAFullQueue, "rdma_post_read.minus-one") {
  connect_ends();
  block_the_queue();
  const RemoteMemory there = far().memory();
  until_full(made_.max_send_wr,
             [&] { return rdma_post_read(near_, nullptr, buffer_.data(), 8, mr_, 0, there.address, there.rkey); });
}

CONFORMANCE_TEST(cm_verbs, WriteToAFullQueue, "rdma_post_write.minus-one") {
  connect_ends();
  block_the_queue();
  const RemoteMemory there = far().memory();
  until_full(made_.max_send_wr,
             [&] { return rdma_post_write(near_, nullptr, buffer_.data(), 8, mr_, 0, there.address, there.rkey); });
}

// A datagram is complete at once; what is refused is inline data of more than the queue takes.
CONFORMANCE_TEST(cm_verbs, DatagramThatIsTooLong, "rdma_post_ud_send.minus-one") {
  near_qp_.inline_data = 16;
  const EventFacts found = look_up();
  register_buffer();
  const Ah ah = address_handle(found);
  const uint32_t most = made_.max_inline_data;
  if (most + 1 > size) throw NotTested{"more inline data than the test's buffer"};
  errno = 0;
  const int result = CALL(rdma_post_ud_send(near_, nullptr, buffer_.data(), most + 1, mr_, IBV_SEND_INLINE, ah,
                                            found.datagram.qp_num));
  if (result == 0) throw NotTested{"more inline data than max_inline_data are taken"};
  EXPECT_TRUE(minus_one(result));
}

CONFORMANCE_TEST(cm_verbs, VectorIsOneReceive, "rdma_post_recvv.one-request") {
  if (device().attributes().max_sge < 2) throw NotClaimed{"max_sge is 1"};
  near_qp_.receive_sges = 2;
  connect_ends();
  int first = 0, second = 0;
  ibv_sge list[] = {{buffer_.address(0), 64, mr_->lkey}, {buffer_.address(1024), 64, mr_->lkey}};
  ASSERT_SUCCEEDS(rdma_post_recvv(near_, &first, list, 2));
  ASSERT_EQ(far().post(IBV_WR_SEND, 0, 100), 0);
  const ibv_wc wc = completion(near_->recv_cq);
  EXPECT_EQ(wc.wr_id, reinterpret_cast<uint64_t>(&first));
  EXPECT_EQ(wc.byte_len, 100u);
  EXPECT_TRUE(stays_empty(near_->recv_cq)) << "a second completion of the request";
  ASSERT_SUCCEEDS(rdma_post_recvv(near_, &second, list, 2));
  ASSERT_EQ(far().post(IBV_WR_SEND, 0, 10), 0);
  EXPECT_EQ(completion(near_->recv_cq).wr_id, reinterpret_cast<uint64_t>(&second));
}

CONFORMANCE_TEST(cm_verbs, MessagesAreOfAllOfTheRegion, "rdma_reg_msgs.range") {
  establish();
  constexpr size_t first = 100, length = 3000;
  RdmaMr mr(CALL(rdma_reg_msgs(near_, buffer_.data() + first, length)));
  ASSERT_NE(mr, nullptr) << errno_text(errno);
  EXPECT_EQ(mr->addr, buffer_.data() + first);
  EXPECT_EQ(mr->length, length);
  far().fill(0, std::vector<uint8_t>(256, 0x33));
  for (const size_t at : {first, first + length - 64}) {
    memset(buffer_.data() + at, 0x77, 64);
    ASSERT_EQ(far().post_receive(1024, 64), 0);
    ASSERT_SUCCEEDS(rdma_post_send(near_, nullptr, buffer_.data() + at, 64, mr, 0));
    EXPECT_EQ(completion(near_->send_cq).status, IBV_WC_SUCCESS) << "at " << at;
    EXPECT_EQ(far().received().status, IBV_WC_SUCCESS);
    EXPECT_EQ(far().bytes(1024, 64), std::vector<uint8_t>(64, 0x77)) << "at " << at;
    ASSERT_SUCCEEDS(rdma_post_recv(near_, nullptr, buffer_.data() + at, 64, mr));
    ASSERT_EQ(far().post(IBV_WR_SEND, 0, 64), 0);
    EXPECT_EQ(completion(near_->recv_cq).status, IBV_WC_SUCCESS) << "at " << at;
    EXPECT_TRUE(buffer_.is(0x33, at, at + 64)) << "at " << at;
  }
  EXPECT_EQ(buffer_[first - 1], Buffer::untouched);
  EXPECT_EQ(buffer_[first + length], Buffer::untouched);
  EXPECT_SUCCEEDS(mr.destroy());
}

CONFORMANCE_TEST(cm_verbs, MessagesAreNotForThePeer, "rdma_reg_msgs.no-remote") {
  for (const ibv_wr_opcode opcode : {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ}) {
    mr_ = RdmaMr();
    connect_ends();
    far().fill(0, std::vector<uint8_t>(64, 0x33));
    ASSERT_EQ(far().post(opcode, 0, 8, {buffer_.address(), mr_->rkey, size}), 0);
    const ibv_wc_status status = far().sent().status;
    if (is_infiniband(near_)) {  // iWARP acknowledges no write, and terminates for a read
      EXPECT_EQ(status, IBV_WC_REM_ACCESS_ERR) << "opcode " << opcode;
    }
    EXPECT_TRUE(buffer_.is(Buffer::untouched, 0, size)) << "opcode " << opcode;
    EXPECT_EQ(far().bytes(0, 64), std::vector<uint8_t>(64, 0x33)) << "opcode " << opcode;
  }
}

}  // namespace
}  // namespace conformance::cm_post_refused_chapter
