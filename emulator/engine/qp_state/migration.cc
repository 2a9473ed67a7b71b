// SPDX-License-Identifier: BSD-2-Clause
#include "engine/qp_state/migration.h"

#include <utility>

#include "engine/objects/fast_path_state.h"
#include "engine/objects/process.h"
#include "engine/objects/qp.h"
#include "engine/objects/requester_context.h"
#include "fabric/hazard_guard.h"
#include "observe/log.h"

namespace verbena {
namespace {

QpPath path_of(const SharedQp& qp) { return QpPath::unpack(qp.path.load(std::memory_order_seq_cst)); }

bool change(SharedQp& qp, const QpPath& from, const QpPath& to) {
  uint64_t expected = from.pack();
  return qp.path.compare_exchange_strong(expected, to.pack(), std::memory_order_seq_cst);
}

QpPath armed(QpPath path) {
  path.migration = IBV_MIG_ARMED;
  return path;
}

QpPath migrated(QpPath path) {
  std::swap(path.pkey, path.other_pkey);
  std::swap(path.port, path.other_port);
  path.migration = IBV_MIG_MIGRATED;
  return path;
}

// The peer, if it is the queue pair that this one is connected to, and is connected to this one.
SharedQp* find_peer(const Qp& qp) {
  const PeerPath& path = qp.requester.path;
  if (!path.adapter || path.qp == nullptr || !path.adapter->alive(qp.process->directory())) return nullptr;
  SharedQp& there = *path.qp;
  const bool same = there.in_use.load(std::memory_order_acquire) != 0 &&
                    there.incarnation == path.incarnation && there.dest_qpn == qp.shared->qpn;
  return same ? &there : nullptr;
}

// The peer follows, if its alternate path is the one that was taken here.
void take_peer_along(const Qp& qp) {
  const PeerPath& path = qp.requester.path;
  if (!path.adapter) return;
  const HazardGuard guard(qp.process->hazards(), path.adapter->slot());
  SharedQp* const there = find_peer(qp);
  if (there == nullptr) return;
  for (QpPath seen = path_of(*there); seen.migration == IBV_MIG_ARMED; seen = path_of(*there)) {
    const bool leads_there = seen.other_port == path.port;
    if (leads_there && !change(*there, seen, migrated(seen))) continue;
    there->pending_flags.fetch_or(leads_there ? kPendingMigrated : kPendingMigrationError,
                                  std::memory_order_acq_rel);
    path.adapter->report(*there);
    return;
  }
}

}  // namespace

void arm_migration(Qp& qp) {
  const PeerPath& path = qp.requester.path;
  if (!path.adapter) return;
  const HazardGuard guard(qp.process->hazards(), path.adapter->slot());
  SharedQp* const there = find_peer(qp);
  if (there == nullptr || path_of(*there).migration == IBV_MIG_MIGRATED) return;
  // This end first: an armed peer never finds this end in REARM.
  const QpPath own = path_of(*qp.shared);
  if (own.migration != IBV_MIG_REARM || !change(*qp.shared, own, armed(own))) return;
  for (QpPath seen = path_of(*there); seen.migration != IBV_MIG_ARMED; seen = path_of(*there)) {
    if (seen.migration == IBV_MIG_REARM && change(*there, seen, armed(seen))) return;
    if (seen.migration == IBV_MIG_MIGRATED) {  // its program has thought better of it
      change(*qp.shared, armed(own), own);
      return;
    }
  }
}

void follow_migration(Qp& qp) {
  ibv_qp_attr& attr = qp.attr;
  std::swap(attr.ah_attr, attr.alt_ah_attr);
  std::swap(attr.port_num, attr.alt_port_num);
  std::swap(attr.pkey_index, attr.alt_pkey_index);
  std::swap(attr.timeout, attr.alt_timeout);
  PeerPath& path = qp.requester.path;
  std::swap(path.ports, path.other_ports);
  std::swap(path.port, path.other_port);
  path.responder_state = 0;
  qp.fast = {};
  VERBENA_INFO("QP 0x%06x: migrated to its alternate path, port %u", qp.shared->qpn, attr.port_num);
}

bool migrate(Qp& qp) {
  QpPath own;
  do {
    own = path_of(*qp.shared);
    if (own.migration != IBV_MIG_ARMED) return false;
  } while (!change(*qp.shared, own, migrated(own)));
  follow_migration(qp);
  take_peer_along(qp);
  return true;
}

}  // namespace verbena
