// SPDX-License-Identifier: BSD-2-Clause
//
// The service thread acts on the objects that have been reported, and looks at no others: an error of one QP
// costs the same among 10,000 QPs as among ten.
//
// To see which objects it looks at, idle ones get a flag as a peer would set it, but no report. An object
// that is looked at loses its flag.
#include <gtest/gtest.h>
#include <time.h>

#include <algorithm>
#include <memory>

#include "engine/objects/context.h"
#include "engine/objects/cq.h"
#include "engine/objects/process.h"
#include "engine/objects/qp.h"
#include "engine/objects/srq.h"
#include "unit/engine/scene.h"

namespace verbena {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kManyObjects = 500;
#else
constexpr int kManyObjects = 10'000;
#endif
constexpr int kFewObjects = 10;

constexpr uint64_t kMarkerHandle = 0x3a3a;

struct IdleObjects : Scene {
  Process& process() { return *context->process; }
  PeerAdapter& self() { return process().self(); }

  // Waits until the service thread has finished its present pass. The marker's first flag may be served in
  // this pass, and the second one, too, if the pass scans the table; the third one only in a later pass.
  void finish_pass() {
    for (int i = 0; i < 3; ++i) {
      marker->shared->pending_flags.fetch_or(kPendingCommEst);
      self().report(*marker->shared);
      EXPECT_EQ(next_event(), (Told{IBV_EVENT_COMM_EST, kMarkerHandle}));
    }
  }
  using Told = std::pair<uint32_t, uint64_t>;
  Told next_event() {
    const AsyncEvent event = async_event(context.get());
    return {event.type, event.element};
  }

  // CPU time that the service thread has used, ns. Its clock's number is the kernel's CPUCLOCK_SCHED of a
  // thread (include/linux/posix-timers.h).
  int64_t service_time() {
    const uint32_t thread = node.directory().slot(process().membership().slot()).holder.load();
    timespec used{};
    EXPECT_EQ(clock_gettime(static_cast<clockid_t>(~thread << 3 | 6), &used), 0);
    return used.tv_sec * int64_t{1'000'000'000} + used.tv_nsec;
  }

  Owned<Cq> idle_cq = make_cq(context.get(), 4);
  Owned<Qp> make_idle_qp(uint64_t handle = 0) {
    Owned<Qp> qp =
        make_qp(pd.get(), idle_cq.get(), idle_cq.get(), {.send_wr = 1, .recv_wr = 1, .sge = 1}, handle);
    EXPECT_EQ(to_init(qp.get()), 0);
    return qp;
  }
  Owned<Qp> marker;
};

// An RC pair whose responder goes to ERR by a request with an rkey that nobody has.
struct FailingPair {
  FailingPair(IdleObjects& scene, uint64_t responder_handle)
      : scene_(scene),
        handle_(responder_handle),
        requester_(make_qp(scene.pd.get(), cq_.get(), cq_.get(), kSetup)),
        responder_(make_qp(scene.pd.get(), cq_.get(), cq_.get(), kSetup, responder_handle)) {}
  void connect_again() {
    for (Qp* qp : {requester_.get(), responder_.get()}) ASSERT_EQ(to_state(qp, IBV_QPS_RESET), 0);
    connect(requester_.get(), qp_number(responder_.get()), scene_.gid());
    connect(responder_.get(), qp_number(requester_.get()), scene_.gid());
  }
  // Until the event is raised.
  void fail() {
    ASSERT_EQ(rdma(requester_.get(), IBV_WR_RDMA_WRITE, {memory_.sge(0, 8)}, memory_.address(), 0), 0);
    EXPECT_EQ(completion(cq_.get()).status, IBV_WC_REM_ACCESS_ERR);
    EXPECT_EQ(scene_.next_event(), (IdleObjects::Told{IBV_EVENT_QP_ACCESS_ERR, handle_}));
  }
  Qp* responder() { return responder_.get(); }

