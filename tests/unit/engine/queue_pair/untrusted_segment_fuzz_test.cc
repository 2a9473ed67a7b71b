// SPDX-License-Identifier: BSD-2-Clause
//
// A peer's segment is untrusted memory. Whatever it contains, the requester's functions return, each request
// completes once, and nothing outside the mapping is read or written (as far as ASan sees).
//
// The peer is a child that has stopped. Its tables, queues and rings are damaged at random places between the
// requests. VERBENA_FUZZ_SEED repeats a run.
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <random>

#include "engine/objects/context.h"
#include "engine/objects/cq.h"
#include "engine/objects/memory_objects.h"
#include "engine/objects/qp.h"
#include "engine/objects/requester_context.h"
#include "unit/common/child.h"
#include "unit/engine/scene.h"

namespace verbena {
namespace {

constexpr QpSetup kSetup{.rnr_retry = 0, .timeout = 1, .retry_cnt = 0};
constexpr size_t kBytes = 300'000;

struct ForeignAddress {
  uint32_t number, rkey;
  uint64_t at;
};

class UntrustedSegment : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* given = std::getenv("VERBENA_FUZZ_SEED");
    const uint64_t seed = given != nullptr ? std::strtoull(given, nullptr, 0) : std::random_device()();
    std::printf("VERBENA_FUZZ_SEED=%llu\n", static_cast<unsigned long long>(seed));
    random.seed(seed);
    ASSERT_EQ(pipe(to_child), 0);
    ASSERT_EQ(pipe(from_child), 0);
    child = std::make_unique<Child>([this](const Child& self) { return peer(self); });
    context = open_device();
    pd = make_pd(context.get());
    cq = make_cq(context.get());
    memory = std::make_unique<Region>(pd.get(), kBytes);
    qp = make_qp(pd.get(), cq.get(), cq.get(), {.sge = 2});
    const ForeignAddress mine{qp_number(qp.get()), 0, 0};
    ASSERT_EQ(write(to_child[1], &mine, sizeof mine), static_cast<ssize_t>(sizeof mine));
    ASSERT_EQ(read(from_child[0], &there, sizeof there), static_cast<ssize_t>(sizeof there));
    connect(qp.get(), there.number, gid(), kSetup);
    ASSERT_EQ(child->answer(), 'r');
    child->stop();
    remember_areas();
  }
  ~UntrustedSegment() override {
    for (int fd : {to_child[0], to_child[1], from_child[0], from_child[1]}) close(fd);
  }
  const GidEntry& gid() const { return node.directory().devices().devices[0].ports[0].gids[0]; }

