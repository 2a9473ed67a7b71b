// SPDX-License-Identifier: BSD-2-Clause
//
// From the first open of a device to the last close, fork(2) and exit(3) included. The service thread's work
// is in service_thread.cc.
#include "engine/service/engine_service.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <new>
#include <utility>

#include "engine/local/fast_path.h"
#include "engine/memory/sharing.h"
#include "engine/objects/context.h"
#include "engine/objects/process.h"
#include "engine/remote/within_node.h"
#include "engine/requester/requester.h"
#include "engine/responder/bounced_message.h"
#include "engine/service/begin_injection.h"
#include "engine/service/debug_log.h"
#include "fabric/fork_descriptors.h"
#include "fabric/hazards.h"
#include "fabric/node.h"
#include "fabric/node_removal.h"
#include "fabric/process_identity.h"
#include "fabric/shared_heap.h"
#include "observe/log.h"
#include "program_memory.h"
#include "wire/node_recipe.h"

namespace verbena {
namespace {

std::mutex service_mutex;  // guards `current` and its count of references
EngineService* current = nullptr;

// The same for hooks of the program's calls, which may come from its allocator with locks held: they must not
// wait for `service_mutex`, whose holder calls malloc(3). The thread that takes the adapter down waits
// until no hook is at work with it.
std::atomic<EngineService*> hooked{nullptr};
std::atomic<uint32_t> hooks_at_work{0};

class HookedService {
 public:
  HookedService() {
    hooks_at_work.fetch_add(1, std::memory_order_seq_cst);
    service_ = hooked.load(std::memory_order_seq_cst);
  }
  HookedService(const HookedService&) = delete;
  HookedService& operator=(const HookedService&) = delete;
  ~HookedService() { hooks_at_work.fetch_sub(1, std::memory_order_release); }
  EngineService* get() const { return service_; }

