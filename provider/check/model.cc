// SPDX-License-Identifier: BSD-2-Clause
#include "check/model.h"

#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <unordered_map>

namespace verbena::check {
namespace {

// Never destroyed, since other libraries' destructors may still call verbs.
struct Model {
  std::unordered_map<const void*, std::unique_ptr<Object>> objects;
  std::vector<std::unique_ptr<Object>> replaced;  // whose address another object has
  std::vector<Object*> in_order;
  std::map<std::pair<const ibv_device*, uint32_t>, Region*> regions;
  // By the first byte of their memory; of dead ones at most the last at each address.
  std::multimap<uintptr_t, Region*> memory;
  uint64_t longest = 0;  // bytes; of the regions that were ever in `memory`
  // [first, second): all memory that was ever registered. They do not touch each other.
  std::map<uintptr_t, uintptr_t> ever;
  uint64_t pinned = 0;                                        // bytes; of this process's
  bool has_boundless = false;                                 // implicit ODP: a region may be any memory
  std::unordered_multimap<uint32_t, QueuePair*> queue_pairs;  // by number
  pid_t process = getpid();                                   // asked once: it is a system call
  uint64_t serial = 0;
};

Model& model() {
  static auto* const all = new Model;
  return *all;
}

}  // namespace

Object* find_object(const void* handle) {
  const auto found = model().objects.find(handle);
  return found != model().objects.end() ? found->second.get() : nullptr;
}

Object& enter_object(std::unique_ptr<Object> object, const void* handle, const ibv_context* context,
                     const Stack& stack) {
  Model& all = model();
  object->handle = handle;
  object->context = context;
  object->number = all.in_order.size();
  object->process = all.process;
  object->created = keep_stack(stack);
  all.in_order.push_back(object.get());
  std::unique_ptr<Object>& place = all.objects[handle];
  if (place != nullptr) {
    place->alive = false;
    all.replaced.push_back(std::move(place));
  }
  place = std::move(object);
  if (auto* const qp = dynamic_cast<QueuePair*>(place.get()); qp != nullptr)
    all.queue_pairs.emplace(qp->number_of_qp, qp);
  return *place;
}

void end_object(Object& object, StackId where) {
  object.alive = false;
  object.destroyed = where;
  if (object.kind == Kind::kMr && !is_parents(object)) model().pinned -= static_cast<Region&>(object).pinned;
  if (object.said_leak) retract_leak(object.number);
}

Region* find_region(const ibv_context* context, uint32_t lkey) {
  const auto found = model().regions.find({context->device, lkey});
  return found != model().regions.end() ? found->second : nullptr;
}

namespace {

// The bytes of the pages that it touches. On-demand paging pins none.
uint64_t whole_pages(const Region& region) {
  constexpr uint64_t kPage = 4096;
  if (region.memory == 0 || !region.has_range || (region.access & IBV_ACCESS_ON_DEMAND) != 0) return 0;
  return (region.memory + region.length + kPage - 1) / kPage * kPage - region.memory / kPage * kPage;
}

void note_memory(uintptr_t begin, uintptr_t end) {
  if (begin >= end) return;
  auto& ever = model().ever;
  auto first = ever.upper_bound(begin);
  if (first != ever.begin() && std::prev(first)->second >= begin) --first;
  auto last = first;
  for (; last != ever.end() && last->first <= end; ++last) {
    begin = std::min(begin, last->first);
    end = std::max(end, last->second);
  }
  ever.emplace_hint(ever.erase(first, last), begin, end);
}

}  // namespace

uint64_t pinned_bytes() { return model().pinned; }

void enter_region(Region& region) {
  Model& all = model();
  all.pinned -= region.pinned;
  region.pinned = whole_pages(region);
  all.pinned += region.pinned;
  all.regions[{region.context->device, region.lkey}] = &region;
  if (!region.has_range || region.memory == 0) {
    all.has_boundless = all.has_boundless || (region.access & IBV_ACCESS_ON_DEMAND) != 0;
    return;
  }
  const auto [first, last] = all.memory.equal_range(region.memory);
  for (auto each = first; each != last;)
    each = each->second == &region || !each->second->alive ? all.memory.erase(each) : std::next(each);
  all.memory.emplace(region.memory, &region);
  all.longest = std::max(all.longest, region.length);
  note_memory(region.memory, region.memory + region.length);
}

namespace {

// The first region that shares bytes with [begin, end) and for which `matches`.
template <typename Matches>
const Region* find_memory(uintptr_t begin, uintptr_t end, Matches matches) {
  const Model& all = model();
  for (auto each = all.memory.lower_bound(begin - std::min<uint64_t>(all.longest, begin));
       each != all.memory.end() && each->first < end; ++each)
    if (each->first == each->second->memory && each->first + each->second->length > begin &&
        matches(*each->second))
      return each->second;
  return nullptr;
}

}  // namespace

bool was_registered(uintptr_t begin, uintptr_t end) {
  const Model& all = model();
  if (all.has_boundless) return true;
  const auto next = all.ever.lower_bound(end);
  return next != all.ever.begin() && std::prev(next)->second > begin;
}

const Region* find_region_at(uintptr_t begin, uintptr_t end, bool anywhere) {
  return find_memory(begin, end, [&](const Region& region) {
    return region.alive && !is_parents(region) && (region.access & IBV_ACCESS_ON_DEMAND) == 0 &&
           (anywhere || region.memory >= begin);
  });
}

bool is_exposed(uintptr_t begin, uintptr_t end, int access) {
  return model().has_boundless ||
         find_memory(begin, end, [&](const Region& region) {
           return region.alive && !is_parents(region) && (region.access & access) != 0;
         }) != nullptr;
}

QueuePair* find_qp(const CompletionQueue& cq, uint32_t number, QueuePair** destroyed) {
  const auto [begin, end] = model().queue_pairs.equal_range(number);
  for (auto each = begin; each != end; ++each) {
    QueuePair* const qp = each->second;
    if (qp->send_cq != &cq && qp->recv_cq != &cq) continue;
    if (qp->alive) return qp;
    if (destroyed != nullptr && (*destroyed == nullptr || (*destroyed)->number < qp->number)) *destroyed = qp;
  }
  return nullptr;
}

const std::vector<Object*>& all_objects() { return model().in_order; }

bool is_parents(const Object& object) { return object.process != model().process; }

void enter_process() {
  model().process = getpid();
  model().pinned = 0;  // by fork(2)
}

uint64_t next_serial() { return ++model().serial; }
uint64_t last_serial() { return model().serial; }

}  // namespace verbena::check
