// SPDX-License-Identifier: BSD-2-Clause
//
// The fast path of small requests is an optimisation and nothing else: the same random programs, with and
// without it, end with the same completions, bytes, counters, PSNs and states.
#include "engine/local/fast_path.h"

#include <gtest/gtest.h>

#include <array>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "adapter/traffic.h"
#include "engine/objects/fast_path_state.h"
#include "engine/objects/qp.h"
#include "engine/qp_state/pending_flags.h"
#include "unit/engine/scene.h"

namespace verbena {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr uint32_t kPrograms = 60;
#else
constexpr uint32_t kPrograms = 200;
#endif
constexpr uint32_t kSteps = 50;
constexpr uint32_t kSlots = 64;  // of receive buffers
constexpr uint32_t kSlotSize = 640;
constexpr uint32_t kArea = 8192;  // of each other kind of memory

enum class StepKind : uint8_t { kReceive, kSend, kWrite, kRead, kAtomic, kPoll };

// One step of a program, the same in both runs.
struct ProgramStep {
  StepKind kind;
  uint8_t side;
  ibv_wr_opcode opcode;
  unsigned flags;
  uint32_t length, at, remote_at;
  uint8_t sges;
  bool wrong_lkey, wrong_rkey;
};

struct RandomProgram {
  QpSetup setup;
  std::vector<ProgramStep> steps;
};

// Small requests, with a few that the fast path leaves to the requester, and a few that fail.
class ProgramGenerator {
 public:
  explicit ProgramGenerator(uint32_t seed) : random_(seed) {}

  RandomProgram program() {
    RandomProgram program;
    QpSetup& setup = program.setup;
    setup.inline_size = below(3) * 64;
    setup.shared_receives = chance(3);
    setup.all_signaled = chance(3);
    setup.rnr_retry = 0;
    setup.timeout = 1;  // 8.2 us: a peer in ERR does not answer
    setup.retry_cnt = 0;
    setup.sq_psn = setup.rq_psn = chance(3) ? 0xffffff - below(20) : below(1000);
    setup.max_rd_atomic = setup.max_dest_rd_atomic = chance(8) ? 0 : 4;
    if (chance(8)) setup.access &= ~IBV_ACCESS_REMOTE_READ;
    const bool fails = chance(3);
    around_a_limit_ = fails && chance(3);
    std::array<uint32_t, 2> receives{};
    for (uint32_t i = 0; i < kSteps; ++i) {
      ProgramStep step = next(fails);
      const bool consumes = step.kind == StepKind::kSend || step.opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
      if (step.kind == StepKind::kReceive && ++receives[step.side] > kSlots) continue;
      if (consumes) {
        uint32_t& waiting = receives[1 - step.side];
        if (waiting == 0 && !(fails && chance(10))) continue;
        if (waiting != 0) --waiting;
      }
      program.steps.push_back(step);
    }
    return program;
  }

 private:
  uint32_t below(uint32_t end) { return std::uniform_int_distribution<uint32_t>(0, end - 1)(random_); }
  bool chance(uint32_t one_in) { return below(one_in) == 0; }

  ProgramStep next(bool fails) {
    constexpr StepKind kKinds[] = {
        StepKind::kReceive, StepKind::kReceive, StepKind::kReceive, StepKind::kSend,   StepKind::kSend,
        StepKind::kSend,    StepKind::kWrite,   StepKind::kRead,    StepKind::kAtomic, StepKind::kPoll};
    constexpr uint32_t kLengths[] = {0, 1, 7, 8, 9, 31, 32, 33, 64, 95, 96, 97, 128, 255, 256, 257, 500};
    ProgramStep step{};
    step.kind = kKinds[below(std::size(kKinds))];
    step.side = static_cast<uint8_t>(below(2));
    step.length = around_a_limit_ ? 8 + below(2) : kLengths[below(std::size(kLengths))];
    step.at = below(kArea - 1024);
    step.remote_at = below(kArea - 1024);
    step.sges = chance(5) ? 2 : 1;
    if (chance(2)) step.flags |= IBV_SEND_SIGNALED;
    if (chance(6)) step.flags |= IBV_SEND_SOLICITED;
    if (chance(8)) step.flags |= IBV_SEND_FENCE;
    step.opcode = operation(step);
    if (step.kind == StepKind::kReceive) step.length = fails && chance(2) ? step.length : 512;
    if ((step.kind == StepKind::kSend || step.kind == StepKind::kWrite) && step.length <= 64 && chance(4))
      step.flags |= IBV_SEND_INLINE;
    step.wrong_lkey = fails && chance(40);
    step.wrong_rkey = fails && chance(40);
    return step;
  }

