// SPDX-License-Identifier: BSD-2-Clause
//
// All living ids of the node, their ports, and the multicast groups that they have joined: one table in
// shared memory. Ports therefore belong to the node, requests find their listener, and `verbena status` can
// show everything.
//
// The table is a file of its own in the node's folder (id_table_file.h), created by the first process that
// needs it: nodes whose programs never use rdma_cm pay nothing for it, and fabric does not depend on it.
//
// Only its owner writes an entry; others read it. An owner that has died has no entries from that instant on,
// for any function here (NodeDirectory::alive). sweep() in any process frees them. No function waits for
// another process: SIGKILL or SIGSTOP between any two instructions blocks no process.
//
// Calls for one id are made one at a time. All other calls may be made from any thread of any process.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "cm/addresses.h"
#include "cm/cm.h"
#include "fabric/kept_descriptor.h"
#include "fabric/node_directory.h"

namespace verbena::cm {

struct IdTableFile;

inline constexpr uint32_t kMaxNodeIds = 32768;
inline constexpr uint32_t kMaxNodeGroups = 8192;  // joined: ids times groups
inline constexpr uint16_t kNoPeer = 0xffff;

// For display: the state of the id (enum rdma_cm_state of Linux' cma_priv.h).
enum class IdState : uint8_t {
  kIdle,
  kAddressBound,
  kAddressQuery,
  kAddressResolved,
  kRouteQuery,
  kRouteResolved,
  kConnecting,  // request sent, or received and not replied to
  kConnected,
  kDisconnected,
  kListening,
  kTimeWait,
  kGone,  // its device
};

enum IdFlags : uint8_t {
  kIdReuse = 1,  // RDMA_OPTION_ID_REUSEADDR; listening ends it
  // RDMA_OPTION_ID_AFONLY, as in cma.c: for IPv4 always set, unless the program has cleared it.
  kIdFamilyOnly =
      2,
  kIdListening = 4,  // set and cleared by listen() and stop_listening()
  kIdBound = 8,      // has its port: set and cleared by bind() and unbind()
  kIdOnPort2 = 16,   // of the device
};

// The published facts of an id. The owner publishes them as a whole, and a reader sees them as a whole.
struct IdFacts {
  Address local, remote;
  uint32_t number;  // of the id in its owner's process
  uint32_t qpn;     // 0: none
  PortSpace space;  // as created
  uint8_t qp_type;  // enum ibv_qp_type
  IdState state;
  uint8_t flags;   // IdFlags
  uint8_t device;  // index in the device table; kNoDevice
  uint16_t peer;   // slot of the process at the other end; kNoPeer
};
inline constexpr uint8_t kNoDevice = 0xff;
static_assert(sizeof(IdFacts) == 112);

// The calling process: the slot and generation of its node membership.
struct Owner {
  uint32_t slot;
  uint32_t generation;
  friend bool operator==(const Owner&, const Owner&) = default;
};

// An entry in one of its uses. `use` 0: none.
struct IdHandle {
  uint32_t index = 0;
  uint32_t use = 0;
  bool none() const { return use == 0; }
  friend bool operator==(const IdHandle&, const IdHandle&) = default;
};

struct IdRecord {
  IdHandle handle;
  Owner owner;
  IdFacts facts;
  uint32_t backlog;
};

struct GroupRecord {
  Owner owner;
  IdHandle id;
  Gid mgid;
  bool send_only;
};

class IdTable {
 public:
  IdTable() = default;
  IdTable(const IdTable&) = delete;
  IdTable& operator=(const IdTable&) = delete;
  ~IdTable();

  // Maps the table of the node, and creates it if there is none. `directory` must outlive the object. EPROTO:
  // created by another version; or an error of the file system. ENOENT with `only_if_there`: no process of
  // the node has used rdma_cm.
  int open(const NodeDirectory& directory, const std::string& node, bool only_if_there = false);
  bool is_open() const { return file_ != nullptr; }

  // ---- ids ----

  // A new entry. `facts.flags`: without kIdBound and kIdListening. ENOMEM: kMaxNodeIds entries exist.
  int add(const Owner& owner, const IdFacts& facts, IdHandle* out) const;
  // Port and groups are released on return.
  void remove(const IdHandle& id) const;
  // Replaces the facts. The local port and family of a bound id stay. The table keeps the flags kIdBound and
  // kIdListening; those of `facts` are ignored.
  void publish(const IdHandle& id, const IdFacts& facts) const;
  bool read(const IdHandle& id, IdRecord* out) const;  // false: the id is gone

  // ---- ports ----

  // Gives the id the local address `facts->local`, in the port space that belongs to the address
  // (select_space). Port 0: a free port of ephemeral_ports(), chosen at random. The rules are those of cma.c:
  // cma_get_port, cma_use_port and cma_check_port, cma_alloc_any_port and cma_port_is_unique. (For the last
  // one facts->remote counts: ids to different destinations may share a chosen port.) On success publishes
  // `*facts`, completed with port, sid and kIdBound. Ports below 1024 need no privilege. The caller checks
  // whether the machine has the address; here addresses only matter for conflicts.
  // - EADDRINUSE: that host and port are taken.
  // - EADDRNOTAVAIL: taken through a wildcard (or loopback, which cma.c treats as one), or no port is left.
  // - EPROTONOSUPPORT: no such space.
  // - EINVAL: bound already.
  int bind(const IdHandle& id, IdFacts* facts) const;
  void unbind(const IdHandle& id, IdFacts* facts) const;  // bound or not

  // A bound id begins to take requests. An id with kIdReuse must have the port for itself from here on
  // (cma_bind_listen), and loses that flag: EADDRINUSE, EADDRNOTAVAIL as bind(). EINVAL: not bound.
  int listen(const IdHandle& id, IdFacts* facts, uint32_t backlog) const;
  void stop_listening(const IdHandle& id, IdFacts* facts) const;  // keeps the port

  // Finds the most specific listener for a request to (space, destination with its port) that arrives on
  // `device`. In this order: that host; loopback or a wildcard of the family; a wildcard of the other family
  // without kIdFamilyOnly (cma_match_private_data). AF_IB destinations are matched by service id alone if the
  // listener has no host. False: there is none.
  bool find_listener(PortSpace space, const Address& destination, uint32_t device, IdRecord* out) const;

  // ---- groups (for `verbena status`) ----
  int join(const IdHandle& id, const Gid& mgid, bool send_only) const;  // ENOMEM: kMaxNodeGroups
  void leave(const IdHandle& id, const Gid& mgid) const;

  // ---- all entries of the node ----
  void for_each_id(const std::function<void(const IdRecord&)>& callback) const;
  void for_each_group(const std::function<void(const GroupRecord&)>& callback) const;

  // Frees the entries of owners that have died. Cheap when there are none. Any process, any time.
  void sweep() const;

 private:
  bool live_state(const IdHandle& id, uint64_t* word) const;
  int choose_port(const IdHandle& id, PortSpace space, IdFacts* wanted) const;
  void leave_all(const IdHandle& id) const;
  template <typename Callback>
  void for_each_group_entry(Callback&& callback) const;

  const NodeDirectory* directory_ = nullptr;
  IdTableFile* file_ = nullptr;
  KeptDescriptor kept_;  // of the file
};

// The machine's range of ports to choose from (/proc/sys/net/ipv4/ip_local_port_range), both ends included;
// read once per process. 32768 to 60999 if it cannot be read.
struct PortRange {
  uint16_t low, high;
};
PortRange ephemeral_ports();

std::string_view name_of(IdState state);  // "idle", "listening", ...

}  // namespace verbena::cm
