// SPDX-License-Identifier: BSD-2-Clause
//
// The address of a unix socket in a folder, for paths of any length. No function is a cancellation point.
#pragma once

#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <string>

namespace verbena {

// sun_path holds 108 bytes. A longer path is reached through a descriptor of the folder, which this object
// keeps open.
class UnixAddress {
 public:
  UnixAddress() = default;
  UnixAddress(const UnixAddress&) = delete;
  UnixAddress& operator=(const UnixAddress&) = delete;
  ~UnixAddress() {
    if (folder_fd_ >= 0) syscall(SYS_close, folder_fd_);
  }
  // 0, or the errno of opening the folder.
  int set(const std::string& folder, const char* name) {
    address_.sun_family = AF_UNIX;
    std::string path = folder + "/" + name;
    if (path.size() >= sizeof address_.sun_path) {
      folder_fd_ =
          static_cast<int>(syscall(SYS_openat, AT_FDCWD, folder.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
      if (folder_fd_ < 0) return errno;
      path = "/proc/self/fd/" + std::to_string(folder_fd_) + "/" + name;
    }
    std::memcpy(address_.sun_path, path.c_str(), path.size() + 1);
    return 0;
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address_); }
  static constexpr socklen_t size() { return sizeof(sockaddr_un); }

 private:
  sockaddr_un address_{};
  int folder_fd_ = -1;
};

// An abstract address: of the network namespace, without a file. Names of more than 100 bytes are cut off.
class AbstractAddress {
 public:
  explicit AbstractAddress(const std::string& name)
      : size_(static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 +
                                     name.copy(address_.sun_path + 1, 100))) {
    address_.sun_family = AF_UNIX;
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address_); }
  socklen_t size() const { return size_; }

 private:
  sockaddr_un address_{};
  socklen_t size_;
};

}  // namespace verbena
