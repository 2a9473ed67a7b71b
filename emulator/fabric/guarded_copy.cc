// SPDX-License-Identifier: BSD-2-Clause
#include "fabric/guarded_copy.h"

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <mutex>

#include "fabric/guarded_word.h"
#include "keep_errno.h"
#include "sigbus.h"

// glibc's own name: the program's calls of sigaction() come to a hook (provider/boundary).
extern "C" int __sigaction(int number, const struct sigaction* action, struct sigaction* former);

namespace verbena {
namespace {

// A copy under way in this thread.
struct Copy {
  sigjmp_buf instant;
};
__attribute__((tls_model("initial-exec"))) constinit thread_local Copy* current_copy = nullptr;

// The program's action for SIGBUS, as it believes it to be installed. A new action takes the next place:
// sigaction(2) may be called in signal handlers, so there is no lock.
struct Actions {
  static constexpr unsigned kPlaces = 16;
  struct sigaction place[kPlaces];
  std::atomic<unsigned> taken{0};
  std::atomic<unsigned> last{0};
};
Actions program;
std::atomic<bool> installed{false};

const struct sigaction& program_action() {
  return program.place[program.last.load(std::memory_order_acquire) % Actions::kPlaces];
}

void set_program_action(const struct sigaction& action) {
  const unsigned next = program.taken.fetch_add(1, std::memory_order_relaxed) + 1;
  program.place[next % Actions::kPlaces] = action;
  program.last.store(next, std::memory_order_release);
}

void block(const struct sigaction& action, int number) {
  sigset_t mask = action.sa_mask;
  if ((action.sa_flags & SA_NODEFER) == 0) sigaddset(&mask, number);
  // sigreturn(2) restores the mask.
  syscall(SYS_rt_sigprocmask, SIG_BLOCK, &mask, nullptr, 8);
}

// What the kernel would have done without our handler.
void forward(int number, siginfo_t* info, void* context) {
  const struct sigaction action = program_action();
  const bool sent = info->si_code <= 0;  // by kill(2) and the like, not by a fault
  if (action.sa_handler == SIG_IGN && sent) return;
  if (action.sa_handler == SIG_DFL || action.sa_handler == SIG_IGN) {
    struct sigaction none {};
    none.sa_handler = SIG_DFL;
    __sigaction(number, &none, nullptr);
    // A fault happens again on return, with its address in the core dump.
    if (sent) syscall(SYS_tgkill, getpid(), syscall(SYS_gettid), number);
    return;
  }
  if ((action.sa_flags & SA_RESETHAND) != 0) {
    struct sigaction none {};
    none.sa_handler = SIG_DFL;
    set_program_action(none);
  }
  block(action, number);
  if ((action.sa_flags & SA_SIGINFO) != 0)
    action.sa_sigaction(number, info, context);
  else
    action.sa_handler(number);
}

void on_sigbus(int number, siginfo_t* info, void* context) {
  if (info->si_code > 0 && end_guarded_word(context)) return;
  if (Copy* const copy = current_copy; copy != nullptr && info->si_code > 0) {
    current_copy = nullptr;
    siglongjmp(copy->instant, 1);
  }
  const KeepErrno guard;
  forward(number, info, context);
}

// The flags that matter where the signal does not end a copy are the program's. Not SA_NODEFER: no mask has
// to be restored when the handler leaves a copy, so the signal must not be blocked in it.
int install(const struct sigaction& wanted) {
  struct sigaction ours {};
  ours.sa_sigaction = on_sigbus;
  ours.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK | (wanted.sa_flags & SA_RESTART);
  return __sigaction(SIGBUS, &ours, nullptr);
}

template <typename Word>
void move_word(std::byte* to, const std::byte* from) {
  Word word;
  std::memcpy(&word, from, sizeof word);
  std::atomic_ref(*reinterpret_cast<Word*>(to)).store(word, std::memory_order_release);
}

// Up to 8 bytes, in aligned pieces.
void move_pieces(std::byte* to, const std::byte* from, size_t size) {
  while (size != 0) {
    const uintptr_t place = reinterpret_cast<uintptr_t>(to) | 8;
    const size_t aligned = place & -place;
    const size_t piece = std::min(aligned, size >= 8 ? 8 : size >= 4 ? 4 : size >= 2 ? 2 : size);
    switch (piece) {
      case 8:
        move_word<uint64_t>(to, from);
        break;
      case 4:
        move_word<uint32_t>(to, from);
        break;
      case 2:
        move_word<uint16_t>(to, from);
        break;
      default:
        move_word<uint8_t>(to, from);
    }
    to += piece, from += piece, size -= piece;
  }
}

// `rep movsb` goes byte by byte where the destination seems to begin shortly after the source, modulo 4 KiB
// (engine/responder/placement.cc). memcpy(3) uses it on some processors.
bool seems_to_overlap(const std::byte* to, const std::byte* from) {
  return ((reinterpret_cast<uintptr_t>(to) - reinterpret_cast<uintptr_t>(from)) & 4095) - 1 < 63;
}

void copy_in_order(std::byte* to, const std::byte* from, size_t size) {
  if (const size_t before = -reinterpret_cast<uintptr_t>(to) & 7; before != 0 && size > before) {
    move_pieces(to, from, before);
    to += before, from += before, size -= before;
  }
  if (size > 8) {
    const size_t body = (size - 1) & ~size_t{7};
    if (body >= 64 && !seems_to_overlap(to, from)) {
      std::memcpy(to, from, body);
    } else {
      for (size_t at = 0; at < body; at += 8) move_word<uint64_t>(to + at, from + at);
    }
    to += body, from += body, size -= body;
    std::atomic_thread_fence(std::memory_order_release);
  }
  move_pieces(to, from, size);
}

// Calls `work`; false: SIGBUS ended it. The mask is not saved: the handler does not change it.
template <typename Work>
[[gnu::noinline]] bool guarded(const Work& work) {
  Copy copy;
  if (sigsetjmp(copy.instant, 0) != 0) return false;
  current_copy = &copy;
  std::atomic_signal_fence(std::memory_order_seq_cst);
  work();
  std::atomic_signal_fence(std::memory_order_seq_cst);
  current_copy = nullptr;
  return true;
}

}  // namespace

bool install_copy_guard() {
  static std::mutex mutex;
  std::lock_guard lock(mutex);
  if (installed.load(std::memory_order_relaxed)) return true;
  struct sigaction former;
  if (__sigaction(SIGBUS, nullptr, &former) != 0) return false;
  set_program_action(former);
  if (install(former) != 0) return false;
  installed.store(true, std::memory_order_release);
  return true;
}

bool look_at_sigbus_mask() {
  const KeepErrno guard;
  uint64_t mask = 0;
  const bool known = syscall(SYS_rt_sigprocmask, SIG_BLOCK, nullptr, &mask, sizeof mask) == 0;
  const bool taken = known && (mask >> (SIGBUS - 1) & 1) == 0;
  sigbus_mask = taken ? SigbusMask::kTaken : SigbusMask::kBlocked;
  return taken;
}

bool copy_guarded(void* to, const void* from, size_t size) {
  if constexpr (kHasGuardedWords)
    if (size == sizeof(uint64_t) && reinterpret_cast<uintptr_t>(to) % sizeof(uint64_t) == 0)
      return move_word_guarded(to, from);
  return guarded(
      [=] { copy_in_order(static_cast<std::byte*>(to), static_cast<const std::byte*>(from), size); });
}

bool fetch_add_guarded(uint64_t* word, uint64_t addend, uint64_t* before) {
  if constexpr (kHasGuardedWords) return add_to_word_guarded(word, addend, before);
  return guarded([=] { *before = std::atomic_ref(*word).fetch_add(addend, std::memory_order_acq_rel); });
}

bool compare_and_swap_guarded(uint64_t* word, uint64_t compare, uint64_t swap, uint64_t* before) {
  if constexpr (kHasGuardedWords) return exchange_word_guarded(word, compare, swap, before);
  return guarded([=] {
    uint64_t found = compare;
    std::atomic_ref(*word).compare_exchange_strong(found, swap, std::memory_order_acq_rel);
    *before = found;
  });
}

int exchange_sigbus_action(const struct sigaction* action, struct sigaction* former) {
  if (!installed.load(std::memory_order_acquire)) return __sigaction(SIGBUS, action, former);
  const struct sigaction before = program_action();
  if (action != nullptr) {
    const struct sigaction wanted = *action;
    set_program_action(wanted);
    if (install(wanted) != 0) return -1;
  }
  if (former != nullptr) *former = before;
  return 0;
}

void signal_mask_changed() { sigbus_mask = SigbusMask::kUnknown; }

}  // namespace verbena
