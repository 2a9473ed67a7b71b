// SPDX-License-Identifier: BSD-2-Clause
#include "suite/runner.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <iterator>
#include <memory>

#include "suite/child.h"
#include "suite/family.h"

namespace conformance {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

struct Job {
  size_t index;
  pid_t pid;
  int descriptor;  // read end of the findings
  Clock::time_point began, deadline;
  std::string bytes;
  bool killed = false, closed = false;
  bool lost = false;  // SIGKILL does not end it
};

// Between SIGKILL and the end of a process, times --time-scale; longer: a driver keeps it in the kernel.
constexpr double milliseconds_to_die = 20'000;
constexpr timespec moment{0, 50'000'000};  // at most, between two looks at what was killed

volatile sig_atomic_t interrupted_by = 0;
void wake_up(int) {}
void interrupt(int signal) { interrupted_by = signal; }

// SIGCHLD and the signals that end a run are delivered within ppoll() only; children get the dispositions and
// the mask with which this process was started. A signal that was ignored (nohup) stays ignored.
class Signals {
 public:
  Signals() {
    sigset_t blocked;
    sigemptyset(&blocked);
    for (size_t i = 0; i < std::size(handled); ++i) {
      struct sigaction action = {};
      sigaction(handled[i], nullptr, &before_[i]);
      if (handled[i] != SIGCHLD && before_[i].sa_handler == SIG_IGN) continue;
      action.sa_handler = handled[i] == SIGCHLD ? wake_up : interrupt;
      sigaction(handled[i], &action, nullptr);
      sigaddset(&blocked, handled[i]);
    }
    sigprocmask(SIG_BLOCK, &blocked, &mask_);
    interrupted_by = 0;
  }
  ~Signals() { restore(); }
  void restore() const {
    for (size_t i = 0; i < std::size(handled); ++i) sigaction(handled[i], &before_[i], nullptr);
    sigprocmask(SIG_SETMASK, &mask_, nullptr);
  }
  const sigset_t* mask() const { return &mask_; }

 private:
  static constexpr int handled[] = {SIGCHLD, SIGINT, SIGTERM, SIGHUP};
  struct sigaction before_[std::size(handled)];
  sigset_t mask_;
};

class Runner {
 public:
  Runner(const std::vector<const TestInfo*>& selected, const Options& options,
         const std::function<void(const Progress&)>& told)
      : selected_(selected),
        options_(options),
        told_(told),
        results_(selected.size()),
        has_run_(selected.size()),
        time_to_die_(static_cast<int64_t>(milliseconds_to_die * options.time_scale)),
        jobs_(options.jobs) {
    for (int i = 0; i < options.jobs; ++i) traces_.push_back(std::make_unique<Trace>());
  }

  RunResults run() {
    do {
      next_ = done_ = 0;
      broken_.clear();
      while (done_ < selected_.size() && stopped_.empty()) {
        while (stopped_.empty() && may_start()) start();
        wait();
        if (interrupted_by != 0) stopped_ = std::string("interrupted by ") + strsignal(interrupted_by);
      }
      if (stopped_.empty()) ++rounds_;
    } while (stopped_.empty() && goes_on());
    end_all();
    for (size_t i = 0; i < selected_.size(); ++i) {
      if (has_run_[i]) continue;
      results_[i].how = "not run: " + stopped_;
      results_[i].runs = 0;
    }
    return {std::move(results_), rounds_, std::move(stopped_)};
  }

 private:
  size_t running() const {
    return static_cast<size_t>(
        std::count_if(jobs_.begin(), jobs_.end(), [](auto& job) { return job != nullptr; }));
  }

  bool may_start() const {
    if (next_ == selected_.size() || running() == jobs_.size()) return false;
    return running() == 0 || !(selected_[next_]->traits.is_alone || alone_);
  }

  bool goes_on() const {
    if (options_.soak > 0)
      return Clock::now() - began_ < std::chrono::duration<double, std::ratio<60>>(options_.soak);
    return rounds_ < static_cast<size_t>(options_.repeat);
  }

