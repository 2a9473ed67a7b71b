// SPDX-License-Identifier: BSD-2-Clause
//
// XRC domains of the node (ibv_open_xrcd(3)): who has which one open. A domain that belongs to a file is the
// same one for every process that opens that file (by device and inode number) on the same device; it lives
// as long as somebody has it open. The table lies in the node directory; an entry is one opening, and counts
// only while the process that wrote it lives. A file lock makes finding and making one step: the kernel gives
// it up for whoever dies.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>

namespace verbena {

class NodeDirectory;
struct QpnEntry;

inline constexpr uint32_t kMaxXrcDomainHandles = 16384;    // of domains, on a node
inline constexpr uint32_t kMaxXrcQpHandles = 16384;  // of queue pairs; their entries follow
inline constexpr uint32_t kXrcEntries = kMaxXrcDomainHandles + kMaxXrcQpHandles;

struct alignas(64) XrcDomainHandle {
  std::atomic<uint64_t> holder;  // slot + 1 (high half), slot generation; 0: the entry is free. Written last
  uint64_t file_device;          // st_dev and st_ino of the file; both 0: the domain has none
  uint64_t file_inode;
  uint32_t device;  // index in the device table
  uint32_t number;  // of the domain on this node, never 0; of a queue pair's opening its QPN
};
static_assert(sizeof(XrcDomainHandle) == 64);

// Opens a domain for the process that holds `slot`. `fd` -1: a new one, without a file. `flags`: O_CREAT and
// O_EXCL as ibv_open_xrcd(3); with the kernel's errno values (uverbs_cmd.c, ib_uverbs_open_xrcd): EBADF: no
// such descriptor; EAGAIN: the file has no domain, and O_CREAT is not set; EINVAL: it has one, and O_EXCL is
// set; ENOMEM: the table is full. *entry is what close_xrc_domain takes.
int open_xrc_domain(const NodeDirectory& directory, const std::string& node, uint32_t slot,
                    uint32_t generation, uint32_t device, int fd, int flags, uint32_t* entry,
                    uint32_t* number);
void close_xrc_domain(const NodeDirectory& directory, uint32_t entry);

// ---- XRC_RECV queue pairs that a process holds open which has not made them (ibv_open_qp(3)) ----

// EINVAL: `qp` is not the owner of its number any more; ENOMEM: the table is full. close_xrc_domain() gives
// *entry back.
int open_xrc_qp(const NodeDirectory& directory, const std::string& node, uint32_t slot, uint32_t generation,
                const QpnEntry& qp, uint32_t* entry);

// Its maker in `slot` does not hold it any more: false: others do, or (not with `wait`) the table is busy.
// True: nobody does, and nobody finds its number again.
bool end_xrc_qp(const NodeDirectory& directory, const std::string& node, uint32_t slot, uint32_t qpn,
                bool wait);

// Calls visit(slot, generation) for each living process that holds it and has not made it.
void for_each_holder(const NodeDirectory& directory, uint32_t qpn,
                     const std::function<void(uint32_t slot, uint32_t generation)>& guard);

}  // namespace verbena
