// SPDX-License-Identifier: BSD-2-Clause
#include "fabric/xrc_domains.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>

#include "fabric/node_directory.h"
#include "fabric/node_lock.h"

namespace verbena {
namespace {

bool in_use(const NodeDirectory& directory, const XrcDomainHandle& entry) {
  const uint64_t holder = entry.holder.load(std::memory_order_acquire);
  const auto slot = static_cast<uint32_t>(holder >> 32) - 1;
  return holder != 0 && slot < kMaxSlots && directory.alive(slot, static_cast<uint32_t>(holder));
}

}  // namespace

int open_xrc_domain(const NodeDirectory& directory, uint32_t slot, uint32_t generation, uint32_t device,
                    int fd, int flags, uint32_t* entry, uint32_t* number) {
  struct stat file {};
  if (fd != -1 && fstat(fd, &file) != 0) return errno;
  const TableLock lock(directory, NodeTable::kXrc, kLockPatience);
  if (lock.error() != 0) return lock.error();
  std::atomic<uint32_t>& ever_used = directory.header().xrc_domains_used;  // changed with the lock only
  const uint32_t used = std::min(ever_used.load(std::memory_order_relaxed), kMaxXrcDomainHandles);
  uint32_t free = kMaxXrcDomainHandles;
  uint32_t found = 0;
  // Those used so far, and beyond them until one is free: the next one, unless the word is damaged.
  for (uint32_t i = 0; i < kMaxXrcDomainHandles && (i < used || free == kMaxXrcDomainHandles); ++i) {
    const XrcDomainHandle& handle = directory.xrc_domain_handle(i);
    if (!in_use(directory, handle)) {
      free = std::min(free, i);
    } else if (fd != -1 && handle.file_inode == file.st_ino && handle.file_device == file.st_dev &&
               handle.device == device) {
      found = handle.number;
    }
  }
  if (fd != -1 && found == 0 && (flags & O_CREAT) == 0) return EAGAIN;
  if (found != 0 && (flags & O_EXCL) != 0) return EINVAL;
  if (free == kMaxXrcDomainHandles) return ENOMEM;
  if (free >= used) ever_used.store(free + 1, std::memory_order_release);
  while (found == 0) found = directory.header().next_xrcd.fetch_add(1, std::memory_order_relaxed) + 1;
  XrcDomainHandle& handle = directory.xrc_domain_handle(free);
  handle.holder.store(0, std::memory_order_relaxed);
  handle.file_device = fd != -1 ? file.st_dev : 0;
  handle.file_inode = fd != -1 ? file.st_ino : 0;
  handle.device = device;
  handle.number = found;
  handle.holder.store((uint64_t{slot} + 1) << 32 | generation, std::memory_order_release);
  *entry = free;
  *number = found;
  return 0;
}

void close_xrc_domain(const NodeDirectory& directory, uint32_t entry) {
  directory.xrc_domain_handle(entry).holder.store(0, std::memory_order_release);
}

int open_xrc_qp(const NodeDirectory& directory, uint32_t slot, uint32_t generation, const QpnEntry& qp,
                uint32_t* entry) {
  const TableLock lock(directory, NodeTable::kXrc, kLockPatience);
  if (lock.error() != 0) return lock.error();
  QpnEntry now;
  if (!directory.find_qpn(qp.qpn, &now) || now.slot != qp.slot || now.qp_index != qp.qp_index) return EINVAL;
  for (uint32_t i = 0; i < kMaxXrcQpHandles; ++i) {
    XrcDomainHandle& handle = directory.xrc_domain_handle(kMaxXrcDomainHandles + i);
    if (in_use(directory, handle)) continue;
    handle.holder.store(0, std::memory_order_relaxed);
    handle.file_device = handle.file_inode = 0;
    handle.number = qp.qpn;
    handle.holder.store((uint64_t{slot} + 1) << 32 | generation, std::memory_order_release);
    std::atomic<uint32_t>& used = directory.header().xrc_qps_used;  // changed with the lock only
    if (used.load(std::memory_order_relaxed) <= i) used.store(i + 1, std::memory_order_release);
    *entry = kMaxXrcDomainHandles + i;
    return 0;
  }
  return ENOMEM;
}

void for_each_holder(const NodeDirectory& directory, uint32_t qpn,
                     const std::function<void(uint32_t slot, uint32_t generation)>& guard) {
  const uint32_t end =
      std::min(directory.header().xrc_qps_used.load(std::memory_order_acquire), kMaxXrcQpHandles);
  for (uint32_t i = 0; i < end; ++i) {
    const XrcDomainHandle& handle = directory.xrc_domain_handle(kMaxXrcDomainHandles + i);
    const uint64_t holder = handle.holder.load(std::memory_order_acquire);
    if (holder != 0 && handle.number == qpn && in_use(directory, handle))
      guard(static_cast<uint32_t>(holder >> 32) - 1, static_cast<uint32_t>(holder));
  }
}

bool end_xrc_qp(const NodeDirectory& directory, uint32_t slot, uint32_t qpn, bool wait) {
  bool held = false;
  const auto look = [&] { for_each_holder(directory, qpn, [&](uint32_t, uint32_t) { held = true; }); };
  look();
  if (held) return false;
  const TableLock lock(directory, NodeTable::kXrc, wait ? kLockPatience : std::chrono::milliseconds(0));
  if (lock.error() != 0 && !wait) return false;
  look();
  if (!held) directory.release_qpn(qpn, slot);
  return !held;
}

}  // namespace verbena
