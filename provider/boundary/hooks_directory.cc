// SPDX-License-Identifier: BSD-2-Clause
#include <dirent.h>
#include <fcntl.h>
#include <glob.h>
#include <unistd.h>

#include "boundary/real.h"
#include "boundary/redirect.h"

namespace verbena {
namespace {

// glob(3) looks into folders by calls inside libc that no hook sees. It lets its caller bring functions of
// his own instead (GLOB_ALTDIRFUNC); they are this library's hooks.
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

// The node has device files by name only; a program that trusts d_type gets the type that stat would tell.
template <typename Entry>
Entry* typed(DIR* folder, Entry* entry) {
  if (entry != nullptr && (entry->d_name[0] == 'u' || entry->d_name[0] == 'r') && has_node() &&
      is_device_name(entry->d_name) && is_device_folder(dirfd(folder)))
    entry->d_type = DT_CHR;
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
  return redirected(AT_FDCWD, path, [&](const char* p) { return real_opendir(p); });
}

VERBENA_HOOK dirent* readdir(DIR* folder) { return typed(folder, real_readdir(folder)); }

VERBENA_HOOK dirent64* readdir64(DIR* folder) { return typed(folder, real_readdir64(folder)); }

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
