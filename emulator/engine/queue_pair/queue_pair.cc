// SPDX-License-Identifier: BSD-2-Clause
//
// Creation, queries and destruction of queue pairs (ibv_create_qp(3), ibv_query_qp(3)). Changes of state are
// in modify_qp.cc.
#include <errno.h>

#include <algorithm>
#include <bit>
#include <new>

#include "adapter/high_water.h"
#include "adapter/traffic.h"
#include "emulator.h"
#include "engine/datagram/datagram.h"
#include "engine/datagram/datagram_queue.h"
#include "engine/datagram/datagram_transport.h"
#include "engine/datagram/multicast.h"
#include "engine/ethernet/frame_sender.h"
#include "engine/events/async_events.h"
#include "engine/local/local_transport.h"
#include "engine/objects/context.h"
#include "engine/objects/cq.h"
#include "engine/objects/memory_objects.h"
#include "engine/objects/own_requests.h"
#include "engine/objects/process.h"
#include "engine/objects/qp.h"
#include "engine/objects/send_request.h"
#include "engine/objects/xrcd.h"
#include "engine/qp_state/error_flow.h"
#include "engine/qp_state/pending_flags.h"
#include "engine/queue_pair/queue_pair.h"
#include "engine/queue_pair/shared_path.h"
#include "engine/queue_pair/work_queue.h"
#include "engine/receive/bounce_memory.h"
#include "engine/receive/shared_receive_queue.h"
#include "engine/responder/xrc_target.h"
#include "engine/rules/device_attributes.h"
#include "engine/rules/privilege.h"
#include "engine/rules/program_enum.h"
#include "fabric/port_counters.h"
#include "insight.h"
#include "observe/log.h"

