// SPDX-License-Identifier: BSD-2-Clause
#include "fabric/pass_descriptors.h"

#include <errno.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <cstring>

namespace verbena {

int pass_descriptors(int socket, const void* data, size_t size, const int* descriptors, size_t count,
                     int flags) {
  if (count == 0 || count > kMostPassed) return EINVAL;
  iovec part{const_cast<void*>(data), size};
  alignas(cmsghdr) char control[CMSG_SPACE(kMostPassed * sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = CMSG_SPACE(count * sizeof(int));
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(count * sizeof(int));
  std::memcpy(CMSG_DATA(header), descriptors, count * sizeof(int));
  while (sendmsg(socket, &message, flags | MSG_NOSIGNAL) < 0)
    if (errno != EINTR) return errno;
  return 0;
}

}  // namespace verbena
