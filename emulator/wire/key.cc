// SPDX-License-Identifier: BSD-2-Clause
#include "wire/key.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "fabric/descriptor.h"
#include "fabric/node.h"
#include "fabric/problem.h"

namespace verbena::wire {
namespace {

constexpr size_t kDigits = 2 * sizeof(NetworkKey);
constexpr char kHex[] = "0123456789abcdef";

int fail_with(int error, std::string* problem, const std::string& path) {
  return fail_errno(error, problem, "key file " + path);
}

bool is_private(const struct stat& status) {
  const mode_t for_others = status.st_mode & 0077;
  return for_others == 0 || (status.st_uid == 0 && geteuid() != 0 && (for_others & ~0040u) == 0);
}

int check(int fd, const std::string& path, std::string* problem) {
  struct stat status;
  if (fstat(fd, &status) != 0) return fail_with(errno, problem, path);
  if (!S_ISREG(status.st_mode)) return fail(EINVAL, problem, "key file " + path + " is not a regular file");
  if (status.st_uid != geteuid() && status.st_uid != 0)
    return fail(
        EPERM, problem,
        "key file " + path + " belongs to uid " + std::to_string(status.st_uid) + ", who could change it");
  if (is_private(status)) return 0;
  char mode[8];
  std::snprintf(mode, sizeof mode, "%04o", static_cast<unsigned>(status.st_mode & 07777));
  return fail(EPERM, problem,
              "key file " + path + " can be read by others (mode " + mode + "): chmod 600 " + path +
                  ", and make a new key if it was so for long");
}

int digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

bool parse(const char* text, NetworkKey* out) {
  for (size_t i = 0; i < out->size(); ++i) {
    const int high = digit(text[2 * i]), low = digit(text[2 * i + 1]);
    if (high < 0 || low < 0) return false;
    (*out)[i] = static_cast<uint8_t>(high << 4 | low);
  }
  return true;
}

int write_new(int fd) {
  NetworkKey key;
  if (getrandom(key.data(), key.size(), 0) != static_cast<ssize_t>(key.size())) return errno;
  char text[kDigits + 1];
  for (size_t i = 0; i < key.size(); ++i) {
    text[2 * i] = kHex[key[i] >> 4];
    text[2 * i + 1] = kHex[key[i] & 15];
  }
  text[kDigits] = '\n';
  if (fchmod(fd, 0600) != 0) return errno;
  const ssize_t written = write(fd, text, sizeof text);
  if (written != static_cast<ssize_t>(sizeof text)) return written < 0 ? errno : ENOSPC;
  return fsync(fd) == 0 || errno == EINVAL ? 0 : errno;
}

}  // namespace

int make_key(const std::string& path, std::string* problem) {
  const Descriptor file{open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600)};
  if (file.fd < 0 && errno == EEXIST)
    return fail(EEXIST, problem,
                "key file " + path + " exists, and keys are not overwritten: take another name");
  if (file.fd < 0) return fail_with(errno, problem, path);
  if (const int error = write_new(file.fd); error != 0) {
    unlink(path.c_str());
    return fail_with(error, problem, path);
  }
  return 0;
}

int read_key(const std::string& path, NetworkKey* out, std::string* problem) {
  const Descriptor file{open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (file.fd < 0 && errno == ENOENT)
    return fail(ENOENT, problem, "key file " + path + " is not there (verbena key " + path + " makes one)");
  if (file.fd < 0) return fail_with(errno, problem, path);
  if (const int error = check(file.fd, path, problem); error != 0) return error;
  char text[kDigits + 3];
  const ssize_t got = read(file.fd, text, sizeof text);
  if (got < 0) return fail_with(errno, problem, path);
  const auto size = static_cast<size_t>(got);
  const bool ends = size == kDigits || (size == kDigits + 1 && text[kDigits] == '\n');
  if (!ends || !parse(text, out))
    return fail(EINVAL, problem,
                "key file " + path + " does not hold a key, which is " + std::to_string(kDigits) +
                    " hexadecimal digits (verbena key FILE makes one)");
  return 0;
}

int user_key(const std::string& folder, NetworkKey* out, std::string* problem) {
  const std::string path = folder + "/key";
  if (access(path.c_str(), F_OK) != 0) {
    // All or nothing: the file gets its name last, and only one of several writers succeeds.
    const std::string fresh = path + "." + std::to_string(getpid());
    unlink(fresh.c_str());  // left by a process with the same pid that has died
    if (const int error = make_key(fresh, problem); error != 0) return error;
    const int error = link(fresh.c_str(), path.c_str()) == 0 ? 0 : errno;
    unlink(fresh.c_str());
    if (error != 0 && error != EEXIST) return fail_with(error, problem, path);
  }
  return read_key(path, out, problem);
}

int node_key(const std::string& node, NetworkKey* out) {
  const Descriptor file{open(key_path(node).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW)};
  if (file.fd < 0) return errno;
  const ssize_t got = read(file.fd, out->data(), out->size());
  if (got < 0) return errno;
  return got == static_cast<ssize_t>(out->size()) ? 0 : EPROTO;
}

}  // namespace verbena::wire