  ibv_wr_opcode operation(const ProgramStep& step) {
    const bool with_immediate = chance(4);
    switch (step.kind) {
      case StepKind::kSend:
        return with_immediate ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND;
      case StepKind::kWrite:
        return with_immediate ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE;
      case StepKind::kRead:
        return IBV_WR_RDMA_READ;
      case StepKind::kAtomic:
        return with_immediate ? IBV_WR_ATOMIC_CMP_AND_SWP : IBV_WR_ATOMIC_FETCH_AND_ADD;
      default:
        return IBV_WR_SEND;
    }
  }

  std::mt19937 random_;
  bool around_a_limit_ =
      false;  // all lengths are 8 and 9: a message one byte longer than the buffer is common
};

// What a side has, apart from its queue pair.
struct SideMemory {
  explicit SideMemory(Pd* pd, uint8_t seed)
      : out(pd, kArea), in(pd, kSlots * kSlotSize), target(pd, kArea), read(pd, kArea) {
    out.fill(seed), target.fill(static_cast<uint8_t>(seed + 1));
  }
  Region out, in, target, read;
  uint32_t receives = 0;
};

// Runs a program and writes down all that it could see.
class ProgramRun {
 public:
  explicit ProgramRun(const RandomProgram& program) : program_(program), pair_(program.setup) {}

  std::string result() {
    uint64_t wr_id = 0;
    for (const ProgramStep& step : program_.steps) {
      carry_out(step, ++wr_id);
      wait_until_idle(step.side);
    }
    for (const int side : {0, 1}) {
      log_ << "side " << side << " ends in state " << state_of(qp(side)) << "\n";
      EXPECT_EQ(to_state(&qp(side), IBV_QPS_ERR), 0);
    }
    for (const int side : {0, 1}) finish(side);
    for (const int side : {0, 1}) log_ << completions_[side].received.str() << completions_[side].sent.str();
    return log_.str();
  }
  uint64_t fast_requests() const { return fast_; }

 private:
  Side& side(int index) { return index == 0 ? pair_.a : pair_.b; }
  Qp& qp(int index) { return **side(index); }

  void carry_out(const ProgramStep& step, uint64_t wr_id) {
    SideMemory& own = memory_[step.side];
    SideMemory& peer = memory_[1 - step.side];
    Sges sges;
    switch (step.kind) {
      case StepKind::kPoll:
        return poll_both();
      case StepKind::kReceive:
        sges = cut(own.in, uint64_t{own.receives++} * kSlotSize, step);
        log_ << "receive: " << post_receive(step.side, sges, wr_id) << "\n";
        return;
      case StepKind::kRead:
        sges = cut(own.read, step.at, step);
        break;
      case StepKind::kAtomic:
        sges = {own.read.sge(step.at & ~7u, 8)};
        break;
      default:
        sges = cut(own.out, step.at, step);
    }
    ibv_send_wr wr = request(step.opcode, sges, wr_id, step.flags);
    wr.imm_data = step.at;
    const uint32_t rkey = peer.target.rkey() ^ (step.wrong_rkey ? 0x200u : 0u);
    if (step.kind == StepKind::kAtomic)
      wr.wr.atomic = {peer.target.address(step.remote_at & ~7u), step.at, 7, rkey};
    else if (step.kind != StepKind::kSend)
      wr.wr.rdma = {peer.target.address(step.remote_at), rkey};
    Qp& poster = qp(step.side);
    log_ << "post " << step.opcode << " of " << step.length << ": " << post(&poster, wr) << "\n";
    if (poster.fast.small_size != 0 || poster.fast.rdma) ++fast_;
  }

  // As a verb finds it: what the peer has reported is acted on.
  static ibv_qp_state state_of(Qp& qp) {
    act_on_pending_flags(qp);
    std::lock_guard lock(qp.send_lock);
    return qp.state.load();
  }

  int post_receive(int index, const Sges& sges, uint64_t wr_id) {
    Srq* const srq = side(index).srq.get();
    return srq != nullptr ? receive(srq, sges, wr_id) : receive(&qp(index), sges, wr_id);
  }

  static Sges cut(const Region& region, uint64_t at, const ProgramStep& step) {
    Sges sges;
    const uint32_t first = step.sges == 2 ? step.length / 3 : step.length;
    sges.push_back(region.sge(at, first));
    if (step.sges == 2) sges.push_back(region.sge(at + first, step.length - first));
    if (step.wrong_lkey) sges.back().lkey ^= 0x200;
    return sges;
  }

