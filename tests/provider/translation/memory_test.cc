// SPDX-License-Identifier: BSD-2-Clause
//
// Regions, windows and device memory: which fields the program gets filled in, and what reaches the emulator.
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/rdma_user_ioctl_cmds.h>

#include "fixture.h"

namespace verbena::test {
namespace {

alignas(4096) char page[4096];

class MemoryTest : public ObjectTest {
 protected:
  void TearDown() override {
    fake.error = 0;
    if (mr_ != nullptr) {
      EXPECT_EQ(ibv_dereg_mr(mr_), 0);
    }
    if (mw_ != nullptr) {
      EXPECT_EQ(ibv_dealloc_mw(mw_), 0);
    }
    if (dm_ != nullptr) {
      EXPECT_EQ(ibv_free_dm(dm_), 0);
    }
    ObjectTest::TearDown();
  }
  void make_mw() {
    mw_ = ibv_alloc_mw(pd_, IBV_MW_TYPE_1);
    ASSERT_NE(mw_, nullptr);
  }
  void make_dm() {
    ibv_alloc_dm_attr attr = {.length = 64, .log_align_req = 0, .comp_mask = 0};
    dm_ = ibv_alloc_dm(context_, &attr);
    ASSERT_NE(dm_, nullptr);
  }
  int bind(unsigned access = IBV_ACCESS_REMOTE_READ) {
    ibv_mw_bind bind = {};
    bind.wr_id = 5;
    bind.send_flags = IBV_SEND_SIGNALED;
    bind.bind_info = {.mr = mr_, .addr = 4, .length = 8, .mw_access_flags = access};
    return ibv_bind_mw(qp_, mw_, &bind);
  }

