// SPDX-License-Identifier: BSD-2-Clause
//
// A command that is being carried out, as the handlers of the table (commands.cc) get it. A handler returns
// 0, an errno, or kAskForToken.
#pragma once

#include <algorithm>
#include <cerrno>
#include <memory>

#include "rdma_cm/program_memory.h"
#include "rdma_cm/state.h"

namespace verbena::rdma_cm {

// GET_EVENT only: nothing is done yet; a token has to be read from the pipe first.
inline constexpr int kAskForToken = -1;

struct Call {
  State& state;
  const std::shared_ptr<File>& file;
  const void* request;  // a copy, zero where the program gave less than the whole structure
  size_t room;          // bytes for the response: rdma_ucm_cmd_hdr::out
  bool has_token;

  template <typename Request>
  const Request& as() const {
    return *static_cast<const Request*>(request);
  }

  // Writes as much of the response as the program has space for. EFAULT.
  template <typename Response>
  int respond(uint64_t where, const Response& response) const {
    return copy_to_program(where, &response, std::min(room, sizeof response));
  }

  int find(uint32_t id, ContextInUse* context) const { return context->find(state, *file, id); }

  // EINVAL: the id has no device yet (ucma_get_ctx_dev).
  int find_with_device(uint32_t id, ContextInUse* context) const;
};

// The handlers, one file for each group of commands in ucma.c.
int create_id(Call& call);
int destroy_id(Call& call);
int migrate_id(Call& call);

int bind_ip(Call& call);
int bind_address(Call& call);
int resolve_ip(Call& call);
int resolve_address(Call& call);
int resolve_route(Call& call);

int listen(Call& call);
int connect(Call& call);
int accept(Call& call);
int reject(Call& call);
int disconnect(Call& call);
int init_qp_attributes(Call& call);
int notify(Call& call);

int query_route(Call& call);
int query(Call& call);
int set_option(Call& call);

int join_ip_multicast(Call& call);
int join_multicast(Call& call);
int leave_multicast(Call& call);

int get_event(Call& call);
int write_event(Call& call);

}  // namespace verbena::rdma_cm
