// SPDX-License-Identifier: BSD-2-Clause
//
// Two processes of one node. Where the kernel refuses process_vm (unit.refused.WithinNode...), they exchange
// frames; elsewhere this holds as well.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <new>
#include <thread>

#include "unit/common/child.h"
#include "unit/engine/datagram_scene.h"

namespace verbena {
namespace {

constexpr uint32_t kMessages = 16, kSize = 64;

struct TwoOfOneNode {
  std::atomic<uint32_t> numbers[2];  // of the queue pairs; 0: not there yet
  std::atomic<bool> late, ready;
};

// How many messages have come after 2 seconds at most.
uint32_t count_received(Cq* cq) {
  uint32_t count = 0;
  for (const int64_t end = now_ns() + 2'000'000'000; count < kMessages && now_ns() < end;) {
    ibv_wc wc;
    if (poll_cq(cq, 1, &wc) == 1 && wc.status == IBV_WC_SUCCESS) ++count;
  }
  return count;
}

// UC: what is lost is not sent again.
class UcEnd {
 public:
  UcEnd(TwoOfOneNode& both, int side, const GidEntry& gid) : both_(both), side_(side), gid_(gid) {
    ibv_qp_init_attr init{};
    init.cap = {kMessages, kMessages, 1, 1, 0};
    init.qp_type = IBV_QPT_UC;
    Qp* qp = nullptr;
    EXPECT_EQ(create_qp(pd_.get(), &init, send_cq_.get(), recv_cq_.get(), 0, &qp), 0);
    qp_.reset(qp);
    QpSetup setup;
    setup.access = IBV_ACCESS_REMOTE_WRITE;
    EXPECT_EQ(to_init(qp, setup), 0);
    for (uint32_t i = 0; i < kMessages; ++i) EXPECT_EQ(receive(qp, {memory_.sge(i * kSize, kSize)}, i), 0);
    both_.numbers[side_] = qp_number(qp);
  }
  static bool await(const std::function<bool()>& condition) {
    const int64_t end = now_ns() + 20'000'000'000;
    while (!condition())
      if (now_ns() > end) return false;
    return true;
  }
  bool meets_other() {
    return await([&] { return both_.numbers[1 - side_] != 0; });
  }
  int get_ready_to_receive() {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = IBV_MTU_1024;
    attr.dest_qp_num = both_.numbers[1 - side_];
    attr.ah_attr.is_global = attr.ah_attr.port_num = 1;
    std::memcpy(attr.ah_attr.grh.dgid.raw, gid_.raw.data(), 16);
    return modify_qp(qp_.get(), &attr,
                     IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN);
  }
  int get_ready_to_send() {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_RTS;
    return modify_qp(qp_.get(), &attr, IBV_QP_STATE | IBV_QP_SQ_PSN);
  }
  int send_all() {
    for (uint32_t i = 0; i < kMessages; ++i)
      if (send(qp_.get(), {memory_.sge(0, kSize)}, i, 0) != 0) return 1;
    return 0;
  }
  uint32_t received() { return count_received(recv_cq_.get()); }

 private:
  TwoOfOneNode& both_;
  const int side_;
  const GidEntry gid_;
  const Owned<Context> context_ = open_device();
  const Owned<Pd> pd_ = make_pd(context_.get());
  Region memory_{pd_.get(), size_t{kMessages} * kSize};
  const Owned<Cq> send_cq_ = make_cq(context_.get()), recv_cq_ = make_cq(context_.get());
  Owned<Qp> qp_;
};

class UdEnd {
 public:
  UdEnd() {
    ibv_qp_init_attr init{};
    init.cap = {kMessages, kMessages, 1, 1, 0};
    init.qp_type = IBV_QPT_UD;
    Qp* qp = nullptr;
    EXPECT_EQ(create_qp(pd_.get(), &init, send_cq_.get(), recv_cq_.get(), 0, &qp), 0);
    qp_.reset(qp);
    DatagramScene::start(qp);
  }
  uint32_t number() const { return qp_number(qp_.get()); }
  int post_receives() {
    for (uint32_t i = 0; i < kMessages; ++i)
      if (receive(qp_.get(), {memory_.sge(i * (kGrh + kSize), kGrh + kSize)}, i) != 0) return 1;
    return 0;
  }
  int send_all(const GidEntry& gid, uint32_t qpn) {
    Address to(pd_.get(), address_of(gid));
    Sges sges{memory_.sge(0, kSize)};
    for (uint32_t i = 0; i < kMessages; ++i) {
      ibv_send_wr wr = request(IBV_WR_SEND, sges, i);
      wr.wr.ud = {to.ah(), qpn, kQkey};
      if (post(qp_.get(), wr) != 0) return 1;
    }
    return 0;
  }
  uint32_t received() { return count_received(recv_cq_.get()); }

