// SPDX-License-Identifier: BSD-2-Clause
#include "nldev/objects.h"

#include <infiniband/verbs.h>

#include <algorithm>
#include <map>

namespace verbena::nldev {
namespace {

// A number of the process becomes one of the node.
constexpr uint32_t kLocalBits = 22;  // 1,024 slots
constexpr uint32_t number_of(const ProcessSnapshot& process, uint32_t local) {
  return process.slot << kLocalBits | (local & ((1u << kLocalBits) - 1));
}

// The objects of one process that belong to the device.
class Collector {
 public:
  Collector(const ProcessSnapshot& process, uint32_t device, Objects* out)
      : process_(process), device_(device), out_(*out) {
    for (const DomainSnapshot& domain : process.domains) devices_[domain.handle] = domain.device;
    for (const ContextSnapshot& context : process.contexts) contexts_[context.number] = context.device;
  }

  void collect() {
    for (const ContextSnapshot& context : process_.contexts)
      if (context.device == device_) out_.contexts.push_back({number(context.number), process_.pid});
    for (const QpSnapshot& qp : process_.qps)
      if (qp.device == device_) out_.queue_pairs.push_back({&qp, number(qp.pd), process_.pid});
    for (const MrSnapshot& mr : process_.mrs)
      if (device_of(mr.pd) == device_)
        out_.memory_regions.push_back({number(mr.index), &mr, number(mr.pd), process_.pid});
    for (const SrqSnapshot& srq : process_.srqs)
      if (srq.of_program && device_of(srq.pd) == device_) add(srq);
    for (const DomainSnapshot& domain : process_.domains)
      if (domain.device == device_) add(domain);
    for (const CqSnapshot& cq : process_.cqs)
      if (device_of(cq) == device_) add(cq);
    for (const CmIdSnapshot& id : process_.cm_ids)
      if (id.facts.device == device_ || is_listener_everywhere(id))
        out_.cm_ids.push_back({number(id.facts.number), &id, process_.pid});
  }

 private:
  uint32_t number(uint32_t local) const { return number_of(process_, local); }

  // A domain that found no entry in the list is taken for one of the first device.
  uint32_t device_of(uint32_t domain) const {
    const auto found = devices_.find(domain);
    return found != devices_.end() ? found->second : 0;
  }
  // The context may have been closed before its CQ was destroyed.
  uint32_t device_of(const CqSnapshot& cq) const {
    const auto context = contexts_.find(cq.context);
    if (context != contexts_.end()) return context->second;
    for (const QpSnapshot& qp : process_.qps)
      if (qp.send_cq == cq.index || qp.recv_cq == cq.index) return qp.device;
    return 0;
  }
  // The kernel has a listener of its own for each device then (cma_listen_on_all).
  static bool is_listener_everywhere(const CmIdSnapshot& id) {
    return id.facts.device == cm::kNoDevice && id.facts.state == cm::IdState::kListening;
  }

  void add(const DomainSnapshot& domain) {
    const auto belongs = [&](const auto& object) { return object.pd == domain.handle; };
    const auto users = std::count_if(process_.qps.begin(), process_.qps.end(), belongs) +
                       std::count_if(process_.mrs.begin(), process_.mrs.end(), belongs) +
                       std::count_if(process_.srqs.begin(), process_.srqs.end(),
                                     [&](const SrqSnapshot& srq) { return srq.of_program && belongs(srq); });
    out_.domains.push_back(
        {number(domain.handle), static_cast<uint64_t>(users), number(domain.context), process_.pid});
  }

  void add(const CqSnapshot& cq) {
    uint64_t users = 0;
    for (const QpSnapshot& qp : process_.qps) users += (qp.send_cq == cq.index) + (qp.recv_cq == cq.index);
    for (const SrqSnapshot& srq : process_.srqs) users += srq.is_xrc && srq.cq == cq.index;
    // ibv_cq::cqe, as the kernel has it
    out_.completion_queues.push_back(
        {number(cq.index), static_cast<uint32_t>(cq.capacity - 1), users, number(cq.context), process_.pid});
  }

  void add(const SrqSnapshot& srq) {
    SharedReceiveQueue found{number(srq.index), &srq, number(srq.pd), number(srq.cq), {}, process_.pid};
    for (const QpSnapshot& qp : process_.qps)
      if (qp.srq == srq.index + 1) found.queue_pairs.push_back(qp.qpn);
    std::sort(found.queue_pairs.begin(), found.queue_pairs.end());
    out_.shared_receive_queues.push_back(std::move(found));
  }

  const ProcessSnapshot& process_;
  const uint32_t device_;
  Objects& out_;
  std::map<uint32_t, uint32_t> devices_;   // by the handle of the domain
  std::map<uint32_t, uint32_t> contexts_;  // device, by the number of the context
};

}  // namespace

void collect(const std::string& node, uint32_t device, Objects* out) {
  *out = {};
  out->node = look_at_objects(node);
  for (const ProcessSnapshot& process : out->node.processes) Collector(process, device, out).collect();
  std::sort(out->queue_pairs.begin(), out->queue_pairs.end(),
            [](const QueuePair& a, const QueuePair& b) { return a.qp->qpn < b.qp->qpn; });
}

}  // namespace verbena::nldev
