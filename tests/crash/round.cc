// SPDX-License-Identifier: BSD-2-Clause
#include "round.h"

#include <infiniband/verbs.h>

#include <sstream>

namespace verbena::crash {
namespace {

// Room for what two peers can have under way, and little more: an entry that a stopped peer has claimed must
// not keep the others from going round the ring.
constexpr int kCqe = 64;

// Time that a loaded machine may add.
constexpr int64_t kSlack = 3'000'000'000;

constexpr uint32_t kBystanderPace =
    200;  // microseconds; they are there to make progress, not to load the machine
constexpr uint32_t kNeighbourPace = 50;

std::string text(uint64_t number) { return std::to_string(number); }

}  // namespace

void Link::connect(const Times& times) {
  const std::string there = to->call("qp " + text(static_cast<uint64_t>(to_flow)));
  const std::string here = from->call("qp " + text(static_cast<uint64_t>(from_flow)));
  std::istringstream(there) >> to_qpn;
  std::istringstream(here) >> from_qpn;
  const std::string tail = " " + std::to_string(times.timeout) + " " + std::to_string(times.retry_count);
  to->call("connect " + std::to_string(to_flow) + " " + here + tail);
  from->call("connect " + std::to_string(from_flow) + " " + there + tail);
}

void Link::start_target(uint64_t salt) {
  to->call("start " + std::to_string(to_flow) + " " + text(static_cast<uint32_t>(kind)) + " 0 " + text(salt) +
           " 0 0");
}

void Link::start_initiator(uint64_t salt, uint32_t pace_us, uint64_t limit) {
  from->call("start " + std::to_string(from_flow) + " " + text(static_cast<uint32_t>(kind)) + " 1 " +
             text(salt) + " " + text(pace_us) + " " + text(limit));
}

void Link::start(uint32_t pace_us, uint64_t limit) {
  const uint64_t salt = random_number();
  start_target(salt);
  start_initiator(salt, pace_us, limit);
}

void Link::await_progress(uint64_t messages, const std::string& when) const {
  const uint64_t before = sent().acknowledged.load();
  await([&] { return sent().acknowledged.load() >= before + messages; },
        from->name() + " to " + to->name() + ": " + text(messages) + " more messages of " +
            kKindNames[static_cast<uint32_t>(kind)] + " " + when);
}

void expect_retry_exceeded(const Link& link, const Times& times, int64_t died_ns) {
  FlowReport& sent = link.sent();
  const std::string who = link.from->name() + " to " + link.to->name();
  await([&] { return sent.first_failure.load() != 0; }, who + ": a failure");
  require(sent.first_failure.load() == IBV_WC_RETRY_EXC_ERR,
          who + ": " + ibv_wc_status_str(static_cast<ibv_wc_status>(sent.first_failure.load())));
  const int64_t waited = sent.failed_ns.load() - sent.first_post_ns.load();
  require(waited >= times.failure_ns(), who + ": failed after " + std::to_string(waited) + " ns already");
  const int64_t since_death = sent.failed_ns.load() - died_ns;
  require(since_death <= times.failure_ns() + kSlack,
          who + ": failed " + std::to_string(since_death) + " ns late");
  // In ERR, requests are taken and flushed.
  link.from->call("post " + std::to_string(link.from_flow) + " 1");
  await([&] { return sent.flushed_sends.load() == sent.posted.load() - sent.acknowledged.load() - 1; },
        who + ": the rest is flushed");
  require(link.from->call_for_number("state " + std::to_string(link.from_flow)) == IBV_QPS_ERR,
          who + ": not in ERR");
}

void expect_intact(const Link& link) {
  link.to->call("verify " + std::to_string(link.to_flow) + " " + text(link.sent().acknowledged.load()) + " " +
                text(link.sent().posted.load()));
}

void expect_target_can_end(const Link& link, const Times& times) {
  FlowReport& mine = link.arrived();
  const std::string who = link.to->name() + " back to " + link.from->name();
  const int64_t turned = now_ns();
  link.to->call("turn " + std::to_string(link.to_flow));
  await([&] { return mine.first_failure.load() != 0; }, who + ": a failure");
  require(mine.first_failure.load() == IBV_WC_RETRY_EXC_ERR, who + ": another failure");
  const int64_t waited = mine.failed_ns.load() - mine.first_post_ns.load();
  require(waited >= times.failure_ns() && mine.failed_ns.load() - turned <= times.failure_ns() + kSlack,
          who + ": failed after " + std::to_string(waited) + " ns");
  await([&] { return mine.flushed_receives.load() == mine.receives_posted.load() - mine.received.load(); },
        who + ": all receives are flushed");
}

Ensemble::Ensemble(bool channels) : with_channels(channels) {
  neighbour = make("neighbour");
  left = make("left");
  right = make("right");
  bystander = {left.get(), right.get(), 0, 0};
  bystander.connect({14, 7});
  bystander.start(kBystanderPace);
}

std::unique_ptr<RoleProcess> Ensemble::make(const char* name) {
  return std::make_unique<RoleProcess>(name, kCqe, with_channels);
}

void Ensemble::fill_up() {
  if (!target) target = make("target");
  if (!victim) victim = make("victim");
}

void Ensemble::start_side(const Times& times) {
  if (side.to != nullptr) return;
  side = {neighbour.get(), target.get(), 1, 1};
  side.connect(times);
  side.start(kNeighbourPace);
}

void Ensemble::start_round(Kind kind, const Times& times) {
  fill_up();
  start_side(times);
  main = {victim.get(), target.get(), 0, 0, kind};
  main.connect(times);
  main.start();
  for (const uint32_t qpn : {main.from_qpn, main.to_qpn})
    require(node.has_qpn(qpn), "the directory lacks QP number " + text(qpn));
  main.await_progress(20, "at the beginning");
  side.await_progress(2, "at the beginning");
}

void Ensemble::end_round() {
  for (Link* link : {&main, &side}) {
    if (link->from == nullptr) continue;
    const bool from_lives = link->from == victim.get() || link->from == neighbour.get();
    const bool to_lives = link->to == target.get();
    if (from_lives && to_lives && link == &side) continue;
    // The survivor drops its queue pair; the other end has died.
    for (const uint32_t qpn : {link->from_qpn, link->to_qpn})
      if (qpn != 0) gone.push_back(qpn);
    if (from_lives) link->from->call("drop " + std::to_string(link->from_flow));
    if (to_lives) link->to->call("drop " + std::to_string(link->to_flow));
    *link = {};
  }
  // Segments of dead processes are no longer mapped, only the neighbour's own and that of each peer: once no
  // thread looks at the dead one any more. The service thread may do so for a moment.
  const auto await_segments = [](RoleProcess& role, uint64_t count, const std::string& who) {
    await([&] { return role.call_for_number("segments") == count; }, who + " maps no segment of nobody");
  };
  const uint64_t with_side = side.from != nullptr ? 2 : 1;
  await_segments(*neighbour, with_side, "the neighbour");
  if (target) await_segments(*target, with_side, "the target");
  if (victim) await_segments(*victim, 1, "the victim");
  require(left->call_for_number("segments") == 2, "a bystander maps more than two segments");
}

void Ensemble::expect_only_the_living() {
  std::set<pid_t> living;
  for (const auto* role : {&victim, &target, &neighbour, &left, &right})
    if (*role) living.insert((*role)->pid());
  const std::string problem = node.only(living);
  require(problem.empty(), problem);
  expect_no_numbers_left();
}

void Ensemble::expect_no_numbers_left() {
  for (const uint32_t qpn : gone)
    require(!node.has_qpn(qpn), "QP number " + text(qpn) + " is still the dead one's");
  gone.clear();
}

void Ensemble::finish() {
  for (auto* role : {&victim, &target, &neighbour, &left, &right})
    if (*role) (*role)->quit();
  for (auto* role : {&victim, &target, &neighbour, &left, &right}) role->reset();
  auto newcomer = make("newcomer");
  std::string problem = node.only({newcomer->pid()});
  require(problem.empty(), "with one newcomer: " + problem);
  expect_no_numbers_left();
  newcomer->quit();
  problem = node.only({});
  require(problem.empty(), "when all are gone: " + problem);
}

}  // namespace verbena::crash