namespace verbena {
namespace {

// The kernel asks for CAP_NET_RAW (drivers/infiniband/core/uverbs_cmd.c, create_qp()).
int check_raw_packet(const DeviceDescription& device) {
  if (device.limits.max_flow == 0 || device.link_layer != LinkLayer::kEthernet) return EOPNOTSUPP;
  return may_use_raw_packets() ? 0 : EPERM;
}

int check_type(const DeviceDescription& device, const ibv_qp_init_attr& attr) {
  // The program may have put any number there.
  switch (number_in(attr.qp_type)) {
    case IBV_QPT_RC:
    case IBV_QPT_UC:
    case IBV_QPT_UD:
      return 0;
    case IBV_QPT_XRC_SEND:  // a device without XRC claims none (device_attributes.cc)
      return device.limits.max_xrcd != 0 ? 0 : EOPNOTSUPP;
    case IBV_QPT_XRC_RECV:  // has a domain instead of a PD: create_xrc_recv_qp()
      return EINVAL;
    case IBV_QPT_RAW_PACKET:
      return check_raw_packet(device);
    case IBV_QPT_DRIVER:
      return EOPNOTSUPP;
    default:
      return EINVAL;
  }
}

int check_capabilities(const DeviceLimits& limits, const ibv_qp_cap& cap, bool receives) {
  const struct {
    const char* name;
    uint32_t value;
    uint64_t limit;
  } rules[] = {{"max_send_wr", cap.max_send_wr, limits.max_qp_wr},
               {"max_recv_wr", receives ? cap.max_recv_wr : 0, limits.max_qp_wr},
               {"max_send_sge", cap.max_send_sge, limits.max_sge},
               {"max_recv_sge", receives ? cap.max_recv_sge : 0, limits.max_sge},
               {"max_inline_data", cap.max_inline_data, limits.max_inline_data}};
  for (const auto& rule : rules) {
    if (rule.value <= rule.limit) continue;
    VERBENA_WARN(capability_exceeded, "ibv_create_qp: %s %u: the device has %llu", rule.name, rule.value,
                 static_cast<unsigned long long>(rule.limit));
    return EINVAL;
  }
  return 0;
}

// Inline data that a WQE has space for without growing: the space of its SGEs (rxe_qp.c, rxe_qp_init_req;
// likewise mlx5, verbs.c, mlx5_calc_send_wqe). Programs rely on it (librdmacm/examples/rdma_xclient.c).
constexpr uint32_t kMostFreeInline = 64;

// Queues have a power of two of slots, at least one. The capabilities report that, up to the limits of the
// device.
void round_up(const DeviceLimits& limits, ibv_qp_cap& cap) {
  const auto most = static_cast<uint32_t>(limits.max_qp_wr);
  cap.max_send_wr = std::min(std::bit_ceil(std::max(cap.max_send_wr, 1u)), most);
  cap.max_send_sge = std::max(cap.max_send_sge, 1u);
  const uint64_t free_inline = std::min(
      {uint64_t{cap.max_send_sge} * sizeof(ibv_sge), uint64_t{kMostFreeInline}, limits.max_inline_data});
  cap.max_inline_data = std::max(cap.max_inline_data, static_cast<uint32_t>(free_inline));
  if (cap.max_recv_wr != 0) {
    cap.max_recv_wr = std::min(std::bit_ceil(cap.max_recv_wr), most);
    cap.max_recv_sge = std::max(cap.max_recv_sge, 1u);
  }
}

// Lays out the receive queue in the segment: ready words, WQEs, bounce buffers.
int make_receive_queue(Qp& qp) {
  SharedQp& shared = *qp.shared;
  shared.rq_ready_offset = shared.rq_wqe_offset = shared.rq_bounce_offset = 0;
  shared.rq_order = shared.rq_max_sge = shared.rq_stride = 0;
  shared.srq = qp.srq != nullptr ? qp.srq->index + 1 : 0;
  if (qp.cap.max_recv_wr == 0 || qp.srq != nullptr) return 0;
  const uint64_t slots = std::bit_ceil(qp.cap.max_recv_wr);
  const uint64_t line = kCacheLine;
  const uint64_t ready_bytes = (slots * sizeof(uint64_t) + line - 1) / line * line;
  const uint64_t stride = sizeof(ReceiveWqe) + qp.cap.max_recv_sge * sizeof(WqeSge);
  const uint64_t wqe_bytes = (slots * stride + line - 1) / line * line;
  qp.rq_bytes = ready_bytes + wqe_bytes + slots * kBounceSize;
  qp.rq_offset = qp.process->segment().allocate(qp.rq_bytes);
  if (qp.rq_offset == 0) return ENOMEM;
  shared.rq_ready_offset = qp.rq_offset;
  shared.rq_wqe_offset = qp.rq_offset + ready_bytes;
  shared.rq_bounce_offset = shared.rq_wqe_offset + wqe_bytes;
  shared.rq_order = static_cast<uint32_t>(std::countr_zero(slots));
  shared.rq_max_sge = qp.cap.max_recv_sge;
  shared.rq_stride = static_cast<uint32_t>(stride);
  qp.receives = ReceiveRing::of(qp.process->view(), shared);
  qp.rq_wr_ids.resize(slots);
  return 0;
}

void make_send_queue(Qp& qp) {
  // The send queue also fetches the messages of tags: places that are not the program's.
  const bool fetches = qp.srq != nullptr && qp.srq->tags;
  if (fetches) qp.own_requests = std::make_unique<OwnRequests>();
  qp.sq_size = qp.cap.max_send_wr;
  qp.sq.resize(std::bit_ceil(qp.sq_size + (fetches ? kRendezvousRequests : 0)));
  qp.sq_sges.resize(qp.sq.size() * qp.cap.max_send_sge);
  qp.sq_inline_stride = std::max(qp.cap.max_inline_data, fetches ? kRendezvousInline : kAtomicWriteSize);
  qp.sq_inline.resize(qp.sq.size() * qp.sq_inline_stride);
}

int fill(Qp& qp, const ibv_qp_init_attr& attr, uint32_t number) {
  Process& process = *qp.process;
  const uint64_t entry = kQpTableOffset + sizeof(SharedQp) * qp.index;
  if (process.segment().commit(entry, sizeof(SharedQp)) != 0) return ENOMEM;
  qp.shared = process.view().qp(qp.index);
  qp.hazards = process.hazards();
  SharedQp& shared = *qp.shared;
  shared.incarnation += 1;
  qp.cap = attr.cap;
  if (qp.srq != nullptr || qp.type == IBV_QPT_XRC_SEND) qp.cap.max_recv_wr = qp.cap.max_recv_sge = 0;
  if (qp.type != IBV_QPT_XRC_RECV) round_up(qp.context->device->limits, qp.cap);
  if (qp.type == IBV_QPT_XRC_SEND) qp.requester.xrc_targets = std::make_shared<XrcTargets>();
  make_send_queue(qp);
  if (qp.type == IBV_QPT_RAW_PACKET) qp.frames = make_frame_sender(qp);
  if (is_unconnected(qp.type))
    if (int error = make_datagram_parts(qp); error != 0) return error;
  if (int error = make_receive_queue(qp); error != 0) return error;
  shared.type = static_cast<uint8_t>(attr.qp_type);
  shared.pd = qp.pd != nullptr ? qp.pd->handle : 0;
  shared.recv_cq = qp.recv_cq != nullptr ? qp.recv_cq->index : UINT32_MAX;
  shared.send_cq = qp.send_cq != nullptr ? qp.send_cq->index : UINT32_MAX;
  shared.xrcd = qp.xrcd != nullptr ? qp.xrcd->number : 0;
  shared.device = qp.context->device_index;
  shared.path.store(0, std::memory_order_relaxed);
  shared.dest_slot = UINT32_MAX;
  for (auto* word : {&shared.rq_taken, &shared.requests_in, &shared.bytes_in, &shared.requester_generation,
                     &shared.requests_out, &shared.bytes_out, &shared.rq_posted, &shared.sq_posted,
                     &shared.sq_completed, &shared.error_time, &shared.rnr_since, &shared.receive_error_time,
                     &shared.bounce_ring_offset, &shared.bounce_ring_written, &shared.bounce_ring_freed})
    word->store(0, std::memory_order_relaxed);
  for (auto* word : {&shared.expected_psn, &shared.msn, &shared.pending_flags, &shared.requester_waits,
                     &shared.send_psn, &shared.srq_slot, &shared.rnr_naks, &shared.retries, &shared.dropped,
                     &shared.lost, &shared.qkey_violations, &shared.qkey})
    word->store(0, std::memory_order_relaxed);
  shared.events_told.store(0, std::memory_order_relaxed);
  for (PacketCounts* counts : {&shared.packets_out, &shared.packets_in})
    for (auto* word :
         {&counts->more_packets, &counts->response_bytes, &counts->more_responses, &counts->group_datagrams})
      word->store(0, std::memory_order_relaxed);
  if (qp.type == IBV_QPT_XRC_RECV) publish_path(shared, qp.attr);
  qp.transport = &transport_without_frames(qp.type);
  close_responder(qp, IBV_QPS_RESET);
  shared.state_since.store(wall_clock_ns(), std::memory_order_relaxed);
  shared.left_in = 0;
  shared.qpn = number != 0 ? number : process.directory().claim_qpn(process.membership().slot(), qp.index);
  RequesterContext& requester = qp.requester;
  requester.process = &process;
  requester.type = qp.type;
  requester.qpn = shared.qpn;
  requester.index = qp.index;
  requester.incarnation = shared.incarnation;
  return shared.qpn == 0 ? ENOMEM : 0;
}

// The device's counters keep what a destroyed queue pair has counted.
void keep_counters(const NodeDirectory& directory, const SharedQp& qp) {
  const QpPath path = QpPath::unpack(qp.path.load(std::memory_order_relaxed));
  std::atomic<uint64_t>* past = directory.header().past_counters[port_place(qp.device, path.port)];
  const auto keep = [&](HwCounter counter, uint64_t value) {
    if (value != 0) past[static_cast<size_t>(counter)].fetch_add(value, std::memory_order_relaxed);
  };
  const RequestCounts requests = requests_of(qp);
  keep(HwCounter::kSentRequests, requests.requests_out);
  keep(HwCounter::kSentBytes, requests.bytes_out);
  keep(HwCounter::kReceivedRequests, requests.requests_in);
  keep(HwCounter::kReceivedBytes, requests.bytes_in);
  keep(HwCounter::kReceivedRnrNaks, qp.rnr_naks.load(std::memory_order_acquire));
  keep(HwCounter::kRetries, qp.retries.load(std::memory_order_acquire));
  keep(HwCounter::kDropped, qp.dropped.load(std::memory_order_acquire));
  keep(HwCounter::kLost, qp.lost.load(std::memory_order_acquire));
  const PortCountValues traffic = traffic_of(qp);
  for (size_t i = 0; i < traffic.size(); ++i)
    count_at_port(directory, qp, static_cast<PortCount>(i), traffic[i]);
}

}  // namespace

Transport& transport_without_frames(ibv_qp_type type) {
  if (type == IBV_QPT_RAW_PACKET) return frame_transport();
  return type == IBV_QPT_UD ? datagram_transport() : local_transport();
}

int set_up_qp(Qp* qp, const ibv_qp_init_attr& attr, uint32_t number) {
  Process& process = *qp->context->process;
  qp->process = &process;
  const bool counted = take_quota(*qp->context, Counted::kQps, "ibv_create_qp") == 0;
  if (!counted || !process.qp_indices().take(&qp->index)) {
    if (counted) give_quota(*qp->context, Counted::kQps);
    delete qp;
    return ENOMEM;
  }
  int error = ENOMEM;
  try {
    error = fill(*qp, attr, number);
  } catch (const std::bad_alloc&) {
  }
  if (error != 0) {
    VERBENA_WARN(no_memory, "ibv_create_qp: max_send_wr %u, max_recv_wr %u: there is no memory for them",
                 attr.cap.max_send_wr, attr.cap.max_recv_wr);
    unmake_datagram_parts(*qp);
    process.segment().release(qp->rq_offset, qp->rq_bytes);
    process.qp_indices().give(qp->index);
    give_quota(*qp->context, Counted::kQps);
    delete qp;
    return error;
  }
  if (qp->pd != nullptr) qp->pd->users.fetch_add(1, std::memory_order_relaxed);
  if (qp->send_cq != nullptr) qp->send_cq->users.fetch_add(1, std::memory_order_relaxed);
  if (qp->recv_cq != nullptr) qp->recv_cq->users.fetch_add(1, std::memory_order_relaxed);
  if (qp->srq != nullptr) add_user(*qp->srq, qp->index);
  if (qp->xrcd != nullptr) qp->xrcd->users.fetch_add(1, std::memory_order_relaxed);
  raise_high_water(process.view().header().qp_high_water, qp->index);
  process.set_qp(qp->index, qp);
  qp->shared->in_use.store(1, std::memory_order_release);
  return 0;
}

int create_qp(Pd* pd, ibv_qp_init_attr* attr, Cq* send_cq, Cq* recv_cq, uint64_t user_handle, Qp** out,
              Srq* srq) {
  if (int error = usable(*pd->context); error != 0) return error;
  if (int error = check_type(*pd->context->device, *attr); error != 0) {
    VERBENA_WARN(qp_type, "ibv_create_qp: PD %u: type %u: %s", pd->handle, number_in(attr->qp_type),
                 error == EPERM
                     ? "raw packets need CAP_NET_RAW"
                     : "the device has RC, UC, UD and, where it claims them, XRC and raw packet QPs");
    return error;
  }
  // An XRC_SEND queue pair receives nothing. The attributes of a receive queue are ignored (verbs.c,
  // ib_create_qp).
  const bool receives = attr->qp_type != IBV_QPT_XRC_SEND;
  if (send_cq == nullptr || (receives && recv_cq == nullptr)) {
    VERBENA_WARN(qp_attributes, "ibv_create_qp: PD %u: %s is null", pd->handle,
                 send_cq == nullptr ? "send_cq" : "recv_cq");
    return EINVAL;
  }
  // Tags are matched for RC (IBV_TM_CAP_RC).
  if (srq != nullptr && srq->tags && attr->qp_type != IBV_QPT_RC && receives) {
    VERBENA_WARN(qp_attributes, "ibv_create_qp: type %u with an SRQ that matches tags: only RC QPs take one",
                 number_in(attr->qp_type));
    return EINVAL;
  }
  // ibv_create_qp(3), NOTES: of these types only RC and UD may have an SRQ.
  if (srq != nullptr && (attr->qp_type == IBV_QPT_UC || attr->qp_type == IBV_QPT_RAW_PACKET)) {
    VERBENA_WARN(qp_attributes, "ibv_create_qp: type %u with an SRQ: only RC and UD QPs take one",
                 number_in(attr->qp_type));
    return EINVAL;
  }
  if (int error = check_capabilities(pd->context->device->limits, attr->cap, receives && srq == nullptr);
      error != 0)
    return error;

  Qp* qp = new (std::nothrow) Qp;
  if (qp == nullptr) return ENOMEM;
  qp->context = pd->context;
  qp->pd = pd;
  qp->send_cq = send_cq;
  qp->recv_cq = receives ? recv_cq : nullptr;
  qp->srq = receives ? srq : nullptr;
  // Completions of receives go to the CQ of such an SRQ (rdma-core, Documentation/tag_matching.md).
  if (qp->srq != nullptr && qp->srq->tags) qp->recv_cq = qp->srq->cq;
  qp->user_handle = user_handle;
  qp->type = attr->qp_type;
  qp->signal_all = attr->sq_sig_all != 0;
  if (int error = set_up_qp(qp, *attr); error != 0) return error;
  attr->cap = qp->cap;
  *out = qp;
  return 0;
}

uint32_t qp_number(const Qp* qp) { return qp->shared->qpn; }
uint32_t qp_handle(const Qp* qp) { return qp->index; }
bool is_of(const Qp* qp, const Context* context) { return qp->context->file == context->file; }
ibv_qp_state qp_state(const Qp* qp) { return qp->state.load(std::memory_order_acquire); }

bool is_flushing(const Qp* qp) {
  constexpr uint32_t kErrors = kPendingAccessError | kPendingRequestError | kPendingFatal | kPendingOverrun;
  const ibv_qp_state state = qp_state(qp);
  return state == IBV_QPS_ERR || state == IBV_QPS_RESET ||
         (qp->shared->pending_flags.load(std::memory_order_relaxed) & kErrors) != 0;
}

int query_qp(Qp* qp, ibv_qp_attr* attr, ibv_qp_init_attr* init) {
  if (int error = usable(*qp->context); error != 0) return error;
  if (qp->proxy) return qp->proxy->query(*qp, attr, init);
  if (qp->rss != nullptr) return EOPNOTSUPP;  // as mlx5 (mlx5_ib_query_qp())
  act_on_pending_flags(*qp);
  std::lock_guard modify(qp->modify_mutex);
  std::lock_guard send(qp->send_lock);
  *attr = qp->attr;
  attr->qp_state = attr->cur_qp_state = qp->state.load(std::memory_order_acquire);
  attr->sq_psn = qp->requester.psn;
  const SharedQp& shared = *qp->shared;
  const QpPath path = QpPath::unpack(shared.path.load(std::memory_order_acquire));
  attr->path_mig_state = static_cast<ibv_mig_state>(path.migration);
  const ResponderState responder =
      ResponderState::unpack(shared.responder_state.load(std::memory_order_acquire));
  if (shared.requester_generation.load(std::memory_order_acquire) == responder.generation)
    attr->rq_psn = shared.expected_psn.load(std::memory_order_relaxed);
  attr->sq_draining = attr->qp_state == IBV_QPS_SQD && qp->waiting != Waiting::kNothing;
  attr->cap = qp->cap;
  init->cap = qp->cap;
  init->qp_type = qp->type;
  init->sq_sig_all = qp->signal_all;
  return 0;
}

void take_down_qp(Qp& qp) {
  Process& process = *qp.process;
  process.directory().release_qpn(qp.shared->qpn, process.membership().slot());
  qp.send_lock.lock();
  close_responder(qp, IBV_QPS_RESET);
  qp.send_lock.unlock();
  process.forget_qp(qp.index);
  process.wait_for_hazards({"ibv_destroy_qp", "QP", qp.shared->qpn, true}, qp.shared->dest_slot);
  purge_completions(qp);
  forget_receives(qp);
  process.qp_is_gone(qp.index);
  qp.shared->in_use.store(0, std::memory_order_release);
}

void free_qp(Qp* qp) {
  Process& process = *qp->process;
  keep_counters(process.directory(), *qp->shared);
  unmake_datagram_parts(*qp);
  unmake_bounce_ring(*qp);
  process.segment().release(qp->rq_offset, qp->rq_bytes);
  if (qp->pd != nullptr) qp->pd->users.fetch_sub(1, std::memory_order_release);
  if (qp->send_cq != nullptr) qp->send_cq->users.fetch_sub(1, std::memory_order_release);
  if (qp->recv_cq != nullptr) qp->recv_cq->users.fetch_sub(1, std::memory_order_release);
  if (qp->srq != nullptr && is_of_program(*qp->srq)) remove_user(*qp->srq, qp->index);
  if (qp->rss != nullptr) qp->rss->qps.fetch_sub(1, std::memory_order_release);
  process.qp_indices().give(qp->index);
  give_quota(process, qp->shared->device, Counted::kQps);
  give_quota(process, qp->shared->device, Counted::kResponderResources, qp->responder_resources);
  delete qp;
}

int destroy_qp(Qp* qp, uint32_t* async_events) {
  *async_events = 0;
  if (qp->process->dead()) return 0;
  if (attached_to_group(*qp)) {
    VERBENA_WARN(object_in_use, "ibv_destroy_qp: QP 0x%06x is attached to a multicast group",
                 qp->shared->qpn);
    return EBUSY;
  }
  // As the kernel (verbs.c, ib_destroy_qp_user()).
  if (const uint32_t flows = qp->flows.load(std::memory_order_acquire); flows != 0) {
    VERBENA_WARN(object_in_use, "ibv_destroy_qp: QP 0x%06x: %u flows still lead to it", qp->shared->qpn,
                 flows);
    return EBUSY;
  }
  take_down_qp(*qp);
  *async_events = take_back_events(*qp->context, qp->user_handle, qp->async_events.load());
  free_qp(qp);
  return 0;
}

}  // namespace verbena
