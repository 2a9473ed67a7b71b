// SPDX-License-Identifier: BSD-2-Clause
//
// The functions behind the hooks. Each is the next definition in the search order after this library's. It
// belongs to libc or to another interposer, such as ASan or a second preloaded library.
//
// The constructor looks up all of them. A hook may be called before that, by the constructor of another
// library or by an allocator that opens files. Such a call looks up its own function. If libc does not
// have the function, the call fails with ENOSYS.
#pragma once

#include <dirent.h>
#include <errno.h>
#include <glob.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/types.h>

#include <atomic>
#include <type_traits>

namespace verbena {

// Sets errno and returns what a libc function returns on failure: -1 or a null pointer.
template <typename Result>
Result failed(int error) {
  errno = error;
  if constexpr (std::is_pointer_v<Result>)
    return nullptr;
  else
    return static_cast<Result>(-1);
}

// dlsym(RTLD_NEXT, name) from this library. Preserves errno. nullptr: there is no definition.
void* next_definition(const char* name);

// The same for the definition with that version.
void* next_definition(const char* name, const char* version);

template <typename Function>
class Real {
 public:
  constexpr explicit Real(const char* name) : name_(name) {}

  template <typename... Arguments>
  auto operator()(Arguments... arguments) {
    Function* function = function_.load(std::memory_order_acquire);
    if (function == nullptr) function = find();
    using Result = decltype(function(arguments...));
    if (function == nullptr) return failed<Result>(ENOSYS);
    return function(arguments...);
  }

  // False until it has been looked up for the first time.
  bool is_known() const { return function_.load(std::memory_order_acquire) != nullptr; }
  bool exists() { return function_.load(std::memory_order_acquire) != nullptr || find() != nullptr; }
  Function* find() { return note(next_definition(name_)); }
  // That with the version comes before the others, if there is one.
  void find(const char* version) { note(next_definition(name_, version)); }

 private:
  Function* note(void* definition) {
    Function* const function = reinterpret_cast<Function*>(definition);
    if (function != nullptr) function_.store(function, std::memory_order_release);
    return function;
  }

