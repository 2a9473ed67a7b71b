// SPDX-License-Identifier: BSD-2-Clause
//
// Tag matching at the responder (IBV_SRQT_TM; rdma-core, Documentation/tag_matching.md): a SEND to an SRQ
// with tags goes where the first tag says that matches its header, or to the next receive WQE.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "engine/responder/responder.h"

namespace verbena {

// Does the queue pair take its receive WQEs from an SRQ with tags?
inline bool matches_tags(const PeerPath& path) { return path.tags.tags != nullptr; }

// Has the current message taken a tag?
inline bool has_taken_tag(const PeerPath& path) {
  return path.current_wqe != 0 && is_tag(path.current_wqe - 1);
}

// The tag that the current message has taken.
inline SharedTag& taken_tag(const PeerPath& path) {
  return path.tags.tags[tag_index(path.current_wqe - 1) % path.tags.count];
}

// Reads the header of a message that begins, and matches it. The message then has a tag (has_taken_tag()), or
// needs a receive WQE. A response: the message ends, or waits, here.
std::optional<Response> match_message(RequesterContext& requester, const Request& request,
                                      const LocalBytes& local);

// The receive completion of the current message, before it is written into the entry. `payload` comes into
// the entry as well. The message is counted, if it met no tag.
void describe_tag_completion(const PeerPath& path, Completion* completion, TagCompletion* payload);

}  // namespace verbena
