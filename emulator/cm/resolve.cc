// SPDX-License-Identifier: BSD-2-Clause
//
// Addresses and routes (cma.c: rdma_resolve_addr, addr_handler, rdma_resolve_route, rdma_set_ib_path).
#include <errno.h>

#include "cm/id.h"
#include "cm/id_operations.h"
#include "observe/log.h"

namespace verbena::cm {
namespace {

// The local address from which a destination is reached. It is determined before the lock is taken.
struct SourceChoice {
  int error = 0;
  Address source;
};

// InfiniBand resolves to a GID, so no query is needed (cma_resolve_ib_addr). Whether a port has the GID shows
// when the route is resolved.
bool is_resolved_already(const Id& id, const Address& to) {
  return to.family() == kFamilyIb && id.device().link_layer == LinkLayer::kInfiniband;
}

// The part of rdma_resolve_addr that follows the binding. After a refusal the id stays bound, as in cma.c.
int query_address(Id& id, const Address& destination, const SourceChoice& choice, uint32_t timeout_ms) {
  Address to = destination;
  const bool remote = is_remote(id.service.devices(), to);
  if (is_any(to) && !remote) to = loopback_like(to);  // cma_resolve_loopback
  Address from = id.source;
  if (is_zero(from)) {
    if (choice.error != 0) return choice.error;
    const Address bound = from;
    from = choice.source;
    if (from.family() == kFamilyIb) from = ib_address_of(gid_of(from), bound.ib().sid, 0xffff);
    set_port(&from, port_of(bound));
  }
  id.source = from;
  id.destination = to;
  id.reaches_node = find_place(id.service.devices(), to, &id.far);
  id.stage = Stage::kAddressQuery;
  const int error = id.has_device ? 0 : id.take_device(from);
  if (error != 0)
    id.raise_and_go(id.new_event(EventType::kAddressError, -error), Stage::kAddressQuery,
                    Stage::kAddressBound);
  else if (id.reaches_node || remote || is_multicast(to) || is_resolved_already(id, to))
    id.raise_and_go(id.new_event(EventType::kAddressResolved), Stage::kAddressQuery, Stage::kAddressResolved);
  else
    id.unanswered.set_after_ms(timeout_ms);  // a node without a network: no node replies
  id.publish();
  return 0;
}

}  // namespace

int resolve_address(Id* id, const sockaddr* source, const sockaddr* destination, uint32_t timeout_ms) {
  Address to, from;
  if (!read_address(destination, &to)) return EAFNOSUPPORT;
  if (source != nullptr && source->sa_family != AF_UNSPEC && !read_address(source, &from))
    return EAFNOSUPPORT;
  return guarded([&] {
    if (from.none()) {  // cma_bind_addr
      from = wildcard_like(to);
      if (to.family() == AF_INET6) set_scope(&from, to.in6().sin6_scope_id);
      if (to.family() == kFamilyIb) {
        SockaddrIb ib = from.ib();
        ib.pkey = to.ib().pkey;
        from = Address::of(ib);
      }
    }
    SourceChoice choice;
    choice.error = choose_source(id->service.devices(), to, &choice.source);
    Service::Guard guard(id->service);
    const bool bind_now = id->stage == Stage::kIdle;
    if (bind_now)
      if (int error = bind_locked(*id, from); error != 0) return error;
    if (id->source.family() != to.family() || id->stage != Stage::kAddressBound) return EINVAL;
    if (int error = query_address(*id, to, choice, timeout_ms); error != 0) {
      VERBENA_WARN(cm_no_route, "rdma_resolve_addr: the machine has no way to %s: errno %d",
                   to_text(to).c_str(), error);
      return error;
    }
    return 0;
  });
}

namespace {

bool known_to_subnet(const Id& id) {
  return id.reaches_node || id.device().link_layer == LinkLayer::kEthernet;
}

Path path_of(const Id& id) {
  const DeviceDescription& near = id.device();
  Place to = id.far;
  if (!id.reaches_node) {  // a group, or an address of another node: only its GID is known
    to = id.place;
    to.gid = gid_of(id.destination);
  }
  PathFacts facts = path_facts(near, id.place, id.service.devices().devices[to.device], to);
  facts.service_type = id.service_type;
  facts.ack_timeout = id.ack_timeout_set ? id.ack_timeout : 0;
  facts.ipv6 = id.source.family() == AF_INET6;
  facts.on_one_link = facts.on_one_link || id.source.family() == kFamilyIb;
  facts.service_id = service_id(id.space, id.destination);
  return make_path(facts);
}

}  // namespace

int resolve_route(Id* id, uint32_t) {
  return guarded([&] {
    Service::Guard guard(id->service);
    if (id->stage != Stage::kAddressResolved) return EINVAL;
    id->stage = Stage::kRouteQuery;
    if (known_to_subnet(*id)) {
      id->paths[0] = path_of(*id);
      id->path_count = 1;
      id->raise_and_go(id->new_event(EventType::kRouteResolved), Stage::kRouteQuery, Stage::kRouteResolved);
    } else {
      // The subnet administrator knows no such port (sa_query.c: an error status in the reply is -EINVAL).
      id->raise_and_go(id->new_event(EventType::kRouteError, -EINVAL), Stage::kRouteQuery,
                       Stage::kAddressResolved);
    }
    id->publish();
    return 0;
  });
}

int set_path(Id* id, const ib_path_rec_data* paths, size_t count) {
  return guarded([&] {
    Service::Guard guard(id->service);
    if (!id->has_device || id->stage != Stage::kAddressResolved) return EINVAL;
    Path path;
    if (int error = read_path(paths, count, static_cast<uint8_t>(id->device().active_mtu), &path); error != 0)
      return error;
    id->paths[0] = path;
    id->path_count = 1;
    id->stage = Stage::kRouteResolved;
    id->raise(id->new_event(EventType::kRouteResolved));  // ucma_set_ib_path
    id->publish();
    return 0;
  });
}

}  // namespace verbena::cm
