// SPDX-License-Identifier: BSD-2-Clause
//
// ibv_create_comp_channel(3) is the one verb that libibverbs sends to the kernel without asking the provider.
// On a descriptor without ioctls it uses write(2): a header, then the payload, which begins with the address
// for the response (<rdma/ib_user_verbs.h>; libibverbs/cmd_fallback.c, _execute_cmd_write).
#include <rdma/ib_user_verbs.h>

#include <cstring>

#include "no_cancellation.h"
#include "verbs/objects.h"
#include "verbs/ops.h"

namespace verbena::verbs {
namespace {

struct CreateCompChannel {
  ib_uverbs_cmd_hdr header;
  ib_uverbs_create_comp_channel payload;
};
static_assert(sizeof(CreateCompChannel) == 16);

ssize_t refuse_command(int error) {
  errno = error;
  return -1;
}

}  // namespace

// The refusals come in the order of the kernel's (drivers/infiniband/core/uverbs_main.c, ib_uverbs_write and
// verify_hdr).
ssize_t answer_command(void* owner, const void* command, size_t length) {
  const NoCancellation guard;
  CreateCompChannel request = {};
  if (length < sizeof(request.header)) return refuse_command(EINVAL);
  memcpy(&request.header, command, sizeof(request.header));
  if (request.header.command != IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL) return refuse_command(EOPNOTSUPP);
  if (request.header.in_words * size_t{4} != length) return refuse_command(EINVAL);
  if (length < sizeof(request)) return refuse_command(ENOSPC);
  if (request.header.out_words * size_t{4} < sizeof(ib_uverbs_create_comp_channel_resp)) {
    return refuse_command(ENOSPC);
  }

  memcpy(&request, command, sizeof(request));
  auto* response = reinterpret_cast<void*>(static_cast<uintptr_t>(request.payload.response));
  if (response == nullptr) return refuse_command(EFAULT);
  int fd = -1;
  if (const int error = create_comp_channel(static_cast<VerbsContext*>(owner)->emulated, &fd); error != 0) {
    return refuse_command(error);
  }
  const ib_uverbs_create_comp_channel_resp answer = {.fd = static_cast<uint32_t>(fd)};
  memcpy(response, &answer, sizeof(answer));
  return static_cast<ssize_t>(length);
}

}  // namespace verbena::verbs
