// SPDX-License-Identifier: BSD-2-Clause
//
// Where receives arrive while the program must not read their buffers (protection.h, protect_receive()):
// pages that are mapped PROT_NONE refuse the device as well, since process_vm_writev(2) of the sender
// respects it. So the device is given other memory, a shadow, and the bytes are copied when the completion is
// polled.
#pragma once

#include "check/model.h"

namespace verbena::check {

// Memory of the checker, registered in a protection domain.
struct Shadow {
  const ibv_pd* pd;
  char* bytes;
  uint64_t size;
  ibv_mr* mr;
  bool taken;
  bool abandoned;  // the program has deregistered the buffer: nothing is copied there
};

// One for each of the first receives of `list`, which are about to be posted to a queue pair of `pd`; null:
// it is too short or too long to be guarded, or there is no memory. Empty: the rule is off. Registers memory,
// so the lock is not held.
std::vector<Shadow*> take_shadows(ibv_pd* pd, const ibv_recv_wr* list);

// The bytes of the receive have arrived: they go where it wanted them. With the lock held, as below.
void copy_from(const Shadow& shadow, const std::vector<Range>& ranges, uint64_t length);

// The device does not use it any more. It may be null.
void give_back(Shadow* shadow);

// The domain is about to be deallocated: ends the shadows that no receive has. Without the lock.
void free_shadows(const ibv_pd* pd);

// A list of receives for the device, some of which have a shadow instead of the program's buffers.
class ShadowedList {
 public:
  ShadowedList(ibv_recv_wr* list, const std::vector<Shadow*>& shadows);
  ibv_recv_wr* first();
  ibv_recv_wr* original(ibv_recv_wr* wr) const;  // of the list that it was made of

 private:
  ibv_recv_wr* list_;
  std::vector<ibv_recv_wr> requests_;
  std::vector<ibv_sge> sges_;
};

}  // namespace verbena::check
