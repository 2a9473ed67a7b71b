// SPDX-License-Identifier: BSD-2-Clause
//
// Memory regions: what their keys allow, seen from two connected ends.
#include "support/pair.h"

namespace conformance::mr_keys_chapter {
namespace {

// The test owns the near end's objects: its regions are examined, by its own requests and by those of the far
// end.
class Fixture : public PairTest {
 protected:
  End& own() { return pair().native().end; }

  // One SEND of these bytes; its status.
  ibv_wc_status send(ibv_sge from) {
    ibv_send_wr wr = own().request(IBV_WR_SEND, &from);
    if (const int error = own().post(wr); error != 0) return IBV_WC_LOC_PROT_ERR;  // detected at once
    return completion(own().cq).status;
  }
  // One access of the far end to the near one's memory; its first byte is 0x77.
  ibv_wc_status far_writes(uint64_t to, uint32_t rkey, uint32_t length = 1) {
    far().fill(0, 1, 0x77);
    SendRequest request = send_request({{0, length}}, 1, IBV_WR_RDMA_WRITE);
    request.remote = to;
    request.rkey = rkey;
    EXPECT_EQ(far().post(request), 0);
    return far().completion().status;
  }
  Mr reg(const Buffer& buffer, int access) { return make_mr(own().pd, buffer, access); }
};

CONFORMANCE_TEST(mr, LkeySendsAndReceives, "ibv_reg_mr.lkey") {
  own().buffer[0] = 0x77;
  ASSERT_EQ(far().receive(0, 64), 0);
  EXPECT_EQ(send(own().sge(0, 64)), IBV_WC_SUCCESS);
  EXPECT_EQ(far().received().status, IBV_WC_SUCCESS);
  EXPECT_TRUE(far().has(0, 1, 0x77));
  ASSERT_TRUE(succeeded(own().post_receive(512, 64)));
  far().fill(0, 1, 0x66);
  ASSERT_EQ(far().post(send_request({{0, 64}})), 0);
  EXPECT_EQ(completion(own().cq).status, IBV_WC_SUCCESS);
  EXPECT_EQ(own().buffer[512], 0x66);
}

CONFORMANCE_TEST(mr, RkeyIsTakenByTheOtherEnd, "ibv_reg_mr.rkey") {
  EXPECT_EQ(far_writes(own().buffer.address(100), own().mr->rkey, 8), IBV_WC_SUCCESS);
  EXPECT_EQ(own().buffer[100], 0x77);
  EXPECT_EQ(own().buffer[99], Buffer::untouched);
  ASSERT_EQ(far().post(remote_request(IBV_WR_RDMA_READ, {{200, 8}}, near().facts(), 100)), 0);
  EXPECT_EQ(far().completion().status, IBV_WC_SUCCESS);
  EXPECT_TRUE(far().has(200, 1, 0x77));
}

CONFORMANCE_TEST(mr, LocalReadNeedsNoFlag, "ibv_reg_mr.local-read") {
  const Buffer source(64);
  const Mr mr = reg(source, 0);
  ASSERT_EQ(far().receive(0, 64), 0);
  EXPECT_EQ(send({source.address(), 64, mr->lkey}), IBV_WC_SUCCESS);
}

CONFORMANCE_TEST(mr, WithoutLocalWriteNothingIsReceived, "ibv_reg_mr.local-write-missing") {
  const Buffer target(64);
  const Mr mr = reg(target, 0);
  ibv_sge element{target.address(), 64, mr->lkey};
  ibv_recv_wr wr = {};
  wr.sg_list = &element;
  wr.num_sge = 1;
  ibv_recv_wr* bad;
  if (CALL(ibv_post_recv(own().qp, &wr, &bad)) != 0) return;  // detected at once
  far().fill(0, 64, 0x77);
  ASSERT_EQ(far().post(send_request({{0, 64}})), 0);
  EXPECT_NE(far().completion().status, IBV_WC_SUCCESS);
  EXPECT_NE(completion(own().cq).status, IBV_WC_SUCCESS);
  EXPECT_TRUE(target.is(Buffer::untouched, 0, 64));
}

CONFORMANCE_TEST(mr, RegionOfAnotherPdIsNotTaken, "ibv_reg_mr.other-pd") {
  const Pd other = make_pd(device());
  const Buffer source(64);
  const Mr mr = make_mr(other, source, IBV_ACCESS_LOCAL_WRITE);
  ASSERT_EQ(far().receive(0, 64), 0);
  EXPECT_EQ(send({source.address(), 64, mr->lkey}), IBV_WC_LOC_PROT_ERR);
}

CONFORMANCE_TEST(mr, LkeyDiesWithTheRegion, "ibv_dereg_mr.lkey-dies") {
  const Buffer source(64);
  Mr mr = reg(source, IBV_ACCESS_LOCAL_WRITE);
  const uint32_t lkey = mr->lkey;
  ASSERT_EQ(far().receive(0, 64), 0);
  ASSERT_EQ(send({source.address(), 64, lkey}), IBV_WC_SUCCESS);
  ASSERT_EQ(far().receive(0, 64), 0);
  ASSERT_TRUE(succeeded(CALL(mr.destroy())));
  EXPECT_NE(send({source.address(), 64, lkey}), IBV_WC_SUCCESS);
}

CONFORMANCE_TEST(mr, RkeyDiesWithTheRegion, "ibv_dereg_mr.rkey-dies") {
  const Buffer target(64);
  Mr mr = reg(target, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  const uint32_t rkey = mr->rkey;
  ASSERT_EQ(far_writes(target.address(), rkey, 8), IBV_WC_SUCCESS);
  ASSERT_TRUE(succeeded(CALL(mr.destroy())));
  EXPECT_EQ(far_writes(target.address(8), rkey, 8), IBV_WC_REM_ACCESS_ERR);
}

CONFORMANCE_TEST(mr, ZeroBasedIsAddressedByOffset, "ibv_reg_mr.zero-based") {
  const Buffer target(256);
  const Mr mr((ibv_reg_mr)(own().pd, target.data(), 256,
                           IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_ZERO_BASED));
  if (!mr && is_refusal_of_qp(errno))
    throw NotClaimed{"IBV_ACCESS_ZERO_BASED refused with " + errno_text(errno)};
  ASSERT_NE(mr, nullptr);
  EXPECT_EQ(far_writes(16, mr->rkey), IBV_WC_SUCCESS);
  EXPECT_EQ(target[16], 0x77);
}

CONFORMANCE_TEST(mr, VirtualBaseAddress, "ibv_reg_mr_iova.base", "ibv_reg_mr_iova.not-its-address") {
  const Buffer target(256);
  // The offset within a page is kept: a page is the unit of what is mapped.
  const uint64_t base = 0x100000000 + target.address() % 4096;
  const Mr mr(CALL(
      ibv_reg_mr_iova(own().pd, target.data(), 256, base, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)));
  if (!mr && is_refusal_of_qp(errno)) throw NotClaimed{"ibv_reg_mr_iova refused with " + errno_text(errno)};
  ASSERT_NE(mr, nullptr);
  {
    const About about("ibv_reg_mr_iova.base");
    EXPECT_EQ(far_writes(base + 16, mr->rkey), IBV_WC_SUCCESS);
    EXPECT_EQ(target[16], 0x77);
  }
  const About about("ibv_reg_mr_iova.not-its-address");
  EXPECT_EQ(far_writes(target.address(32), mr->rkey), IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(target[32], Buffer::untouched);
}

CONFORMANCE_TEST(mr, VirtualBaseAddressZeroIsZeroBased, "ibv_reg_mr_iova.zero") {
  const Buffer target(256);
  const Mr mr(CALL(
      ibv_reg_mr_iova(own().pd, target.data(), 256, 0, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)));
  if (!mr && is_refusal_of_qp(errno)) throw NotClaimed{"ibv_reg_mr_iova refused with " + errno_text(errno)};
  ASSERT_NE(mr, nullptr);
  EXPECT_EQ(far_writes(255, mr->rkey), IBV_WC_SUCCESS);
  EXPECT_EQ(target[255], 0x77);
}

// The result of ibv_rereg_mr, or NotClaimed.
int rereg(ibv_mr* mr, int flags, ibv_pd* pd, void* address, size_t length, int access) {
  const int result = CALL(ibv_rereg_mr(mr, flags, pd, address, length, access));
  if (result == IBV_REREG_MR_ERR_CMD && (errno == EOPNOTSUPP || errno == ENOSYS))
    throw NotClaimed{"ibv_rereg_mr refused with " + errno_text(errno)};
  return result;
}

CONFORMANCE_TEST(mr, NoBytesGiveNoAccess, "ibv_reg_mr.no-bytes", "ibv_reg_mr.no-bytes-no-access") {
  const Buffer target(4096);
  const int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
  {
    const Mr within = Mr(CALL((ibv_reg_mr)(own().pd, target.data() + 1024, 0, access)));
    const std::string outcome = within ? "registered" : "refused with " + errno_text(errno);
    const Mr at_beginning = Mr(CALL((ibv_reg_mr)(own().pd, target.data(), 0, access)));
    observe("ibv_reg_mr.no-bytes", outcome + "; at the beginning of a page " +
                                       (at_beginning ? "registered" : "refused with " + errno_text(errno)));
    const About about("ibv_reg_mr.no-bytes-no-access");
    if (!within) throw NotTested{"regions of length 0 are refused"};
  }
  const About about("ibv_reg_mr.no-bytes-no-access");
  for (const size_t at : {1024, 1023}) {
    new_pair();
    const Mr none = Mr(CALL((ibv_reg_mr)(own().pd, target.data() + 1024, 0, access)));
    ASSERT_NE(none, nullptr) << "a region of length 0 that was registered before";
    EXPECT_EQ(far_writes(target.address(at), none->rkey), IBV_WC_REM_ACCESS_ERR) << "at " << at;
    EXPECT_EQ(target[at], Buffer::untouched);
  }
}

CONFORMANCE_TEST(mr, ReregChangesAccess, "ibv_rereg_mr.access") {
  const Buffer target(64);
  const Mr mr = reg(target, IBV_ACCESS_LOCAL_WRITE);
  ASSERT_EQ(rereg(mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0,
                  IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE),
            0);
  EXPECT_EQ(far_writes(target.address(), mr->rkey), IBV_WC_SUCCESS);
  EXPECT_EQ(target[0], 0x77);
  ASSERT_EQ(rereg(mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, IBV_ACCESS_LOCAL_WRITE), 0);
  EXPECT_EQ(far_writes(target.address(1), mr->rkey), IBV_WC_REM_ACCESS_ERR);
}

CONFORMANCE_TEST(mr, ReregMovesToAnotherPd, "ibv_rereg_mr.pd") {
  Pd old = make_pd(device());
  const Buffer source(64);
  const Mr mr = make_mr(old, source, IBV_ACCESS_LOCAL_WRITE);
  ASSERT_EQ(rereg(mr, IBV_REREG_MR_CHANGE_PD, own().pd, nullptr, 0, 0), 0);
  ASSERT_EQ(far().receive(0, 64), 0);
  EXPECT_EQ(send({source.address(), 64, mr->lkey}), IBV_WC_SUCCESS);
  EXPECT_SUCCEEDS(old.destroy());
}

CONFORMANCE_TEST(mr, ReregMovesToOtherMemory, "ibv_rereg_mr.translation") {
  const Buffer before(64), after(128);
  const Mr mr = reg(before, IBV_ACCESS_LOCAL_WRITE);
  ASSERT_EQ(rereg(mr, IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, after.data(), 128, 0), 0);
  EXPECT_EQ(mr->addr, after.data());
  EXPECT_EQ(mr->length, 128u);
  after[127] = 0x77;
  ASSERT_EQ(far().receive(0, 128), 0);
  EXPECT_EQ(send({after.address(), 128, mr->lkey}), IBV_WC_SUCCESS);
  EXPECT_EQ(far().received().status, IBV_WC_SUCCESS);
  EXPECT_TRUE(far().has(127, 1, 0x77));
  ASSERT_EQ(far().receive(0, 128), 0);
  EXPECT_NE(send({before.address(), 64, mr->lkey}), IBV_WC_SUCCESS) << "the old memory";
}

CONFORMANCE_TEST(mr, ReregInputErrorsKeepTheRegion, "ibv_rereg_mr.unknown-flag",
                 "ibv_rereg_mr.access-without-flag", "ibv_rereg_mr.null-addr", "ibv_rereg_mr.input-keeps-old",
                 "ibv_rereg_mr.dereg-after-failure") {
  const Buffer source(64);
  Mr mr = reg(source, IBV_ACCESS_LOCAL_WRITE);
  {
    const About about("ibv_rereg_mr.unknown-flag");
    EXPECT_EQ(rereg(mr, 1 << 20, nullptr, nullptr, 0, 0), IBV_REREG_MR_ERR_INPUT);
  }
  {
    const About about("ibv_rereg_mr.access-without-flag");
    EXPECT_EQ(rereg(mr, 0, nullptr, nullptr, 0, IBV_ACCESS_LOCAL_WRITE), IBV_REREG_MR_ERR_INPUT);
  }
  {
    const About about("ibv_rereg_mr.null-addr");
    EXPECT_EQ(rereg(mr, IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, nullptr, 64, 0), IBV_REREG_MR_ERR_INPUT);
    EXPECT_EQ(rereg(mr, IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, source.data(), 0, 0),
              IBV_REREG_MR_ERR_INPUT);
  }
  {
    const About about("ibv_rereg_mr.input-keeps-old");
    ASSERT_EQ(far().receive(0, 64), 0);
    EXPECT_EQ(send({source.address(), 64, mr->lkey}), IBV_WC_SUCCESS);
  }
  const About about("ibv_rereg_mr.dereg-after-failure");
  EXPECT_SUCCEEDS(mr.destroy());
}

class NullMrTest : public Fixture {
 protected:
  Mr null_mr() {
    Mr mr(CALL(ibv_alloc_null_mr(own().pd)));
    if (!mr && is_refusal_of_qp(errno))
      throw NotClaimed{"ibv_alloc_null_mr refused with " + errno_text(errno)};
    if (!mr)
      throw Deviation{"expected: a null region; seen: null, errno " + errno_text(errno), Where::current()};
    return mr;
  }
};

namespace null_region {
using Fixture = NullMrTest;

CONFORMANCE_TEST(mr, NullRegionComesAndGoes, "ibv_alloc_null_mr.pointer", "ibv_alloc_null_mr.dereg") {
  Mr mr = null_mr();
  {
    const About about("ibv_alloc_null_mr.pointer");
    EXPECT_EQ(mr->context, context());
    EXPECT_EQ(mr->pd, own().pd.get());
    EXPECT_GE(mr->length, device().attributes().max_mr_size);
  }
  const About about("ibv_alloc_null_mr.dereg");
  EXPECT_SUCCEEDS(mr.destroy());
}

CONFORMANCE_TEST(mr, NullRegionReadsAsZeros, "ibv_alloc_null_mr.read-zero") {
  const Mr mr = null_mr();
  ASSERT_EQ(far().receive(0, 64), 0);
  EXPECT_EQ(send({0, 64, mr->lkey}), IBV_WC_SUCCESS);
  EXPECT_EQ(far().received().bytes, 64u);
  EXPECT_TRUE(far().has(0, 64, 0));
  EXPECT_TRUE(far().untouched(64, 128));
}

CONFORMANCE_TEST(mr, NullRegionDiscards, "ibv_alloc_null_mr.discards") {
  const Mr mr = null_mr();
  ibv_sge element{0, 64, mr->lkey};
  ibv_send_wr wr = own().request(IBV_WR_RDMA_READ, &element);
  wr.wr.rdma = {far().address(), far().facts().rkey};
  ASSERT_TRUE(succeeded(own().post(wr)));
  EXPECT_EQ(completion(own().cq).status, IBV_WC_SUCCESS);
  ASSERT_EQ(far().receive(0, 64), 0);
  EXPECT_EQ(send({0, 64, mr->lkey}), IBV_WC_SUCCESS);
  EXPECT_EQ(far().received().bytes, 64u);
  EXPECT_TRUE(far().has(0, 64, 0)) << "what was written is still there";
}

CONFORMANCE_TEST(mr, NullRegionHasNoRkey, "ibv_alloc_null_mr.no-remote") {
  const Mr mr = null_mr();
  EXPECT_EQ(far_writes(0, mr->rkey, 8), IBV_WC_REM_ACCESS_ERR);
}

}  // namespace null_region

}  // namespace
}  // namespace conformance::mr_keys_chapter