  // The next step then meets the same state in both runs.
  void wait_until_idle(int index) {
    Qp& waiting = qp(index);
    const int64_t end = now_ns() + 20'000'000'000;
    const auto idle = [&] {
      std::lock_guard lock(waiting.send_lock);
      return waiting.sq_next == waiting.sq_posted;
    };
    while (!idle() && now_ns() < end) {
      poll_cq(side(index).send_cq.get(), 0, nullptr);
      sched_yield();
    }
    ASSERT_LT(now_ns(), end) << "the send queue has not become idle";
  }

  bool poll_one(int index, Cq* cq, const char* name, std::ostringstream& log) {
    ibv_wc wc{};
    if (poll_cq(cq, 1, &wc) != 1) return false;
    log << "side " << index << " " << name << ": wr_id " << wc.wr_id << " status " << wc.status;
    if (wc.status == IBV_WC_SUCCESS) {
      log << " opcode " << wc.opcode << " flags " << wc.wc_flags;
      if (wc.opcode != IBV_WC_SEND && wc.opcode != IBV_WC_RDMA_WRITE) log << " length " << wc.byte_len;
      if ((wc.wc_flags & IBV_WC_WITH_IMM) != 0) log << " immediate " << wc.imm_data;
    } else {
      log << " vendor_err " << wc.vendor_err;
    }
    EXPECT_EQ(wc.qp_num, side(index).number());
    log << "\n";
    return true;
  }
  void poll_both() {
    for (const int index : {0, 1}) {
      Completions& completions = completions_[index];
      while (poll_one(index, side(index).recv_cq.get(), "receives", completions.received)) received_[index]++;
      while (poll_one(index, side(index).send_cq.get(), "sends", completions.sent)) continue;
    }
  }

  // Everything that was posted has completed; then what is left to compare.
  void finish(int index) {
    const int64_t end = now_ns() + 20'000'000'000;
    // What was posted to an SRQ stays there.
    const bool all_complete = side(index).srq == nullptr;
    while (all_complete && received_[index] < memory_[index].receives && now_ns() < end) poll_both();
    poll_both();
    if (all_complete) {
      EXPECT_EQ(received_[index], memory_[index].receives);
    }
    const SharedQp& shared = *qp(index).shared;
    log_ << "counters: " << shared.requests_out << " " << shared.bytes_out << " " << shared.requests_in << " "
         << shared.bytes_in << " " << shared.sq_posted << " " << shared.rq_posted << " " << shared.rq_taken
         << " psn " << shared.send_psn << " " << shared.expected_psn << " msn " << shared.msn << "\n";
    log_ << "through the port:";
    for (const uint64_t count : traffic_of(shared)) log_ << " " << count;
    log_ << "\n";
    for (Region* region : {&memory_[index].in, &memory_[index].target, &memory_[index].read})
      log_ << std::string(reinterpret_cast<const char*>(region->data()), region->size()) << "\n";
  }

