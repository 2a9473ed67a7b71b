// SPDX-License-Identifier: BSD-2-Clause
//
// An identifier (struct rdma_id_private in cma.c). The service's lock guards it. Its operations are in
// identifier.cc, resolve.cc, listen.cc, connect.cc, multicast.cc, options.cc and query.cc, one topic each.
// The effects of a connection's events are in events.cc.
#pragma once

#include <errno.h>

#include <memory>
#include <new>
#include <vector>

#include "cm/alarm.h"
#include "cm/cm.h"
#include "cm/cma_header.h"
#include "cm/connection.h"
#include "cm/groups.h"
#include "cm/id_table.h"
#include "cm/paths.h"
#include "cm/service.h"

namespace verbena::cm {

// enum rdma_cm_state.
enum class Stage : uint8_t {
  kIdle,
  kAddressQuery,
  kAddressResolved,
  kRouteQuery,
  kRouteResolved,
  kConnect,
  kDisconnect,
  kAddressBound,
  kListen,
  kDeviceRemoval,
};

struct Join {
  Address group;
  Gid mgid;
  void* context;
  // The subnet administrator has dropped the group because a port went down: MULTICAST_ERROR.
  bool lost = false;
};

struct Id final : ConnectionOwner {
  Id(Service& owner, PortSpace port_space, ibv_qp_type type, EventHandler event_handler, void* event_context);
  Id(const Id&) = delete;
  Id& operator=(const Id&) = delete;

  Service& service;
  const PortSpace space;
  const ibv_qp_type qp_type;
  EventHandler handler;
  void* context;
  uint32_t number = 0;  // unique in the service
  Stage stage = Stage::kIdle;

  IdHandle handle;    // in the node's table
  uint8_t flags = 0;  // IdFlags; kIdBound and kIdListening as the table keeps them
  uint32_t backlog = 0;
  Address source, destination;  // as cma.c keeps them: the destination has a family once the id is bound
  bool has_device = false;
  Place place{};              // of the source, with a device
  uint64_t events_seen = 0;   // of that device's log
  bool reaches_node = false;  // the destination is an address of this node
  Place far{};                // of the destination, if reaches_node
  Alarm unanswered;           // ends kAddressQuery for an address that no node has

  uint32_t path_count = 0;
  Path paths[2]{};

  uint8_t service_type = 0;
  uint8_t ack_timeout = 0;
  bool ack_timeout_set = false;
  bool family_only_set = false;

  const uint32_t psn;  // our starting PSN
  uint32_t qp_number = 0;
  bool srq = false;
  uint32_t qkey = 0;
  std::unique_ptr<Connection> connection;
  std::vector<Join> joins;

  bool is_datagram() const { return qp_type == IBV_QPT_UD; }
  // Precondition: has_device.
  const DeviceDescription& device() const {
    return service.devices().devices[place.device];
  }
  uint64_t node_guid() const { return has_device ? device().node_guid : 0; }
  // Bytes of the CMA header at the start of a request's private data (cma_user_data_offset).
  size_t header_size() const { return source.family() == kFamilyIb ? 0 : kCmaHeaderSize; }

  Event new_event(EventType type, int status = 0);
  void raise(const Event& event) { service.raise({event, false, stage, stage}); }
  void raise_and_go(const Event& event, Stage from, Stage to) { service.raise({event, true, from, to}); }

  void connection_event(CmEvent event, const Message* message) override;  // events.cc

  // Publishes the present state to the node.
  void publish();
  IdFacts facts() const;
  int take_device(const Address& address);  // identifier.cc: cma_acquire_dev
  void stand_on(const Place& found);        // devices.cc: from now on the id gets the device's events
  void serve_device();                     // devices.cc
};

// destroy_id() under the lock.
void end_id(Id* id);

// Calls `body`; returns ENOMEM, as functions of cm.h do, if memory runs out in it.
template <typename Body>
int guarded(Body&& body) noexcept {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return ENOMEM;
  }
}

}  // namespace verbena::cm
