// SPDX-License-Identifier: BSD-2-Clause
#include "engine/queue_pair/work_queue.h"

#include <errno.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <iterator>
#include <new>

#include "emulator.h"
#include "engine/ethernet/rss_table.h"
#include "engine/events/async_events.h"
#include "engine/objects/context.h"
#include "engine/objects/cq.h"
#include "engine/objects/memory_objects.h"
#include "engine/objects/process.h"
#include "engine/objects/qp.h"
#include "engine/queue_pair/queue_pair.h"
#include "engine/rules/privilege.h"
#include "engine/rules/program_enum.h"
#include "observe/log.h"

namespace verbena {
namespace {

int refuse_wq(const char* verb, int error, const char* why) {
  VERBENA_WARN(work_queue, "%s: %s", verb, why);
  return error;
}

int check_wq(const DeviceDescription& device, const ibv_wq_init_attr& attr) {
  constexpr const char* kVerb = "ibv_create_wq";
  const DeviceLimits& limits = device.limits;
  if (limits.max_flow == 0 || device.link_layer != LinkLayer::kEthernet)
    return refuse_wq(kVerb, EOPNOTSUPP, "the device has no work queues");
  if (number_in(attr.wq_type) != IBV_WQT_RQ)
    return refuse_wq(kVerb, EINVAL, "a work queue receives (IBV_WQT_RQ)");
  if ((attr.comp_mask & ~uint32_t{IBV_WQ_INIT_ATTR_FLAGS}) != 0 ||
      ((attr.comp_mask & IBV_WQ_INIT_ATTR_FLAGS) != 0 && attr.create_flags != 0))
    return refuse_wq(kVerb, EOPNOTSUPP, "the device offers no creation flags");
  if (attr.max_wr > limits.max_qp_wr || attr.max_sge > limits.max_sge)
    return refuse_wq(kVerb, EINVAL, "max_wr or max_sge is above max_qp_wr or max_sge of the device");
  return 0;
}

int change_wq(Wq& wq, ibv_qp_state to) {
  ibv_qp_attr attr{};
  attr.qp_state = to;
  attr.port_num = 1;
  return modify_qp(wq.qp, &attr, IBV_QP_STATE | (to == IBV_QPS_INIT ? IBV_QP_PORT : 0));
}

// mlx4 (drivers/infiniband/hw/mlx4/qp.c, mlx4_ib_modify_wq()): neither from ERR to RDY nor from RESET to ERR.
int change_state_of_wq(Wq& wq, ibv_wq_state from, unsigned to) {
  if (to == static_cast<unsigned>(from)) return 0;
  switch (to) {
    case IBV_WQS_RESET:
      return change_wq(wq, IBV_QPS_RESET);
    case IBV_WQS_RDY:
      if (from != IBV_WQS_RESET) return EINVAL;
      if (int error = change_wq(wq, IBV_QPS_INIT); error != 0) return error;
      return change_wq(wq, IBV_QPS_RTR);
    case IBV_WQS_ERR:
      return from == IBV_WQS_RDY ? change_wq(wq, IBV_QPS_ERR) : EINVAL;
    default:
      return EINVAL;
  }
}

// mlx5 (drivers/infiniband/hw/mlx5/qp.c, create_rss_raw_qp_tir()): one protocol of each layer.
int check_hash(const ibv_rx_hash_conf& hash) {
  constexpr const char* kVerb = "ibv_create_qp_ex";
  constexpr uint64_t kFour = IBV_RX_HASH_SRC_IPV4 | IBV_RX_HASH_DST_IPV4;
  constexpr uint64_t kSix = IBV_RX_HASH_SRC_IPV6 | IBV_RX_HASH_DST_IPV6;
  constexpr uint64_t kTcp = IBV_RX_HASH_SRC_PORT_TCP | IBV_RX_HASH_DST_PORT_TCP;
  constexpr uint64_t kUdp = IBV_RX_HASH_SRC_PORT_UDP | IBV_RX_HASH_DST_PORT_UDP;
  const uint64_t fields = hash.rx_hash_fields_mask;
  if (hash.rx_hash_function != IBV_RX_HASH_FUNC_TOEPLITZ)
    return refuse_wq(kVerb, EOPNOTSUPP, "the hash is Toeplitz");
  if (hash.rx_hash_key_len != kRssKeyBytes || hash.rx_hash_key == nullptr)
    return refuse_wq(kVerb, EINVAL, "the key of the hash has 40 bytes");
  if ((fields & ~(kFour | kSix | kTcp | kUdp)) != 0)
    return refuse_wq(kVerb, EOPNOTSUPP, "the hash is over addresses of IP and ports of TCP and UDP");
  const auto both = [&](uint64_t a, uint64_t b) { return (fields & a) != 0 && (fields & b) != 0; };
  if (both(kFour, kSix) || both(kTcp, kUdp) ||
      ((fields & (kTcp | kUdp)) != 0 && (fields & (kFour | kSix)) == 0))
    return refuse_wq(kVerb, EINVAL,
                     "the hash is over one version of IP, and over ports of one protocol above it");
  return 0;
}

int write_rss_table(Qp& qp, const ibv_rx_hash_conf& hash, const RwqTable& table) {
  OwnSegment& segment = qp.process->segment();
  const uint64_t bytes = sizeof(SharedRssTable) + table.queues.size() * sizeof(RssQueue);
  const uint64_t offset = segment.allocate(bytes);
  if (offset == 0) return ENOMEM;
  qp.rq_offset = offset;
  qp.rq_bytes = bytes;
  auto& shared = *reinterpret_cast<SharedRssTable*>(segment.view().base() + offset);
  shared.fields = hash.rx_hash_fields_mask;
  std::memcpy(shared.key.data(), hash.rx_hash_key, kRssKeyBytes);
  shared.log_size = static_cast<uint32_t>(std::countr_zero(table.queues.size()));
  for (size_t i = 0; i < table.queues.size(); ++i)
    shared.queues[i] = {table.queues[i]->qp->index, table.queues[i]->qp->shared->incarnation};
  qp.shared->rq_wqe_offset = offset;
  return 0;
}

}  // namespace

ibv_wq_state wq_state_of(ibv_qp_state state) {
  if (state == IBV_QPS_ERR) return IBV_WQS_ERR;
  return state == IBV_QPS_RTR ? IBV_WQS_RDY : IBV_WQS_RESET;
}

int create_wq(Pd* pd, ibv_wq_init_attr* attr, Cq* cq, uint64_t user_handle, Wq** out) {
  if (int error = usable(*pd->context); error != 0) return error;
  if (int error = check_wq(*pd->context->device, *attr); error != 0) return error;
  auto* wq = new (std::nothrow) Wq;
  Qp* const qp = wq != nullptr ? new (std::nothrow) Qp : nullptr;
  if (qp == nullptr) {
    delete wq;
    return ENOMEM;
  }
  qp->context = pd->context;
  qp->pd = pd;
  qp->recv_cq = cq;
  qp->user_handle = user_handle;
  qp->type = IBV_QPT_RAW_PACKET;
  qp->is_work_queue = true;
  ibv_qp_init_attr init{};
  init.qp_type = IBV_QPT_RAW_PACKET;
  init.cap.max_recv_wr = std::max(attr->max_wr, 1u);
  init.cap.max_recv_sge = std::max(attr->max_sge, 1u);
  if (int error = set_up_qp(qp, init); error != 0) {
    delete wq;
    return error;
  }
  wq->qp = qp;
  attr->max_wr = qp->cap.max_recv_wr;
  attr->max_sge = qp->cap.max_recv_sge;
  *out = wq;
  return 0;
}

uint32_t wq_number(const Wq* wq) { return wq->qp->shared->qpn; }
uint32_t wq_handle(const Wq* wq) { return wq->qp->index; }
bool is_of(const Wq* wq, const Context* context) { return wq->qp->context->file == context->file; }
namespace {

const char* name_of_wq_state(ibv_wq_state state) {
  constexpr const char* kNames[] = {"RESET", "RDY", "ERR"};
  return state < std::size(kNames) ? kNames[state] : "an unknown state";
}

}  // namespace

ibv_wq_state wq_state(const Wq* wq) { return wq_state_of(wq->qp->state.load(std::memory_order_acquire)); }

int modify_wq(Wq* wq, const ibv_wq_attr* attr) {
  if (int error = usable(*wq->qp->context); error != 0) return error;
  constexpr uint32_t kKnown = IBV_WQ_ATTR_STATE | IBV_WQ_ATTR_CURR_STATE | IBV_WQ_ATTR_FLAGS;
  std::lock_guard lock(wq->mutex);
  const ibv_wq_state now = wq_state(wq);
  const char* why = nullptr;
  int error = EINVAL;
  if (attr->attr_mask == 0 || (attr->attr_mask & ~kKnown) != 0)
    why = "there are no such attributes";
  else if ((attr->attr_mask & IBV_WQ_ATTR_FLAGS) != 0)
    why = "the device offers no flags", error = EOPNOTSUPP;
  else if ((attr->attr_mask & IBV_WQ_ATTR_CURR_STATE) != 0 && number_in(attr->curr_wq_state) != now)
    why = "it is in another state than curr_wq_state";
  else if ((attr->attr_mask & IBV_WQ_ATTR_STATE) == 0)
    return 0;
  else if (error = change_state_of_wq(*wq, now, number_in(attr->wq_state)); error == 0)
    return 0;
  else
    why = "there is no way to this state";
  VERBENA_WARN(work_queue, "ibv_modify_wq: WQ 0x%06x in %s, attr_mask 0x%x: %s", wq_number(wq),
               name_of_wq_state(now), attr->attr_mask, why);
  return error;
}

int post_wq_recv(Wq* wq, ibv_recv_wr* wr, ibv_recv_wr** bad_wr) { return post_recv(wq->qp, wr, bad_wr); }

int destroy_wq(Wq* wq, uint32_t* async_events) {
  *async_events = 0;
  Qp* const qp = wq->qp;
  if (qp->process->dead()) return 0;
  if (wq->tables.load(std::memory_order_acquire) != 0) {
    VERBENA_WARN(object_in_use, "ibv_destroy_wq: WQ 0x%06x: %u tables have it", wq_number(wq),
                 wq->tables.load());
    return EBUSY;
  }
  take_down_qp(*qp);
  *async_events = take_back_events(*qp->context, qp->user_handle, qp->async_events.load());
  free_qp(qp);
  delete wq;
  return 0;
}

int create_rwq_table(Context* context, Wq* const* queues, uint32_t log_size, RwqTable** out) {
  if (int error = usable(*context); error != 0) return error;
  if (context->device->limits.max_flow == 0 || context->device->link_layer != LinkLayer::kEthernet)
    return refuse_wq("ibv_create_rwq_ind_table", EOPNOTSUPP, "the device has no tables of work queues");
  if (log_size > 9)
    return refuse_wq("ibv_create_rwq_ind_table", EINVAL, "a table has at most 512 work queues");
  auto* table = new (std::nothrow) RwqTable;
  if (table == nullptr) return ENOMEM;
  try {
    table->queues.assign(queues, queues + (size_t{1} << log_size));
  } catch (const std::bad_alloc&) {
    delete table;
    return ENOMEM;
  }
  table->context = context;
  for (Wq* wq : table->queues) wq->tables.fetch_add(1, std::memory_order_relaxed);
  *out = table;
  return 0;
}

int destroy_rwq_table(RwqTable* table) {
  if (table->qps.load(std::memory_order_acquire) != 0 && !table->context->process->dead()) {
    VERBENA_WARN(object_in_use, "ibv_destroy_rwq_ind_table: %u queue pairs use it", table->qps.load());
    return EBUSY;
  }
  for (Wq* wq : table->queues) wq->tables.fetch_sub(1, std::memory_order_release);
  delete table;
  return 0;
}

int create_rss_qp(Pd* pd, const ibv_rx_hash_conf* hash, RwqTable* table, uint64_t user_handle, Qp** out) {
  if (int error = usable(*pd->context); error != 0) return error;
  if (!may_use_raw_packets()) return refuse_wq("ibv_create_qp_ex", EPERM, "raw packets need CAP_NET_RAW");
  if (int error = check_hash(*hash); error != 0) return error;
  Qp* const qp = new (std::nothrow) Qp;
  if (qp == nullptr) return ENOMEM;
  qp->context = pd->context;
  qp->pd = pd;
  qp->user_handle = user_handle;
  qp->type = IBV_QPT_RAW_PACKET;
  ibv_qp_init_attr init{};
  init.qp_type = IBV_QPT_RAW_PACKET;
  if (int error = set_up_qp(qp, init); error != 0) return error;
  if (int error = write_rss_table(*qp, *hash, *table); error != 0) {
    take_down_qp(*qp);
    free_qp(qp);
    return error;
  }
  qp->rss = table;
  table->qps.fetch_add(1, std::memory_order_relaxed);
  *out = qp;
  return 0;
}

}  // namespace verbena
