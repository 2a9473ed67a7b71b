// SPDX-License-Identifier: BSD-2-Clause
//
// Memory regions: what can be registered, and how. What the keys are good for is in mr_keys.cc.
#include <fcntl.h>
#include <linux/udmabuf.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "support/fixture.h"
#include "support/objects.h"

namespace conformance::mr_register_chapter {
namespace {

class Fixture : public DeviceTest {
 protected:
  ibv_pd* pd() {
    if (!pd_) pd_ = make_pd(device());
    return pd_;
  }
  // The function, not the macro of the same name, which drops optional access flags.
  Mr reg(void* address, size_t length, int access) {
    return Mr(CALL((ibv_reg_mr)(pd(), address, length, access)));
  }

 private:
  Pd pd_;
};

CONFORMANCE_TEST(mr, RegistersAndDeregisters, "ibv_reg_mr.fields", "ibv_dereg_mr.zero") {
  const Buffer buffer(5000);
  Mr mr = reg(buffer.data(), buffer.size(), IBV_ACCESS_LOCAL_WRITE);
  ABOUT("ibv_reg_mr.fields") {
    ASSERT_NE(mr, nullptr);
    EXPECT_EQ(mr->addr, buffer.data());
    EXPECT_EQ(mr->length, buffer.size());
    EXPECT_EQ(mr->pd, pd());
    EXPECT_EQ(mr->context, context());
  }
  ABOUT("ibv_dereg_mr.zero") EXPECT_SUCCEEDS(mr.destroy());
}

CONFORMANCE_TEST(mr, KeysAreDistinct, "ibv_reg_mr.distinct-keys") {
  const Buffer buffer(4096);
  std::vector<Mr> regions;
  std::set<uint32_t> local, remote;
  const int count = std::clamp(device().attributes().max_mr / 2, 2, 64);
  int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
  if (!reg(buffer.data(), buffer.size(), access) && errno == EOPNOTSUPP) access = IBV_ACCESS_LOCAL_WRITE;
  for (int i = 0; i < count; ++i) {
    regions.push_back(reg(buffer.data(), buffer.size(), access));
    ASSERT_NE(regions.back(), nullptr) << "region " << i;
    EXPECT_TRUE(local.insert(regions.back()->lkey).second) << "lkey of region " << i;
    if ((access & IBV_ACCESS_REMOTE_WRITE) != 0) {
      EXPECT_TRUE(remote.insert(regions.back()->rkey).second) << "rkey of region " << i;
    }
  }
}

CONFORMANCE_TEST(mr, AccessFlagsAreChecked, "ibv_reg_mr.access-0", "ibv_reg_mr.remote-write-needs-local",
                 "ibv_reg_mr.remote-read-alone") {
  const Buffer buffer(4096);
  {
    const About about("ibv_reg_mr.access-0");
    EXPECT_NE(reg(buffer.data(), 4096, 0), nullptr);
  }
  {
    const About about("ibv_reg_mr.remote-write-needs-local");
    EXPECT_TRUE(refused(reg(buffer.data(), 4096, IBV_ACCESS_REMOTE_WRITE).get()));
  }
  const About about("ibv_reg_mr.remote-read-alone");
  const Mr readable = reg(buffer.data(), 4096, IBV_ACCESS_REMOTE_READ);
  if (!readable && errno == EOPNOTSUPP) {
    not_claimed("IBV_ACCESS_REMOTE_READ refused with EOPNOTSUPP");
  } else {
    EXPECT_NE(readable, nullptr);
  }
}

CONFORMANCE_TEST(mr, RemoteAtomicNeedsLocalWrite, "ibv_reg_mr.remote-atomic-needs-local") {
  if (device().attributes().atomic_cap == IBV_ATOMIC_NONE) throw NotClaimed{"atomic_cap is none"};
  const Buffer buffer(4096);
  EXPECT_TRUE(refused(reg(buffer.data(), 4096, IBV_ACCESS_REMOTE_ATOMIC).get()));
  EXPECT_NE(reg(buffer.data(), 4096, IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_LOCAL_WRITE), nullptr);
}

CONFORMANCE_TEST(mr, UnknownAccessFlagIsRefused, "ibv_reg_mr.unknown-flag") {
  const Buffer buffer(4096);
  EXPECT_TRUE(refused(reg(buffer.data(), 4096, IBV_ACCESS_LOCAL_WRITE | 1 << 18).get()));
}

CONFORMANCE_TEST(mr, RelaxedOrderingNeverFails, "ibv_reg_mr.optional-flag") {
  const Buffer buffer(4096);
  const Mr mr(ibv_reg_mr(pd(), buffer.data(), 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_RELAXED_ORDERING));
  EXPECT_NE(mr, nullptr) << "errno " << errno_text(errno);
}

CONFORMANCE_TEST(mr, UnmappedMemoryIsRefused, "ibv_reg_mr.null-on-failure") {
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));  // 64 KiB, too
  const Buffer buffer(page);
  uint8_t* guard = buffer.data() + page;  // PROT_NONE
  // The manual page promises no errno.
  EXPECT_EQ(reg(guard, page, IBV_ACCESS_LOCAL_WRITE), nullptr) << "a page that nobody may touch";
  EXPECT_EQ(reg(buffer.data(), page + 1, IBV_ACCESS_LOCAL_WRITE), nullptr) << "one byte into such a page";
  void* hole = mmap(nullptr, page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  munmap(hole, page);
  EXPECT_EQ(reg(hole, page, IBV_ACCESS_LOCAL_WRITE), nullptr) << "a page that is not there";
}

CONFORMANCE_TEST(mr, ReadOnlyMemoryIsNotWritten, "ibv_reg_mr.read-only-memory",
                 "ibv_reg_mr.read-only-for-read") {
  const Buffer buffer(4096);
  ASSERT_EQ(mprotect(buffer.data(), 4096, PROT_READ), 0);
  {
    const About about("ibv_reg_mr.read-only-memory");
    EXPECT_TRUE(refused(reg(buffer.data(), 4096, IBV_ACCESS_LOCAL_WRITE).get()));
  }
  const Mr for_reading = reg(buffer.data(), 4096, 0);
  observe("ibv_reg_mr.read-only-for-read", for_reading ? "registered" : "refused with " + errno_text(errno));
}

CONFORMANCE_TEST(mr, OddRangesCanBeRegistered, "ibv_reg_mr.odd-address") {
  const Buffer buffer(3 * 4096);
  for (const size_t offset : {1, 3, 63, 4095})
    for (const size_t length : {1, 2, 7, 4096, 4097}) {
      const Mr mr = reg(buffer.data() + offset, length, IBV_ACCESS_LOCAL_WRITE);
      ASSERT_NE(mr, nullptr) << length << " bytes at offset " << offset << ", errno " << errno_text(errno);
      EXPECT_EQ(mr->length, length);
    }
}

CONFORMANCE_TEST(mr, RegionsMayOverlap, "ibv_reg_mr.overlap") {
  const Buffer buffer(8192);
  const Mr whole = reg(buffer.data(), 8192, IBV_ACCESS_LOCAL_WRITE);
  const Mr same = reg(buffer.data(), 8192, 0);
  const Mr part = reg(buffer.data() + 100, 5000, IBV_ACCESS_LOCAL_WRITE);
  EXPECT_TRUE(whole && same && part);
}

CONFORMANCE_TEST(mr, LargeRegion, "ibv_reg_mr.large") {
  const size_t length = static_cast<size_t>(std::min<uint64_t>(16u << 20, device().attributes().max_mr_size));
  const Buffer buffer(length);
  const Mr mr = reg(buffer.data(), length, IBV_ACCESS_LOCAL_WRITE);
  // What a user may pin is no property of the device (ibv_query_device(3), NOTES: user permissions). The
  // error is the driver's: ENOMEM, or EFAULT.
  rlimit locked = {};
  if (!mr && getrlimit(RLIMIT_MEMLOCK, &locked) == 0 && locked.rlim_cur < 2 * length)
    throw NotTested{"RLIMIT_MEMLOCK allows " + std::to_string(locked.rlim_cur) + " bytes"};
  EXPECT_NE(mr, nullptr) << length << " bytes";
}

CONFORMANCE_TEST(mr, RangeOverTheEndIsRefused, "ibv_reg_mr.wraps") {
  EXPECT_TRUE(refused(reg(reinterpret_cast<void*>(UINTPTR_MAX - 4095), 8192, IBV_ACCESS_LOCAL_WRITE).get()));
  const Buffer buffer(4096);
  EXPECT_TRUE(refused(reg(buffer.data(), SIZE_MAX - 4096, IBV_ACCESS_LOCAL_WRITE).get()));
}

CONFORMANCE_TEST(mr, NothingIsUsedUp, "ibv_reg_mr.reuse") {
  const Buffer buffer(4096);
  // How long a call takes no manual page says. A driver may wait for a grace period of RCU in each.
  const auto end = std::chrono::steady_clock::now() + scaled(std::chrono::seconds(6));
  for (int i = 0; i < 2000 && std::chrono::steady_clock::now() < end; ++i) {
    Mr mr((ibv_reg_mr)(pd(), buffer.data(), 4096, IBV_ACCESS_LOCAL_WRITE));
    ASSERT_NE(mr, nullptr) << "round " << i;
    ASSERT_EQ(mr.destroy(), 0) << "round " << i;
  }
}

CONFORMANCE_TEST(mr, OnDemandAsClaimed, "ibv_reg_mr.on-demand", "ibv_reg_mr.on-demand-implicit") {
  const uint64_t caps = device().extended().odp_caps.general_caps;
  const Buffer buffer(4096);
  {
    const About about("ibv_reg_mr.on-demand-implicit");
    if ((caps & IBV_ODP_SUPPORT_IMPLICIT) != 0) {
      EXPECT_NE(reg(nullptr, SIZE_MAX, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND), nullptr);
    } else {
      not_claimed("odp_caps has no IBV_ODP_SUPPORT_IMPLICIT");
    }
  }
  const Mr mr = reg(buffer.data(), 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND);
  const About about("ibv_reg_mr.on-demand");
  if ((caps & IBV_ODP_SUPPORT) != 0) {
    EXPECT_NE(mr, nullptr);
  } else if (mr) {
    not_tested("taken, though it is not claimed");
  } else {
    EXPECT_TRUE(refused(mr.get()));
  }
}

CONFORMANCE_TEST(mr, DmaBufNeedsADmaBuf, "ibv_reg_dmabuf_mr.bad-fd") {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const Mr mr(CALL(ibv_reg_dmabuf_mr(pd(), 0, 4096, 0, ends[0], IBV_ACCESS_LOCAL_WRITE)));
  const int error = errno;
  close(ends[0]);
  close(ends[1]);
  if (mr == nullptr && (error == EOPNOTSUPP || error == ENOSYS))
    throw NotClaimed{"ibv_reg_dmabuf_mr refused with " + errno_text(error)};
  EXPECT_EQ(mr, nullptr);
}

class DmaBufTest : public Fixture {
 protected:
  ~DmaBufTest() override {
    for (const int descriptor : {memory_, buffer_})
      if (descriptor >= 0) close(descriptor);
  }
  // A dma-buf of two pages, of the one driver that gives them to programs (linux/udmabuf.h).
  int dma_buf() {
    const Mr claimed(CALL(ibv_reg_dmabuf_mr(pd(), 0, page(), 0, -1, IBV_ACCESS_LOCAL_WRITE)));
    if (claimed == nullptr && (errno == EOPNOTSUPP || errno == ENOSYS))
      throw NotClaimed{"ibv_reg_dmabuf_mr refused with " + errno_text(errno)};
    const int driver = open("/dev/udmabuf", O_RDWR | O_CLOEXEC);
    if (driver < 0) throw NotTested{"no dma-buf is to be had: /dev/udmabuf gives " + errno_text(errno)};
    memory_ = memfd_create("verbs-conformance", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    udmabuf_create create = {};
    create.memfd = static_cast<uint32_t>(memory_);
    create.flags = UDMABUF_FLAGS_CLOEXEC;
    create.size = 2 * page();
    if (ftruncate(memory_, static_cast<off_t>(create.size)) == 0 &&
        fcntl(memory_, F_ADD_SEALS, F_SEAL_SHRINK) == 0)
      buffer_ = ioctl(driver, UDMABUF_CREATE, &create);
    const int error = errno;
    close(driver);
    if (buffer_ < 0) throw NotTested{"no dma-buf is to be had: UDMABUF_CREATE gives " + errno_text(error)};
    return buffer_;
  }
  static uint64_t page() { return static_cast<uint64_t>(sysconf(_SC_PAGESIZE)); }

 private:
  int memory_ = -1, buffer_ = -1;
};

namespace dma_buf {
using Fixture = DmaBufTest;

CONFORMANCE_TEST(mr, DmaBufIsRegistered, "ibv_reg_dmabuf_mr.page-offset", "ibv_reg_dmabuf_mr.flags") {
  const int descriptor = dma_buf();
  {
    const About about("ibv_reg_dmabuf_mr.page-offset");
    const Mr same(CALL(ibv_reg_dmabuf_mr(pd(), 8, 64, 16 * page() + 8, descriptor, IBV_ACCESS_LOCAL_WRITE)));
    EXPECT_NE(same, nullptr) << "errno " << errno_text(errno);
    EXPECT_TRUE(
        refused(CALL(ibv_reg_dmabuf_mr(pd(), 8, 64, 16 * page(), descriptor, IBV_ACCESS_LOCAL_WRITE))));
  }
  const About about("ibv_reg_dmabuf_mr.flags");
  int remote =
      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_RELAXED_ORDERING;
  if (device().attributes().atomic_cap != IBV_ATOMIC_NONE) remote |= IBV_ACCESS_REMOTE_ATOMIC;
  Mr allowed(CALL(ibv_reg_dmabuf_mr(pd(), 0, page(), 0, descriptor, remote)));
  // A device without RDMA WRITE, or READ, refuses that right for any region.
  for (const int right : {IBV_ACCESS_REMOTE_WRITE, IBV_ACCESS_REMOTE_READ})
    if (!allowed && errno == EOPNOTSUPP) {
      remote &= ~right;
      allowed = Mr(CALL(ibv_reg_dmabuf_mr(pd(), 0, page(), 0, descriptor, remote)));
    }
  EXPECT_NE(allowed, nullptr) << "errno " << errno_text(errno);
  for (const int other :
       {IBV_ACCESS_MW_BIND, IBV_ACCESS_ZERO_BASED, IBV_ACCESS_ON_DEMAND, IBV_ACCESS_HUGETLB})
    EXPECT_TRUE(
        refused(CALL(ibv_reg_dmabuf_mr(pd(), 0, page(), 0, descriptor, IBV_ACCESS_LOCAL_WRITE | other))))
        << "access " << other;
}

}  // namespace dma_buf

class AdviceTest : public Fixture {
 protected:
  // An on-demand region of the buffer, or NotClaimed.
  Mr region(int access) {
    if ((device().extended().odp_caps.general_caps & IBV_ODP_SUPPORT) == 0)
      throw NotClaimed{"odp_caps has no IBV_ODP_SUPPORT"};
    Mr mr = reg(buffer_.data(), buffer_.size(), access | IBV_ACCESS_ON_DEMAND);
    if (!mr) throw Deviation{"an on-demand region is claimed; errno " + errno_text(errno), Where::current()};
    return mr;
  }
  int advise(ibv_advise_mr_advice advice, uint32_t flags, uint64_t address, uint32_t length, uint32_t lkey) {
    ibv_sge element{address, length, lkey};
    const int error = CALL(ibv_advise_mr(pd(), advice, flags, &element, 1));
    if (error == EOPNOTSUPP || error == ENOSYS)
      throw NotClaimed{"ibv_advise_mr refused with " + errno_text(error)};
    return error;
  }
  const Buffer buffer_{8192};
};

namespace advice {
using Fixture = AdviceTest;

CONFORMANCE_TEST(mr, PrefetchSucceeds, "ibv_advise_mr.prefetch", "ibv_advise_mr.prefetch-write") {
  const Mr mr = region(IBV_ACCESS_LOCAL_WRITE);
  EXPECT_TRUE(succeeded(advise(IBV_ADVISE_MR_ADVICE_PREFETCH, 0, buffer_.address(), 8192, mr->lkey)));
  EXPECT_TRUE(succeeded(
      advise(IBV_ADVISE_MR_ADVICE_PREFETCH, IBV_ADVISE_MR_FLAG_FLUSH, buffer_.address(), 8192, mr->lkey)));
  const About about("ibv_advise_mr.prefetch-write");
  EXPECT_TRUE(succeeded(advise(IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, IBV_ADVISE_MR_FLAG_FLUSH,
                               buffer_.address(), 8192, mr->lkey)));
}

CONFORMANCE_TEST(mr, PrefetchWithoutFaults, "ibv_advise_mr.no-fault") {
  const Mr mr = region(IBV_ACCESS_LOCAL_WRITE);
  const int error = advise(IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT, IBV_ADVISE_MR_FLAG_FLUSH,
                           buffer_.address(), 8192, mr->lkey);
  // A kernel that is older than this advice treats it as unknown (page: "isn't supported").
  if (error == ENOTSUP || error == EINVAL)
    throw NotClaimed{"this advice refused with " + errno_text(error) + ", others are taken"};
  EXPECT_TRUE(succeeded(error));
}

CONFORMANCE_TEST(mr, PrefetchIsChecked, "ibv_advise_mr.range", "ibv_advise_mr.lkey", "ibv_advise_mr.flags",
                 "ibv_advise_mr.unknown-advice") {
  const Mr mr = region(IBV_ACCESS_LOCAL_WRITE);
  const auto prefetch = IBV_ADVISE_MR_ADVICE_PREFETCH;
  {
    const About about("ibv_advise_mr.range");
    EXPECT_TRUE(refused(advise(prefetch, IBV_ADVISE_MR_FLAG_FLUSH, buffer_.address(), 8193, mr->lkey)));
  }
  {
    const About about("ibv_advise_mr.lkey");
    EXPECT_TRUE(
        refused(advise(prefetch, IBV_ADVISE_MR_FLAG_FLUSH, buffer_.address(), 1, mr->lkey ^ 0x00ff0000)));
  }
  {
    const About about("ibv_advise_mr.flags");
    EXPECT_TRUE(refused(advise(prefetch, 1u << 31, buffer_.address(), 1, mr->lkey)));
  }
  const About about("ibv_advise_mr.unknown-advice");
  ibv_sge element{buffer_.address(), 1, mr->lkey};
  EXPECT_REFUSED(ibv_advise_mr(pd(), static_cast<ibv_advise_mr_advice>(100), 0, &element, 1));
}

CONFORMANCE_TEST(mr, PrefetchForWritingNeedsTheRight, "ibv_advise_mr.write-needs-right",
                 "ibv_advise_mr.not-odp") {
  const Mr mr = region(0);
  {
    const About about("ibv_advise_mr.write-needs-right");
    EXPECT_TRUE(refused(advise(IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, IBV_ADVISE_MR_FLAG_FLUSH,
                               buffer_.address(), 1, mr->lkey)));
  }
  const About about("ibv_advise_mr.not-odp");
  const Mr pinned = reg(buffer_.data(), 4096, IBV_ACCESS_LOCAL_WRITE);
  EXPECT_TRUE(refused(
      advise(IBV_ADVISE_MR_ADVICE_PREFETCH, IBV_ADVISE_MR_FLAG_FLUSH, buffer_.address(), 1, pinned->lkey)));
}

}  // namespace advice

}  // namespace
}  // namespace conformance::mr_register_chapter
