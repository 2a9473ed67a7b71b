// SPDX-License-Identifier: BSD-2-Clause
#include "driver.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <vector>

namespace verbena::crash {
namespace {

std::vector<RoleProcess*> everybody;

std::string contents(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

std::string line_of(const std::string& text, const std::string& beginning) {
  const size_t at = text.find(beginning);
  return at == std::string::npos ? "" : text.substr(at, text.find('\n', at) - at);
}

std::string threads_of(pid_t pid) {
  std::string text;
  const std::string folder = "/proc/" + std::to_string(pid) + "/task";
  DIR* listing = opendir(folder.c_str());
  if (listing == nullptr) return "  no such process\n";
  while (const dirent* entry = readdir(listing)) {
    if (entry->d_name[0] == '.') continue;
    const std::string task = folder + "/" + entry->d_name;
    const std::string status = contents(task + "/status");
    text += "  task " + std::string(entry->d_name) + " " + line_of(status, "Name:") + " " +
            line_of(status, "State:") + " " + line_of(status, "SigPnd:") + " wchan " +
            contents(task + "/wchan") + " syscall " + line_of(contents(task + "/syscall"), "") + "\n";
  }
  closedir(listing);
  return text;
}

std::string flows_of(const ControlBlock& block) {
  std::ostringstream text;
  for (int i = 0; i < kFlows; ++i) {
    const FlowReport& flow = block.flows[i];
    if (flow.posted == 0 && flow.receives_posted == 0) continue;
    text << "  flow " << i << ": posted " << flow.posted << ", acknowledged " << flow.acknowledged
         << ", failure " << flow.first_failure << " (vendor_err 0x" << std::hex << flow.vendor_error << std::dec
         << ", " << (flow.failed_ns - flow.first_post_ns) / 1000 << " us after the post), flushed "
         << flow.flushed_sends << "; receives posted " << flow.receives_posted << ", received " << flow.received
         << ", flushed " << flow.flushed_receives << "\n";
  }
  return text.str();
}

int close_on_exec(int fd) {
  const int high = fcntl(fd, F_DUPFD_CLOEXEC, 20);
  close(fd);
  if (high < 0) throw Failure("no descriptor");
  return high;
}

}  // namespace

uint64_t random_number() {
  static uint64_t state = [] {
    const char* given = std::getenv("CRASH_SEED");
    const uint64_t seed =
        given != nullptr ? std::strtoull(given, nullptr, 0) : static_cast<uint64_t>(now_ns());
    std::printf("CRASH_SEED=%llu\n", static_cast<unsigned long long>(seed));
    return seed;
  }();
  state += 0x9e3779b97f4a7c15u;
  uint64_t z = state;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return z ^ z >> 31;
}

int rounds(int usual) {
  const char* given = std::getenv("CRASH_ROUNDS");
  return given != nullptr ? std::max(1, std::atoi(given)) : usual;
}

void busy_wait(int64_t nanoseconds) {
  const int64_t until = now_ns() + nanoseconds;
  while (now_ns() < until) {
  }
}

std::string whereabouts() {
  std::string text;
  for (const RoleProcess* role : everybody) {
    const ControlBlock& block = role->block();
    text += role->name() + " (pid " + std::to_string(role->pid()) + "), last command \"" + block.doing +
            "\", " + std::to_string(block.iterations) + " iterations\n";
    if (block.has_problem != 0) text += std::string("  problem: ") + block.problem + "\n";
    text += flows_of(block) + threads_of(role->pid());
  }
  return text;
}

void require(bool condition, const std::string& what) {
  if (condition) return;
  for (const RoleProcess* role : everybody)
    if (role->block().has_problem.load() != 0)
      throw Failure(what + "; " + role->name() + ": " + role->block().problem + "\n" + whereabouts());
  throw Failure(what + "\n" + whereabouts());
}

void await(const std::function<bool()>& condition, const std::string& what) {
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  for (unsigned looks = 0; !condition(); ++looks) {
    for (RoleProcess* role : everybody) role->check();
    require(std::chrono::steady_clock::now() < deadline, "waited in vain: " + what);
    if (looks < 100) {
      sched_yield();
    } else {
      const timespec pause = {0, 50'000};  // leaves the processors to the processes that are waited for
      nanosleep(&pause, nullptr);
    }
  }
}

RoleProcess::RoleProcess(std::string name, int cqe, bool with_channel) : name_(std::move(name)) {
  int sockets[2], pipes[2];
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) != 0 || pipe(pipes) != 0) throw Failure("no socket");
  socket_ = close_on_exec(sockets[0]);
  exec_pipe_ = close_on_exec(pipes[1]);
  const int block_fd = close_on_exec(memfd_create("crash-control", 0));
  const int theirs = close_on_exec(sockets[1]);
  const int exec_fd = close_on_exec(pipes[0]);
  if (ftruncate(block_fd, sizeof(ControlBlock)) != 0) throw Failure("no memory");
  block_ = static_cast<ControlBlock*>(
      mmap(nullptr, sizeof(ControlBlock), PROT_READ | PROT_WRITE, MAP_SHARED, block_fd, 0));
  pid_ = fork();
  if (pid_ == 0) {
    dup2(theirs, kCommandFd);
    dup2(block_fd, kBlockFd);
    dup2(exec_fd, kExecFd);
    execl(VERBENA_CRASH_ROLE, name_.c_str(), static_cast<char*>(nullptr));
    _exit(127);
  }
  close(block_fd);
  close(theirs);
  close(exec_fd);
  everybody.push_back(this);
  try {
    call("open " + std::to_string(cqe) + (with_channel ? " 1" : " 0"));
  } catch (...) {
    everybody.pop_back();
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    throw;
  }
}

RoleProcess::~RoleProcess() {
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    while (waitpid(pid_, nullptr, __WALL) < 0 && errno == EINTR) {
    }
  }
  std::erase(everybody, this);
  if (block_ != nullptr) munmap(block_, sizeof(ControlBlock));
  close(socket_);
  close(exec_pipe_);
}

