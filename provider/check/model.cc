// SPDX-License-Identifier: BSD-2-Clause
#include "check/model.h"

#include <unistd.h>

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
  std::unordered_multimap<uint32_t, QueuePair*> queue_pairs;  // by number
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
  object->process = getpid();
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
  if (object.said_leak) retract_leak(object.number);
}

Region* find_region(const ibv_context* context, uint32_t lkey) {
  const auto found = model().regions.find({context->device, lkey});
  return found != model().regions.end() ? found->second : nullptr;
}

void enter_lkey(Region& region) { model().regions[{region.context->device, region.lkey}] = &region; }

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

bool is_parents(const Object& object) { return object.process != getpid(); }

uint64_t next_serial() { return ++model().serial; }
uint64_t last_serial() { return model().serial; }

}  // namespace verbena::check
