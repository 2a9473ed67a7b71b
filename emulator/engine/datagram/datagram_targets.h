// SPDX-License-Identifier: BSD-2-Clause
//
// The destinations of a UD queue pair: the queue pairs of addresses and numbers, and the members of groups.
// The memory of the table is reserved when the queue pair is created, and becomes resident with use. Only
// looking up a group whose members have changed allocates memory when a message is posted.
//
// Under send_lock of the sender.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <bitset>
#include <cstddef>
#include <memory>
#include <vector>

#include "adapter/completion_ring.h"
#include "adapter/shared_receive_ring.h"
#include "engine/objects/process.h"
#include "fabric/multicast_table.h"
#include "fabric/peer_adapter.h"

namespace verbena {

// A queue pair that datagrams go to, and everything of it that a delivery touches.
struct Destination {
  std::shared_ptr<PeerAdapter> adapter;  // nullptr: not found (yet)
  SharedQp* qp = nullptr;
  ibv_qp_type type = IBV_QPT_UD;  // that the queue pair must have
  uint8_t port = 0;               // of its device, that the address leads to; 0: any, of a group's member
  uint32_t index = 0;
  uint32_t incarnation = 0;
  uint64_t generation = 0;  // of its responder state, when the rest was last checked; 0: never
  SharedReceiveRing receives;
  CompletionRing completions;
  std::atomic<uint64_t> known_head{0};
  SharedCq* completion_queue = nullptr;
  int64_t ask_again_at = 0;     // ns: its process has not answered, and is not asked before
  bool has_been_ready = false;  // once, as this sender saw it
  uint8_t event_due = 0;        // 1: an entry was appended; 2: one that counts as solicited
  // Nothing of the positions before this one lies in receive slots any more (settle()).
  uint64_t settled_until = 0;
  uint32_t settled_generation = 0;  // CompletionRing::generation of that
  // The receiver did not scatter in time what came before a message: the next message does not wait.
  bool waited_in_vain = false;
  uint64_t waited_in_vain_at = 0;

  uint32_t room_in_entry() const { return completions.inline_size() - uint32_t{sizeof(DatagramSource)}; }
};

bool port_down(const NodeDirectory& directory, uint32_t device, uint32_t port);

// Is it still the same queue pair, and ready to receive datagrams? Looks everything up again when its
// responder state shows another generation. The caller holds a hazard guard.
bool is_ready(Destination& to, const NodeDirectory& directory);

// Finds the queue pair in the process that has it. False: it is not there any more, or cannot be reached.
bool find_destination(Process& process, const MulticastMember& qp, Destination* out);

class DatagramTargets {
 public:
  DatagramTargets();  // throws std::bad_alloc
  ~DatagramTargets();
  DatagramTargets(const DatagramTargets&) = delete;
  DatagramTargets& operator=(const DatagramTargets&) = delete;

  // The destination with this address and number; added if it is new.
  Destination& destination(const ibv_ah_attr& address, uint32_t qpn);

  // Finds again which process has the number, and whether the address leads there. False: none has, or it
  // cannot be reached.
  static bool resolve(Process& process, const ibv_ah_attr& address, uint32_t qpn, Destination* to);

  struct Member {
    MulticastTable::Found found;
    std::unique_ptr<Destination> destination;
  };
  // The members of a group that can be reached, as the node's table has them now. Throws std::bad_alloc.
  std::vector<Member>& members(Process& process, const MulticastGid& gid);

 private:
  struct Key {
    uint64_t gid[2];  // without a GRH: the LID
    uint32_t qpn;
    uint32_t global;
    bool operator==(const Key& other) const = default;
    size_t set() const;
  };
  struct Place {
    Key key;
    bool used;
    alignas(Destination) std::byte bytes[sizeof(Destination)];
    Destination& destination() { return *std::launder(reinterpret_cast<Destination*>(bytes)); }
  };
  struct Group {
    MulticastGid gid{};
    bool known = false;
    uint64_t version = 0;       // of the table when the members were looked up
    int64_t look_again_at = 0;  // ns: the process of some member has not answered
    std::vector<Member> members;
  };
  static constexpr size_t kSets = 256, kWays = 4;
  static constexpr size_t kGroups = 16;

  static Key key_of(const ibv_ah_attr& address, uint32_t qpn);

  Place* places_;                   // kSets * kWays, as calloc(3) gives them
  std::bitset<kSets> sets_in_use_;  // the others' memory has not been touched
  Place* last_ = nullptr;           // the last destination
  uint32_t next_way_ = 0;           // replaced by the next new destination
  std::array<Group, kGroups> groups_;
  uint32_t next_group_ = 0;
};

}  // namespace verbena
