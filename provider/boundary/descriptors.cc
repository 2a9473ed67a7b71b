// SPDX-License-Identifier: BSD-2-Clause
#include "boundary/descriptors.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

#include "boundary/kernel.h"
#include "boundary/placeholder_file.h"

namespace verbena {
namespace {

// Indexed by descriptor number, modulo kWords. If two numbers share a word, the later entry replaces the
// other.
constexpr uint32_t kWords = 32768;
constexpr uint32_t kEntries = 4096;
constexpr int kMarks = 64;  // Linux has the signals 1 to 64

// A descriptor number, its entry, and the entry's generation. Packed as 0: no device file.
struct Word {
  int fd;
  uint32_t entry;       // 12 bits
  uint32_t generation;  // 20 bits, never 0

  static Word unpack(uint64_t bits) {
    return {static_cast<int>(bits >> 32), static_cast<uint32_t>(bits >> 20) & 0xfff,
            static_cast<uint32_t>(bits) & 0xfffff};
  }
  uint64_t pack() const {
    return uint64_t{static_cast<uint32_t>(fd)} << 32 | uint64_t{entry} << 20 | generation;
  }
};
static_assert(kEntries <= 1 << 12);

enum class EntryState : uint32_t {
  kFree = 0,
  kFresh = 1,  // taken, but perhaps not in a word yet: sweep() skips it
  kLive = 2,
};

struct Entry {
  std::atomic<uint32_t> life;  // copies made (10 bits, wraps) | generation (20 bits) | EntryState (2 bits)
  std::atomic<int32_t> mark;
  std::atomic<decltype(verbena_boundary_handler::write)> write;  // nullptr: not claimed
  std::atomic<decltype(verbena_boundary_handler::control)> control;
  std::atomic<decltype(verbena_boundary_handler::resume)> resume;
  std::atomic<void*> owner;
  std::atomic<uint64_t> pipe;  // inode of the pipe; 0: the file is the placeholder, not a pipe
};

constexpr uint32_t life_of(uint32_t generation, EntryState state) {
  return generation << 2 | static_cast<uint32_t>(state);
}
EntryState state_of(uint32_t life) { return static_cast<EntryState>(life & 3); }
uint32_t generation_of(uint32_t life) { return life >> 2 & 0xfffff; }
constexpr uint32_t kOneCopy = 1u << 22;
bool is_alive(uint32_t life, uint32_t generation) {
  return generation_of(life) == generation && state_of(life) != EntryState::kFree;
}

struct Table {
  // The process that these descriptors belong to. 0 in a forked child until it opens a device file.
  std::atomic<int32_t> process;
  std::atomic<uint32_t> next_entry;
  std::atomic<uint64_t> words[kWords];
  Entry entries[kEntries];
};

// Never unmapped, because another thread may be reading it at any time.
constinit std::atomic<Table*> the_table{nullptr};

std::atomic<uint64_t>& word_of(Table& table, int fd) {
  return table.words[static_cast<uint32_t>(fd) % kWords];
}

// Does the table belong to the calling process? Not in a vfork child, which shares the memory of its parent.
bool is_own_table(Table& table) {
  const int self = kernel::process_id();
  int owner = table.process.load(std::memory_order_acquire);
  if (owner == 0 && table.process.compare_exchange_strong(owner, self)) return true;
  return owner == self;
}

bool is_placeholder(int fd) {
  struct stat status;
  return kernel::status(fd, &status) == 0 && S_ISCHR(status.st_mode) &&
         major(status.st_rdev) == kPlaceholderMajor && minor(status.st_rdev) == kPlaceholderMinor;
}

// The inode of the pipe that `fd` is an end of. 0: `fd` is not a pipe.
uint64_t pipe_inode(int fd) {
  struct stat status;
  return kernel::status(fd, &status) == 0 && S_ISFIFO(status.st_mode) ? status.st_ino : 0;
}

bool set_mark(int fd, int mark, int self) {
  return kernel::control(fd, F_SETOWN, self) == 0 && kernel::control(fd, F_SETSIG, mark) == 0;
}

bool carries_mark(int fd, int mark, int self) {
  return kernel::control(fd, F_GETSIG) == mark && kernel::control(fd, F_GETOWN) == self;
}

// Returns the entry that `word` names, or nullptr if the descriptor is no longer that file. Call it only if
// is_own_table().
Entry* verify(Table& table, Word word) {
  Entry& entry = table.entries[word.entry];
  const int mark = entry.mark.load(std::memory_order_relaxed);
  if (!is_alive(entry.life.load(std::memory_order_acquire), word.generation)) return nullptr;
  if (const uint64_t pipe = entry.pipe.load(std::memory_order_relaxed); pipe != 0)
    return pipe_inode(word.fd) == pipe ? &entry : nullptr;
  const int self = table.process.load(std::memory_order_relaxed);
  return is_placeholder(word.fd) && carries_mark(word.fd, mark, self) ? &entry : nullptr;
}

// Looks at kSwept entries from `first` on, and frees those that no descriptor uses any more. Needed only
// when no entry is free: the boundary does not see close(2), so a closed descriptor keeps its entry.
//
// Other threads may enter and copy descriptors, and sweep, at the same time. An entry that they put into a
// word after the word was read must not be freed. Entering and copying both change `life`, so an entry is
// freed only if its `life` has not changed since before the words were read.
//
// The number of entries is small, because this may run on the small stack of a signal handler. Returns
// false if all of them are in use.
constexpr uint32_t kSwept = 256;

bool sweep(Table& table, uint32_t first) {
  uint32_t before[kSwept];
  for (uint32_t i = 0; i < kSwept; ++i)
    before[i] = table.entries[first + i].life.load(std::memory_order_acquire);
  uint64_t used[kSwept / 64] = {};
  for (std::atomic<uint64_t>& slot : table.words) {
    uint64_t bits = slot.load(std::memory_order_acquire);
    const Word word = Word::unpack(bits);
    const uint32_t i = word.entry - first;
    if (bits == 0 || i >= kSwept) continue;
    if (verify(table, word) != nullptr)
      used[i / 64] |= uint64_t{1} << i % 64;
    else
      slot.compare_exchange_strong(bits, 0);
  }
  bool any_unused = false;
  for (uint32_t i = 0; i < kSwept; ++i) {
    if (state_of(before[i]) == EntryState::kFresh || (used[i / 64] >> i % 64 & 1) != 0) continue;
    any_unused = true;
    if (state_of(before[i]) == EntryState::kLive)
      table.entries[first + i].life.compare_exchange_strong(
          before[i], life_of(generation_of(before[i]), EntryState::kFree));
  }
  return any_unused;
}

// Takes a free entry, which becomes kFresh, and returns it with its index and its new generation. nullptr:
// none is free.
Entry* take_free_entry(Table& table, uint32_t* index, uint32_t* generation) {
  const uint32_t start = table.next_entry.fetch_add(1, std::memory_order_relaxed);
  for (uint32_t i = 0; i < kEntries; ++i) {
    *index = (start + i) % kEntries;
    Entry& entry = table.entries[*index];
    uint32_t life = entry.life.load(std::memory_order_acquire);
    if (state_of(life) != EntryState::kFree) continue;
    *generation = (generation_of(life) + 1) & 0xfffff;
    if (*generation == 0) *generation = 1;
    if (entry.life.compare_exchange_strong(life, life_of(*generation, EntryState::kFresh))) return &entry;
  }
  return nullptr;
}

// Enters `fd` as a device file.
// - `mark`: the mark that the file has already; 0: none, a new one is set unless the file is a pipe.
// - `handler`: nullptr: not claimed yet.
// - `pipe`: the inode that identifies a pipe; 0: the file is not a pipe, the mark identifies it.
// False: all entries are in use, or the mark cannot be set.
bool enter(Table& table, int fd, int mark, const verbena_boundary_handler* handler, uint64_t pipe = 0) {
  uint32_t index;
  uint32_t generation;
  Entry* entry = take_free_entry(table, &index, &generation);
  // Repeat while a sweep finds unused entries: other threads may take the entries that it frees.
  for (bool any_unused = true; entry == nullptr && any_unused;) {
    any_unused = false;
    for (uint32_t first = 0; first < kEntries && entry == nullptr; first += kSwept) {
      any_unused |= sweep(table, first);
      entry = take_free_entry(table, &index, &generation);
    }
  }
  if (entry == nullptr) return false;
  if (mark == 0 && pipe == 0) {
    mark = 1 + static_cast<int>((index + generation) % kMarks);
    if (!set_mark(fd, mark, table.process.load(std::memory_order_relaxed))) {
      entry->life.store(life_of(generation, EntryState::kFree), std::memory_order_release);
      return false;
    }
  }
  entry->mark.store(mark, std::memory_order_relaxed);
  entry->pipe.store(pipe, std::memory_order_relaxed);
  entry->owner.store(handler != nullptr ? handler->owner : nullptr, std::memory_order_relaxed);
  entry->control.store(handler != nullptr ? handler->control : nullptr, std::memory_order_relaxed);
  entry->resume.store(handler != nullptr ? handler->resume : nullptr, std::memory_order_relaxed);
  entry->write.store(handler != nullptr ? handler->write : nullptr, std::memory_order_relaxed);
  word_of(table, fd).store(Word{fd, index, generation}.pack(), std::memory_order_release);
  entry->life.store(life_of(generation, EntryState::kLive), std::memory_order_release);
  return true;
}

// The packed word of `fd`. 0: `fd` is not in the table.
uint64_t load_word(Table* table, int fd) {
  if (table == nullptr || fd < 0) return 0;
  const uint64_t bits = word_of(*table, fd).load(std::memory_order_acquire);
  return bits != 0 && Word::unpack(bits).fd == fd ? bits : 0;
}

// The verified entry of the word `bits` of `fd`, or nullptr. A word that is no longer true is removed, unless
// another thread has replaced it meanwhile.
Entry* find_entry(Table& table, int fd, uint64_t bits) {
  if (bits == 0 || !is_own_table(table)) return nullptr;
  Entry* entry = verify(table, Word::unpack(bits));
  if (entry == nullptr) word_of(table, fd).compare_exchange_strong(bits, 0);
  return entry;
}

}  // namespace

void prepare_descriptors() {
  void* memory = mmap(nullptr, sizeof(Table), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return;
  // Not by the function, a hook: it is not the program that advises. If refused, forked children cannot use
  // the table.
  syscall(SYS_madvise, memory, sizeof(Table), MADV_WIPEONFORK);
  Table* table = static_cast<Table*>(memory);
  table->process.store(kernel::process_id(), std::memory_order_relaxed);
  the_table.store(table, std::memory_order_release);
}

void adopt_descriptor(int fd) {
  Table* table = the_table.load(std::memory_order_acquire);
  if (table != nullptr && is_own_table(*table)) enter(*table, fd, 0, nullptr);
}

bool adopt_pipe(int fd, const verbena_boundary_handler& handler) {
  const uint64_t pipe = pipe_inode(fd);
  return pipe != 0 && may_adopt() && enter(*the_table.load(std::memory_order_acquire), fd, 0, &handler, pipe);
}

bool may_adopt() {
  Table* table = the_table.load(std::memory_order_acquire);
  return table != nullptr && is_own_table(*table);
}

bool is_pipe_of_device(int fd) {
  Table* table = the_table.load(std::memory_order_acquire);
  const Entry* entry = nullptr;
  if (const uint64_t bits = load_word(table, fd); bits != 0) entry = find_entry(*table, fd, bits);
  return entry != nullptr && entry->pipe.load(std::memory_order_relaxed) != 0;
}

void inherit_descriptor(int fd, int copy) {
  if (fd == copy) return;
  Table* table = the_table.load(std::memory_order_acquire);
  const uint64_t bits = load_word(table, fd);
  if (bits == 0) return;
  Entry* entry = find_entry(*table, fd, bits);
  if (entry == nullptr) return;
  Word word = Word::unpack(bits);
  word.fd = copy;
  word_of(*table, copy).store(word.pack(), std::memory_order_release);
  // A sweep may have read the word of `copy` before it was stored.
  entry->life.fetch_add(kOneCopy, std::memory_order_acq_rel);
}

bool may_be_device(int fd) { return load_word(the_table.load(std::memory_order_acquire), fd) != 0; }

bool find_handler(int fd, verbena_boundary_handler* out) {
  Table* table = the_table.load(std::memory_order_acquire);
  const uint64_t bits = load_word(table, fd);
  if (bits == 0) return false;
  Entry* entry = find_entry(*table, fd, bits);
  if (entry == nullptr) return false;
  out->write = entry->write.load(std::memory_order_acquire);
  out->control = entry->control.load(std::memory_order_acquire);
  out->resume = entry->resume.load(std::memory_order_acquire);
  out->owner = entry->owner.load(std::memory_order_acquire);
  // The generation is still the same, so the functions and the owner belong together.
  return out->write != nullptr &&
         is_alive(entry->life.load(std::memory_order_acquire), Word::unpack(bits).generation);
}

int claim_descriptor(int fd, const verbena_boundary_handler& handler) {
  Table* table = the_table.load(std::memory_order_acquire);
  const uint64_t bits = load_word(table, fd);
  Entry* entry = bits != 0 ? find_entry(*table, fd, bits) : nullptr;
  if (entry == nullptr) return EBADF;
  if (entry->write.load(std::memory_order_acquire) != nullptr)
    return enter(*table, fd, entry->mark.load(std::memory_order_relaxed), &handler) ? 0 : ENOMEM;
  entry->owner.store(handler.owner, std::memory_order_relaxed);
  entry->control.store(handler.control, std::memory_order_relaxed);
  entry->resume.store(handler.resume, std::memory_order_relaxed);
  entry->write.store(handler.write, std::memory_order_release);
  return 0;
}

void release_descriptor(int fd) {
  Table* table = the_table.load(std::memory_order_acquire);
  const uint64_t bits = load_word(table, fd);
  if (bits == 0 || !is_own_table(*table)) return;
  const Word word = Word::unpack(bits);
  Entry& entry = table->entries[word.entry];
  if (is_alive(entry.life.load(std::memory_order_acquire), word.generation))
    entry.write.store(nullptr, std::memory_order_release);
}

}  // namespace verbena
