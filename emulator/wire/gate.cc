// SPDX-License-Identifier: BSD-2-Clause
#include "wire/gate.h"

#include <errno.h>

#include <new>

#include "wire/doorkeeper.h"

namespace verbena::wire {

Gate::Gate() = default;
Gate::~Gate() = default;

int Gate::open(Residence& home, Arrivals& arrivals, std::string* problem) {
  std::unique_ptr<Doorkeeper> doorkeeper(new (std::nothrow) Doorkeeper(home, arrivals));
  if (doorkeeper == nullptr) return ENOMEM;
  const int error = doorkeeper->open(problem);
  if (error == 0) doorkeeper_ = std::move(doorkeeper);
  return error;
}

bool Gate::is_open() const { return doorkeeper_ != nullptr; }

void Gate::receive_for_cm(Arrivals* arrivals) {
  if (doorkeeper_ != nullptr) doorkeeper_->receive_for_cm(arrivals);
}

void Gate::find_listeners_by(FindListener find) {
  Doorkeeper::find_listener.store(find, std::memory_order_release);
}

int Gate::descriptor() const { return doorkeeper_ != nullptr ? doorkeeper_->descriptor() : -1; }

int64_t Gate::serve() { return doorkeeper_ != nullptr ? doorkeeper_->serve() : INT64_MAX; }

uint64_t Gate::approach(const NetAddress& to, const NetAddress& from, const Target& target,
                        int64_t deadline_ns) {
  return doorkeeper_->approach(to, from, target, deadline_ns);
}

void Gate::cancel(uint64_t ticket) {
  if (doorkeeper_ != nullptr) doorkeeper_->cancel(ticket);
}

void Gate::close() { doorkeeper_.reset(); }

ProcessId Gate::self() const { return doorkeeper_ != nullptr ? doorkeeper_->self() : ProcessId{}; }

}  // namespace verbena::wire
