// SPDX-License-Identifier: BSD-2-Clause
//
// network_ledger serve|drive --meet PATH [options]: two processes whose operations are counted at both ends
// (line.h). They meet at a unix socket in the file system, which no fault of the network affects, and
// exchange their addresses and, at the end, what each has posted and seen complete.
//
//   --lines N     queue pairs (1); with --both every second one is driven by the server
//   --count N     operations of each line, 0 until SIGTERM (1000)
//   --timeout N, --retry N   as of ibv_modify_qp(3) (18, 7)
//   SIGUSR1       executes /bin/sleep in its place, wherever it is
//
// Prints "at N" as operations complete, then one line of JSON. Exit status: 0, what was seen is consistent,
// whether or not the connection has failed; 1, something was lost, doubled or wrong; 2, it could not run.
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "line.h"
#include "meeting.h"

namespace verbena::network {
namespace {

using Clock = std::chrono::steady_clock;

volatile sig_atomic_t asked_to_end = 0;
void on_signal(int) { asked_to_end = 1; }
void on_exec_signal(int) {
  execl("/bin/sleep", "sleep", "600", static_cast<char*>(nullptr));
  _exit(2);
}

struct Plan {
  bool serve = false, both = false;
  std::string meet;
  uint32_t lines = 1;
  uint64_t count = 1000;
  Timing timing;
};

[[noreturn]] void usage() {
  std::fprintf(stderr,
               "network_ledger serve|drive --meet PATH [--lines N] [--both] [--count N] [--timeout N] "
               "[--retry N]\n");
  std::exit(2);
}

Plan read_plan(int argc, char** argv) {
  Plan plan;
  if (argc < 2) usage();
  plan.serve = std::strcmp(argv[1], "serve") == 0;
  if (!plan.serve && std::strcmp(argv[1], "drive") != 0) usage();
  for (int i = 2; i < argc; ++i) {
    const std::string option = argv[i];
    if (option == "--both") {
      plan.both = true;
      continue;
    }
    if (i + 1 >= argc) usage();
    const char* value = argv[++i];
    if (option == "--meet")
      plan.meet = value;
    else if (option == "--lines")
      plan.lines = static_cast<uint32_t>(std::atoi(value));
    else if (option == "--count")
      plan.count = std::strtoull(value, nullptr, 10);
    else if (option == "--timeout")
      plan.timing.timeout = static_cast<uint8_t>(std::atoi(value));
    else if (option == "--retry")
      plan.timing.retry_count = static_cast<uint8_t>(std::atoi(value));
    else
      usage();
  }
  if (plan.meet.empty() || plan.lines == 0) usage();
  if (plan.count == 0) plan.count = UINT64_MAX;
  return plan;
}

class Ledger {
 public:
  explicit Ledger(const Plan& plan) : plan_(plan), meeting_(meet(plan.meet, plan.serve)) {
    open_device();
    for (uint32_t i = 0; i < plan.lines; ++i)
      lines_.emplace_back(devices_, i, plan.both && i % 2 == 1 ? plan.serve : !plan.serve);
    std::vector<Address> own, peer(lines_.size());
    for (const Line& line : lines_) own.push_back(line.address());
    tell(meeting_, own);
    if (!hear(meeting_, peer)) give_up("the other end has gone");
    for (size_t i = 0; i < lines_.size(); ++i) lines_[i].connect(peer[i], plan.timing);
    // Neither side sends to a queue pair that is not ready yet.
    std::vector<char> ready(1);
    tell(meeting_, ready);
    if (!hear(meeting_, ready)) give_up("the other end has gone");
    peer_done_ = accounts().size() == lines_.size();  // without a target there is nothing to wait for
  }

  int run() {
    bool told = false;
    for (uint64_t next = 0; !told || !peer_done_; next = progress(next)) {
      bool busy = false;
      for (Line& line : lines_)
        if (line.is_initiator()) {
          const uint64_t end = asked_to_end != 0 ? line.account().posted : plan_.count;
          busy |= line.post(end) && line.account().completed < end;
        }
      if (!busy && !told) {
        tell(meeting_, accounts());
        told = true;
      }
      wait();
    }
    const int status = report();
    shutdown(meeting_, SHUT_WR);
    char rest;  // the other end may still want our queue pairs
    while (recv(meeting_, &rest, 1, 0) > 0) {
    }
    return status;
  }

 private:
  void open_device() {
    int count = 0;
    ibv_device** list = ibv_get_device_list(&count);
    if (list == nullptr || count == 0) give_up("no device");
    devices_.context = ibv_open_device(list[0]);
    if (devices_.context == nullptr) give_up("ibv_open_device");
    ibv_free_device_list(list);
    devices_.pd = ibv_alloc_pd(devices_.context);
    channel_ = ibv_create_comp_channel(devices_.context);
    if (devices_.pd == nullptr || channel_ == nullptr) give_up("ibv_alloc_pd or ibv_create_comp_channel");
    devices_.cq = ibv_create_cq(devices_.context, static_cast<int>(plan_.lines) * 128, nullptr, channel_, 0);
    if (devices_.cq == nullptr) give_up("ibv_create_cq");
    devices_.gid_index = 1;
  }

