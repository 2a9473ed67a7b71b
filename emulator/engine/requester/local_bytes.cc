// SPDX-License-Identifier: BSD-2-Clause
#include "engine/requester/local_bytes.h"

#include <cstring>

#include "adapter/memory_table.h"
#include "engine/memory/region_pages.h"
#include "engine/objects/memory_objects.h"
#include "engine/objects/process.h"
#include "engine/objects/send_request.h"
#include "engine/objects/transport.h"
#include "engine/rules/key_errors.h"
#include "fabric/hazards.h"
#include "fabric/peer_adapter.h"
#include "observe/log.h"

namespace verbena {
namespace {

// A frame with a message of up to a chunk may be a copy of it.
uint32_t longest_copied(const Qp& qp) {
  return qp.transport->is_synchronous() ? kLongestBounced : qp.transport->chunk_size();
}

}  // namespace

VendorError find_local_bytes(Qp& qp, const SendOperation& operation, const SendRequest& request,
                             iovec* ranges, size_t* count) {
  *count = 0;
  if (request.is_inline) {
    for (uint32_t i = 0; i < request.sge_count; ++i)
      if (request.sges[i].length != 0)
        ranges[(*count)++] = {reinterpret_cast<void*>(request.sges[i].addr), request.sges[i].length};
    return VendorError::none;
  }
  const MemoryUse use =
      operation.sges == SgeUse::scatter ? MemoryUse::local_scatter : MemoryUse::local_gather;
  for (uint32_t i = 0; i < request.sge_count; ++i) {
    const ibv_sge& sge = request.sges[i];
    if (sge.length == 0) continue;
    const Translation place =
        translate(qp.process->view(), sge.lkey, false, qp.pd->handle, use, sge.addr, sge.length);
    if (place.check != KeyCheck::kOk) {
      const VendorErrorText& why = *find_vendor_error(static_cast<uint32_t>(local_key_error(place.check)));
      VERBENA_LOG_AT(LogLevel::kWarn, "QP 0x%06x: %s, SGE %u: lkey 0x%x, address 0x%llx, length %u: %s [%s]",
                     qp.shared->qpn, operation.name, i, sge.lkey, static_cast<unsigned long long>(sge.addr),
                     sge.length, why.text, why.name);
      return local_key_error(place.check);
    }
    // The CPU copies short ranges: an absent page must not fault in the program's call.
    if (place.on_demand && (request.length <= longest_copied(qp) || is_unconnected(qp.type)) &&
        bring_in_pages(place.address, sge.length, operation.sges == SgeUse::scatter) != 0)
      return VendorError::local_memory_gone;
    ranges[(*count)++] = {reinterpret_cast<void*>(place.address), sge.length};
  }
  return VendorError::none;
}

VendorError gather_local_bytes(Qp& qp, const SendOperation& operation, const SendRequest& request,
                               uint8_t* to) {
  // The memory stays registered meanwhile.
  const HazardGuard guard(qp.process->hazards(), qp.process->membership().slot());
  iovec ranges[PeerAdapter::kMaxRanges];
  size_t count = 0;
  if (VendorError error = find_local_bytes(qp, operation, request, ranges, &count);
      error != VendorError::none)
    return error;
  for (size_t i = 0; i < count; ++i) {
    std::memcpy(to, ranges[i].iov_base, ranges[i].iov_len);
    to += ranges[i].iov_len;
  }
  return VendorError::none;
}

}  // namespace verbena
