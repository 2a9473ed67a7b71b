// SPDX-License-Identifier: BSD-2-Clause
//
// An XRC_RECV queue pair that several processes hold open (ibv_open_qp(3)): the one that created it, and
// others. The kernel does this in verbs.c, ib_open_qp() and __ib_destroy_shared_qp();
// engine/xrc/xrc_shared_qp.h lists the differences.
#include <errno.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include "engine/events/async_events.h"
#include "engine/xrc/xrc_shared_qp.h"
#include "unit/common/child.h"
#include "unit/engine/scene.h"

namespace verbena {
namespace {

constexpr uint64_t kHandle = 7;

// What the processes tell each other through shared memory.
struct OpenedNumbers {
  std::atomic<uint32_t> sender, receiver;  // QPN
};

// One process's domain, and its handle on the queue pair.
struct Opener {
  Opener(int file, int flags) {
    Xrcd* opened = nullptr;
    EXPECT_EQ(open_xrcd(context.get(), file, flags, &opened), 0);
    xrcd = opened;
  }
  ~Opener() {
    close();
    end();
  }
  int make() { return create_xrc_recv_qp(xrcd, kHandle, &qp); }
  int open(uint32_t number) { return open_qp(context.get(), xrcd, number, kHandle, &qp); }
  void close() {
    uint32_t events = 0;
    if (qp == nullptr) return;
    EXPECT_EQ(close_qp(std::exchange(qp, nullptr), kHandle, &events), 0);
  }
  void end() {
    if (xrcd == nullptr) return;
    EXPECT_EQ(close_xrcd(std::exchange(xrcd, nullptr)), 0);
  }
  ibv_qp_attr query() const {
    ibv_qp_attr attr{};
    ibv_qp_init_attr init{};
    EXPECT_EQ(query_qp(qp, &attr, &init), 0);
    EXPECT_EQ(init.qp_type, IBV_QPT_XRC_RECV);
    return attr;
  }
  uint32_t slot() const { return context->process->membership().slot(); }
  Owned<Context> context = open_device();
  Xrcd* xrcd = nullptr;
  Qp* qp = nullptr;
};

// A process that does one thing for each command.
int obey(const Child& parent, OpenedNumbers* numbers, const GidEntry& gid, int file) {
  Opener member(file, O_CREAT);
  for (;;) {
    bool done = false;
    switch (parent.hear()) {
      case 'm':
        done = member.make() == 0;
        if (done) numbers->receiver = qp_number(member.qp);
        break;
      case 'o':
        done = member.open(numbers->receiver) == 0;
        break;
      case 'g':
        connect(member.qp, numbers->sender, gid);
        done = true;
        break;
      case 'c':
        member.close();
        done = true;
        break;
      case 'q':
        done = async_event(member.context.get()).type == IBV_EVENT_QP_REQ_ERR;
        break;
      case 'i':
        done = member.query().qp_state == IBV_QPS_INIT && to_state(member.qp, IBV_QPS_RESET) == 0;
        break;
      case 'x':
        return 0;
      default:
        return 1;
    }
    parent.tell(done ? 'y' : 'n');
  }
}

// The other process is forked before this one opens the device.
class XrcSharedQp : public ::testing::Test {
 protected:
  XrcSharedQp()
      : numbers(static_cast<OpenedNumbers*>(
            mmap(nullptr, sizeof(OpenedNumbers), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))),
        file(open((node.folder() + "/domain").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)),
        other([this](const Child& parent) { return obey(parent, numbers, gid(), file); }) {}
  ~XrcSharedQp() {
    close(file);
    munmap(numbers, sizeof(OpenedNumbers));
  }
  const GidEntry& gid() const { return node.directory().devices().devices[0].ports[0].gids[0]; }
  void tell(char word) {
    other.command(word);
    ASSERT_EQ(other.answer(), 'y') << word;
  }
  // Of the process that owns it now.
  uint32_t numbers_slot() const {
    QpnEntry found{};
    return node.directory().find_qpn(numbers->receiver, &found) ? found.slot : UINT32_MAX;
  }
  bool exists() const {
    QpnEntry found;
    return node.directory().find_qpn(numbers->receiver, &found);
  }

