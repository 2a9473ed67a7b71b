// SPDX-License-Identifier: BSD-2-Clause
//
// What an observer is told of a responder's decision, and of the bytes that have been moved.
#pragma once

#include "engine/responder/responder.h"
#include "observe/observer.h"

namespace verbena {

// `before`: Request::done before the request, or the chunk, was carried out. The caller holds a hazard guard.
void tell_response(Observer& observer, RequesterContext& requester, const Request& request,
                   const Response& response, uint32_t before, const LocalBytes& local);

// A PayloadStream has placed bytes [begin, end) of the message in `remote`, the memory of the responder: they
// are kept for tell_response(), as the program may change them once the completion is there.
void keep_placed(RequesterContext& requester, uint32_t begin, uint32_t end, const iovec* remote,
                 size_t remotes);

// A PayloadStream sends `remote` as the response to a READ.
void keep_fetched(RequesterContext& requester, const iovec& remote);

}  // namespace verbena
