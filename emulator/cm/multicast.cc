// SPDX-License-Identifier: BSD-2-Clause
//
// Multicast groups (cma.c: rdma_join_multicast, rdma_leave_multicast). The program attaches the queue
// pair with the data of the event. This file keeps the groups that each id has joined.
#include <errno.h>

#include <algorithm>

#include "cm/id.h"

namespace verbena::cm {

int join_multicast(Id* id, const sockaddr* group, bool send_only, void* join) {
  Address address;
  if (!read_address(group, &address)) return EAFNOSUPPORT;
  return guarded([&] {
    Service::Guard guard(id->service);
    if (!id->has_device || !id->is_datagram()) return EINVAL;
    if (id->stage != Stage::kAddressBound && id->stage != Stage::kAddressResolved) return EINVAL;
    const LinkLayer link_layer = id->device().link_layer;
    if (is_zero(address) && link_layer == LinkLayer::kEthernet) return EINVAL;
    Gid mgid;
    if (int error = mgid_of(address, id->space, link_layer, &mgid); error != 0) return error;
    uint32_t qkey;
    if (int error = qkey_of(id->space, id->qkey, 0, &qkey); error != 0) return error;
    if (int error = id->service.table().join(id->handle, mgid, send_only); error != 0) return error;
    id->qkey = qkey;
    id->joins.push_back({address, mgid, join});
    Event event = id->new_event(EventType::kMulticastJoin);
    event.datagram = join_parameters({.mgid = mgid,
                                      .mlid = mlid_of(mgid, link_layer),
                                      .qkey = qkey,
                                      .service_type = id->service_type,
                                      .port = id->place.port,
                                      .gid_index = id->place.gid_index},
                                     link_layer);
    event.join = join;
    id->raise(event);
    return 0;
  });
}

int leave_multicast(Id* id, const sockaddr* group) {
  Address address;
  if (!read_address(group, &address)) return EAFNOSUPPORT;
  Service::Guard guard(id->service);
  const auto found =
      std::find_if(id->joins.begin(), id->joins.end(), [&](const Join& j) { return j.group == address; });
  if (found == id->joins.end()) return EINVAL;
  const Join join = *found;
  id->joins.erase(found);
  id->service.table().leave(id->handle, join.mgid);
  id->service.quiet_join(id, join.context);
  return 0;
}

}  // namespace verbena::cm
