// SPDX-License-Identifier: BSD-2-Clause
#include "faults/injection.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

namespace verbena::faults {
namespace {

using Kind = Verdict::Kind;

constexpr int64_t kBegin = 1'000'000;
constexpr uint32_t kLost = 0xb5;
constexpr uint64_t kTimeout = 1'000;

RequestFacts request(uint64_t number, uint32_t qp = 0) {
  RequestFacts facts;
  facts.qp = qp;
  facts.number = number;
  facts.timeout_ns = kTimeout;
  facts.retry_cnt = 2;
  facts.rnr_retry = 1;
  facts.takes_receive = true;
  return facts;
}

Rule rule(Fault what) {
  Rule rule;
  rule.what = what;
  return rule;
}

struct Injected {
  Plan plan;
  Injection injection;
  explicit Injected(const Plan& given) : plan(given), injection(given, kBegin, kLost) {}
  Kind at(const RequestFacts& facts, int64_t now) { return injection.on_request(facts, now).kind; }
};

Plan plan_of(const Rule& rule, bool only_legal = false) {
  Plan plan;
  plan.only_legal = only_legal;
  plan.rules = {rule};
  return plan;
}

TEST(Injection, LetsRequestsGoWithoutRules) {
  Injected injected{Plan{}};
  EXPECT_EQ(injected.at(request(1), kBegin), Kind::kGo);
}

TEST(Injection, HoldsADelayedRequestForItsTimeAndThenLetsItGo) {
  Rule delay = rule(Fault::kDelay);
  delay.least_ns = delay.most_ns = 500;
  Injected injected(plan_of(delay));
  const Verdict held = injected.injection.on_request(request(1), kBegin);
  EXPECT_EQ(held.kind, Kind::kHold);
  EXPECT_EQ(held.until, kBegin + 500);
  EXPECT_FALSE(held.was_lost);
  EXPECT_EQ(injected.at(request(1), kBegin + 499), Kind::kHold);
  EXPECT_EQ(injected.at(request(1), kBegin + 500), Kind::kGo);
  EXPECT_EQ(injected.at(request(1), kBegin + 501), Kind::kGo);  // and is not delayed again
  EXPECT_EQ(injected.at(request(2), kBegin + 502), Kind::kHold);
}

TEST(Injection, SendsALostRequestAgainAfterItsTimeout) {
  Rule lose = rule(Fault::kLose);
  lose.nth = 1;
  Injected injected(plan_of(lose));
  const Verdict lost = injected.injection.on_request(request(1), kBegin);
  EXPECT_EQ(lost.kind, Kind::kHold);
  EXPECT_TRUE(lost.was_lost);
  EXPECT_EQ(lost.until, kBegin + static_cast<int64_t>(kTimeout));
  EXPECT_EQ(injected.at(request(1), lost.until), Kind::kGo);
}

TEST(Injection, FailsARequestThatIsLostMoreOftenThanRetryCnt) {
  Injected injected(plan_of(rule(Fault::kLose)));
  int64_t now = kBegin;
  for (int i = 0; i < 2; ++i, now += kTimeout) EXPECT_EQ(injected.at(request(1), now), Kind::kHold) << i;
  const Verdict failed = injected.injection.on_request(request(1), now);
  EXPECT_EQ(failed.kind, Kind::kFail);
  EXPECT_EQ(failed.vendor_err, kLost);
  EXPECT_EQ(injected.at(request(1), now + 1), Kind::kFail);  // whenever it comes to the head of the queue
}

TEST(Injection, HoldsARequestWhoseAcknowledgementIsLostAndThenCompletesIt) {
  Rule lose = rule(Fault::kLoseAck);
  lose.times = 2;
  Injected injected(plan_of(lose));
  EXPECT_EQ(injected.at(request(1), kBegin), Kind::kGo);
  EXPECT_TRUE(injected.injection.loses_ack(request(1), kBegin));
  const int64_t first = kBegin + static_cast<int64_t>(kTimeout);
  EXPECT_EQ(injected.at(request(1), first - 1), Kind::kHold);
  const Verdict again =
      injected.injection.on_request(request(1), first);  // of the repetition, it is lost again
  EXPECT_EQ(again.kind, Kind::kHold);
  EXPECT_TRUE(again.was_lost);
  EXPECT_EQ(again.until, first + static_cast<int64_t>(kTimeout));
  EXPECT_EQ(injected.at(request(1), again.until), Kind::kDrop);
  EXPECT_EQ(injected.at(request(2), again.until), Kind::kGo);
  EXPECT_FALSE(injected.injection.loses_ack(request(2), again.until));
}

TEST(Injection, FailsARequestWhoseAcknowledgementIsLostMoreOftenThanRetryCnt) {
  Injected injected(plan_of(rule(Fault::kLoseAck)));
  int64_t now = kBegin;
  EXPECT_EQ(injected.at(request(1), now), Kind::kGo);
  EXPECT_TRUE(injected.injection.loses_ack(request(1), now));
  EXPECT_EQ(injected.at(request(1), now += kTimeout), Kind::kHold);
  const Verdict failed = injected.injection.on_request(request(1), now += kTimeout);
  EXPECT_EQ(failed.kind, Kind::kFail);
  EXPECT_EQ(failed.vendor_err, kLost);
}

TEST(Injection, IsLegalAndLosesNoAcknowledgementMoreOftenThanRetryCnt) {
  Injected injected(plan_of(rule(Fault::kLoseAck), true));
  int64_t now = kBegin;
  EXPECT_EQ(injected.at(request(1), now), Kind::kGo);
  EXPECT_TRUE(injected.injection.loses_ack(request(1), now));
  EXPECT_EQ(injected.at(request(1), now += kTimeout), Kind::kHold);
  EXPECT_EQ(injected.at(request(1), now += kTimeout), Kind::kDrop);
  RequestFacts datagram = request(2);
  datagram.is_acknowledged = false;
  EXPECT_EQ(injected.at(datagram, now), Kind::kGo);
  EXPECT_FALSE(injected.injection.loses_ack(datagram, now));
}

TEST(Injection, HoldsAnAcknowledgementOfAnotherNodeUntilTheNextOneComes) {
  Rule lose = rule(Fault::kLoseAck);
  lose.times = 2;
  Injected injected(plan_of(lose));
  int64_t now = kBegin;
  const auto at = [&](uint64_t number) {
    return injected.injection.on_acknowledgement(request(number), now);
  };
  const Verdict lost = at(1);
  EXPECT_EQ(lost.kind, Kind::kHold);
  EXPECT_TRUE(lost.was_lost);
  EXPECT_EQ(lost.until, now + static_cast<int64_t>(kTimeout));
  ++now;
  EXPECT_FALSE(at(1).was_lost);  // asked again, it is lost once
  now = lost.until;
  EXPECT_TRUE(at(1).was_lost);
  now += kTimeout;
  EXPECT_EQ(at(1).kind, Kind::kGo);
  EXPECT_EQ(at(2).kind, Kind::kGo);
}

TEST(Injection, FailsARequestWhoseAcknowledgementsOfAnotherNodeAreAllLost) {
  Injected injected(plan_of(rule(Fault::kLoseAck)));
  int64_t now = kBegin;
  for (int i = 0; i < 2; ++i, now += kTimeout)
    EXPECT_EQ(injected.injection.on_acknowledgement(request(1), now).kind, Kind::kHold) << i;
  const Verdict failed = injected.injection.on_acknowledgement(request(1), now);
  EXPECT_EQ(failed.kind, Kind::kFail);
  EXPECT_EQ(failed.vendor_err, kLost);
  Injected legal(plan_of(rule(Fault::kLoseAck), true));
  now = kBegin;
  for (int i = 0; i < 2; ++i, now += kTimeout)
    EXPECT_EQ(legal.injection.on_acknowledgement(request(1), now).kind, Kind::kHold) << i;
  EXPECT_EQ(legal.injection.on_acknowledgement(request(1), now).kind, Kind::kGo);
}

TEST(Injection, LosesRepeatsAndDelaysPacketsOfAKind) {
  using Packet = PacketVerdict::Kind;
  Rule lose = rule(Fault::kLosePacket), repeat = rule(Fault::kRepeatPacket),
       delay = rule(Fault::kDelayPacket);
  lose.opcode = static_cast<uint32_t>(PacketKind::kMad);
  repeat.opcode = static_cast<uint32_t>(PacketKind::kResponse);
  repeat.nth = 2;
  delay.least_ns = delay.most_ns = 700;
  Plan plan = plan_of(lose);
  plan.rules.push_back(repeat);
  plan.rules.push_back(delay);
  Injected injected(plan);
  const auto next = [&](PacketKind kind) { return injected.injection.on_packet(kind, kBegin + 5); };
  EXPECT_EQ(next(PacketKind::kMad).kind, Packet::kLose);
  EXPECT_EQ(next(PacketKind::kResponse).kind, Packet::kDelay);
  EXPECT_EQ(next(PacketKind::kResponse).kind, Packet::kRepeat);
  const PacketVerdict late = next(PacketKind::kRequest);
  EXPECT_EQ(late.kind, Packet::kDelay);
  EXPECT_EQ(late.until, kBegin + 705);
  EXPECT_EQ(Injected(plan_of(delay)).injection.on_packet(PacketKind::kMad, kBegin).kind,
            Packet::kGo);  // only if named
}

TEST(Injection, ShufflesTheBytesOfOneOpcodeAndDelaysEventsOfOneCq) {
  Rule shuffle = rule(Fault::kShuffle);
  shuffle.opcode = 1;
  Injected injected(plan_of(shuffle));
  EXPECT_EQ(injected.injection.order_of_bytes(0, 2, 0, kBegin), 0u);
  const uint64_t order = injected.injection.order_of_bytes(0, 1, 0, kBegin);
  EXPECT_NE(order, 0u);
  EXPECT_NE(injected.injection.order_of_bytes(0, 1, 4096, kBegin), order);
  EXPECT_EQ(Injected(plan_of(shuffle)).injection.order_of_bytes(0, 1, 0, kBegin + 7), order);
  Rule late = rule(Fault::kLate);
  late.object = 3;
  late.least_ns = late.most_ns = 50;
  Injected delaying(plan_of(late));
  EXPECT_EQ(delaying.injection.event_delay(2, kBegin), 0u);
  EXPECT_EQ(delaying.injection.event_delay(3, kBegin), 50u);
}

TEST(Injection, DropsALostMessageOfAnUnacknowledgedService) {
  Injected injected(plan_of(rule(Fault::kLose)));
  RequestFacts facts = request(1);
  facts.is_acknowledged = false;
  EXPECT_EQ(injected.at(facts, kBegin), Kind::kDrop);
}

TEST(Injection, IsLegalAndLosesNoRequestMoreOftenThanRetryCnt) {
  Injected injected(plan_of(rule(Fault::kLose), true));
  int64_t now = kBegin;
  for (int i = 0; i < 2; ++i, now += kTimeout) EXPECT_EQ(injected.at(request(1), now), Kind::kHold) << i;
  EXPECT_EQ(injected.at(request(1), now), Kind::kGo);
  RequestFacts endless = request(2);
  endless.timeout_ns = 0;
  EXPECT_EQ(injected.at(endless, now), Kind::kGo);  // nobody would send it again
  RequestFacts datagram = request(3);
  datagram.is_acknowledged = false;
  EXPECT_EQ(injected.at(datagram, now), Kind::kGo);
}

TEST(Injection, IsLegalAndRefusesReceptionOnlyAsOftenAsRnrRetryAllows) {
  Injected injected(plan_of(rule(Fault::kRnr), true));
  EXPECT_EQ(injected.at(request(1), kBegin), Kind::kRnr);
  EXPECT_EQ(injected.at(request(1), kBegin + 1), Kind::kGo);
  RequestFacts write = request(2);
  write.takes_receive = false;
  EXPECT_EQ(injected.at(write, kBegin + 2), Kind::kGo);
}

TEST(Injection, FailsTheNthRequestOfOneQueuePair) {
  Rule fail = rule(Fault::kFail);
  fail.object = 4;
  fail.nth = 2;
  fail.vendor_err = 0x93;
  Injected injected(plan_of(fail));
  EXPECT_EQ(injected.at(request(1, 3), kBegin), Kind::kGo);
  EXPECT_EQ(injected.at(request(1, 4), kBegin), Kind::kGo);
  EXPECT_EQ(injected.at(request(2, 3), kBegin), Kind::kGo);
  const Verdict failed = injected.injection.on_request(request(2, 4), kBegin);
  EXPECT_EQ(failed.kind, Kind::kFail);
  EXPECT_EQ(failed.vendor_err, 0x93u);
  EXPECT_EQ(injected.at(request(3, 4), kBegin), Kind::kGo);
}

TEST(Injection, TakesOnlyTheOpcodeOfTheRule) {
  Rule fail = rule(Fault::kFail);
  fail.opcode = 5;
  fail.vendor_err = 1;
  Injected injected(plan_of(fail));
  EXPECT_EQ(injected.at(request(1), kBegin), Kind::kGo);
  RequestFacts facts = request(2);
  facts.opcode = 5;
  EXPECT_EQ(injected.at(facts, kBegin), Kind::kFail);
}

TEST(Injection, KeepsToTimesAndToTheTimeOfTheRule) {
  Rule rnr = rule(Fault::kRnr);
  rnr.times = 1;
  rnr.from_ns = 100;
  rnr.until_ns = 200;
  Injected injected(plan_of(rnr));
  EXPECT_EQ(injected.at(request(1), kBegin + 99), Kind::kGo);
  EXPECT_EQ(injected.at(request(2), kBegin + 100), Kind::kRnr);
  EXPECT_EQ(injected.at(request(3), kBegin + 101), Kind::kGo);
  Injected late(plan_of(rnr));
  EXPECT_EQ(late.at(request(1), kBegin + 200), Kind::kGo);
}

TEST(Injection, DrawsWhatTheSeedSaysWhateverTheTime) {
  Rule rnr = rule(Fault::kRnr);
  rnr.probability = 0.3;
  Plan plan = plan_of(rnr);
  plan.seed = 11;
  Injected one(plan), other(plan);
  size_t happened = 0;
  for (uint64_t n = 0; n < 1000; ++n) {
    const Kind kind = one.at(request(n), kBegin + static_cast<int64_t>(n));
    EXPECT_EQ(other.at(request(n), kBegin + 7 * static_cast<int64_t>(n)), kind);
    happened += kind == Kind::kRnr ? 1 : 0;
  }
  EXPECT_NEAR(static_cast<double>(happened), 300, 60);
}

TEST(Injection, GivesALinkTheTimeOfItsBytes) {
  Plan plan;
  plan.link = {8'000'000'000, 100};  // a byte in a nanosecond
  Injected injected(plan);
  RequestFacts facts = request(1);
  facts.length = 1000;
  EXPECT_EQ(injected.injection.on_request(facts, kBegin).until, kBegin + 1100);
  EXPECT_EQ(injected.at(facts, kBegin + 1100), Kind::kGo);
  // The next one waited behind it: it has been on the link, and its latency is not added.
  facts.number = 2;
  EXPECT_EQ(injected.injection.on_request(facts, kBegin + 1101).until, kBegin + 2100);
  EXPECT_EQ(injected.at(facts, kBegin + 2100), Kind::kGo);
  // This one came later.
  facts.number = 3;
  EXPECT_EQ(injected.injection.on_request(facts, kBegin + 50'000).until, kBegin + 51'100);
}

TEST(Injection, HoldsPollsOfOneCq) {
  Rule hold = rule(Fault::kHold);
  hold.object = 2;
  hold.nth = 1;
  hold.least_ns = hold.most_ns = 50;
  Injected injected(plan_of(hold));
  EXPECT_FALSE(injected.injection.holds_poll(1, kBegin));
  EXPECT_TRUE(injected.injection.holds_poll(2, kBegin));
  EXPECT_TRUE(injected.injection.holds_poll(2, kBegin + 49));
  EXPECT_FALSE(injected.injection.holds_poll(2, kBegin + 50));
}

TEST(Injection, HoldsEachPollButTheOneAfterAHold) {
  Rule hold = rule(Fault::kHold);
  hold.least_ns = hold.most_ns = 50;
  Injected injected(plan_of(hold));
  for (int64_t now = kBegin; now < kBegin + 1000; now += 100) {
    EXPECT_TRUE(injected.injection.holds_poll(0, now));
    EXPECT_FALSE(injected.injection.holds_poll(0, now + 60));
  }
}

TEST(Injection, RefusesTheNthObjectOfAKindAndWakesWhoArms) {
  Rule refuse = rule(Fault::kRefuse);
  refuse.object = 1;
  refuse.nth = 2;
  Injected injected(plan_of(refuse));
  EXPECT_FALSE(injected.injection.refuses(1, kBegin));
  EXPECT_FALSE(injected.injection.refuses(0, kBegin));
  EXPECT_TRUE(injected.injection.refuses(1, kBegin));
  EXPECT_FALSE(injected.injection.refuses(1, kBegin));
  EXPECT_FALSE(injected.injection.wakes(0, kBegin));
  EXPECT_TRUE(Injected(plan_of(rule(Fault::kWake))).injection.wakes(0, kBegin));
}

TEST(Injection, ForgetsTheQueuePairThatHadTheIndexBefore) {
  Rule fail = rule(Fault::kFail);
  fail.times = 1;
  fail.vendor_err = 0x93;
  Injected injected(plan_of(fail));
  EXPECT_EQ(injected.at(request(0), kBegin), Kind::kFail);
  RequestFacts next = request(0);
  next.incarnation = 1;
  EXPECT_EQ(injected.at(next, kBegin), Kind::kGo);
}

TEST(Injection, DoesNotJudgeTwiceWhatIsSentAgain) {
  Rule fail = rule(Fault::kFail);
  fail.nth = 2;
  fail.vendor_err = 0x93;
  Injected injected(plan_of(fail));
  EXPECT_EQ(injected.at(request(1), kBegin), Kind::kGo);
  EXPECT_EQ(injected.at(request(2), kBegin), Kind::kFail);  // request 1 is still under way
  EXPECT_EQ(injected.at(request(1), kBegin), Kind::kGo);    // and is sent again
  EXPECT_EQ(injected.at(request(2), kBegin), Kind::kFail);
}

TEST(Injection, EndsTheProcess) {
  const pid_t pid = fork();
  if (pid == 0) {
    Injected(plan_of(rule(Fault::kDie))).at(request(1), kBegin);
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(pid, &status, 0), pid);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

}  // namespace
}  // namespace verbena::faults