  const char* name_;
  std::atomic<Function*> function_{nullptr};
};

using Filter = int(const dirent*);
using Order = int(const dirent**, const dirent**);
using Filter64 = int(const dirent64*);
using Order64 = int(const dirent64**, const dirent64**);
using GlobError = int(const char*, int);

// X(name, type). The type comes last, because it may contain commas.
#define VERBENA_REAL_FUNCTIONS(X)                                                    \
  X(open, int(const char*, int, ...))                                                \
  X(open64, int(const char*, int, ...))                                              \
  X(__open_2, int(const char*, int))                                                 \
  X(__open64_2, int(const char*, int))                                               \
  X(openat, int(int, const char*, int, ...))                                         \
  X(openat64, int(int, const char*, int, ...))                                       \
  X(__openat_2, int(int, const char*, int))                                          \
  X(__openat64_2, int(int, const char*, int))                                        \
  X(creat, int(const char*, mode_t))                                                 \
  X(creat64, int(const char*, mode_t))                                               \
  X(fopen, FILE*(const char*, const char*))                                          \
  X(fopen64, FILE*(const char*, const char*))                                        \
  X(freopen, FILE*(const char*, const char*, FILE*))                                 \
  X(freopen64, FILE*(const char*, const char*, FILE*))                               \
  X(stat, int(const char*, struct stat*))                                            \
  X(stat64, int(const char*, struct stat64*))                                        \
  X(lstat, int(const char*, struct stat*))                                           \
  X(lstat64, int(const char*, struct stat64*))                                       \
  X(fstatat, int(int, const char*, struct stat*, int))                               \
  X(fstatat64, int(int, const char*, struct stat64*, int))                           \
  X(fstat, int(int, struct stat*))                                                   \
  X(fstat64, int(int, struct stat64*))                                               \
  X(__fxstat, int(int, int, struct stat*))                                           \
  X(__fxstat64, int(int, int, struct stat64*))                                       \
  X(__xstat, int(int, const char*, struct stat*))                                    \
  X(__xstat64, int(int, const char*, struct stat64*))                                \
  X(__lxstat, int(int, const char*, struct stat*))                                   \
  X(__lxstat64, int(int, const char*, struct stat64*))                               \
  X(__fxstatat, int(int, int, const char*, struct stat*, int))                       \
  X(__fxstatat64, int(int, int, const char*, struct stat64*, int))                   \
  X(statx, int(int, const char*, int, unsigned, struct statx*))                      \
  X(access, int(const char*, int))                                                   \
  X(faccessat, int(int, const char*, int, int))                                      \
  X(euidaccess, int(const char*, int))                                               \
  X(eaccess, int(const char*, int))                                                  \
  X(readlink, ssize_t(const char*, char*, size_t))                                   \
  X(readlinkat, ssize_t(int, const char*, char*, size_t))                            \
  X(__readlink_chk, ssize_t(const char*, char*, size_t, size_t))                     \
  X(__readlinkat_chk, ssize_t(int, const char*, char*, size_t, size_t))              \
  X(realpath, char*(const char*, char*))                                             \
  X(__realpath_chk, char*(const char*, char*, size_t))                               \
  X(canonicalize_file_name, char*(const char*))                                      \
  X(getxattr, ssize_t(const char*, const char*, void*, size_t))                      \
  X(lgetxattr, ssize_t(const char*, const char*, void*, size_t))                     \
  X(listxattr, ssize_t(const char*, char*, size_t))                                  \
  X(llistxattr, ssize_t(const char*, char*, size_t))                                 \
  X(opendir, DIR*(const char*))                                                      \
  X(readdir, dirent*(DIR*))                                                          \
  X(readdir64, dirent64*(DIR*))                                                      \
  X(chdir, int(const char*))                                                         \
  X(scandir, int(const char*, dirent***, Filter*, Order*))                           \
  X(scandir64, int(const char*, dirent64***, Filter64*, Order64*))                   \
  X(scandirat, int(int, const char*, dirent***, Filter*, Order*))                    \
  X(scandirat64, int(int, const char*, dirent64***, Filter64*, Order64*))            \
  X(glob, int(const char*, int, GlobError*, glob_t*))                                \
  X(glob64, int(const char*, int, GlobError*, glob64_t*))                            \
  X(write, ssize_t(int, const void*, size_t))                                        \
  X(ioctl, int(int, unsigned long, ...))                                             \
  X(dup, int(int))                                                                   \
  X(dup2, int(int, int))                                                             \
  X(dup3, int(int, int, int))                                                        \
  X(fcntl, int(int, int, ...))                                                       \
  X(fcntl64, int(int, int, ...))                                                     \
  X(socket, int(int, int, int))                                                      \
  X(connect, int(int, const sockaddr*, socklen_t))                                   \
  X(getsockopt, int(int, int, int, void*, socklen_t*))                               \
  X(send, ssize_t(int, const void*, size_t, int))                                    \
  X(sendto, ssize_t(int, const void*, size_t, int, const sockaddr*, socklen_t))      \
  X(sendmsg, ssize_t(int, const msghdr*, int))                                       \
  X(read, ssize_t(int, void*, size_t))                                               \
  X(__read_chk, ssize_t(int, void*, size_t, size_t))                                 \
  X(recv, ssize_t(int, void*, size_t, int))                                          \
  X(__recv_chk, ssize_t(int, void*, size_t, size_t, int))                            \
  X(recvfrom, ssize_t(int, void*, size_t, int, sockaddr*, socklen_t*))               \
  X(__recvfrom_chk, ssize_t(int, void*, size_t, size_t, int, sockaddr*, socklen_t*)) \
  X(recvmsg, ssize_t(int, msghdr*, int))                                             \
  X(mmap, void*(void*, size_t, int, int, int, off_t))                                \
  X(mmap64, void*(void*, size_t, int, int, int, off64_t))                            \
  X(munmap, int(void*, size_t))                                                      \
  X(mremap, void*(void*, size_t, size_t, int, ...))                                  \
  X(shmat, void*(int, const void*, int))                                             \
  X(mprotect, int(void*, size_t, int))                                               \
  X(madvise, int(void*, size_t, int))                                                \
  X(sigaction, int(int, const struct sigaction*, struct sigaction*))                 \
  X(signal, sighandler_t(int, sighandler_t))                                         \
  X(__sysv_signal, sighandler_t(int, sighandler_t))                                  \
  X(sigprocmask, int(int, const sigset_t*, sigset_t*))                               \
  X(pthread_sigmask, int(int, const sigset_t*, sigset_t*))

#define VERBENA_DECLARE_REAL(name, ...) extern Real<__VA_ARGS__> real_##name;
VERBENA_REAL_FUNCTIONS(VERBENA_DECLARE_REAL)
#undef VERBENA_DECLARE_REAL

}  // namespace verbena

// Marks what the library exports: the hooks and the functions of claim.h, and nothing else.
#define VERBENA_HOOK extern "C" __attribute__((visibility("default")))

// VERBENA_HOOK_OF_CALLS(int, munmap, (void* address, size_t length)) { … }: a hook that the program's
// own calls meet, but not dlsym(3).
//
// UCX (src/ucm/util/reloc.h), libfabric (util_mem_hooks.c) and Open MPI (mca/patcher) look munmap(2) and its
// like up with dlsym and write a jump over what they find, to learn of memory that goes away. That has to be
// libc's function, whose own callers, such as free(3), do not come here; and a jump over a hook would end the
// hook. So the symbol has the version that linkers bind calls to, as a version that is not the default: dlsym
// does not accept such a definition (glibc, elf/dl-lookup.c, check_match), and goes on to libc's.
#ifndef VERBENA_LIBC_VERSION
#define VERBENA_HOOK_OF_CALLS(Result, name, ...) VERBENA_HOOK Result name __VA_ARGS__ noexcept
#elif __has_attribute(symver)
#define VERBENA_HOOK_OF_CALLS(Result, name, ...)                       \
  VERBENA_HOOK __attribute__((symver(#name "@" VERBENA_LIBC_VERSION))) \
  Result called_##name __VA_ARGS__ noexcept
#else
#define VERBENA_HOOK_OF_CALLS(Result, name, ...)                        \
  __asm__(".symver called_" #name ", " #name "@" VERBENA_LIBC_VERSION); \
  VERBENA_HOOK __attribute__((used)) Result called_##name __VA_ARGS__ noexcept
#endif
