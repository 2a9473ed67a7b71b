// SPDX-License-Identifier: BSD-2-Clause
#include "engine/ethernet/frame_sender.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <span>
#include <utility>

#include "engine/completion/send_completion.h"
#include "engine/ethernet/steering.h"
#include "engine/objects/context.h"
#include "engine/objects/qp.h"
#include "engine/objects/requester_context.h"
#include "engine/objects/send_request.h"
#include "engine/objects/transport.h"
#include "engine/requester/local_bytes.h"
#include "engine/requester/requester.h"
#include "engine/rules/flow_fields.h"
#include "engine/rules/frame_checksum.h"
#include "fabric/hazards.h"
#include "observe/observer.h"

namespace verbena {
namespace {

// The queue pair `of` of an adapter. nullptr: it is not there, or cannot be reached.
std::unique_ptr<Destination> find_receiver(Process& process, const MulticastMember& of) {
  auto to = std::make_unique<Destination>();
  to->type = IBV_QPT_RAW_PACKET;
  if (!find_destination(process, of, to.get())) to.reset();
  return to;
}

RuleReceiver find_receivers(Process& process, const MulticastMember& of) {
  RuleReceiver out;
  out.qp = find_receiver(process, of);
  if (out.qp == nullptr) return out;
  {
    const HazardGuard guard(process.hazards(), of.slot);
    if (!out.qp->adapter->alive(process.directory()) ||
        !read_rss_table(out.qp->adapter->view(), *out.qp->qp, &out.table))
      return out;
  }
  for (const RssQueue& queue : out.table.queues)
    out.queues.push_back(
        find_receiver(process, {of.slot, of.slot_generation, queue.qp_index, queue.incarnation}));
  return out;
}

// Reads the rules again if they have changed. Throws std::bad_alloc.
void follow_rules(FrameSender& from, const FlowTable& table) {
  const uint64_t version = table.version();
  if (from.version == version) return;
  from.version = UINT64_MAX;  // until all is found
  from.rules = table.rules();
  from.receivers.clear();
  for (const FlowTable::Found& found : from.rules)
    from.receivers.push_back(find_receivers(*from.process, found.rule.qp));
  from.hit.reserve(from.rules.size());
  from.events_due.reserve(from.rules.size());
  from.version = version;
}

Destination* choose(const RuleReceiver& receiver, const FlowFields& frame) {
  if (receiver.queues.empty()) return receiver.qp.get();
  const uint32_t hash = rss_hash(receiver.table.key, receiver.table.fields, frame);
  return receiver.queues[hash & (receiver.queues.size() - 1)].get();
}

// The frame has hit the rule.
void give_frame(FrameSender& from, const FlowTable& table, uint32_t index, const FlowFields& frame,
                const DatagramMessage& message) {
  const FlowTable::Found& found = from.rules[index];
  const RuleReceiver& receiver = from.receivers[index];
  if (receiver.qp == nullptr) return;
  const HazardGuard guard(from.process->hazards(), receiver.qp->adapter->slot());
  // Under the hazard guard: a process that destroys the flow waits for it.
  if (!table.is_still(found.handle)) return;
  table.count(found.handle, message.length);
  Destination* const to = choose(receiver, frame);
  if (found.rule.drops || to == nullptr || !is_ready(*to, from.process->directory())) return;
  if (!to->adapter->is_within_reach()) {
    to->qp->dropped.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  deliver(from, *to, message);
  if (to->event_due != 0) from.events_due.push_back(to);
}

// Is any port of the device up? give_frame() looks at the port of the queue pair.
bool is_up(const NodeDirectory& directory, uint32_t device) {
  for (uint32_t port = 1; port <= directory.devices().devices[device].count_ports(); ++port)
    if (!port_down(directory, device, port)) return true;
  return false;
}

void send_to_devices(FrameSender& from, const DatagramMessage& message) {
  const NodeDirectory& directory = from.process->directory();
  const FlowTable table(directory);
  follow_rules(from, table);
  const FlowFields frame = fields_of_frame(message.bytes, message.length);
  from.hit.clear();
  for (uint32_t device = 0; device < directory.devices().count; ++device)
    if (is_up(directory, device)) steer(from.rules, device, frame, &from.hit);
  for (const uint32_t index : from.hit) give_frame(from, table, index, frame, message);
}

class FrameTransport final : public Transport {
 public:
  SendResult send(Qp& qp, const SendOperation& operation, SendRequest& request) override {
    if (const VendorError error = send_frame(qp, operation, request); error != VendorError::none)
      return {SendOutcome::kFailed, error};
    const bool completed = finish_request(qp, request);
    raise_events(*qp.frames);  // in this order: raise_both_events() in send_completion.h
    if (completed) raise_send_event(qp, false);
    return {SendOutcome::kCompleted};
  }

  bool is_synchronous() const override { return true; }
  uint32_t chunk_size() const override { return UINT32_MAX; }
  uint64_t patience_ns(const Qp&) const override { return 0; }
};

}  // namespace

std::shared_ptr<FrameSender> make_frame_sender(const Qp& qp) {
  auto made = std::make_shared<FrameSender>();
  made->process = qp.process;
  made->device = qp.context->device;
  made->index = qp.index;
  made->incarnation = qp.shared->incarnation;
  return made;
}

VendorError send_frame(Qp& qp, const SendOperation& operation, const SendRequest& request) {
  constexpr uint32_t kHeaders = kEthernetHeader + kVlanTag;
  static_assert(kMaxDatagram + kHeaders <= sizeof DatagramMessage::bytes);
  if (request.length > std::min(qp.requester.mtu, kMaxDatagram) + kHeaders)
    return VendorError::message_too_long;
  if (request.length < kEthernetHeader) return VendorError::malformed_request;
  DatagramMessage message;
  if (VendorError error = gather_local_bytes(qp, operation, request, message.bytes);
      error != VendorError::none)
    return error;
  message.length = request.length;
  if ((request.flags & IBV_SEND_IP_CSUM) != 0) fill_in_checksums(message.bytes, message.length);
  if (are_checksums_right(message.bytes, message.length))
    message.source.sl |= DatagramSource::kChecksumsRight;
  message.header_bytes = 0;
  message.solicited = (request.flags & IBV_SEND_SOLICITED) != 0;
  message.flags = kCqeReceive | kCqeFromShared | kCqeDatagram;
  if (message.solicited) message.flags |= kCqeSolicited;
  FrameSender& from = *qp.frames;
  from.may_be_eager = qp.requester.may_be_eager;
  from.events_due.clear();
  if (port_down(qp.process->directory(), qp.context->device_index, qp.attr.port_num))
    return VendorError::none;  // lost on the way
  if (Observer* const seen = observer(); seen != nullptr) [[unlikely]]
    seen->on_frame({qp.shared->qpn, std::span(message.bytes).first(message.length)});
  try {
    send_to_devices(from, message);
  } catch (const std::bad_alloc&) {
    // The rules have changed, and there is no memory for them: the frame is lost.
  }
  return VendorError::none;
}

Transport& frame_transport() {
  static constinit FrameTransport transport;
  return transport;
}

}  // namespace verbena
