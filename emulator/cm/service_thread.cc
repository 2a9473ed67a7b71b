// SPDX-License-Identifier: BSD-2-Clause
//
// The service's thread: sleeps until a message arrives, an alarm is due, or another thread wakes it.
#include <errno.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

#include "adapter/clock.h"
#include "cm/id.h"
#include "cm/service.h"
#include "fabric/kernel_epoll.h"
#include "observe/log.h"

namespace verbena::cm {
namespace {

// The token of a descriptor in epoll(7): 0 for the wake-up, a link's (link.h), or a pipe's with its
// descriptor.
constexpr uint64_t kPipeToken = uint64_t{1} << 63;

}  // namespace

void Service::watch(int fd, uint64_t token, bool for_room) {
  epoll_event event{};
  event.events = EPOLLIN | (for_room ? uint32_t{EPOLLOUT} : 0);
  event.data.u64 = token;
  if (kernel_epoll_ctl(epoll_fd_, EPOLL_CTL_MOD, fd, &event) != 0)
    kernel_epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, fd, &event);
}

void Service::forget(int fd) { kernel_epoll_ctl(epoll_fd_, EPOLL_CTL_DEL, fd, nullptr); }

void Service::wake() const {
  const uint64_t one = 1;
  [[maybe_unused]] const long written = syscall(SYS_write, wake_fd_, &one, sizeof one);
}

bool Service::owes_work() const {
  if (asleep_until_ == INT64_MIN) return false;  // the thread looks before it sleeps
  return stop_ || !pending_.empty() || links_.has_to_carry() || clock_.next() < asleep_until_;
}

void* Service::thread_main(void* self) {
  prctl(PR_SET_NAME, "verbena-cm");
  auto* service = static_cast<Service*>(self);
  service->run();
  if (service->ends_itself_) {
    Process* process = service->process_;
    process->service().watch_devices(nullptr, nullptr);
    process->service().connection_listener().receive_for_cm(nullptr);
    if (service->roce() != nullptr) service->roce()->receive_mads_by(nullptr, nullptr);
    const int epoll = service->epoll_fd_, wake_up = service->wake_fd_;
    delete service;
    syscall(SYS_close, epoll);
    syscall(SYS_close, wake_up);
    EngineService::release(*process);
  }
  return nullptr;
}

void Service::run() {
  std::unique_lock lock(mutex_);
  while (!stop_) {
    const int timeout = sleep_ms();
    lock.unlock();
    epoll_event events[32];
    const int count = kernel_epoll_wait(epoll_fd_, events, 32, timeout);
    const int error = errno;
    lock.lock();
    asleep_until_ = INT64_MIN;
    if (count < 0 && error != EINTR) {
      VERBENA_ERROR(cm_descriptors_closed,
                    "rdma_cm: the program has closed descriptors of its connection manager (errno %d)",
                    error);
      break;
    }
    for (int i = 0; i < count; ++i) handle(events[i].data.u64);
    settle(lock);
  }
  // No thread must wait for a handler that will not run.
  handled_.notify_all();
}

