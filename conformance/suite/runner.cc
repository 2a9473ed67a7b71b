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
#include <memory>

#include "suite/child.h"

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
};

void wake_up(int) {}

// SIGCHLD is delivered within ppoll() only; children get the signal mask with which this process was started.
class ChildSignal {
 public:
  ChildSignal() {
    struct sigaction action = {};
    action.sa_handler = wake_up;
    sigaction(SIGCHLD, &action, &before_);
    sigset_t blocked;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGCHLD);
    sigprocmask(SIG_BLOCK, &blocked, &mask_);
  }
  ~ChildSignal() { restore(); }
  void restore() const {
    sigaction(SIGCHLD, &before_, nullptr);
    sigprocmask(SIG_SETMASK, &mask_, nullptr);
  }
  const sigset_t* mask() const { return &mask_; }

 private:
  struct sigaction before_;
  sigset_t mask_;
};

class Runner {
 public:
  Runner(const std::vector<const TestInfo*>& selected, const Options& options,
         const std::function<void(const Progress&)>& told)
      : selected_(selected), options_(options), told_(told), results_(selected.size()), jobs_(options.jobs) {
    for (int i = 0; i < options.jobs; ++i) traces_.push_back(std::make_unique<Trace>());
  }

  std::vector<TestResult> run() {
    while (done_ < selected_.size()) {
      while (may_start()) start();
      wait();
    }
    return std::move(results_);
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

  void start() {
    const size_t slot = static_cast<size_t>(std::find(jobs_.begin(), jobs_.end(), nullptr) - jobs_.begin());
    const TestInfo& test = *selected_[next_];
    alone_ = test.traits.is_alone;
    traces_[slot]->clear();
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return give_up(next_++, std::string("pipe2: ") + strerror(errno));
    const pid_t pid = fork();
    if (pid == 0) {
      setpgid(0, 0);
      signal_.restore();
      close(ends[0]);
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
    ppoll(polled.data(), polled.size(), &timeout, signal_.mask());
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
    if (waitpid(job.pid, &status, WNOHANG) != job.pid) return;
    read_all(job);
    kill(-job.pid, SIGKILL);  // grandchildren that the test left behind
    finish(slot, status);
  }

  void finish(size_t slot, int status) {
    const std::unique_ptr<Job> job = std::move(jobs_[slot]);
    close(job->descriptor);
    TestResult& result = results_[job->index];
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
    tell(job->index);
  }

  static std::string last_call(const std::vector<std::string>& calls) {
    for (auto line = calls.rbegin(); line != calls.rend(); ++line)
      if (line->compare(0, 2, "  ") != 0) return *line;
    return calls.back();
  }

  void give_up(size_t index, const std::string& why) {
    results_[index].how = why;
    tell(index);
  }

  void tell(size_t index) {
    ++done_;
    told_({selected_[index], &results_[index], done_, selected_.size(),
           std::chrono::duration_cast<milliseconds>(Clock::now() - began_)});
  }

  const std::vector<const TestInfo*>& selected_;
  const Options& options_;
  const std::function<void(const Progress&)>& told_;
  const ChildSignal signal_;
  const Clock::time_point began_ = Clock::now();
  std::vector<TestResult> results_;
  std::vector<std::unique_ptr<Job>> jobs_;
  std::vector<std::unique_ptr<Trace>> traces_;
  size_t next_ = 0, done_ = 0;
  bool alone_ = false;
};

}  // namespace

std::vector<TestResult> run_tests(const std::vector<const TestInfo*>& selected, const Options& options,
                                  const std::function<void(const Progress&)>& told) {
  return Runner(selected, options, told).run();
}

}  // namespace conformance
