// SPDX-License-Identifier: BSD-2-Clause
//
// Datagrams and groups between processes, some of which are stopped or die.
#include <gtest/gtest.h>

#include <thread>

#include "fabric/multicast_table.h"
#include "unit/common/child.h"
#include "unit/engine/datagram_scene.h"

namespace verbena {
namespace {

constexpr uint32_t kGroupQpn = 0xffffff;

ibv_gid group() {
  ibv_gid gid{};
  gid.raw[0] = 0xff;
  gid.raw[15] = 3;
  return gid;
}

// A process with one UD queue pair in a group: it has 16 receives posted, and tells 'p' how many have been
// completed.
class Member {
 public:
  explicit Member(const TemporaryNode& node) {
    EXPECT_EQ(pipe(number_), 0);
    child_ = std::make_unique<Child>([&](const Child& self) { return live(self, node); });
    EXPECT_EQ(read(number_[0], &qpn_, sizeof qpn_), static_cast<ssize_t>(sizeof qpn_));
  }
  ~Member() {
    close(number_[0]);
    close(number_[1]);
  }
  uint32_t qpn() const { return qpn_; }
  Child& child() { return *child_; }
  int received() {
    child_->command('p');
    return child_->answer() - '0';
  }

 private:
  int live(const Child& self, const TemporaryNode&) {
    const Owned<Context> context = open_device();
    const Owned<Pd> pd = make_pd(context.get());
    const Owned<Cq> cq = make_cq(context.get());
    Region memory(pd.get(), 16 * 1024);
    ibv_qp_init_attr init{};
    init.cap = {16, 16, 1, 1, 0};
    init.qp_type = IBV_QPT_UD;
    Qp* qp = nullptr;
    if (create_qp(pd.get(), &init, cq.get(), cq.get(), 0, &qp) != 0) return 1;
    DatagramScene::start(qp);
    for (uint64_t i = 0; i < 16; ++i)
      if (receive(qp, {memory.sge(i * 1024, 1024)}, i) != 0) return 2;
    const ibv_gid gid = group();
    if (attach_mcast(qp, &gid, 0) != 0) return 3;
    const uint32_t number = qp_number(qp);
    if (write(number_[1], &number, sizeof number) != sizeof number) return 4;
    int count = 0;
    while (self.hear() == 'p') {
      ibv_wc wc;
      while (poll_cq(cq.get(), 1, &wc) == 1) count += wc.status == IBV_WC_SUCCESS;
      self.tell(static_cast<char>('0' + count));
    }
    return 0;
  }

  int number_[2];
  uint32_t qpn_ = 0;
  std::unique_ptr<Child> child_;
};

class DatagramProcesses : public ::testing::Test {
 protected:
  DatagramProcesses() : first(node), second(node), scene(std::make_unique<Sender>()) {}

  // Has a node of its own only while the members have this test's.
  struct Sender {
    Sender()
        : context(open_device()),
          pd(make_pd(context.get())),
          cq(make_cq(context.get())),
          out(pd.get(), 1024) {
      ibv_qp_init_attr init{};
      init.cap = {16, 16, 1, 1, 0};
      init.qp_type = IBV_QPT_UD;
      Qp* made = nullptr;
      EXPECT_EQ(create_qp(pd.get(), &init, cq.get(), cq.get(), 0, &made), 0);
      qp.reset(made);
      DatagramScene::start(made);
    }
    Owned<Context> context;
    Owned<Pd> pd;
    Owned<Cq> cq;
    Region out;
    Owned<Qp> qp;
  };

  ibv_wc_status send_to(const ibv_ah_attr& address, uint32_t qpn, size_t length = 100) {
    Address ah(scene->pd.get(), address);
    Sges sges{scene->out.sge(0, length)};
    ibv_send_wr wr = request(IBV_WR_SEND, sges);
    wr.wr.ud = {ah.ah(), qpn, kQkey};
    EXPECT_EQ(post(scene->qp.get(), wr), 0);
    return completion(scene->cq.get()).status;
  }
  ibv_ah_attr to_device() const { return address_of(node.directory().devices().devices[0].ports[0].gids[0]); }
  ibv_ah_attr to_group() const {
    ibv_ah_attr attr = to_device();
    attr.grh.dgid = group();
    return attr;
  }
  ibv_wc_status send_to(const Member& member, size_t length = 100) {
    return send_to(to_device(), member.qpn(), length);
  }
  ibv_wc_status send_to_group(size_t length = 100) { return send_to(to_group(), kGroupQpn, length); }

