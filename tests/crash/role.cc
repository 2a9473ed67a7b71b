// SPDX-License-Identifier: BSD-2-Clause
//
// The program that is killed, stopped and replaced, and its peers: an ordinary verbs program, driven by lines
// on a socket. It answers each line with "ok ..." or with what is wrong.
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "endpoint.h"

namespace verbena::crash {
namespace {

#if defined(__x86_64__)
#define TRACE_MARK() __asm__ volatile("int3")
#elif defined(__aarch64__)
#define TRACE_MARK() __asm__ volatile("brk #0")
#else
#define TRACE_MARK() raise(SIGTRAP)
#endif

ControlBlock* map_block() {
  void* memory = mmap(nullptr, sizeof(ControlBlock), PROT_READ | PROT_WRITE, MAP_SHARED, kBlockFd, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<ControlBlock*>(memory);
}

void say(const std::string& line) {
  const std::string text = line + "\n";
  if (send(kCommandFd, text.data(), text.size(), MSG_NOSIGNAL) < 0) _exit(3);
}

// Segments of other adapters and of its own that this process maps.
size_t mapped_segments() {
  std::ifstream maps("/proc/self/maps");
  std::set<std::string> inodes;
  for (std::string line; std::getline(maps, line);) {
    if (line.find("verbena-segment") == std::string::npos) continue;
    std::istringstream words(line);
    std::string range, rights, offset, device, inode;
    words >> range >> rights >> offset >> device >> inode;
    inodes.insert(inode);
  }
  return inodes.size();
}

class Role {
 public:
  Role(ControlBlock& block, std::string program)
      : block_(block), endpoint_(block), program_(std::move(program)) {}

  int run() {
    for (;;) {
      block_.iterations.fetch_add(1, std::memory_order_relaxed);
      const int64_t wait_us = endpoint_.has_active_flow() && !frozen_ ? endpoint_.pump() : -1;
      if (wait_us == 0 && !command_is_there(0)) continue;
      if (!wait(wait_us)) continue;
      std::string line;
      if (!read_line(&line)) return 0;  // the driver has ended
      std::snprintf(block_.doing, sizeof block_.doing, "%s", line.c_str());
      obey(line);
      if (quit_) return 0;
    }
  }

 private:
  bool command_is_there(int timeout_ms) {
    pollfd one = {kCommandFd, POLLIN, 0};
    return poll(&one, 1, timeout_ms) == 1;
  }

  // True: a command is there.
  bool wait(int64_t wait_us) {
    const bool idle = !endpoint_.has_active_flow() || frozen_;
    if (idle) return command_is_there(-1);
    if (endpoint_.channel() == nullptr) {
      if (wait_us < 0) sched_yield();
      return command_is_there(0);
    }
    // Polls once more after arming: a completion that came before raises no event.
    if (wait_us == 0 || !endpoint_.arm()) return command_is_there(0);
    pollfd both[2] = {{kCommandFd, POLLIN, 0}, {endpoint_.channel()->fd, POLLIN, 0}};
    const timespec time = {wait_us / 1'000'000, wait_us % 1'000'000 * 1000};
    ppoll(both, 2, wait_us < 0 ? nullptr : &time, nullptr);
    if ((both[1].revents & POLLIN) != 0) endpoint_.take_event();
    return both[0].revents != 0;
  }

  bool read_line(std::string* line) {
    char c;
    for (;;) {
      const ssize_t got = read(kCommandFd, &c, 1);
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) return false;
      if (c == '\n') return true;
      *line += c;
    }
  }

  void obey(const std::string& line) {
    std::istringstream words(line);
    std::string command;
    words >> command;
    static const std::map<std::string, void (Role::*)(std::istringstream&)> kCommands = {
        {"open", &Role::open},     {"qp", &Role::make_qp},  {"connect", &Role::connect},
        {"start", &Role::start},   {"pause", &Role::pause}, {"verify", &Role::verify},
        {"drop", &Role::drop},     {"state", &Role::state}, {"segments", &Role::segments},
        {"close", &Role::close},   {"quit", &Role::quit},   {"memory", &Role::memory},
        {"step", &Role::step},     {"post", &Role::post},   {"await-exec", &Role::await_exec},
        {"freeze", &Role::freeze}, {"thaw", &Role::thaw},   {"turn", &Role::turn},
        {"poll", &Role::poll_all}};
    const auto found = kCommands.find(command);
    if (found == kCommands.end()) return say("what is " + command + "?");
    (this->*found->second)(words);
  }
  void answer(bool good, const std::string& more = "") {
    say(good ? "ok" + (more.empty() ? "" : " " + more) : std::string("problem: ") + block_.problem);
  }

  void open(std::istringstream& words) {
    int cqe = 0, channel = 0;
    words >> cqe >> channel;
    answer(endpoint_.open(cqe, channel != 0));
  }
  void make_qp(std::istringstream& words) {
    int flow = 0;
    words >> flow;
    PeerAddress own;
    const bool good = endpoint_.make_qp(flow, &own);
    std::ostringstream text;
    text << own.qpn << ' ' << own.rkey << ' ' << own.address;
    answer(good, text.str());
  }
  void connect(std::istringstream& words) {
    int flow = 0, timeout = 0, retry_count = 0;
    PeerAddress peer;
    words >> flow >> peer.qpn >> peer.rkey >> peer.address >> timeout >> retry_count;
    answer(endpoint_.connect(flow, peer, static_cast<uint8_t>(timeout), static_cast<uint8_t>(retry_count)));
  }
  void start(std::istringstream& words) {
    int flow = 0, initiator = 0;
    uint32_t kind = 0;
    FlowPlan plan;
    words >> flow >> kind >> initiator >> plan.salt >> plan.pace_us >> plan.limit;
    plan.kind = static_cast<Kind>(kind);
    plan.initiator = initiator != 0;
    answer(endpoint_.start(flow, plan));
  }
  void pause(std::istringstream& words) {
    int flow = 0;
    words >> flow;
    endpoint_.pause(flow);
    answer(true);
  }
  void verify(std::istringstream& words) {
    int flow = 0;
    uint64_t acknowledged = 0, posted = 0;
    words >> flow >> acknowledged >> posted;
    poll_until_empty();
    answer(endpoint_.verify(flow, acknowledged, posted));
  }
  // An empty poll is no proof: an entry that another producer is just filling may hide those behind it.
  void poll_until_empty() {
    for (int empty = 0; empty < 100;) empty = endpoint_.poll_once() > 0 ? 0 : empty + 1;
  }
  // Times the destruction of a queue pair, in microseconds.
  void drop(std::istringstream& words) {
    int flow = 0;
    words >> flow;
    const auto began = std::chrono::steady_clock::now();
    const bool good = endpoint_.drop(flow);
    const auto took = std::chrono::steady_clock::now() - began;
    answer(good, std::to_string(std::chrono::duration_cast<std::chrono::microseconds>(took).count()));
  }
  void state(std::istringstream& words) {
    int flow = 0;
    words >> flow;
    answer(true, std::to_string(endpoint_.state(flow)));
  }
  void segments(std::istringstream&) { answer(true, std::to_string(mapped_segments())); }
  void close(std::istringstream&) {
    endpoint_.close();
    answer(block_.has_problem.load() == 0);
  }
  void quit(std::istringstream&) {
    endpoint_.close();
    answer(block_.has_problem.load() == 0);
    quit_ = true;
  }
  void memory(std::istringstream&) {
    std::ostringstream text;
    text << reinterpret_cast<uintptr_t>(endpoint_.memory()) << ' ' << endpoint_.memory_size();
    answer(true, text.str());
  }
  void freeze(std::istringstream&) {
    frozen_ = true;
    answer(true);
  }
  void thaw(std::istringstream&) {
    frozen_ = false;
    answer(true);
  }
  // The target of a flow sends the other way: one request, to find out what has become of the peer.
  void turn(std::istringstream& words) {
    int flow = 0;
    words >> flow;
    endpoint_.turn(flow);
    answer(endpoint_.post_next(flow));
  }
  void post(std::istringstream& words) {
    int flow = 0, count = 1;
    words >> flow >> count;
    bool good = true;
    while (good && count-- > 0) good = endpoint_.post_next(flow);
    answer(good);
  }

  void poll_all(std::istringstream&) {
    poll_until_empty();
    answer(block_.has_problem.load() == 0);
  }

  // One call between two marks, for the process that traces this one. No answer: the tracer sees it.
  void step(std::istringstream& words) {
    std::string what;
    int flow = 0;
    words >> what >> flow;
    const auto mark = [] { TRACE_MARK(); };
    if (what == "poll") {
      endpoint_.poll_once(mark);
      return;
    }
    if (what == "send") endpoint_.post_next(flow, mark);
    if (what == "receive") endpoint_.post_receive(flow, kReceives, mark);
    mark();
  }

  void await_exec(std::istringstream&) {
    pthread_t thread;
    std::ostringstream address, size;
    address << reinterpret_cast<uintptr_t>(endpoint_.memory());
    size << endpoint_.memory_size();
    canary_ = {program_, "canary", address.str(), size.str()};
    const auto wait_and_exec = [](void* self) -> void* {
      char byte;
      if (read(kExecFd, &byte, 1) != 1) return nullptr;
      std::vector<char*> arguments;
      for (std::string& word : static_cast<Role*>(self)->canary_) arguments.push_back(word.data());
      arguments.push_back(nullptr);
      execv("/proc/self/exe", arguments.data());
      _exit(4);
    };
    answer(pthread_create(&thread, nullptr, wait_and_exec, this) == 0);
  }

  ControlBlock& block_;
  Endpoint endpoint_;
  std::string program_;
  std::vector<std::string> canary_;
  bool frozen_ = false;  // neither polls nor posts by itself
  bool quit_ = false;
};

// The program that a role becomes: it writes a pattern where the role's memory was and checks that it stays.
int canary(uintptr_t address, size_t size) {
#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif
  auto* place = static_cast<volatile unsigned char*>(
      mmap(reinterpret_cast<void*>(address), size, PROT_READ | PROT_WRITE,
           MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0));
  if (place == MAP_FAILED) return say("cannot map"), 1;
  for (size_t i = 0; i < size; ++i) place[i] = static_cast<unsigned char>(i * 131 >> 3);
  say("ok canary");
  char line[64];
  while (read(kCommandFd, line, sizeof line) > 0) {
    size_t at = 0;
    while (at < size && place[at] == static_cast<unsigned char>(at * 131 >> 3)) ++at;
    say(at == size ? "ok" : "byte " + std::to_string(at) + " of the new program was written to");
  }
  return 0;
}

}  // namespace
}  // namespace verbena::crash

int main(int count, char** arguments) {
  using namespace verbena::crash;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (count == 4 && std::strcmp(arguments[1], "canary") == 0)
    return canary(std::stoull(arguments[2]), std::stoull(arguments[3]));
  ControlBlock* block = map_block();
  if (block == nullptr) return 2;
  return Role(*block, arguments[0]).run();
}
