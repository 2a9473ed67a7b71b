// SPDX-License-Identifier: BSD-2-Clause
//
// Another process's adapter as this process sees it: its mapped segment, the way to its memory, and the FIFOs
// that wake it. One object per (slot, generation) and process, shared by all QPs that lead there; the
// process's own adapter is one as well (a QP may be connected to itself).
#pragma once

#include <sys/uio.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "adapter/segment.h"
#include "adapter/spin_lock.h"
#include "fabric/fifo.h"
#include "fabric/node_membership.h"

namespace verbena {

struct PassedSegment;

class PeerAdapter {
 public:
  PeerAdapter(uint32_t slot, uint32_t generation) : slot_(slot), generation_(generation) {}
  ~PeerAdapter();
  PeerAdapter(const PeerAdapter&) = delete;
  PeerAdapter& operator=(const PeerAdapter&) = delete;

  // Maps the segment that was handed over, and takes the descriptors in any case. errno values as PeerSegment::map.
  int attach(const NodeMembership& membership, const PassedSegment& given);
  // The process's own adapter.
  void attach_self(NodeMembership& membership);

  uint32_t slot() const { return slot_; }
  uint32_t generation() const { return generation_; }
  uint32_t worker() const { return Worker{slot_, generation_}.pack(); }
  const SegmentView& view() const { return view_; }
  // Do the two processes reach each other's memory? Both answer the same. If they do not, requests go as
  // frames (engine/remote), and read() and write() may answer EPERM.
  bool is_within_reach() const { return within_reach_; }
  bool alive(const NodeDirectory& directory) const { return directory.alive(slot_, generation_); }

  // Turns of this process's threads at atomics on that adapter.
  SpinLock own_atomics[kAtomicsLocks];

  // Wakes the service thread there.
  void kick();
  // The same after a pending flag of that process has been set (pending, overrun, lost_events): it looks at
  // them all.
  void ring_doorbell();
  // A flag of this object, which lies in the adapter's segment, has been set: its owner is to look at it.
  void report(const SharedQp& qp);
  void report(const SharedCq& cq);
  void report(const SharedSrq& srq);
  // Writes `record` to completion channel `channel` there. 0; EAGAIN: full; other errno: it is gone.
  int notify(uint32_t channel, uint64_t record);

  // Moves bytes between this process's `local` and that process's `remote` ranges, which are equally long in
  // sum; in the order of the ranges. 0; EFAULT: part of either side is not mapped (or not writable); ESRCH:
  // the process is gone. Never touches a program that came after it. At most kMaxRanges ranges each.
  static constexpr size_t kMaxRanges = 64;
  int write(const NodeDirectory& directory, const iovec* local, size_t locals, const iovec* remote,
            size_t remotes);
  int read(const NodeDirectory& directory, const iovec* local, size_t locals, const iovec* remote,
           size_t remotes);

  // Up to so many bytes go through /proc/<pid>/mem, whose copy of an aligned word is the cheapest there is;
  // process_vm_*(2) is better from there on: it takes several ranges in one call.
  static constexpr size_t kWord = 8;
  // The same of up to kWord bytes, one range each, and nothing around the system call. False: read() or
  // write() tell why; some of the bytes may be there.
  bool write_word(uint64_t here, uint64_t there, size_t size) const;
  bool read_word(uint64_t here, uint64_t there, size_t size) const;

 private:
  int piece_by_piece(bool writing, const iovec* local, size_t locals, const iovec* remote, size_t remotes);
  long move_piece(bool writing, void* here, void* there, size_t size);
  int32_t task_of_service(const NodeMembership& membership) const;
  long process_vm(bool writing, const NodeDirectory& directory, const iovec* local, size_t locals,
                  const iovec* remote, size_t remotes);
  int transfer(bool writing, const NodeDirectory& directory, const iovec* local, size_t locals,
               const iovec* remote, size_t remotes);

  uint32_t slot_;
  uint32_t generation_;
  SegmentView view_;
  PeerSegment mapped_;
  std::string folder_;
  int memory_fd_ = -1;
  bool is_own_ = false;  // this process's: memory_fd_ is the NodeMembership's
  bool within_reach_ = true;
  int32_t pid_ = 0;
  // Who process_vm_*(2) is called for: the service thread there, which sleeps as a rule. The call writes into
  // its task; the program's own threads have theirs in the cache of the processor that they run on.
  std::atomic<int32_t> task_{0};
  std::atomic<bool> process_vm_{true};  // false once the kernel has refused it

  std::mutex mutex_;  // FIFOs are opened at first use
  FifoEnd kick_;
  std::vector<std::pair<uint32_t, FifoEnd>> channels_;
};

// The peers of this process.
class PeerTable {
 public:
  // How long, in ms, a process that does not answer is waited for, counted from when it was first asked; and by whoever
  // comes after that.
  struct Patience {
    int first, again = 0;
  };
  static constexpr Patience kOfVerbs{5000, 200};  // then its service thread is stopped, or as good as
  // Finds or attaches. errno values as ask_for_segment and PeerAdapter::attach. Any thread; who waits keeps nobody from
  // other processes.
  int get(NodeMembership& membership, uint32_t slot, uint32_t generation, std::shared_ptr<PeerAdapter>* out,
          Patience patience = kOfVerbs);

 private:
  struct Asked;
  // Under mutex_.
  std::shared_ptr<PeerAdapter> known(uint32_t slot, uint32_t generation);
  int ask(const NodeMembership& membership, uint32_t slot, uint32_t generation, std::shared_ptr<Asked>* out);
  int take_answer(const NodeMembership& membership, const std::shared_ptr<Asked>& asked,
                  std::shared_ptr<PeerAdapter>* out);

  std::mutex mutex_;
  std::vector<std::weak_ptr<PeerAdapter>> peers_;
  std::vector<std::shared_ptr<Asked>> asked_;
};

}  // namespace verbena
