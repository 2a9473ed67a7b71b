// SPDX-License-Identifier: BSD-2-Clause
//
// The devices of a node as the kernel's RDMA core would describe them to a program that has not opened them
// (struct ib_device). The same values as those of ibv_query_device_ex(3), ibv_query_port(3) and sysfs.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <string>
#include <vector>

namespace verbena {

struct PortSurvey {
  ibv_port_attr attributes{};
  uint64_t subnet_prefix = 0;    // host byte order
  uint32_t interface_index = 0;  // of the network interface that the port belongs to; 0: none
  std::string interface_name;
};

struct DeviceSurvey {
  uint32_t index = 0;      // in the node's device table
  uint32_t number = 0;     // of uverbsN, and of NETLINK_RDMA
  bool is_beside = false;  // the machine's devices are seen as well
  std::string name;        // "verbena0"
  uint64_t node_guid = 0;  // host byte order
  ibv_device_attr_ex attributes{};
  std::vector<PortSurvey> ports;  // from number 1 on; at least one
};

// The node that VERBENA_NODE names, as an absolute path. "": none.
std::string node_of_environment();

// The devices of the node, in the order of their indices. Errors as of NodeDirectory::open().
int survey_devices(const std::string& node, std::vector<DeviceSurvey>* out);

}  // namespace verbena