  TemporaryNode node;
  OpenedNumbers* numbers;
  int file;
  Child other;
};

// The other process has created it, and this one has it open as well.
struct MadeElsewhere : XrcSharedQp {
  void SetUp() override {
    tell('m');
    own = std::make_unique<Opener>(file, O_CREAT);
    ASSERT_EQ(own->open(numbers->receiver), 0);
  }
  void TearDown() override {
    if (own) own->close();
    srq_done();
  }
  // A queue pair that sends, and an SRQ of this process that receives.
  enum class Connects { kOwner, kHere };
  void connect_sender(Connects who = Connects::kOwner) {
    pd = make_pd(own->context.get());
    send_cq = make_cq(own->context.get());
    recv_cq = make_cq(own->context.get());
    ibv_qp_init_attr init{};
    init.cap = {4, 0, 1, 0, 0};
    init.qp_type = IBV_QPT_XRC_SEND;
    Qp* made = nullptr;
    ASSERT_EQ(create_qp(pd.get(), &init, send_cq.get(), nullptr, 0, &made), 0);
    sender.reset(made);
    numbers->sender = qp_number(made);
    ibv_srq_attr attr{4, 1, 0};
    ASSERT_EQ(create_srq(pd.get(), &attr, {own->xrcd, recv_cq.get()}, 0, &srq), 0);
    memory = std::make_unique<Region>(pd.get(), 64);
    if (who == Connects::kOwner)
      tell('g');
    else
      connect(own->qp, numbers->sender, gid());
    connect(made, numbers->receiver, gid());
  }
  ibv_wc_status send_to(uint32_t srqn) {
    Sges sges{memory->sge(0, 8)};
    ibv_recv_wr receive{1, nullptr, sges.data(), 1}, *bad = nullptr;
    EXPECT_EQ(post_srq_recv(srq, &receive, &bad), 0);
    ibv_send_wr wr = request(IBV_WR_SEND, sges);
    wr.qp_type.xrc.remote_srqn = srqn;
    EXPECT_EQ(post(sender.get(), wr), 0);
    return completion(send_cq.get()).status;
  }
  void srq_done() {
    sender.reset();
    memory.reset();
    uint32_t events = 0;
    if (srq == nullptr) return;
    EXPECT_EQ(destroy_srq(std::exchange(srq, nullptr), &events), 0);
  }
  // To RTS with attribute values that nothing else here has.
  ibv_qp_attr make_unusual() {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    attr.qp_access_flags = IBV_ACCESS_REMOTE_READ;
    EXPECT_EQ(modify_qp(own->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
              0);
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = IBV_MTU_512;
    attr.dest_qp_num = 0x123456;
    attr.rq_psn = 0x321;
    attr.max_dest_rd_atomic = 2;
    attr.min_rnr_timer = 13;
    attr.ah_attr = {
        .grh = {.dgid = {}, .flow_label = 0x6789, .sgid_index = 0, .hop_limit = 33, .traffic_class = 96},
        .dlid = 0,
        .sl = 3,
        .src_path_bits = 0,
        .static_rate = IBV_RATE_10_GBPS,
        .is_global = 1,
        .port_num = 1};
    std::memcpy(attr.ah_attr.grh.dgid.raw, gid().raw.data(), sizeof attr.ah_attr.grh.dgid.raw);
    EXPECT_EQ(modify_qp(own->qp, &attr,
                        IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                            IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
              0);
    attr.qp_state = IBV_QPS_RTS;
    attr.timeout = 17;
    attr.sq_psn = 0x654;
    EXPECT_EQ(modify_qp(own->qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_SQ_PSN), 0);
    return attr;
  }
  static void expect_unusual(const ibv_qp_attr& seen, const ibv_qp_attr& made) {
    EXPECT_EQ(seen.qp_state, IBV_QPS_RTS);
    EXPECT_EQ(
        std::memcmp(&seen.ah_attr.grh, &made.ah_attr.grh, offsetof(ibv_global_route, traffic_class) + 1), 0);
    EXPECT_EQ(seen.ah_attr.sl, made.ah_attr.sl);
    EXPECT_EQ(seen.ah_attr.static_rate, made.ah_attr.static_rate);
    EXPECT_EQ(seen.ah_attr.is_global, made.ah_attr.is_global);
    EXPECT_EQ(seen.ah_attr.port_num, made.ah_attr.port_num);
    EXPECT_EQ(seen.port_num, made.port_num);
    EXPECT_EQ(seen.timeout, made.timeout);
    EXPECT_EQ(seen.sq_psn, made.sq_psn);
    EXPECT_EQ(seen.rq_psn, made.rq_psn);
    EXPECT_EQ(seen.path_mtu, made.path_mtu);
    EXPECT_EQ(seen.dest_qp_num, made.dest_qp_num);
    EXPECT_EQ(seen.qp_access_flags, made.qp_access_flags);
    EXPECT_EQ(seen.min_rnr_timer, made.min_rnr_timer);
    EXPECT_EQ(seen.max_dest_rd_atomic, made.max_dest_rd_atomic);
  }
  std::unique_ptr<Opener> own;
  Owned<Pd> pd;
  Owned<Cq> send_cq, recv_cq;
  Owned<Qp> sender;
  Srq* srq = nullptr;
  std::unique_ptr<Region> memory;
};

TEST_F(MadeElsewhere, HasItsNumber) { EXPECT_EQ(qp_number(own->qp), numbers->receiver); }

TEST_F(MadeElsewhere, IsQueried) {
  EXPECT_EQ(own->query().qp_state, IBV_QPS_RESET);
  connect_sender();
  const ibv_qp_attr attr = own->query();
  EXPECT_EQ(attr.qp_state, IBV_QPS_RTS);
  EXPECT_EQ(attr.dest_qp_num, numbers->sender);
  EXPECT_EQ(attr.path_mtu, IBV_MTU_1024);
}

// Each attribute by itself; those of a sender are not an XRC_RECV queue pair's (ibv_query_qp(3); verbs.c,
// modify_qp_mask()).
TEST_F(MadeElsewhere, IsQueriedWithAddressAndTimers) {
  const ibv_qp_attr made = make_unusual();
  expect_unusual(own->query(), made);
  ASSERT_EQ(to_state(own->qp, IBV_QPS_RESET), 0);
  const ibv_qp_attr reset = own->query();
  EXPECT_EQ(reset.ah_attr.grh.hop_limit, 0);
  EXPECT_EQ(reset.timeout, 0);
  EXPECT_EQ(reset.port_num, 0);
}

TEST_F(MadeElsewhere, AfterItsOwnersDeathAddressAndTimersAreKept) {
  const ibv_qp_attr made = make_unusual();
  other.kill_now();
  expect_unusual(own->query(), made);  // in the owner, or here already
  EXPECT_TRUE(eventually([&] { return numbers_slot() == own->slot(); }));
  expect_unusual(own->query(), made);
}

TEST_F(MadeElsewhere, IsModifiedFromHere) {
  EXPECT_EQ(to_init(own->qp), 0);
  EXPECT_EQ(own->query().qp_state, IBV_QPS_INIT);
  ASSERT_EQ(to_state(own->qp, IBV_QPS_RESET), 0);
  EXPECT_EQ(own->query().qp_state, IBV_QPS_RESET);
}

TEST_F(MadeElsewhere, WhatIsWrongIsRefusedFromHereToo) {
  EXPECT_EQ(to_state(own->qp, IBV_QPS_RTS), EINVAL);
  EXPECT_EQ(own->query().qp_state, IBV_QPS_RESET);
}

TEST_F(MadeElsewhere, IsConnectedFromHere) {
  connect_sender(Connects::kHere);
  EXPECT_EQ(own->query().dest_qp_num, numbers->sender);
  EXPECT_EQ(send_to(srq_number(srq)), IBV_WC_SUCCESS);
}

TEST_F(MadeElsewhere, ItsOwnerIsStoppedAndDoesNotReply) {
  other.stop();
  EXPECT_EQ(to_init(own->qp), ETIMEDOUT);
  other.go_on();
  EXPECT_TRUE(eventually(
      [&] { return own->query().qp_state == IBV_QPS_INIT; }));  // it carried out the request all the same
}

TEST_F(MadeElsewhere, KeepsTheDomain) { EXPECT_EQ(close_xrcd(own->xrcd), EBUSY); }

TEST_F(MadeElsewhere, LivesWhenItsOwnerHasDestroyedItsHandle) {
  connect_sender();
  tell('c');
  EXPECT_EQ(send_to(srq_number(srq)), IBV_WC_SUCCESS);
  EXPECT_TRUE(exists());
}

TEST_F(MadeElsewhere, EndsWithTheLastHandle) {
  tell('c');
  own->close();
  EXPECT_TRUE(eventually([&] { return !exists(); }));
}

TEST_F(MadeElsewhere, StaysWhenItsOwnerHoldsItStill) {
  connect_sender();
  own->close();
  EXPECT_EQ(send_to(srq_number(srq)), IBV_WC_SUCCESS);
}

TEST_F(MadeElsewhere, ItsEventsGoToEveryHandle) {
  connect_sender();
  ASSERT_EQ(send_to(1), IBV_WC_REM_INV_REQ_ERR);
  const AsyncEvent event = async_event(own->context.get());
  EXPECT_EQ(event.type, static_cast<uint32_t>(IBV_EVENT_QP_REQ_ERR));
  EXPECT_EQ(event.element, kHandle);
  tell('q');
}

TEST_F(MadeElsewhere, OutlivesItsOwner) {
  connect_sender();
  ASSERT_EQ(send_to(srq_number(srq)), IBV_WC_SUCCESS);
  other.kill_now();
  EXPECT_EQ(send_to(srq_number(srq)), IBV_WC_SUCCESS);
  const ibv_qp_attr attr = own->query();
  EXPECT_EQ(attr.qp_state, IBV_QPS_RTS);
  EXPECT_EQ(attr.dest_qp_num, numbers->sender);
  EXPECT_EQ(attr.rq_psn, 2u);
  EXPECT_EQ(async_event(own->context.get(), 0).type, UINT32_MAX);
}

TEST_F(MadeElsewhere, TheSuccessorOfItsOwnerModifiesIt) {
  connect_sender();
  other.kill_now();
  ASSERT_EQ(to_state(own->qp, IBV_QPS_RESET), 0);
  EXPECT_EQ(to_init(own->qp), 0);
  EXPECT_EQ(own->query().qp_state, IBV_QPS_INIT);
}

TEST_F(MadeElsewhere, AfterItsOwnersDeathItsEventsAreStillTold) {
  connect_sender();
  other.kill_now();
  ASSERT_EQ(send_to(1), IBV_WC_REM_INV_REQ_ERR);
  EXPECT_EQ(async_event(own->context.get()).type, static_cast<uint32_t>(IBV_EVENT_QP_REQ_ERR));
  EXPECT_EQ(own->query().qp_state, IBV_QPS_ERR);
}

TEST_F(MadeElsewhere, AfterItsOwnersDeathItEndsWithTheLastHandle) {
  other.kill_now();
  EXPECT_TRUE(eventually([&] { return own->query().qp_state == IBV_QPS_RESET; }));
  own->close();
  EXPECT_TRUE(eventually([&] { return !exists(); }));
}

TEST_F(MadeElsewhere, AfterItsOwnersDeathItIsOpenedByOthers) {
  other.kill_now();
  EXPECT_EQ(to_init(own->qp), 0);
  Opener next(file, O_CREAT);
  ASSERT_EQ(next.open(numbers->receiver), 0);
  EXPECT_EQ(next.query().qp_state, IBV_QPS_INIT);
  own->close();
  EXPECT_EQ(to_state(next.qp, IBV_QPS_RESET), 0);
}

// This process has created it, and the other has it open as well.
struct MadeHere : XrcSharedQp {
  void SetUp() override {
    own = std::make_unique<Opener>(file, O_CREAT);
    ASSERT_EQ(own->make(), 0);
    numbers->receiver = qp_number(own->qp);
    tell('o');
  }
  std::unique_ptr<Opener> own;
};

TEST_F(MadeHere, StaysForTheOthers) {
  own->close();
  EXPECT_TRUE(exists());
}

TEST_F(MadeHere, EndsWhenTheOtherLetsItGo) {
  own->close();
  tell('c');
  EXPECT_TRUE(eventually([&] { return !exists(); }));
}

TEST_F(MadeHere, EndsWhenTheOtherDies) {
  own->close();
  other.kill_now();
  EXPECT_TRUE(eventually([&] { return !exists(); }));
}

TEST_F(MadeHere, IsOpenedAgainByItsOwner) {
  own->close();
  ASSERT_EQ(own->open(numbers->receiver), 0);
  tell('c');
  EXPECT_EQ(own->query().qp_state, IBV_QPS_RESET);
  EXPECT_EQ(to_init(own->qp), 0);
}

TEST_F(MadeHere, OutlivesItsOwnersContext) {
  ASSERT_EQ(to_init(own->qp), 0);
  own.reset();
  tell('i');  // still in its state
}

TEST_F(MadeHere, OutlivesAContextBesideAnother) {
  const Owned<Context> beside = open_device();
  ASSERT_EQ(to_init(own->qp), 0);
  own.reset();
  tell('i');
}

TEST_F(MadeHere, CountsUntilItHasEnded) {
  own->close();
  const NodeDirectory& directory = node.directory();
  const uint32_t slot = own->context->process->membership().slot();
  EXPECT_EQ(directory.count(0, Counted::kQps, slot).load(), 1u);
  tell('c');
  EXPECT_TRUE(eventually([&] { return directory.count(0, Counted::kQps, slot).load() == 0; }));
}

TEST_F(MadeHere, ANumberThatNobodyHasIsNotOpened) {
  Qp* qp = nullptr;
  EXPECT_EQ(open_qp(own->context.get(), own->xrcd, 0xfffff0, 0, &qp), EINVAL);
}

TEST_F(MadeHere, FromAnotherDomainItIsNotOpened) {
  tell('c');
  Opener stranger(-1, O_CREAT);
  EXPECT_EQ(stranger.open(numbers->receiver), EINVAL);
}

TEST(ToldEvents, KeepsTheLastSix) {
  uint64_t word = 0;
  for (uint8_t type = 1; type <= 8; ++type) word = ToldEvents::with(word, type);
  EXPECT_EQ(ToldEvents::count_of(word), 8u);
  EXPECT_EQ(ToldEvents::type(word, 0), 8);
  EXPECT_EQ(ToldEvents::type(word, 5), 3);
}

}  // namespace
}  // namespace verbena
