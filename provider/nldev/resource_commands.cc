// SPDX-License-Identifier: BSD-2-Clause
#include "nldev/resource_commands.h"

#include <errno.h>

#include <utility>

#include "nldev/objects.h"

namespace verbena::nldev {
namespace {

void put_pid(Writer* out, int32_t pid) {
  if (pid > 0) out->put32(RDMA_NLDEV_ATTR_RES_PID, static_cast<uint32_t>(pid));
}

// ---- what an entry has, by kind: the number that names it, and its attributes ----

bool is_connected(uint32_t type) { return type == IBV_QPT_RC || type == IBV_QPT_UC; }

// The port that an object belongs to; 0: to none yet, or to none at all.
uint32_t port_of(const QueuePair& object) { return object.qp->port; }
uint32_t port_of(const CmId& object) { return (object.id->facts.flags & cm::kIdOnPort2) != 0 ? 2 : 1; }
template <typename Object>
uint32_t port_of(const Object&) {
  return 0;
}

uint32_t id_of(const QueuePair& object) { return object.qp->qpn; }
void put(Writer* out, const QueuePair& object, const Request&) {
  const QpSnapshot& qp = *object.qp;
  // The kernel knows no port before the transition to INIT.
  if (qp.port != 0) out->put32(RDMA_NLDEV_ATTR_PORT_INDEX, qp.port);
  out->put32(RDMA_NLDEV_ATTR_RES_LQPN, qp.qpn);
  out->put32(RDMA_NLDEV_ATTR_RES_PDN, object.domain);
  put_pid(out, object.pid);
  if (is_connected(qp.type)) {
    out->put32(RDMA_NLDEV_ATTR_RES_RQPN, qp.peer.qpn);
    out->put32(RDMA_NLDEV_ATTR_RES_RQ_PSN, qp.rq_psn);
  }
  out->put32(RDMA_NLDEV_ATTR_RES_SQ_PSN, qp.sq_psn);
  if (qp.type != IBV_QPT_UD && qp.type != IBV_QPT_RAW_PACKET)
    out->put8(RDMA_NLDEV_ATTR_RES_PATH_MIG_STATE, IBV_MIG_MIGRATED);
  out->put8(RDMA_NLDEV_ATTR_RES_TYPE, static_cast<uint8_t>(qp.type));
  out->put8(RDMA_NLDEV_ATTR_RES_STATE, static_cast<uint8_t>(qp.state));
}

// enum rdma_cm_state of the kernel's cma_priv.h
uint8_t kernel_state(cm::IdState state) {
  switch (state) {
    case cm::IdState::kIdle:
      return 0;
    case cm::IdState::kAddressQuery:
      return 1;
    case cm::IdState::kAddressResolved:
      return 2;
    case cm::IdState::kRouteQuery:
      return 3;
    case cm::IdState::kRouteResolved:
      return 4;
    case cm::IdState::kConnecting:
    case cm::IdState::kConnected:
      return 5;
    case cm::IdState::kDisconnected:
    case cm::IdState::kTimeWait:
      return 6;
    case cm::IdState::kAddressBound:
      return 7;
    case cm::IdState::kListening:
      return 8;
    case cm::IdState::kGone:
      return 9;
  }
  return 0;
}

void put_address(Writer* out, uint16_t attribute, const cm::Address& address) {
  if (address.none()) return;
  sockaddr_storage whole{};
  cm::write_address(address, &whole);
  out->put(attribute, &whole, sizeof whole);
}

uint32_t id_of(const CmId& object) { return object.number; }
void put(Writer* out, const CmId& object, const Request&) {
  const cm::IdFacts& facts = object.id->facts;
  out->put32(RDMA_NLDEV_ATTR_PORT_INDEX, port_of(object));
  if (facts.qpn != 0) {
    out->put32(RDMA_NLDEV_ATTR_RES_LQPN, facts.qpn);
    out->put8(RDMA_NLDEV_ATTR_RES_TYPE, facts.qp_type);
  }
  out->put32(RDMA_NLDEV_ATTR_RES_PS, static_cast<uint32_t>(facts.space));
  out->put8(RDMA_NLDEV_ATTR_RES_STATE, kernel_state(facts.state));
  put_address(out, RDMA_NLDEV_ATTR_RES_SRC_ADDR, facts.local);
  put_address(out, RDMA_NLDEV_ATTR_RES_DST_ADDR, facts.remote);
  out->put32(RDMA_NLDEV_ATTR_RES_CM_IDN, object.number);
  put_pid(out, object.pid);
}

uint32_t id_of(const CompletionQueue& object) { return object.number; }
void put(Writer* out, const CompletionQueue& object, const Request&) {
  out->put32(RDMA_NLDEV_ATTR_RES_CQE, object.entries);
  out->put64(RDMA_NLDEV_ATTR_RES_USECNT, object.users);
  out->put8(RDMA_NLDEV_ATTR_DEV_DIM, 0);
  out->put32(RDMA_NLDEV_ATTR_RES_CQN, object.number);
  out->put32(RDMA_NLDEV_ATTR_RES_CTXN, object.context);
  put_pid(out, object.pid);
}

uint32_t id_of(const MemoryRegion& object) { return object.number; }
void put(Writer* out, const MemoryRegion& object, const Request& request) {
  if (request.is_administrator) {  // a key opens the memory
    out->put32(RDMA_NLDEV_ATTR_RES_RKEY, object.mr->rkey);
    out->put32(RDMA_NLDEV_ATTR_RES_LKEY, object.mr->lkey);
  }
  out->put64(RDMA_NLDEV_ATTR_RES_MRLEN, object.mr->length);
  out->put32(RDMA_NLDEV_ATTR_RES_MRN, object.number);
  out->put32(RDMA_NLDEV_ATTR_RES_PDN, object.domain);
  put_pid(out, object.pid);
}

uint32_t id_of(const Domain& object) { return object.number; }
void put(Writer* out, const Domain& object, const Request& request) {
  if (request.is_administrator) out->put32(RDMA_NLDEV_ATTR_RES_LOCAL_DMA_LKEY, 0);  // for kernel drivers
  out->put64(RDMA_NLDEV_ATTR_RES_USECNT, object.users);
  out->put32(RDMA_NLDEV_ATTR_RES_PDN, object.number);
  out->put32(RDMA_NLDEV_ATTR_RES_CTXN, object.context);
  put_pid(out, object.pid);
}

uint32_t id_of(const Context& object) { return object.number; }
void put(Writer* out, const Context& object, const Request&) {
  out->put32(RDMA_NLDEV_ATTR_RES_CTXN, object.number);
  put_pid(out, object.pid);
}

// Runs of numbers that follow each other are one entry.
void put_queue_pairs(Writer* out, const std::vector<uint32_t>& numbers) {
  const size_t table = out->begin_nest(RDMA_NLDEV_ATTR_RES_QP | NLA_F_NESTED);
  for (size_t i = 0; i < numbers.size();) {
    size_t end = i + 1;
    while (end < numbers.size() && numbers[end] == numbers[end - 1] + 1) ++end;
    const size_t entry = out->begin_nest(RDMA_NLDEV_ATTR_RES_QP_ENTRY | NLA_F_NESTED);
    if (end == i + 1) {
      out->put32(RDMA_NLDEV_ATTR_RES_LQPN, numbers[i]);
    } else {
      out->put32(kMinRange, numbers[i]);
      out->put32(kMaxRange, numbers[end - 1]);
    }
    out->end_nest(entry);
    i = end;
  }
  out->end_nest(table);
}

uint32_t id_of(const SharedReceiveQueue& object) { return object.number; }
void put(Writer* out, const SharedReceiveQueue& object, const Request&) {
  const ibv_srq_type type = object.srq->is_xrc ? IBV_SRQT_XRC : IBV_SRQT_BASIC;
  out->put32(kResSrqn, object.number);
  out->put8(RDMA_NLDEV_ATTR_RES_TYPE, static_cast<uint8_t>(type));
  out->put32(RDMA_NLDEV_ATTR_RES_PDN, object.domain);
  if (object.srq->is_xrc) out->put32(RDMA_NLDEV_ATTR_RES_CQN, object.cq);
  put_queue_pairs(out, object.queue_pairs);
  put_pid(out, object.pid);
}

// ---- the kinds ----

template <Kind kind>
auto& list_of(Objects& objects) {
  if constexpr (kind == Kind::kQp)
    return objects.queue_pairs;
  else if constexpr (kind == Kind::kCmId)
    return objects.cm_ids;
  else if constexpr (kind == Kind::kCq)
    return objects.completion_queues;
  else if constexpr (kind == Kind::kMr)
    return objects.memory_regions;
  else if constexpr (kind == Kind::kPd)
    return objects.domains;
  else if constexpr (kind == Kind::kContext)
    return objects.contexts;
  else
    return objects.shared_receive_queues;
}

struct KindFacts {
  uint16_t table;
  uint16_t entry;
  uint16_t id;           // the attribute that names an object in a request
  bool belongs_to_port;  // requests for one object name the port, too; for the others they must not
};
constexpr KindFacts kKinds[] = {
    {RDMA_NLDEV_ATTR_RES_QP, RDMA_NLDEV_ATTR_RES_QP_ENTRY, RDMA_NLDEV_ATTR_RES_LQPN, true},
    {RDMA_NLDEV_ATTR_RES_CM_ID, RDMA_NLDEV_ATTR_RES_CM_ID_ENTRY, RDMA_NLDEV_ATTR_RES_CM_IDN, true},
    {RDMA_NLDEV_ATTR_RES_CQ, RDMA_NLDEV_ATTR_RES_CQ_ENTRY, RDMA_NLDEV_ATTR_RES_CQN, false},
    {RDMA_NLDEV_ATTR_RES_MR, RDMA_NLDEV_ATTR_RES_MR_ENTRY, RDMA_NLDEV_ATTR_RES_MRN, false},
    {RDMA_NLDEV_ATTR_RES_PD, RDMA_NLDEV_ATTR_RES_PD_ENTRY, RDMA_NLDEV_ATTR_RES_PDN, false},
    {RDMA_NLDEV_ATTR_RES_CTX, RDMA_NLDEV_ATTR_RES_CTX_ENTRY, RDMA_NLDEV_ATTR_RES_CTXN, false},
    {kResSrq, kResSrqEntry, kResSrqn, false},
};
constexpr const KindFacts& facts_of(Kind kind) { return kKinds[static_cast<size_t>(kind)]; }

// The device of a request for objects; nullptr: EINVAL.
const DeviceSurvey* device_of(const Request& request) {
  const DeviceSurvey* device = request.device();
  return device != nullptr && request.has_valid_port() ? device : nullptr;
}

void put_count(Writer* out, const char* name, uint64_t count) {
  const size_t entry = out->begin_nest(RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY);
  out->put_text(RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY_NAME, name);
  out->put64(RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY_CURR, count);
  out->end_nest(entry);
}

// In the order of the kernel's enum rdma_restrack_type.
void put_summary(Writer* out, const Request& request, const DeviceSurvey& device) {
  Objects objects;
  collect(request.node, device.index, &objects);
  put_device(out, device);
  const size_t table = out->begin_nest(RDMA_NLDEV_ATTR_RES_SUMMARY);
  put_count(out, "pd", objects.domains.size());
  put_count(out, "cq", objects.completion_queues.size());
  put_count(out, "qp", objects.queue_pairs.size());
  put_count(out, "cm_id", objects.cm_ids.size());
  put_count(out, "mr", objects.memory_regions.size());
  put_count(out, "ctx", objects.contexts.size());
  put_count(out, "srq", objects.shared_receive_queues.size());
  out->end_nest(table);
}

template <Kind kind, typename Put>
int get_one(const Request& request, Writer* out, const Put& put_entry) {
  const KindFacts& facts = facts_of(kind);
  const DeviceSurvey* device = device_of(request);
  if (device == nullptr || !request.attributes.has(facts.id)) return EINVAL;
  if (request.names_port() != facts.belongs_to_port) return EINVAL;
  Objects objects;
  collect(request.node, device->index, &objects);
  for (const auto& object : list_of<kind>(objects)) {
    if (id_of(object) != request.attributes.get32(facts.id)) continue;
    if (request.names_port() && port_of(object) != request.named_port()) return EAGAIN;
    return write_reply(request, RDMA_NL_GET_OP(request.type), out, [&](Writer* w) {
      put_device(w, *device);
      put_entry(w, object);
    });
  }
  return ENOENT;
}

template <Kind kind, typename Put>
int dump_all(const Request& request, Dump* out, const Put& put_entry) {
  const DeviceSurvey* device = device_of(request);
  if (device == nullptr) return EINVAL;
  Objects objects;
  collect(request.node, device->index, &objects);
  auto& list = list_of<kind>(objects);
  if (request.names_port() && facts_of(kind).belongs_to_port)
    std::erase_if(list, [&](const auto& object) { return port_of(object) != request.named_port(); });
  const KindFacts& facts = facts_of(kind);
  out->add_table(
      facts.table, facts.entry, list.size(), [&](Writer* w) { put_device(w, *device); },
      [&](Writer* w, size_t i) { put_entry(w, list[i]); });
  return 0;
}

}  // namespace

int get_summary(const Request& request, Writer* out) {
  const DeviceSurvey* device = request.device();
  if (device == nullptr) return EINVAL;
  return write_reply(request, RDMA_NLDEV_CMD_RES_GET, out,
                     [&](Writer* w) { put_summary(w, request, *device); });
}

int dump_summaries(const Request& request, Dump* out) {
  for (const DeviceSurvey& device : request.devices)
    out->add_message(RDMA_NLDEV_CMD_RES_GET, [&](Writer* w) { put_summary(w, request, device); });
  return 0;
}

template <Kind kind>
int get_object(const Request& request, Writer* out) {
  return get_one<kind>(request, out, [&](Writer* w, const auto& object) { put(w, object, request); });
}

template <Kind kind>
int dump_objects(const Request& request, Dump* out) {
  return dump_all<kind>(request, out, [&](Writer* w, const auto& object) { put(w, object, request); });
}

int get_region_statistics(const Request& request, Writer* out) {
  return get_one<Kind::kMr>(request, out, [](Writer* w, const MemoryRegion& object) {
    w->put32(RDMA_NLDEV_ATTR_RES_MRN, object.number);
  });
}

int dump_region_statistics(const Request& request, Dump* out) {
  return dump_all<Kind::kMr>(request, out, [](Writer* w, const MemoryRegion& object) {
    w->put32(RDMA_NLDEV_ATTR_RES_MRN, object.number);
  });
}

#define VERBENA_INSTANTIATE(kind)                         \
  template int get_object<kind>(const Request&, Writer*); \
  template int dump_objects<kind>(const Request&, Dump*);
VERBENA_INSTANTIATE(Kind::kQp)
VERBENA_INSTANTIATE(Kind::kCmId)
VERBENA_INSTANTIATE(Kind::kCq)
VERBENA_INSTANTIATE(Kind::kMr)
VERBENA_INSTANTIATE(Kind::kPd)
VERBENA_INSTANTIATE(Kind::kContext)
VERBENA_INSTANTIATE(Kind::kSrq)
#undef VERBENA_INSTANTIATE

}  // namespace verbena::nldev
