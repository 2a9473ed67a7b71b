// SPDX-License-Identifier: BSD-2-Clause
//
// The part of the id table that assigns ports and finds listeners. port_rules.h: which ids conflict.
// port_chain.h: how an id takes a port.
#include <errno.h>
#include <fcntl.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>

#include "cm/id_table.h"
#include "cm/id_table_file.h"
#include "cm/port_chain.h"
#include "cm/port_rules.h"
#include "observe/log.h"

namespace verbena::cm {
namespace {

constexpr PortRange kUsualRange{32768, 60999};

PortRange read_range() {
  // Raw system calls: no cancellation point.
  const long fd =
      syscall(SYS_openat, AT_FDCWD, "/proc/sys/net/ipv4/ip_local_port_range", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return kUsualRange;
  char text[64] = {};
  const long got = syscall(SYS_read, fd, text, sizeof text - 1);
  syscall(SYS_close, fd);
  unsigned low, high;
  if (got <= 0 || std::sscanf(text, "%u %u", &low, &high) != 2) return kUsualRange;
  if (low == 0 || low > high || high > 0xffff) return kUsualRange;
  return {static_cast<uint16_t>(low), static_cast<uint16_t>(high)};
}

uint32_t random_number() {
  uint32_t number;
  if (syscall(SYS_getrandom, &number, sizeof number, GRND_NONBLOCK) != sizeof number)
    number = static_cast<uint32_t>(getpid()) * 0x9e3779b1u;
  return number;
}

// The port that an id requests.
struct PortRequest {
  IdHandle id;
  PortSpace space;
  uint16_t port;
  bool chosen;  // by choose_port(), not by the program
  bool reuse;   // the id may share the port
};

int check(const NodeDirectory& directory, const PortRequest& request, const IdFacts& mine,
          const std::vector<Chained>& all) {
  Owner owner;
  for (const Chained& other : all) {
    if (other.index == request.id.index) continue;
    if (bound_space(other.facts) != request.space || port_of(other.facts.local) != request.port) continue;
    if (!living_owner(directory, EntryState::unpack(other.state), &owner)) continue;
    if (request.chosen) {
      if (!may_share_chosen_port(mine, other.facts)) return EADDRNOTAVAIL;
    } else if (const int error = conflict(mine, other.facts, request.reuse); error != 0) {
      return error;
    }
  }
  return 0;
}

// Takes the port for the entry if no conflicting id has it. `facts.local` contains the port. On an error the
// entry has the facts that it had before.
int take(const NodeDirectory& directory, IdTableFile& file, const PortRequest& request,
         const IdFacts& facts) {
  const uint32_t bucket = bucket_of(request.space, request.port);
  std::vector<Chained> all;
  IdEntry& entry = file.ids[request.id.index];
  bool published = false;
  IdFacts before{};
  for (;;) {
    const uint64_t head = walk(file, bucket, &all);
    const int error = check(directory, request, facts, all);
    if (error != 0) {
      if (published) write_facts(entry, before);
      return error;
    }
    if (!published) {
      before = read_facts(entry);
      write_facts(entry, facts);  // a process that finds the entry in the chain reads these
      published = true;
    }
    if (chain_in(file, bucket, request.id.index, head)) return 0;
  }
}

}  // namespace

PortRange ephemeral_ports() {
  static const PortRange range = read_range();
  return range;
}

int IdTable::bind(const IdHandle& id, IdFacts* facts) const {
  uint64_t word;
  if (!live_state(id, &word) || (read_facts(file_->ids[id.index]).flags & kIdBound) != 0) return EINVAL;
  Address local = facts->local;
  PortSpace space;
  if (!select_space(facts->space, &local, &space)) {
    VERBENA_WARN(cm_port_space, "rdma_bind_addr: %s is in no port space of an id of space %s",
                 to_text(facts->local).c_str(), std::string(name_of(facts->space)).c_str());
    return EPROTONOSUPPORT;
  }
  IdFacts wanted = *facts;
  wanted.local = local;
  wanted.flags = static_cast<uint8_t>((facts->flags | kIdBound) & ~kIdListening);
  const bool reuse = (facts->flags & kIdReuse) != 0;
  int error;
  if (port_of(local) != 0) {
    const uint16_t port = port_of(local);
    set_port(&wanted.local, port);
    error = take(*directory_, *file_, {id, space, port, false, reuse}, wanted);
    if (error != 0)
      VERBENA_WARN(cm_port_taken, "rdma_bind_addr: %s port %u, asked for as %s, is taken",
                   std::string(name_of(space)).c_str(), port, to_text(local).c_str());
  } else {
    error = choose_port(id, space, &wanted);
  }
  if (error == 0) *facts = wanted;
  return error;
}

int IdTable::choose_port(const IdHandle& id, PortSpace space, IdFacts* wanted) const {
  const PortRange range = ephemeral_ports();
  const uint32_t count = uint32_t{range.high} - range.low + 1;
  const uint32_t first = random_number() % count;
  for (uint32_t i = 0; i < count; ++i) {
    const auto port = static_cast<uint16_t>(range.low + (first + i) % count);
    // Not the port given last: it may just have been released, and peers may still address its last holder.
    if (port == file_->last_port.load(std::memory_order_relaxed) && count > 1) continue;
    set_port(&wanted->local, port);
    if (take(*directory_, *file_, {id, space, port, true, false}, *wanted) != 0) continue;
    file_->last_port.store(port, std::memory_order_relaxed);
    return 0;
  }
  VERBENA_WARN(cm_no_port_left, "rdma_bind_addr: no %s port of %u to %u is left",
               std::string(name_of(space)).c_str(), range.low, range.high);
  return EADDRNOTAVAIL;
}

void IdTable::unbind(const IdHandle& id, IdFacts* facts) const {
  uint64_t word;
  if (!live_state(id, &word)) return;
  IdEntry& entry = file_->ids[id.index];
  chain_out(*file_, id.index, word);
  entry.bucket.store(0, std::memory_order_seq_cst);
  facts->flags = static_cast<uint8_t>(facts->flags & ~(kIdBound | kIdListening));
  write_facts(entry, *facts);
}

int IdTable::listen(const IdHandle& id, IdFacts* facts, uint32_t backlog) const {
  uint64_t word;
  if (!live_state(id, &word)) return EINVAL;
  IdEntry& entry = file_->ids[id.index];
  const IdFacts before = read_facts(entry);
  if ((before.flags & kIdBound) == 0) return EINVAL;
  IdFacts after = before;
  after.flags = static_cast<uint8_t>((before.flags | kIdListening) & ~kIdReuse);
  entry.backlog.store(backlog, std::memory_order_relaxed);
  if ((before.flags & kIdReuse) != 0) {
    // The port is no longer shared. A process that has seen it shared must check again before it links in:
    // disturb() makes it.
    const PortRequest request{id, bound_space(before), port_of(before.local), false, false};
    IdFacts alone = before;
    alone.flags = static_cast<uint8_t>(before.flags & ~kIdReuse);
    write_facts(entry, alone);
    const uint32_t bucket = bucket_of(request.space, request.port);
    disturb(*file_, bucket);
    std::vector<Chained> all;
    walk(*file_, bucket, &all);
    if (const int error = check(*directory_, request, alone, all); error != 0) {
      write_facts(entry, before);
      VERBENA_WARN(cm_listen_shared,
                   "rdma_listen: %s shares its port, RDMA_OPTION_ID_REUSEADDR ends with listening",
                   to_text(before.local).c_str());
      return error;
    }
  }
  after.state = IdState::kListening;
  write_facts(entry, after);
  facts->flags = after.flags;
  facts->state = after.state;
  return 0;
}

void IdTable::stop_listening(const IdHandle& id, IdFacts* facts) const {
  uint64_t word;
  if (!live_state(id, &word)) return;
  facts->flags = static_cast<uint8_t>(facts->flags & ~kIdListening);
  IdFacts now = read_facts(file_->ids[id.index]);
  now.flags = static_cast<uint8_t>(now.flags & ~kIdListening);
  if (now.state == IdState::kListening) facts->state = now.state = IdState::kAddressBound;
  write_facts(file_->ids[id.index], now);
}

bool IdTable::find_listener(PortSpace space, const Address& destination, uint32_t device,
                            IdRecord* out) const {
  const uint16_t port = port_of(destination);
  std::vector<Chained> all;
  walk(*file_, bucket_of(space, port), &all);
  int best = 0;
  for (const Chained& each : all) {
    if (bound_space(each.facts) != space || port_of(each.facts.local) != port) continue;
    const int rank = listener_rank(each.facts, destination, device);
    const EntryState state = EntryState::unpack(each.state);
    Owner owner;
    if (rank <= best || !living_owner(*directory_, state, &owner)) continue;
    best = rank;
    *out = {{each.index, state.use},
            owner,
            each.facts,
            file_->ids[each.index].backlog.load(std::memory_order_relaxed)};
  }
  return best != 0;
}

}  // namespace verbena::cm
