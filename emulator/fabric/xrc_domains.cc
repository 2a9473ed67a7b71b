// SPDX-License-Identifier: BSD-2-Clause
#include "fabric/xrc_domains.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <mutex>

#include "fabric/node_directory.h"

namespace verbena {
namespace {

std::mutex own_threads;  // record locks are the process's: they keep other processes out, not other threads

// A record lock of fcntl(2): unlike flock(2)'s, a forked child does not inherit it.
class TableLock {
 public:
  explicit TableLock(const std::string& node) : threads_(own_threads) {
    fd_ = open((node + "/xrc.lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd_ < 0) {
      error_ = errno;
      return;
    }
    struct flock whole {};
    whole.l_type = F_WRLCK;
    whole.l_whence = SEEK_SET;
    while (fcntl(fd_, F_SETLKW, &whole) != 0 && (error_ = errno) == EINTR) {
    }
    if (error_ == EINTR) error_ = 0;
  }
  TableLock(const TableLock&) = delete;
  TableLock& operator=(const TableLock&) = delete;
  ~TableLock() {
    if (fd_ >= 0) close(fd_);
  }
  int error() const { return error_; }

 private:
  std::lock_guard<std::mutex> threads_;
  int fd_ = -1;
  int error_ = 0;
};

bool in_use(const NodeDirectory& directory, const XrcOpening& entry) {
  const uint64_t holder = entry.holder.load(std::memory_order_acquire);
  const auto slot = static_cast<uint32_t>(holder >> 32) - 1;
  return holder != 0 && slot < kMaxSlots && directory.alive(slot, static_cast<uint32_t>(holder));
}

}  // namespace

int open_xrc_domain(const NodeDirectory& directory, const std::string& node, uint32_t slot,
                    uint32_t generation, uint32_t device, int fd, int flags, uint32_t* entry,
                    uint32_t* number) {
  struct stat file {};
  if (fd != -1 && fstat(fd, &file) != 0) return errno;
  const TableLock lock(node);
  if (lock.error() != 0) return lock.error();
  uint32_t free = kMaxXrcOpenings;
  uint32_t found = 0;
  for (uint32_t i = 0; i < kMaxXrcOpenings; ++i) {
    const XrcOpening& opening = directory.xrc_opening(i);
    if (!in_use(directory, opening)) {
      if (free == kMaxXrcOpenings) free = i;
    } else if (fd != -1 && opening.file_inode == file.st_ino && opening.file_device == file.st_dev &&
               opening.device == device) {
      found = opening.number;
    }
  }
  if (fd != -1 && found == 0 && (flags & O_CREAT) == 0) return EAGAIN;
  if (found != 0 && (flags & O_EXCL) != 0) return EINVAL;
  if (free == kMaxXrcOpenings) return ENOMEM;
  while (found == 0) found = directory.header().next_xrcd.fetch_add(1, std::memory_order_relaxed) + 1;
  XrcOpening& opening = directory.xrc_opening(free);
  opening.holder.store(0, std::memory_order_relaxed);
  opening.file_device = fd != -1 ? file.st_dev : 0;
  opening.file_inode = fd != -1 ? file.st_ino : 0;
  opening.device = device;
  opening.number = found;
  opening.holder.store((uint64_t{slot} + 1) << 32 | generation, std::memory_order_release);
  *entry = free;
  *number = found;
  return 0;
}

void close_xrc_domain(const NodeDirectory& directory, uint32_t entry) {
  directory.xrc_opening(entry).holder.store(0, std::memory_order_release);
}

}  // namespace verbena