int Service::sleep_ms() {
  if (!pending_.empty() || links_.has_to_carry() || !gone_pipes_.empty()) return 0;
  asleep_until_ = clock_.next();
  if (asleep_until_ == kEndOfTime) return -1;
  const int64_t wait = asleep_until_ - clock_.now();
  return static_cast<int>(std::clamp<int64_t>((wait + 999'999) / 1'000'000, 0, 3'600'000));
}

void Service::handle(uint64_t token) {
  if (token == 0) {
    uint64_t count;
    [[maybe_unused]] const long got = syscall(SYS_read, wake_fd_, &count, sizeof count);
  } else if (token & kPipeToken) {
    const int fd = static_cast<int>(token & ~kPipeToken);
    if (!pipes_.contains(fd)) return;
    forget(fd);
    gone_pipes_.push_back(fd);
  } else {
    links_.ready(token);
  }
}

// Handles everything that is due. Unlocks while a handler runs.
void Service::settle(std::unique_lock<std::mutex>& lock) {
  links_.accept_all();
  take_mads();
  clock_.ring_due();
  if (later_call_is_due_) {
    later_call_is_due_ = false;
    const LaterCall later = later_call_;
    lock.unlock();
    later.due(later.context);
    lock.lock();
  }
  serve_devices();
  while (!stop_ && (links_.has_to_carry() || !pending_.empty() || !gone_pipes_.empty())) {
    if (links_.has_to_carry()) links_.carry();
    if (!pending_.empty()) deliver(lock);
    if (gone_pipes_.empty()) continue;
    const int fd = gone_pipes_.front();
    gone_pipes_.pop_front();
    const auto pipe = pipes_.extract(fd);
    if (pipe.empty()) continue;
    handling_pipe_ = fd;
    lock.unlock();
    pipe.mapped().gone(pipe.mapped().context);
    lock.lock();
    handling_pipe_ = -1;
    handled_.notify_all();
  }
}

// Raises the next event.
void Service::deliver(std::unique_lock<std::mutex>& lock) {
  const PendingEvent pending = pending_.front();
  pending_.pop_front();
  const Event& event = pending.event;
  Id* const id = event.id;
  if (pending.has_transition) {
    if (id->stage != pending.from) return;
    id->stage = pending.to;
    id->publish();
  }
  handling_ = id;
  handling_listener_ = event.listener;
  const EventHandler handler = event.listener != nullptr ? event.listener->handler : id->handler;
  void* const context = event.listener != nullptr ? event.listener->context : id->context;
  lock.unlock();
  const bool taken = handler(context, event);
  lock.lock();
  handling_ = handling_listener_ = nullptr;
  handled_.notify_all();
  if (event.type != EventType::kConnectRequest) return;
  if (taken) {
    // From here on the program may take its time (cma_req_handler).
    if (id->connection != nullptr && !id->is_datagram()) id->connection->delay();
  } else {
    // As if the request had never arrived: its repetition may find space in the backlog. A lookup is rejected
    // (cm_destroy_id: -ENOMEM in IB_CM_REQ_RCVD alone).
    if (id->connection != nullptr && !id->is_datagram()) id->connection->forget();
    end_id(id);
  }
}

void Service::quiet(Id* id) {
  std::vector<Id*> unseen;
  const auto concerns = [&](const PendingEvent& pending) {
    if (pending.event.listener == id) unseen.push_back(pending.event.id);
    return pending.event.listener == id || pending.event.id == id;
  };
  std::erase_if(pending_, concerns);
  if (!pthread_equal(pthread_self(), thread_)) {
    std::unique_lock lock(mutex_, std::adopt_lock);
    handled_.wait(lock, [&] { return handling_ != id && handling_listener_ != id; });
    lock.release();
    std::erase_if(pending_, concerns);
  }
  for (Id* request : unseen) end_id(request);
}

void Service::quiet_join(Id* id, void* join) {
  std::erase_if(pending_, [&](const PendingEvent& p) { return p.event.id == id && p.event.join == join; });
  if (pthread_equal(pthread_self(), thread_)) return;
  std::unique_lock lock(mutex_, std::adopt_lock);
  handled_.wait(lock, [&] { return handling_ != id; });
  lock.release();
}

void Service::frame_arrived(const Peer& peer, std::span<const uint8_t> frame) {
  Message message;
  if (decode(frame, &message)) return connections_.receive(peer, message);
  VERBENA_WARN(cm_message_malformed, "rdma_cm: a malformed message of %zu bytes from slot %u is ignored",
               frame.size(), peer.slot);
}

void Service::send(const Peer& peer, const Message& message) {
  if (peer.is_remote() && roce() != nullptr) return send_mad(message);
  Frame frame;
  encode(message, frame);
  links_.send(peer, frame);
}

void Service::call_later(uint32_t milliseconds, void (*due)(void*), void* context) {
  Guard guard(*this);
  later_call_ = {due, context};
  later_alarm_.set_after_ms(milliseconds);
}

// ---- pipes -----------------------------------------------------------------------------------------------

int Service::watch_pipe(int fd, void (*gone)(void*), void* context) {
  Guard guard(*this);
  epoll_event event{};  // EPOLLERR is reported when the pipe has no reader any more, without being requested
  event.data.u64 = kPipeToken | static_cast<uint32_t>(fd);
  if (kernel_epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, fd, &event) != 0) return errno;
  pipes_[fd] = {gone, context};
  return 0;
}

void Service::unwatch_pipe(int fd) {
  Guard guard(*this);
  if (pipes_.erase(fd) != 0) forget(fd);
  std::erase(gone_pipes_, fd);
  std::unique_lock lock(mutex_, std::adopt_lock);
  handled_.wait(lock, [&] { return handling_pipe_ != fd || pthread_equal(pthread_self(), thread_); });
  lock.release();
}

}  // namespace verbena::cm
