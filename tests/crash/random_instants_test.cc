// SPDX-License-Identifier: BSD-2-Clause
//
// SIGKILL, exec and SIGSTOP of the sender, of the receiver and of both, at random instants of their traffic.
#include <gtest/gtest.h>
#include <infiniband/verbs.h>

#include <poll.h>

#include <algorithm>
#include <tuple>

#include "round.h"

namespace verbena::crash {
namespace {

enum class Blow { kKill, kExec, kStop };
enum class Whom { kSender, kReceiver, kBoth };

constexpr const char* kBlowNames[] = {"Kill", "Exec", "Stop"};
constexpr const char* kWhomNames[] = {"Sender", "Receiver", "Both"};

constexpr int64_t kLongestTraffic = 3'000'000;  // nanoseconds until the blow
constexpr int kStopMilliseconds = 50;           // at least, and until the others have been seen going on
constexpr int kRounds = 34;  // times three targets, times polling and events: about 200 instants of each blow

Kind kind_of_round(int round) { return static_cast<Kind>(static_cast<uint32_t>(round) % kKinds); }

class RandomInstants : public testing::TestWithParam<std::tuple<Blow, Whom, bool>> {
 protected:
  bool hits_sender() const { return std::get<1>(GetParam()) != Whom::kReceiver; }
  bool hits_receiver() const { return std::get<1>(GetParam()) != Whom::kSender; }
  bool with_channels() const { return std::get<2>(GetParam()); }

  // Calls `act` for the roles that are hit.
  static void for_each_hit(const Ensemble& all, bool sender, bool receiver,
                           const std::function<void(RoleProcess&)>& act) {
    if (sender) act(*all.victim);
    if (receiver) act(*all.target);
  }

  void lethal_round(Ensemble& all, Blow blow, int round);
  void stop_round(Ensemble& all, int round);
};

// After the blow the process is gone, or another program runs in it, whose memory must not change.
void RandomInstants::lethal_round(Ensemble& all, Blow blow, int round) {
  const Times times;
  all.start_round(kind_of_round(round), times);
  all.expect_only_the_living();
  std::unique_ptr<RoleProcess> canaries[2];
  if (blow == Blow::kExec)
    for_each_hit(all, hits_sender(), hits_receiver(), [](RoleProcess& role) { role.call("await-exec"); });
  busy_wait(static_cast<int64_t>(random_number() % kLongestTraffic));
  for_each_hit(all, hits_sender(), hits_receiver(), [&](RoleProcess& role) {
    if (blow == Blow::kKill)
      role.signal(SIGKILL);
    else
      role.become_canary();
  });
  const int64_t died = now_ns();
  if (blow == Blow::kKill)
    for_each_hit(all, hits_sender(), hits_receiver(), [](RoleProcess& role) { role.kill_and_reap(); });
  all.bystander.await_progress(3, "after the blow");

  if (!hits_receiver()) {
    all.side.await_progress(3, "after the blow to the sender");
    expect_intact(all.main);
    expect_target_can_end(all.main, times);
  } else {
    expect_retry_exceeded(all.side, times, died);
    if (!hits_sender()) expect_retry_exceeded(all.main, times, died);
  }
  if (hits_sender()) canaries[0] = std::move(all.victim);
  if (hits_receiver()) canaries[1] = std::move(all.target);
  all.end_round();
  all.bystander.await_progress(1, "at the end of the round");
  if (blow == Blow::kExec)
    for (auto& canary : canaries)
      if (canary) canary->call("look");
}

void RandomInstants::stop_round(Ensemble& all, int round) {
  all.start_round(kind_of_round(round), Times{});
  busy_wait(static_cast<int64_t>(random_number() % kLongestTraffic));
  for_each_hit(all, hits_sender(), hits_receiver(), [](RoleProcess& role) { role.stop(); });
  const int64_t stopped = now_ns();
  all.bystander.await_progress(3, "while somebody is stopped");
  if (!hits_receiver()) all.side.await_progress(3, "while the sender is stopped");
  // One-sided requests need no processor time at the target.
  const Kind kind = all.main.kind;
  if (!hits_sender() && (kind == Kind::kWrite || kind == Kind::kRead || kind == Kind::kFetchAndAdd))
    all.main.await_progress(3, "while the receiver is stopped");
  poll(nullptr, 0, std::max(0, kStopMilliseconds - static_cast<int>((now_ns() - stopped) / 1'000'000)));
  for_each_hit(all, hits_sender(), hits_receiver(), [](RoleProcess& role) { role.go_on(); });
  all.main.await_progress(20, "after the pause");
  all.side.await_progress(2, "after the pause");
  require(all.main.sent().first_failure.load() == 0 && all.side.sent().first_failure.load() == 0,
          "a request failed because somebody was stopped");
  all.victim->call("pause 0");
  await([&] { return all.main.sent().posted.load() == all.main.sent().acknowledged.load(); },
        "the last messages");
  expect_intact(all.main);
  all.end_round();
}

TEST_P(RandomInstants, SurvivorsGoOn) {
  const Blow blow = std::get<0>(GetParam());
  Ensemble all(with_channels());
  const int count = rounds(kRounds);
  for (int round = 0; round < count; ++round) {
    try {
      if (blow == Blow::kStop)
        stop_round(all, round);
      else
        lethal_round(all, blow, round);
    } catch (const Failure& failure) {
      throw Failure("round " + std::to_string(round) + " (" +
                    kKindNames[static_cast<uint32_t>(kind_of_round(round))] + "): " + failure.what());
    }
  }
  all.finish();
}

INSTANTIATE_TEST_SUITE_P(Crash, RandomInstants,
                         testing::Combine(testing::Values(Blow::kKill, Blow::kExec, Blow::kStop),
                                          testing::Values(Whom::kSender, Whom::kReceiver, Whom::kBoth),
                                          testing::Bool()),
                         [](const auto& chosen) {
                           return std::string(kBlowNames[static_cast<int>(std::get<0>(chosen.param))]) +
                                  kWhomNames[static_cast<int>(std::get<1>(chosen.param))] +
                                  (std::get<2>(chosen.param) ? "WithEvents" : "Polling");
                         });

}  // namespace
}  // namespace verbena::crash
