// SPDX-License-Identifier: BSD-2-Clause
//
// network_flow take|send --meet PATH [--meet PATH ...] [options]: messages one way until SIGTERM, a thousand
// per second (flow.h). The two meet as ledgers do (../ledger/meeting.h).
//
//   --transport RC|UC|UD     (RC)
//   --timeout N, --retry N   as of ibv_modify_qp(3) (18, 7)
//   SIGUSR1                  the sender pauses, then goes on
//   SIGUSR2                  the next meeting: another queue pair, to the peer met there; the earlier one
//   stays
//
// Prints "at N" when messages up to number N have completed, or have come or are missing, "rests", "failed:
// STATUS", and at the end one line of JSON for each queue pair. Exit status: 0, whatever was lost; 1,
// messages came twice, late or damaged; 2, it could not run.
#include <poll.h>
#include <signal.h>
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>

#include "../ledger/meeting.h"
#include "../ledger/verbs.h"
#include "flow.h"

namespace verbena::network {
namespace {

volatile sig_atomic_t asked_to_end = 0, asked_to_rest = 0, asked_to_meet = 0;
void on_signal(int number) {
  if (number == SIGTERM) asked_to_end = 1;
  if (number == SIGUSR1) asked_to_rest = !asked_to_rest;
  if (number == SIGUSR2) asked_to_meet = asked_to_meet + 1;
}

constexpr int64_t kPace = 1'000'000;  // ns from one message to the next

int64_t nanoseconds() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1'000'000'000 + now.tv_nsec;
}

[[noreturn]] void usage() {
  std::fprintf(stderr,
               "network_flow take|send --meet PATH [--meet PATH ...] [--transport RC|UC|UD] "
               "[--timeout N] [--retry N]\n");
  std::exit(2);
}

struct Plan {
  bool sends = false;
  std::vector<std::string> meetings;
  FlowSetup setup;
};

Plan read_plan(int argc, char** argv) {
  Plan plan;
  if (argc < 2) usage();
  plan.sends = std::strcmp(argv[1], "send") == 0;
  if (!plan.sends && std::strcmp(argv[1], "take") != 0) usage();
  for (int i = 2; i + 1 < argc; i += 2) {
    const std::string option = argv[i], value = argv[i + 1];
    if (option == "--meet")
      plan.meetings.push_back(value);
    else if (option == "--transport")
      plan.setup.transport = value == "UD" ? IBV_QPT_UD : value == "UC" ? IBV_QPT_UC : IBV_QPT_RC;
    else if (option == "--timeout")
      plan.setup.timeout = static_cast<uint8_t>(std::atoi(value.c_str()));
    else if (option == "--retry")
      plan.setup.retry_count = static_cast<uint8_t>(std::atoi(value.c_str()));
    else
      usage();
  }
  if (plan.meetings.empty()) usage();
  return plan;
}

class Flows {
 public:
  explicit Flows(const Plan& plan) : plan_(plan) {
    context_ = open_first_device();
    pd_ = ibv_alloc_pd(context_);
    channel_ = ibv_create_comp_channel(context_);
    cq_ = ibv_create_cq(context_, 1024, nullptr, channel_, 0);
    if (pd_ == nullptr || channel_ == nullptr || cq_ == nullptr) give_up("a completion queue");
  }

  int run() {
    begin();
    bool rested = false;
    for (bool failed = false;;) {
      if (static_cast<size_t>(asked_to_meet) >= flows_.size() && flows_.size() < plan_.meetings.size()) {
        begin();
        failed = false;
      }
      Flow& flow = flows_.back();
      const bool goes_on = plan_.sends && !asked_to_rest && !asked_to_end;
      if (const int64_t now = nanoseconds(); goes_on && now >= post_at_) {
        flow.post();
        post_at_ = now + kPace;
      }
      wait(goes_on ? std::clamp<int64_t>(post_at_ - nanoseconds(), 0, kPace) : 50 * kPace);
      if (!failed && flow.status() != IBV_WC_SUCCESS) {
        std::printf("failed: %s\n", ibv_wc_status_str(flow.status()));
        std::fflush(stdout);
        failed = true;
      }
      if (asked_to_rest && !rested && flow.rests()) {
        say_where();
        say("rests");
      }
      rested = asked_to_rest && (rested || flow.rests());
      if (asked_to_end && (!plan_.sends || failed || flow.rests())) return report();
    }
  }

