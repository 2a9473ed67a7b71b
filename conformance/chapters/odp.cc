// SPDX-License-Identifier: BSD-2-Clause
//
// On-demand paging: data to and from memory that has no pages yet, that has got others, that is gone. The
// near end has the memory.
#include <infiniband/verbs.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <new>
#include <string>
#include <vector>

#include "support/pair.h"
#include "support/pattern.h"

namespace conformance::odp_chapter {
namespace {

constexpr size_t size = 64 * 1024;

// Pages that nobody has touched, between two pages without access.
class Pages {
 public:
  Pages() : page_(static_cast<size_t>(sysconf(_SC_PAGESIZE))) {
    void* const memory = mmap(nullptr, size + 2 * page_, PROT_NONE, flags, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    base_ = static_cast<uint8_t*>(memory);
    protect(PROT_READ | PROT_WRITE);
  }
  ~Pages() { munmap(base_, size + 2 * page_); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;

  uint8_t* data() const { return base_ + page_; }
  uint64_t address(size_t offset = 0) const { return reinterpret_cast<uint64_t>(data() + offset); }
  // The program may no longer read or write them.
  void protect(int protection) {
    if (mprotect(data(), size, protection) != 0) throw NotTested{"mprotect: " + errno_text(errno)};
  }
  // New ones take their place, without content.
  void replace() {
    if (mmap(data(), size, PROT_READ | PROT_WRITE, flags | MAP_FIXED, -1, 0) == MAP_FAILED)
      throw NotTested{"mmap: " + errno_text(errno)};
  }

 private:
  static constexpr int flags = MAP_PRIVATE | MAP_ANONYMOUS;
  size_t page_;
  uint8_t* base_;
};

class Fixture : public PairTest {
 protected:
  // The near end, whose memory is registered on demand, if the device claims this operation for RC.
  void on_demand(uint32_t operation, bool has_srq = false) {
    const ibv_odp_caps& caps = device().extended().odp_caps;
    if ((caps.general_caps & IBV_ODP_SUPPORT) == 0) throw NotClaimed{"odp_caps has no IBV_ODP_SUPPORT"};
    if ((caps.per_transport_caps.rc_odp_caps & operation) != operation)
      throw NotClaimed{"rc_odp_caps has no such operation"};
    if ((operation & IBV_ODP_SUPPORT_ATOMIC) != 0 && device().attributes().atomic_cap == IBV_ATOMIC_NONE)
      throw NotClaimed{"atomic_cap is none"};
    PairSpec spec;
    spec.far = spec.both;
    spec.both.srq = has_srq;
    pair(spec);
    if ((operation & IBV_ODP_SUPPORT_ATOMIC) != 0 && !pair().has_atomics())
      throw NotTested{"the far end has no atomics"};
    int access = all_remote_access | IBV_ACCESS_ON_DEMAND;
    if ((operation & IBV_ODP_SUPPORT_ATOMIC) == 0) access &= ~IBV_ACCESS_REMOTE_ATOMIC;
    mr_ = Mr(CALL((ibv_reg_mr)(own().pd, pages_.data(), size, access)));
    if (!mr_) throw Deviation{"an MR on demand; seen: null, errno " + errno_text(errno), Where::current()};
    far().fill_pattern(0, 8192, 5);
  }
  End& own() { return pair().native().end; }
  ibv_sge element(size_t offset, uint32_t length) { return {pages_.address(offset), length, mr_->lkey}; }

  // Of the near end, between its memory and the beginning of the far end's.
  ibv_wc_status request(ibv_wr_opcode opcode, size_t offset, uint32_t length) {
    ibv_sge sge = element(offset, length);
    ibv_send_wr wr = own().request(opcode, &sge);
    if (is_atomic(opcode))
      wr.wr.atomic = {far().address(), 7, 0, far().facts().rkey};
    else
      wr.wr.rdma = {far().address(opcode == IBV_WR_RDMA_WRITE ? 8192 : 0), far().facts().rkey};
    if (const int error = own().post(wr); error != 0)
      throw Deviation{"ibv_post_send; expected: 0; seen: " + errno_text(error), Where::current()};
    return completion(own().cq).status;
  }
  // Of the far end, from the beginning of its memory; to it a READ goes behind.
  ibv_wc_status far_request(ibv_wr_opcode opcode, size_t offset, uint32_t length) {
    SendRequest request = send_request({{opcode == IBV_WR_RDMA_READ ? 8192
                                         : is_atomic(opcode)        ? 12288
                                                                    : 0,
                                         length}},
                                       1, opcode);
    request.remote = pages_.address(offset);
    request.rkey = mr_->rkey;
    request.compare_add = 7;
    if (const int error = far().post(request); error != 0)
      throw Deviation{"ibv_post_send; expected: 0; seen: " + errno_text(error), Where::current()};
    return far().completion().status;
  }
  int receive(size_t offset, uint32_t length) {
    ibv_sge sge = element(offset, length);
    ibv_recv_wr wr = {3, nullptr, &sge, 1};
    ibv_recv_wr* bad = nullptr;
    ibv_srq* const srq = pair().native().srq;
    return srq != nullptr ? CALL(ibv_post_srq_recv(srq, &wr, &bad))
                          : CALL(ibv_post_recv(own().qp, &wr, &bad));
  }
  bool has_pattern(size_t offset, size_t length) {
    return differs_at(pages_.data() + offset, length, 5) == length;
  }
  void receives(uint32_t operation, bool has_srq) {
    on_demand(operation, has_srq);
    ASSERT_EQ(receive(4096 - 50, 8192), 0);
    ASSERT_EQ(far().post(send_request({{0, 6000}})), 0);
    EXPECT_EQ(far().completion().status, IBV_WC_SUCCESS);
    const ibv_wc wc = completion(own().cq);
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS) << wc_text(wc);
    EXPECT_EQ(wc.byte_len, 6000u);
    EXPECT_TRUE(has_pattern(4096 - 50, 6000));
    EXPECT_EQ(pages_.data()[4096 - 51], 0);
    EXPECT_EQ(pages_.data()[4096 - 50 + 6000], 0);
    // A short message, which some devices carry in another way.
    ASSERT_EQ(receive(32768, 64), 0);
    ASSERT_EQ(far().post(send_request({{0, 16}})), 0);
    EXPECT_EQ(far().completion().status, IBV_WC_SUCCESS);
    EXPECT_EQ(completion(own().cq).byte_len, 16u);
    EXPECT_TRUE(has_pattern(32768, 16));
  }
  // Sends from the near end's memory, where zeros or the pattern are.
  void sends(size_t offset, bool zeros) {
    far().fill(8192, 8192, Buffer::untouched);
    ASSERT_EQ(far().receive(8192, 8192), 0);
    ASSERT_EQ(request(IBV_WR_SEND, offset, 6000), IBV_WC_SUCCESS);
    EXPECT_EQ(far().received().bytes, 6000u);
    EXPECT_TRUE(zeros ? far().has(8192, 6000, 0) : far().has_pattern(8192, 6000, 5));
  }

  Pages pages_;
  Mr mr_;
};

CONFORMANCE_TEST(odp, SendFromFreshPages, "odp.send") {
  on_demand(IBV_ODP_SUPPORT_SEND);
  sends(4096 - 50, true);
  fill_pattern(pages_.data() + 16384 + 50, 6000, 5);
  sends(16384 + 50, false);
}

CONFORMANCE_TEST(odp, ReceiveIntoFreshPages, "odp.receive") { receives(IBV_ODP_SUPPORT_RECV, false); }

CONFORMANCE_TEST(odp, SrqIntoFreshPages, "odp.srq-receive") { receives(IBV_ODP_SUPPORT_SRQ_RECV, true); }

CONFORMANCE_TEST(odp, WriteFromFreshPages, "odp.write.source") {
  on_demand(IBV_ODP_SUPPORT_WRITE);
  ASSERT_EQ(request(IBV_WR_RDMA_WRITE, 4096 - 50, 6000), IBV_WC_SUCCESS);
  EXPECT_TRUE(far().has(8192, 6000, 0));
}

CONFORMANCE_TEST(odp, WriteToFreshPages, "odp.write.target") {
  on_demand(IBV_ODP_SUPPORT_WRITE);
  ASSERT_EQ(far_request(IBV_WR_RDMA_WRITE, 4096 - 50, 6000), IBV_WC_SUCCESS);
  EXPECT_TRUE(has_pattern(4096 - 50, 6000));
  EXPECT_EQ(pages_.data()[4096 - 51], 0);
}

CONFORMANCE_TEST(odp, ReadToFreshPages, "odp.read.sink") {
  on_demand(IBV_ODP_SUPPORT_READ);
  ASSERT_EQ(request(IBV_WR_RDMA_READ, 4096 - 50, 6000), IBV_WC_SUCCESS);
  EXPECT_TRUE(has_pattern(4096 - 50, 6000));
}

CONFORMANCE_TEST(odp, ReadFromFreshPages, "odp.read.target") {
  on_demand(IBV_ODP_SUPPORT_READ);
  ASSERT_EQ(far_request(IBV_WR_RDMA_READ, 4096 - 50, 6000), IBV_WC_SUCCESS);
  EXPECT_TRUE(far().has(8192, 6000, 0));
}

CONFORMANCE_TEST(odp, AtomicResultToFreshPages, "odp.atomic.result") {
  on_demand(IBV_ODP_SUPPORT_ATOMIC);
  far().set_word(0, 41);
  ASSERT_EQ(request(IBV_WR_ATOMIC_FETCH_AND_ADD, 8192, 8), IBV_WC_SUCCESS);
  EXPECT_EQ(far().word(0), 48u);
  uint64_t before = 0;
  memcpy(&before, pages_.data() + 8192, sizeof before);
  EXPECT_EQ(before, 41u);
}

CONFORMANCE_TEST(odp, AtomicInFreshPages, "odp.atomic.target") {
  on_demand(IBV_ODP_SUPPORT_ATOMIC);
  ASSERT_EQ(far_request(IBV_WR_ATOMIC_FETCH_AND_ADD, 8192, 8), IBV_WC_SUCCESS);
  EXPECT_EQ(far().word(12288), 0u);
  uint64_t after = 0;
  memcpy(&after, pages_.data() + 8192, sizeof after);
  EXPECT_EQ(after, 7u);
}

CONFORMANCE_TEST(odp, FetchedBefore, "odp.prefetched") {
  on_demand(IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_WRITE);
  for (int round = 0; round < 2; ++round) {
    ibv_sge list = element(0, size);
    const int error = CALL(
        ibv_advise_mr(own().pd, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, IBV_ADVISE_MR_FLAG_FLUSH, &list, 1));
    if (error == EOPNOTSUPP || error == ENOTSUP || error == ENOSYS)
      throw NotClaimed{"ibv_advise_mr refused with " + errno_text(error)};
    ASSERT_EQ(error, 0) << errno_text(error);
    sends(4096 - 50, true);
    ASSERT_EQ(far_request(IBV_WR_RDMA_WRITE, 4096 - 50, 6000), IBV_WC_SUCCESS);
    EXPECT_TRUE(has_pattern(4096 - 50, 6000));
    pages_.replace();
    sends(4096 - 50, true);
  }
}

CONFORMANCE_TEST(odp, SendFromOtherPages, "odp.replaced.source") {
  on_demand(IBV_ODP_SUPPORT_SEND);
  memset(pages_.data(), 0x11, size);
  ASSERT_EQ(far().receive(8192, 8192), 0);
  ASSERT_EQ(request(IBV_WR_SEND, 4096 - 50, 6000), IBV_WC_SUCCESS);
  far().received();
  EXPECT_TRUE(far().has(8192, 6000, 0x11));
  pages_.replace();
  fill_pattern(pages_.data() + 4096 - 50, 6000, 5);
  sends(4096 - 50, false);
}

CONFORMANCE_TEST(odp, WriteToOtherPages, "odp.replaced.target") {
  on_demand(IBV_ODP_SUPPORT_WRITE);
  ASSERT_EQ(far_request(IBV_WR_RDMA_WRITE, 4096 - 50, 6000), IBV_WC_SUCCESS);
  EXPECT_TRUE(has_pattern(4096 - 50, 6000));
  pages_.replace();
  ASSERT_EQ(far_request(IBV_WR_RDMA_WRITE, 4096 - 50, 6000), IBV_WC_SUCCESS);
  EXPECT_TRUE(has_pattern(4096 - 50, 6000));
}

CONFORMANCE_TEST(odp, SendFromWhatIsGone, "odp.gone.source") {
  for (const uint32_t length : {8u, 6000u}) {
    pages_.protect(PROT_READ | PROT_WRITE);
    mr_ = Mr();
    new_pair();
    on_demand(IBV_ODP_SUPPORT_SEND);
    pages_.protect(PROT_NONE);
    ASSERT_EQ(far().receive(8192, 8192), 0);
    EXPECT_NE(request(IBV_WR_SEND, 4096, length), IBV_WC_SUCCESS) << length << " bytes";
    for (const Completion& received : far().poll(1, scaled(std::chrono::milliseconds(50)), true))
      EXPECT_NE(received.status, IBV_WC_SUCCESS) << length << " bytes";
  }
}

CONFORMANCE_TEST(odp, WriteToWhatIsGone, "odp.gone.target") {
  on_demand(IBV_ODP_SUPPORT_WRITE);
  pages_.protect(PROT_NONE);
  EXPECT_NE(far_request(IBV_WR_RDMA_WRITE, 4096, 6000), IBV_WC_SUCCESS);
}

CONFORMANCE_TEST(odp, ReceiveIntoWhatIsGone, "odp.gone.receive") {
  on_demand(IBV_ODP_SUPPORT_RECV);
  ASSERT_EQ(receive(4096, 8192), 0);
  pages_.protect(PROT_NONE);
  ASSERT_EQ(far().post(send_request({{0, 6000}})), 0);
  EXPECT_NE(far().completion().status, IBV_WC_SUCCESS);
  EXPECT_NE(completion(own().cq).status, IBV_WC_SUCCESS);
}

}  // namespace
}  // namespace conformance::odp_chapter
