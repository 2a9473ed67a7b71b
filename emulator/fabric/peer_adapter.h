// SPDX-License-Identifier: BSD-2-Clause
//
// Another process's adapter as this process sees it: its mapped segment, access to its memory, and the FIFOs
// that wake it. There is one object per (slot, generation) and process, shared by all QPs connected to that
// process. The process's own adapter has one as well, because a QP may be connected to its own process.
#pragma once

#include <sys/uio.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "adapter/locks.h"
#include "adapter/segment.h"
#include "fabric/fifo.h"
#include "fabric/mapped_regions.h"
#include "fabric/node_membership.h"

namespace verbena {

struct PassedSegment;

class PeerAdapter {
 public:
  PeerAdapter(uint32_t slot, uint32_t generation) : slot_(slot), generation_(generation) {}
  ~PeerAdapter();
  PeerAdapter(const PeerAdapter&) = delete;
  PeerAdapter& operator=(const PeerAdapter&) = delete;

  // Maps the passed segment. Takes the descriptors in any case. errno values of PeerSegment::map().
  int attach(const NodeMembership& membership, const PassedSegment& given);
  // The process's own adapter.
  void attach_self(NodeMembership& membership);

  uint32_t slot() const { return slot_; }
  uint32_t generation() const { return generation_; }
  uint32_t worker() const { return Worker{slot_, generation_}.pack(); }
  const SegmentView& view() const { return view_; }
  // True: the two processes can access each other's memory. Both get the same result. If false, requests go
  // as frames (engine/remote), and read() and write() may return EPERM.
  bool is_within_reach() const { return within_reach_; }
  bool alive(const NodeDirectory& directory) const { return directory.alive(slot_, generation_); }

  // Serialises this process's threads in atomics on that adapter.
  SpinLock own_atomics[kAtomicsLocks];

  // Wakes the service thread of that process.
  void kick();
  // A flag of this object, which lies in the adapter's segment, has been set. Reports the object to its
  // owner, whose service thread then acts on the flag.
  void report(const SharedQp& qp);
  void report(const SharedCq& cq);
  void report(const SharedSrq& srq);
  // Explains a refusal to the owner, whose service thread logs it. Does not wait.
  void explain(const RequestRefusal& refusal, uint32_t worker);
  // Writes `record` to completion channel `channel` of that process. 0; EAGAIN: full; other errno: the
  // channel is gone.
  int notify(uint32_t channel, uint64_t record);

  // Copies bytes between `local` ranges of this process and `remote` ranges of that process, in the order of
  // the ranges. Both lists have the same total length, and at most kMaxRanges ranges. 0; EFAULT: part of
  // either side is not mapped (or not writable); ESRCH: the process is gone. Never touches a program that has
  // replaced it.
  static constexpr size_t kMaxRanges = 64;
  int write(const NodeDirectory& directory, const iovec* local, size_t locals, const iovec* remote,
            size_t remotes);
  int read(const NodeDirectory& directory, const iovec* local, size_t locals, const iovec* remote,
           size_t remotes);

  // Up to this many bytes go through /proc/<pid>/mem, which is the cheapest copy of an aligned word. For more
  // bytes process_vm_*(2) is better: it takes several ranges in one call.
  static constexpr size_t kWord = 8;
  // The same for at most kWord bytes, one range each, and with nothing around the system call. False: read()
  // or write() returns the reason; some of the bytes may have been copied.
  bool write_word(uint64_t here, uint64_t there, size_t size) const;
  bool read_word(uint64_t here, uint64_t there, size_t size) const;

  // Regions of that process that lie in memory which this process maps as well.
  MappedRegions& regions() { return regions_; }

 private:
  void ring_doorbell();
  int open_fifo(FifoEnd& end, const char* name) const;
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
  SlotAddress address_{std::string()};
  int memory_fd_ = -1;
  bool is_own_ = false;  // this process's own adapter: memory_fd_ belongs to the NodeMembership
  bool within_reach_ = true;
  int32_t pid_ = 0;
  // The task that process_vm_*(2) names: the service thread of that process, which usually sleeps. The call
  // writes into the task structure. Those of the program's own threads are in the caches of the processors
  // that they run on.
  std::atomic<int32_t> task_{0};
  std::atomic<bool> process_vm_{true};  // false once the kernel has refused it

  MappedRegions regions_;
  std::mutex mutex_;  // FIFOs are opened at first use
  FifoEnd kick_;
  std::vector<std::pair<uint32_t, FifoEnd>> channels_;
};

// The peers of this process.
class PeerTable {
 public:
  // How long to wait for a process that does not reply, in ms. `first`: counted from the first request.
  // `again`: for each later caller.
  struct Patience {
    int first, again = 0;
  };
  // for verbs: a process that is silent for longer is in effect stopped
  static constexpr Patience kOfVerbs{5000, 200};
  // Finds the peer, or attaches to it. errno values of ask_for_segment() and PeerAdapter::attach(). Any
  // thread. A caller that waits does not block callers that look for other processes.
  int get(NodeMembership& membership, uint32_t slot, uint32_t generation, std::shared_ptr<PeerAdapter>* out,
          Patience patience = kOfVerbs);

  // The service thread's work for the peers' mapped regions (MappedRegions::serve()), and a note that there
  // is some.
  void note_region() { has_regions_.store(true, std::memory_order_release); }
  int64_t serve_regions(const NodeMembership& membership);

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
  std::atomic<bool> has_regions_{false};
};

}  // namespace verbena
