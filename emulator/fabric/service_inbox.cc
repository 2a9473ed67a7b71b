// SPDX-License-Identifier: BSD-2-Clause
#include "fabric/service_inbox.h"

#include <utility>

#include "fabric/fork_descriptors.h"

namespace verbena {

void ServiceInbox::open(ServiceSocket& socket, ServiceNumber service, void (*wake)(void*), void* context) {
  socket_ = &socket;
  service_ = service;
  wake_ = wake;
  context_ = context;
  socket.serve_by(service, put, this);
}

void ServiceInbox::close() {
  if (socket_ == nullptr) return;
  std::exchange(socket_, nullptr)->serve_by(service_, nullptr, nullptr);
  const std::lock_guard lock(mutex_);
  waiting_.clear();
}

bool ServiceInbox::take(Call* out) {
  const std::lock_guard lock(mutex_);
  if (waiting_.empty()) return false;
  Call& oldest = waiting_.front();
  out->message = std::move(oldest.message);
  out->connection = std::move(oldest.connection);
  out->passed.reset(oldest.passed.release());
  waiting_.pop_front();
  return true;
}

void ServiceInbox::put(void* self, ServiceCall& call) {
  auto& inbox = *static_cast<ServiceInbox*>(self);
  {
    const std::lock_guard lock(inbox.mutex_);
    if (inbox.waiting_.size() >= kMaxWaiting) return;
    Call& kept = inbox.waiting_.emplace_back();
    kept.message.assign(call.message.begin(), call.message.end());
    kept.connection = std::move(call.connection);
    kept.passed.reset(call.passed.release());
    keep_from_children(kept.passed.fd);
  }
  inbox.wake_(inbox.context_);
}

}  // namespace verbena
