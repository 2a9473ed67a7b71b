// SPDX-License-Identifier: BSD-2-Clause
//
// Binding and invalidating memory windows, below the send queue: how the requests change the keys, and which
// changes of regions the keys prevent.
#include <errno.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "engine/memory/region_pages.h"
#include "engine/objects/context.h"
#include "engine/objects/qp.h"
#include "engine/objects/send_request.h"
#include "engine/requester/local_requests.h"
#include "engine/responder/invalidation.h"
#include "unit/engine/scene.h"

namespace verbena {
namespace {

constexpr int kWindowAccess = kAllAccess | IBV_ACCESS_MW_BIND;
constexpr size_t kSize = 4096;

class Windows : public ::testing::Test {
 protected:
  Windows() { EXPECT_EQ(reg_mr(pair.pd.get(), bytes.data(), kSize, address(), kWindowAccess, &mr), 0); }
  ~Windows() override {
    if (mw != nullptr) {
      EXPECT_EQ(dealloc_mw(mw), 0);
    }
    if (mr != nullptr) {
      EXPECT_EQ(dereg_mr(mr), 0);
    }
  }
  uint64_t address(uint64_t at = 0) const { return reinterpret_cast<uint64_t>(bytes.data()) + at; }
  void make(ibv_mw_type type) { ASSERT_EQ(alloc_mw(pair.pd.get(), type, &mw), 0); }
  uint32_t key(uint8_t tag) const { return (mw_rkey(mw) & ~0xffu) | tag; }

  Answer carry_out(Qp* qp, const ibv_send_wr& wr) {
    SendRequest request{};
    request.opcode = wr.opcode;
    read_memory_wr(wr, &request);
    return carry_out_locally(*qp, request).answer;
  }
  // Binds the first `length` bytes under `tag`.
  Answer bind(uint8_t tag, uint64_t length = kSize, unsigned access = IBV_ACCESS_REMOTE_WRITE) {
    ibv_mr region{};
    region.lkey = mr_lkey(mr);
    ibv_mw window{};
    window.rkey = mw_rkey(mw);
    ibv_send_wr wr{};
    wr.opcode = IBV_WR_BIND_MW;
    wr.bind_mw.mw = &window;
    wr.bind_mw.rkey = key(tag);
    wr.bind_mw.bind_info = {length != 0 ? &region : nullptr, length != 0 ? address() : 0, length, access};
    return carry_out(*pair.a, wr);
  }
  Answer invalidate(uint32_t rkey, Qp* qp) {
    ibv_send_wr wr{};
    wr.opcode = IBV_WR_LOCAL_INV;
    wr.invalidate_rkey = rkey;
    return carry_out(qp, wr);
  }
  VendorError invalidate_from_afar(uint32_t rkey, Qp* there) {
    return invalidate_window(process().view(), *there->shared, rkey);
  }
  // May the QP's peer write through the key?
  KeyCheck check(uint32_t rkey, Qp* at) {
    return translate(process().view(), rkey, true, pair.pd->handle, MemoryUse::remote_write, address(), 8,
                     at->shared->qpn)
        .check;
  }
  Process& process() const { return *pair.context->process; }

