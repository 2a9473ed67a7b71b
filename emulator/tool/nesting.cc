// SPDX-License-Identifier: BSD-2-Clause
//
// `verbena run` within `verbena run`.
#include <CLI/App.hpp>
#include <algorithm>

#include "fabric/node.h"
#include "fabric/node_directory.h"
#include "tool/command.h"
#include "tool/environment.h"

namespace verbena::tool {
namespace {

// The part of a node's file name behind the name that the user gave it.
std::string suffix_of(const DeviceTableOptions& options) {
  const std::string path = node_path("x", options);
  return path.substr(path.rfind('/') + 2);
}

bool ends_with(const std::string& text, const std::string& end) {
  return text.size() > end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

// The options that made the node, but for its network. False: it cannot be read.
bool read_options(const std::string& node, NodeOptions* out) {
  NodeDirectory directory;
  if (directory.open(directory_path(node).c_str()) != 0) return false;
  const DeviceTable& table = directory.devices();
  const DeviceDescription& first = table.devices[0];
  DeviceTableOptions options;
  options.count = std::clamp(table.count, 1u, kMaxDevices);
  options.link_layer =
      first.link_layer == LinkLayer::kInfiniband ? LinkLayer::kInfiniband : LinkLayer::kEthernet;
  options.beside = table.first_number != 0;
  options.ports = first.count_ports();
  options.lmc = std::min(first.lmc, kMaxLmc);
  options.pkeys.assign(first.pkeys.begin(),
                       first.pkeys.begin() + std::clamp(first.pkey_count, 1u, kMaxPkeys));
  options.limits = first.limits;
  options.limits.profile.back() = 0;
  out->devices = options;
  if (table.network.enabled != 0) {
    options.network.enabled = true;
    options.network.kind = table.network.kind;
    options.network.peer_ranges.assign(
        table.network.peer_ranges.begin(),
        table.network.peer_ranges.begin() + std::min(table.network.peer_range_count, kMaxPeerRanges));
    if (has_key(table.network)) options.network.port = static_cast<uint16_t>(table.network.port);
  }
  const std::string file = node.substr(node.rfind('/') + 1);
  std::string suffix = suffix_of(options);
  if (table.network.enabled != 0 && !ends_with(file, suffix)) {  // --ip instead of --net
    for (uint32_t i = 0; i < std::min(table.network.count, kMaxGids); ++i)
      options.network.addresses.push_back(table.network.addresses[i]);
    suffix = suffix_of(options);
  }
  if (ends_with(file, suffix)) out->name = file.substr(0, file.size() - suffix.size());
  return true;
}

}  // namespace

void keep_node(const CLI::App& command, NodeOptions& options) {
  const std::string outer = current_environment(kNodeVariable);
  NodeOptions kept;
  if (outer.empty() || !read_options(outer, &kept)) return;
  if (!names_node(command)) {
    options.existing = outer;
    return;
  }
  if (command.count("--node") == 0) options.name = kept.name;
  if (command.count("--devices") == 0) options.devices.count = kept.devices.count;
  if (command.count("--beside") == 0) options.devices.beside = kept.devices.beside;
  if (command.count("--ports") == 0) options.devices.ports = kept.devices.ports;
  // Another link layer has neither.
  const bool same_layer =
      command.count("--link-layer") == 0 || options.devices.link_layer == kept.devices.link_layer;
  if (command.count("--pkey") == 0 && same_layer) options.devices.pkeys = kept.devices.pkeys;
  if (command.count("--lmc") == 0 && same_layer) options.devices.lmc = kept.devices.lmc;
  if (command.count("--link-layer") == 0) options.devices.link_layer = kept.devices.link_layer;
  if (command.count("--profile") == 0) options.devices.limits = kept.devices.limits;
}

}  // namespace verbena::tool