  std::vector<Account> accounts() const {
    std::vector<Account> all;
    for (const Line& line : lines_)
      if (line.is_initiator()) all.push_back(line.account());
    return all;
  }

  void drain() {
    ibv_wc wc[16];
    for (int n; (n = ibv_poll_cq(devices_.cq, 16, wc)) != 0;) {
      if (n < 0) give_up("ibv_poll_cq");
      for (int i = 0; i < n; ++i) lines_[wc[i].wr_id >> 32].complete(wc[i]);
    }
  }

  // Until something has completed or the other end has sent something, at most half a second.
  void wait() {
    if (ibv_req_notify_cq(devices_.cq, 0) != 0) give_up("ibv_req_notify_cq");
    drain();
    pollfd both[] = {{channel_->fd, POLLIN, 0}, {peer_done_ ? -1 : meeting_, POLLIN, 0}};
    // What drain() has just found may allow another post: then it does not wait.
    if (poll(both, 2, can_post() ? 0 : 500) < 0 && errno != EINTR) give_up("poll");
    if ((both[0].revents & POLLIN) != 0) {
      ibv_cq* cq = nullptr;
      void* context = nullptr;
      if (ibv_get_cq_event(channel_, &cq, &context) != 0) give_up("ibv_get_cq_event");
      ibv_ack_cq_events(cq, 1);
    }
    drain();
    if (both[1].revents != 0) hear_accounts();
  }

  bool can_post() {
    for (const Line& line : lines_)
      if (line.is_initiator() && !line.failed() && asked_to_end == 0 && line.account().posted < plan_.count &&
          line.account().posted == line.account().completed)
        return true;
    return false;
  }

  void hear_accounts() {
    std::vector<Line*> targets;
    for (Line& line : lines_)
      if (!line.is_initiator()) targets.push_back(&line);
    std::vector<Account> said(targets.size());
    peer_known_ = hear(meeting_, said);
    drain();
    for (size_t i = 0; i < targets.size(); ++i) targets[i]->compare(said[i], peer_known_);
    peer_done_ = true;
  }

  uint64_t progress(uint64_t next) {
    uint64_t completed = 0;
    for (const Line& line : lines_)
      completed += line.is_initiator() ? line.account().completed : line.received();
    if (completed < next) return next;
    std::printf("at %llu\n", static_cast<unsigned long long>(completed));
    std::fflush(stdout);
    return completed + 100;
  }

  int report() {
    uint64_t posted = 0, completed = 0, received = 0, added = 0, swapped = 0;
    std::string fault;
    std::map<std::string, int> statuses;
    for (const Line& line : lines_) {
      posted += line.account().posted;
      completed += line.account().completed;
      received += line.received();
      added += line.added();
      swapped += line.swapped();
      if (line.is_initiator()) ++statuses[ibv_wc_status_str(line.status())];
      if (fault.empty()) fault = line.fault();
    }
    std::string ends;
    for (const auto& [status, lines] : statuses)
      ends += (ends.empty() ? "\"" : ", \"") + status + "\": " + std::to_string(lines);
    std::printf(
        "{\"posted\": %llu, \"completed\": %llu, \"received\": %llu, \"added\": %llu, \"swapped\": %llu, "
        "\"peer_known\": %s, \"statuses\": {%s}, \"fault\": \"%s\"}\n",
        static_cast<unsigned long long>(posted), static_cast<unsigned long long>(completed),
        static_cast<unsigned long long>(received), static_cast<unsigned long long>(added),
        static_cast<unsigned long long>(swapped), peer_known_ ? "true" : "false", ends.c_str(),
        fault.c_str());
    std::fflush(stdout);
    return fault.empty() ? 0 : 1;
  }

  Plan plan_;
  int meeting_;
  Devices devices_ = {};
  ibv_comp_channel* channel_ = nullptr;
  std::deque<Line> lines_;
  bool peer_done_ = false, peer_known_ = false;
};

}  // namespace
}  // namespace verbena::network

int main(int argc, char** argv) {
  using namespace verbena::network;
  struct sigaction action = {};
  action.sa_handler = on_signal;
  sigaction(SIGTERM, &action, nullptr);
  action.sa_handler = on_exec_signal;
  sigaction(SIGUSR1, &action, nullptr);
  const Plan plan = read_plan(argc, argv);
  Ledger ledger(plan);
  return ledger.run();
}