  // After a stop: no process of a test stays, but one that cannot be killed.
  void end_all() {
    for (auto& job : jobs_) {
      if (!job) continue;
      kill(-job->pid, SIGKILL);
      const auto deadline = Clock::now() + time_to_die_;
      while (!job->lost && waitpid(job->pid, nullptr, WNOHANG) == 0 && Clock::now() < deadline)
        ppoll(nullptr, 0, &moment, signals_.mask());
      close(job->descriptor);
      job.reset();
    }
  }

  void start() {
    const size_t slot = static_cast<size_t>(std::find(jobs_.begin(), jobs_.end(), nullptr) - jobs_.begin());
    const TestInfo& test = *selected_[next_];
    for (const Family* needed : needed_by(test)) {
      const auto found = broken_.find(needed);
      if (found == broken_.end()) continue;
      const std::string cause = found->second;
      for (const Family* family : asked_by(test)) broken_.emplace(family, cause);
      return give_up(next_++, "not run: " + why_not_run(*needed, cause));
    }
    alone_ = test.traits.is_alone;
    traces_[slot]->clear();
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return give_up(next_++, std::string("pipe2: ") + strerror(errno));
    const pid_t pid = fork();
    if (pid == 0) {
      setpgid(0, 0);
      signals_.restore();
      close(ends[0]);
      use_broken_families(broken_);
      run_in_child(test, options_, *traces_[slot], ends[1]);
    }
    close(ends[1]);
    if (pid < 0) {
      close(ends[0]);
      return give_up(next_++, std::string("fork: ") + strerror(errno));
    }
    setpgid(pid, pid);  // by parent and child: either may come first
    const auto now = Clock::now();
    const auto limit =
        milliseconds(static_cast<int64_t>(1000.0 * test.traits.limit_seconds * options_.time_scale));
    jobs_[slot].reset(new Job{next_++, pid, ends[0], now, now + limit, {}});
  }

  // Waits until a child writes or ends, or for the next deadline. A test ends with its process, even if its
  // own children still hold the pipe open.
  void wait() {
    std::vector<pollfd> polled;
    auto wake = Clock::now() + std::chrono::seconds(1);
    for (const auto& job : jobs_) {
      if (!job) continue;
      if (!job->closed) polled.push_back({job->descriptor, POLLIN, 0});
      if (!job->killed) wake = std::min(wake, job->deadline);
    }
    const auto left = std::max(wake - Clock::now(), Clock::duration::zero());
    const timespec timeout{std::chrono::duration_cast<std::chrono::seconds>(left).count(),
                           std::chrono::nanoseconds(left % std::chrono::seconds(1)).count()};
    ppoll(polled.data(), polled.size(), &timeout, signals_.mask());
    for (size_t slot = 0; slot < jobs_.size(); ++slot)
      if (jobs_[slot]) look_after(slot);
  }

  // Reads what is there, without waiting.
  static void read_all(Job& job) {
    char buffer[4096];
    for (pollfd more{job.descriptor, POLLIN, 0}; !job.closed && poll(&more, 1, 0) > 0;) {
      const ssize_t count = read(job.descriptor, buffer, sizeof buffer);
      if (count > 0) job.bytes.append(buffer, static_cast<size_t>(count));
      job.closed = count == 0;
    }
  }

  void look_after(size_t slot) {
    Job& job = *jobs_[slot];
    read_all(job);
    if (!job.killed && Clock::now() >= job.deadline) {
      job.killed = true;
      kill(-job.pid, SIGKILL);
    }
    int status = 0;
    if (waitpid(job.pid, &status, WNOHANG) != job.pid) {
      if (job.killed && Clock::now() >= job.deadline + time_to_die_) give_up_on(slot);
      return;
    }
    read_all(job);
    kill(-job.pid, SIGKILL);  // grandchildren that the test left behind
    finish(slot, status);
  }

