// SPDX-License-Identifier: BSD-2-Clause
//
// File locks with a time limit, because a holder may be stopped; the kernel releases those of a dead process.
//
// - The lock of the folder of nodes (flock(2) on the folder): a node gets or loses its name.
// - The lock of a node (flock(2) on its directory file): shared by each member, and by each process that is
//   about to become one or a holder; exclusive while the node is judged unused and retired. So a process that
//   has the shared lock and sees a node that is not retired is on a node that stays.
// - The locks of tables of a node (fcntl(2), F_OFD_SETLK, a byte each of its directory file).
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "fabric/descriptor.h"

namespace verbena {

class NodeDirectory;

inline constexpr std::chrono::milliseconds kLockPatience{10'000};

// flock(2): LOCK_SH or LOCK_EX. 0; ETIMEDOUT; or the errno of flock(2). Tries once if `patience` is 0.
int flock_within(int fd, int operation, std::chrono::milliseconds patience);

// Locks the folder for this object's life.
class FolderLock {
 public:
  FolderLock(const std::string& folder, std::chrono::milliseconds patience);
  int error() const { return error_; }

 private:
  Descriptor folder_;
  int error_ = 0;
};

enum class NodeTable : uint8_t { kEvents = 0, kXrc = 1 };

// Locks a table for this object's life, against other processes and other threads.
class TableLock {
 public:
  TableLock(const NodeDirectory& directory, NodeTable table, std::chrono::milliseconds patience);
  TableLock(const TableLock&) = delete;
  TableLock& operator=(const TableLock&) = delete;
  ~TableLock();
  int error() const { return error_; }  // ETIMEDOUT; EMFILE, ENFILE: no descriptor

 private:
  Descriptor file_;
  int error_ = 0;
};

}  // namespace verbena