 private:
  void begin() {
    const int meeting = meet(plan_.meetings[flows_.size()], !plan_.sends);
    Flow& flow = flows_.emplace_back(context_, pd_, cq_, plan_.setup, plan_.sends);
    std::vector<Flow::Address> peer(1);
    tell(meeting, std::vector<Flow::Address>{flow.address()});
    if (!hear(meeting, peer)) give_up("the other end has gone");
    flow.connect(peer[0]);
    // Neither side sends to a queue pair that is not ready yet.
    std::vector<char> ready(1);
    tell(meeting, ready);
    if (!hear(meeting, ready)) give_up("the other end has gone");
    said_ = 0;
  }

  void say(const char* what) {
    std::puts(what);
    std::fflush(stdout);
  }

  void drain() {
    ibv_wc wc[16];
    for (int n; (n = ibv_poll_cq(cq_, 16, wc)) != 0;) {
      if (n < 0) give_up("ibv_poll_cq");
      for (int i = 0; i < n; ++i)
        for (Flow& flow : flows_)
          if (flow.qpn() == wc[i].qp_num) flow.complete(wc[i]);
    }
    if (flows_.back().done() >= said_ + 100) say_where();
  }

  void say_where() {
    said_ = flows_.back().done();
    std::printf("at %llu\n", static_cast<unsigned long long>(said_));
    std::fflush(stdout);
  }

  // Until something has completed or a signal has come, at most so many nanoseconds.
  void wait(int64_t at_most) {
    if (ibv_req_notify_cq(cq_, 0) != 0) give_up("ibv_req_notify_cq");
    drain();
    sigset_t none;
    sigemptyset(&none);
    pollfd events = {channel_->fd, POLLIN, 0};
    const timespec time = {0, static_cast<long>(at_most)};
    const int ready = ppoll(&events, 1, &time, &none);
    if (ready == 0 && !plan_.sends && flows_.back().done() != said_) say_where();
    if (ready == 1) {
      ibv_cq* cq = nullptr;
      void* context = nullptr;
      if (ibv_get_cq_event(channel_, &cq, &context) != 0) give_up("ibv_get_cq_event");
      ibv_ack_cq_events(cq, 1);
    }
    drain();
  }

  int report() {
    bool well = true;
    for (const Flow& flow : flows_) {
      std::printf(
          "{\"posted\": %llu, \"completed\": %llu, \"missing\": %llu, \"status\": \"%s\", \"fault\": "
          "\"%s\"}\n",
          static_cast<unsigned long long>(flow.posted()), static_cast<unsigned long long>(flow.completed()),
          static_cast<unsigned long long>(flow.missing()), ibv_wc_status_str(flow.status()),
          flow.fault().c_str());
      well = well && flow.fault().empty();
    }
    std::fflush(stdout);
    return well ? 0 : 1;
  }

  const Plan plan_;
  ibv_context* context_ = nullptr;
  ibv_pd* pd_ = nullptr;
  ibv_comp_channel* channel_ = nullptr;
  ibv_cq* cq_ = nullptr;
  std::deque<Flow> flows_;
  uint64_t said_ = 0;
  int64_t post_at_ = 0;
};

// Signals are delivered during this wait only.
void take_signals() {
  sigset_t ours;
  sigemptyset(&ours);
  struct sigaction action = {};
  action.sa_handler = on_signal;
  for (const int number : {SIGTERM, SIGUSR1, SIGUSR2}) {
    sigaddset(&ours, number);
    sigaction(number, &action, nullptr);
  }
  sigprocmask(SIG_BLOCK, &ours, nullptr);
}

}  // namespace
}  // namespace verbena::network

int main(int argc, char** argv) {
  using namespace verbena::network;
  const Plan plan = read_plan(argc, argv);
  take_signals();
  return Flows(plan).run();
}