  // A process that SIGKILL does not end is in the kernel, on behalf of the device. What it holds is not free,
  // so that further tests would tell nothing.
  void give_up_on(size_t slot) {
    Job& job = *jobs_[slot];
    job.lost = true;
    TestResult result;
    result.end = TestResult::End::hung;
    result.calls = traces_[slot]->lines();
    read_findings(job.bytes, result);
    result.end = TestResult::End::hung;
    result.how = "did not end, and cannot be killed: process " + std::to_string(job.pid) +
                 " is in the kernel, at " + place_in_kernel(job.pid);
    if (!result.calls.empty()) result.how += "; its last call: " + last_call(result.calls);
    const std::string name = selected_[job.index]->full_name();
    tell(job.index, std::move(result));
    stopped_ = "the device hangs: " + name + " cannot be killed";
  }

  // proc(5): wchan is the kernel's function in which the process sleeps.
  static std::string place_in_kernel(pid_t pid) {
    std::ifstream file("/proc/" + std::to_string(pid) + "/wchan");
    std::string name;
    file >> name;
    return name.empty() || name == "0" ? "an unknown place" : name;
  }

  void finish(size_t slot, int status) {
    const std::unique_ptr<Job> job = std::move(jobs_[slot]);
    close(job->descriptor);
    TestResult result;
    result.time = std::chrono::duration_cast<milliseconds>(Clock::now() - job->began);
    result.calls = traces_[slot]->lines();
    read_findings(job->bytes, result);
    if (result.end != TestResult::End::finished) {
      result.end = job->killed ? TestResult::End::hung : TestResult::End::crashed;
      result.how =
          job->killed ? "did not end within " + std::to_string(result.time.count()) + " ms and was killed"
          : WIFSIGNALED(status) ? std::string("killed by signal ") + strsignal(WTERMSIG(status))
                                : "its process ended with status " + std::to_string(WEXITSTATUS(status));
      if (!result.calls.empty()) result.how += "; its last call: " + last_call(result.calls);
    }
    tell(job->index, std::move(result));
  }

  static std::string last_call(const std::vector<std::string>& calls) {
    for (auto line = calls.rbegin(); line != calls.rend(); ++line)
      if (line->compare(0, 2, "  ") != 0) return *line;
    return calls.back();
  }

  void give_up(size_t index, const std::string& why) {
    TestResult result;
    result.how = why;
    tell(index, std::move(result));
  }

  void tell(size_t index, TestResult result) {
    ++done_;
    count_run(result, selected_[index]->clauses);
    for (const Family* family : broken_by(*selected_[index], result))
      broken_.emplace(family, std::string(family->clause) + " (" + selected_[index]->full_name() + ")");
    try {
      told_({selected_[index], &result, done_, selected_.size(), rounds_ + 1,
             std::chrono::duration_cast<milliseconds>(Clock::now() - began_)});
    } catch (const Stop& stop) {
      if (stopped_.empty()) stopped_ = stop.reason;
    }
    if (!has_run_[index])
      results_[index] = std::move(result);
    else
      add_run(results_[index], std::move(result), selected_[index]->clauses);
    has_run_[index] = true;
  }

  const std::vector<const TestInfo*>& selected_;
  const Options& options_;
  const std::function<void(const Progress&)>& told_;
  const Signals signals_;
  const Clock::time_point began_ = Clock::now();
  std::vector<TestResult> results_;
  std::vector<bool> has_run_;
  const milliseconds time_to_die_;
  std::vector<std::unique_ptr<Job>> jobs_;
  std::vector<std::unique_ptr<Trace>> traces_;
  size_t next_ = 0, done_ = 0, rounds_ = 0;
  std::string stopped_;
  bool alone_ = false;
  BrokenFamilies broken_;
};

}  // namespace

RunResults run_tests(const std::vector<const TestInfo*>& selected, const Options& options,
                     const std::function<void(const Progress&)>& told) {
  return Runner(selected, options, told).run();
}

}  // namespace conformance
