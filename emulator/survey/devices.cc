// SPDX-License-Identifier: BSD-2-Clause
#include "survey/devices.h"

#include <endian.h>
#include <net/if.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "engine/rules/device_attributes.h"
#include "fabric/node.h"
#include "fabric/node_directory.h"
#include "survey/snapshot.h"

namespace verbena {
namespace {

// The kernel names the interface only in the network namespace that it belongs to. Its number may have been
// given to another one since the node was created.
void find_interface(const GidEntry& gid, PortSurvey* out) {
  const std::string name = printable(gid.interface_name.data(), gid.interface_name.size());
  if (name.empty() || if_nametoindex(name.c_str()) != gid.interface_index) return;
  out->interface_index = gid.interface_index;
  out->interface_name = name;
}

PortSurvey describe_port_of(const DeviceDescription& device, uint32_t number, bool is_down) {
  const PortDescription& port = device.port(number);
  PortSurvey out;
  describe_port(device, number, is_down, &out.attributes);
  if (port.gid_count == 0) return out;
  uint64_t prefix;
  std::memcpy(&prefix, port.gids[0].raw.data(), sizeof prefix);
  out.subnet_prefix = be64toh(prefix);
  find_interface(port.gids[0], &out);
  return out;
}

DeviceSurvey describe(const NodeDirectory& directory, uint32_t index) {
  const DeviceDescription& device = directory.devices().devices[index];
  DeviceSurvey out;
  out.index = index;
  out.number = directory.devices().first_number + index;
  out.is_beside = directory.devices().first_number != 0;
  out.name = printable(device.name.data(), device.name.size());
  out.node_guid = device.node_guid;
  describe_device(device, &out.attributes);
  for (uint32_t port = 1; port <= device.count_ports(); ++port) {
    const uint32_t down = directory.header().ports_down.load(std::memory_order_acquire);
    out.ports.push_back(describe_port_of(device, port, (down & port_bit(index, port)) != 0));
  }
  return out;
}

}  // namespace

std::string node_of_environment() {
  const char* path = std::getenv(kNodeVariable);
  return path != nullptr && path[0] == '/' ? path : "";
}

int survey_devices(const std::string& node, std::vector<DeviceSurvey>* out) {
  NodeDirectory directory;
  if (const int error = directory.open(directory_path(node).c_str()); error != 0) return error;
  out->clear();
  for (uint32_t i = 0; i < std::min(directory.devices().count, kMaxDevices); ++i)
    out->push_back(describe(directory, i));
  return 0;
}

}  // namespace verbena
