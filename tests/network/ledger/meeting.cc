// SPDX-License-Identifier: BSD-2-Clause
#include "meeting.h"

#include <errno.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace verbena::network {

void give_up(const char* what) {
  std::fprintf(stderr, "%s: %s: %s\n", program_invocation_short_name, what, std::strerror(errno));
  std::exit(2);
}

int meet(const std::string& path, bool serve) {
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) {
    errno = ENAMETOOLONG;
    give_up("meet");
  }
  std::memcpy(address.sun_path, path.c_str(), path.size());
  const auto* name = reinterpret_cast<const sockaddr*>(&address);
  if (!serve) {
    if (connect(fd, name, sizeof address) != 0) give_up("connect");
    return fd;
  }
  if (bind(fd, name, sizeof address) != 0 || listen(fd, 1) != 0) give_up("listen");
  std::puts("listening");
  std::fflush(stdout);
  const int peer = accept4(fd, nullptr, nullptr, SOCK_CLOEXEC);
  if (peer < 0) give_up("accept");
  close(fd);
  return peer;
}

}  // namespace verbena::network
