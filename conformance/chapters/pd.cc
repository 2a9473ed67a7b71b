// SPDX-License-Identifier: BSD-2-Clause
//
// Protection domains, parent domains and thread domains.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <vector>

#include "support/ends.h"
#include "support/fixture.h"
#include "support/objects.h"

namespace conformance::pd_chapter {
namespace {

using Fixture = DeviceTest;

// The PD is refused while `object` exists, and can be deallocated once it is gone.
template <typename Object>
void expect_busy(Pd& pd, Object& object) {
  EXPECT_REFUSED(ibv_dealloc_pd(pd));
  EXPECT_SUCCEEDS(object.destroy());
  EXPECT_SUCCEEDS(pd.destroy());
}

CONFORMANCE_TEST(pd, AllocatesAndDeallocates, "ibv_alloc_pd.pointer", "ibv_dealloc_pd.zero") {
  Pd pd(CALL(ibv_alloc_pd(context())));
  ABOUT("ibv_alloc_pd.pointer") {
    ASSERT_NE(pd, nullptr);
    EXPECT_EQ(pd->context, context());
  }
  ABOUT("ibv_dealloc_pd.zero") EXPECT_SUCCEEDS(pd.destroy());
}

CONFORMANCE_TEST(pd, SeveralSideBySide, "ibv_alloc_pd.several") {
  Pd one = make_pd(device());
  const Pd other = make_pd(device());
  EXPECT_NE(one.get(), other.get());
  // Not by their handles, of which no page speaks: when one has gone, the other is still there.
  EXPECT_SUCCEEDS(one.destroy());
  const Buffer buffer(4096);
  Mr mr = make_mr(other, buffer);
  EXPECT_SUCCEEDS(mr.destroy());
}

CONFORMANCE_TEST(pd, ManyAtOnce, "ibv_alloc_pd.many") {
  const int count =
      std::clamp(device().attributes().max_pd - 8, 2, 1000);  // some for other users of the device
  std::vector<Pd> all;
  for (int i = 0; i < count; ++i) {
    all.emplace_back(CALL(ibv_alloc_pd(context())));
    ASSERT_NE(all.back(), nullptr) << "PD " << i << " of " << count;
  }
}

CONFORMANCE_TEST(pd, NothingIsUsedUp, "ibv_alloc_pd.reuse") {
  const auto end = std::chrono::steady_clock::now() + scaled(std::chrono::seconds(6));
  for (int i = 0; i < 2000 && std::chrono::steady_clock::now() < end; ++i) {
    Pd pd(ibv_alloc_pd(context()));
    ASSERT_NE(pd, nullptr) << "round " << i;
    ASSERT_EQ(pd.destroy(), 0) << "round " << i;
  }
}

CONFORMANCE_TEST(pd, BusyWithAnMr, "ibv_dealloc_pd.busy-mr") {
  Pd pd = make_pd(device());
  const Buffer buffer(4096);
  Mr mr = make_mr(pd, buffer);
  expect_busy(pd, mr);
}

CONFORMANCE_TEST(pd, BusyWithAQp, "ibv_dealloc_pd.busy-qp") {
  Pd pd = make_pd(device());
  const Cq cq = make_cq(device());
  Qp qp = make_qp(pd, cq);
  expect_busy(pd, qp);
}

CONFORMANCE_TEST(pd, BusyWithAnSrq, "ibv_dealloc_pd.busy-srq") {
  Pd pd = make_pd(device());
  Srq srq = make_srq(device(), pd);
  expect_busy(pd, srq);
}

CONFORMANCE_TEST(pd, BusyWithAnAh, "ibv_dealloc_pd.busy-ah") {
  Pd pd = make_pd(device());
  ibv_ah_attr address = device().own_address();
  Ah ah(CALL(ibv_create_ah(pd, &address)));
  // The page promises null, and no errno value: a provider without datagrams may leave errno alone.
  if (!ah && (errno == 0 || is_refusal(errno)))
    throw NotClaimed{"ibv_create_ah refused with " + errno_text(errno)};
  ASSERT_NE(ah, nullptr);
  const int early = CALL(pd.destroy());  // some handles exist in user space only
  EXPECT_SUCCEEDS(ah.destroy());
  if (early == 0) return;
  EXPECT_TRUE(refused(early));
  EXPECT_SUCCEEDS(pd.destroy());
}

CONFORMANCE_TEST(pd, BusyWithAnMw, "ibv_dealloc_pd.busy-mw") {
  Pd pd = make_pd(device());
  Mw mw = make_mw(pd, IBV_MW_TYPE_1);
  expect_busy(pd, mw);
}

Td make_td(ibv_context* context) {
  ibv_td_init_attr attr = {};
  Td td(CALL(ibv_alloc_td(context, &attr)));
  if (!td && is_refusal(errno)) throw NotClaimed{"ibv_alloc_td refused with " + errno_text(errno)};
  if (!td) throw Deviation{"expected: a thread domain, or null with errno", Where::current()};
  return td;
}

Pd make_parent(ibv_context* context, ibv_parent_domain_init_attr attr, Where where = Where::current()) {
  Pd parent(CALL(ibv_alloc_parent_domain(context, &attr)));
  if (!parent && is_refusal(errno))
    throw NotClaimed{"ibv_alloc_parent_domain refused with " + errno_text(errno)};
  if (!parent) throw Deviation{"expected: a parent domain; seen: null, errno " + errno_text(errno), where};
  return parent;
}

CONFORMANCE_TEST(pd, ThreadDomainComesAndGoes, "ibv_alloc_td.pointer", "ibv_dealloc_td.zero") {
  Td td = make_td(context());
  ABOUT("ibv_alloc_td.pointer") EXPECT_EQ(td->context, context());
  ABOUT("ibv_dealloc_td.zero") EXPECT_SUCCEEDS(td.destroy());
}

CONFORMANCE_TEST(pd, ParentDomainTakesAnMr, "ibv_alloc_parent_domain.pd", "ibv_alloc_parent_domain.dealloc") {
  Pd pd = make_pd(device());
  Pd parent = make_parent(context(), {pd, nullptr, 0, nullptr, nullptr, nullptr});
  const Buffer buffer(4096);
  ABOUT("ibv_alloc_parent_domain.pd") {
    Mr mr = make_mr(parent, buffer);
    ASSERT_SUCCEEDS(mr.destroy());
  }
  const About about("ibv_alloc_parent_domain.dealloc");
  EXPECT_SUCCEEDS(parent.destroy());
  Mr after = make_mr(pd, buffer);
  EXPECT_SUCCEEDS(after.destroy());
  EXPECT_SUCCEEDS(pd.destroy());
}

CONFORMANCE_TEST(pd, ParentDomainAndPdAreOne, "ibv_alloc_parent_domain.interchangeable") {
  const Pd pd = make_pd(device());
  const Pd parent = make_parent(context(), {pd, nullptr, 0, nullptr, nullptr, nullptr});
  for (const auto& [of_qp, of_region] : {std::pair(pd.get(), parent.get()), {parent.get(), pd.get()}}) {
    const Cq cq = make_cq(device());
    const Qp qp = make_qp(of_qp, cq);  // first: a device without RC may not have the region's right either
    const Buffer buffer(256);
    const Mr mr = make_mr(of_region, buffer, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    bring_to(qp, IBV_QPS_RTS, attributes_for(device(), {.destination = qp->qp_num}));
    buffer[0] = 0x77;
    ibv_sge element{buffer.address(), 8, mr->lkey};
    ibv_send_wr wr = {}, *bad = nullptr;
    wr.sg_list = &element;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_RDMA_WRITE;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.wr.rdma = {buffer.address(128), mr->rkey};
    ASSERT_SUCCEEDS(ibv_post_send(qp, &wr, &bad));
    EXPECT_EQ(completion(cq).status, IBV_WC_SUCCESS);
    EXPECT_EQ(buffer[128], 0x77);
  }
}

CONFORMANCE_TEST(pd, ParentDomainWithAThreadDomainTakesAQp, "ibv_alloc_parent_domain.td",
                 "ibv_dealloc_td.after-resources") {
  Td td = make_td(context());
  const Pd pd = make_pd(device());
  Pd parent = make_parent(context(), {pd, td, 0, nullptr, nullptr, nullptr});
  const Cq cq = make_cq(device());
  Qp qp = make_qp(parent, cq);
  EXPECT_SUCCEEDS(qp.destroy());
  ABOUT("ibv_alloc_parent_domain.td") EXPECT_SUCCEEDS(parent.destroy());
  ABOUT("ibv_dealloc_td.after-resources") EXPECT_SUCCEEDS(td.destroy());
}

CONFORMANCE_TEST(pd, ParentDomainNeedsAPd, "ibv_alloc_parent_domain.null-pd") {
  const Pd pd = make_pd(device());
  make_parent(context(), {pd, nullptr, 0, nullptr, nullptr, nullptr});  // or it is not claimed at all
  ibv_parent_domain_init_attr attr = {};
  const Pd parent(CALL(ibv_alloc_parent_domain(context(), &attr)));
  EXPECT_TRUE(refused_with_errno(parent.get()));
}

CONFORMANCE_TEST(pd, UnknownMaskOfAParentDomainIsRefused, "ibv_alloc_parent_domain.comp-mask") {
  const Pd pd = make_pd(device());
  make_parent(context(), {pd, nullptr, 0, nullptr, nullptr, nullptr});
  ibv_parent_domain_init_attr attr = {pd, nullptr, 1u << 31, nullptr, nullptr, nullptr};
  const Pd parent(CALL(ibv_alloc_parent_domain(context(), &attr)));
  EXPECT_TRUE(refused_with_errno(parent.get()));
}

CONFORMANCE_TEST(pd, PdIsBusyWithItsParentDomain, "ibv_alloc_parent_domain.pd-busy") {
  Pd pd = make_pd(device());
  Pd parent = make_parent(context(), {pd, nullptr, 0, nullptr, nullptr, nullptr});
  const int early = CALL(pd.destroy());  // a provider need not count them
  EXPECT_SUCCEEDS(parent.destroy());
  observe("ibv_alloc_parent_domain.pd-busy",
          early == 0 ? "the PD goes first" : "it is refused with " + errno_text(early));
  if (early == 0) return;
  EXPECT_TRUE(refused(early));
  EXPECT_SUCCEEDS(pd.destroy());
}

struct Allocations {
  ibv_pd* pd = nullptr;
  bool use_default = false;
  int given = 0, freed = 0, wrong = 0;

  static void* alloc(ibv_pd* pd, void* context, size_t size, size_t alignment, uint64_t) {
    auto& self = *static_cast<Allocations*>(context);
    self.wrong += (self.pd != nullptr && pd != self.pd) || size == 0;
    if (self.use_default) return IBV_ALLOCATOR_USE_DEFAULT;
    alignment = std::max(alignment, sizeof(void*));
    void* memory = aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
    if (memory != nullptr) memset(memory, 0, size);
    self.given += memory != nullptr;
    return memory;
  }
  static void release(ibv_pd*, void* context, void* memory, uint64_t) {
    ++static_cast<Allocations*>(context)->freed;
    free(memory);
  }
  ibv_parent_domain_init_attr attributes(ibv_pd* of) {
    return {of,    nullptr, IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT,
            alloc, release, this};
  }
};

CONFORMANCE_TEST(pd, AllocatorIsAskedWithItsArguments, "ibv_alloc_parent_domain.allocator-arguments",
                 "ibv_alloc_parent_domain.free-pairs") {
  const Pd pd = make_pd(device());
  const Cq cq = make_cq(device());
  Allocations allocations;
  Pd parent = make_parent(context(), allocations.attributes(pd));
  allocations.pd = parent;
  Qp qp = make_qp(parent, cq);
  EXPECT_EQ(allocations.wrong, 0) << "calls with another PD, or of size 0";
  EXPECT_SUCCEEDS(qp.destroy());
  EXPECT_SUCCEEDS(parent.destroy());
  if (allocations.given == 0) throw NotTested{"the provider allocates nothing for a QP with it"};
  const About about("ibv_alloc_parent_domain.free-pairs");
  EXPECT_EQ(allocations.freed, allocations.given);
}

CONFORMANCE_TEST(pd, AllocatorMayLeaveItToTheLibrary, "ibv_alloc_parent_domain.allocator-default") {
  const Pd pd = make_pd(device());
  const Cq cq = make_cq(device());
  Allocations allocations;
  allocations.use_default = true;
  Pd parent = make_parent(context(), allocations.attributes(pd));
  Qp qp = make_qp(parent, cq);
  EXPECT_SUCCEEDS(qp.destroy());
  EXPECT_EQ(allocations.freed, 0) << "frees of what the allocator did not give";
}

}  // namespace
}  // namespace conformance::pd_chapter
