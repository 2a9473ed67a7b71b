// SPDX-License-Identifier: BSD-2-Clause
//
// What queue pairs cost a process that does nothing: opens the first verbs device, connects RC QPs to one
// another in pairs, and reports memory per QP and the CPU time of a sleep. Prints one line of JSON. Links
// libibverbs only, so it runs on any adapter.
//
//   verbena_bench_idle_qps [--qps N] [--depth WORK_REQUESTS] [--seconds S]
//
// Memory is what the process holds in pages of its own (smaps_rollup, proc(5)) plus what its memfds hold,
// because a queue's memory may be reserved in a segment that nobody has touched yet. CPU time is that of all
// its threads.
#include <dirent.h>
#include <infiniband/verbs.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "rc_qp.h"

namespace verbena::bench {
namespace {

struct Options {
  uint32_t qps = 1000;
  uint32_t depth = 16;
  uint32_t seconds = 2;
};

int64_t rollup_bytes(std::string_view field) {
  FILE* file = std::fopen("/proc/self/smaps_rollup", "re");
  if (file == nullptr) die("smaps_rollup", errno);
  char line[256];
  int64_t kilobytes = 0;
  while (std::fgets(line, sizeof line, file) != nullptr) {
    if (std::string_view(line).starts_with(field)) {
      kilobytes = std::strtoll(line + field.size(), nullptr, 10);
      break;
    }
  }
  std::fclose(file);
  return kilobytes * 1024;
}

// Bytes that the memfds of this process hold, each counted once however often it is open.
int64_t memfd_bytes() {
  DIR* folder = opendir("/proc/self/fd");
  if (folder == nullptr) die("/proc/self/fd", errno);
  std::set<std::pair<dev_t, ino_t>> seen;
  int64_t bytes = 0;
  while (const dirent* entry = readdir(folder)) {
    const std::string path = std::string("/proc/self/fd/") + entry->d_name;
    char target[256];
    const ssize_t length = readlink(path.c_str(), target, sizeof target);
    if (length <= 0) continue;
    const std::string_view name(target, static_cast<size_t>(length));
    if (!name.starts_with("/memfd:") && !name.starts_with("/dev/shm/")) continue;
    struct stat status;
    if (fstat(std::atoi(entry->d_name), &status) != 0) continue;
    if (seen.emplace(status.st_dev, status.st_ino).second) bytes += int64_t{status.st_blocks} * 512;
  }
  closedir(folder);
  return bytes;
}

struct Memory {
  int64_t resident, anonymous, shared, memfd;
  // Touched pages of a memfd are in `resident` and in `memfd`: take the larger count.
  int64_t held() const { return std::max(resident, anonymous + memfd); }
};

Memory memory_now() {
  return {rollup_bytes("Rss:"), rollup_bytes("Anonymous:"),
          rollup_bytes("Shared_Clean:") + rollup_bytes("Shared_Dirty:"), memfd_bytes()};
}

struct CpuUse {
  int64_t ticks;        // user + system of all threads, clock ticks (sysconf(_SC_CLK_TCK) per second)
  double microseconds;  // the same, as the scheduler counts it
  int64_t wake_ups;     // voluntary context switches
};

CpuUse cpu_now() {
  FILE* file = std::fopen("/proc/self/stat", "re");
  if (file == nullptr) die("stat", errno);
  char line[1024] = {};
  const size_t length = std::fread(line, 1, sizeof line - 1, file);
  std::fclose(file);
  line[length] = 0;
  const char* after_name = std::strrchr(line, ')');  // the name may hold blanks; field 2 of proc(5)
  long user = 0, system = 0;
  if (after_name == nullptr ||
      std::sscanf(after_name + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %ld %ld", &user, &system) !=
          2) {
    die("stat", EINVAL);
  }
  timespec spent{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &spent);
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return {user + system, static_cast<double>(spent.tv_sec) * 1e6 + static_cast<double>(spent.tv_nsec) / 1e3,
          usage.ru_nvcsw};
}

std::vector<ibv_qp*> create_qps(ibv_pd* pd, ibv_cq* cq, const Options& options) {
  std::vector<ibv_qp*> qps;
  qps.reserve(options.qps);
  for (uint32_t i = 0; i < options.qps; ++i) qps.push_back(create_rc_qp(pd, cq, options.depth));
  return qps;
}

Options parse(int argc, char** argv) {
  Options options;
  const std::pair<std::string_view, uint32_t*> table[] = {
      {"--qps", &options.qps}, {"--depth", &options.depth}, {"--seconds", &options.seconds}};
  for (int i = 1; i < argc; i += 2) {
    const auto* entry = std::find_if(std::begin(table), std::end(table),
                                     [&](const auto& each) { return each.first == argv[i]; });
    const long value = i + 1 < argc ? std::strtol(argv[i + 1], nullptr, 10) : 0;
    if (entry == std::end(table) || value <= 0 || value > 100000) {
      std::fprintf(stderr, "usage: verbena_bench_idle_qps [--qps N] [--depth N] [--seconds N]\n");
      std::exit(2);
    }
    *entry->second = static_cast<uint32_t>(value);
  }
  return options;
}

int run(int argc, char** argv) {
  const Options options = parse(argc, argv);
  const Memory before = memory_now();

  ibv_context* context = open_first_device();
  const Port port = query_port(context);
  ibv_pd* pd = ibv_alloc_pd(context);
  if (pd == nullptr) die("ibv_alloc_pd", errno);
  ibv_cq* cq = ibv_create_cq(context, 4096, nullptr, nullptr, 0);
  if (cq == nullptr) die("ibv_create_cq", errno);

  const Memory opened = memory_now();
  const std::vector<ibv_qp*> qps = create_qps(pd, cq, options);
  for (size_t i = 0; i < qps.size(); ++i) {
    const size_t peer = (i ^ 1) < qps.size() ? i ^ 1 : i;  // without a partner: connected to itself
    connect(qps[i], qps[peer]->qp_num, {port.gid, port.attributes.lid}, port);
  }
  const Memory created = memory_now();

  const CpuUse cpu_before = cpu_now();
  const timespec rest{static_cast<time_t>(options.seconds), 0};
  nanosleep(&rest, nullptr);
  const CpuUse cpu_after = cpu_now();

  std::printf(
      "{\"qps\": %u, \"depth\": %u, \"seconds\": %u, \"bytes_per_qp\": %.0f, \"resident_bytes_per_qp\": "
      "%.0f, "
      "\"shared_bytes_per_qp\": %.0f, \"memfd_bytes_per_qp\": %.0f, \"open_device_bytes\": %lld, "
      "\"cpu_ticks\": %lld, \"cpu_microseconds\": %.1f, \"cpu_percent\": %.4f, \"wake_ups\": %lld}\n",
      options.qps, options.depth, options.seconds,
      static_cast<double>(created.held() - opened.held()) / options.qps,
      static_cast<double>(created.resident - opened.resident) / options.qps,
      static_cast<double>(created.shared - opened.shared) / options.qps,
      static_cast<double>(created.memfd - opened.memfd) / options.qps,
      static_cast<long long>(opened.held() - before.held()),
      static_cast<long long>(cpu_after.ticks - cpu_before.ticks),
      cpu_after.microseconds - cpu_before.microseconds,
      (cpu_after.microseconds - cpu_before.microseconds) / (options.seconds * 1e4),
      static_cast<long long>(cpu_after.wake_ups - cpu_before.wake_ups));

  for (ibv_qp* qp : qps) ibv_destroy_qp(qp);
  ibv_destroy_cq(cq);
  ibv_dealloc_pd(pd);
  ibv_close_device(context);
  return 0;
}

}  // namespace
}  // namespace verbena::bench

int main(int argc, char** argv) { return verbena::bench::run(argc, argv); }
