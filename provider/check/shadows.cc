// SPDX-License-Identifier: BSD-2-Clause
#include "check/shadows.h"

#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <bit>

#include "check/operations.h"

namespace verbena::check {
namespace {

constexpr uint64_t kShortest = 4096;      // bytes of a receive: below that it has no whole page
constexpr uint64_t kLongest = 1 << 20;    // of a receive
constexpr uint64_t kMost = 256ull << 20;  // of all shadows
constexpr size_t kMostOfList = 1u << 16;  // receives that are posted at once

std::vector<Shadow*>& shadows() {
  static auto* const all = new std::vector<Shadow*>;
  return *all;
}

uint64_t bytes_of_all = 0;

void unmap(char* bytes, uint64_t size) { munmap(bytes, size); }

// nullptr: there is no memory, or no more regions.
Shadow* make_shadow(ibv_pd* pd, uint64_t size) {
  void* const memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  auto* const bytes = static_cast<char*>(memory);
  ibv_mr* const mr =
      below().reg_mr(pd, memory, size, reinterpret_cast<uintptr_t>(memory), IBV_ACCESS_LOCAL_WRITE);
  if (mr == nullptr) return unmap(bytes, size), nullptr;
  return new Shadow{pd, bytes, size, mr, true, false};
}

Shadow* take_shadow(ibv_pd* pd, uint64_t size) {
  {
    const Locked locked;
    for (Shadow* const each : shadows())
      if (!each->taken && each->pd == pd && each->size == size) {
        each->taken = true;
        each->abandoned = false;
        return each;
      }
    if (kMost - bytes_of_all < size) return nullptr;
    bytes_of_all += size;
  }
  Shadow* const made = make_shadow(pd, size);
  const Locked locked;
  if (made != nullptr)
    shadows().push_back(made);
  else
    bytes_of_all -= size;
  return made;
}

uint64_t bytes_of(const ibv_recv_wr& wr) {
  uint64_t bytes = 0;
  for (int i = 0; i < wr.num_sge && wr.sg_list != nullptr; ++i) bytes += wr.sg_list[i].length;
  return bytes;
}

}  // namespace

std::vector<Shadow*> take_shadows(ibv_pd* pd, const ibv_recv_wr* list) {
  std::vector<Shadow*> taken;
  if (!is_enabled(rule("receive-buffer-read"))) return taken;
  for (const ibv_recv_wr* wr = list; wr != nullptr && taken.size() < kMostOfList; wr = wr->next) {
    const uint64_t bytes = bytes_of(*wr);
    const bool fits = kShortest <= bytes && bytes <= kLongest;
    taken.push_back(fits ? take_shadow(pd, std::bit_ceil(bytes)) : nullptr);
  }
  return taken;
}

void copy_from(const Shadow& shadow, const std::vector<Range>& ranges, uint64_t length) {
  if (shadow.abandoned) return;
  char* from = shadow.bytes;
  length = std::min(length, shadow.size);
  for (const Range& range : ranges) {
    const size_t part = std::min<uint64_t>(range.length, length);
    if (part == 0) return;
    // By a system call: the memory may be gone.
    const iovec local = {from, part};
    const iovec remote = {reinterpret_cast<void*>(range.memory), part};
    process_vm_writev(getpid(), &local, 1, &remote, 1, 0);
    from += part;
    length -= part;
  }
}

void give_back(Shadow* shadow) {
  if (shadow != nullptr) shadow->taken = false;
}

void free_shadows(const ibv_pd* pd) {
  std::vector<Shadow*> ended;
  {
    const Locked locked;
    if (const Object* const domain = find_object(pd); domain == nullptr || is_parents(*domain)) return;
    std::vector<Shadow*>& all = shadows();
    const auto first = std::partition(all.begin(), all.end(),
                                      [&](const Shadow* each) { return each->taken || each->pd != pd; });
    ended.assign(first, all.end());
    all.erase(first, all.end());
    for (const Shadow* const each : ended) bytes_of_all -= each->size;
  }
  for (Shadow* const each : ended) {
    below().dereg_mr(reinterpret_cast<pabi_mr*>(each->mr));
    unmap(each->bytes, each->size);
    delete each;
  }
}

ShadowedList::ShadowedList(ibv_recv_wr* list, const std::vector<Shadow*>& shadows) : list_(list) {
  if (std::all_of(shadows.begin(), shadows.end(), [](const Shadow* each) { return each == nullptr; })) return;
  requests_.reserve(shadows.size());
  sges_.reserve(shadows.size());
  for (const Shadow* const shadow : shadows) {
    ibv_recv_wr wr = *list;
    if (shadow != nullptr) {
      sges_.push_back({reinterpret_cast<uintptr_t>(shadow->bytes), static_cast<uint32_t>(bytes_of(wr)),
                       shadow->mr->lkey});
      wr.sg_list = &sges_.back();
      wr.num_sge = 1;
    }
    requests_.push_back(wr);
    list = list->next;
  }
  for (size_t i = 0; i + 1 < requests_.size(); ++i) requests_[i].next = &requests_[i + 1];
}

ibv_recv_wr* ShadowedList::first() { return requests_.empty() ? list_ : requests_.data(); }

ibv_recv_wr* ShadowedList::original(ibv_recv_wr* wr) const {
  if (requests_.empty() || wr < requests_.data() || wr >= requests_.data() + requests_.size()) return wr;
  ibv_recv_wr* original = list_;
  for (const ibv_recv_wr* each = requests_.data(); each != wr; ++each) original = original->next;
  return original;
}

}  // namespace verbena::check
