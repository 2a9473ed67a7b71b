// SPDX-License-Identifier: BSD-2-Clause
#include "fabric/movable_memory.h"

#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <string>

namespace verbena {
namespace {

// A guard of a thread's stack is no larger (pthread_attr_setguardsize(3)).
constexpr uint64_t kMostGuard = 1024 * 1024;

// Advice that the new mapping is to have as well.
constexpr struct {
  const char* flag;
  int advice;
} kKept[] = {{"dc", MADV_DONTFORK}, {"dd", MADV_DONTDUMP}, {"hg", MADV_HUGEPAGE}, {"nh", MADV_NOHUGEPAGE}};
// A stack that grows, wiped in children, KSM, watched by a userfaultfd, a device's.
constexpr const char* kRefused[] = {"gd", "wf", "mg", "um", "uw", "ui", "io", "pf"};
// Bytes. Writes to a huge page are held back while it is copied, and one is kept spare: not 1 GiB.
constexpr uint64_t kMostHugePage = 32 * 1024 * 1024;

// What libc and the kernel (rseq(2)) keep for this thread lies at its thread pointer: above it on x86, below
// it on aarch64.
bool is_thread_block(const PageRange& range) {
  constexpr uint64_t kSize = 4096;
  const auto pointer = reinterpret_cast<uint64_t>(__builtin_thread_pointer());
#if defined(__x86_64__)
  return overlaps(range, pointer, kSize);
#else
  return overlaps(range, pointer - kSize, 2 * kSize);
#endif
}

// Is the range part of the stack that this thread runs on? `mapping`: what the range is part of, and may be
// other memory as well.
bool is_own_stack(const PageRange& range, const MappedRange& mapping) {
  const auto here = reinterpret_cast<uint64_t>(__builtin_frame_address(0));
  if (here < mapping.begin || here >= mapping.end) return false;
  pthread_attr_t attributes;
  if (pthread_getattr_np(pthread_self(), &attributes) != 0) return true;
  void* lowest = nullptr;
  size_t size = 0;
  const bool known = pthread_attr_getstack(&attributes, &lowest, &size) == 0;
  pthread_attr_destroy(&attributes);
  const PageRange stack{reinterpret_cast<uint64_t>(lowest), reinterpret_cast<uint64_t>(lowest) + size};
  const bool runs_on_it =
      known && stack.begin <= here && here < stack.end;  // or on one of the program's making
  return !runs_on_it || overlaps(range, stack.begin, size);
}

// Is it part of what is probably the stack of a thread, above its guard? The kernel writes there, too (signal
// frames).
bool is_other_stack(const PageRange& range, const MappedRange& mapping, const MappedRange& before) {
  if (before.end != mapping.begin || before.protection != PROT_NONE || before.end - before.begin > kMostGuard)
    return false;
  pthread_attr_t attributes;
  size_t size = 8 * 1024 * 1024;
  if (pthread_getattr_default_np(&attributes) == 0) {
    pthread_attr_getstacksize(&attributes, &size);
    pthread_attr_destroy(&attributes);
  }
  return range.begin < before.begin + size;
}

}  // namespace

bool is_moved(const MappedRange& mapping) {
  static const std::string path = std::string("/memfd:") + kHeapFile;
  return mapping.path.substr(0, path.size()) == path;
}

bool has_flag(const MappedRange& mapping, const char* flag) {
  return mapping.flags.find(std::string(" ") + flag) != std::string_view::npos;
}

bool is_anonymous_huge(const MappedRange& mapping) {
  return !mapping.shared &&
         mapping.path == "/anon_hugepage (deleted)";  // kernel, mm/hugetlb: HUGETLB_ANON_FILE
}

bool needs_page_size(const MappedRange& mapping) {
  static const std::string huge = std::string("/memfd:") + kHeapFile + "-";
  return mapping.page_size == 0 && !mapping.shared &&
         (is_anonymous_huge(mapping) || mapping.path.substr(0, huge.size()) == huge);
}

bool may_move(const PageRange& wanted, const MappedRange& mapping, const MappedRange& before) {
  const bool is_anonymous = mapping.inode == 0 && (mapping.path.empty() || mapping.path == "[heap]" ||
                                                   mapping.path.substr(0, 6) == "[anon:");
  // is_moved(): and made private by a fork.
  if (mapping.shared || (!is_anonymous && !is_anonymous_huge(mapping) && !is_moved(mapping)) ||
      mapping.protection != (PROT_READ | PROT_WRITE))
    return false;
  if (mapping.page_size > kMostHugePage) return false;
  if (std::any_of(std::begin(kRefused), std::end(kRefused),
                  [&](const char* flag) { return has_flag(mapping, flag); }))
    return false;
  return !is_thread_block(wanted) && !is_own_stack(wanted, mapping) &&
         !is_other_stack(wanted, mapping, before);
}

bool is_static(const PageRange& range) {
  PageRange given = range;
  return dl_iterate_phdr(
             [](dl_phdr_info* info, size_t size, void* context) {
               const auto& wanted = *static_cast<const PageRange*>(context);
               for (int i = 0; i < info->dlpi_phnum; ++i) {
                 const auto& part = info->dlpi_phdr[i];
                 if (part.p_type == PT_LOAD && overlaps(wanted, info->dlpi_addr + part.p_vaddr, part.p_memsz))
                   return 1;
                 const bool knows_tls = size >= offsetof(dl_phdr_info, dlpi_tls_data) + sizeof(void*);
                 if (part.p_type == PT_TLS && knows_tls && info->dlpi_tls_data != nullptr &&
                     overlaps(wanted, reinterpret_cast<uint64_t>(info->dlpi_tls_data), part.p_memsz))
                   return 1;
               }
               return 0;
             },
             &given) != 0;
}

Advice advice_of(const MappedRange& range) {
  Advice advice{0, has_flag(range, "lo")};
  for (unsigned i = 0; i < std::size(kKept); ++i)
    if (has_flag(range, kKept[i].flag)) advice.kept |= 1u << i;
  return advice;
}

void advise(const PageRange& range, const Advice& advice) {
  for (unsigned i = 0; i < std::size(kKept); ++i)
    if ((advice.kept >> i & 1) != 0)
      syscall(SYS_madvise, range.begin, range.end - range.begin, kKept[i].advice);
  if (advice.locked) syscall(SYS_mlock, range.begin, range.end - range.begin);
}

namespace {

// What /sys/kernel/mm/transparent_hugepage/enabled has in brackets: 'a'lways, 'm'advise, 'n'ever.
char transparent_pages() {
  char text[64] = "";
  const auto fd = static_cast<int>(
      syscall(SYS_openat, AT_FDCWD, "/sys/kernel/mm/transparent_hugepage/enabled", O_RDONLY | O_CLOEXEC, 0));
  if (fd < 0) return 'n';
  const long got = syscall(SYS_read, fd, text, sizeof text);
  syscall(SYS_close, fd);
  const std::string_view all(text, static_cast<size_t>(std::max(got, 0L)));
  const size_t bracket = all.find('[');
  return bracket == all.npos || bracket + 1 == all.size() ? 'n' : all[bracket + 1];
}

}  // namespace

bool has_transparent_pages(const Advice& advice) {
  const auto has = [&](int wanted) {
    for (unsigned i = 0; i < std::size(kKept); ++i)
      if (kKept[i].advice == wanted) return (advice.kept >> i & 1) != 0;
    return false;
  };
  static const char mode = transparent_pages();
  return mode == 'a' ? !has(MADV_NOHUGEPAGE) : mode == 'm' && has(MADV_HUGEPAGE);
}

}  // namespace verbena