  const RandomProgram& program_;
  Pair pair_;
  std::array<SideMemory, 2> memory_{SideMemory(pair_.pd.get(), 3), SideMemory(pair_.pd.get(), 90)};
  std::array<uint32_t, 2> received_{};
  uint64_t fast_ = 0;
  std::ostringstream log_;
  // A log for each queue: a responder that fails is flushed by a service thread, so that the order between
  // the queues is one of time.
  struct Completions {
    std::ostringstream received, sent;
  };
  std::array<Completions, 2> completions_;
};

class FastPathSwitch {
 public:
  explicit FastPathSwitch(bool on) { fast_path_enabled = on; }
  ~FastPathSwitch() { fast_path_enabled = true; }
};

std::string first_difference(const std::string& with, const std::string& without) {
  std::istringstream left(with), right(without);
  for (std::string a, b; std::getline(left, a) && std::getline(right, b);)
    if (a != b) return "with the fast path: " + a.substr(0, 200) + "\nwithout it: " + b.substr(0, 200);
  return "one of them ends earlier";
}

TEST(FastPath, ChangesNoResultOfRandomPrograms) {
  uint64_t fast = 0, slow = 0;
  for (uint32_t seed = 1; seed <= kPrograms; ++seed) {
    const RandomProgram program = ProgramGenerator(seed).program();
    std::string with, without;
    {
      const FastPathSwitch on(true);
      ProgramRun run(program);
      with = run.result();
      fast += run.fast_requests();
    }
    {
      const FastPathSwitch off(false);
      ProgramRun run(program);
      without = run.result();
      slow += run.fast_requests();
    }
    ASSERT_TRUE(with == without) << "seed " << seed << "\n" << first_difference(with, without);
  }
  EXPECT_GT(fast, kPrograms) << "the programs hardly used the fast path";
  EXPECT_EQ(slow, 0u);
}

// The requester knows of receives that are posted at the peer. When the peer is connected again, there are
// others.
TEST(FastPath, ForgetsTheReceivesOfAPeerThatWasReset) {
  QpSetup setup;
  setup.rnr_retry = 0;
  Pair pair(setup);
  Region from(pair.pd.get(), 64), to(pair.pd.get(), 64);
  const auto send_one = [&] {
    EXPECT_EQ(send(*pair.a, {from.sge(0, 8)}), 0);
    return pair.a.sent().status;
  };
  for (int i = 0; i < 8; ++i) ASSERT_EQ(receive(*pair.b, {to.sge(0, 64)}), 0);
  for (int i = 0; i < 2; ++i) ASSERT_EQ(send_one(), IBV_WC_SUCCESS);
  EXPECT_NE((*pair.a)->fast.small_size, 0u);
  ASSERT_EQ(to_state(*pair.b, IBV_QPS_RESET), 0);
  QpSetup later = setup;
  later.rq_psn = setup.rq_psn + 2;  // the next of the requester
  connect(*pair.b, pair.a.number(), pair.gid(), later);
  ASSERT_EQ(receive(*pair.b, {to.sge(0, 64)}), 0);
  EXPECT_EQ(send_one(), IBV_WC_SUCCESS);  // off the fast path: the peer has changed
  EXPECT_EQ(send_one(), IBV_WC_RNR_RETRY_EXC_ERR);
}

// Two pieces inline, as UCX sends them, into an SRQ that is armed.
TEST(FastPath, TakesFromASharedReceiveQueue) {
  QpSetup setup;
  setup.inline_size = 64;
  setup.shared_receives = true;
  Pair pair(setup);
  Region from(pair.pd.get(), 64), to(pair.pd.get(), 128);
  from.fill(5);
  for (uint64_t i = 0; i < 2; ++i) ASSERT_EQ(receive(pair.b.srq.get(), {to.sge(64 * i, 64)}, 70 + i), 0);
  ibv_srq_attr limit{0, 0, 1};
  ASSERT_EQ(modify_srq(pair.b.srq.get(), &limit, IBV_SRQ_LIMIT), 0);
  for (uint32_t i = 0; i < 2; ++i) {
    ASSERT_EQ(send(*pair.a, {from.sge(i, 9), from.sge(32, 8)}, i, IBV_SEND_SIGNALED | IBV_SEND_INLINE), 0);
    EXPECT_EQ(pair.a.sent().status, IBV_WC_SUCCESS);
    const ibv_wc wc = pair.b.received();
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
    EXPECT_EQ(wc.wr_id, 70 + i);
    EXPECT_EQ(wc.byte_len, 17u);
    EXPECT_EQ(memcmp(to.data() + 64 * i, from.data() + i, 9), 0);
    EXPECT_EQ(memcmp(to.data() + 64 * i + 9, from.data() + 32, 8), 0);
  }
  EXPECT_TRUE((*pair.a)->fast.is_shared);
  EXPECT_EQ(async_event(pair.context.get()).type, uint32_t{IBV_EVENT_SRQ_LIMIT_REACHED});
}

// The WQE is taken, and the slow path fails the message for it.
TEST(FastPath, LeavesAWqeThatIsTooSmallToTheSlowPath) {
  QpSetup setup;
  setup.shared_receives = true;
  Pair pair(setup);
  Region from(pair.pd.get(), 64), to(pair.pd.get(), 64);
  for (const uint32_t room : {64u, 4u}) ASSERT_EQ(receive(pair.b.srq.get(), {to.sge(0, room)}, room), 0);
  ASSERT_EQ(send(*pair.a, {from.sge(0, 8)}), 0);  // the path is looked up
  EXPECT_EQ(pair.b.received().wr_id, 64u);
  ASSERT_EQ(send(*pair.a, {from.sge(0, 8)}), 0);
  const ibv_wc wc = pair.b.received();
  EXPECT_EQ(wc.status, IBV_WC_LOC_LEN_ERR);
  EXPECT_EQ(wc.wr_id, 4u);
  EXPECT_EQ(pair.a.sent().status, IBV_WC_SUCCESS);
  EXPECT_EQ(pair.a.sent().status, IBV_WC_REM_INV_REQ_ERR);
}

TEST(FastPath, IsNeverTakenWhileSwitchedOff) {
  const FastPathSwitch off(false);
  Pair pair;
  Region from(pair.pd.get(), 64), to(pair.pd.get(), 64);
  ASSERT_EQ(receive(*pair.b, {to.sge(0, 64)}), 0);
  ASSERT_EQ(send(*pair.a, {from.sge(0, 8)}), 0);
  EXPECT_EQ(pair.a.sent().status, IBV_WC_SUCCESS);
  EXPECT_EQ((*pair.a)->fast.small_size, 0u);
  EXPECT_FALSE((*pair.a)->fast.rdma);
}

}  // namespace
}  // namespace verbena
