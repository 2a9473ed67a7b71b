// SPDX-License-Identifier: BSD-2-Clause
//
// Identifiers: creation, binding, destruction (cma.c: __rdma_create_id, rdma_bind_addr, rdma_destroy_id).
#include <errno.h>

#include <algorithm>

#include "cm/id.h"
#include "observe/log.h"

namespace verbena::cm {
namespace {

struct SpaceTypes {
  PortSpace space;
  bool any_type;
  ibv_qp_type type;
};
// ucma_get_qp_type: only RDMA_PS_IB leaves the choice.
constexpr SpaceTypes kSpaces[] = {
    {PortSpace::kIpoib, false, IBV_QPT_UD},
    {PortSpace::kTcp, false, IBV_QPT_RC},
    {PortSpace::kUdp, false, IBV_QPT_UD},
    {PortSpace::kIb, true, IBV_QPT_RC},
};

void address_unanswered(void* self) {
  auto& id = *static_cast<Id*>(self);
  VERBENA_WARN(
      cm_no_route,
      "rdma_resolve_addr: nobody answers for %s: it is no address of this machine, and the node has no "
      "network (verbena run --ip or --roce)",
      to_text(id.destination).c_str());
  id.raise_and_go(id.new_event(EventType::kAddressError, -ETIMEDOUT), Stage::kAddressQuery,
                  Stage::kAddressBound);
}

constexpr IdState kPublished[] = {
    IdState::kIdle,          IdState::kAddressQuery, IdState::kAddressResolved, IdState::kRouteQuery,
    IdState::kRouteResolved, IdState::kConnecting,   IdState::kDisconnected,    IdState::kAddressBound,
    IdState::kListening,     IdState::kGone,
};

uint32_t starting_psn(uint32_t seed) { return (seed * 0x9e3779b1u >> 4) & 0xffffff; }

}  // namespace

Id::Id(Service& owner, PortSpace port_space, ibv_qp_type type, EventHandler event_handler,
       void* event_context)
    : service(owner),
      space(port_space),
      qp_type(type),
      handler(event_handler),
      context(event_context),
      unanswered(owner.clock(), address_unanswered, this),
      psn(starting_psn(static_cast<uint32_t>(owner.clock().now()))) {}

IdFacts Id::facts() const {
  IdFacts facts{};
  facts.local = source;
  facts.remote = destination;
  facts.number = number;
  facts.qpn = qp_number;
  facts.space = space;
  facts.qp_type = static_cast<uint8_t>(qp_type);
  facts.state = kPublished[static_cast<size_t>(stage)];
  facts.flags = has_device && place.port == 2 ? flags | kIdOnPort2 : flags & ~kIdOnPort2;
  facts.device = has_device ? static_cast<uint8_t>(place.device) : kNoDevice;
  facts.peer = kNoPeer;
  if (connection != nullptr) {
    if (!connection->peer().is_remote()) facts.peer = static_cast<uint16_t>(connection->peer().slot);
    if (connection->state() == CmState::kEstablished) facts.state = IdState::kConnected;
    if (connection->state() == CmState::kTimewait) facts.state = IdState::kTimeWait;
  }
  return facts;
}

void Id::publish() { service.table().publish(handle, facts()); }

Event Id::new_event(EventType type, int status) {
  Event event{};
  event.type = type;
  event.status = status;
  event.id = this;
  event.is_datagram = is_datagram();
  return event;
}

// cma_acquire_dev_by_src_ip.
int Id::take_device(const Address& address) {
  Place found;
  if (!find_place(service.devices(), address, &found)) return ENODEV;
  if (space == PortSpace::kIpoib &&
      service.devices().devices[found.device].link_layer == LinkLayer::kEthernet)
    return EINVAL;
  stand_on(found);
  return 0;
}

void Service::add(Id* id) {
  while (next_number_ == 0 || ids_.contains(next_number_)) ++next_number_;
  id->number = next_number_++;
  ids_[id->number] = id;
}

void Service::remove(Id* id) { ids_.erase(id->number); }

Id* Service::find(uint32_t number) const {
  const auto found = ids_.find(number);
  return found == ids_.end() ? nullptr : found->second;
}

int create_id(Service* service, PortSpace space, ibv_qp_type type, EventHandler handler, void* context,
              Id** out) {
  const auto* known = std::find_if(std::begin(kSpaces), std::end(kSpaces),
                                   [&](const SpaceTypes& s) { return s.space == space; });
  if (known == std::end(kSpaces)) {
    VERBENA_WARN(cm_port_space, "rdma_create_id: port space 0x%x is none of TCP, UDP, IPOIB and IB",
                 static_cast<unsigned>(space));
    return EINVAL;
  }
  return guarded([&] {
    Service::Guard guard(*service);
    auto id = std::make_unique<Id>(*service, space, known->any_type ? type : known->type, handler, context);
    service->add(id.get());
    const Peer self = service->self();
    if (int error = service->table().add({self.slot, self.generation}, id->facts(), &id->handle);
        error != 0) {
      service->remove(id.get());
      return error;
    }
    *out = id.release();
    return 0;
  });
}

void end_id(Id* id) {
  Service& service = id->service;
  service.quiet(id);
  id->unanswered.cancel();
  id->connection.reset();  // notifies the peer
  service.table().remove(id->handle);
  service.remove(id);
  delete id;
}

void destroy_id(Id* id) {
  Service::Guard guard(id->service);
  end_id(id);
}

void set_context(Id* id, void* context) {
  Service::Guard guard(id->service);
  id->context = context;
}

void* context_of(const Id* id) {
  Service::Guard guard(id->service);
  return id->context;
}

// rdma_bind_addr, under the lock.
int bind_locked(Id& id, const Address& address) {
  if (id.stage != Stage::kIdle) return EINVAL;
  if (int error = check_scope(address); error != 0) return error;
  const bool any = is_any(address);
  if (!any) {
    if (address.family() != kFamilyIb && !is_of_machine(address)) {
      VERBENA_WARN(cm_not_our_address, "rdma_bind_addr: %s is no address of this machine",
                   to_text(address).c_str());
      return EADDRNOTAVAIL;
    }
    if (int error = id.take_device(address); error != 0) {
      VERBENA_WARN(cm_no_device, "rdma_bind_addr: no device of the node has %s in port space %s",
                   to_text(address).c_str(), std::string(name_of(id.space)).c_str());
      return error;
    }
  } else if (is_loopback(address)) {
    // Linux treats it as a wildcard (cma_any_addr), because its devices have no loopback address. Ours have
    // it among their GIDs. A program that asks a bound id for its device (rsocket.c, ds_create_qp) therefore
    // finds one here, too.
    static_cast<void>(id.take_device(address));
  }
  const uint8_t flags_before = id.flags;
  // IPv4 is always for its own family only. IPv6: as configured on the machine (net.ipv6.bindv6only, 0 by
  // default).
  if (!id.family_only_set)
    id.flags = static_cast<uint8_t>(address.family() == AF_INET ? id.flags | kIdFamilyOnly
                                                                : id.flags & ~kIdFamilyOnly);
  IdFacts facts = id.facts();
  facts.local = address;
  if (int error = id.service.table().bind(id.handle, &facts); error != 0) {
    id.flags = flags_before;
    id.has_device = false;
    return error;
  }
  id.flags = facts.flags;
  id.source = facts.local;
  id.destination = wildcard_like(address);
  id.stage = Stage::kAddressBound;
  id.publish();
  return 0;
}

int bind_address(Id* id, const sockaddr* address) {
  Address local;
  if (!read_address(address, &local)) return EAFNOSUPPORT;
  Service::Guard guard(id->service);
  return guarded([&] { return bind_locked(*id, local); });
}

std::string_view name_of(EventType type) {
  constexpr std::string_view kNames[] = {
      "address resolved", "address error",    "route resolved", "route error",
      "connect request",  "connect response", "connect error",  "unreachable",
      "rejected",         "established",      "disconnected",   "device removal",
      "multicast join",   "multicast error",  "address change", "timewait exit",
  };
  const auto index = static_cast<size_t>(type);
  return index < std::size(kNames) ? kNames[index] : "?";
}

}  // namespace verbena::cm
