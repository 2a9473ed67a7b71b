// SPDX-License-Identifier: BSD-2-Clause
//
// Only write(2) is hooked, because libibverbs and librdmacm send every command by write(2)
// (libibverbs/cmd_fallback.c, librdmacm/cma.c of rdma-core 44). A command that is sent in another way gets
// ENOSPC from the placeholder.
#include <errno.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "boundary/descriptors.h"
#include "boundary/netlink.h"
#include "boundary/netlink_table.h"
#include "boundary/real.h"

namespace verbena {
namespace {

// Keeps the file of a descriptor open while a call waits, as the kernel does. Another thread may close the
// descriptor meanwhile, and its number may become another file's. Cancellation runs the destructor.
class HeldFile {
 public:
  explicit HeldFile(int fd) : fd_(fcntl(fd, F_DUPFD_CLOEXEC, 0)) {}
  ~HeldFile() {
    const int before = errno;
    if (fd_ >= 0) syscall(SYS_close, fd_);
    errno = before;
  }
  HeldFile(const HeldFile&) = delete;
  HeldFile& operator=(const HeldFile&) = delete;
  int fd() const { return fd_; }

 private:
  int fd_;
};

bool is_of(int fd, const verbena_boundary_handler& handler) {
  verbena_boundary_handler now;
  return find_handler(fd, &now) && now.owner == handler.owner;
}

// The command has to wait for a token of the device's file.
ssize_t wait_and_resume(int fd, const verbena_boundary_handler& handler, const void* data, size_t length) {
  const HeldFile file(fd);
  if (file.fd() < 0 && errno != EMFILE) return -1;
  // Only now: before it was held, the number may have become another file's.
  if (!is_of(fd, handler)) return failed<ssize_t>(EBADF);
  // No descriptor is left for the program's: then it must not close the file while it waits for it.
  const int held = file.fd() >= 0 ? file.fd() : fd;
  ssize_t answer;
  do {
    char token;
    const ssize_t taken = read(held, &token, sizeof token);
    if (taken < 0) return -1;
    if (taken == 0) return failed<ssize_t>(EIO);  // the writer of the tokens has closed its end
    answer = handler.resume(handler.owner, data, length);
  } while (answer == VERBENA_BOUNDARY_WAIT);
  return answer;
}

__attribute__((noinline)) ssize_t write_to_device(int fd, const void* data, size_t length) {
  verbena_boundary_handler handler;
  if (!find_handler(fd, &handler)) return real_write(fd, data, length);
  const ssize_t answer = handler.write(handler.owner, data, length);
  if (answer != VERBENA_BOUNDARY_WAIT || handler.resume == nullptr) return answer;
  return wait_and_resume(fd, handler, data, length);
}

}  // namespace

VERBENA_HOOK ssize_t write(int fd, const void* data, size_t length) {
  if (may_be_device(fd)) [[unlikely]]
    return write_to_device(fd, data, length);
  if (may_be_netlink(fd)) [[unlikely]]
    return write_netlink(fd, data, length);
  return real_write(fd, data, length);
}

}  // namespace verbena
