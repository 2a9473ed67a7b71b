// SPDX-License-Identifier: BSD-2-Clause
//
// The program's handling of SIGBUS, while the provider has a handler of its own, and what else the provider
// watches (watch.h).
#include <errno.h>
#include <signal.h>

#include <atomic>

#include "boundary/heap_memory.h"
#include "boundary/heap_watcher.h"
#include "boundary/real.h"
#include "boundary/watch.h"

namespace verbena {
namespace {

constinit std::atomic<const verbena_boundary_watcher*> the_watcher{nullptr};

const verbena_boundary_watcher* watcher() { return the_watcher.load(std::memory_order_acquire); }

// signal(2) and its like, as glibc makes them of sigaction(2).
sighandler_t set_handler(const verbena_boundary_watcher& watching, sighandler_t handler, int flags) {
  struct sigaction action {};
  struct sigaction former {};
  action.sa_handler = handler;
  action.sa_flags = flags;
  if ((flags & SA_NODEFER) == 0) sigaddset(&action.sa_mask, SIGBUS);
  if (watching.sigbus_action(&action, &former) != 0) return SIG_ERR;
  return former.sa_handler;
}

int changed(int result) {
  if (const verbena_boundary_watcher* const watching = watcher(); watching != nullptr)
    watching->signal_mask_changed();
  return result;
}

}  // namespace

VERBENA_HOOK int sigaction(int number, const struct sigaction* action, struct sigaction* former) noexcept {
  if (number == SIGBUS)
    if (const verbena_boundary_watcher* const watching = watcher(); watching != nullptr)
      return watching->sigbus_action(action, former);
  return real_sigaction(number, action, former);
}

VERBENA_HOOK sighandler_t signal(int number, sighandler_t handler) noexcept {
  if (number == SIGBUS && handler != SIG_ERR)
    if (const verbena_boundary_watcher* const watching = watcher(); watching != nullptr)
      return set_handler(*watching, handler, SA_RESTART);
  return real_signal(number, handler);
}

VERBENA_HOOK sighandler_t __sysv_signal(int number, sighandler_t handler) noexcept {
  if (number == SIGBUS && handler != SIG_ERR)
    if (const verbena_boundary_watcher* const watching = watcher(); watching != nullptr)
      return set_handler(*watching, handler, static_cast<int>(SA_RESETHAND) | SA_NODEFER);
  return real___sysv_signal(number, handler);
}

VERBENA_HOOK int sigprocmask(int how, const sigset_t* set, sigset_t* former) noexcept {
  return changed(real_sigprocmask(how, set, former));
}

VERBENA_HOOK int pthread_sigmask(int how, const sigset_t* set, sigset_t* former) noexcept {
  return changed(real_pthread_sigmask(how, set, former));
}

HeapChange::HeapChange(const void* address, size_t length)
    : address_(reinterpret_cast<uint64_t>(address)),
      length_(length),
      is_heap_(is_heap_memory(address, length)) {
  if (!is_heap_) [[likely]]
    return;
  if (const verbena_boundary_watcher* const watching = watcher(); watching != nullptr)
    watching->memory_changes(address_, length_);
}

HeapChange::~HeapChange() {
  if (!is_heap_) [[likely]]
    return;
  const int before = errno;
  if (const verbena_boundary_watcher* const watching = watcher(); watching != nullptr)
    watching->memory_changed(address_, length_);
  errno = before;
}

void make_heap_private(const void* address, size_t length) {
  if (!is_heap_memory(address, length)) [[likely]]
    return;
  if (const verbena_boundary_watcher* const watching = watcher(); watching != nullptr)
    watching->memory_leaves(reinterpret_cast<uint64_t>(address), length);
}

}  // namespace verbena

VERBENA_HOOK void verbena_boundary_watch(const verbena_boundary_watcher* watcher) {
  verbena::the_watcher.store(watcher, std::memory_order_release);
}
