// SPDX-License-Identifier: BSD-2-Clause
#include "engine/shared_completion.h"

#include <algorithm>
#include <cstring>

namespace verbena {

void scatter_from_shared(const Qp& qp, const Cqe& entry, bool safely) {
  const Srq& srq = *qp.srq;
  if (entry.index > srq.ring.mask()) return;
  const ReceiveWqe& wqe = srq.ring.wqe(entry.index);
  const uint32_t before = (entry.flags & kCqeDatagram) != 0 ? sizeof(DatagramSource) : 0;
  const bool in_entry = (entry.flags & kCqeInline) != 0;
  const auto* from =
      in_entry ? reinterpret_cast<const std::byte*>(entry.payload) + before : srq.ring.landing(entry.index);
  uint32_t left = std::min(entry.byte_len, in_entry ? kCqeInlineSize - before : kLandingSize);
  for (uint32_t i = 0; i < wqe.sge_count && i < srq.ring.max_sge && left != 0; ++i) {
    const uint32_t n = std::min(wqe.sge[i].length, left);
    if (n == 0) continue;
    if (safely) {
      const iovec local{const_cast<std::byte*>(from), n},
          remote{reinterpret_cast<void*>(wqe.sge[i].address), n};
      qp.process->self().write(qp.process->directory(), &local, 1, &remote, 1);
    } else {
      std::memcpy(reinterpret_cast<void*>(wqe.sge[i].address), from, n);
    }
    from += n;
    left -= n;
  }
}

uint64_t take_shared_receive(Qp& qp, const Cqe& entry) {
  const uint64_t wr_id = wr_id_of(*qp.srq, entry.index);
  free_slot(*qp.srq, entry.index);
  return wr_id;
}

void fill_datagram_origin(const Cqe& entry, ibv_wc* wc) {
  DatagramSource source;
  std::memcpy(&source, entry.payload, sizeof source);
  wc->src_qp = source.qpn;
  wc->slid = source.lid;
  wc->sl = source.sl;
  wc->dlid_path_bits = source.path_bits;
  if ((entry.flags & kCqeWithGrh) != 0) wc->wc_flags |= IBV_WC_GRH;
}

}  // namespace verbena
