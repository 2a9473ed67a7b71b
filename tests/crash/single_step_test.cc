// SPDX-License-Identifier: BSD-2-Clause
//
// One call is executed instruction by instruction (ptrace(2)) up to some instruction. The process stops
// there, and the traffic of all others has to go on. Then it is killed, or it continues as if nothing had
// happened.
#include <gtest/gtest.h>
#include <infiniband/verbs.h>

#include <algorithm>

#include "round.h"

namespace verbena::crash {
namespace {

constexpr int kRounds = 40;   // instructions of each call to stop at, spread evenly from a random one on
constexpr int kEnough = 150;  // messages that lead more than twice round the target's CQ
constexpr int kTooMany = 200'000;

class SingleStep : public testing::Test {
 protected:
  void SetUp() override {
#if !defined(__x86_64__)
    GTEST_SKIP() << "the marks are written for x86-64";
#endif
  }

  // Lets `role` run `command` up to its `count`th instruction. Returns how many were executed: fewer when the
  // call has ended.
  static int step(RoleProcess& role, const std::string& command, int count) {
    role.send_line(command);
    role.await_mark();
    for (int i = 0; i < count; ++i)
      if (!role.single_step()) return i;
    return count;
  }

  // Calls round(k) for instructions k spread over the call, until it returns false: the call was shorter.
  template <typename Round>
  static void sample(int length, Round&& round) {
    const int stride = std::max(1, length / rounds(kRounds));
    const int first = static_cast<int>(random_number() % static_cast<uint64_t>(stride));
    for (int k = first; k <= length; k += stride) {
      try {
        round(k);
      } catch (const Failure& failure) {
        throw Failure("instruction " + std::to_string(k) + " of " + std::to_string(length) + ": " +
                      failure.what());
      }
    }
  }

  // Victim and target connected, the target's receives posted, the neighbour at work; the victim does nothing
  // by itself. Three messages have been sent, so that everything is warm.
  static void prepare(Ensemble& all, Kind kind) {
    all.fill_up();
    all.expect_only_the_living();
    all.start_side({});
    all.main = {all.victim.get(), all.target.get(), 0, 0, kind};
    all.main.connect({});
    all.victim->call("freeze");
    all.main.start();
    all.neighbour->call("freeze");  // a process that is stepped never catches up with one that runs
    all.victim->call("post 0 3");
    await([&] { return all.victim->call("poll"), all.main.sent().acknowledged.load() == 3; },
          "three messages");
  }

  static int length_of(Ensemble& all, Kind kind, bool of_target, const std::string& command) {
    prepare(all, kind);
    if (of_target) all.target->call("freeze");
    RoleProcess& role = of_target ? *all.target : *all.victim;
    role.seize();
    const int length = step(role, command, kTooMany);
    require(length < kTooMany, command + " does not end");
    role.kill_and_reap();
    (of_target ? all.target : all.victim) = nullptr;
    all.end_round();
    return length;
  }

