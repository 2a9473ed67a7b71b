// SPDX-License-Identifier: BSD-2-Clause
//
// Thread domains and parent domains (ibv_alloc_td(3), ibv_alloc_parent_domain(3)).
#include <map>

#include "pair.h"

namespace verbena::test {
namespace {

using Td = std::unique_ptr<ibv_td, Destroyer<ibv_dealloc_td>>;

// The program's allocators, and their calls.
struct Heap {
  std::map<void*, uint64_t> given;  // and for which resource
  ibv_pd* pd = nullptr;
  size_t frees = 0;
  bool refuses = false;
  bool defers = false;

  static void* alloc(ibv_pd* pd, void* context, size_t size, size_t alignment, uint64_t resource) {
    auto* heap = static_cast<Heap*>(context);
    heap->pd = pd;
    if (heap->refuses) return nullptr;
    if (heap->defers) return IBV_ALLOCATOR_USE_DEFAULT;
    EXPECT_NE(alignment, 0u);
    void* memory = nullptr;
    EXPECT_EQ(posix_memalign(&memory, alignment, size), 0);
    memset(memory, 0xa5, size);
    heap->given[memory] = resource;
    return memory;
  }
  static void free(ibv_pd*, void* context, void* memory, uint64_t resource) {
    auto* heap = static_cast<Heap*>(context);
    EXPECT_EQ(heap->given.count(memory), 1u);
    EXPECT_EQ(heap->given[memory], resource);
    heap->given.erase(memory);
    heap->frees++;
    ::free(memory);
  }
};

class DomainTest : public PairTest {
 protected:
  Td make_td() {
    ibv_td_init_attr attr = {};
    return Td(ibv_alloc_td(context_.get(), &attr));
  }
  ibv_parent_domain_init_attr domain_attr(ibv_td* td = nullptr) {
    ibv_parent_domain_init_attr attr = {};
    attr.pd = pd_.get();
    attr.td = td;
    return attr;
  }
  Pd make_domain(ibv_parent_domain_init_attr attr) {
    return Pd(ibv_alloc_parent_domain(context_.get(), &attr));
  }
  Pd make_domain_with(Heap* heap) {
    ibv_parent_domain_init_attr attr = domain_attr();
    attr.comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT;
    attr.alloc = Heap::alloc;
    attr.free = Heap::free;
    attr.pd_context = heap;
    return make_domain(attr);
  }
  Qp make_qp_in(ibv_pd* pd) {
    ibv_qp_init_attr init = qp_init(cq_.get(), cq_.get());
    return Qp(ibv_create_qp(pd, &init));
  }
  Cq make_cq_in(ibv_pd* pd) {
    ibv_cq_init_attr_ex attr = {};
    attr.cqe = 16;
    attr.comp_mask = IBV_CQ_INIT_ATTR_MASK_PD;
    attr.parent_domain = pd;
    ibv_cq_ex* cq = ibv_create_cq_ex(context_.get(), &attr);
    return Cq(cq != nullptr ? ibv_cq_ex_to_cq(cq) : nullptr);
  }
};

TEST_F(DomainTest, AThreadDomainHasItsContext) {
  const Td td = make_td();
  ASSERT_NE(td, nullptr);
  EXPECT_EQ(td->context, context_.get());
}

TEST_F(DomainTest, AThreadDomainWithUnknownAttributesIsRefused) {
  ibv_td_init_attr attr = {.comp_mask = 1};
  errno = 0;
  EXPECT_EQ(ibv_alloc_td(context_.get(), &attr), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(DomainTest, AThreadDomainInUseStays) {
  const Td td = make_td();
  Pd domain = make_domain(domain_attr(td.get()));
  ASSERT_NE(domain, nullptr);
  EXPECT_EQ(ibv_dealloc_td(td.get()), EBUSY);
}

TEST_F(DomainTest, ItNeedsAPd) {
  ibv_parent_domain_init_attr attr = {};
  errno = 0;
  EXPECT_EQ(ibv_alloc_parent_domain(context_.get(), &attr), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(DomainTest, UnknownAttributesAreRefused) {
  ibv_parent_domain_init_attr attr = domain_attr();
  attr.comp_mask = 1 << 10;
  errno = 0;
  EXPECT_EQ(ibv_alloc_parent_domain(context_.get(), &attr), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(DomainTest, ThePdOfAParentDomainStays) {
  const Pd pd(ibv_alloc_pd(context_.get()));
  ibv_parent_domain_init_attr attr = domain_attr();
  attr.pd = pd.get();
  const Pd domain = make_domain(attr);
  ASSERT_NE(domain, nullptr);
  EXPECT_EQ(ibv_dealloc_pd(pd.get()), EBUSY);
}

TEST_F(DomainTest, AParentDomainWithAQpStays) {
  const Pd domain = make_domain(domain_attr());
  const Qp qp = make_qp_in(domain.get());
  ASSERT_NE(qp, nullptr);
  EXPECT_EQ(ibv_dealloc_pd(domain.get()), EBUSY);
}

// "A parent domain is completely interchangeable with the struct ibv_pd used to create it"
// (ibv_alloc_parent_domain(3)).
TEST_F(DomainTest, ItsMemoryIsThatOfItsPd) {
  const Pd domain = make_domain(domain_attr());
  const Buffer buffer(domain.get(), 4096);
  buffer.fill(3);
  EXPECT_EQ(carry_out(IBV_WR_RDMA_WRITE, buffer.sge(0, 64)).status, IBV_WC_SUCCESS);
  EXPECT_EQ(memcmp(buffer.data(), remote_.data(), 64), 0);
}

TEST_F(DomainTest, QpsOfAThreadDomainWork) {
  const Td td = make_td();
  const Pd domain = make_domain(domain_attr(td.get()));
  responder_.reset();
  responder_ = make_qp_in(domain.get());
  ASSERT_NE(responder_, nullptr);
  EXPECT_EQ(responder_->pd, domain.get());
  ASSERT_EQ(to_state(requester_.get(), IBV_QPS_RESET), 0);
  connect(requester_.get(), responder_->qp_num);
  connect(responder_.get(), requester_->qp_num);
  EXPECT_EQ(carry_out(IBV_WR_RDMA_WRITE, local_.sge(0, 64)).status, IBV_WC_SUCCESS);
  responder_.reset();
}

TEST_F(DomainTest, AQpsMemoryIsTheProgramsAndGivenBack) {
  Heap heap;
  const Pd domain = make_domain_with(&heap);
  Qp qp = make_qp_in(domain.get());
  ASSERT_NE(qp, nullptr);
  EXPECT_EQ(heap.pd, domain.get());
  EXPECT_FALSE(heap.given.empty());
  qp.reset();
  EXPECT_TRUE(heap.given.empty());
  EXPECT_NE(heap.frees, 0u);
}

TEST_F(DomainTest, ACqsMemoryIsTheProgramsAndGivenBack) {
  Heap heap;
  const Pd domain = make_domain_with(&heap);
  Cq cq = make_cq_in(domain.get());
  ASSERT_NE(cq, nullptr);
  EXPECT_FALSE(heap.given.empty());
  EXPECT_EQ(ibv_dealloc_pd(domain.get()), EBUSY);
  cq.reset();
  EXPECT_TRUE(heap.given.empty());
}

TEST_F(DomainTest, AnAllocatorMayLeaveItToUs) {
  Heap heap;
  heap.defers = true;
  const Pd domain = make_domain_with(&heap);
  Qp qp = make_qp_in(domain.get());
  ASSERT_NE(qp, nullptr);
  qp.reset();
  EXPECT_EQ(heap.frees, 0u);
}

TEST_F(DomainTest, AnAllocatorThatRefusesMeansNoMemory) {
  Heap heap;
  heap.refuses = true;
  const Pd domain = make_domain_with(&heap);
  errno = 0;
  EXPECT_EQ(make_qp_in(domain.get()), nullptr);
  EXPECT_EQ(errno, ENOMEM);
  errno = 0;
  EXPECT_EQ(make_cq_in(domain.get()), nullptr);
  EXPECT_EQ(errno, ENOMEM);
}

TEST_F(DomainTest, WhatIsRefusedGivesItsMemoryBack) {
  Heap heap;
  const Pd domain = make_domain_with(&heap);
  ibv_qp_init_attr init = qp_init(cq_.get(), cq_.get());
  init.cap.max_send_wr = UINT32_MAX;
  EXPECT_EQ(ibv_create_qp(domain.get(), &init), nullptr);
  EXPECT_TRUE(heap.given.empty());
}

}  // namespace
}  // namespace verbena::test
