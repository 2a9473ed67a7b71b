// SPDX-License-Identifier: BSD-2-Clause
#include "fake_cm.h"

#include <netinet/in.h>
#include <poll.h>

#include <cstring>
#include <utility>
#include <vector>

namespace verbena::test {

FakeManager fake;

namespace {

struct Watch {
  void (*gone)(void*);
  void* context;
};

struct LaterCall {
  uint32_t milliseconds;
  void (*due)(void*);
  void* context;
};

std::mutex lock;
std::map<int, Watch> watches;
LaterCall later{};

size_t length_of(const sockaddr* address) {
  return address->sa_family == AF_INET    ? sizeof(sockaddr_in)
         : address->sa_family == AF_INET6 ? sizeof(sockaddr_in6)
                                          : 64;
}

void remember(const sockaddr* address, sockaddr_storage* out) {
  *out = {};
  if (address != nullptr) memcpy(out, address, length_of(address));
}

int answer(const char* name) {
  {
    const std::lock_guard guard(lock);
    fake.last = name;
  }
  if (fake.raise_in == name) {
    raise(fake.during_call);
    if (fake.then) fake.then();
  }
  return fake.error;
}

}  // namespace

bool raise(const cm::Event& event) {
  cm::Id* through = event.listener != nullptr ? event.listener : event.id;
  const bool taken = through->handler(through->context.load(), event);
  if (!taken && event.type == cm::EventType::kConnectRequest) cm::destroy_id(event.id);
  return taken;
}

bool raise_request(cm::Id* listener, cm::Event event) {
  event.type = cm::EventType::kConnectRequest;
  event.listener = listener;
  event.id = new cm::Id{listener->space, listener->type, listener->handler, listener->context.load()};
  {
    const std::lock_guard guard(lock);
    ++fake.alive;
    fake.newest = event.id;
  }
  return raise(event);
}

int end_abandoned_pipes() {
  std::vector<pollfd> pipes;
  {
    const std::lock_guard guard(lock);
    for (const auto& [fd, watch] : watches) pipes.push_back({.fd = fd, .events = 0, .revents = 0});
  }
  if (pipes.empty()) return 0;
  if (poll(pipes.data(), pipes.size(), 5000) <= 0) return 0;
  int ended = 0;
  for (const pollfd& pipe : pipes) {
    if ((pipe.revents & POLLERR) == 0) continue;
    Watch watch;
    {
      const std::lock_guard guard(lock);
      watch = watches.at(pipe.fd);
      watches.erase(pipe.fd);
    }
    watch.gone(watch.context);
    ++ended;
  }
  return ended;
}

int make_later_calls() {
  int calls = 0;
  for (;; ++calls) {
    LaterCall next{};
    {
      const std::lock_guard guard(lock);
      next = std::exchange(later, {});
    }
    if (next.due == nullptr) return calls;
    poll(nullptr, 0, static_cast<int>(next.milliseconds));
    next.due(next.context);
  }
}

}  // namespace verbena::test

namespace verbena::cm {

using test::answer;
using test::fake;

class Service {};

int acquire_service(Service** out) {
  static Service service;
  *out = &service;
  return 0;
}
void release_service(Service*) {}
bool service_is_dead(const Service*) { return false; }

int watch_pipe(Service*, int write_end, void (*gone)(void*), void* context) {
  const std::lock_guard guard(test::lock);
  test::watches[write_end] = {gone, context};
  return 0;
}
void unwatch_pipe(Service*, int write_end) {
  const std::lock_guard guard(test::lock);
  test::watches.erase(write_end);
}

void call_later(Service*, uint32_t milliseconds, void (*due)(void*), void* context) {
  const std::lock_guard guard(test::lock);
  test::later = {milliseconds, due, context};
}

int create_id(Service*, PortSpace space, ibv_qp_type type, EventHandler handler, void* context, Id** out) {
  if (const int error = answer("create_id"); error != 0) return error;
  *out = new Id{space, type, handler, context};
  const std::lock_guard guard(test::lock);
  ++fake.alive;
  fake.newest = *out;
  return 0;
}

void destroy_id(Id* id) {
  const std::lock_guard guard(test::lock);
  --fake.alive;
  delete id;
}

void set_context(Id* id, void* context) { id->context.store(context); }
void* context_of(const Id* id) { return id->context.load(); }

int bind_address(Id*, const sockaddr* address) {
  test::remember(address, &fake.source);
  return answer("bind_address");
}

int resolve_address(Id*, const sockaddr* source, const sockaddr* destination, uint32_t timeout_ms) {
  test::remember(source, &fake.source);
  test::remember(destination, &fake.destination);
  fake.timeout_ms = timeout_ms;
  return answer("resolve_address");
}

int resolve_route(Id*, uint32_t timeout_ms) {
  fake.timeout_ms = timeout_ms;
  return answer("resolve_route");
}

int listen(Id*, int backlog) {
  fake.backlog = backlog;
  return answer("listen");
}

int connect(Id*, const ConnectionParameters& parameters, const Ece& ece) {
  fake.parameters = parameters;
  fake.ece = ece;
  return answer("connect");
}

int accept(Id*, const ConnectionParameters* parameters, const Ece& ece) {
  fake.parameters_given = parameters != nullptr;
  if (parameters != nullptr) fake.parameters = *parameters;
  fake.ece = ece;
  return answer("accept");
}

int reject(Id*, const PrivateData& data, uint8_t reason) {
  fake.parameters.private_data = data;
  fake.reason = reason;
  return answer("reject");
}

int disconnect(Id*) { return answer("disconnect"); }

int notify(Id*, ibv_event_type event) {
  fake.value = event;
  return answer("notify");
}

int init_qp_attributes(Id*, ibv_qp_attr* attr, int* mask) {
  const ibv_qp_state state = attr->qp_state;
  *attr = fake.attr;
  attr->qp_state = state;
  *mask = fake.mask;
  return answer("init_qp_attributes");
}

int join_multicast(Id*, const sockaddr* group, bool send_only, void* join) {
  test::remember(group, &fake.destination);
  fake.send_only = send_only;
  fake.join = join;
  if (fake.raise_in == "join_multicast") fake.during_call.join = join;
  return answer("join_multicast");
}

int leave_multicast(Id*, const sockaddr* group) {
  test::remember(group, &fake.destination);
  return answer("leave_multicast");
}

int set_service_type(Id*, uint8_t tos) {
  fake.value = tos;
  return answer("set_service_type");
}
int set_reuse_address(Id*, bool reuse) {
  fake.value = reuse ? 1 : 0;
  return answer("set_reuse_address");
}
int set_family_only(Id*, bool only) {
  fake.value = only ? 1 : 0;
  return answer("set_family_only");
}
int set_ack_timeout(Id*, uint8_t timeout) {
  fake.value = timeout;
  return answer("set_ack_timeout");
}
int set_path(Id*, const ib_path_rec_data*, size_t count) {
  fake.value = static_cast<int>(count);
  return answer("set_path");
}

void query(Id*, Route* out) { *out = fake.route; }

}  // namespace verbena::cm
