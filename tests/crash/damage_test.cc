// SPDX-License-Identifier: BSD-2-Clause
//
// Any word of what processes share is damaged while they use it: the node directory, the id table, the
// segments of adapters. Whatever the value, nobody crashes, and no call takes longer than a second. What a
// call returns does not matter.
//
// DAMAGE_COUNT: how many words (default 1,000). DAMAGE_SEED: the seed that a run printed. DAMAGE_DEBUGGER: a
// command to run on a process that crashes or is too long in a call, such as "gdb -batch -ex bt -p".
#include <dirent.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <map>
#include <random>

#include "adapter/clock.h"
#include "crash/damage_worker.h"
#include "fabric/descriptor.h"
#include "unit/common/temporary_node.h"

namespace verbena::damage {
namespace {

constexpr uint32_t kPerNode = 40;            // words; then the processes end, and a new node begins
constexpr int64_t kLongest = 2'000'000'000;  // ns; a second, and another because the machine may be busy
constexpr int64_t kPatience = 20'000'000'000;

uint64_t number_of(const char* variable, uint64_t usual) {
  const char* text = getenv(variable);
  return text != nullptr ? strtoull(text, nullptr, 0) : usual;
}

// A file that processes share, and where it has data.
struct Target {
  std::string name;
  std::shared_ptr<Descriptor> file;
  std::vector<std::pair<off_t, off_t>> data;
};

struct Change {
  std::string where;
  off_t at;
  uint64_t before, after;
};

std::shared_ptr<Descriptor> open_shared(const std::string& path) {
  return std::make_shared<Descriptor>(open(path.c_str(), O_RDWR | O_CLOEXEC));
}

class Damage : public ::testing::Test {
 protected:
  void SetUp() override {
    seed = number_of("DAMAGE_SEED", std::random_device()());
    printf("DAMAGE_SEED=%llu\n", static_cast<unsigned long long>(seed));
    random.seed(seed);
    void* memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(memory, MAP_FAILED);
    shared = static_cast<Shared*>(memory);
  }
  void TearDown() override {
    for (uint32_t i = 0; i < kWorkers; ++i) kill_worker(i);
    munmap(shared, sizeof(Shared));
  }
  uint64_t any(uint64_t below) { return random() % below; }

  // ---- workers ----

  void start_worker(uint32_t i, const TemporaryNode& node) {
    new (&shared->workers[i]) Report{};
    const GidEntry& gid = node.directory().devices().devices[0].ports[0].gids[0];
    const uint64_t its_seed = random();
    pids[i] = fork();
    if (pids[i] == 0) {
      targets.clear();  // of this process alone
      if (getenv("DAMAGE_DEBUGGER") != nullptr)
        for (int number : {SIGSEGV, SIGABRT, SIGBUS, SIGFPE, SIGILL})
          signal(number, [](int) {
            run_debugger(getenv("DAMAGE_DEBUGGER"), getpid());
            _exit(1);
          });
      _exit(work(*shared, i, gid, its_seed));
    }
    ASSERT_GT(pids[i], 0);
  }
  void kill_worker(uint32_t i) {
    if (pids[i] <= 0) return;
    kill(pids[i], SIGKILL);
    waitpid(pids[i], nullptr, 0);
    pids[i] = 0;
  }
  uint64_t calls() const {
    uint64_t sum = 0;
    for (const Report& report : shared->workers) sum += report.calls;
    return sum;
  }
  bool alive() const { return pids[0] > 0 || pids[1] > 0 || pids[2] > 0; }

  // Has any worker crashed, or is any too long in a call?
  void look_at_workers() {
    for (uint32_t i = 0; i < kWorkers; ++i) {
      if (pids[i] <= 0) continue;
      const Report& report = shared->workers[i];
      int status = 0;
      if (waitpid(pids[i], &status, WNOHANG) == pids[i]) {
        pids[i] = 0;
        if (WIFEXITED(status) && WEXITSTATUS(status) == 0) continue;
        const char* name = report.call;
        ADD_FAILURE() << "worker " << i << " crashed in " << (name != nullptr ? name : "no call")
                      << ", status " << status << changes();
        continue;
      }
      const int64_t since = report.since_ns;
      const char* name = report.call;
      const int64_t took = name != nullptr && since == report.since_ns ? now_ns() - since : 0;
      if (name != nullptr && took > longest[name]) longest[name] = took;
      if (took < kLongest) continue;
      ADD_FAILURE() << "worker " << i << " (pid " << pids[i] << ") is in " << name << " for "
                    << took / 1'000'000 << " ms" << changes();
      if (const char* command = getenv("DAMAGE_DEBUGGER")) run_debugger(command, pids[i]);
      kill_worker(i);
    }
  }
  static void run_debugger(const std::string& command, pid_t pid) {
    fflush(stdout);
    [[maybe_unused]] const int status = system((command + " " + std::to_string(pid)).c_str());
  }
  std::string changes() const {
    std::string text = "\nafter";
    for (const Change& change : made) {
      char line[200];
      snprintf(line, sizeof line, "\n  %s at %#llx: %#llx -> %#llx", change.where.c_str(),
               static_cast<unsigned long long>(change.at), static_cast<unsigned long long>(change.before),
               static_cast<unsigned long long>(change.after));
      text += line;
    }
    return text;
  }