  std::vector<uint8_t> bytes = std::vector<uint8_t>(kSize);
  Pair pair;
  Mr* mr = nullptr;
  Mw* mw = nullptr;
};

TEST_F(Windows, Type2ServesItsQpOnly) {
  make(IBV_MW_TYPE_2);
  ASSERT_EQ(bind(7), Answer::kAck);
  EXPECT_EQ(check(key(7), *pair.a), KeyCheck::kOk);
  EXPECT_EQ(check(key(7), *pair.b), KeyCheck::kOtherQp);
}

TEST_F(Windows, Type1ServesThePd) {
  make(IBV_MW_TYPE_1);
  ASSERT_EQ(bind(7), Answer::kAck);
  EXPECT_EQ(check(key(7), *pair.a), KeyCheck::kOk);
  EXPECT_EQ(check(key(7), *pair.b), KeyCheck::kOk);
}

TEST_F(Windows, Type1IsBoundAgainUnderAnotherKey) {
  make(IBV_MW_TYPE_1);
  ASSERT_EQ(bind(7), Answer::kAck);
  ASSERT_EQ(bind(8), Answer::kAck);
  EXPECT_EQ(check(key(7), *pair.a), KeyCheck::kUnknown);
  EXPECT_EQ(check(key(8), *pair.a), KeyCheck::kOk);
}

TEST_F(Windows, Type1BoundToNothingServesNobody) {
  make(IBV_MW_TYPE_1);
  ASSERT_EQ(bind(7), Answer::kAck);
  ASSERT_EQ(bind(8, 0), Answer::kAck);
  EXPECT_EQ(check(key(7), *pair.a), KeyCheck::kUnknown);
  EXPECT_EQ(check(key(8), *pair.a), KeyCheck::kUnknown);
}

TEST_F(Windows, Type2IsNotBoundTwice) {
  make(IBV_MW_TYPE_2);
  ASSERT_EQ(bind(7), Answer::kAck);
  EXPECT_EQ(bind(8), Answer::kLocal);
  EXPECT_EQ(check(key(7), *pair.a), KeyCheck::kOk);
}

TEST_F(Windows, Type2IsBoundAgainAfterItsInvalidation) {
  make(IBV_MW_TYPE_2);
  ASSERT_EQ(bind(7), Answer::kAck);
  ASSERT_EQ(invalidate(key(7), *pair.a), Answer::kAck);
  ASSERT_EQ(bind(8), Answer::kAck);
  EXPECT_EQ(check(key(7), *pair.a), KeyCheck::kUnknown);
  EXPECT_EQ(check(key(8), *pair.a), KeyCheck::kOk);
}

TEST_F(Windows, LocalInvalidationNeedsTheKeyAndTheQp) {
  make(IBV_MW_TYPE_2);
  ASSERT_EQ(bind(7), Answer::kAck);
  EXPECT_EQ(invalidate(key(8), *pair.a), Answer::kLocal);
  EXPECT_EQ(invalidate(key(7), *pair.b), Answer::kLocal);
  EXPECT_EQ(invalidate(mr_rkey(mr), *pair.a), Answer::kLocal);
  EXPECT_EQ(check(key(7), *pair.a), KeyCheck::kOk);
}

TEST_F(Windows, Type1IsNotInvalidated) {
  make(IBV_MW_TYPE_1);
  ASSERT_EQ(bind(7), Answer::kAck);
  EXPECT_EQ(invalidate(key(7), *pair.a), Answer::kLocal);
  EXPECT_EQ(invalidate_from_afar(key(7), *pair.a), VendorError::rkey_no_right);
}

TEST_F(Windows, LocalInvalidationWaitsForThePeerAtWork) {
  make(IBV_MW_TYPE_2);
  ASSERT_EQ(bind(7), Answer::kAck);
  Qp& qp = **pair.a;
  {
    const HazardGuard peer(process().hazards(), process().membership().slot());
    EXPECT_EQ(invalidate(key(7), &qp), Answer::kBusy);
    EXPECT_EQ(check(key(7), &qp), KeyCheck::kUnknown);
  }
  qp.waiting = Waiting::kAtomicLock;  // as the send queue keeps it
  EXPECT_EQ(invalidate(key(7), &qp), Answer::kAck);
  qp.waiting = Waiting::kNothing;
}

TEST_F(Windows, BindingType1AgainWaitsForThoseAtWork) {
  make(IBV_MW_TYPE_1);
  ASSERT_EQ(bind(7), Answer::kAck);
  {
    const HazardGuard peer(process().hazards(), process().membership().slot());
    EXPECT_EQ(bind(8), Answer::kBusy);
    EXPECT_EQ(check(key(7), *pair.a), KeyCheck::kUnknown);
  }
  EXPECT_EQ(bind(8), Answer::kAck);
  EXPECT_EQ(check(key(8), *pair.a), KeyCheck::kOk);
}

TEST_F(Windows, ThePeerInvalidatesByItsQp) {
  make(IBV_MW_TYPE_2);
  ASSERT_EQ(bind(7), Answer::kAck);
  EXPECT_EQ(invalidate_from_afar(key(8), *pair.a), VendorError::rkey_unknown);
  EXPECT_EQ(invalidate_from_afar(key(7), *pair.b), VendorError::rkey_other_qp);
  EXPECT_EQ(invalidate_from_afar(key(7), *pair.a), VendorError::none);
  EXPECT_EQ(invalidate_from_afar(key(7), *pair.a), VendorError::rkey_unknown);
  EXPECT_EQ(check(key(7), *pair.a), KeyCheck::kUnknown);
}

TEST_F(Windows, ARegionCannotBeInvalidatedFromAfar) {
  EXPECT_EQ(invalidate_from_afar(mr_rkey(mr), *pair.a), VendorError::rkey_unknown);
}

TEST_F(Windows, ABoundRegionIsBusy) {
  make(IBV_MW_TYPE_2);
  ASSERT_EQ(bind(7), Answer::kAck);
  EXPECT_EQ(dereg_mr(mr), EBUSY);
  EXPECT_EQ(rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, kAllAccess), EBUSY);
  EXPECT_EQ(check(key(7), *pair.a), KeyCheck::kOk);
}

TEST_F(Windows, InvalidationFromAfarFreesTheRegion) {
  make(IBV_MW_TYPE_2);
  ASSERT_EQ(bind(7), Answer::kAck);
  ASSERT_EQ(invalidate_from_afar(key(7), *pair.a), VendorError::none);
  EXPECT_EQ(dereg_mr(mr), 0);
  mr = nullptr;
}

TEST_F(Windows, DeallocationUnbinds) {
  make(IBV_MW_TYPE_2);
  ASSERT_EQ(bind(7), Answer::kAck);
  const uint32_t rkey = key(7);
  ASSERT_EQ(dealloc_mw(mw), 0);
  mw = nullptr;
  EXPECT_EQ(check(rkey, *pair.a), KeyCheck::kUnknown);
  EXPECT_EQ(dereg_mr(mr), 0);
  mr = nullptr;
}

TEST_F(Windows, AWindowKeepsItsPdBusy) {
  make(IBV_MW_TYPE_2);
  EXPECT_EQ(dealloc_pd(pair.pd.get()), EBUSY);
}

TEST_F(Windows, OnlyTwoTypesExist) {
  Mw* none = nullptr;
  EXPECT_EQ(alloc_mw(pair.pd.get(), static_cast<ibv_mw_type>(3), &none), EINVAL);
}

TEST_F(Windows, ADeregisteredRegionCannotBeBound) {
  make(IBV_MW_TYPE_2);
  const uint32_t lkey = mr_lkey(mr);
  ASSERT_EQ(dereg_mr(mr), 0);
  mr = nullptr;
  ibv_mr region{};
  region.lkey = lkey;
  ibv_mw window{};
  window.rkey = mw_rkey(mw);
  ibv_send_wr wr{};
  wr.opcode = IBV_WR_BIND_MW;
  wr.bind_mw.mw = &window;
  wr.bind_mw.rkey = key(7);
  wr.bind_mw.bind_info = {&region, address(), kSize, IBV_ACCESS_REMOTE_WRITE};
  EXPECT_EQ(carry_out(*pair.a, wr), Answer::kLocal);
}

// ---- descriptors as memory ----

class DmaBufferFile : public ::testing::Test {
 protected:
  DmaBufferFile() : fd(memfd_create("buffer", MFD_CLOEXEC)) { EXPECT_EQ(ftruncate(fd, 8192), 0); }
  ~DmaBufferFile() override { close(fd); }
  int fd;
  MappedBuffer buffer{};
};

TEST_F(DmaBufferFile, IsMappedAtItsOffset) {
  ASSERT_EQ(map_descriptor(fd, 5000, 100, true, &buffer), 0);
  *reinterpret_cast<uint8_t*>(buffer.address) = 9;
  uint8_t byte = 0;
  EXPECT_EQ(pread(fd, &byte, 1, 5000), 1);
  EXPECT_EQ(byte, 9);
  munmap(buffer.mapping, buffer.mapping_size);
}

TEST_F(DmaBufferFile, ARangeBehindItsEndIsInvalid) {
  EXPECT_EQ(map_descriptor(fd, 8000, 200, true, &buffer), EINVAL);
  EXPECT_EQ(map_descriptor(fd, UINT64_MAX, 1, true, &buffer), EINVAL);
}

TEST_F(DmaBufferFile, AFileIsNoDmaBuffer) { EXPECT_EQ(map_dma_buffer(fd, 0, 100, true, &buffer), EINVAL); }

}  // namespace
}  // namespace verbena
