// SPDX-License-Identifier: BSD-2-Clause
//
// An XRC SRQ of a process that this one has not met yet and that does not answer: messages to it wait as for
// any silent responder, and nothing else waits.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <atomic>
#include <chrono>

#include "unit/common/child.h"
#include "unit/engine/scene.h"

namespace verbena {
namespace {

// A domain, and an SRQ in it with a receive request.
struct Receiver {
  explicit Receiver(int file) {
    EXPECT_EQ(open_xrcd(context.get(), file, O_CREAT, &domain), 0);
    ibv_srq_attr attr{4, 1, 0};
    EXPECT_EQ(create_srq(pd.get(), &attr, {domain, cq.get()}, 0, &srq), 0);
    Sges sges{memory.sge(0, 8)};
    ibv_recv_wr wr{1, nullptr, sges.data(), 1}, *bad = nullptr;
    EXPECT_EQ(post_srq_recv(srq, &wr, &bad), 0);
  }
  ~Receiver() {
    uint32_t events = 0;
    EXPECT_EQ(destroy_srq(srq, &events), 0);
    EXPECT_EQ(close_xrcd(domain), 0);
  }
  Owned<Context> context = open_device();
  Owned<Pd> pd = make_pd(context.get());
  Owned<Cq> cq = make_cq(context.get());
  Region memory{pd.get(), 64};
  Xrcd* domain = nullptr;
  Srq* srq = nullptr;
};

// Its receiver is forked before this process opens the device.
class SilentTarget : public ::testing::Test {
 protected:
  SilentTarget()
      : srqn(static_cast<std::atomic<uint32_t>*>(
            mmap(nullptr, sizeof *srqn, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))),
        file(open((node.folder() + "/domain").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)),
        other([this](const Child& parent) {
          const Receiver receiver(file);
          *srqn = srq_number(receiver.srq);
          parent.tell('y');
          const bool arrives = parent.hear() == 'r' && completion(receiver.cq.get()).status == IBV_WC_SUCCESS;
          parent.tell(arrives ? 'y' : 'n');
          return 0;
        }) {
    EXPECT_EQ(other.answer(), 'y');
  }
  ~SilentTarget() override {
    close(file);
    munmap(srqn, sizeof *srqn);
  }

  TemporaryNode node;
  std::atomic<uint32_t>* const srqn;
  const int file;
  Child other;
};

// Two queue pairs of this process, which carry messages for the SRQ.
struct Sender {
  Sender(int file, const GidEntry& gid, const QpSetup& setup) : own(file) {
    ibv_qp_init_attr init{};
    init.cap = {4, 0, 1, 0, 0};
    init.qp_type = IBV_QPT_XRC_SEND;
    Qp* made = nullptr;
    EXPECT_EQ(create_qp(own.pd.get(), &init, cq.get(), nullptr, 0, &made), 0);
    sends.reset(made);
    EXPECT_EQ(create_xrc_recv_qp(own.domain, 0, &receives), 0);
    connect(receives, qp_number(made), gid, setup);
    connect(made, qp_number(receives), gid, setup);
  }
  ~Sender() {
    uint32_t events = 0;
    EXPECT_EQ(close_qp(receives, 0, &events), 0);
  }
  void send_to(uint32_t srqn) {
    Sges sges{own.memory.sge(0, 8)};
    ibv_send_wr wr = request(IBV_WR_SEND, sges);
    wr.qp_type.xrc.remote_srqn = srqn;
    ASSERT_EQ(post(sends.get(), wr), 0);
  }
  Receiver own;
  Owned<Cq> cq = make_cq(own.context.get());
  Owned<Qp> sends;
  Qp* receives = nullptr;
};

const GidEntry& gid_of(const TemporaryNode& node) { return node.directory().devices().devices[0].ports[0].gids[0]; }

TEST_F(SilentTarget, IsNotWaitedForByAPoster) {
  Sender sender(file, gid_of(node), {});
  other.stop();
  const auto began = std::chrono::steady_clock::now();
  sender.send_to(*srqn);
  sender.send_to(srq_number(sender.own.srq));
  EXPECT_TRUE(nothing(sender.cq.get()));
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(4));
  other.go_on();
  EXPECT_EQ(completion(sender.cq.get()).status, IBV_WC_SUCCESS);
  EXPECT_EQ(completion(sender.cq.get()).status, IBV_WC_SUCCESS);
  other.command('r');
  EXPECT_EQ(other.answer(), 'y');
}

TEST_F(SilentTarget, IsGivenUpWhenTheRetriesAreOver) {
  Sender sender(file, gid_of(node), {.timeout = 14, .retry_cnt = 1});
  other.stop();
  sender.send_to(*srqn);
  EXPECT_EQ(completion(sender.cq.get()).status, IBV_WC_RETRY_EXC_ERR);
  other.go_on();
}

}  // namespace
}  // namespace verbena
