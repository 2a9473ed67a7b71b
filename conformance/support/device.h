// SPDX-License-Identifier: BSD-2-Clause
//
// The device under test, opened, with what it claims. Nothing here depends on which device it is: name and
// vendor are for the report only.
#pragma once

#include <infiniband/verbs.h>

#include <string>
#include <utility>
#include <vector>

#include "suite/options.h"

namespace conformance {

class Device {
 public:
  // The device, port and GID of the options, or the first that can be used. Throws std::runtime_error saying
  // why there is none.
  explicit Device(const Options& options);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  ibv_context* context() const { return context_; }
  const std::string& name() const { return name_; }
  const ibv_device_attr& attributes() const { return extended_.orig_attr; }
  const ibv_device_attr_ex& extended() const { return extended_; }
  const ibv_port_attr& port() const { return port_; }
  uint8_t port_number() const { return port_number_; }
  uint8_t gid_index() const { return gid_index_; }
  const ibv_gid& gid() const { return gid_; }
  bool is_ethernet() const { return port_.link_layer == IBV_LINK_LAYER_ETHERNET; }

  // This port's address for a QP or an address handle of the same port.
  ibv_ah_attr own_address() const { return address_of(gid_, port_.lid); }
  // The same for the port of another device.
  ibv_ah_attr address_of(const ibv_gid& gid, uint16_t lid) const;

 private:
  void choose_port(const Options& options);
  void choose_gid(const Options& options);

  ibv_context* context_ = nullptr;
  std::string name_;
  ibv_device_attr_ex extended_ = {};
  ibv_port_attr port_ = {};
  uint8_t port_number_ = 0;
  uint8_t gid_index_ = 0;
  ibv_gid gid_ = {};
};

// Attributes for the report, in the order of the structures.
std::vector<std::pair<std::string, std::string>> facts_of(const Device& device);

// A group, of InfiniBand, IPv6 or IPv4.
bool is_multicast(const ibv_gid& gid);

std::string gid_text(const ibv_gid& gid);

}  // namespace conformance
