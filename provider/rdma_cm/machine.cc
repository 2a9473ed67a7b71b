// SPDX-License-Identifier: BSD-2-Clause
#include "rdma_cm/machine.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "observe/log.h"
#include "own_thread.h"
#include "rdma_cm/addresses.h"
#include "rdma_cm/call.h"

namespace verbena::rdma_cm {
namespace {

namespace fs = std::filesystem;

constexpr uint32_t kConnectRequest = 4;  // RDMA_CM_EVENT_CONNECT_REQUEST of <rdma/rdma_cma.h>
constexpr uint32_t kDeviceRemoval = 11;  // RDMA_CM_EVENT_DEVICE_REMOVAL
// In the uid of an event: the rest is the number of a membership.
constexpr uint64_t kMembership = uint64_t{1} << 63;

// Where a command names its id. Commands that are not here are carried out by Verbena for every id.
struct IdPlace {
  uint32_t command;
  size_t offset;
};
constexpr IdPlace kIdPlaces[] = {
    {RDMA_USER_CM_CMD_BIND_IP, offsetof(rdma_ucm_bind_ip, id)},
    {RDMA_USER_CM_CMD_RESOLVE_IP, offsetof(rdma_ucm_resolve_ip, id)},
    {RDMA_USER_CM_CMD_RESOLVE_ROUTE, offsetof(rdma_ucm_resolve_route, id)},
    {RDMA_USER_CM_CMD_QUERY_ROUTE, offsetof(rdma_ucm_query, id)},
    {RDMA_USER_CM_CMD_CONNECT, offsetof(rdma_ucm_connect, id)},
    {RDMA_USER_CM_CMD_LISTEN, offsetof(rdma_ucm_listen, id)},
    {RDMA_USER_CM_CMD_ACCEPT, offsetof(rdma_ucm_accept, id)},
    {RDMA_USER_CM_CMD_REJECT, offsetof(rdma_ucm_reject, id)},
    {RDMA_USER_CM_CMD_DISCONNECT, offsetof(rdma_ucm_disconnect, id)},
    {RDMA_USER_CM_CMD_INIT_QP_ATTR, offsetof(rdma_ucm_init_qp_attr, id)},
    {RDMA_USER_CM_CMD_SET_OPTION, offsetof(rdma_ucm_set_option, id)},
    {RDMA_USER_CM_CMD_NOTIFY, offsetof(rdma_ucm_notify, id)},
    {RDMA_USER_CM_CMD_QUERY, offsetof(rdma_ucm_query, id)},
    {RDMA_USER_CM_CMD_BIND, offsetof(rdma_ucm_bind, id)},
    {RDMA_USER_CM_CMD_RESOLVE_ADDR, offsetof(rdma_ucm_resolve_addr, id)},
};

const IdPlace* find_place(uint32_t command) {
  const auto* found = std::find_if(std::begin(kIdPlaces), std::end(kIdPlaces),
                                   [&](const IdPlace& place) { return place.command == command; });
  return found != std::end(kIdPlaces) ? found : nullptr;
}

// The address as a GID, in the kernel's spelling (drivers/infiniband/core/sysfs.c). "": of another family,
// or none.
std::string gid_text(const sockaddr* address) {
  std::array<uint8_t, 16> gid{};
  if (address->sa_family == AF_INET) {
    gid[10] = gid[11] = 0xff;
    std::memcpy(&gid[12], &reinterpret_cast<const sockaddr_in*>(address)->sin_addr, 4);
    if (reinterpret_cast<const sockaddr_in*>(address)->sin_addr.s_addr == 0) return "";
  } else if (address->sa_family == AF_INET6) {
    std::memcpy(gid.data(), &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr, 16);
    if (gid == std::array<uint8_t, 16>{}) return "";
  } else {
    return "";
  }
  std::string text;
  for (size_t i = 0; i < gid.size(); i += 2) {
    char group[8];
    std::snprintf(group, sizeof group, "%s%02x%02x", i == 0 ? "" : ":", gid[i], gid[i + 1]);
    text += group;
  }
  return text;
}

// Does a device of the machine have the address? /proc/self/root leads past the node's tree.
bool is_of_device(const sockaddr* address) {
  const std::string wanted = gid_text(address);
  if (wanted.empty()) return false;
  std::error_code error, ignored;
  const char* const folder = "/proc/self/root/sys/class/infiniband";
  for (fs::directory_iterator device(folder, error), none; !error && device != none; device.increment(error))
    for (fs::directory_iterator port(device->path() / "ports", ignored); port != none;
         port.increment(ignored))
      for (fs::directory_iterator gid(port->path() / "gids", ignored); gid != none; gid.increment(ignored)) {
        std::string line;
        if (std::getline(std::ifstream(gid->path()), line) && line == wanted) return true;
      }
  return false;
}

// The source of the machine's route to the address: that of an unsent datagram.
bool is_reached_from_device(const sockaddr* destination) {
  if (gid_text(destination).empty()) return false;
  const int fd = socket(destination->sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return false;
  sockaddr_storage to{}, from{};
  std::memcpy(&to, destination, address_size(destination->sa_family));
  reinterpret_cast<sockaddr_in&>(to).sin_port = htons(9);  // where sin6_port is, too
  socklen_t size = sizeof from;
  const bool found =
      ::connect(fd, as_sockaddr(to), static_cast<socklen_t>(address_size(to.ss_family))) == 0 &&
      getsockname(fd, reinterpret_cast<sockaddr*>(&from), &size) == 0;
  close(fd);
  return found && is_of_device(as_sockaddr(from));
}

template <typename Request>
const Request& as(const void* request) {
  return *static_cast<const Request*>(request);
}

// Does this command bring an id to a device of the machine?
bool leads_to_machine(uint32_t command, const void* request) {
  const auto resolved = [](const sockaddr* source, const sockaddr* destination) {
    return gid_text(source).empty() ? is_reached_from_device(destination) : is_of_device(source);
  };
  switch (command) {
    case RDMA_USER_CM_CMD_BIND_IP:
      return is_of_device(as_sockaddr(as<rdma_ucm_bind_ip>(request).addr));
    case RDMA_USER_CM_CMD_BIND:
      return is_of_device(as_sockaddr(as<rdma_ucm_bind>(request).addr));
    case RDMA_USER_CM_CMD_RESOLVE_IP:
      return resolved(as_sockaddr(as<rdma_ucm_resolve_ip>(request).src_addr),
                      as_sockaddr(as<rdma_ucm_resolve_ip>(request).dst_addr));
    case RDMA_USER_CM_CMD_RESOLVE_ADDR:
      return resolved(as_sockaddr(as<rdma_ucm_resolve_addr>(request).src_addr),
                      as_sockaddr(as<rdma_ucm_resolve_addr>(request).dst_addr));
    default:
      return false;
  }
}

// Of a context that is not the kernel's yet: the kernel hears of it when it is.
void remember_option(Call& call, Context& context, const rdma_ucm_set_option& option) {
  SavedOption saved{option.level, option.optname, option.optlen, {}};
  if (option.optlen > saved.value.size()) return;
  const auto* from = reinterpret_cast<const void*>(static_cast<uintptr_t>(option.optval));
  if (copy_from_program(saved.value.data(), from, option.optlen) != 0) return;
  const std::lock_guard lock(call.state.mutex);
  context.options.push_back(saved);
}

// An event of the kernel. False: its id is gone.
bool queue(State& state, const rdma_ucm_event_resp& told_by_kernel) {
  std::list<QueuedEvent> queued(1);
  QueuedEvent& told = queued.front();
  told.response = told_by_kernel;
  const std::lock_guard lock(state.mutex);
  const Multicast* const multicast =
      (told_by_kernel.uid & kMembership) != 0
          ? state.multicasts.find(static_cast<uint32_t>(told_by_kernel.uid & ~kMembership))
          : nullptr;
  Context* const context = multicast != nullptr
                               ? multicast->context
                               : state.contexts.find(static_cast<uint32_t>(told_by_kernel.uid - 1));
  if (context == nullptr || context->uid == 0 || context->file->closed) return false;
  told.context = context;
  told.number = state.next_event++;
  told.response.uid = multicast != nullptr ? multicast->uid : context->uid;
  told.response.id = multicast != nullptr ? multicast->id : context->id;
  told.multicast = multicast != nullptr ? multicast->serial : 0;
  if (told_by_kernel.event == kDeviceRemoval) context->closing = true;
  if (told_by_kernel.event == kConnectRequest) {
    told.fresh = std::make_unique<Context>();
    told.fresh->space = context->space;
    told.fresh->is_on_machine = told.fresh->has_machine_id = true;
    told.fresh->machine_id = told_by_kernel.id;
    told.fresh->id = told.response.id = state.contexts.reserve();
    told.fresh->file = context->file;
    --context->backlog;  // until it is fetched
  }
  context->file->events.splice(context->file->events.end(), queued);
  show_events(*context->file);
  return true;
}

}  // namespace

std::unique_ptr<Machine> Machine::make() {
  const char* options = std::getenv("VERBENA_NODE_OPTIONS");  // wire/node_recipe.h
  if (options == nullptr || std::strstr(options, " beside=") == nullptr) return nullptr;
  return std::unique_ptr<Machine>(new Machine);
}

Machine::~Machine() {
  if (fd_ >= 0) syscall(SYS_close, fd_);
}

// System calls: the device file of the preload is the node's.
int Machine::open() {
  const std::lock_guard lock(open_mutex_);
  if (fd_ >= 0) return 0;
  const long fd = syscall(SYS_openat, AT_FDCWD, "/dev/infiniband/rdma_cm", O_RDWR | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) {
    VERBENA_WARN(cm_machine_device, "rdma_cm: /dev/infiniband/rdma_cm of the machine: errno %d", errno);
    return errno;
  }
  fd_ = static_cast<int>(fd);
  const auto main = [](void* self) -> void* {
    static_cast<Machine*>(self)->read_events();
    return nullptr;
  };
  pthread_t thread;
  const int error = create_own_thread(&thread, main, this);
  if (error == 0) pthread_detach(thread);
  return error;
}

int Machine::command(uint32_t number, const void* request, size_t size, size_t room) const {
  const rdma_ucm_cmd_hdr header = {number, static_cast<uint16_t>(size), static_cast<uint16_t>(room)};
  std::vector<uint8_t> bytes(sizeof header + size);
  std::memcpy(bytes.data(), &header, sizeof header);
  std::memcpy(bytes.data() + sizeof header, request, size);
  return syscall(SYS_write, fd_, bytes.data(), bytes.size()) < 0 ? errno : 0;
}

int Machine::adopt(State& state, Context& context) {
  if (const int error = open(); error != 0) return error;
  rdma_ucm_create_id_resp made = {};
  rdma_ucm_create_id create = {};
  create.uid = uint64_t{context.id} + 1;
  create.response = reinterpret_cast<uintptr_t>(&made);
  create.ps = static_cast<uint16_t>(context.space);
  create.qp_type = context.qp_type;
  if (const int error = command(RDMA_USER_CM_CMD_CREATE_ID, &create, sizeof create, sizeof made); error != 0)
    return error;
  std::vector<SavedOption> options;
  {
    const std::lock_guard lock(state.mutex);
    context.machine_id = made.id;
    context.has_machine_id = true;
    options.swap(context.options);
  }
  for (const SavedOption& saved : options) {
    const rdma_ucm_set_option option = {.optval = reinterpret_cast<uintptr_t>(saved.value.data()),
                                        .id = made.id,
                                        .level = saved.level,
                                        .optname = saved.name,
                                        .optlen = saved.size};
    if (const int error = command(RDMA_USER_CM_CMD_SET_OPTION, &option, sizeof option, 0); error != 0)
      VERBENA_WARN(cm_machine_device, "rdma_set_option: the machine's rdma_cm refuses option %u: errno %d",
                   saved.name, error);
  }
  return 0;
}

bool Machine::carry_out(Call& call, uint32_t number, void* request, size_t size, int* error) {
  const IdPlace* const place = find_place(number);
  if (place == nullptr) return false;
  uint32_t id = 0;
  std::memcpy(&id, static_cast<uint8_t*>(request) + place->offset, sizeof id);
  ContextInUse context;
  if (call.find(id, &context) != 0) return false;
  if (!context->is_on_machine) {
    if (number == RDMA_USER_CM_CMD_SET_OPTION)
      remember_option(call, *context.get(), as<rdma_ucm_set_option>(request));
    if (!leads_to_machine(number, request)) return false;
    if (*error = adopt(call.state, *context.get()); *error != 0) return true;
    context->is_on_machine = true;
  }
  const uint64_t uid = context->uid;
  if (number == RDMA_USER_CM_CMD_ACCEPT) {
    // From here on the kernel tells events of the id.
    auto& accept = *static_cast<rdma_ucm_accept*>(request);
    const std::lock_guard lock(call.state.mutex);
    context->uid = accept.uid;
    accept.uid = uint64_t{context->id} + 1;
  }
  std::memcpy(static_cast<uint8_t*>(request) + place->offset, &context->machine_id, sizeof id);
  *error = command(number, request, size, call.room);
  if (*error != 0 && number == RDMA_USER_CM_CMD_ACCEPT) {
    const std::lock_guard lock(call.state.mutex);
    context->uid = uid;
  }
  return true;
}

int Machine::listen_as_well(State& state, Context& context, const sockaddr_storage& local, uint32_t backlog) {
  if (!gid_text(as_sockaddr(local)).empty() || address_size(local.ss_family) == 0) return 0;
  if (!context.has_machine_id) {
    if (const int error = adopt(state, context); error != 0) return error;
    rdma_ucm_bind bind = {};
    bind.id = context.machine_id;
    bind.addr_size = static_cast<uint16_t>(address_size(local.ss_family));
    std::memcpy(&bind.addr, &local, bind.addr_size);
    if (const int error = command(RDMA_USER_CM_CMD_BIND, &bind, sizeof bind, 0); error != 0) return error;
  }
  const rdma_ucm_listen listen = {context.machine_id, backlog};
  return command(RDMA_USER_CM_CMD_LISTEN, &listen, sizeof listen, 0);
}

int Machine::join(State& state, Multicast& multicast, bool send_only) {
  rdma_ucm_create_id_resp made = {};
  rdma_ucm_join_mcast join = {};
  join.response = reinterpret_cast<uintptr_t>(&made);
  join.uid = kMembership | multicast.id;
  join.id = multicast.context->machine_id;
  join.addr_size = static_cast<uint16_t>(address_size(multicast.group.ss_family));
  join.join_flags = send_only ? RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER : RDMA_MC_JOIN_FLAG_FULLMEMBER;
  std::memcpy(&join.addr, &multicast.group, join.addr_size);
  const std::lock_guard events(events_mutex_);  // no event comes before the membership is known
  if (const int error = command(RDMA_USER_CM_CMD_JOIN_MCAST, &join, sizeof join, sizeof made); error != 0)
    return error;
  multicast.machine_id = made.id;
  const std::lock_guard lock(state.mutex);
  state.multicasts.put(multicast.id, &multicast);
  return 0;
}

void Machine::leave(const Multicast& multicast) {
  rdma_ucm_destroy_id_resp response = {};
  rdma_ucm_destroy_id request = {};
  request.response = reinterpret_cast<uintptr_t>(&response);
  request.id = multicast.machine_id;
  command(RDMA_USER_CM_CMD_LEAVE_MCAST, &request, sizeof request, sizeof response);
  const std::lock_guard lock(events_mutex_);  // as destroy()
}

void Machine::destroy(uint32_t id) {
  rdma_ucm_destroy_id_resp response = {};
  rdma_ucm_destroy_id request = {};
  request.response = reinterpret_cast<uintptr_t>(&response);
  request.id = id;
  command(RDMA_USER_CM_CMD_DESTROY_ID, &request, sizeof request, sizeof response);
  const std::lock_guard lock(events_mutex_);  // the thread may have fetched one just before
}

void Machine::read_events() {
  for (;;) {
    pollfd readable{fd_, POLLIN, 0};
    if (poll(&readable, 1, -1) < 0 && errno != EINTR) return;
    const std::lock_guard lock(events_mutex_);
    rdma_ucm_event_resp event = {};
    rdma_ucm_get_event request = {};
    request.response = reinterpret_cast<uintptr_t>(&event);
    const int error = command(RDMA_USER_CM_CMD_GET_EVENT, &request, sizeof request, sizeof event);
    if (error == EBADF) return;
    if (error != 0) continue;
    State* const state = current_state();
    if (state == nullptr) return;
    bool is_queued = false;
    try {
      is_queued = queue(*state, event);
    } catch (const std::bad_alloc&) {
    }
    if (is_queued || event.event != kConnectRequest) continue;
    rdma_ucm_destroy_id_resp response = {};
    rdma_ucm_destroy_id refused = {};
    refused.response = reinterpret_cast<uintptr_t>(&response);
    refused.id = event.id;
    command(RDMA_USER_CM_CMD_DESTROY_ID, &refused, sizeof refused, sizeof response);
  }
}

}  // namespace verbena::rdma_cm
