// SPDX-License-Identifier: BSD-2-Clause
#include "rdma_cm/state.h"

#include <errno.h>
#include <unistd.h>

#include <atomic>

namespace verbena::rdma_cm {
namespace {

// A forked child never frees the parent's state: a thread of the parent may have been in the middle of a
// change.
constinit std::atomic<State*> the_state{nullptr};

}  // namespace

State* current_state() {
  State* state = the_state.load(std::memory_order_acquire);
  return state != nullptr && !cm::service_is_dead(state->service) ? state : nullptr;
}

State* make_state(int* error) {
  *error = 0;
  State* before = the_state.load(std::memory_order_acquire);
  if (before != nullptr && !cm::service_is_dead(before->service)) return before;
  auto fresh = std::make_unique<State>();
  fresh->machine = Machine::make();
  if (*error = cm::acquire_service(&fresh->service); *error != 0) return nullptr;
  if (the_state.compare_exchange_strong(before, fresh.get(), std::memory_order_acq_rel))
    return fresh.release();
  cm::release_service(fresh->service);
  return before;
}

void show_events(File& file) { file.tokens.show(file.events.size()); }

ContextInUse::~ContextInUse() {
  if (context_ == nullptr) return;
  const std::lock_guard lock(state_->mutex);
  if (--context_->users == 0) state_->unused.notify_all();
}

void ContextInUse::take(State& state, Context* context) {
  state_ = &state;
  context_ = context;
  ++context->users;
}

int ContextInUse::find(State& state, const File& file, uint32_t id) {
  const std::lock_guard lock(state.mutex);
  Context* context = state.contexts.find(id);
  if (context == nullptr) return ENOENT;
  if (context->file.get() != &file) return EINVAL;
  if (context->closing) return EIO;
  take(state, context);
  return 0;
}

uint32_t destroy_context(State& state, Context* context) {
  const std::unique_ptr<Context> owned(context);
  std::unique_lock lock(state.mutex);
  state.unused.wait(lock, [context] { return context->users == 0; });
  lock.unlock();
  if (context->has_machine_id) state.machine->destroy(context->machine_id);
  if (context->cm_id != nullptr) cm::destroy_id(context->cm_id);
  lock.lock();

  // From here on there is no new event, and no thread migrates the context.
  std::list<QueuedEvent> unheard;
  File& file = *context->file;
  for (auto event = file.events.begin(); event != file.events.end();) {
    const auto next = std::next(event);
    if (event->context == context) unheard.splice(unheard.end(), file.events, event);
    event = next;
  }
  show_events(file);
  file.contexts.remove(context);
  for (const std::unique_ptr<Multicast>& multicast : context->multicasts)
    state.multicasts.release(multicast->id);
  state.contexts.release(context->id);

  lock.unlock();
  for (QueuedEvent& event : unheard)
    if (event.fresh != nullptr && event.fresh->has_machine_id)
      state.machine->destroy(event.fresh->machine_id);
    else if (event.fresh != nullptr)
      cm::destroy_id(event.fresh->cm_id);
  lock.lock();
  for (const QueuedEvent& event : unheard)
    if (event.fresh != nullptr) state.contexts.release(event.fresh->id);
  return context->events_reported;
}

void close_file(State& state, uint64_t handle) {
  std::unique_lock lock(state.mutex);
  const auto found = state.files.find(handle);
  if (found == state.files.end()) return;
  const std::shared_ptr<File> file = found->second;
  state.files.erase(found);
  file->closed = true;
  // A hidden context is being destroyed by another command.
  for (auto at = file->contexts.begin(); at != file->contexts.end();) {
    Context* context = *at;
    if (state.contexts.find(context->id) != context) {
      ++at;
      continue;
    }
    state.contexts.hide(context->id);
    lock.unlock();
    destroy_context(state, context);
    lock.lock();
    at = file->contexts.begin();
  }
  file->tokens.close();
}

}  // namespace verbena::rdma_cm
