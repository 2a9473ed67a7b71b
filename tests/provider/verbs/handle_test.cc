// SPDX-License-Identifier: BSD-2-Clause
//
// Verbs that are commands to the kernel name objects by the handle in the program's structure. A handle that
// is not the object's is refused as by the kernel (drivers/infiniband/core/uverbs_cmd.c, rdma_core.c): EINVAL
// by verbs that use an object, ENOENT by those that end it. The object is as before.
#include <functional>

#include "fixture.h"

namespace verbena::test {
namespace {

struct HandleObjects {
  ibv_context* context;
  ibv_pd* pd;
  ibv_mr* mr;
  ibv_mw* mw;
  ibv_dm* dm;
  ibv_ah* ah;
  ibv_cq* cq;
  ibv_srq* srq;
  ibv_qp* qp;
  ibv_ah_attr address;
  void* memory;
};

// What names the object in the program's structure.
struct Name {
  uint32_t& handle;
  ibv_context*& context;
};

struct HandleCase {
  const char* verb;
  int error;
  Name (*name)(HandleObjects&);
  std::function<int(HandleObjects&)> call;  // 0 or errno
};

template <typename Object>
int errno_of(Object* created) {
  EXPECT_EQ(created, nullptr);
  return created == nullptr ? errno : 0;
}

Name of_pd(HandleObjects& o) { return {o.pd->handle, o.pd->context}; }
Name of_mr(HandleObjects& o) { return {o.mr->handle, o.mr->context}; }
Name of_mw(HandleObjects& o) { return {o.mw->handle, o.mw->context}; }
Name of_dm(HandleObjects& o) { return {o.dm->handle, o.dm->context}; }
Name of_ah(HandleObjects& o) { return {o.ah->handle, o.ah->context}; }
Name of_cq(HandleObjects& o) { return {o.cq->handle, o.cq->context}; }
Name of_srq(HandleObjects& o) { return {o.srq->handle, o.srq->context}; }
Name of_qp(HandleObjects& o) { return {o.qp->handle, o.qp->context}; }

int create_qp_of(HandleObjects& o, ibv_cq* send_cq, ibv_cq* recv_cq, ibv_srq* srq) {
  ibv_qp_init_attr init = {};
  init.send_cq = send_cq;
  init.recv_cq = recv_cq;
  init.srq = srq;
  init.cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 0};
  init.qp_type = IBV_QPT_RC;
  return errno_of(ibv_create_qp(o.pd, &init));
}

// Functions, not macros of <infiniband/verbs.h>.
const HandleCase kHandleCases[] = {
    {"ibv_dealloc_pd", ENOENT, of_pd, [](auto& o) { return ibv_dealloc_pd(o.pd); }},
    {"ibv_reg_mr", EINVAL, of_pd, [](auto& o) { return errno_of((ibv_reg_mr)(o.pd, o.memory, 64, 0)); }},
    {"ibv_alloc_mw", EINVAL, of_pd, [](auto& o) { return errno_of(ibv_alloc_mw(o.pd, IBV_MW_TYPE_1)); }},
    {"ibv_alloc_null_mr", EINVAL, of_pd, [](auto& o) { return errno_of(ibv_alloc_null_mr(o.pd)); }},
    {"ibv_create_ah", EINVAL, of_pd, [](auto& o) { return errno_of(ibv_create_ah(o.pd, &o.address)); }},
    {"ibv_create_qp", EINVAL, of_pd, [](auto& o) { return create_qp_of(o, o.cq, o.cq, nullptr); }},
    {"ibv_create_srq", EINVAL, of_pd,
     [](auto& o) {
       ibv_srq_init_attr init = {.srq_context = nullptr, .attr = {.max_wr = 1, .max_sge = 1, .srq_limit = 0}};
       return errno_of(ibv_create_srq(o.pd, &init));
     }},
    {"ibv_reg_dm_mr", EINVAL, of_dm,
     [](auto& o) { return errno_of(ibv_reg_dm_mr(o.pd, o.dm, 0, 64, IBV_ACCESS_ZERO_BASED)); }},
    {"ibv_free_dm", ENOENT, of_dm, [](auto& o) { return ibv_free_dm(o.dm); }},
    {"ibv_dereg_mr", ENOENT, of_mr, [](auto& o) { return ibv_dereg_mr(o.mr); }},
    {"ibv_dealloc_mw", ENOENT, of_mw, [](auto& o) { return ibv_dealloc_mw(o.mw); }},
    {"ibv_destroy_ah", ENOENT, of_ah, [](auto& o) { return ibv_destroy_ah(o.ah); }},
    {"ibv_destroy_cq", ENOENT, of_cq, [](auto& o) { return ibv_destroy_cq(o.cq); }},
    {"ibv_resize_cq", EINVAL, of_cq, [](auto& o) { return ibv_resize_cq(o.cq, 128); }},
    {"ibv_modify_cq", EINVAL, of_cq,
     [](auto& o) {
       ibv_modify_cq_attr attr = {.attr_mask = IBV_CQ_ATTR_MODERATE, .moderate = {1, 1}};
       return ibv_modify_cq(o.cq, &attr);
     }},
    {"ibv_req_notify_cq", EINVAL, of_cq, [](auto& o) { return ibv_req_notify_cq(o.cq, 0); }},
    {"ibv_create_qp, send_cq and recv_cq", EINVAL, of_cq,
     [](auto& o) { return create_qp_of(o, o.cq, o.cq, nullptr); }},
    {"ibv_create_qp, srq", EINVAL, of_srq, [](auto& o) { return create_qp_of(o, o.cq, o.cq, o.srq); }},
    {"ibv_query_srq", EINVAL, of_srq,
     [](auto& o) {
       ibv_srq_attr attr = {};
       return ibv_query_srq(o.srq, &attr);
     }},
    {"ibv_modify_srq", EINVAL, of_srq,
     [](auto& o) {
       ibv_srq_attr attr = {.max_wr = 0, .max_sge = 0, .srq_limit = 1};
       return ibv_modify_srq(o.srq, &attr, IBV_SRQ_LIMIT);
     }},
    {"ibv_destroy_srq", ENOENT, of_srq, [](auto& o) { return ibv_destroy_srq(o.srq); }},
    {"ibv_modify_qp", EINVAL, of_qp,
     [](auto& o) {
       ibv_qp_attr attr = {};
       attr.qp_state = IBV_QPS_ERR;
       return ibv_modify_qp(o.qp, &attr, IBV_QP_STATE);
     }},
    {"ibv_query_qp", EINVAL, of_qp,
     [](auto& o) {
       ibv_qp_attr attr = {};
       ibv_qp_init_attr init = {};
       return ibv_query_qp(o.qp, &attr, IBV_QP_STATE, &init);
     }},
    {"ibv_attach_mcast", EINVAL, of_qp,
     [](auto& o) { return ibv_attach_mcast(o.qp, &o.address.grh.dgid, 0); }},
    {"ibv_detach_mcast", EINVAL, of_qp,
     [](auto& o) { return ibv_detach_mcast(o.qp, &o.address.grh.dgid, 0); }},
    {"ibv_destroy_qp", ENOENT, of_qp, [](auto& o) { return ibv_destroy_qp(o.qp); }},
};

class HandleTest : public QpTest {
 protected:
  void SetUp() override {
    QpTest::SetUp();
    buffer_ = std::make_unique<Buffer>(pd_.get(), 4096);
    mr_.reset(ibv_reg_mr(pd_.get(), buffer_->data(), 64, 0));
    mw_.reset(ibv_alloc_mw(pd_.get(), IBV_MW_TYPE_1));
    ibv_alloc_dm_attr dm_attr = {.length = 64, .log_align_req = 0, .comp_mask = 0};
    dm_.reset(ibv_alloc_dm(context_.get(), &dm_attr));
    ibv_ah_attr address = {};
    address.is_global = 1;
    address.grh.dgid = gid_;
    address.port_num = kPort;
    ah_.reset(ibv_create_ah(pd_.get(), &address));
    ibv_srq_init_attr srq = {.srq_context = nullptr, .attr = {.max_wr = 4, .max_sge = 1, .srq_limit = 0}};
    srq_.reset(ibv_create_srq(pd_.get(), &srq));
    qp_ = make_qp();
    ASSERT_TRUE(mr_ && mw_ && dm_ && ah_ && srq_ && qp_);
    objects_ = {context_.get(), pd_.get(),  mr_.get(), mw_.get(), dm_.get(),      ah_.get(),
                cq_.get(),      srq_.get(), qp_.get(), address,   buffer_->data()};
  }

