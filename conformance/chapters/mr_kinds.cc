// SPDX-License-Identifier: BSD-2-Clause
//
// Memory of other kinds: regions with relaxed ordering, huge pages. And atomics beside those of the CPU.
#include <infiniband/verbs.h>
#include <sys/mman.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "support/pair.h"
#include "support/pattern.h"

namespace conformance::mr_kinds_chapter {
namespace {

using Fixture = PairTest;

CONFORMANCE_TEST(mr, RelaxedOrderingIsOfAccessesOnly, "ibv_reg_mr.relaxed-ordering") {
  constexpr uint32_t length = 8192;
  PairSpec spec;
  pair(spec);
  End& own = pair().native().end;
  const Buffer buffer(length);
  // The macro, not the function of the same name: it drops the flag where the kernel does not know it.
  const Mr mr(
      ibv_reg_mr(own.pd, buffer.data(), length, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_RELAXED_ORDERING));
  if (!mr)
    throw NotTested{"such a region is refused with " + errno_text(errno) + ": ibv_reg_mr.optional-flag"};
  for (uint64_t round = 1; round <= 50; ++round) {
    far().fill_pattern(0, length, round);
    ibv_sge element = {buffer.address(), length, mr->lkey};
    ibv_recv_wr wr = {round, nullptr, &element, 1};
    ibv_recv_wr* bad = nullptr;
    ASSERT_EQ(CALL(ibv_post_recv(own.qp, &wr, &bad)), 0);
    ASSERT_EQ(far().post(send_request({{0, length}})), 0);
    const ibv_wc wc = completion(own.cq);
    ASSERT_EQ(wc.status, IBV_WC_SUCCESS) << wc_text(wc);
    ASSERT_EQ(differs_at(buffer.data(), length, round), length) << "the first byte that is not there";
    ASSERT_EQ(far().completion().status, IBV_WC_SUCCESS);
  }
}

// Two huge pages.
class HugePages {
 public:
  HugePages() {
    void* const memory = mmap(nullptr, size, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | MAP_POPULATE, -1, 0);
    if (memory == MAP_FAILED) throw NotTested{"no huge pages: mmap: " + errno_text(errno)};
    data_ = static_cast<uint8_t*>(memory);
  }
  ~HugePages() { munmap(data_, size); }
  HugePages(const HugePages&) = delete;
  HugePages& operator=(const HugePages&) = delete;

  uint8_t* data() const { return data_; }

  static constexpr size_t page = 2u << 20, size = 2 * page;

 private:
  uint8_t* data_;
};

CONFORMANCE_TEST(mr, HugePagesAreMemory, "ibv_reg_mr.huge-pages") {
  const HugePages memory;
  PairSpec spec;
  spec.both.buffer = 65536;
  pair(spec);
  End& own = pair().native().end;
  // From the midst of the first page to the midst of the second.
  constexpr size_t offset = 4096 + 8, length = HugePages::page + 65536;
  uint8_t* const first = memory.data() + offset;
  const Mr mr(CALL((ibv_reg_mr)(own.pd, first, length, all_remote_access & ~IBV_ACCESS_REMOTE_ATOMIC)));
  ASSERT_NE(mr, nullptr) << errno_text(errno);
  far().fill_pattern(0, 32768, 5);
  for (const size_t at : {size_t{0}, HugePages::page - offset - 16384, length - 32768}) {
    SendRequest write = send_request({{0, 32768}}, 1, IBV_WR_RDMA_WRITE);
    write.remote = reinterpret_cast<uint64_t>(first + at);
    write.rkey = mr->rkey;
    ASSERT_EQ(far().post(write), 0);
    ASSERT_EQ(far().completion().status, IBV_WC_SUCCESS) << "at " << at;
    EXPECT_EQ(differs_at(first + at, 32768, 5), 32768u) << "at " << at;
    far().fill(32768, 32768, Buffer::untouched);
    ASSERT_EQ(far().receive(32768, 32768), 0);
    ibv_sge element = {write.remote, 32768, mr->lkey};
    ibv_send_wr send = own.request(IBV_WR_SEND, &element);
    ASSERT_TRUE(succeeded(own.post(send)));
    ASSERT_EQ(completion(own.cq).status, IBV_WC_SUCCESS);
    ASSERT_EQ(far().received().status, IBV_WC_SUCCESS);
    EXPECT_TRUE(far().has_pattern(32768, 32768, 5)) << "at " << at;
  }
  EXPECT_EQ(first[-1], 0);
  EXPECT_EQ(first[length], 0);
}

// The far end adds to a word to which a thread of this process adds as well. On a busy machine the two need
// not run at the same time: the device adds on until the thread has added during ten of its rounds, or for 10
// s.
CONFORMANCE_TEST_AS(Traits().limit(30), atomic, BesideTheCpus, "atomic.global") {
  if (device().attributes().atomic_cap != IBV_ATOMIC_GLOB)
    throw NotClaimed{"atomic_cap is not IBV_ATOMIC_GLOB"};
  constexpr uint32_t times = 2000;  // in a round
  constexpr int least_rounds = 10, most_rounds = 1000;
  if (!pair().has_atomics()) throw NotTested{"the far end has no atomics"};
  End& own = pair().native().end;
  uint64_t* const word = reinterpret_cast<uint64_t*>(own.buffer.data());
  __atomic_store_n(word, 0, __ATOMIC_SEQ_CST);
  std::atomic<uint64_t> added{0};
  std::jthread adder([&](const std::stop_token& stop) {  // ends as well where the far end's host throws
    for (; !stop.stop_requested(); ++added) __atomic_fetch_add(word, uint64_t{1} << 32, __ATOMIC_SEQ_CST);
  });
  SendRequest request = send_request({{64, 8}}, 1, IBV_WR_ATOMIC_FETCH_AND_ADD);
  request.remote = near().address();
  request.rkey = near().facts().rkey;
  request.compare_add = 1;
  wire::HammerAnswer answer{};
  uint64_t completed = 0;
  const auto end = std::chrono::steady_clock::now() + scaled(std::chrono::seconds(10));
  for (int round = 0, together = 0; round < most_rounds && together < least_rounds; ++round) {
    const uint64_t before = added;
    answer = far().hammer(request, times);
    completed += answer.completed;
    together += added != before;
    if (answer.status != IBV_WC_SUCCESS || answer.completed != times ||
        std::chrono::steady_clock::now() > end)
      break;
  }
  adder.request_stop();
  adder.join();
  EXPECT_EQ(answer.status, IBV_WC_SUCCESS);
  EXPECT_EQ(answer.completed, times);
  const uint64_t sum = __atomic_load_n(word, __ATOMIC_SEQ_CST);
  EXPECT_EQ(sum & 0xffffffff, completed) << "additions of the device are lost";
  EXPECT_EQ(sum >> 32, added & 0xffffffff) << "additions of the CPU are lost";
}

}  // namespace
}  // namespace conformance::mr_kinds_chapter