  TemporaryNode node;
  Member first, second;
  std::unique_ptr<Sender> scene;
};

TEST_F(DatagramProcesses, ReachEachOther) {
  EXPECT_EQ(send_to(first), IBV_WC_SUCCESS);
  EXPECT_EQ(send_to(first, 900), IBV_WC_SUCCESS);
  EXPECT_EQ(first.received(), 2);
  EXPECT_EQ(second.received(), 0);
}

TEST_F(DatagramProcesses, AreMembersOfOneGroup) {
  EXPECT_EQ(send_to_group(), IBV_WC_SUCCESS);
  EXPECT_EQ(first.received(), 1);
  EXPECT_EQ(second.received(), 1);
}

TEST_F(DatagramProcesses, OneThatIsStoppedReceivesAllTheSame) {
  ASSERT_EQ(send_to(first), IBV_WC_SUCCESS);
  first.child().stop();
  EXPECT_EQ(send_to(first), IBV_WC_SUCCESS);
  EXPECT_EQ(send_to_group(900), IBV_WC_SUCCESS);
  first.child().go_on();
  EXPECT_EQ(first.received(), 3);
}

TEST_F(DatagramProcesses, OneThatWasKilledIsNotMissed) {
  ASSERT_EQ(send_to(first), IBV_WC_SUCCESS);
  first.child().kill_now();
  EXPECT_EQ(send_to(first), IBV_WC_SUCCESS);
}

TEST_F(DatagramProcesses, AGroupGoesOnWithoutItsDead) {
  ASSERT_EQ(send_to_group(), IBV_WC_SUCCESS);
  first.child().kill_now();
  EXPECT_EQ(send_to_group(), IBV_WC_SUCCESS);
  EXPECT_EQ(second.received(), 2);
}

TEST_F(DatagramProcesses, TheDeadAreTakenOutOfTheirGroups) {
  const MulticastTable table(node.directory());
  MulticastGid name;
  std::memcpy(name.data(), group().raw, name.size());
  first.child().kill_now();
  const Member third(node);  // a process that joins the node cleans up
  EXPECT_EQ(table.members(name).size(), 2u);
}

// A process that has not been met before, and that does not answer: the first message waits for it for a
// while, later ones do not.
TEST_F(DatagramProcesses, OneThatDoesNotAnswerIsAskedOnce) {
  first.child().stop();
  EXPECT_EQ(send_to(first), IBV_WC_SUCCESS);
  const int64_t began = now_ns();
  for (int i = 0; i < 100; ++i) EXPECT_EQ(send_to(first), IBV_WC_SUCCESS);
  EXPECT_LT(now_ns() - began, 900'000'000);
  first.child().go_on();
}

TEST_F(DatagramProcesses, DetachingAndDestroyingWhileOthersSend) {
  std::atomic<bool> stop{false};
  std::jthread sender([&] {
    while (!stop.load()) send_to_group();
  });
  Owned<Context> context = open_device();
  Owned<Pd> pd = make_pd(context.get());
  Region in(pd.get(), 4096);
  const ibv_gid gid = group();
  for (int round = 0; round < 50; ++round) {
    Owned<Cq> cq = make_cq(context.get());
    ibv_qp_init_attr init{};
    init.cap = {4, 4, 1, 1, 0};
    init.qp_type = IBV_QPT_UD;
    Qp* qp = nullptr;
    ASSERT_EQ(create_qp(pd.get(), &init, cq.get(), cq.get(), 0, &qp), 0);
    Owned<Qp> owned(qp);
    DatagramScene::start(qp);
    ASSERT_EQ(receive(qp, {in.sge(0, 1024)}), 0);
    ASSERT_EQ(attach_mcast(qp, &gid, 0), 0);
    EXPECT_EQ(completion(cq.get()).status, IBV_WC_SUCCESS);
    ASSERT_EQ(receive(qp, {in.sge(0, 1024)}), 0);
    ASSERT_EQ(detach_mcast(qp, &gid, 0), 0);
    ibv_wc wc;
    while (poll_cq(cq.get(), 1, &wc) == 1) {
    }
    ASSERT_EQ(receive(qp, {in.sge(0, 1024)}), 0);
    EXPECT_TRUE(nothing(cq.get()));
  }
  stop = true;
}

}  // namespace
}  // namespace verbena