  static void kill_sender_at(Kind kind, bool with_channels);
  static void go_on_sender_at(Kind kind, bool with_channels);
  static void take_down_another_at(Kind kind);
  static void target_at(const std::string& command, bool dies);
};

// The victim dies in the middle of ibv_post_send, after the neighbour has gone round the target's CQ.
void SingleStep::kill_sender_at(Kind kind, bool with_channels) {
  Ensemble all(with_channels);
  const std::string command = "step send 0";
  sample(length_of(all, kind, false, command), [&](int k) {
    prepare(all, kind);
    all.victim->seize();
    step(*all.victim, command, k);
    all.neighbour->call("thaw");
    all.side.await_progress(kEnough, "while the sender stands in the middle of a request");
    all.victim->kill_and_reap();
    all.side.await_progress(3, "after the death of the sender");
    expect_intact(all.main);
    expect_target_can_end(all.main, {});
    all.victim = nullptr;
    all.end_round();
  });
  all.finish();
}

void SingleStep::go_on_sender_at(Kind kind, bool with_channels) {
  Ensemble all(with_channels);
  const std::string command = "step send 0";
  sample(length_of(all, kind, false, command), [&](int k) {
    prepare(all, kind);
    all.victim->seize();
    const bool ended = step(*all.victim, command, k) < k;
    all.neighbour->call("thaw");
    all.side.await_progress(kEnough, "while the sender stands in the middle of a request");
    all.victim->release();
    if (!ended) {
      all.victim->await_mark();
      all.victim->release();
    }
    all.victim->call("thaw");
    all.main.await_progress(20, "after the pause");
    all.victim->call("pause 0");
    await([&] { return all.main.sent().posted.load() == all.main.sent().acknowledged.load(); },
          "the last messages");
    expect_intact(all.main);
    all.victim->kill_and_reap();
    all.victim = nullptr;
    all.end_round();
  });
  all.finish();
}

// A queue pair that is not connected to the stopped process is destroyed at once.
void SingleStep::take_down_another_at(Kind kind) {
  Ensemble all(false);
  const std::string command = "step send 0";
  sample(length_of(all, kind, false, command), [&](int k) {
    prepare(all, kind);
    all.victim->seize();
    step(*all.victim, command, k);
    const int64_t asked = now_ns();
    all.target->call("drop 1");
    require(now_ns() - asked < 1'000'000'000, "ibv_destroy_qp waited for a process that it does not concern");
    all.victim->kill_and_reap();
    expect_intact(all.main);
    all.victim = nullptr;
    all.neighbour->call("drop 1");
    all.side = {};
    all.end_round();
  });
  all.finish();
}

// The target is stopped in the middle of `command` while the victim sends, writes, reads and adds.
void SingleStep::target_at(const std::string& command, bool dies) {
  Ensemble all(false);
  sample(length_of(all, Kind::kMixed, true, command), [&](int k) {
    prepare(all, Kind::kMixed);
    all.target->call("freeze");
    all.victim->call("post 0 1");  // something to be polled
    all.target->seize();
    const bool ended = step(*all.target, command, k) < k;
    all.victim->call("thaw");
    all.neighbour->call("thaw");
    // The posted receives allow that many: four receives' worth and the requests between them.
    await([&] { return all.main.sent().acknowledged.load() >= 12; },
          "twelve messages while the receiver stands in the middle of " + command);
    if (!dies) {
      all.target->release();
      if (!ended) {
        all.target->await_mark();
        all.target->release();
      }
      all.target->call("thaw");
      all.main.await_progress(20, "after the pause");
      all.victim->call("pause 0");
      await([&] { return all.main.sent().posted.load() == all.main.sent().acknowledged.load(); },
            "the last messages");
      expect_intact(all.main);
    }
    all.target->kill_and_reap();
    const int64_t died = now_ns();
    expect_retry_exceeded(all.side, {}, died);
    if (dies) expect_retry_exceeded(all.main, {}, died);
    all.target = nullptr;
    all.end_round();
  });
  all.finish();
}

TEST_F(SingleStep, SenderKilledInSmallSend) { kill_sender_at(Kind::kSmallSend, false); }
TEST_F(SingleStep, SenderKilledInBigSend) { kill_sender_at(Kind::kBigSend, false); }
TEST_F(SingleStep, SenderKilledInFetchAndAdd) { kill_sender_at(Kind::kFetchAndAdd, false); }
TEST_F(SingleStep, SenderStoppedInSmallSend) { go_on_sender_at(Kind::kSmallSend, false); }
TEST_F(SingleStep, SenderStoppedInWriteWithImmediate) { go_on_sender_at(Kind::kWriteWithImmediate, false); }
TEST_F(SingleStep, SenderKilledInSendThatRaisesAnEvent) { kill_sender_at(Kind::kSmallSend, true); }
TEST_F(SingleStep, SenderStoppedInSendThatRaisesAnEvent) { go_on_sender_at(Kind::kSmallSend, true); }
TEST_F(SingleStep, SenderStoppedWhileOthersAreTakenDown) { take_down_another_at(Kind::kSmallSend); }
TEST_F(SingleStep, ReceiverKilledInPostRecv) { target_at("step receive 0", true); }
TEST_F(SingleStep, ReceiverStoppedInPostRecv) { target_at("step receive 0", false); }
TEST_F(SingleStep, ReceiverKilledInPollCq) { target_at("step poll", true); }
TEST_F(SingleStep, ReceiverStoppedInPollCq) { target_at("step poll", false); }

}  // namespace
}  // namespace verbena::crash
