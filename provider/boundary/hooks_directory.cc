// SPDX-License-Identifier: BSD-2-Clause
#include <dirent.h>
#include <fcntl.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <array>

#include "boundary/provider.h"
#include "boundary/real.h"
#include "boundary/redirect.h"

namespace verbena {
namespace {

// glob(3) reads folders with calls inside libc that no hook sees. With GLOB_ALTDIRFUNC it calls functions
// of its caller instead: here the hooks of this library.
void* open_folder(const char* path) { return opendir(path); }
void close_folder(void* folder) { closedir(static_cast<DIR*>(folder)); }
dirent* next(void* folder) { return readdir(static_cast<DIR*>(folder)); }
dirent64* next64(void* folder) { return readdir64(static_cast<DIR*>(folder)); }

void borrow_functions(glob_t* out) {
  out->gl_readdir = next;
  out->gl_stat = stat;
  out->gl_lstat = lstat;
}

void borrow_functions(glob64_t* out) {
  out->gl_readdir = next64;
  out->gl_stat = stat64;
  out->gl_lstat = lstat64;
}

// In the node's tree, the device files are empty regular files. A program that relies on d_type gets DT_CHR,
// the type that stat(2) returns.
template <typename Entry>
Entry* typed(DIR* folder, Entry* entry) {
  if (entry != nullptr && (entry->d_name[0] == 'u' || entry->d_name[0] == 'r') && has_node() &&
      is_device_name(entry->d_name) && is_device_folder(dirfd(folder)))
    entry->d_type = DT_CHR;
  return entry;
}

// The length of a device's name (verbena0, uverbs1) without its number. 0: not the name of a device, or no
// number.
size_t stem_of(const char* name) {
  if (name[0] != 'v' && name[0] != 'u') return 0;
  const size_t length = strlen(name);
  size_t stem = length;
  while (stem > 0 && name[stem - 1] >= '0' && name[stem - 1] <= '9') --stem;
  return stem < length ? stem : 0;
}

// A class folder lists its devices in the order of their numbers, because many programs use the first
// device. The kernel's sysfs lists devices in the order of their registration. Other file systems differ:
// tmpfs lists the newest first, and ext4 sorts by a hash.
//
// The n-th device that the file system lists is therefore replaced by the device with the n-th smallest
// number. No state is kept between two calls: each call counts the position of its entry again.
template <typename Entry, typename Next>
Entry* in_order(DIR* folder, Entry* entry, Next next_of) {
  if (entry == nullptr || !has_node()) return entry;
  const size_t stem = stem_of(entry->d_name);
  if (stem == 0 || !is_class_folder(dirfd(folder))) return entry;
  const int own = openat(dirfd(folder), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* const all = own >= 0 ? fdopendir(own) : nullptr;
  if (all == nullptr) {
    if (own >= 0) close(own);
    return entry;
  }
  constexpr int kMost = 256;  // more devices than fabric/device_table.h allows
  std::array<ino_t, kMost> inodes{};
  int place = -1, seen = 0;
  while (const Entry* other = next_of(all)) {
    if (stem_of(other->d_name) != stem || strncmp(other->d_name, entry->d_name, stem) != 0) continue;
    const int number = atoi(other->d_name + stem);
    if (number < kMost) inodes[static_cast<size_t>(number)] = static_cast<ino_t>(other->d_ino);
    if (strcmp(other->d_name, entry->d_name) == 0) place = seen;
    ++seen;
  }
  closedir(all);
  for (size_t number = 0; number < inodes.size() && place >= 0; ++number) {
    if (inodes[number] == 0 || place-- != 0) continue;
    snprintf(entry->d_name + stem, sizeof entry->d_name - stem, "%zu", number);
    entry->d_ino = inodes[number];
  }
  return entry;
}

template <typename Function, typename Paths>
int glob_anywhere(Real<Function>& real, const char* pattern, int flags, GlobError* on_error, Paths* out) {
  if ((flags & GLOB_ALTDIRFUNC) != 0 || !may_be_redirected(pattern))
    return real(pattern, flags, on_error, out);
  const Paths before = *out;
  out->gl_opendir = open_folder;
  out->gl_closedir = close_folder;
  borrow_functions(out);
  const int result = real(pattern, flags | GLOB_ALTDIRFUNC, on_error, out);
  out->gl_opendir = before.gl_opendir;
  out->gl_closedir = before.gl_closedir;
  out->gl_readdir = before.gl_readdir;
  out->gl_stat = before.gl_stat;
  out->gl_lstat = before.gl_lstat;
  out->gl_flags &= ~GLOB_ALTDIRFUNC;
  return result;
}

}  // namespace

VERBENA_HOOK DIR* opendir(const char* path) {
  if (may_be_redirected(path)) restore_missing_tree();
  return redirected(AT_FDCWD, path, [&](const char* p) { return real_opendir(p); });
}

VERBENA_HOOK dirent* readdir(DIR* folder) {
  return typed(folder, in_order(folder, real_readdir(folder), [](DIR* all) { return real_readdir(all); }));
}

VERBENA_HOOK dirent64* readdir64(DIR* folder) {
  return typed(folder,
               in_order(folder, real_readdir64(folder), [](DIR* all) { return real_readdir64(all); }));
}

VERBENA_HOOK int chdir(const char* path) noexcept {
  return redirected(AT_FDCWD, path, [&](const char* p) { return real_chdir(p); });
}

VERBENA_HOOK int scandir(const char* path, dirent*** names, Filter* filter, Order* order) {
  return redirected(AT_FDCWD, path, [&](const char* p) { return real_scandir(p, names, filter, order); });
}

VERBENA_HOOK int scandir64(const char* path, dirent64*** names, Filter64* filter, Order64* order) {
  return redirected(AT_FDCWD, path, [&](const char* p) { return real_scandir64(p, names, filter, order); });
}

VERBENA_HOOK int scandirat(int folder, const char* path, dirent*** names, Filter* filter, Order* order) {
  return redirected(folder, path,
                    [&](const char* p) { return real_scandirat(folder, p, names, filter, order); });
}

VERBENA_HOOK int scandirat64(int folder, const char* path, dirent64*** names, Filter64* filter,
                             Order64* order) {
  return redirected(folder, path,
                    [&](const char* p) { return real_scandirat64(folder, p, names, filter, order); });
}

VERBENA_HOOK int glob(const char* pattern, int flags, GlobError* on_error, glob_t* out) noexcept {
  return glob_anywhere(real_glob, pattern, flags, on_error, out);
}

VERBENA_HOOK int glob64(const char* pattern, int flags, GlobError* on_error, glob64_t* out) noexcept {
  return glob_anywhere(real_glob64, pattern, flags, on_error, out);
}

}  // namespace verbena
