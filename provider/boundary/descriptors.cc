// SPDX-License-Identifier: BSD-2-Clause
#include "boundary/descriptors.h"

#include <sys/mman.h>
#include <sys/sysmacros.h>

#include <atomic>
#include <cstdint>

#include "boundary/kernel.h"
#include "boundary/placeholder_file.h"

namespace verbena {
namespace {

constexpr uint32_t kWords =
    32768;  // by descriptor number; numbers that far apart share a word, the later wins
constexpr uint32_t kEntries = 4096;
constexpr int kMarks = 64;  // signal numbers of Linux

// What a descriptor number stands for: the number itself, an entry, and the entry's generation. 0: nothing.
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
  kFresh = 1,  // taken, perhaps not yet in a word: sweep leaves it
  kLive = 2,
};

struct Entry {
  std::atomic<uint32_t> life;  // copies made (10 bits, wrap) | generation (20 bits) | EntryState (2 bits)
  std::atomic<int32_t> mark;
  std::atomic<decltype(verbena_boundary_handler::write)> write;  // nullptr: not claimed
  std::atomic<decltype(verbena_boundary_handler::control)> control;
  std::atomic<decltype(verbena_boundary_handler::resume)> resume;
  std::atomic<void*> owner;
  std::atomic<uint64_t> pipe;  // its inode; 0: the placeholder
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
  std::atomic<int32_t>
      process;  // the process whose descriptors these are; 0 in a forked child until it opens
  std::atomic<uint32_t> next_entry;
  std::atomic<uint64_t> words[kWords];
  Entry entries[kEntries];
};

// Never unmapped: another thread may always be looking.
constinit std::atomic<Table*> the_table{nullptr};

std::atomic<uint64_t>& word_of(Table& table, int fd) {
  return table.words[static_cast<uint32_t>(fd) % kWords];
}

// Do this memory and the descriptors belong together? Not in a vfork child: there the memory is the parent's.
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

// The inode of the pipe that `fd` is an end of; 0: of none.
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

// The entry that `word` names, if the descriptor still is that file. Only if is_own_table().
Entry* verify(Table& table, Word word) {
  Entry& entry = table.entries[word.entry];
  const int mark = entry.mark.load(std::memory_order_relaxed);
  if (!is_alive(entry.life.load(std::memory_order_acquire), word.generation)) return nullptr;
  if (const uint64_t pipe = entry.pipe.load(std::memory_order_relaxed); pipe != 0)
    return pipe_inode(word.fd) == pipe ? &entry : nullptr;
  const int self = table.process.load(std::memory_order_relaxed);
  return is_placeholder(word.fd) && carries_mark(word.fd, mark, self) ? &entry : nullptr;
}

// Frees those of the kSwept entries from `first` on that no descriptor has any more. Only when there are no
// free ones left: an entry is not given back by close(2), which the boundary does not see.
//
// Other threads enter, copy and sweep meanwhile. So an entry is freed only if its life is still the one it
// had before the words were read: one that came into a word behind the reader's back has a later life by
// then, a fresh one's own or a copied one's. Few at a time, as this may run on a signal handler's small
// stack. Returns false when all of them are in use.
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

// A fresh entry, or nullptr. *generation is its new one.
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

// Makes `fd` a device file with this mark and handler; `handler` may be null: not claimed yet. `pipe`: 0, or
// the inode by which it is known instead of a mark.
bool enter(Table& table, int fd, int mark, const verbena_boundary_handler* handler, uint64_t pipe = 0) {
  uint32_t index;
  uint32_t generation;
  Entry* entry = take_free_entry(table, &index, &generation);
  // Once more as long as some were unused: what one sweep frees, others may take.
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

// The word of `fd`, or 0 when it is none of ours.
uint64_t load_word(Table* table, int fd) {
  if (table == nullptr || fd < 0) return 0;
  const uint64_t bits = word_of(*table, fd).load(std::memory_order_acquire);
  return bits != 0 && Word::unpack(bits).fd == fd ? bits : 0;
}

// Finds and verifies; a word that no longer holds is taken out, unless it was replaced meanwhile.
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
  madvise(memory, sizeof(Table), MADV_WIPEONFORK);  // refused: forked children stay without a table
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
  entry->life.fetch_add(kOneCopy, std::memory_order_acq_rel);  // a sweep may have read the copy's word before
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
  // Still the same life, so the two belong together.
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
