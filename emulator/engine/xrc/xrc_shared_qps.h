// SPDX-License-Identifier: BSD-2-Clause
//
// The part of this process in XRC_RECV queue pairs that several processes hold open (xrc_shared_qp.h):
// handles on queue pairs of other processes, and its own queue pairs that only others hold.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

namespace verbena {

class Process;
struct Context;
struct QpLocation;
struct Qp;
struct QpnEntry;

// What has become of a queue pair that another process has made.
enum class OwnerStatus : uint8_t {
  kThere,
  kLater,  // its owner has ended, and it has no new one yet
  kLost,
};

class XrcSharedQps {
 public:
  explicit XrcSharedQps(Process& process) : process_(process) {}

  // ---- handles on queue pairs of other processes ----
  int hold(Qp* qp);                           // ENOMEM
  void let_go(Qp* qp);                        // on return the service thread does not touch it any more
  OwnerStatus find(Qp& qp, QpLocation* out);  // where what `qp` stands for is now

  // ---- own queue pairs ----
  int keep_orphaned(Qp* qp);    // it lives while other processes hold it. ENOMEM
  bool adopt_orphaned(Qp* qp);  // ends that, if it is one; false: it is being destroyed
  // The context is closed: queue pairs that other processes hold are left to them, the others end.
  void leave_context(Context& context);

  // A request of another process (fabric/control_rpc.h), in the service thread. Returns the size of the
  // reply; 0: the request is for another module.
  size_t reply(const std::byte* request, size_t size, std::byte* reply);
  // The service thread's work. Returns when to call again, ns; kEndOfTime: when woken.
  int64_t serve();

 private:
  struct OrphanedQp {
    Qp* qp;
    bool ending;
  };
  // Under mutex_ (xrc_succession.cc from find_again() on):
  OwnerStatus serve_proxy(Qp& qp);
  void raise_told_events(Qp& qp);
  OwnerStatus find_again(Qp& qp);
  OwnerStatus attach(Qp& qp, const QpnEntry& entry, uint32_t generation);
  OwnerStatus take_over(Qp& qp, const QpnEntry* entry);
  bool end_orphaned(OrphanedQp& orphaned);
  // Those created on `context`, unless the device is open in another context. Takes mutex_.
  std::vector<Qp*> take_qps_of(Context& context);

  Process& process_;
  std::mutex mutex_;
  std::vector<Qp*> proxies_;
  std::vector<OrphanedQp> orphaned_;
};

}  // namespace verbena
