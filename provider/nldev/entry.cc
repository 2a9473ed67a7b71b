// SPDX-License-Identifier: BSD-2-Clause
//
// One of the symbols that the provider's library exports (verbs/exports.map).
#include <errno.h>

#include <exception>
#include <new>
#include <vector>

#include "nldev/socket.h"
#include "no_cancellation.h"
#include "survey/devices.h"

namespace verbena::nldev {
namespace {

int is_ready() {
  const NoCancellation guard;
  try {
    std::vector<DeviceSurvey> devices;
    return survey_devices(node_of_environment(), &devices) == 0;
  } catch (const std::exception&) {
    return 0;
  }
}

void* open_socket() { return new (std::nothrow) Socket; }

void reset_socket(void* socket) { static_cast<Socket*>(socket)->reset(); }

int request(void* socket, const void* data, size_t length, const verbena_netlink_program* program) {
  const NoCancellation guard;
  try {
    return static_cast<Socket*>(socket)->request(data, length, *program);
  } catch (const std::exception&) {
    return ENOMEM;
  }
}

void more(void* socket, const verbena_netlink_program* program) {
  const NoCancellation guard;
  static_cast<Socket*>(socket)->more(*program);
}

constexpr verbena_netlink_kernel kNetlink = {
    .is_ready = is_ready, .open = open_socket, .reset = reset_socket, .request = request, .more = more};

}  // namespace
}  // namespace verbena::nldev

extern "C" __attribute__((visibility("default"))) const verbena_netlink_kernel* verbena_netlink() {
  return &verbena::nldev::kNetlink;
}
