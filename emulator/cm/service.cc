// SPDX-License-Identifier: BSD-2-Clause
//
// The lifetime of the service: from the first acquire_service() to the last release_service(), and across
// fork(2).
#include "cm/service.h"

#include <errno.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <new>

#include "adapter/clock.h"
#include "cm/id.h"
#include "fabric/kernel_epoll.h"
#include "observe/log.h"
#include "own_thread.h"

namespace verbena::cm {
namespace {

// Guards `current` and its references_. Taken before the service's own mutex.
std::mutex service_mutex;
Service* current = nullptr;
pthread_once_t fork_handlers = PTHREAD_ONCE_INIT;

uint32_t random_number() {
  uint32_t number = 0;
  if (syscall(SYS_getrandom, &number, sizeof number, GRND_NONBLOCK) != sizeof number)
    number = static_cast<uint32_t>(now_ns());
  return number;
}

constexpr uint32_t kIdBits = (1u << kIdSlotShift) - 1;
static_assert(kMaxSlots == 1u << (32 - kIdSlotShift));

uint32_t id_mask(Process* process) { return process->service().roce() != nullptr ? kIdBits : UINT32_MAX; }
uint32_t first_id(Process* process) {
  return (random_number() & id_mask(process)) |
         (process->membership().slot() << kIdSlotShift & ~id_mask(process));
}

}  // namespace

// The kernel destroys a program's ids when its descriptor is closed (ucma_close()). Other processes of the
// node, and nodes that are reached by TCP, see the end of a link; by RoCE v2 they have to be told.
struct ServiceAtExit {
  [[gnu::destructor]] static void tell_peers() {
    if (current != nullptr && !current->dead()) current->notify_of_exit();
  }
};

Service::Service(Process* process)
    : process_(process),
      clock_(now_ns),
      links_(*this, *this, clock_, 1),
      connections_(*this, clock_, *this, first_id(process), id_mask(process)) {}

Service::~Service() = default;

int Service::acquire(Service** out) {
  Process* process;
  if (int error = EngineService::acquire(&process); error != 0) return error;
  // After Process' own handlers: handlers registered last run first before a fork, and take their lock first.
  pthread_once(&fork_handlers,
               [] { pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child); });
  std::unique_lock lock(service_mutex);
  int error = 0;
  if (current != nullptr) {
    ++current->references_;
    *out = current;
  } else if (auto* service = new (std::nothrow) Service(process); service == nullptr) {
    error = ENOMEM;
  } else if (error = guarded([&] { return service->start(); }); error != 0) {
    VERBENA_WARN(cm_not_started, "rdma_cm: cannot begin in slot %u of the node: errno %d",
                 process->membership().slot(), error);
    delete service;
  } else {
    service->references_ = 1;
    current = *out = service;
    return 0;  // keeps its reference to the process
  }
  lock.unlock();
  EngineService::release(*process);
  return error;
}

int Service::start() {
  epoll_fd_ = kernel_epoll_create();
  wake_fd_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  int error = epoll_fd_ < 0 || wake_fd_ < 0 ? errno : 0;
  if (error == 0) {
    watch(wake_fd_, 0, false);
    error = table_.open(process_->directory(), process_->membership().node());
  }
  if (error == 0)
    links_.open(
        process_->membership().node(), process_->directory(), self(), process_->membership().services(),
        [](void* service) { static_cast<Service*>(service)->wake(); }, this);
  device_events_seen_ = count_device_events(process_->directory());
  if (error == 0) error = create_own_thread(&thread_, thread_main, this);
  if (error != 0) {
    links_.stop_accepting();
    if (epoll_fd_ >= 0) syscall(SYS_close, epoll_fd_);
    if (wake_fd_ >= 0) syscall(SYS_close, wake_fd_);
    epoll_fd_ = -1;
  } else {
    process_->service().watch_devices([](void* service) { static_cast<Service*>(service)->wake(); }, this);
    wire::ConnectionListener& listener = process_->service().connection_listener();
    if (listener.is_open()) {
      links_.go_out_by(listener, listener.self());
      listener.receive_for_cm(&connection_events_);
    }
    if (roce() != nullptr) roce()->receive_mads_by(mad_arrived, this);
  }
  return error;
}

void Service::release() {
  if (dead()) return;  // it belongs to the parent
  {
    std::lock_guard lock(service_mutex);
    if (--references_ != 0) return;
    current = nullptr;
  }
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
    ends_itself_ = pthread_equal(pthread_self(), thread_);
  }
  if (ends_itself_) {
    pthread_detach(thread_);  // run() deletes the service when its present work is done
    return;
  }
  wake();
  pthread_join(thread_, nullptr);
  Process* process = process_;
  process->service().watch_devices(nullptr, nullptr);
  process->service().connection_listener().receive_for_cm(nullptr);
  if (roce() != nullptr) roce()->receive_mads_by(nullptr, nullptr);
  links_.stop_accepting();
  syscall(SYS_close, wake_fd_);
  const int epoll = epoll_fd_;
  delete this;
  syscall(SYS_close, epoll);
  EngineService::release(*process);
}

void Service::before_fork() {
  service_mutex.lock();
  if (current != nullptr) current->mutex_.lock();
}

void Service::after_fork_in_parent() {
  if (current != nullptr) current->mutex_.unlock();
  service_mutex.unlock();
}

// If the child kept sockets open, peers would not see the parent's end.
void Service::after_fork_in_child() {
  if (current != nullptr) {
    current->dead_.store(true, std::memory_order_relaxed);
    current->links_.close_in_child();
    syscall(SYS_close, current->epoll_fd_);
    syscall(SYS_close, current->wake_fd_);
    current->mutex_.unlock();
  }
  current = nullptr;
  service_mutex.unlock();
}

// ---- the interface (cm.h) ------------------------------------------------------------------------------

int acquire_service(Service** out) { return Service::acquire(out); }
void release_service(Service* service) { service->release(); }
bool service_is_dead(const Service* service) { return service->dead(); }
int watch_pipe(Service* service, int write_end, void (*gone)(void*), void* context) {
  return guarded([&] { return service->watch_pipe(write_end, gone, context); });
}
void unwatch_pipe(Service* service, int write_end) { service->unwatch_pipe(write_end); }
void call_later(Service* service, uint32_t milliseconds, void (*due)(void*), void* context) {
  // Without memory for the alarm there is no call.
  guarded([&] {
    service->call_later(milliseconds, due, context);
    return 0;
  });
}

}  // namespace verbena::cm
