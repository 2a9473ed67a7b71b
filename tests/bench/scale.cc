// SPDX-License-Identifier: BSD-2-Clause
//
// What many objects, and single calls that move nothing, cost a process: one measure per call, one line of
// JSON. Links libibverbs only, so it runs on any adapter. Times are in microseconds.
//
//   verbena_bench_scale MEASURE [NUMBER]
//
// Memory is what the process holds in pages of its own (smaps_rollup, proc(5)), and shared pages that it has
// touched.
#include <infiniband/verbs.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "rc_qp.h"

namespace verbena::bench {
namespace {

constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
constexpr unsigned kTimeLimitSeconds = 55;

class Stopwatch {
 public:
  double us() const {
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin_).count();
  }

 private:
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

double resident_bytes() {
  FILE* const file = std::fopen("/proc/self/smaps_rollup", "re");
  if (file == nullptr) die("smaps_rollup", errno);
  char line[256];
  double kilobytes = 0;
  while (std::fgets(line, sizeof line, file) != nullptr)
    if (std::sscanf(line, "Rss: %lf", &kilobytes) == 1) break;
  std::fclose(file);
  return kilobytes * 1024;
}

char* map_pages(size_t size) {
  void* const memory =
      mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (memory == MAP_FAILED) die("mmap", errno);
  return static_cast<char*>(memory);
}

struct Device {
  ibv_context* context = open_first_device();
  Port port = query_port(context);
  ibv_pd* pd = ibv_alloc_pd(context);
  ibv_cq* cq = ibv_create_cq(context, 4096, nullptr, nullptr, 0);
  Device() {
    if (pd == nullptr || cq == nullptr) die("ibv_alloc_pd, ibv_create_cq", errno);
  }
};

// Makes `number` objects by make(), and ends them by end(object).
template <typename Make, typename End>
void time_objects(const char* what, size_t number, Make make, End end) {
  using Object = decltype(make());
  std::vector<Object> objects(number);  // its pages are touched here
  const double before = resident_bytes();
  const Stopwatch making;
  for (Object& object : objects)
    if ((object = make()) == nullptr) die(what, errno);
  const double made = making.us();
  const double held = resident_bytes() - before;
  const Stopwatch ending;
  for (Object& object : objects)
    if (const int error = end(object)) die(what, error);
  const auto count = static_cast<double>(number);
  std::printf("{\"number\": %zu, \"create_us\": %.3f, \"destroy_us\": %.3f, \"bytes_each\": %.0f}\n", number,
              made / count, ending.us() / count, held / count);
}

void queue_pairs(size_t number) {
  const Device device;
  const auto make = [&] { return create_rc_qp(device.pd, device.cq, 16); };
  time_objects("ibv_create_qp", number, make, ibv_destroy_qp);
}

void completion_queues(size_t number) {
  const Device device;
  const auto make = [&] { return ibv_create_cq(device.context, 16, nullptr, nullptr, 0); };
  time_objects("ibv_create_cq", number, make, ibv_destroy_cq);
}

// Page by page, of one mapping.
void regions(size_t number) {
  const Device device;
  char* const memory = map_pages(4096 * number);
  size_t next = 0;
  const auto make = [&] { return ibv_reg_mr(device.pd, memory + 4096 * next++, 4096, kAccess); };
  time_objects("ibv_reg_mr", number, make, [](ibv_mr* mr) { return ibv_dereg_mr(mr); });
}

// One region of `size` bytes: the first time, and the least of further ones.
void registration(size_t size) {
  const Device device;
  char* const memory = map_pages(size);
  double first = 0, least = 1e12, least_end = 1e12;
  for (int i = 0; i < 12; ++i) {
    const Stopwatch begin;
    ibv_mr* const mr = ibv_reg_mr(device.pd, memory, size, kAccess);
    const double taken = begin.us();
    if (mr == nullptr) die("ibv_reg_mr", errno);
    if (i == 0) first = taken;
    if (i > 0) least = std::min(least, taken);
    const Stopwatch end;
    if (const int error = ibv_dereg_mr(mr)) die("ibv_dereg_mr", error);
    least_end = std::min(least_end, end.us());
  }
  std::printf("{\"size\": %zu, \"first_us\": %.2f, \"again_us\": %.2f, \"deregister_us\": %.2f}\n", size,
              first, least, least_end);
}

// Calls of ibv_poll_cq(3) that find nothing.
void poll_empty(size_t number) {
  const Device device;
  ibv_wc wc;
  double least = 1e12;
  constexpr int kBatch = 100;
  for (size_t done = 0; done < number; done += kBatch) {
    const Stopwatch begin;
    for (int i = 0; i < kBatch; ++i)
      if (ibv_poll_cq(device.cq, 1, &wc) != 0) die("ibv_poll_cq", "a completion came from nowhere");
    least = std::min(least, begin.us() / kBatch);
  }
  std::printf("{\"poll_us\": %.4f}\n", least);
}

// SENDs of 8 bytes to a queue pair of this process: one by one, and in a list of 32. Posting alone is timed.
void post_list(size_t number) {
  constexpr int kList = 32;
  const Device device;
  ibv_qp* const from = create_rc_qp(device.pd, device.cq, 2 * kList);
  ibv_qp* const to = create_rc_qp(device.pd, device.cq, 2 * kList);
  const Destination here{device.port.gid, device.port.attributes.lid};
  connect(from, to->qp_num, here, device.port);
  connect(to, from->qp_num, here, device.port);
  char* const memory = map_pages(4096);
  ibv_mr* const mr = ibv_reg_mr(device.pd, memory, 4096, kAccess);
  if (mr == nullptr) die("ibv_reg_mr", errno);
  ibv_sge sge{reinterpret_cast<uint64_t>(memory), 8, mr->lkey};
  ibv_recv_wr receives[kList]{};
  ibv_send_wr sends[kList]{};
  for (int i = 0; i < kList; ++i) {
    receives[i].sg_list = sends[i].sg_list = &sge;
    receives[i].num_sge = sends[i].num_sge = 1;
    receives[i].next = i + 1 < kList ? &receives[i + 1] : nullptr;
    sends[i].opcode = IBV_WR_SEND;
  }
  sends[kList - 1].send_flags = IBV_SEND_SIGNALED;
  double least[2] = {1e12, 1e12};
  for (size_t round = 0; round < 2 * number / kList; ++round) {
    const bool as_list = round % 2 != 0;
    for (int i = 0; i < kList; ++i) sends[i].next = as_list && i + 1 < kList ? &sends[i + 1] : nullptr;
    ibv_recv_wr* bad_receive = nullptr;
    ibv_send_wr* bad_send = nullptr;
    if (const int error = ibv_post_recv(to, receives, &bad_receive)) die("ibv_post_recv", error);
    const Stopwatch begin;
    for (int i = 0; i < (as_list ? 1 : kList); ++i)
      if (const int error = ibv_post_send(from, &sends[i], &bad_send)) die("ibv_post_send", error);
    least[as_list] = std::min(least[as_list], begin.us() / kList);
    ibv_wc wc[kList + 1];
    for (int seen = 0; seen < kList + 1;) {
      const int got = ibv_poll_cq(device.cq, kList + 1, wc);
      if (got < 0 || std::any_of(wc, wc + got, [](const ibv_wc& each) { return each.status != 0; }))
        die("ibv_poll_cq", "a message has failed");
      seen += got;
    }
  }
  std::printf("{\"single_us\": %.4f, \"list_us\": %.4f}\n", least[0], least[1]);
}

// Of twenty from `first` on.
double median(const std::vector<double>& values, size_t first) {
  const size_t last = std::min(first + 20, values.size());
  std::vector<double> some(values.begin() + static_cast<ptrdiff_t>(first),
                           values.begin() + static_cast<ptrdiff_t>(last));
  std::sort(some.begin(), some.end());
  return some[some.size() / 2];
}

// `number` processes, each of which opens the device and keeps it open: what that takes the first twenty and
// the last, in the median.
void processes(size_t number) {
  int opened[2], stay[2];
  if (pipe(opened) != 0 || pipe(stay) != 0) die("pipe", errno);
  std::vector<double> taken(number);
  for (double& each : taken) {
    const pid_t child = fork();
    if (child < 0) die("fork", errno);
    if (child == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      close(stay[1]);
      const Stopwatch begin;
      open_first_device();
      const double us = begin.us();
      char byte;
      if (write(opened[1], &us, sizeof us) == sizeof us && read(stay[0], &byte, 1) == 0) _exit(0);
      _exit(1);
    }
    if (read(opened[0], &each, sizeof each) != sizeof each) die("read", errno);
  }
  close(stay[1]);
  while (wait(nullptr) > 0) {
  }
  std::printf("{\"number\": %zu, \"first_us\": %.1f, \"last_us\": %.1f}\n", number, median(taken, 0),
              median(taken, number < 20 ? 0 : number - 20));
}

struct Measure {
  std::string_view name;
  void (*run)(size_t);
  size_t number;  // unless another one is given
};

constexpr Measure kMeasures[] = {
    {"completion_queues", completion_queues, 10'000},
    {"poll_empty", poll_empty, 1'000'000},
    {"post_list", post_list, 500'000},
    {"processes", processes, 1'000},
    {"queue_pairs", queue_pairs, 10'000},
    {"regions", regions, 100'000},
    {"registration", registration, 1 << 20},
};

int run(int argc, char** argv) {
  const auto* const measure =
      std::find_if(std::begin(kMeasures), std::end(kMeasures),
                   [&](const Measure& each) { return argc > 1 && each.name == argv[1]; });
  const size_t number = measure == std::end(kMeasures) ? 0
                        : argc > 2                     ? std::strtoull(argv[2], nullptr, 10)
                                                       : measure->number;
  if (number == 0) {
    std::fprintf(stderr, "usage: verbena_bench_scale MEASURE [NUMBER]\nmeasures:");
    for (const Measure& each : kMeasures) std::fprintf(stderr, " %s", each.name.data());
    std::fprintf(stderr, "\n");
    return 2;
  }
  alarm(kTimeLimitSeconds);
  measure->run(number);
  return 0;
}

}  // namespace
}  // namespace verbena::bench

int main(int argc, char** argv) { return verbena::bench::run(argc, argv); }
