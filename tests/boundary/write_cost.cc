// SPDX-License-Identifier: BSD-2-Clause
//
// Prints the median cost of one write(2) of a byte to /dev/null, of one stat of a path of no interest, and of
// one open/close of it. Run it plain and under the preload.
#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <vector>

namespace {

double now() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) * 1e9 + static_cast<double>(time.tv_nsec);
}

template <typename Work>
void measure(const char* name, Work work) {
  constexpr int kRounds = 51;
  constexpr int kCalls = 20'000;
  std::vector<double> rounds;
  for (int round = 0; round < kRounds; ++round) {
    const double start = now();
    for (int i = 0; i < kCalls; ++i) work();
    rounds.push_back((now() - start) / kCalls);
  }
  std::nth_element(rounds.begin(), rounds.begin() + kRounds / 2, rounds.end());
  std::printf("%-28s %8.1f ns\n", name, rounds[kRounds / 2]);
}

}  // namespace

int main() {
  const int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
  measure("write, 1 byte to /dev/null", [&] { (void)!write(null, "x", 1); });
  struct stat status;
  constexpr char kPath[] = "/usr/share/doc/libc6/copyright";
  measure("stat", [&] { (void)!stat(kPath, &status); });
  measure("open and close", [&] { close(open("/dev/null", O_RDONLY | O_CLOEXEC)); });
  return 0;
}
