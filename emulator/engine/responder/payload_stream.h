// SPDX-License-Identifier: BSD-2-Clause
//
// Payload of a requester whose memory cannot be reached: large payloads are read from its stream, answers to
// READs are appended to it. placement.cc uses the stream if the requester has one. The caller holds a hazard
// guard on the responder's memory. The calls do not wait.
#pragma once

#include <sys/uio.h>

#include <cstddef>

#include "engine/responder/placement.h"

namespace verbena {

class PayloadStream {
 public:
  // Places the bytes of the message that have come into `remote`, from request.done on. kPartly: to be called
  // again when more have come, or at once if none was placed.
  virtual Placed place(Request& request, const iovec* remote, size_t remotes) = 0;
  // Copies the first `size` bytes of the message, at most 32, and leaves them in the stream. None of them has
  // been placed. False: they have not come yet; to be called again when more have come.
  virtual bool peek(std::byte* to, uint32_t size) = 0;
  // Sends all of `remote` as the answer to a READ. kWhole: it is being sent.
  virtual Placed fetch(Request& request, const iovec& remote) = 0;

 protected:
  ~PayloadStream() = default;
};

// The part [from, from + size) of a list of ranges, in at most `most` ranges. Returns their number.
size_t cut_ranges(const iovec* ranges, size_t count, uint64_t from, uint64_t size, iovec* out, size_t most);

}  // namespace verbena