void RoleProcess::send_line(const std::string& command) {
  const std::string text = command + "\n";
  require(send(socket_, text.data(), text.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(text.size()),
          name_ + " does not take \"" + command + "\"");
}

std::string RoleProcess::read_answer(const std::string& to) {
  std::string line;
  pollfd one = {socket_, POLLIN, 0};
  const auto patience = std::chrono::duration_cast<std::chrono::milliseconds>(kPatience);
  for (char c = 0; c != '\n';) {
    require(poll(&one, 1, static_cast<int>(patience.count())) == 1,
            name_ + " does not answer \"" + to + "\"");
    require(read(socket_, &c, 1) == 1, name_ + " died of \"" + to + "\"");
    line += c;
  }
  line.pop_back();
  require(line.substr(0, 2) == "ok", name_ + " answers \"" + to + "\": " + line);
  return line.size() > 3 ? line.substr(3) : "";
}

std::string RoleProcess::call(const std::string& command) {
  send_line(command);
  return read_answer(command);
}

void RoleProcess::check() {
  if (block_->has_problem.load() != 0)
    throw Failure(name_ + ": " + std::string(block_->problem) + "\n" + whereabouts());
}

void RoleProcess::signal(int number) { kill(pid_, number); }

void RoleProcess::stop() {
  signal(SIGSTOP);
  int status = 0;
  require(waitpid(pid_, &status, WUNTRACED) == pid_ && WIFSTOPPED(status), name_ + " does not stop");
}

void RoleProcess::go_on() { signal(SIGCONT); }

void RoleProcess::kill_and_reap() {
  signal(SIGKILL);
  int status = 0;
  do {
    require(waitpid(pid_, &status, __WALL) == pid_, name_ + " cannot be reaped");
  } while (!WIFSIGNALED(status) && !WIFEXITED(status));
  pid_ = -1;
}

void RoleProcess::become_canary() {
  const char byte = 0;
  require(write(exec_pipe_, &byte, 1) == 1, "no pipe");
  require(read_answer("exec") == "canary", name_ + " did not become another program");
}

void RoleProcess::quit() {
  call("quit");
  int status = 0;
  require(waitpid(pid_, &status, 0) == pid_ && WIFEXITED(status) && WEXITSTATUS(status) == 0,
          name_ + " ended with status " + std::to_string(status));
  pid_ = -1;
}

void RoleProcess::seize() {
  require(ptrace(PTRACE_SEIZE, pid_, nullptr, nullptr) == 0,
          "PTRACE_SEIZE: " + std::string(std::strerror(errno)));
}

void RoleProcess::await_mark() {
  int status = 0;
  require(waitpid(pid_, &status, __WALL) == pid_ && WIFSTOPPED(status) && WSTOPSIG(status) == SIGTRAP,
          name_ + " met no mark: status " + std::to_string(status));
}

bool RoleProcess::single_step() {
  require(ptrace(PTRACE_SINGLESTEP, pid_, nullptr, nullptr) == 0, "PTRACE_SINGLESTEP");
  int status = 0;
  require(waitpid(pid_, &status, __WALL) == pid_ && WIFSTOPPED(status), name_ + " died while being stepped");
  require(WSTOPSIG(status) == SIGTRAP, name_ + " was stopped by signal " + std::to_string(WSTOPSIG(status)));
  siginfo_t info = {};
  ptrace(PTRACE_GETSIGINFO, pid_, nullptr, &info);
  return info.si_code != SI_KERNEL;  // a mark: int3
}

void RoleProcess::release() { require(ptrace(PTRACE_CONT, pid_, nullptr, nullptr) == 0, "PTRACE_CONT"); }

}  // namespace verbena::crash
