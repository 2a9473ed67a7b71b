// SPDX-License-Identifier: BSD-2-Clause
#include "fabric/fd_passing.h"

#include <errno.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cstring>

namespace verbena {

int pass_fds(int socket, const void* data, size_t size, const int* descriptors, size_t count,
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

namespace {

struct Attached {
  alignas(cmsghdr) char bytes[CMSG_SPACE(sizeof(int)) + CMSG_SPACE(sizeof(ucred))] = {};
};

// False: the message is not from this user.
bool read_attached(msghdr* message, Descriptor* passed) {
  bool same_user = false;
  for (cmsghdr* header = CMSG_FIRSTHDR(message); header != nullptr; header = CMSG_NXTHDR(message, header)) {
    if (header->cmsg_level != SOL_SOCKET) continue;
    if (header->cmsg_type == SCM_RIGHTS) {
      const size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
      for (size_t i = 0; i < count; ++i) {
        int fd;  // one is expected; of several, the last is kept and the others are closed
        std::memcpy(&fd, CMSG_DATA(header) + i * sizeof fd, sizeof fd);
        passed->reset(fd);
      }
    }
    if (header->cmsg_type == SCM_CREDENTIALS && header->cmsg_len >= CMSG_LEN(sizeof(ucred))) {
      ucred sender;
      std::memcpy(&sender, CMSG_DATA(header), sizeof sender);
      same_user = sender.uid == geteuid();
    }
  }
  return same_user;
}

}  // namespace

ssize_t receive_attached(int socket, void* data, size_t size, Descriptor* passed) {
  Attached attached;
  iovec part{data, size};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = attached.bytes;
  message.msg_controllen = sizeof attached.bytes;
  ssize_t got;
  while ((got = recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT)) < 0 && errno == EINTR) {
  }
  if (got < 0) return -1;
  errno = EPERM;
  if (!read_attached(&message, passed)) return -1;
  errno = EMSGSIZE;
  return (message.msg_flags & MSG_TRUNC) != 0 ? -1 : got;
}

}  // namespace verbena
