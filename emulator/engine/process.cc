// SPDX-License-Identifier: BSD-2-Clause
#include "engine/process.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include <new>
#include <utility>

#include "engine/objects.h"
#include "engine/remote/remote.h"
#include "fabric/fork_descriptors.h"
#include "fabric/hazards.h"
#include "fabric/node.h"
#include "observe/log.h"

namespace verbena {
namespace {

std::mutex process_mutex;  // guards `current` and its count of references
Process* current = nullptr;
Process* left = nullptr;  // of devices closed with objects, a list: whoever looks for leaks finds them here
pthread_once_t fork_handlers = PTHREAD_ONCE_INIT;

}  // namespace

bool IndexPool::take(uint32_t* index) {
  std::lock_guard lock(mutex_);
  if (next_ < limit_ && free_.size() - oldest_ < 64) {
    *index = next_++;
    return true;
  }
  if (oldest_ < free_.size()) {
    *index = free_[oldest_++];
    if (oldest_ > 1024 && oldest_ * 2 > free_.size()) {
      free_.erase(free_.begin(), free_.begin() + static_cast<long>(oldest_));
      oldest_ = 0;
    }
    return true;
  }
  return false;
}

void IndexPool::give(uint32_t index) {
  std::lock_guard lock(mutex_);
  free_.push_back(index);
}

Process::Process()
    : qps_(new std::atomic<Qp*>[kMaxQpsPerProcess]()),
      cqs_(new std::atomic<Cq*>[kMaxCqsPerProcess]()),
      srqs_(new std::atomic<Srq*>[kMaxSrqsPerProcess]()) {}

Process::~Process() = default;

// A program may end right after its last completion: its peers' requests are done all the same.
namespace {
[[gnu::destructor]] void send_what_lingers() {
  if (current == nullptr || current->dead() || current->remote() == nullptr) return;
  current->remote()->flush_at_exit();
}
}  // namespace

void Process::begin_remote(const Connector& caller) {
  const wire::ProcessId self{directory().header().node_id, membership_.slot(), membership_.generation()};
  remote_ = std::make_unique<Remote>(*this, self, caller);
  remote_now_.store(remote_.get(), std::memory_order_release);
  membership_.watch(remote_->descriptor());
}

Remote& Process::remote_or_begin() {
  std::lock_guard lock(begin_mutex_);
  if (remote_ == nullptr) begin_remote({nullptr, nullptr, false});
  return *remote_;
}

size_t Process::serve_request(void* self, const std::byte* request, size_t size, std::byte* reply,
                              Descriptor& passed) {
  Process& process = *static_cast<Process*>(self);
  if (is_connection_request(request, size)) {
    process.remote_or_begin().take_connection_request(request, passed);
    return 0;
  }
  return process.serve_shared_qp_request(request, size, reply);
}

int Process::acquire(Process** out) {
  pthread_once(&fork_handlers,
               [] { pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child); });
  const char* node = getenv(kNodeVariable);
  if (node == nullptr || *node == 0) {
    VERBENA_WARN("open_device: %s is not set: run the program under `verbena run`", kNodeVariable);
    return ENODEV;
  }
  std::lock_guard lock(process_mutex);
  if (current == nullptr) {
    auto* process = new (std::nothrow) Process;
    if (process == nullptr) return ENOMEM;
    process->membership_.serve_requests_by(&Process::serve_request, process);
    if (int error = process->membership_.enter(node, &Process::service, process); error != 0) {
      VERBENA_WARN("open_device: cannot join the node %s: errno %d", node, error);
      delete process;
      return error == ENOENT ? ENODEV : error;
    }
    process->peers_.get(process->membership_, process->membership_.slot(), process->membership_.generation(),
                        &process->self_);
    if (int error = process->open_connection_listener(); error != 0) {
      process->membership_.leave();
      delete process;
      return error;
    }
    current = process;
  }
  ++current->references_;
  *out = current;
  return 0;
}

int Process::open_connection_listener() {
  if (directory().devices().network.enabled == 0) return 0;
  begin_remote({[](void* listener, const wire::NetAddress& to, const wire::NetAddress& from,
                   const wire::Target& target, int64_t deadline) {
                  return static_cast<wire::ConnectionListener*>(listener)->connect(to, from, target,
                                                                                   deadline);
                },
                &connection_listener_});
  std::string problem;
  const int error = connection_listener_.open(membership_, *remote_, &problem);
  if (error != 0)
    VERBENA_LOG_AT(LogLevel::kError, "open_device: no network: %s", problem.c_str());
  else
    connection_listener_is_open_.store(true, std::memory_order_release);
  return error;
}

uint64_t Process::count_objects() const {
  uint64_t sum = 0;
  for (uint32_t device = 0; device < directory().devices().count; ++device)
    for (size_t kind = 0; kind < static_cast<size_t>(Counted::kKinds); ++kind)
      sum += directory()
                 .count(device, static_cast<Counted>(kind), membership_.slot())
                 .load(std::memory_order_relaxed);
  return sum;
}

void Process::release() {
  if (dead()) return;  // the parent's; this copy of it is left alone
  std::unique_lock lock(process_mutex);
  if (--references_ != 0) return;
  current = nullptr;
  lock.unlock();
  if (Remote* const others = remote(); others != nullptr) others->flush_all();
  delete_unused_contexts();
  const bool objects_remain = count_objects() != 0 || !left_contexts.empty();
  membership_.leave();
  connection_listener_.close();
  if (objects_remain) {
    dead_.store(true, std::memory_order_relaxed);
    remote_now_.store(nullptr, std::memory_order_release);
    remote_.reset();      // other nodes are to hear of it now
    wait_for_hazards();  // what others have begun with the program's memory is over when the device is closed
    for (Context* context : left_contexts) context->events.close();
    membership_.segment().abandon();
    lock.lock();
    next_left_ = std::exchange(left, this);
    return;
  }
  for (Context* context : left_contexts) delete context;
  delete this;
}

void Process::delete_unused_contexts() {
  std::lock_guard lock(contexts_mutex);
  std::erase_if(left_contexts, [](Context* context) {
    if (context->users.load(std::memory_order_acquire) != 0) return false;
    delete context;
    return true;
  });
}

void Process::before_fork() { process_mutex.lock(); }
void Process::after_fork_in_parent() { process_mutex.unlock(); }
void Process::after_fork_in_child() {
  if (current != nullptr) {
    current->dead_.store(true, std::memory_order_relaxed);
    close_parent_descriptors();
  }
  current = nullptr;
  process_mutex.unlock();
}

void Process::wait_for_hazards(uint32_t from_slot) {
  verbena::wait_for_hazards(
      directory(), membership_.slot(), from_slot,
      [](void*, int32_t pid) {
        VERBENA_LOG_AT(LogLevel::kError, "teardown waits for process %d, which is stopped in the middle of a request to this adapter",
                     pid);
      },
      nullptr);
}

void Process::ring_doorbell() {
  view().header().doorbell.store(1, std::memory_order_release);
  membership_.kick();
}

int64_t Process::service(void* self) { return static_cast<Process*>(self)->serve(); }

}  // namespace verbena