  int peer(const Child& self) {
    const Owned<Context> own_context = open_device();
    const Owned<Pd> own_pd = make_pd(own_context.get());
    const Owned<Cq> own_cq = make_cq(own_context.get(), 32);
    Region own(own_pd.get(), kBytes);
    const Owned<Qp> own_qp = make_qp(own_pd.get(), own_cq.get(), own_cq.get(), {.recv_wr = 16});
    ForeignAddress other;
    if (read(to_child[0], &other, sizeof other) != sizeof other) return 1;
    const ForeignAddress mine{qp_number(own_qp.get()), own.rkey(), own.address()};
    if (write(from_child[1], &mine, sizeof mine) != sizeof mine) return 1;
    connect(own_qp.get(), other.number, gid(), kSetup);
    for (uint64_t i = 0; i < 16; ++i)
      receive(own_qp.get(), {own.sge(0, 10'000), own.sge(20'000, kBytes - 20'000)}, i);
    self.tell('r');
    self.hear();
    return 0;
  }

  // The parts of the peer's segment that a requester reads, as they were undamaged.
  struct Area {
    std::byte* at;
    std::vector<std::byte> sound;
  };
  void remember_areas() {
    mapping = qp->requester.path.adapter;
    const SegmentView& view = mapping->view();
    SharedQp& there_qp = *qp->requester.path.qp;
    SharedCq& there_cq = *view.cq(there_qp.recv_cq);
    const auto remember = [](std::vector<Area>& where, void* at, size_t size) {
      auto* begin = static_cast<std::byte*>(at);
      where.push_back({begin, {begin, begin + size}});
    };
    const auto add = [&](void* at, size_t size) { remember(areas, at, size); };
    // A ring whose damaged offset leads to the locks gets claims written over them, which look like locks
    // that are held. Then each atomic waits for its whole timeout, as it must, and a thousand of them take a
    // thousand seconds.
    remember(hit, view.header().atomics_locks, sizeof view.header().atomics_locks);
    add(&there_qp, sizeof there_qp);
    add(&there_cq, sizeof there_cq);
    add(&view.header().mr_epoch, kCacheLine);
    add(view.mr(1), sizeof(SharedMr));
    add(view.base() + there_cq.rings[0].offset, sizeof(Cqe) << there_cq.rings[0].order);
    add(view.base() + there_cq.rings[0].claim_offset, sizeof(uint64_t) << there_cq.rings[0].order);
    add(view.base() + there_qp.rq_ready_offset, sizeof(uint64_t) << there_qp.rq_order);
    add(view.base() + there_qp.rq_wqe_offset, uint64_t{there_qp.rq_stride} << there_qp.rq_order);
  }
  void repair() {
    for (const auto* some : {&areas, &hit})
      for (const Area& area : *some) std::memcpy(area.at, area.sound.data(), area.sound.size());
  }
  uint64_t any(uint64_t below) { return random() % below; }
  void damage() {
    constexpr uint64_t kInteresting[] = {0,          1,          2,          25,         64,         255,
                                         0x7fffffff, 0x80000000, 0xffffffff, UINT64_MAX, 1ull << 33, 4096};
    const Area& area = areas[any(areas.size())];
    // The responder's state word stays as it is in most rounds, so that what it guards is read.
    const uint64_t at = any(area.sound.size() / 4) * 4;
    if (area.at == areas[0].at && at < 8 && any(8) != 0) return;
    const uint64_t value = any(2) != 0 ? kInteresting[any(std::size(kInteresting))] : random();
    const size_t width = any(3) == 0 && at + 8 <= area.sound.size() ? 8 : any(2) != 0 ? 4 : 1;
    std::memcpy(area.at + at, &value, width);
  }
  void start_over() {
    ASSERT_EQ(to_state(qp.get(), IBV_QPS_RESET), 0);
    repair();
    connect(qp.get(), there.number, gid(), kSetup);
  }
  int post_something() {
    constexpr ibv_wr_opcode kOpcodes[] = {IBV_WR_SEND,
                                          IBV_WR_SEND,
                                          IBV_WR_SEND_WITH_IMM,
                                          IBV_WR_RDMA_WRITE,
                                          IBV_WR_RDMA_WRITE_WITH_IMM,
                                          IBV_WR_RDMA_READ,
                                          IBV_WR_ATOMIC_FETCH_AND_ADD};
    constexpr uint32_t kSizes[] = {0, 8, 32, 100, 256, 257, 5000, kBytes};
    const ibv_wr_opcode opcode = kOpcodes[any(std::size(kOpcodes))];
    const bool atomic = opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
    Sges sges{memory->sge(0, atomic ? 8 : kSizes[any(std::size(kSizes))])};
    ibv_send_wr wr = request(opcode, sges);
    if (atomic)
      wr.wr.atomic = {there.at, 1, 0, there.rkey};
    else
      wr.wr.rdma = {there.at, there.rkey};
    return post(qp.get(), wr);
  }

  std::mt19937_64 random;
  TemporaryNode node;
  int to_child[2] = {-1, -1}, from_child[2] = {-1, -1};
  std::unique_ptr<Child> child;
  Owned<Context> context;
  Owned<Pd> pd;
  Owned<Cq> cq;
  std::unique_ptr<Region> memory;
  Owned<Qp> qp;
  ForeignAddress there{};
  std::shared_ptr<PeerAdapter> mapping;  // stays while the queue pair is in RESET
  std::vector<Area> areas;               // what is damaged
  std::vector<Area> hit;                 // what damaged offsets may lead to
};

TEST_F(UntrustedSegment, WorksWhenItIsSound) {
  for (int round = 0; round < 20; ++round) {
    start_over();
    ASSERT_EQ(send(qp.get(), {memory->sge(0, 64)}), 0);
    ASSERT_EQ(completion(cq.get()).status, IBV_WC_SUCCESS);
  }
}

// A path begins with generation 0: a state word with that generation must not count as one that was checked.
TEST_F(UntrustedSegment, AResponderStateOfGenerationZeroIsNone) {
  start_over();
  qp->requester.path.qp->responder_state.store(ResponderState{0, IBV_QPS_RTS}.pack());
  Sges sges{memory->sge(0, 64)};
  ibv_send_wr wr = request(IBV_WR_RDMA_READ, sges);
  wr.wr.rdma = {there.at, there.rkey};
  ASSERT_EQ(post(qp.get(), wr), 0);
  EXPECT_EQ(completion(cq.get()).status, IBV_WC_RETRY_EXC_ERR);
}

TEST_F(UntrustedSegment, DamagedBeforeThePathIsFound) {
  for (int round = 0; round < 1500 && !HasFailure(); ++round) {
    start_over();
    for (uint64_t i = any(12); i > 0; --i) damage();
    for (int i = 0; i < 3; ++i) ASSERT_EQ(post_something(), 0);
    completions(cq.get(), 3);
  }
}

TEST_F(UntrustedSegment, DamagedUnderWay) {
  std::map<ibv_wc_status, unsigned> seen;
  for (int round = 0; round < 1500 && !HasFailure(); ++round) {
    start_over();
    ASSERT_EQ(send(qp.get(), {memory->sge(0, 8)}), 0);  // the path is found, and eager data are there
    for (int i = 0; i < 3; ++i) {
      for (uint64_t places = any(6); places > 0; --places) damage();
      ASSERT_EQ(post_something(), 0);
    }
    for (const ibv_wc& wc : completions(cq.get(), 4)) ++seen[wc.status];
  }
  // If damage always closed the responder, the test would check nothing.
  EXPECT_GT(seen[IBV_WC_SUCCESS], 1000u);
  EXPECT_GT(seen.size(), 4u);
}

TEST_F(UntrustedSegment, DamagedBeforeConnecting) {
  for (int round = 0; round < 300 && !HasFailure(); ++round) {
    ASSERT_EQ(to_state(qp.get(), IBV_QPS_RESET), 0);
    repair();
    for (uint64_t i = any(12); i > 0; --i) damage();
    connect(qp.get(), there.number, gid(), kSetup);
    ASSERT_EQ(post_something(), 0);
    completions(cq.get(), 1);
  }
}

}  // namespace
}  // namespace verbena
