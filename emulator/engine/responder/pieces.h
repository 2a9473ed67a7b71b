// SPDX-License-Identifier: BSD-2-Clause
//
// Faults on purpose (docs/FAULTS.md, `shuffle`): the bytes of a message in any order. Before its completion
// none is promised (ibv_post_send(3) and vol. 1 name none), but for atomics and ATOMIC WRITE.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>

namespace verbena {

struct LocalBytes;
struct Request;
struct RequesterContext;

// 0: the next bytes of the request are placed in their order.
uint64_t order_on_purpose(const RequesterContext& requester, const Request& request);

// Places the next `size` bytes, one piece after the other, in the order that `order` draws. The pieces end at
// any byte, within words too, and readers may run in between. 0 or an errno, as PeerAdapter::write(); some
// pieces may then have been placed.
int place_in_pieces(const RequesterContext& requester, const Request& request, const LocalBytes& local,
                    const iovec* remote, size_t remotes, uint32_t size, uint64_t order);

}  // namespace verbena