  std::unique_ptr<Buffer> buffer_;
  Mr mr_;
  std::unique_ptr<ibv_mw, Destroyer<ibv_dealloc_mw>> mw_;
  std::unique_ptr<ibv_dm, Destroyer<ibv_free_dm>> dm_;
  Ah ah_;
  Srq srq_;
  Qp qp_;
  HandleObjects objects_{};
};

TEST_F(HandleTest, ThatIsNotTheObjectsIsRefused) {
  for (const HandleCase& row : kHandleCases)
    for (const uint32_t garbled : {0xdeadbeefu, 1u}) {
      uint32_t& handle = row.name(objects_).handle;
      const uint32_t own = handle;
      handle ^= garbled;
      EXPECT_EQ(row.call(objects_), row.error) << row.verb << ", handle " << handle << " instead of " << own;
      handle = own;
    }
  EXPECT_EQ(state_of(qp_.get()), IBV_QPS_RESET);
}

// Handles belong to the file that a context has open.
TEST_F(HandleTest, OfAnotherContextIsRefused) {
  const Context other = open_device();
  ASSERT_TRUE(other);
  for (const HandleCase& row : kHandleCases) {
    if (row.name == of_ah) continue;  // all address handles are one to the kernel
    ibv_context*& context = row.name(objects_).context;
    context = other.get();
    EXPECT_EQ(row.call(objects_), row.error) << row.verb;
    context = context_.get();
  }
  EXPECT_EQ(state_of(qp_.get()), IBV_QPS_RESET);
}

}  // namespace
}  // namespace verbena::test
