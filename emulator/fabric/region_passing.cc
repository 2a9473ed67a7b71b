// SPDX-License-Identifier: BSD-2-Clause
#include "fabric/region_passing.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cstring>
#include <span>

#include "adapter/advice.h"
#include "fabric/descriptor_table.h"

namespace verbena {
namespace {

constexpr const char* kIpcNamespace = "/proc/self/ns/ipc";
constexpr long kHugetlbfsMagic = 0x958458f6;  // linux/magic.h

template <typename Message>
std::span<const uint8_t> bytes_of(const Message& message) {
  return {reinterpret_cast<const uint8_t*>(&message), sizeof message};
}

// mmap(2): "for mmap(), offset must be a multiple of the underlying huge page size".
uint64_t alignment_of(int fd) {
  struct statfs status;
  if (fstatfs(fd, &status) == 0 && status.f_type == kHugetlbfsMagic)
    return static_cast<uint64_t>(status.f_bsize);
  return static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

// The kernel names it so (ipc/shm.c), in a file system that nothing else is in.
bool is_segment(const SharedFile& file) {
  shmid_ds status{};
  return file.path.rfind("/SYSV", 0) == 0 && file.inode <= INT_MAX &&
         shmctl(static_cast<int>(file.inode), IPC_STAT, &status) == 0;
}

bool send_with(const ServiceCall& call, int fd, RegionReply reply) {
  reply.alignment = alignment_of(fd);
  return call.connection.send(bytes_of(reply), std::span(&fd, 1)) == 0;
}

bool is_power_of_two(uint64_t n) { return n != 0 && (n & (n - 1)) == 0; }

// Under a limit the program's own mappings come first (setrlimit(2)).
bool is_space_limited() {
  rlimit space{};
  return getrlimit(RLIMIT_AS, &space) != 0 || space.rlim_cur != RLIM_INFINITY;
}

void keep_to_this_process(void* memory, uint64_t size) {
  advise_kernel(memory, size, MADV_DONTDUMP);
  advise_kernel(memory, size, MADV_DONTFORK);
}

constexpr uint64_t kMost = uint64_t{1} << 47;  // bytes
constexpr uint64_t kHugePage = 2 * 1024 * 1024;

// Not by the program's mmap(3), as in PeerSegment::map().
void* map_at(void* at, uint64_t size, int protection, int flags, int fd, uint64_t offset) {
  return reinterpret_cast<void*>(
      syscall(SYS_mmap, at, size, protection, flags, fd, static_cast<long>(offset)));
}

// Where pages of the file that are huge (transparent_hugepage) are so in this mapping, too: at an address as
// far behind a huge page's beginning as `offset` is.
void* map_alike(uint64_t size, int protection, int fd, uint64_t offset) {
  const uint64_t space = size + kHugePage;
  void* const all = map_at(nullptr, space, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (all == MAP_FAILED) return MAP_FAILED;
  auto* const first = static_cast<std::byte*>(all);
  const uint64_t before = (offset - reinterpret_cast<uint64_t>(all)) % kHugePage;
  void* const memory = map_at(first + before, size, protection, MAP_SHARED | MAP_FIXED, fd, offset);
  if (memory == MAP_FAILED) {
    const int error = errno;
    syscall(SYS_munmap, all, space);
    errno = error;
    return MAP_FAILED;
  }
  if (before != 0) syscall(SYS_munmap, all, before);
  if (before != kHugePage) syscall(SYS_munmap, first + before + size, kHugePage - before);
  return memory;
}

// `ipc_namespace`: the owner's.
int attach_segment(int ipc_namespace, const RegionReply& reply, MappedFile* out) {
  struct stat theirs, ours;
  if (fstat(ipc_namespace, &theirs) != 0 || stat(kIpcNamespace, &ours) != 0) return errno;
  if (theirs.st_dev != ours.st_dev || theirs.st_ino != ours.st_ino || reply.segment - 1 > INT_MAX ||
      reply.length == 0 || reply.length > kMost || reply.offset > kMost)
    return EPROTO;
  const int segment = static_cast<int>(reply.segment - 1);
  bool writable = reply.writable != 0;
  void* memory = shmat(segment, nullptr, writable ? 0 : SHM_RDONLY);
  if (memory == reinterpret_cast<void*>(-1) && writable) {
    writable = false;
    memory = shmat(segment, nullptr, SHM_RDONLY);
  }
  if (memory == reinterpret_cast<void*>(-1)) return errno;
  *out = {memory,   0,   static_cast<std::byte*>(memory) + reply.offset, reply.address, reply.length,
          writable, true};
  shmid_ds status{};
  if (shmctl(segment, IPC_STAT, &status) != 0 || reply.offset + reply.length > status.shm_segsz) {
    unmap(*out);
    *out = {};
    return EPROTO;
  }
  out->mapping_size = status.shm_segsz;
  keep_to_this_process(memory, status.shm_segsz);
  return 0;
}

int map_file(int fd, const RegionReply& reply, MappedFile* out) {
  if (is_space_limited()) return ENOMEM;
  if (reply.segment != 0) return attach_segment(fd, reply, out);
  struct stat status;
  if (fstat(fd, &status) != 0) return errno;
  if (!S_ISREG(status.st_mode) || status.st_dev != reply.device || status.st_ino != reply.inode)
    return EPROTO;
  const uint64_t unit = reply.alignment;
  if (!is_power_of_two(unit) || unit < static_cast<uint64_t>(sysconf(_SC_PAGESIZE)) || unit > kMost ||
      reply.length == 0 || reply.length > kMost || reply.offset > kMost)
    return EPROTO;
  const uint64_t begin = reply.offset & ~(unit - 1);
  const uint64_t size = (reply.offset + reply.length - begin + unit - 1) & ~(unit - 1);
  bool writable = reply.writable != 0;
  const auto map = [&] {
    const int protection = writable ? PROT_READ | PROT_WRITE : PROT_READ;
    // Files of huge pages have them anywhere.
    return size >= kHugePage && unit < kHugePage ? map_alike(size, protection, fd, begin)
                                                 : map_at(nullptr, size, protection, MAP_SHARED, fd, begin);
  };
  void* memory = map();
  if (memory == MAP_FAILED && writable) {  // sealed against further writers, for example
    writable = false;
    memory = map();
  }
  if (memory == MAP_FAILED) return errno;
  keep_to_this_process(memory, size);
  *out = {memory,        size,         static_cast<std::byte*>(memory) + (reply.offset - begin),
          reply.address, reply.length, writable,
          false};
  return 0;
}

}  // namespace

void unmap(const MappedFile& file) {
  if (file.mapping == nullptr) return;
  if (file.is_segment)
    shmdt(file.mapping);
  else
    munmap(file.mapping, file.mapping_size);
}

bool pass_region(const ServiceCall& call, const SharedFile& file, RegionReply reply) {
  reply.device = file.device;
  reply.inode = file.inode;
  reply.offset = file.offset;
  if (is_segment(file)) {
    bool sent = false;
    reply.segment = file.inode + 1;  // the kernel, ipc/shm.c: newseg()
    with_own_descriptors([&] {
      const Descriptor name_space{
          static_cast<int>(syscall(SYS_openat, AT_FDCWD, kIpcNamespace, O_RDONLY | O_CLOEXEC, 0))};
      sent = name_space.fd >= 0 && send_with(call, name_space.fd, reply);
    });
    return sent;
  }
  const bool writable = reply.writable != 0;
  // Sending a descriptor opens and closes nothing here.
  if (const int fd = find_open_descriptor(file, writable); fd >= 0) return send_with(call, fd, reply);
  bool sent = false;
  with_own_descriptors([&] {
    const int fd = open_shared_file(file, writable);
    sent = fd >= 0 && send_with(call, fd, reply);
  });
  return sent;
}

int RegionRequest::begin(const SlotAddress& owner, const RegionQuery& query) {
  return call_service(owner, ServiceNumber::kRegion, bytes_of(query), &connection_);
}

int RegionRequest::take(MappedFile* out) const {
  pollfd readable{connection_.fd(), POLLIN, 0};
  if (poll(&readable, 1, 0) == 0) return EAGAIN;
  int error = EAGAIN;
  const bool called = with_own_descriptors([&] {
    RegionReply reply{};
    Descriptor passed;
    const ssize_t got = connection_.receive({reinterpret_cast<uint8_t*>(&reply), sizeof reply}, {&passed, 1});
    if (got == sizeof reply && passed.fd >= 0)
      error = map_file(passed.fd, reply, out);
    else
      error = got == -EAGAIN ? EAGAIN : ENXIO;
  });
  return called ? error : EPERM;
}

}  // namespace verbena
