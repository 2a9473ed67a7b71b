// SPDX-License-Identifier: BSD-2-Clause
//
// Extended completion queues (ibv_create_cq_ex(3)): polled one completion at a time. The program reads the
// fields that it requested at creation.
#include <ctime>

#include "observe/log.h"
#include "verbs/cq.h"
#include "verbs/domain.h"
#include "verbs/ops.h"

namespace verbena::verbs {
namespace {

struct VerbsCqEx {
  VerbsCq cq;
  bool alone;             // IBV_CREATE_CQ_ATTR_SINGLE_THREADED
  pthread_mutex_t mutex;  // from start_poll to end_poll: the current completion belongs to one thread
  ibv_wc current;
  ibv_wc_tm_info tag;  // of the current completion: zeros, if it is none of tag matching
  bool tagged;         // the program reads it
  uint64_t stamp;  // of the current completion, if the CQ is stamped
  bool stamped;
};
static_assert(offsetof(VerbsCqEx, cq) == 0);

VerbsCqEx& to_cq_ex(ibv_cq_ex* cq) { return *reinterpret_cast<VerbsCqEx*>(cq); }

// ---- the iterator ----

int advance(ibv_cq_ex* ibv) {
  VerbsCqEx& cq = to_cq_ex(ibv);
  if (cq.tagged) cq.tag = {};
  const int polled = verbena::poll_cq(cq.cq.emulated, 1, &cq.current, cq.stamped ? &cq.stamp : nullptr,
                                      cq.tagged ? &cq.tag : nullptr);
  if (polled <= 0) return polled == 0 ? ENOENT : -polled;
  ibv->status = cq.current.status;
  ibv->wr_id = cq.current.wr_id;
  return 0;
}

// The mutex checks its owner: a superfluous end_poll, after a start_poll that found nothing, does no harm.
void end_poll(ibv_cq_ex* ibv) {
  VerbsCqEx& cq = to_cq_ex(ibv);
  if (!cq.alone) pthread_mutex_unlock(&cq.mutex);
}

int start_poll(ibv_cq_ex* ibv, ibv_poll_cq_attr* attr) {
  if (attr->comp_mask != 0) {  // as mlx5: no bit is defined
    VERBENA_WARN(unknown_bits, "ibv_start_poll: CQ %u: comp_mask 0x%x: no bit is defined",
                 to_cq_ex(ibv).cq.base.cq.handle, attr->comp_mask);
    return EINVAL;
  }
  VerbsCqEx& cq = to_cq_ex(ibv);
  if (!cq.alone) pthread_mutex_lock(&cq.mutex);
  const int error = advance(ibv);
  if (error != 0) end_poll(ibv);
  return error;
}

// ---- what is read of the current completion ----

template <auto Field>
auto read(ibv_cq_ex* cq) {
  return to_cq_ex(cq).current.*Field;
}
unsigned int read_wc_flags(ibv_cq_ex* cq) { return to_cq_ex(cq).current.wc_flags; }
uint32_t read_slid(ibv_cq_ex* cq) { return to_cq_ex(cq).current.slid; }

uint64_t read_completion_ts(ibv_cq_ex* cq) { return to_cq_ex(cq).stamp; }

// "Get the completion timestamp from the current completion and convert it [...] to wall clock nanoseconds"
// (ibv_create_cq_ex(3)): with the present difference of the two clocks.
uint64_t read_completion_wallclock_ns(ibv_cq_ex* ibv) {
  const VerbsCqEx& cq = to_cq_ex(ibv);
  timespec wall;
  clock_gettime(CLOCK_REALTIME, &wall);
  const uint64_t now = device_clock(to_context(ibv->context)->emulated);
  const uint64_t wall_ns =
      static_cast<uint64_t>(wall.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(wall.tv_nsec);
  return wall_ns - (now - cq.stamp);
}

// There are no VLANs or flow tags, so the fields are 0, as on mlx5.
uint16_t read_cvlan(ibv_cq_ex*) { return 0; }
uint32_t read_flow_tag(ibv_cq_ex*) { return 0; }
void read_tm_info(ibv_cq_ex* cq, ibv_wc_tm_info* info) { *info = to_cq_ex(cq).tag; }

struct WcField {
  uint64_t flag;  // enum ibv_create_cq_wc_flags
  void (*define)(ibv_cq_ex* cq);
};

const WcField kFields[] = {
    {IBV_WC_EX_WITH_BYTE_LEN, [](ibv_cq_ex* cq) { cq->read_byte_len = read<&ibv_wc::byte_len>; }},
    {IBV_WC_EX_WITH_IMM, [](ibv_cq_ex* cq) { cq->read_imm_data = read<&ibv_wc::imm_data>; }},
    {IBV_WC_EX_WITH_QP_NUM, [](ibv_cq_ex* cq) { cq->read_qp_num = read<&ibv_wc::qp_num>; }},
    {IBV_WC_EX_WITH_SRC_QP, [](ibv_cq_ex* cq) { cq->read_src_qp = read<&ibv_wc::src_qp>; }},
    {IBV_WC_EX_WITH_SLID, [](ibv_cq_ex* cq) { cq->read_slid = read_slid; }},
    {IBV_WC_EX_WITH_SL, [](ibv_cq_ex* cq) { cq->read_sl = read<&ibv_wc::sl>; }},
    {IBV_WC_EX_WITH_DLID_PATH_BITS,
     [](ibv_cq_ex* cq) { cq->read_dlid_path_bits = read<&ibv_wc::dlid_path_bits>; }},
    {IBV_WC_EX_WITH_COMPLETION_TIMESTAMP, [](ibv_cq_ex* cq) { cq->read_completion_ts = read_completion_ts; }},
    {IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK,
     [](ibv_cq_ex* cq) { cq->read_completion_wallclock_ns = read_completion_wallclock_ns; }},
    {IBV_WC_EX_WITH_CVLAN, [](ibv_cq_ex* cq) { cq->read_cvlan = read_cvlan; }},
    {IBV_WC_EX_WITH_FLOW_TAG, [](ibv_cq_ex* cq) { cq->read_flow_tag = read_flow_tag; }},
    {IBV_WC_EX_WITH_TM_INFO, [](ibv_cq_ex* cq) { cq->read_tm_info = read_tm_info; }},
};

// As mlx5: fields of every completion can always be read, the others only if they were requested.
void define(ibv_cq_ex* cq, uint64_t wc_flags) {
  cq->start_poll = start_poll;
  cq->next_poll = advance;
  cq->end_poll = end_poll;
  cq->read_opcode = read<&ibv_wc::opcode>;
  cq->read_vendor_err = read<&ibv_wc::vendor_err>;
  cq->read_wc_flags = read_wc_flags;
  for (const WcField& field : kFields)
    if ((wc_flags & field.flag) != 0) field.define(cq);
}

uint64_t offered_fields() {
  uint64_t flags = 0;
  for (const WcField& field : kFields) flags |= field.flag;
  return flags;
}

void make_mutex(pthread_mutex_t* mutex) {
  pthread_mutexattr_t attr;
  pthread_mutexattr_init(&attr);
  pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_ERRORCHECK);
  pthread_mutex_init(mutex, &attr);
  pthread_mutexattr_destroy(&attr);
}

}  // namespace

const ibv_wc* current_completion(ibv_cq_ex* cq) { return &to_cq_ex(cq).current; }

// The refusals are mlx5's (providers/mlx5/verbs.c, create_cq).
ibv_cq_ex* create_cq_ex(ibv_context* context, ibv_cq_init_attr_ex* attr) {
  constexpr uint32_t kKnownMask = IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD;
  constexpr uint32_t kKnownFlags = IBV_CREATE_CQ_ATTR_SINGLE_THREADED | IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;
  if ((attr->comp_mask & ~kKnownMask) != 0) {
    VERBENA_WARN(unknown_bits, "ibv_create_cq_ex: comp_mask 0x%x: there are the bits 0x%x", attr->comp_mask,
                 kKnownMask);
    return refuse(EINVAL);
  }
  const uint32_t flags = (attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS) != 0 ? attr->flags : 0;
  if ((flags & ~kKnownFlags) != 0) {
    VERBENA_WARN(unknown_bits, "ibv_create_cq_ex: flags 0x%x: there are the bits 0x%x", flags, kKnownFlags);
    return refuse(EINVAL);
  }
  if ((attr->wc_flags & ~offered_fields()) != 0) {
    VERBENA_WARN(unknown_bits, "ibv_create_cq_ex: wc_flags 0x%llx: the device offers the bits 0x%llx",
                 static_cast<unsigned long long>(attr->wc_flags),
                 static_cast<unsigned long long>(offered_fields()));
    return refuse(EOPNOTSUPP);
  }
  VerbsPd* domain = nullptr;
  if ((attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_PD) != 0) {
    domain = attr->parent_domain != nullptr ? to_pd(attr->parent_domain) : nullptr;
    if (domain == nullptr || !is_parent_domain(*domain) || domain->base.context != context) {
      VERBENA_WARN(other_context, "ibv_create_cq_ex: parent_domain %p is no parent domain of this context",
                   static_cast<void*>(attr->parent_domain));
      return refuse(EINVAL);
    }
  }

  bool from_domain = false;
  auto* cq = static_cast<VerbsCqEx*>(allocate_in(domain, sizeof(VerbsCqEx), Resource::kCq, &from_domain));
  if (cq == nullptr) return refuse(ENOMEM);
  cq->stamped = (attr->wc_flags &
                 (IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK)) != 0;
  cq->tagged = (attr->wc_flags & IBV_WC_EX_WITH_TM_INFO) != 0;
  const CqOptions options = {.stamped = cq->stamped,
                             .ignore_overrun = (flags & IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN) != 0};
  const int error = fill_cq(cq->cq, context, static_cast<int>(attr->cqe), attr->channel,
                            static_cast<int>(attr->comp_vector), options);
  if (error != 0) {
    free_in(domain, cq, Resource::kCq, from_domain);
    return refuse(error);
  }
  hold(domain);
  cq->cq.domain = domain;
  cq->cq.from_domain = from_domain;
  cq->cq.is_extended = true;
  cq->alone =
      (flags & IBV_CREATE_CQ_ATTR_SINGLE_THREADED) != 0 || (domain != nullptr && has_thread_domain(*domain));
  make_mutex(&cq->mutex);
  define(&cq->cq.base.cq_ex, attr->wc_flags);
  return &cq->cq.base.cq_ex;
}

}  // namespace verbena::verbs
