// SPDX-License-Identifier: BSD-2-Clause
//
// The connection manager and other nodes: the local listener for their requests, and the remote peer for
// ours.
#include <mutex>
#include <optional>

#include "cm/id.h"
#include "cm/service.h"
#include "wire/connection_listener.h"

namespace verbena::cm {
namespace {

wire::NetAddress net_address(const Address& a) { return {gid_of(a)}; }

// The id table of the node that was asked for last. It stays mapped: to map it costs 0.3 ms, and requests may
// come from any machine (RoCE v2 has no authentication), as many as it likes to send.
class LastTable {
 public:
  // Not locked: another thread has it, or had it when this process was forked.
  static std::unique_lock<std::mutex> lock() { return std::unique_lock(get().mutex_, std::try_to_lock); }

  // With the lock. nullptr: no process of the node has used rdma_cm.
  static const IdTable* of(const NodeDirectory& directory, const std::string& node) {
    LastTable& last = get();
    const uint64_t id = directory.header().node_id;
    if (last.table_ && last.directory_ == &directory && last.node_id_ == id) return &*last.table_;
    last.table_.emplace();
    if (last.table_->open(directory, node, /*only_if_there=*/true) != 0) {
      last.table_.reset();
      return nullptr;
    }
    last.directory_ = &directory;
    last.node_id_ = id;
    return &*last.table_;
  }

 private:
  static LastTable& get() {
    static LastTable* const the_last = new LastTable;  // never destroyed: threads may outlive main()
    return *the_last;
  }

  std::mutex mutex_;
  const NodeDirectory* directory_ = nullptr;
  uint64_t node_id_ = 0;
  std::optional<IdTable> table_;
};

bool find_in(const IdTable& table, const wire::NetAddress& to, uint64_t service, uint32_t* slot) {
  const PortSpace space = space_of_service(service);
  Address destination = address_of(to.bytes);
  set_port(&destination, port_of_service(service));
  const Address ib = ib_address_of(to.bytes, service, 0xffff);
  IdRecord found;
  if (!table.find_listener(space, destination, kAnyDevice, &found) &&
      !table.find_listener(space, ib, kAnyDevice, &found))
    return false;
  *slot = found.owner.slot;
  return true;
}

}  // namespace

// wire::ConnectionListener::FindListener of all connection listeners of the process: the most specific
// listener, as for requests of this node.
bool find_listening_slot(const NodeDirectory& directory, const std::string& node, const wire::NetAddress& to,
                         uint64_t service, uint32_t* slot) {
  if (const auto lock = LastTable::lock(); lock.owns_lock()) {
    const IdTable* table = LastTable::of(directory, node);
    return table != nullptr && find_in(*table, to, service, slot);
  }
  IdTable table;
  return table.open(directory, node, /*only_if_there=*/true) == 0 && find_in(table, to, service, slot);
}

[[maybe_unused]] static const bool registered =
    (wire::ConnectionListener::find_listeners_by(find_listening_slot), true);

Peer Service::remote_receiver_of(uint64_t service, const Address& source, const Address& destination) {
  if (roce() != nullptr) return peer_at(gid_of(destination));
  return links_.connect(net_address(destination), net_address(source), service);
}

void Service::nobody_there(const Peer& peer, std::span<const uint8_t> frame) {
  Message message;
  if (decode(frame, &message)) connections_.nobody_answers_for(peer, message);
}

void Service::ConnectionEvents::arrived(const wire::EstablishedConnection& arrived) {
  Guard guard(service);
  service.links_.arrived(arrived);
}

void Service::ConnectionEvents::failed(uint64_t request_id, wire::Refusal refusal) {
  Guard guard(service);
  service.links_.failed(request_id, refusal);
}

}  // namespace verbena::cm
