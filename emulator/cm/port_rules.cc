// SPDX-License-Identifier: BSD-2-Clause
#include "cm/port_rules.h"

#include <endian.h>
#include <errno.h>

namespace verbena::cm {

PortSpace bound_space(const IdFacts& id) {
  return id.local.family() == kFamilyIb ? space_of_service(be64toh(id.local.ib().sid)) : id.space;
}

int conflict(const IdFacts& mine, const IdFacts& other, bool reuse) {
  if (reuse && (other.flags & kIdReuse) != 0 && (other.flags & kIdListening) == 0) return 0;
  const bool each_its_family = (mine.flags & other.flags & kIdFamilyOnly) != 0;
  if (each_its_family && mine.local.family() != other.local.family()) return 0;
  if (is_any(mine.local) || is_any(other.local)) return EADDRNOTAVAIL;
  return same_host(mine.local, other.local) ? EADDRINUSE : 0;
}

bool may_share_chosen_port(const IdFacts& mine, const IdFacts& other) {
  const uint16_t other_port = port_of(other.remote);
  if (other_port != 0 && other_port != port_of(mine.remote)) return true;
  if (!is_any(mine.local) && !is_any(other.local) && !same_host(mine.local, other.local)) return true;
  return !is_any(other.remote) && !same_host(mine.remote, other.remote);
}

int listener_rank(const IdFacts& listener, const Address& destination, uint32_t device) {
  if ((listener.flags & kIdListening) == 0) return 0;
  if (device != kAnyDevice && listener.device != kNoDevice && listener.device != device) return 0;
  const Address& local = listener.local;
  const bool same_family = local.family() == destination.family();
  if (!is_any(local)) return gid_of(local) == gid_of(destination) ? 3 : 0;
  if (same_family) return 2;
  // An AF_IB listener takes every request for its service id.
  return local.family() == kFamilyIb || (listener.flags & kIdFamilyOnly) == 0 ? 1 : 0;
}

}  // namespace verbena::cm