 private:
  const Owned<Context> context_ = open_device();
  const Owned<Pd> pd_ = make_pd(context_.get());
  Region memory_{pd_.get(), size_t{kMessages} * (kGrh + kSize)};
  const Owned<Cq> send_cq_ = make_cq(context_.get()), recv_cq_ = make_cq(context_.get());
  Owned<Qp> qp_;
};

class WithinNode : public ::testing::Test {
 protected:
  WithinNode()
      : both_(new (mmap(nullptr, sizeof(TwoOfOneNode), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
                        0)) TwoOfOneNode{}) {}
  ~WithinNode() override { munmap(both_, sizeof *both_); }

  TwoOfOneNode* const both_;
};

// The process with the lower slot, which connects as a rule, comes late: the other one wants to send as well,
// in the same moment.
TEST_F(WithinNode, NothingIsLostWhenBothConnect) {
  constexpr int kRounds = 12;
  for (int round = 0; round < kRounds && !HasFailure(); ++round) {
    new (both_) TwoOfOneNode{};
    const TemporaryNode node;
    const GidEntry gid = node.directory().devices().devices[0].ports[0].gids[0];
    Child lower([&](const Child& parent) {
      UcEnd end(*both_, 0, gid);
      parent.tell('o');
      if (!end.meets_other() || !UcEnd::await([&] { return both_->late.load(); })) return 1;
      if (end.get_ready_to_receive() != 0) return 2;
      both_->ready = true;
      if (end.get_ready_to_send() != 0 || end.send_all() != 0) return 3;
      const uint32_t received = end.received();
      if (received == kMessages) parent.tell('a');
      parent.hear();
      return static_cast<int>(kMessages - received);
    });
    ASSERT_EQ(lower.answer(), 'o');
    UcEnd higher(*both_, 1, gid);
    ASSERT_TRUE(higher.meets_other());
    ASSERT_EQ(higher.get_ready_to_receive(), 0);
    ASSERT_EQ(higher.get_ready_to_send(), 0);
    std::this_thread::sleep_for(std::chrono::milliseconds(60));  // it does not wait for the other any more
    both_->late = true;
    ASSERT_TRUE(UcEnd::await([&] { return both_->ready.load(); }));
    EXPECT_EQ(higher.send_all(), 0);
    EXPECT_EQ(higher.received(), kMessages) << round;
    EXPECT_EQ(lower.answer(), 'a') << round;
    lower.command('x');
    EXPECT_EQ(lower.finish(), 0) << round;
  }
}

// The one that ends has the higher slot: it is for the other one to connect.
TEST_F(WithinNode, DatagramsArriveThoughTheirSenderEndsAtOnce) {
  constexpr int kRounds = 12;
  for (int round = 0; round < kRounds && !HasFailure(); ++round) {
    new (both_) TwoOfOneNode{};
    const TemporaryNode node;
    const GidEntry gid = node.directory().devices().devices[0].ports[0].gids[0];
    Child receiver([&](const Child& parent) {
      UdEnd end;
      if (end.post_receives() != 0) return 100;
      both_->numbers[0] = end.number();
      parent.tell('o');
      return static_cast<int>(kMessages - end.received());
    });
    ASSERT_EQ(receiver.answer(), 'o');
    EXPECT_EQ(UdEnd().send_all(gid, both_->numbers[0]), 0);
    EXPECT_EQ(receiver.finish(), 0) << "messages lost in round " << round;
  }
}

}  // namespace
}  // namespace verbena