  ibv_mr* mr_ = nullptr;
  ibv_mw* mw_ = nullptr;
  ibv_dm* dm_ = nullptr;
};

TEST_F(MemoryTest, ReregChangesWhatItsFlagsName) {
  mr_ = ibv_reg_mr(pd_, page, 8, 0);
  ASSERT_EQ(ibv_rereg_mr(mr_, IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, page + 16, 32, 0), 0);
  EXPECT_EQ(fake.rereg_flags, IBV_REREG_MR_CHANGE_TRANSLATION);
  EXPECT_EQ(fake.rereg_pd, nullptr);
  EXPECT_EQ(mr_->addr, page + 16);
  EXPECT_EQ(mr_->length, 32u);
  EXPECT_EQ(mr_->pd, pd_);
}

TEST_F(MemoryTest, ReregPassesThePdOnlyIfItChanges) {
  mr_ = ibv_reg_mr(pd_, page, 8, 0);
  ASSERT_EQ(ibv_rereg_mr(mr_, IBV_REREG_MR_CHANGE_ACCESS, pd_, nullptr, 0, IBV_ACCESS_LOCAL_WRITE), 0);
  EXPECT_EQ(fake.rereg_pd, nullptr);
  ASSERT_EQ(ibv_rereg_mr(mr_, IBV_REREG_MR_CHANGE_PD, pd_, nullptr, 0, 0), 0);
  EXPECT_NE(fake.rereg_pd, nullptr);
}

TEST_F(MemoryTest, ARefusedReregIsACommandError) {
  mr_ = ibv_reg_mr(pd_, page, 8, 0);
  fake.error = EBUSY;
  EXPECT_EQ(ibv_rereg_mr(mr_, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, 0), IBV_REREG_MR_ERR_CMD);
  EXPECT_EQ(errno, EBUSY);
}

TEST_F(MemoryTest, TheNullMrHasNoAddress) {
  mr_ = ibv_alloc_null_mr(pd_);
  ASSERT_NE(mr_, nullptr);
  EXPECT_EQ(mr_->addr, nullptr);
  EXPECT_EQ(mr_->pd, pd_);
  EXPECT_EQ(mr_->context, context_);
}

TEST_F(MemoryTest, ADmabufMrBeginsAtItsOffset) {
  mr_ = ibv_reg_dmabuf_mr(pd_, 0x1008, 100, 0x7008, 0, 0);
  ASSERT_NE(mr_, nullptr);
  EXPECT_EQ(fake.iova, 0x7008u);
  EXPECT_EQ(mr_->addr, reinterpret_cast<void*>(0x1008));
}

TEST_F(MemoryTest, ADmabufIovaElsewhereInItsPageIsInvalid) {
  EXPECT_EQ(ibv_reg_dmabuf_mr(pd_, 0x1000, 100, 0x7008, 0, 0), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

// ibv_reg_mr_ex(3) of rdma-core 59 and newer: the operation, since the installed libibverbs may be older.
class ExtendedRegistration : public MemoryTest {
 protected:
  bool registers(uint64_t comp_mask) {
    pabi_mr_init_attr attr = {};
    attr.length = 100;
    attr.access = IBV_ACCESS_LOCAL_WRITE;
    attr.comp_mask = comp_mask;
    attr.iova = 0x7000;
    attr.addr = page;
    attr.fd_offset = 0x1000;
    fake.iova = 0;
    errno = 0;
    mr_ = verbs::reg_mr_ex(pd_, reinterpret_cast<ibv_mr_init_attr*>(&attr));
    const bool done = mr_ != nullptr;
    if (done) {
      EXPECT_EQ(verbs::dereg_mr(reinterpret_cast<pabi_mr*>(mr_)), 0);
    }
    mr_ = nullptr;
    return done;
  }
};

TEST_F(ExtendedRegistration, TakesAnAddressOrADmabuf) {
  constexpr uint64_t kDmabuf = PABI_REG_MR_FD | PABI_REG_MR_FD_OFFSET;
  EXPECT_TRUE(registers(PABI_REG_MR_ADDR));
  EXPECT_EQ(fake.iova, reinterpret_cast<uintptr_t>(page));
  EXPECT_EQ(fake.access, IBV_ACCESS_LOCAL_WRITE);
  for (const uint64_t place : {uint64_t{PABI_REG_MR_ADDR}, kDmabuf}) {
    EXPECT_TRUE(registers(place | PABI_REG_MR_IOVA));
    EXPECT_EQ(fake.iova, 0x7000u);
  }
}

TEST_F(ExtendedRegistration, RefusesOtherCombinations) {
  constexpr uint64_t kDmabuf = PABI_REG_MR_FD | PABI_REG_MR_FD_OFFSET;
  for (const uint64_t mask :
       {uint64_t{0}, uint64_t{PABI_REG_MR_IOVA}, kDmabuf, uint64_t{PABI_REG_MR_FD | PABI_REG_MR_IOVA},
        kDmabuf | PABI_REG_MR_ADDR | PABI_REG_MR_IOVA, uint64_t{PABI_REG_MR_ADDR | PABI_REG_MR_FD_OFFSET}}) {
    EXPECT_FALSE(registers(mask)) << mask;
    EXPECT_EQ(errno, EINVAL) << mask;
  }
  for (const uint64_t mask : {PABI_REG_MR_ADDR | PABI_REG_MR_DMAH, PABI_REG_MR_ADDR | 0x100u}) {
    EXPECT_FALSE(registers(mask)) << mask;
    EXPECT_EQ(errno, EOPNOTSUPP) << mask;
  }
}

TEST_F(MemoryTest, AdviceAnswersTheError) {
  ibv_sge sge = {};
  fake.error = ENOENT;
  EXPECT_EQ(ibv_advise_mr(pd_, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &sge, 1), ENOENT);
}

TEST_F(MemoryTest, MwHasEveryFieldFilledIn) {
  make_mw();
  EXPECT_EQ(mw_->context, context_);
  EXPECT_EQ(mw_->pd, pd_);
  EXPECT_EQ(mw_->rkey, 0x3ffu);
  EXPECT_EQ(mw_->handle, 15u);
  EXPECT_EQ(mw_->type, IBV_MW_TYPE_1);
}

TEST_F(MemoryTest, BindPostsTheNextKeyAndTellsIt) {
  make_qp();
  make_mw();
  mr_ = ibv_reg_mr(pd_, page, 64, 0);
  ASSERT_EQ(bind(), 0);
  EXPECT_EQ(fake.sent_copy.opcode, IBV_WR_BIND_MW);
  EXPECT_EQ(fake.sent_copy.wr_id, 5u);
  EXPECT_EQ(fake.sent_copy.send_flags, unsigned{IBV_SEND_SIGNALED});
  EXPECT_EQ(fake.sent_copy.bind_mw.mw, mw_);
  EXPECT_EQ(fake.sent_copy.bind_mw.rkey, 0x300u);  // 0x3ff and a new tag
  EXPECT_EQ(fake.sent_copy.bind_mw.bind_info.addr, 4u);
  EXPECT_EQ(mw_->rkey, 0x300u);
}

TEST_F(MemoryTest, ARefusedBindLeavesTheKey) {
  make_qp();
  make_mw();
  mr_ = ibv_reg_mr(pd_, page, 64, 0);
  fake.error = ENOMEM;
  EXPECT_EQ(bind(), ENOMEM);
  EXPECT_EQ(mw_->rkey, 0x3ffu);
}

TEST_F(MemoryTest, AZeroBasedBindOfType1IsInvalid) {
  make_qp();
  make_mw();
  mr_ = ibv_reg_mr(pd_, page, 64, 0);
  EXPECT_EQ(bind(IBV_ACCESS_ZERO_BASED), EINVAL);
  EXPECT_EQ(fake.sent, nullptr);
}

TEST_F(MemoryTest, DmHasEveryFieldFilledIn) {
  make_dm();
  EXPECT_EQ(dm_->context, context_);
  EXPECT_EQ(dm_->handle, 16u);
  EXPECT_EQ(dm_->comp_mask, uint32_t{IBV_DM_MASK_HANDLE});
}

TEST_F(MemoryTest, DmIsCopiedToAndFrom) {
  make_dm();
  EXPECT_EQ(ibv_memcpy_to_dm(dm_, 12, page, 4), 0);
  EXPECT_EQ(fake.iova, 12u);
  fake.error = EFAULT;
  EXPECT_EQ(ibv_memcpy_from_dm(page, dm_, 16, 4), EFAULT);
  EXPECT_EQ(fake.iova, 16u);
}

TEST_F(MemoryTest, ADmMrHasItsKeys) {
  make_dm();
  mr_ = ibv_reg_dm_mr(pd_, dm_, 0, 64, IBV_ACCESS_ZERO_BASED);
  ASSERT_NE(mr_, nullptr);
  EXPECT_EQ(mr_->lkey, 0x100u);
  EXPECT_EQ(mr_->rkey, 0x200u);
  EXPECT_EQ(mr_->addr, nullptr);
  EXPECT_EQ(fake.access, IBV_ACCESS_ZERO_BASED);
}

TEST_F(MemoryTest, AnImportedPdIsOfItsContext) {
  ibv_pd* pd = ibv_import_pd(context_, 11);
  ASSERT_NE(pd, nullptr);
  EXPECT_EQ(pd->context, context_);
  EXPECT_EQ(pd->handle, 11u);
  ibv_unimport_pd(pd);
  EXPECT_EQ(fake.unimported, 0);
  verbs::free_unimported(verbs::to_context(context_));  // as when it is closed
  EXPECT_EQ(fake.unimported, 1);
}

TEST_F(MemoryTest, AnImportedMrHasKeysAndLengthButNoAddress) {
  ibv_mr* mr = ibv_import_mr(pd_, 12);
  ASSERT_NE(mr, nullptr);
  EXPECT_EQ(mr->addr, nullptr);
  EXPECT_EQ(mr->length, 100u);
  EXPECT_EQ(mr->lkey, 0x100u);
  EXPECT_EQ(mr->rkey, 0x200u);
  EXPECT_EQ(mr->pd, pd_);
  ibv_unimport_mr(mr);
}

TEST_F(MemoryTest, AnImportedDmCanBeUnimported) {
  ibv_dm* dm = ibv_import_dm(context_, 16);
  ASSERT_NE(dm, nullptr);
  EXPECT_EQ(dm->handle, 16u);
  ibv_unimport_dm(dm);
}

TEST_F(MemoryTest, AHandleThatIsNotThereCannotBeImported) {
  fake.error = ENOENT;
  EXPECT_EQ(ibv_import_pd(context_, 1), nullptr);
  EXPECT_EQ(ibv_import_mr(pd_, 1), nullptr);
  EXPECT_EQ(ibv_import_dm(context_, 1), nullptr);
  EXPECT_EQ(errno, ENOENT);
}

// Without the preload the descriptor cannot be recognised.
TEST_F(TranslationTest, ADescriptorThatNobodyClaimsCannotBeImported) {
  EXPECT_EQ(verbs::import_context(&device_.device, cmd_fd_), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  EXPECT_TRUE(is_open(cmd_fd_));
  close(cmd_fd_);
}

TEST_F(MemoryTest, AContextWithAnAsyncDescriptorIsGivenNoOther) {
  alignas(8) char bytes[sizeof(ib_uverbs_ioctl_hdr) + sizeof(ib_uverbs_attr)] = {};
  auto* command = reinterpret_cast<ib_uverbs_ioctl_hdr*>(bytes);
  command->object_id = UVERBS_OBJECT_ASYNC_EVENT;
  command->method_id = UVERBS_METHOD_ASYNC_EVENT_ALLOC;
  command->num_attrs = 1;
  command->attrs[0].attr_id = UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE;
  EXPECT_EQ(verbs::answer_control(verbs::to_context(context_), RDMA_VERBS_IOCTL, command), -1);
  EXPECT_EQ(errno, ENOTTY);
}

TEST_F(MemoryTest, AnotherIoctlIsNotOurs) {
  EXPECT_EQ(verbs::answer_control(verbs::to_context(context_), 0x5401, nullptr), -1);
  EXPECT_EQ(errno, ENOTTY);
}

}  // namespace
}  // namespace verbena::test
