// SPDX-License-Identifier: BSD-2-Clause
//
// Opening and closing a device (ibv_open_device(3)), and its attributes.
#include <errno.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "adapter/device_clock.h"
#include "adapter/listed.h"
#include "emulator.h"
#include "engine/objects/context.h"
#include "engine/objects/process.h"
#include "engine/rules/device_attributes.h"
#include "engine/service/engine_service.h"
#include "observe/log.h"
#include "wire/node_recipe.h"

namespace verbena {
namespace {

std::atomic<uint64_t> next_file{1};

// `file`: 0 for a new one.
int open_with_file(const char* name, uint64_t file, Context** out) {
  Process* process = nullptr;
  if (int error = EngineService::acquire(&process); error != 0) return error;
  const DeviceTable& table = process->directory().devices();
  for (uint32_t i = 0; i < table.count; ++i) {
    if (std::strncmp(table.devices[i].name.data(), name, kMaxNameLength) != 0) continue;
    auto* context = new (std::nothrow) Context;
    if (context == nullptr) break;
    static std::atomic<uint32_t> next_number{1};
    context->number = next_number.fetch_add(1, std::memory_order_relaxed);
    const std::string fifo = "a" + std::to_string(context->number);
    NodeMembership& membership = process->membership();
    int error = membership.make_fifo(context->events, fifo);
    if (error == 0) {
      context->async_fd = context->events.open_reader(membership.folder() + "/" + fifo);
      if (context->async_fd < 0) error = errno;
    }
    if (error != 0) {
      delete context;
      EngineService::release(*process);
      return error;
    }
    context->process = process;
    context->device = &table.devices[i];
    context->device_index = i;
    context->file = file != 0 ? file : next_file.fetch_add(1, std::memory_order_relaxed);
    {
      std::lock_guard lock(process->contexts_mutex);
      context->events_seen = process->directory().events(i).count();
      process->contexts.push_back(context);
    }
    context->listed = list_object(process->view(), ListedKind::kContext, context->number, 0, i);
    *out = context;
    return 0;
  }
  EngineService::release(*process);
  return ENODEV;
}

}  // namespace

int restore_node(const char* path) { return wire::restore_node(path); }

int open_context(const char* name, Context** out) { return open_with_file(name, 0, out); }

int import_context(const Context* original, Context** out) {
  if (int error = usable(*original); error != 0) return error;
  return open_with_file(original->device->name.data(), original->file, out);
}

bool close_context(Context* context) {
  Process* process = context->process;
  if (process->dead()) return false;  // a forked child: the pipes and the thread are the parent's
  process->xrc_shared_qps().leave_context(*context);
  unlist_object(process->view(), context->listed);
  const bool is_used = context->users.load(std::memory_order_acquire) != 0;
  if (is_used)  // perftest does this
    VERBENA_INFO("ibv_close_device: %s: the program has not destroyed all that it made there",
                 context->device->name.data());
  {
    std::lock_guard lock(process->contexts_mutex);
    std::erase(process->contexts, context);
    if (is_used) process->left_contexts.push_back(context);
  }
  if (!is_used) delete context;
  process->delete_unused_contexts();
  EngineService::release(*process);
  return is_used;
}

int context_async_fd(const Context* context) { return context->async_fd; }

uint64_t device_clock(const Context*) { return device_clock_ticks(); }

// Also in a forked child, which shares the command descriptor of its parent: the device is the node's.
int query_device(Context* context, ibv_device_attr_ex* attr) {
  if (context->failed.load(std::memory_order_acquire)) return EIO;
  describe_device(*context->device, attr);
  return 0;
}

int query_port(Context* context, uint8_t port, ibv_port_attr* attr) {
  if (context->failed.load(std::memory_order_acquire)) return EIO;
  const DeviceDescription& device = *context->device;
  if (port < 1 || port > device.count_ports()) {
    VERBENA_WARN(port_number, "ibv_query_port: %s: port %u: the ports are 1 to %u", device.name.data(), port,
                 device.count_ports());
    return EINVAL;
  }
  const NodeDirectory& directory = context->process->directory();
  const uint32_t place = port_place(context->device_index, port);
  describe_port(device, port, directory.events(context->device_index).port_down(port), attr);
  attr->qkey_viol_cntr = directory.header().qkey_violations[place].load(std::memory_order_relaxed);
  attr->bad_pkey_cntr = directory.header().pkey_violations[place].load(std::memory_order_relaxed);
  return 0;
}

}  // namespace verbena