  // ---- targets ----

  void find_targets(const TemporaryNode& node) {
    targets.clear();
    for (const char* name : {"directory", "cm-ids"}) add_target(name, open_shared(node.path() + "/" + name));
    for (pid_t pid : pids)
      if (pid > 0) find_segments(pid);
  }
  void find_segments(pid_t pid) {
    const std::string folder = "/proc/" + std::to_string(pid) + "/fd";
    DIR* const listing = opendir(folder.c_str());
    if (listing == nullptr) return;
    while (const dirent* entry = readdir(listing)) {
      const std::string path = folder + "/" + entry->d_name;
      char link[100] = {};
      if (readlink(path.c_str(), link, sizeof link - 1) <= 0) continue;
      if (std::string_view(link).find("memfd:verbena-segment") == std::string_view::npos) continue;
      add_target("segment of " + std::to_string(pid), open_shared(path));
    }
    closedir(listing);
  }
  void add_target(const std::string& name, std::shared_ptr<Descriptor> file) {
    if (file->fd < 0) return;
    Target target{name, std::move(file), {}};
    for (off_t at = 0;;) {
      const off_t begin = lseek(target.file->fd, at, SEEK_DATA);
      if (begin < 0) break;
      at = lseek(target.file->fd, begin, SEEK_HOLE);
      target.data.emplace_back(begin, at);
    }
    if (!target.data.empty()) targets.push_back(std::move(target));
  }

  // Damages one word. Words in use, which are not 0, more often than others.
  void damage() {
    if (targets.empty()) return;
    const Target& target = targets[any(targets.size())];
    const auto [begin, end] = target.data[any(target.data.size())];
    uint64_t value = 0;
    off_t at = 0;
    for (int tries = 0; tries < 40 && value == 0; ++tries) {
      at = begin + static_cast<off_t>(any(static_cast<uint64_t>(end - begin) / 8) * 8);
      if (pread(target.file->fd, &value, 8, at) != 8) return;
    }
    const uint64_t before = value;
    constexpr uint64_t kInteresting[] = {0,          1,          2,          64,         255,       4096,
                                         0x7fffffff, 0x80000000, 0xffffffff, 1ull << 33, UINT64_MAX};
    switch (any(5)) {
      case 0:
        value = random();
        break;
      case 1:
        value ^= uint64_t{1} << any(64);
        break;
      case 2:
        value += any(2) != 0 ? 1 : uint64_t{1} << 32;
        break;
      default:
        value = kInteresting[any(std::size(kInteresting))];
        break;
    }
    const size_t width = any(2) != 0 ? 8 : 4;
    made.push_back({target.name, at, before, value});
    [[maybe_unused]] const ssize_t written = pwrite(target.file->fd, &value, width, at);
  }

  // ---- a node's end ----

  void await_calls(uint64_t more, int64_t at_most_ns) {
    const uint64_t wanted = calls() + more;
    for (const int64_t end = now_ns() + at_most_ns; calls() < wanted && now_ns() < end && !HasFailure();) {
      look_at_workers();
      usleep(200);
    }
  }
  void ruin_one_node() {
    const TemporaryNode node({.count = 1});
    shared->stop = false;
    made.clear();
    start_worker(0, node);
    start_worker(1, node);
    await_calls(200, kPatience);
    find_targets(node);
    for (uint32_t i = 0; i < kPerNode && !HasFailure(); ++i) {
      damage();
      await_calls(30, 3'000'000);
      if (i == kPerNode / 2) {
        if (any(2) != 0) kill_worker(static_cast<uint32_t>(any(2)));
        start_worker(2, node);
      }
      if (i % 8 == 7) find_targets(node);
    }
    damaged += made.size();
    shared->stop = true;
    for (const int64_t end = now_ns() + kPatience; alive() && now_ns() < end; usleep(500)) look_at_workers();
    EXPECT_FALSE(alive());
    for (const Report& report : shared->workers) completions += report.completions;
  }

  uint64_t seed = 0, damaged = 0, completions = 0;
  std::mt19937_64 random;
  Shared* shared = nullptr;
  pid_t pids[kWorkers] = {};
  std::vector<Target> targets;
  std::vector<Change> made;
  std::map<std::string, int64_t> longest;
};

TEST_F(Damage, OfAnyWordHarmsNobody) {
  const uint64_t count = number_of("DAMAGE_COUNT", 1000);
  uint64_t nodes = 0;
  for (; damaged < count && !HasFailure(); ++nodes) ruin_one_node();
  printf("%llu words on %llu nodes; %llu requests succeeded. Longest calls:\n",
         static_cast<unsigned long long>(damaged), static_cast<unsigned long long>(nodes),
         static_cast<unsigned long long>(completions));
  for (const auto& [name, time] : longest)
    if (time > 20'000'000) printf("  %s: %lld ms\n", name.c_str(), static_cast<long long>(time / 1'000'000));
  EXPECT_GT(completions, count);  // else little was in use
}

}  // namespace
}  // namespace verbena::damage
