// SPDX-License-Identifier: BSD-2-Clause
//
// Creation and destruction of completion queues, shared receive queues and queue pairs.
#include <errno.h>

#include <algorithm>

#include "check/likeness.h"
#include "check/operations.h"
#include "check/outstanding.h"
#include "check/protection.h"
#include "check/shadows.h"
#include "check/watch.h"
#include "findings/families.h"

namespace verbena::check {
namespace {

void use(Object& object, const Object* other) {
  if (other != nullptr) object.uses.push_back(other);
}

// ---- completion queues ----

ibv_cq* made_cq(ibv_cq* cq, ibv_context* context, ibv_comp_channel* channel, bool one_thread,
                const char* verb, const Stack& stack) {
  const int error = errno;
  {
    const Locked locked;
    if (cq == nullptr) {
      report_refusal(verb, error, stack);
    } else {
      auto object = std::make_unique<CompletionQueue>();
      object->cq = cq;
      object->entries = cq->cqe;
      object->channel = find_object(channel);
      object->one_thread = one_thread;
      object->name = text("CQ %u", cq->handle);
      use(*object, find_object(context));
      use(*object, object->channel);
      enter(std::move(object), cq, context, stack);
    }
  }
  errno = error;
  return cq;
}

ibv_cq* create_cq(ibv_context* context, int cqe, ibv_comp_channel* channel, int comp_vector) {
  const Stack stack = capture_stack();
  if (!is_usable(context, "ibv_create_cq", stack) || !is_usable(channel, "ibv_create_cq", stack))
    return errno = EINVAL, nullptr;
  compare_cq(cqe, stack);
  return made_cq(below().create_cq(context, cqe, channel, comp_vector), context, channel, false,
                 "ibv_create_cq", stack);
}

bool has_thread_domain(const ibv_pd* parent_domain) {
  const Locked locked;
  const Object* const domain = find_object(parent_domain);
  if (domain == nullptr) return false;
  for (const Object* used : domain->uses)
    if (used->kind == Kind::kTd) return true;
  return false;
}

ibv_cq_ex* create_cq_ex(ibv_context* context, ibv_cq_init_attr_ex* attr) {
  const Stack stack = capture_stack();
  if (!is_usable(attr->channel, "ibv_create_cq_ex", stack)) return errno = EINVAL, nullptr;
  compare_cq(static_cast<int>(attr->cqe), stack);
  ibv_cq_ex* const cq = below().create_cq_ex(context, attr);
  const bool has_flags = (attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS) != 0;
  const bool alone =
      (has_flags && (attr->flags & IBV_CREATE_CQ_ATTR_SINGLE_THREADED) != 0) ||
      ((attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_PD) != 0 && has_thread_domain(attr->parent_domain));
  made_cq(cq != nullptr ? ibv_cq_ex_to_cq(cq) : nullptr, context, attr->channel, alone, "ibv_create_cq_ex",
          stack);
  if (cq != nullptr) check_iterator(cq);
  return cq;
}

int resize_cq(ibv_cq* cq, int cqe) {
  const Stack stack = capture_stack();
  if (!is_usable(cq, "ibv_resize_cq", stack)) return errno = EINVAL;
  const int error = below().resize_cq(cq, cqe);
  const Locked locked;
  if (error != 0)
    report_refusal("ibv_resize_cq", error, stack);
  else if (auto* const known = find<CompletionQueue>(cq); known != nullptr)
    known->entries = cq->cqe;
  return error;
}

int destroy_cq(ibv_cq* cq) {
  const Stack stack = capture_stack();
  CompletionQueue* const known = begin_destroying(cq);
  const int error = destroy_object(cq, "ibv_destroy_cq", stack, [](const void* handle) {
    return below().destroy_cq(static_cast<ibv_cq*>(const_cast<void*>(handle)));
  });
  if (error == 0 || known == nullptr) return error;
  const Locked locked;
  known->ending = false;
  return error;
}

// ---- shared receive queues ----

ibv_srq* made_srq(ibv_srq* srq, ibv_pd* pd, const ibv_srq_attr& attr, const char* verb, const Stack& stack) {
  const int error = errno;
  {
    const Locked locked;
    if (srq == nullptr) {
      report_refusal(verb, error, stack);
    } else {
      auto object = std::make_unique<SharedQueue>();
      object->receives.max_sge = attr.max_sge;
      object->pd = find_object(pd);
      object->name = text("SRQ %u", srq->handle);
      use(*object, object->pd);
      enter(std::move(object), srq, pd->context, stack);
    }
  }
  errno = error;
  return srq;
}

ibv_srq* create_srq(ibv_pd* pd, ibv_srq_init_attr* attr) {
  const Stack stack = capture_stack();
  if (!is_usable(pd, "ibv_create_srq", stack)) return errno = EINVAL, nullptr;
  compare_ability(findings::kSharedReceive, "ibv_create_srq", stack);
  ibv_srq* const srq = below().create_srq(pd, attr);
  return made_srq(srq, pd, attr->attr, "ibv_create_srq", stack);
}

ibv_srq* create_srq_ex(ibv_context* context, ibv_srq_init_attr_ex* attr) {
  const Stack stack = capture_stack();
  compare_ability(findings::kSharedReceive, "ibv_create_srq_ex", stack);
  ibv_srq* const srq = below().create_srq_ex(context, attr);
  if (srq == nullptr || (attr->comp_mask & IBV_SRQ_INIT_ATTR_PD) == 0) return srq;
  made_srq(srq, attr->pd, attr->attr, "ibv_create_srq_ex", stack);
  if ((attr->comp_mask & IBV_SRQ_INIT_ATTR_XRCD) != 0) {
    const Locked locked;
    Object* const object = find_object(srq);
    use(*object, find_object(attr->xrcd));
    use(*object, find_object(attr->cq));
  }
  return srq;
}

int modify_srq(ibv_srq* srq, ibv_srq_attr* attr, int mask) {
  const Stack stack = capture_stack();
  if (!is_usable(srq, "ibv_modify_srq", stack)) return errno = EINVAL;
  const int error = below().modify_srq(srq, attr, mask);
  if (error == 0) return 0;
  const Locked locked;
  report_refusal("ibv_modify_srq", error, stack);
  return error;
}

int destroy_srq(ibv_srq* srq) {
  return destroy_object(srq, "ibv_destroy_srq", capture_stack(), [](const void* handle) {
    return below().destroy_srq(static_cast<ibv_srq*>(const_cast<void*>(handle)));
  });
}

// ---- queue pairs ----

struct NewQp {
  ibv_pd* pd;
  ibv_cq* send_cq;
  ibv_cq* recv_cq;
  ibv_srq* srq;
  ibv_qp_type type;
  ibv_qp_cap cap;
  bool signal_all;
};

ibv_qp* made_qp(ibv_qp* qp, ibv_context* context, const NewQp& wanted, const char* verb, const Stack& stack) {
  const int error = errno;
  {
    const Locked locked;
    if (qp == nullptr) {
      report_refusal(verb, error, stack);
    } else {
      auto object = std::make_unique<QueuePair>();
      object->qp = qp;
      object->number_of_qp = qp->qp_num;
      object->type = wanted.type;
      object->cap = wanted.cap;
      object->receives.max_sge = wanted.cap.max_recv_sge;
      object->signal_all = wanted.signal_all;
      object->pd = find_object(wanted.pd);
      object->send_cq = find<CompletionQueue>(wanted.send_cq);
      object->recv_cq = find<CompletionQueue>(wanted.recv_cq);
      object->srq = find<SharedQueue>(wanted.srq);
      object->name = text("QP 0x%06x", qp->qp_num);
      use(*object, object->pd != nullptr ? object->pd : find_object(context));
      use(*object, object->send_cq);
      use(*object, object->recv_cq);
      use(*object, object->srq);
      QueuePair& entered = enter(std::move(object), qp, context, stack);
      if (entered.srq != nullptr) entered.srq->queue_pairs.push_back(&entered);
    }
  }
  errno = error;
  return qp;
}

bool are_usable(const char* verb, const Stack& stack, std::initializer_list<const void*> handles) {
  for (const void* handle : handles)
    if (!is_usable(handle, verb, stack)) return false;
  return true;
}

ibv_qp* create_qp(ibv_pd* pd, ibv_qp_init_attr* attr) {
  const Stack stack = capture_stack();
  if (!are_usable("ibv_create_qp", stack, {pd, attr->send_cq, attr->recv_cq, attr->srq}))
    return errno = EINVAL, nullptr;
  compare_qp(attr->qp_type, attr->cap, attr->srq != nullptr, stack);
  ibv_qp* const qp = below().create_qp(pd, attr);
  return made_qp(
      qp, pd->context,
      {pd, attr->send_cq, attr->recv_cq, attr->srq, attr->qp_type, attr->cap, attr->sq_sig_all != 0},
      "ibv_create_qp", stack);
}

ibv_qp* create_qp_ex(ibv_context* context, ibv_qp_init_attr_ex* attr) {
  const Stack stack = capture_stack();
  ibv_pd* const pd = (attr->comp_mask & IBV_QP_INIT_ATTR_PD) != 0 ? attr->pd : nullptr;
  if (!are_usable("ibv_create_qp_ex", stack, {context, pd, attr->send_cq, attr->recv_cq, attr->srq}))
    return errno = EINVAL, nullptr;
  compare_qp(attr->qp_type, attr->cap, attr->srq != nullptr, stack);
  ibv_qp* const qp = below().create_qp_ex(context, attr);
  made_qp(qp, context,
          {pd, attr->send_cq, attr->recv_cq, attr->srq, attr->qp_type, attr->cap, attr->sq_sig_all != 0},
          "ibv_create_qp_ex", stack);
  if (qp != nullptr && (attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) != 0) check_builders(qp);
  return qp;
}

ibv_qp* open_qp(ibv_context* context, ibv_qp_open_attr* attr) {
  const Stack stack = capture_stack();
  return made_qp(below().open_qp(context, attr), context,
                 {nullptr, nullptr, nullptr, nullptr, IBV_QPT_XRC_RECV, {}, false}, "ibv_open_qp", stack);
}

// What a queue pair leaves undone.
void look_back(const QueuePair& qp, const Stack& stack) {
  if (qp.sends_posted != 0 && qp.send_cq != nullptr && qp.send_cq->polls == qp.polls_at_first_send)
    report(rule("errors-unseen"),
           text("%s: %llu requests were posted, and %s was not polled since", qp.name.c_str(),
                static_cast<unsigned long long>(qp.sends_posted), qp.send_cq->name.c_str()),
           {{"destroyed here", keep_stack(stack)}, {"the last request was posted here", qp.last_send}});
  if (qp.receives_posted != 0 && !qp.got_ready && qp.state == IBV_QPS_INIT && qp.recv_cq != nullptr &&
      qp.recv_cq->polls != 0)
    report(rule("qp-left-in-init"),
           text("%s: %llu receives were posted, and the state was INIT to the end", qp.name.c_str(),
                static_cast<unsigned long long>(qp.receives_posted)),
           {{"destroyed here", keep_stack(stack)},
            {"modified to INIT here", qp.modified},
            {"made here", qp.created}});
}

int destroy_qp(ibv_qp* qp) {
  const Stack stack = capture_stack();
  {
    const Locked locked;
    if (const auto* const known = find<QueuePair>(qp);
        known != nullptr && known->alive && !is_parents(*known))
      look_back(*known, stack);
  }
  const int error = destroy_object(qp, "ibv_destroy_qp", stack, [](const void* handle) {
    return below().destroy_qp(static_cast<ibv_qp*>(const_cast<void*>(handle)));
  });
  const Locked locked;
  auto* const known = find<QueuePair>(qp);
  if (error != 0 || known == nullptr) return error;
  if (std::any_of(known->sends.begin(), known->sends.end(),
                  [](const Request& request) { return request.signaled; }) &&
      known->send_cq != nullptr) {
    known->send_cq->left = known;
    known->send_cq->polls_for_left = 0;
  }
  forget_requests(*known);
  if (known->srq != nullptr) std::erase(known->srq->queue_pairs, known);
  return error;
}

// ---- work queues, flows ----

ibv_wq* create_wq(ibv_context* context, ibv_wq_init_attr* attr) {
  const Stack stack = capture_stack();
  ibv_wq* const wq = below().create_wq(context, attr);
  made(Kind::kWq, wq, context, "ibv_create_wq", stack, {attr->pd, attr->cq}, "WQ %u",
       wq != nullptr ? wq->wq_num : 0);
  return wq;
}

int destroy_wq(ibv_wq* wq) {
  return destroy_object(wq, "ibv_destroy_wq", capture_stack(), [](const void* handle) {
    return below().destroy_wq(static_cast<ibv_wq*>(const_cast<void*>(handle)));
  });
}

ibv_flow* create_flow(ibv_qp* qp, ibv_flow_attr* attr) {
  const Stack stack = capture_stack();
  ibv_flow* const flow = below().create_flow(qp, attr);
  made(Kind::kFlow, flow, qp->context, "ibv_create_flow", stack, {qp}, "flow %p", static_cast<void*>(flow));
  return flow;
}

int destroy_flow(ibv_flow* flow) {
  return destroy_object(flow, "ibv_destroy_flow", capture_stack(), [](const void* handle) {
    return below().destroy_flow(static_cast<ibv_flow*>(const_cast<void*>(handle)));
  });
}

}  // namespace

void forget_requests(QueuePair& qp) {
  if (qp.send_cq != nullptr)
    for (const Request& request : qp.sends) qp.send_cq->expected -= request.signaled ? 1 : 0;
  if (qp.recv_cq != nullptr) qp.recv_cq->expected -= static_cast<int64_t>(qp.receives.requests.size());
  for (const Request& request : qp.sends) end_protection(request.serial);
  for (const Request& request : qp.receives.requests) {
    end_protection(request.serial);
    give_back(request.shadow);
  }
  qp.sends.clear();
  qp.receives.requests.clear();
}

void check_queues(rdma_core::ContextOps& table) {
  table.create_cq = create_cq;
  table.create_cq_ex = create_cq_ex;
  table.resize_cq = resize_cq;
  table.destroy_cq = destroy_cq;
  table.create_srq = create_srq;
  table.create_srq_ex = create_srq_ex;
  table.modify_srq = modify_srq;
  table.destroy_srq = destroy_srq;
  table.create_qp = create_qp;
  table.create_qp_ex = create_qp_ex;
  table.open_qp = open_qp;
  table.destroy_qp = destroy_qp;
  table.create_wq = create_wq;
  table.destroy_wq = destroy_wq;
  table.create_flow = create_flow;
  table.destroy_flow = destroy_flow;
}

}  // namespace verbena::check
