// SPDX-License-Identifier: BSD-2-Clause
#include "check/request_rules.h"

#include <endian.h>
#include <errno.h>

#include <algorithm>

#include "check/operations.h"
#include "check/outstanding.h"
#include "engine/rules/qp_state_table.h"

namespace verbena::check {
namespace {

using Wide = unsigned long long;

// A finding about `request`, which its error completion does not repeat.
void accuse(Request& request, const findings::Rule& broken, const std::string& what,
            std::initializer_list<Call> calls) {
  request.accused = true;
  report(broken, what, calls);
}

std::string place_of(const Object& owner, const Request& request) {
  return text("%s: %s with wr_id 0x%llx", owner.name.c_str(), kind_of(request), Wide{request.wr_id});
}

// One SGE against the region that its lkey names.
void check_range(const Object& owner, const Object* pd, Request& request, const Range& range, size_t index) {
  const auto where = [&] { return place_of(owner, request) + text(", SGE %zu", index); };  // most are right
  const Region* const region = find_region(owner.context, range.lkey);
  if (region == nullptr)
    return accuse(request, rule("lkey-unknown"), where() + text(": lkey 0x%x", range.lkey),
                  {{"posted here", request.posted}});
  if (!region->alive)
    return accuse(request, rule("mr-deregistered"), where() + ": " + region->name,
                  {{"posted here", request.posted},
                   {"deregistered here", region->destroyed},
                   {"registered here", region->created}});
  const Call registered = {"registered here", region->created};
  if (pd != nullptr && region->pd != nullptr && region->pd != pd && owner.process == region->process) {
    const auto is_parent = [](const Object* domain, const Object* inner) {
      return std::find(domain->uses.begin(), domain->uses.end(), inner) != domain->uses.end();
    };
    const auto shares = [&] {
      for (const Object* one : pd->uses)
        if (one->kind == Kind::kPd && (one == region->pd || is_parent(region->pd, one))) return true;
      return is_parent(region->pd, pd);
    };
    if (!shares())
      return accuse(
          request, rule("lkey-other-pd"),
          where() + ": " + region->name + " is of " + region->pd->name + ", the queue of " + pd->name,
          {{"posted here", request.posted}, registered});
  }
  if (!region->has_range) return;
  if (range.begin < region->begin || range.length > region->length ||
      range.begin - region->begin > region->length - range.length)
    return accuse(
        request, rule("mr-range"),
        where() + text(": [0x%llx, +%u) leaves %s", Wide{range.begin}, range.length, region->name.c_str()),
        {{"posted here", request.posted}, registered});
  if (writes_memory(request.opcode) && (region->access & IBV_ACCESS_LOCAL_WRITE) == 0)
    accuse(
        request, rule("mr-local-write"),
        where() + text(": %s has access 0x%x", region->name.c_str(), static_cast<unsigned>(region->access)),
        {{"posted here", request.posted}, registered});
}

void check_ranges(const Object& owner, const Object* pd, Request& request) {
  for (size_t i = 0; i < request.ranges.size() && !request.accused; ++i)
    check_range(owner, pd, request, request.ranges[i], i);
}

void note_reuse(const std::deque<Request>& queue, const Object& owner, const Request& request) {
  if (!is_enabled(rule("wr-id-reused"))) return;
  const auto same = std::find_if(queue.begin(), queue.end(),
                                 [&](const Request& other) { return other.wr_id == request.wr_id; });
  if (same != queue.end())
    report(rule("wr-id-reused"), place_of(owner, request),
           {{"posted here", request.posted}, {"and before here", same->posted}});
}

void check_datagram(const QueuePair& qp, const ibv_send_wr& wr, Request& request) {
  const Call posted = {"posted here", request.posted};
  const auto where = [&] { return place_of(qp, request); };
  if (wr.wr.ud.ah == nullptr) return accuse(request, rule("ah-missing"), where(), {posted});
  if (const Object* const ah = find_object(wr.wr.ud.ah); ah != nullptr) {
    if (!ah->alive)
      return accuse(
          request, rule("use-after-destroy"), where() + ": " + ah->name + " was destroyed before",
          {{"used here", request.posted}, {"destroyed here", ah->destroyed}, {"made here", ah->created}});
    if (!ah->uses.empty() && qp.pd != nullptr && ah->uses.front() != qp.pd)
      return accuse(request, rule("ah-other-pd"),
                    where() + ": " + ah->name + " is of " + ah->uses.front()->name + ", the queue pair of " +
                        qp.pd->name,
                    {posted, {"made here", ah->created}});
  }
  if (qp.mtu != 0 && request.bytes > qp.mtu && request.opcode != IBV_WR_TSO)  // the device cuts that
    accuse(request, rule("ud-message-length"),
           where() + text(": %llu bytes, the MTU is %u", Wide{request.bytes}, qp.mtu), {posted});
}

// Numbers below 2^16 that were not converted: in network order those would end in 16 bits of 0.
bool looks_like_host_order(__be32 data) {
  constexpr uint32_t kSmall = 1u << 16;
  return htobe32(1) != 1 && data != 0 && data < kSmall;
}

// Of opcodes that are none, the device says what is wrong.
bool has_operation(ibv_qp_type type, int opcode) {
  const SendOperation* const operation = operation_of(opcode);
  const auto number = static_cast<unsigned>(type);
  return operation == nullptr || (number < 32 && (operation->qp_types >> number & 1) != 0);
}

}  // namespace

void check_send_rules(QueuePair& qp, const ibv_send_wr& wr, Request& request) {
  const Call posted = {"posted here", request.posted};
  const auto where = [&] { return place_of(qp, request); };
  note_reuse(qp.sends, qp, request);
  if (qp.type == IBV_QPT_UD && has_operation(qp.type, request.opcode)) check_datagram(qp, wr, request);
  if ((wr.send_flags & IBV_SEND_INLINE) == 0) check_ranges(qp, qp.pd, request);
  const SendOperation* const operation = operation_of(request.opcode);
  if (operation != nullptr && operation->atomic) {
    if (wr.wr.atomic.remote_addr % 8 != 0)
      accuse(request, rule("atomic-alignment"),
             where() + text(": remote_addr 0x%llx", Wide{wr.wr.atomic.remote_addr}), {posted});
    if (request.bytes != 8)
      accuse(request, rule("atomic-length"), where() + text(": %llu bytes", Wide{request.bytes}), {posted});
  }
  if (operation != nullptr && operation->awaits_response && qp.knows_rd_atomic && qp.max_rd_atomic == 0 &&
      qp.state == IBV_QPS_RTS)
    accuse(request, rule("rd-atomic-zero"), where(), {posted, {"modified to RTS here", qp.modified}});
  else if (operation != nullptr && operation->awaits_response && qp.peer_rd_atomic > 0 &&
           qp.max_rd_atomic > qp.peer_rd_atomic)
    report(rule("rd-atomic-exceeds"),
           where() + text(": max_rd_atomic is %u here, max_dest_rd_atomic %d at the other end",
                          qp.max_rd_atomic, qp.peer_rd_atomic),
           {posted, {"modified to RTS here", qp.modified}});
  if (is_enabled(rule("imm-host-order")) && operation != nullptr && operation->carries_immediate &&
      looks_like_host_order(wr.imm_data))
    report(rule("imm-host-order"), where() + text(": imm_data 0x%08x", wr.imm_data), {posted});
  constexpr uint64_t kLongest = 1u << 31;  // IBTA vol. 1, 9.7.4.1.6: no device takes more
  if (qp.type != IBV_QPT_UD && request.bytes > kLongest)
    accuse(request, rule("message-length"), where() + text(": %llu bytes", Wide{request.bytes}), {posted});
}

void check_receive_rules(const ReceiveQueue& queue, const Object& owner, const Object* pd,
                         const QueuePair* qp, const ibv_recv_wr&, Request& request) {
  note_reuse(queue.requests, owner, request);
  check_ranges(owner, pd, request);
  constexpr uint64_t kGrh = 40;
  if (qp != nullptr && qp->type == IBV_QPT_UD && request.bytes < kGrh)
    accuse(request, rule("ud-receive-grh"),
           place_of(owner, request) + text(": %llu bytes", Wide{request.bytes}),
           {{"posted here", request.posted}});
  const Request* const other = find_overlap(queue.requests, request);
  if (other == nullptr) return;
  const bool same = other->ranges.size() == request.ranges.size() &&
                    other->ranges[0].begin == request.ranges[0].begin &&
                    other->ranges[0].length == request.ranges[0].length;
  const findings::Rule& broken = same ? rule("receive-same-buffer") : rule("receive-overlap");
  if (!is_enabled(broken)) return;
  report(broken,
         text("%s: receives with wr_id 0x%llx and 0x%llx share bytes", owner.name.c_str(),
              Wide{request.wr_id}, Wide{other->wr_id}),
         {{"posted here", request.posted}, {"and before here", other->posted}});
}

void check_room(CompletionQueue& cq, StackId posted) {
  if (cq.said_short || cq.expected <= cq.entries) return;
  cq.said_short = true;
  report(
      rule("cq-too-short"),
      text("%s has %d entries, and %lld completions may come", cq.name.c_str(), cq.entries,
           static_cast<long long>(cq.expected)),
      {{"the request that was too much was posted here", posted}, {"the queue was made here", cq.created}});
}

void explain_refused_send(const QueuePair& qp, const ibv_send_wr& wr, int error, StackId stack) {
  const Call posted = {"posted here", stack};
  const std::string reason = take_reason();
  const std::string where = qp.name + text(": wr_id 0x%llx", Wide{wr.wr_id});
  uint64_t bytes = 0;
  for (int i = 0; i < wr.num_sge && wr.sg_list != nullptr; ++i) bytes += wr.sg_list[i].length;
  const bool is_inline = (wr.send_flags & IBV_SEND_INLINE) != 0;
  const int opcode = static_cast<int>(wr.opcode);
  if (wr.num_sge < 0 || static_cast<uint32_t>(wr.num_sge) > qp.cap.max_send_sge)
    return report(rule("sge-count"),
                  where + text(": num_sge %d, max_send_sge %u", wr.num_sge, qp.cap.max_send_sge),
                  {posted, {"made here", qp.created}});
  if (!has_operation(qp.type, opcode))
    return report(rule("opcode-type"), where + text(": opcode %d, type %s", opcode, name_of_qp_type(qp.type)),
                  {posted, {"made here", qp.created}});
  if (qp.state == IBV_QPS_RTR)
    return report(rule("rtr-without-rts"), where, {posted, {"modified to RTR here", qp.modified}});
  if (qp.state == IBV_QPS_RESET || qp.state == IBV_QPS_INIT)
    return report(rule("send-state"), where + text(": the state is %s", name_of_state(qp.state)),
                  {posted, {"made here", qp.created}});
  if (is_inline && writes_memory(opcode)) return report(rule("inline-opcode"), where, {posted});
  if (is_inline && bytes > qp.cap.max_inline_data)
    return report(rule("inline-limit"),
                  where + text(": %llu bytes, max_inline_data %u", Wide{bytes}, qp.cap.max_inline_data),
                  {posted, {"made here", qp.created}});
  if (error == ENOMEM && qp.sends.size() >= qp.cap.max_send_wr) {
    const bool any_signaled = std::any_of(qp.sends.begin(), qp.sends.end(),
                                          [](const Request& request) { return request.signaled; });
    return report(
        any_signaled ? rule("send-queue-full") : rule("send-queue-unsignaled"),
        where +
            text(": %zu requests are outstanding, max_send_wr is %u", qp.sends.size(), qp.cap.max_send_wr),
        {posted, {"the oldest of them was posted here", qp.sends.front().posted}, {"made here", qp.created}});
  }
  if (error == EIO) return;  // the device, or the parent's object
  report(rule("call-refused"), reason.empty() ? where : reason, {posted});
}

void explain_refused_receive(const Object& owner, const QueuePair* qp, const ReceiveQueue& queue,
                             const ibv_recv_wr& wr, int error, StackId stack) {
  const Call posted = {"posted here", stack};
  const std::string reason = take_reason();
  const std::string where = owner.name + text(": wr_id 0x%llx", Wide{wr.wr_id});
  if (qp != nullptr && qp->srq != nullptr)
    return report(rule("receive-with-srq"), where, {posted, {"made here", qp->created}});
  if (qp != nullptr && qp->state == IBV_QPS_RESET)
    return report(rule("receive-state"), where, {posted, {"made here", qp->created}});
  if (wr.num_sge < 0 || static_cast<uint32_t>(wr.num_sge) > queue.max_sge)
    return report(rule("sge-count"), where + text(": num_sge %d, %u are allowed", wr.num_sge, queue.max_sge),
                  {posted, {"made here", owner.created}});
  if (error == ENOMEM)
    return report(rule("receive-queue-full"),
                  where + text(": %zu receives are outstanding", queue.requests.size()),
                  {posted, {"made here", owner.created}});
  if (error == EIO) return;
  report(rule("call-refused"), reason.empty() ? where : reason, {posted});
}

}  // namespace verbena::check
