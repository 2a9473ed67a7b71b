// SPDX-License-Identifier: BSD-2-Clause
//
// verbena event: raises an event of a whole device.
#include "fabric/device_events.h"

#include <errno.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>

#include "fabric/node.h"
#include "fabric/node_directory.h"
#include "tool/command.h"
#include "tool/environment.h"
#include "wire/node_recipe.h"

namespace verbena::tool {
namespace {

struct EventOptions {
  NodeOptions node;
  bool chosen = false;  // the command line names a node
  std::string device;  // "verbena0", or with a port as `rdma link` names it, "verbena0/2"
  std::string what;
};

const std::map<std::string, ibv_event_type> kEvents = {{"port-down", IBV_EVENT_PORT_ERR},
                                                       {"port-up", IBV_EVENT_PORT_ACTIVE},
                                                       {"gid-change", IBV_EVENT_GID_CHANGE},
                                                       {"address-change", kAddressChange},
                                                       {"device-fatal", IBV_EVENT_DEVICE_FATAL}};

bool find_port(const DeviceTable& table, const std::string& name, uint32_t* index, uint32_t* port) {
  const size_t slash = name.find('/');
  const std::string device = name.substr(0, slash);
  *port = 1;
  if (slash != std::string::npos) {
    const std::string number = name.substr(slash + 1);
    if (number != "1" && number != "2") return false;
    *port = number == "1" ? 1 : 2;
  }
  for (*index = 0; *index < table.count; ++*index)
    if (device == table.devices[*index].name.data()) return *port <= table.devices[*index].count_ports();
  return false;
}

// "verbena0, verbena1/1, verbena1/2"
std::string ports_of(const DeviceTable& table) {
  std::string names;
  for (uint32_t i = 0; i < std::min(table.count, kMaxDevices); ++i) {
    const DeviceDescription& device = table.devices[i];
    for (uint32_t port = 1; port <= device.count_ports(); ++port)
      names += (names.empty() ? "" : ", ") + std::string(device.name.data()) +
               (device.count_ports() > 1 ? "/" + std::to_string(port) : "");
  }
  return names;
}

int event(const EventOptions& options) {
  const std::string here = current_environment(kNodeVariable);
  const std::string path =
      !options.chosen && !here.empty() ? here : node_path(options.node.name, options.node.devices);
  NodeDirectory directory;
  int error = directory.open(directory_path(path).c_str());
  if (error == ENOENT && path == here && wire::restore_node(path) == 0)
    error = directory.open(directory_path(path).c_str());
  if (error != 0)
    return failed("no node at " + path + ": " +
                  (error == EPROTO   ? "made by another version of Verbena, or damaged"
                   : error == ENOENT ? "no program runs there; verbena status --all shows the nodes there are"
                                     : std::strerror(error)));
  uint32_t device = 0, port = 1;
  if (!find_port(directory.devices(), options.device, &device, &port))
    return failed("node " + path + " has no device or port " + options.device + ": it has " +
                  ports_of(directory.devices()));
  uint32_t told = 0;
  error = raise_device_event(directory, path, device, kEvents.at(options.what), &told, port);
  if (error == EALREADY) {
    std::printf("%s: the port is %s already\n", options.device.c_str(),
                options.what == "port-down" ? "down" : "up");
    return 0;
  }
  if (error != 0) return failed(path + ": " + std::strerror(error));
  std::printf("%s: %s, %u %s on the node\n", options.device.c_str(), options.what.c_str(), told,
              told == 1 ? "process" : "processes");
  return printed();
}

}  // namespace

void add_event(CLI::App& app, CommandLine& line) {
  CLI::App* command = app.add_subcommand("event", "let something happen to a device");
  command->footer(
      "port-down       IBV_EVENT_PORT_ERR; nothing passes the port until port-up: connections retry, then "
      "fail.\n"
      "                On InfiniBand, RDMA_CM_EVENT_MULTICAST_ERROR for each group that was joined\n"
      "port-up         IBV_EVENT_PORT_ACTIVE\n"
      "gid-change      IBV_EVENT_GID_CHANGE\n"
      "address-change  as a bond's failover: IBV_EVENT_GID_CHANGE, and RDMA_CM_EVENT_ADDR_CHANGE for each "
      "id\n"
      "device-fatal    IBV_EVENT_DEVICE_FATAL; verbs of processes that have the device open answer EIO, a "
      "new "
      "open works;\n"
      "                RDMA_CM_EVENT_DEVICE_REMOVAL for each id bound to the device\n"
      "Every process that has the device open gets the event. The node is that of the options; without "
      "options\n"
      "that of VERBENA_NODE; without that the default one. Within `verbena run` options that are not\n"
      "given are those of its node. The port stays down for processes that open it "
      "later.\n\n"
      "Examples:\n"
      "  verbena event verbena0 port-down; sleep 1; verbena event verbena0 port-up\n"
      "  verbena event verbena1 device-fatal --devices 2\n"
      "  verbena run -- sh -c 'ibv_asyncwatch & sleep 1; verbena event verbena0 gid-change; kill $!'");
  auto options = std::make_shared<EventOptions>();
  command->add_option("DEVICE", options->device, "verbena0, ...; verbena0/2 for its second port")->required();
  command
      ->add_option("EVENT", options->what, "port-down, port-up, gid-change, address-change or device-fatal")
      ->required()
      ->check(CLI::IsMember({"port-down", "port-up", "gid-change", "address-change", "device-fatal"}));
  add_node_options(*command, options->node);
  command->callback([command, options, &line] {
    if (line.has_tail) throw UsageError{"event takes no program"};
    keep_node(*command, options->node);
    check_network_options(options->node);
    options->chosen = names_node(*command);
    line.action = [options] { return event(*options); };
  });
}

}  // namespace verbena::tool
