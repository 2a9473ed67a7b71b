// SPDX-License-Identifier: BSD-2-Clause
#include "fabric/node_lock.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <time.h>

#include "fabric/fork_descriptors.h"
#include "fabric/node_directory.h"

namespace verbena {
namespace {

using Clock = std::chrono::steady_clock;

// Calls `attempt`, which returns 0 or -1 with errno, until it succeeds.
template <typename Attempt>
int within(std::chrono::milliseconds patience, Attempt&& attempt) {
  const auto deadline = Clock::now() + patience;
  while (attempt() != 0) {
    if (errno != EWOULDBLOCK && errno != EACCES && errno != EINTR) return errno;
    if (errno != EINTR && Clock::now() >= deadline) return ETIMEDOUT;
    const timespec moment{0, 1'000'000};
    nanosleep(&moment, nullptr);
  }
  return 0;
}

}  // namespace

int flock_within(int fd, int operation, std::chrono::milliseconds patience) {
  return within(patience, [&] { return flock(fd, operation | LOCK_NB); });
}

FolderLock::FolderLock(const std::string& folder, std::chrono::milliseconds patience)
    : folder_(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)) {
  error_ = folder_.fd < 0 ? errno : flock_within(folder_.fd, LOCK_EX, patience);
}

TableLock::TableLock(const NodeDirectory& directory, NodeTable table, std::chrono::milliseconds patience)
    : file_(directory.reopen()) {
  if (file_.fd < 0) {
    error_ = errno;
    return;
  }
  // A forked child would share the lock.
  keep_from_children(file_.fd);
  struct flock byte {};
  byte.l_type = F_WRLCK;
  byte.l_whence = SEEK_SET;
  byte.l_start = static_cast<off_t>(table);
  byte.l_len = 1;
  error_ = within(patience, [&] { return fcntl(file_.fd, F_OFD_SETLK, &byte); });
}

TableLock::~TableLock() {
  if (file_.fd >= 0) no_longer_keep(file_.fd);
}

}  // namespace verbena
