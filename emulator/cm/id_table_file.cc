// SPDX-License-Identifier: BSD-2-Clause
#include "cm/id_table_file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cstring>

#include "fabric/descriptor.h"
#include "fabric/node_file.h"

namespace verbena::cm {
namespace {

// The kernel releases the lock of a process that dies.
int lock_within_10_seconds(int fd) {
  for (int i = 0; i < 10'000; ++i) {
    if (flock(fd, LOCK_EX | LOCK_NB) == 0) return 0;
    if (errno != EWOULDBLOCK && errno != EINTR) return errno;
    const timespec moment{0, 1'000'000};
    nanosleep(&moment, nullptr);
  }
  return ETIMEDOUT;
}

int map(int fd, IdTableFile** out) {
  void* memory = mmap(nullptr, sizeof(IdTableFile), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) return errno;
  *out = static_cast<IdTableFile*>(memory);
  return 0;
}

bool has_full_size(int fd) {
  struct stat status;
  return fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && status.st_size == sizeof(IdTableFile);
}

bool has_magic(int fd) {
  uint32_t magic = 0;
  return pread(fd, &magic, sizeof magic, 0) == sizeof magic && magic == kIdTableMagic;
}

bool ready(int fd) { return has_full_size(fd) && has_magic(fd); }

// Memory is reserved now, so that no process gets SIGBUS later. The caller has the lock.
int make_locked(int fd, uint64_t node_id) {
  if (ready(fd)) return 0;
  if (has_magic(fd)) return EPROTO;  // another size: not our file
  if (const int error = posix_fallocate(fd, 0, sizeof(IdTableFile)); error != 0) return error;
  IdTableFile* file = nullptr;
  if (const int error = map(fd, &file); error != 0) return error;
  file->version = kIdTableVersion;
  file->size = sizeof(IdTableFile);
  file->node_id = node_id;
  file->magic.store(kIdTableMagic, std::memory_order_release);
  unmap_id_table(file);
  return 0;
}

int make(int fd, uint64_t node_id) {
  if (const int error = lock_within_10_seconds(fd); error != 0) return error;
  const int error = make_locked(fd, node_id);
  flock(fd, LOCK_UN);  // closing is not enough: the mapping keeps the open file, and thereby the lock
  return error;
}

}  // namespace

int map_id_table(const std::string& node, uint64_t node_id, bool only_if_there, IdTableFile** out,
                 KeptDescriptor* kept) {
  const std::string path = node + "/cm-ids";
  const int create = only_if_there ? 0 : O_CREAT;
  Descriptor file;
  int error = open_node_file(path, &file);  // also one that has lost its name
  if (error == ENOENT && create != 0) {
    file.reset(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | create, 0600));
    error = file.fd < 0 ? errno : 0;
  }
  if (error != 0) return error;
  if (!ready(file.fd)) {
    if (only_if_there) return has_magic(file.fd) ? EPROTO : ENOENT;  // another size, or not created yet
    if (error = make(file.fd, node_id); error != 0) return error;
  }
  if (!has_full_size(file.fd)) return EPROTO;
  IdTableFile* mapped = nullptr;
  if (error = map(file.fd, &mapped); error != 0) return error;
  if (mapped->magic.load(std::memory_order_acquire) != kIdTableMagic || mapped->version != kIdTableVersion ||
      mapped->size != sizeof(IdTableFile) || mapped->node_id != node_id) {
    unmap_id_table(mapped);
    return EPROTO;
  }
  *out = mapped;
  if (kept != nullptr) kept->keep(file.release());
  return 0;
}

void unmap_id_table(IdTableFile* file) { munmap(file, sizeof(IdTableFile)); }

void write_facts(IdEntry& entry, const IdFacts& facts) {
  uint64_t words[kFactsWords];
  std::memcpy(words, &facts, sizeof facts);
  const uint32_t next = entry.epoch.load(std::memory_order_relaxed) + 1;
  // Pairs with the fence in read_facts(): a reader of this copy that sees one of the following stores also
  // sees that the epoch has changed, and reads again.
  std::atomic_thread_fence(std::memory_order_release);
  for (size_t i = 0; i < kFactsWords; ++i)
    entry.facts[next % 2][i].store(words[i], std::memory_order_relaxed);
  entry.epoch.store(next, std::memory_order_release);
}

IdFacts read_facts(const IdEntry& entry) {
  IdFacts facts;
  uint64_t words[kFactsWords];
  uint32_t before, after = entry.epoch.load(std::memory_order_acquire);
  do {
    before = after;
    for (size_t i = 0; i < kFactsWords; ++i)
      words[i] = entry.facts[before % 2][i].load(std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_acquire);
    after = entry.epoch.load(std::memory_order_acquire);
  } while (before != after);
  std::memcpy(static_cast<void*>(&facts), words, sizeof facts);
  return facts;
}

}  // namespace verbena::cm
