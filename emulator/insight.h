// SPDX-License-Identifier: BSD-2-Clause
//
// What the checker (provider/check) asks the adapter, beside the verbs of emulator.h. Any thread may call it.
#pragma once

#include <cstdint>

#include "emulator.h"

namespace verbena {

uint32_t count_completions(Cq* cq);     // that wait to be polled; 0 in a forked child
bool has_overrun(const Cq* cq);         // a completion has found no room; takes no lock
bool is_flushing(const Qp* qp);         // in ERR or RESET, or about to be: the peer has failed; takes no lock
uint32_t count_rnr_naks(const Qp* qp);  // that it has received; takes no lock

// The other end of a connected queue pair, if it is on this node.
struct PeerAttributes {
  uint32_t dest_qp_num;
  ibv_mtu path_mtu;
  uint8_t max_dest_rd_atomic;
};

// False: there is none, or it is in neither RTR nor RTS now. Takes the queue pair's lock.
bool find_peer_attributes(Qp* qp, PeerAttributes* out);

// Copies the bytes that an RDMA WRITE of `length` bytes to `address` with `rkey` would change. False: the other end is not
// on this node, or would refuse the WRITE, or requests that were posted before are not finished. RC and UC. Takes the
// queue pair's lock, and holds it during the copy.
bool read_target(Qp* qp, uint64_t address, uint32_t rkey, void* to, uint32_t length);

}  // namespace verbena
