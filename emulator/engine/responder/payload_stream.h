// SPDX-License-Identifier: BSD-2-Clause
//
// How bytes get to and from an initiator that is not on this node, where the responder's code would reach
// into his memory: large payloads come out of his stream, answers go into it. placement.cc asks it, if an
// initiator has one. Holding a hazard guard on the responder's memory; nothing waits.
#pragma once

#include <sys/uio.h>

#include <cstddef>

#include "engine/responder/placement.h"

namespace verbena {

class PayloadStream {
 public:
  // What has come of the message's bytes goes to `remote`, from request.done on. kPartly: come again when
  // more has come, or (nothing has moved) at once.
  virtual Placed place(Request& request, const iovec* remote, size_t remotes) = 0;
  // The answer to a READ: `remote`, all of it. kWhole: it is on its way.
  virtual Placed fetch(Request& request, const iovec& remote) = 0;

 protected:
  ~PayloadStream() = default;
};

// The part [from, from + size) of a list of ranges; at most `most` of them, the number of which is answered.
size_t cut_ranges(const iovec* ranges, size_t count, uint64_t from, uint64_t size, iovec* out, size_t most);

}  // namespace verbena