 private:
  EngineService* service_;
};

void unhook() {
  hooked.store(nullptr, std::memory_order_seq_cst);
  while (hooks_at_work.load(std::memory_order_seq_cst) != 0) sched_yield();
}

// The node that this process, and not its parent, was a member of last.
struct LastNode {
  pid_t pid = 0;
  char path[PATH_MAX] = "";  // no destructor: it is read after those of the program
};
LastNode last_node;
EngineService* left = nullptr;  // of devices closed with objects, a list: leak checkers find them here
pthread_once_t fork_handlers = PTHREAD_ONCE_INIT;

// "off": small requests take the slow path, too (local/fast_path.h).
constexpr const char* kFastPathVariable = "VERBENA_FAST_PATH";

}  // namespace

// A program may end right after its last completion: its peers' requests are done all the same.
struct EngineServiceAtExit {
  [[gnu::destructor]] static void send_what_lingers() {
    if (current != nullptr && !current->process_.dead()) {
      if (Remote* const remote = current->begun_remote_.load()) remote->flush_at_exit();
      if (RoceNetwork* const roce = current->roce()) roce->flush_at_exit();
      current->process_.membership().retire_node_at_exit();
    } else if (current == nullptr && last_node.pid == getpid()) {
      remove_node(last_node.path, {.own = identity_of_process(getpid())});
    }
  }
};

EngineService::EngineService()
    : process_({this, &xrc_shared_qps_, &progress_send_queue,
                [](EngineService& service) -> Network& { return service.remote_or_begin(); }}) {}

EngineService::~EngineService() = default;

void EngineService::begin_remote(const Connector& caller) {
  NodeMembership& membership = process_.membership();
  const wire::ProcessId self{process_.directory().header().node_id, membership.slot(),
                             membership.generation()};
  remote_ = std::make_unique<Remote>(process_, self, caller);
  if (roce_)
    roce_->set_within(remote_.get());
  else
    process_.set_network(remote_.get());
  begun_remote_.store(remote_.get(), std::memory_order_release);
  membership.watch(remote_->descriptor());
}

Remote& EngineService::remote_or_begin() {
  std::lock_guard lock(begin_mutex_);
  if (remote_ == nullptr) begin_remote({nullptr, nullptr, false});
  return *remote_;
}

size_t EngineService::reply(void* self, const std::byte* request, size_t size, std::byte* reply,
                            Descriptor& passed) {
  EngineService& service = *static_cast<EngineService*>(self);
  if (is_connection_request(request, size)) {
    service.remote_or_begin().take_connection_request(request, passed);
    return 0;
  }
  return service.xrc_shared_qps_.reply(request, size, reply);
}

namespace {

// A node that is gone is made again, if the environment says how (wire/node_recipe.h). It may go once more
// before this process joins it.
int enter_node(NodeMembership& membership, const char* node, ServiceWork work, void* context) {
  int error = membership.enter(node, work, context);
  for (int tries = 0; error == ENOENT && tries < 100; ++tries) {
    if (wire::restore_node(node) != 0) return error;
    error = membership.enter(node, work, context);
  }
  return error;
}

// The limits of the process that keep it from having an adapter: told unasked, as the program cannot know
// them.
void explain_limits(int error) {
  rlimit limit{};
  if (error == ENOMEM && getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
    VERBENA_ERROR(
        no_address_space,
        "open_device: no address space for an adapter within ulimit -v %llu: 1048576 (1 GiB) more will do",
        static_cast<unsigned long long>(limit.rlim_cur / 1024));
  // A node with too many processes is EMFILE as well.
  constexpr rlim_t kFewDescriptors = 64;
  if (error == EMFILE && getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < kFewDescriptors)
    VERBENA_ERROR(node_not_joined,
                  "open_device: too few descriptors for an adapter within ulimit -n %llu: %llu will do",
                  static_cast<unsigned long long>(limit.rlim_cur),
                  static_cast<unsigned long long>(kFewDescriptors));
}

}  // namespace

int EngineService::enter(const char* node) {
  NodeMembership& membership = process_.membership();
  membership.serve_requests_by(&EngineService::reply, this);
  const auto pass = [](void* process, ServiceCall& call) {
    pass_region(*static_cast<Process*>(process), call);
  };
  membership.services().serve_by(ServiceNumber::kRegion, pass, &process_);
  if (const int error = enter_node(membership, node, &EngineService::serve_thread, this); error != 0) {
    VERBENA_WARN(node_not_joined, "open_device: cannot join the node %s: errno %d", node, error);
    explain_limits(error);
    return error == ENOENT ? ENODEV : error;
  }
  snprintf(last_node.path, sizeof last_node.path, "%s", node);
  last_node.pid = getpid();
  process_.meet_itself();
  process_.longest_bounced.store(measure_longest_bounced(process_.self(), process_.directory()),
                                 std::memory_order_relaxed);
  recording_.follow(membership);
  const int error = open_network();
  if (error != 0) membership.leave();
  return error;
}

int EngineService::acquire(Process** out) {
  pthread_once(&fork_handlers,
               [] { pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child); });
  const char* node = getenv(kNodeVariable);
  if (node == nullptr || *node == 0) {
    VERBENA_WARN(no_node, "open_device: %s is not set: run the program under `verbena run`", kNodeVariable);
    return ENODEV;
  }
  if (const char* wanted = getenv(kFastPathVariable); wanted != nullptr && strcmp(wanted, "off") == 0)
    fast_path_enabled.store(false, std::memory_order_relaxed);
  begin_debug_log();
  std::lock_guard lock(service_mutex);
  if (current == nullptr) {
    begin_injection();
    allow_biased_locks();  // before the service thread begins: the kernel makes it dearer with threads
    auto* service = new (std::nothrow) EngineService;
    if (service == nullptr) return ENOMEM;
    if (const int error = service->enter(node); error != 0) {
      delete service;
      return error;
    }
    current = service;
    hooked.store(service, std::memory_order_release);
  }
  ++current->references_;
  *out = &current->process_;
  return 0;
}

int EngineService::open_network() {
  const NetworkDescription& network = process_.directory().devices().network;
  if (network.enabled == 0) return 0;
  return network.kind == NetworkKind::kRoce ? open_roce() : open_connection_listener();
}

int EngineService::open_roce() {
  roce_ = std::make_unique<RoceNetwork>(process_);
  std::string problem;
  const int error = roce_->open(&problem);
  if (error != 0) {
    VERBENA_ERROR(network_not_opened, "open_device: no network: %s", problem.c_str());
    return error;
  }
  VERBENA_INFO("open_device: RoCE v2 has no authentication: any machine can send packets to the addresses");
  process_.set_network(roce_.get());
  roce_is_open_.store(true, std::memory_order_release);
  process_.membership().watch(roce_->descriptor());
  return 0;
}

int EngineService::open_connection_listener() {
  begin_remote({[](void* listener, const wire::NetAddress& to, const wire::NetAddress& from,
                   const wire::Target& target, int64_t deadline) {
                  return static_cast<wire::ConnectionListener*>(listener)->connect(to, from, target,
                                                                                   deadline);
                },
                &connection_listener_});
  std::string problem;
  const int error = connection_listener_.open(process_.membership(), *remote_, &problem);
  if (error != 0)
    VERBENA_ERROR(network_not_opened, "open_device: no network: %s", problem.c_str());
  else
    connection_listener_is_open_.store(true, std::memory_order_release);
  return error;
}

bool EngineService::has_objects() const {
  const NodeDirectory& directory = process_.directory();
  const uint32_t slot = const_cast<Process&>(process_).membership().slot();
  uint64_t sum = 0;
  for (uint32_t device = 0; device < directory.devices().count; ++device)
    for (size_t kind = 0; kind < static_cast<size_t>(Counted::kKinds); ++kind)
      sum += directory.count(device, static_cast<Counted>(kind), slot).load(std::memory_order_relaxed);
  return sum != 0;
}

void EngineService::release(Process& process) {
  if (process.dead()) return;  // the parent's; this copy of it is left alone
  EngineService& service = process.service();
  {
    std::lock_guard lock(service_mutex);
    if (--service.references_ != 0) return;
    current = nullptr;
    forget_ended_regions();
  }
  unhook();
  service.leave();
}

void EngineService::leave() {
  if (remote_) remote_->flush_last();
  process_.delete_unused_contexts();
  const bool objects_remain = has_objects() || !process_.left_contexts.empty();
  recording_.end();
  process_.membership().leave();
  connection_listener_.close();
  if (objects_remain) {
    process_.die();
    process_.set_network(nullptr);
    begun_remote_.store(nullptr);
    remote_.reset();  // other nodes are to hear of it now
    roce_.reset();
    // what others have begun with the program's memory is over when the device is closed
    process_.wait_for_hazards({"ibv_close_device", "process", static_cast<uint32_t>(getpid())});
    for (Context* context : process_.left_contexts) context->events.close();
    process_.segment().abandon();
    // This object, and its mapped directory, stay for ever: the descriptor need not.
    if (const int file = process_.directory().file(); file >= 0) {
      no_longer_keep(file);
      close(file);
    }
    std::lock_guard lock(service_mutex);
    next_left_ = std::exchange(left, this);
    return;
  }
  for (Context* context : process_.left_contexts) delete context;
  delete this;
}

void EngineService::before_fork() {
  service_mutex.lock();
  const PageVector<PageRange> ranges = begin_fork_of_shared_heap();
  if (current != nullptr && !ranges.empty()) end_mappings(current->process_, ranges);
  make_private_for_fork(ranges);
}
void EngineService::after_fork_in_parent() {
  end_fork_of_shared_heap(false);
  service_mutex.unlock();
}
void EngineService::after_fork_in_child() {
  end_fork_of_shared_heap(true);
  if (current != nullptr) {
    current->process_.die();
    Recording::forget();
    close_parent_descriptors();
  }
  forget_injection();
  current = nullptr;
  hooked.store(nullptr, std::memory_order_relaxed);
  hooks_at_work.store(0, std::memory_order_relaxed);  // of the parent's threads
  service_mutex.unlock();
}

// ---- the program's calls that change memory which peers may have mapped ----

void EngineService::memory_changes(uint64_t address, uint64_t length) {
  const HookedService service;
  if (service.get() == nullptr || service.get()->process_.dead()) return;
  const PageRange range{address, address + length};
  end_mappings(service.get()->process_, {&range, 1});
}

void EngineService::memory_changed(uint64_t address, uint64_t length) {
  if (free_unmapped_of_shared_heap(address, length)) return;
  const HookedService service;
  if (service.get() != nullptr && !service.get()->process_.dead()) region_ended(service.get()->process_);
}

void set_program_memory(const ProgramMemory& memory) {
  allow_shared_heap({memory.watch, memory.has_advised});
}

void memory_changes(uint64_t address, uint64_t length) {
  begin_change_of_shared_heap();
  EngineService::memory_changes(address, length);
}

void memory_changed(uint64_t address, uint64_t length) {
  end_change_of_shared_heap();
  EngineService::memory_changed(address, length);
}

void memory_leaves(uint64_t address, uint64_t length) {
  EngineService::memory_changes(address, length);
  try {
    return_from_shared_heap(address, length);
  } catch (const std::bad_alloc&) {  // it stays shared
  }
}

}  // namespace verbena
