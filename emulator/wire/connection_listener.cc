// SPDX-License-Identifier: BSD-2-Clause
#include "wire/connection_listener.h"

#include <errno.h>

#include <new>

#include "wire/acceptor.h"

namespace verbena::wire {

ConnectionListener::ConnectionListener() = default;
ConnectionListener::~ConnectionListener() = default;

int ConnectionListener::open(NodeMembership& membership, ConnectionObserver& observer, std::string* problem) {
  std::unique_ptr<Acceptor> acceptor(new (std::nothrow) Acceptor(membership, observer));
  if (acceptor == nullptr) return ENOMEM;
  const int error = acceptor->open(problem);
  if (error == 0) acceptor_ = std::move(acceptor);
  return error;
}

bool ConnectionListener::is_open() const { return acceptor_ != nullptr; }

void ConnectionListener::receive_for_cm(ConnectionObserver* observer) {
  if (acceptor_ != nullptr) acceptor_->receive_for_cm(observer);
}

void ConnectionListener::find_listeners_by(FindListener find) {
  Acceptor::find_listener.store(find, std::memory_order_release);
}

int ConnectionListener::descriptor() const { return acceptor_ != nullptr ? acceptor_->descriptor() : -1; }

int64_t ConnectionListener::serve() { return acceptor_ != nullptr ? acceptor_->serve() : INT64_MAX; }

uint64_t ConnectionListener::connect(const NetAddress& to, const NetAddress& from, const Target& target,
                        int64_t deadline_ns) {
  return acceptor_->connect(to, from, target, deadline_ns);
}

void ConnectionListener::cancel(uint64_t request_id) {
  if (acceptor_ != nullptr) acceptor_->cancel(request_id);
}

void ConnectionListener::close() { acceptor_.reset(); }

ProcessId ConnectionListener::self() const { return acceptor_ != nullptr ? acceptor_->self() : ProcessId{}; }

}  // namespace verbena::wire
