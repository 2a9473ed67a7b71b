// SPDX-License-Identifier: BSD-2-Clause
#include "check/protection.h"

#include <errno.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <utility>

#include "check/mappings.h"
#include "check/outstanding.h"

namespace verbena::check {
namespace {

constexpr uintptr_t kPageSize = 4096;

struct Guarded {
  uintptr_t begin;  // whole pages
  uintptr_t end;
  uint64_t serial;
  uint64_t wr_id;
  StackId posted;
  const QueuePair* qp;
  bool is_receive;
};

// What peers may do with memory whose pages this process may not use.
constexpr int kRemoteWrites = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND;
constexpr int kRemoteAccess = kRemoteWrites | IBV_ACCESS_REMOTE_READ;

uintptr_t first_page(const Range& range) { return (range.memory + kPageSize - 1) / kPageSize * kPageSize; }
uintptr_t end_of_pages(const Range& range) { return (range.memory + range.length) / kPageSize * kPageSize; }

std::vector<Guarded>& guarded() {
  static auto* const all = new std::vector<Guarded>;
  return *all;
}

struct Released {
  uintptr_t begin;
  uintptr_t end;
  uint64_t number;  // from 1 on
};

std::array<Released, 16> last_released = {};
uint64_t releases = 0;

std::atomic<bool> any_guarded{false};  // ever

struct sigaction other_handler;

// By the system call: the adapter's hook of mprotect(2) would make memory private that it shares.
bool set_protection(uintptr_t begin, uintptr_t end, int protection) {
  return syscall(SYS_mprotect, begin, end - begin, protection) == 0;
}

bool is_guarded(uintptr_t begin, uintptr_t end) {
  return std::any_of(guarded().begin(), guarded().end(),
                     [&](const Guarded& each) { return each.begin < end && begin < each.end; });
}

// May the program write to all pages of [begin, end), but for the checker? Others stay as they are.
bool is_writable(uintptr_t begin, uintptr_t end) {
  for (const Mapping& each : read_mappings()) {
    if (each.end <= begin) continue;
    if (each.begin > begin) return false;
    const uintptr_t here = std::min(end, each.end);
    for (; begin < here; begin += kPageSize)
      if (!each.is_plain_data() && !is_guarded(begin, begin + kPageSize)) return false;
    if (begin == end) return true;
  }
  return false;
}

// Makes pages of [begin, end) that no entry has any more writable.
void release_pages(uintptr_t begin, uintptr_t end) {
  ++releases;
  last_released[releases % last_released.size()] = {begin, end, releases};
  while (begin < end) {
    uintptr_t free_end = begin;
    while (free_end < end && !is_guarded(free_end, free_end + kPageSize)) free_end += kPageSize;
    if (begin < free_end) set_protection(begin, free_end, PROT_READ | PROT_WRITE);
    begin = free_end + kPageSize;
  }
}

template <typename Matches>
void release(Matches matches) {
  std::vector<Guarded>& all = guarded();
  const auto first =
      std::stable_partition(all.begin(), all.end(), [&](const Guarded& each) { return !matches(each); });
  const std::vector<Guarded> ended(first, all.end());
  all.erase(first, all.end());
  for (const Guarded& each : ended) release_pages(each.begin, each.end);
}

// The frames of the thread that was interrupted: those of the signal are left out.
Stack interrupted_stack() {
  Stack stack = capture_stack();
  if (stack.depth == 0) return stack;
  std::move(stack.frames + 1, stack.frames + stack.depth, stack.frames);
  std::move(stack.functions + 1, stack.functions + stack.depth, stack.functions);
  std::move(stack.ends + 1, stack.ends + stack.depth, stack.ends);
  --stack.depth;
  return stack;
}

// Which of the last releases has made the page writable? 0: none.
uint64_t release_of(uintptr_t page) {
  uint64_t number = 0;
  for (const Released& each : last_released)
    if (each.begin <= page && page < each.end) number = std::max(number, each.number);
  return number;
}

// A fault where nothing is guarded. True: the instruction is to be repeated, since another thread may have
// released the page between the fault and here, by a write of its own or by polling. A page that was not
// released since its last fault in this thread is not the checker's.
bool is_late_fault(uintptr_t address) {
  static thread_local std::pair<uintptr_t, uint64_t> last __attribute__((tls_model("initial-exec")));
  const std::pair<uintptr_t, uint64_t> now = {address, release_of(address / kPageSize * kPageSize)};
  return std::exchange(last, now) != now;
}

void report_access(const Guarded& guarded, uintptr_t address, bool is_write, StackId here) {
  const bool is_read = guarded.is_receive && !is_write;
  report(!guarded.is_receive ? rule("send-buffer-written")
         : is_read           ? rule("receive-buffer-read")
                             : rule("receive-buffer-written"),
         text("%s: 0x%zx, of a %s with wr_id 0x%llx", guarded.qp->name.c_str(), static_cast<size_t>(address),
              guarded.is_receive ? "receive" : "request", static_cast<unsigned long long>(guarded.wr_id)),
         {{is_read ? "read here" : "written here", here}, {"posted here", guarded.posted}});
}

// True: it was one of the guarded pages, which is writable now, or may have been.
bool take_fault(uintptr_t address, bool is_write) {
  const Stack stack = interrupted_stack();
  const Locked locked;
  const auto found = std::find_if(guarded().begin(), guarded().end(), [&](const Guarded& each) {
    return each.begin <= address && address < each.end;
  });
  if (found == guarded().end()) return is_late_fault(address);
  report_access(*found, address, is_write, keep_stack(stack));
  const uintptr_t page = address / kPageSize * kPageSize;
  release([&](const Guarded& each) { return each.begin <= page && page < each.end; });
  return true;
}

// Of a fault: did the instruction write? Elsewhere it is not known, and taken for a read.
bool has_written([[maybe_unused]] const void* context) {
#ifdef __x86_64__
  constexpr greg_t kWrite = 2;  // of the error code (arch/x86/include/asm/trap_pf.h, X86_PF_WRITE)
  return (static_cast<const ucontext_t*>(context)->uc_mcontext.gregs[REG_ERR] & kWrite) != 0;
#else
  return false;
#endif
}

void handle_fault(int signal, siginfo_t* info, void* context) {
  const int error = errno;
  const bool is_known = !is_inside() && info->si_code == SEGV_ACCERR &&
                        take_fault(reinterpret_cast<uintptr_t>(info->si_addr), has_written(context));
  errno = error;
  if (is_known) return;
  if ((other_handler.sa_flags & SA_SIGINFO) != 0) return other_handler.sa_sigaction(signal, info, context);
  if (other_handler.sa_handler != SIG_DFL && other_handler.sa_handler != SIG_IGN)
    return other_handler.sa_handler(signal);
  sigaction(SIGSEGV, &other_handler, nullptr);  // the instruction is repeated
}

void install_handler() {
  static bool installed = false;
  if (installed) return;
  installed = true;
  any_guarded.store(true, std::memory_order_relaxed);
  struct sigaction action = {};
  action.sa_sigaction = handle_fault;
  action.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  sigaction(SIGSEGV, &action, &other_handler);
}

}  // namespace

void protect_buffers(const QueuePair& qp, const Request& request) {
  if (!is_enabled(rule("send-buffer-written")) || request.accused || !reads_memory(request.opcode)) return;
  for (const Range& range : request.ranges) {
    const uintptr_t begin = first_page(range), end = end_of_pages(range);
    if (range.memory == 0 || begin >= end || is_exposed(begin, end, kRemoteWrites) ||
        is_on_stack(begin, end - begin) || may_be_written(begin, end) || !is_writable(begin, end))
      continue;
    install_handler();
    if (set_protection(begin, end, PROT_READ))
      guarded().push_back({begin, end, request.serial, request.wr_id, request.posted, &qp, false});
  }
}

bool protect_receive(const QueuePair& qp, const Request& receive) {
  if (receive.accused) return false;
  for (const Range& range : receive.ranges) {
    const uintptr_t end = range.memory + range.length;
    if (range.memory == 0 || is_exposed(range.memory, end, kRemoteAccess | IBV_ACCESS_ON_DEMAND) ||
        is_on_stack(range.memory, range.length) || find_use_of(range.memory, end) != nullptr ||
        (first_page(range) < end_of_pages(range) && !is_writable(first_page(range), end_of_pages(range))))
      return false;
  }
  install_handler();
  bool any = false;
  for (const Range& range : receive.ranges) {
    const uintptr_t begin = first_page(range), end = end_of_pages(range);
    if (begin >= end || !set_protection(begin, end, PROT_NONE)) continue;
    guarded().push_back({begin, end, receive.serial, receive.wr_id, receive.posted, &qp, true});
    any = true;
  }
  return any;
}

void unprotect_buffers(const Request& request) {
  if (guarded().empty()) return;
  const bool writes = writes_memory(request.opcode);
  for (const Range& range : request.ranges) {
    if (range.memory == 0) continue;
    const uintptr_t end = range.memory + range.length;
    release([&](const Guarded& each) {
      return (writes || each.is_receive) && each.begin < end && range.memory < each.end;
    });
  }
}

void unprotect_memory(uintptr_t begin, uintptr_t end) {
  if (!guarded().empty()) release([&](const Guarded& each) { return each.begin < end && begin < each.end; });
}

bool has_protected() { return any_guarded.load(std::memory_order_relaxed); }

void end_protection(uint64_t serial) {
  if (!guarded().empty()) release([&](const Guarded& each) { return each.serial == serial; });
}

}  // namespace verbena::check