 private:
  static constexpr QpSetup kSetup{.send_wr = 4, .recv_wr = 4};
  IdleObjects& scene_;
  const uint64_t handle_;
  Region memory_{scene_.pd.get(), 64};
  Owned<Cq> cq_ = make_cq(scene_.context.get(), 16);
  Owned<Qp> requester_, responder_;
};

// ---- queue pairs ----

struct IdleQps : IdleObjects {
  explicit IdleQps(int count, int pair_count = 1) {
    for (int i = 0; i < pair_count; ++i) {
      pairs.push_back(std::make_unique<FailingPair>(*this, 0xb0 + static_cast<uint64_t>(i)));
      pairs.back()->connect_again();
    }
    for (int i = 0; i < count; ++i) qps.push_back(make_idle_qp());
    marker = make_idle_qp(kMarkerHandle);
  }
  void set_flags_without_report() {
    for (const Owned<Qp>& qp : qps) qp->shared->pending_flags.fetch_or(kPendingCommEst);
  }
  long looked_at() const {
    return std::ranges::count_if(qps,
                                 [](const Owned<Qp>& qp) { return qp->shared->pending_flags.load() == 0; });
  }

  std::vector<std::unique_ptr<FailingPair>> pairs;
  std::vector<Owned<Qp>> qps;
};

TEST(ReportedObjects, AnErrorOfOneQpAmongManyLooksAtNoOther) {
  IdleQps scene(kManyObjects);
  scene.set_flags_without_report();
  scene.pairs[0]->fail();
  scene.finish_pass();
  EXPECT_EQ(qp_state(scene.pairs[0]->responder()), IBV_QPS_ERR);
  EXPECT_EQ(scene.looked_at(), 0);
}

TEST(ReportedObjects, AVerbOnTheFailedQpLooksAtNoOther) {
  IdleQps scene(kFewObjects);
  scene.set_flags_without_report();
  scene.pairs[0]->fail();
  EXPECT_EQ(receive(scene.pairs[0]->responder(), {}), 0);
  EXPECT_EQ(scene.looked_at(), 0);
}

// The doorbell of an entry may ring after an earlier pass has taken the entry.
TEST(ReportedObjects, ADoorbellWithoutAReportLooksAtNoQp) {
  IdleQps scene(kFewObjects);
  scene.set_flags_without_report();
  scene.self().view().header().doorbell.store(1);
  scene.self().kick();
  ASSERT_TRUE(eventually([&] { return scene.self().view().header().doorbell.load() == 0; }));
  scene.finish_pass();
  EXPECT_EQ(scene.looked_at(), 0);
}

TEST(ReportedObjects, AllThatAreReportedAreServed) {
  IdleQps scene(kFewObjects);
  scene.set_flags_without_report();
  for (const Owned<Qp>& qp : scene.qps) scene.self().report(*qp->shared);
  EXPECT_TRUE(eventually([&] { return scene.looked_at() == kFewObjects; }));
}

// CPU time of the service thread for some errors and the passes that follow: the least of several tries, ns.
int64_t service_time_of_errors(int idle_qps) {
  constexpr int kErrors = 8, kTries = 8;
  IdleQps scene(idle_qps, kErrors);
  int64_t least = INT64_MAX;
  for (int i = 0; i < kTries; ++i) {
    scene.finish_pass();
    const int64_t before = scene.service_time();
    for (const auto& pair : scene.pairs) {
      pair->fail();
      scene.finish_pass();
    }
    least = std::min(least, scene.service_time() - before);
    for (const auto& pair : scene.pairs) pair->connect_again();
  }
  return least;
}

TEST(ReportedObjects, AnErrorAmongManyQpsTakesNoMoreTimeThanAmongFew) {
  // In turns: a machine may be slower for a while.
  int64_t few = INT64_MAX, many = INT64_MAX;
  for (int i = 0; i < 4; ++i) {
    few = std::min(few, service_time_of_errors(kFewObjects));
    many = std::min(many, service_time_of_errors(kManyObjects));
  }
  ASSERT_GT(few, 0);
  EXPECT_LT(many, 3 * few) << few << " ns among " << kFewObjects << " QPs, " << many << " ns among "
                           << kManyObjects;
}

// ---- completion queues ----

struct IdleCqs : IdleObjects {
  explicit IdleCqs(int count) {
    for (int i = 0; i < count; ++i) cqs.push_back(make_cq(context.get(), 1));
    marker = make_idle_qp(kMarkerHandle);
  }
  std::vector<Owned<Cq>> cqs;
};

TEST(ReportedObjects, AnOverrunOfOneCqLooksAtNoOther) {
  IdleCqs scene(kManyObjects / 10);
  for (const Owned<Cq>& cq : scene.cqs) cq->shared->overrun.store(1);
  const Owned<Cq> overrun = make_cq(scene.context.get(), 1, -1, 0xc0);
  overrun->shared->overrun.store(1);
  scene.self().report(*overrun->shared);
  EXPECT_EQ(scene.next_event(), (IdleObjects::Told{IBV_EVENT_CQ_ERR, 0xc0}));
  scene.finish_pass();
  EXPECT_EQ(std::ranges::count_if(scene.cqs, [](const Owned<Cq>& cq) { return cq->failed.load(); }), 0);
}

TEST(ReportedObjects, AModeratedEventOfOneCqLooksAtNoOther) {
  IdleCqs scene(kManyObjects / 10);
  // As if the period of each had begun long ago.
  for (const Owned<Cq>& cq : scene.cqs) cq->moderated_until = 1;
  const Owned<Cq> moderated = make_cq(scene.context.get(), 1);
  ASSERT_EQ(modify_cq(moderated.get(), 100, 1000), 0);
  moderated->shared->timer_asked.store(1);
  scene.self().report(*moderated->shared);
  EXPECT_TRUE(eventually([&] { return moderated->shared->timer_asked.load() == 0; }));
  scene.finish_pass();
  EXPECT_EQ(std::ranges::count_if(scene.cqs, [](const Owned<Cq>& cq) { return cq->moderated_until != 1; }),
            0);
}

// ---- shared receive queues ----

struct DestroyIdleSrq {
  void operator()(Srq* srq) const {
    uint32_t async_events;
    EXPECT_EQ(destroy_srq(srq, &async_events), 0);
  }
};
using IdleSrq = std::unique_ptr<Srq, DestroyIdleSrq>;

struct IdleSrqs : IdleObjects {
  explicit IdleSrqs(int count) {
    for (int i = 0; i < count; ++i) srqs.push_back(make_srq(0));
    marker = make_idle_qp(kMarkerHandle);
  }
  IdleSrq make_srq(uint64_t handle) {
    ibv_srq_attr attr{1, 1, 0};
    Srq* srq = nullptr;
    EXPECT_EQ(create_srq(pd.get(), &attr, {}, handle, &srq), 0);
    return IdleSrq(srq);
  }
  std::vector<IdleSrq> srqs;
};

TEST(ReportedObjects, ALimitOfOneSrqLooksAtNoOther) {
  IdleSrqs scene(kManyObjects / 10);
  for (const IdleSrq& srq : scene.srqs) srq->shared->limit_reached.store(1);
  const IdleSrq reached = scene.make_srq(0x50);
  reached->shared->limit_reached.store(1);
  scene.self().report(*reached->shared);
  EXPECT_EQ(scene.next_event(), (IdleObjects::Told{IBV_EVENT_SRQ_LIMIT_REACHED, 0x50}));
  scene.finish_pass();
  EXPECT_EQ(std::ranges::count_if(scene.srqs,
                                  [](const IdleSrq& srq) { return srq->shared->limit_reached.load() == 0; }),
            0);
}

}  // namespace
}  // namespace verbena
