// SPDX-License-Identifier: BSD-2-Clause
//
// XRC domains of the node (ibv_open_xrcd(3)) and the processes that have them open. A domain that belongs to
// a file is the same one for every process that opens that file (by device and inode number) on the same
// device. It exists while a process has it open. The table lies in the node directory. An entry is one
// handle, and counts only while the process that wrote it is alive. A lock (node_lock.h) makes finding and
// creating one step.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>

namespace verbena {

class NodeDirectory;
struct QpnEntry;

inline constexpr uint32_t kMaxXrcDomainHandles = 16384;    // of domains, on a node
inline constexpr uint32_t kMaxXrcQpHandles = 16384;  // of queue pairs; their entries follow
inline constexpr uint32_t kXrcEntries = kMaxXrcDomainHandles + kMaxXrcQpHandles;

struct alignas(64) XrcDomainHandle {
  std::atomic<uint64_t> holder;  // slot + 1 (high half), slot generation; 0: the entry is free. Written last
  uint64_t file_device;          // st_dev and st_ino of the file; both 0: a domain without a file
  uint64_t file_inode;
  uint32_t device;  // index in the device table
  uint32_t number;  // of the domain on this node, never 0; for a handle of a queue pair, the QPN
};
static_assert(sizeof(XrcDomainHandle) == 64);

// Opens a domain for the process that holds `slot`. `fd` -1: a new domain, without a file. `flags`: O_CREAT
// and O_EXCL as in ibv_open_xrcd(3). *entry is the argument for close_xrc_domain(). The errno values are the
// kernel's (uverbs_cmd.c, ib_uverbs_open_xrcd):
// - EBADF: no such descriptor.
// - EAGAIN: the file has no domain, and O_CREAT is not set.
// - EINVAL: the file has a domain, and O_EXCL is set.
// - ENOMEM: the table is full.
// - ETIMEDOUT: another process has held the table's lock for 10 seconds.
int open_xrc_domain(const NodeDirectory& directory, uint32_t slot, uint32_t generation, uint32_t device,
                    int fd, int flags, uint32_t* entry, uint32_t* number);
void close_xrc_domain(const NodeDirectory& directory, uint32_t entry);

// ---- XRC_RECV queue pairs that a process holds open which has not made them (ibv_open_qp(3)) ----

// EINVAL: `qp` does not own its number any more; ENOMEM: the table is full. close_xrc_domain() gives *entry
// back.
int open_xrc_qp(const NodeDirectory& directory, uint32_t slot, uint32_t generation, const QpnEntry& qp,
                uint32_t* entry);

// Called when the owner in `slot` has given up its handle. False: other processes hold the queue pair, or
// (without `wait`) the table is busy. True: no process holds it, and none can find its number again.
bool end_xrc_qp(const NodeDirectory& directory, uint32_t slot, uint32_t qpn, bool wait);

// Calls callback(slot, generation) for each living process that holds the queue pair and is not its owner.
void for_each_holder(const NodeDirectory& directory, uint32_t qpn,
                     const std::function<void(uint32_t slot, uint32_t generation)>& guard);

}  // namespace verbena
