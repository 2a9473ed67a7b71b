// SPDX-License-Identifier: BSD-2-Clause
//
// allocator_storm SECONDS: threads allocate, register, deregister and free blocks, while the process forks.
// Run under an allocator that gives memory back to the kernel at once, and may hold its locks while it does
// so, it shows that no thread waits for another one's lock on end, and that no byte is lost. Prints how often
// it has done what.
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <random>
#include <thread>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;
constexpr int kThreads = 3;
constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

std::atomic<bool> is_wrong{false};

bool is_all(const std::vector<char*>& blocks, size_t size, char value) {
  for (const char* block : blocks)
    if (block[0] != value || block[size / 2] != value || block[size - 1] != value) return false;
  return true;
}

unsigned allocate_until(Clock::time_point end, ibv_pd* pd, unsigned seed) {
  std::minstd_rand random(seed);
  unsigned rounds = 0;
  for (; Clock::now() < end; ++rounds) {
    const size_t size = 4096 * (1 + random() % 256);
    const char value = static_cast<char>(random());
    std::vector<char*> blocks;
    std::vector<ibv_mr*> regions;
    for (int i = 0; i < 4; ++i) {
      blocks.push_back(static_cast<char*>(malloc(size)));
      memset(blocks.back(), value, size);
      regions.push_back(ibv_reg_mr(pd, blocks.back(), size, kAccess));
    }
    if (!is_all(blocks, size, value)) is_wrong = true;
    for (ibv_mr* region : regions)
      if (region == nullptr || ibv_dereg_mr(region) != 0) is_wrong = true;
    if (!is_all(blocks, size, value)) is_wrong = true;
    for (char* block : blocks) free(block);
  }
  return rounds;
}

// A child has the memory as of the fork, and an allocator that works.
bool fork_child(const char* bytes, size_t size) {
  const pid_t child = fork();
  if (child == 0) {
    for (int i = 0; i < 64; ++i) {
      char* const block = static_cast<char*>(malloc(4096 * (1 + i)));
      memset(block, i, 4096);
      free(block);
    }
    _exit(bytes[0] == 7 && bytes[size - 1] == 7 ? 0 : 1);
  }
  int status = 0;
  return waitpid(child, &status, 0) == child && status == 0;
}

}  // namespace

int main(int argc, char** argv) {
  const auto end =
      Clock::now() + std::chrono::milliseconds(static_cast<int>(1000 * atof(argc > 1 ? argv[1] : "1")));
  ibv_device** const list = ibv_get_device_list(nullptr);
  ibv_context* const context = list != nullptr && list[0] != nullptr ? ibv_open_device(list[0]) : nullptr;
  ibv_pd* const pd = context != nullptr ? ibv_alloc_pd(context) : nullptr;
  if (pd == nullptr) return fprintf(stderr, "no device\n"), 2;
  std::atomic<unsigned> rounds{0};
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < kThreads; ++i)
    threads.emplace_back([&, i] { rounds += allocate_until(end, pd, i + 1); });
  constexpr size_t kSize = 256 * 1024;
  unsigned forks = 0;
  for (; Clock::now() < end; ++forks) {
    char* const bytes = static_cast<char*>(malloc(kSize));
    memset(bytes, 7, kSize);
    ibv_mr* const region = ibv_reg_mr(pd, bytes, kSize, kAccess);
    if (region == nullptr || !fork_child(bytes, kSize) || ibv_dereg_mr(region) != 0) is_wrong = true;
    free(bytes);
  }
  for (std::thread& thread : threads) thread.join();
  printf("%u rounds, %u forks%s\n", rounds.load(), forks, is_wrong ? ", bytes lost" : "");
  ibv_dealloc_pd(pd);
  ibv_close_device(context);
  ibv_free_device_list(list);
  return is_wrong ? 1 : 0;
}
