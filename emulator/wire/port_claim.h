// SPDX-License-Identifier: BSD-2-Clause
//
// Which node listens at an address and port. The processes of one node listen there together (SO_REUSEPORT),
// and the kernel lets processes of another node of the same user join them: connections would reach either
// node. So each process claims the address and port for its node before it listens.
//
// A claim is an abstract unix socket (unix(7)). Its name says address, port, node and process:
//   verbena/<port>/<address>/<node id>/<slot>.<generation>/{asks,listens}
// Abstract names belong to the network namespace, as ports do, whatever the file systems are. The kernel
// removes a name with its process, however that ends. A process first asks, then looks at the names of other
// nodes
// (/proc/net/unix), then listens:
// - A node that listens keeps the port.
// - A process waits for those that asked before it.
// - Of two that each see the other ask, the one whose node has the smaller id goes first.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "fabric/descriptor.h"
#include "wire/net_address.h"

namespace verbena::wire {

// The process that a claim is for.
struct Claimant {
  uint64_t node = 0;  // NodeDirectory's node_id
  uint32_t slot = 0;
  uint32_t generation = 0;
};

class PortClaim {
 public:
  // Claims the address and port until the object goes. 0, or an errno and *problem in one line:
  // - EADDRINUSE: a process of another node of this user listens there, and *problem says which.
  // - ETIMEDOUT: another node has asked for two seconds and does not go on, and no process of this one
  // listens.
  // - Other errno: an error of the kernel. Where /proc/net/unix cannot be read, every claim succeeds.
  int take(const NetAddress& address, uint16_t port, const Claimant& claimant, std::string* problem);
  int fd() const { return name_.fd; }
  int release() { return name_.release(); }  // the caller closes it

 private:
  Descriptor name_;
};

// EADDRINUSE and *problem as take(): another node than `node()` (0: any) listens there. Else 0. The caller's
// node may be made, or made again, in the midst: so node() is called before and after.
int find_other_claim(const NetAddress& address, uint16_t port, const std::function<uint64_t()>& node,
                     std::string* problem);

}  // namespace verbena::wire
