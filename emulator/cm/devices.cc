// SPDX-License-Identifier: BSD-2-Clause
//
// Device events for ids (fabric/device_events.h):
// - the device is removed (cma.c: cma_process_remove),
// - its interface has another hardware address (cma_netdev_change),
// - its port is down (multicast.c: mcast_event_handler).
//
// Ids without a device, such as wildcard listeners, get no event. Linux removes what they had on the device
// and restores it with the next device; here that happens at once.
#include <errno.h>

#include "cm/id.h"
#include "fabric/device_events.h"
#include "observe/log.h"

namespace verbena::cm {
namespace {

// As rdma_destroy_id after the event (ucma.c: ucma_close_id), except that the id stays: peers are notified,
// port and groups are released. Afterwards the id can only be destroyed.
void lose_device(Id& id) {
  id.unanswered.cancel();
  id.connection.reset();
  for (const Join& join : id.joins) id.service.table().leave(id.handle, join.mgid);
  IdFacts facts = id.facts();
  id.service.table().unbind(id.handle, &facts);
  id.flags = facts.flags;
  id.stage = Stage::kDeviceRemoval;
  id.raise(id.new_event(EventType::kDeviceRemoval));
  id.has_device = false;
  id.publish();
}

void change_address(Id& id) { id.raise(id.new_event(EventType::kAddressChange)); }

// The subnet administrator drops the members behind a port that goes down, and its client notifies them once
// (process_group_error). Ethernet has no subnet administrator. An id gets this event until it connects
// (cma_ib_mc_handler).
void lose_groups(Id& id) {
  if (id.device().link_layer == LinkLayer::kEthernet) return;
  for (Join& join : id.joins) {
    if (join.lost) continue;
    join.lost = true;
    id.service.table().leave(id.handle, join.mgid);
    if (id.stage != Stage::kAddressBound && id.stage != Stage::kAddressResolved) continue;
    Event event = id.new_event(EventType::kMulticastError, -ENETRESET);
    event.join = join.context;
    id.raise(event);
  }
}

struct DeviceEventMeaning {
  ibv_event_type cause;
  void (*consequence)(Id& id);
};
constexpr DeviceEventMeaning kDeviceEventMeanings[] = {
    {IBV_EVENT_DEVICE_FATAL, lose_device},
    {kAddressChange, change_address},
    {IBV_EVENT_PORT_ERR, lose_groups},
};

}  // namespace

void Id::stand_on(const Place& found) {
  place = found;
  has_device = true;
  events_seen = service.events_of(place.device).count();
}

void Id::serve_device() {
  const DeviceEventLog& log = service.events_of(place.device);
  const uint64_t count = log.count();
  if (count - events_seen > DeviceEventLog::kLength) events_seen = count - DeviceEventLog::kLength;
  for (; has_device && events_seen != count; ++events_seen) {
    const DeviceEvent happened = log.event(events_seen);
    if (happened.type != IBV_EVENT_DEVICE_FATAL && happened.port != place.port) continue;
    for (const DeviceEventMeaning& meaning : kDeviceEventMeanings)
      if (meaning.cause == happened.type) meaning.consequence(*this);
  }
}

void Service::serve_devices() {
  const uint64_t count = count_device_events(process_->directory());
  if (count == device_events_seen_) return;
  device_events_seen_ = count;
  for (const auto& [number, id] : ids_)
    if (id->has_device) id->serve_device();
}

}  // namespace verbena::cm
