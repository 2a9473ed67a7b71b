// SPDX-License-Identifier: BSD-2-Clause
#include "nldev/device_commands.h"

#include <endian.h>
#include <errno.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "boundary/placeholder_file.h"

namespace verbena::nldev {
namespace {

bool is_infiniband(const DeviceSurvey& device) {
  return device.ports[0].attributes.link_layer == IBV_LINK_LAYER_INFINIBAND;
}

void put_device_facts(Writer* out, const DeviceSurvey& device) {
  const ibv_device_attr& attributes = device.attributes.orig_attr;
  put_device(out, device);
  out->put32(RDMA_NLDEV_ATTR_PORT_INDEX, attributes.phys_port_cnt);
  out->put64(RDMA_NLDEV_ATTR_CAP_FLAGS, device.attributes.device_cap_flags_ex);
  out->put_text(RDMA_NLDEV_ATTR_FW_VERSION, attributes.fw_ver);
  out->put64(RDMA_NLDEV_ATTR_NODE_GUID, device.node_guid);
  out->put64(RDMA_NLDEV_ATTR_SYS_IMAGE_GUID, be64toh(attributes.sys_image_guid));
  out->put8(RDMA_NLDEV_ATTR_DEV_NODE_TYPE, RDMA_NODE_IB_CA);
  out->put8(RDMA_NLDEV_ATTR_DEV_DIM, 0);  // no adaptive moderation
  out->put8(kNameAssignType, 0);          // RDMA_NAME_ASSIGN_TYPE_UNKNOWN
  out->put_text(RDMA_NLDEV_ATTR_DEV_PROTOCOL, is_infiniband(device) ? "ib" : "roce");
}

void put_port_facts(Writer* out, const DeviceSurvey& device, uint32_t number) {
  const PortSurvey& survey = device.ports[number - 1];
  const ibv_port_attr& port = survey.attributes;
  put_device(out, device);
  out->put32(RDMA_NLDEV_ATTR_PORT_INDEX, number);
  if (is_infiniband(device)) {
    out->put64(RDMA_NLDEV_ATTR_CAP_FLAGS, port.port_cap_flags | uint64_t{port.port_cap_flags2} << 32);
    out->put64(RDMA_NLDEV_ATTR_SUBNET_PREFIX, survey.subnet_prefix);
    out->put32(RDMA_NLDEV_ATTR_LID, port.lid);
    out->put32(RDMA_NLDEV_ATTR_SM_LID, port.sm_lid);
    out->put8(RDMA_NLDEV_ATTR_LMC, port.lmc);
  }
  out->put8(RDMA_NLDEV_ATTR_PORT_STATE, port.state);
  out->put8(RDMA_NLDEV_ATTR_PORT_PHYS_STATE, port.phys_state);
  if (is_infiniband(device) || survey.interface_index == 0) return;
  out->put32(RDMA_NLDEV_ATTR_NDEV_INDEX, survey.interface_index);
  out->put_text(RDMA_NLDEV_ATTR_NDEV_NAME, survey.interface_name);
}

// The kernel's encoding of a device number in 64 bits (huge_encode_dev).
uint64_t encoded(unsigned major, unsigned minor) {
  return (minor & 0xff) | uint64_t{major} << 8 | (uint64_t{minor} & ~uint64_t{0xff}) << 12;
}

}  // namespace

int get_device(const Request& request, Writer* out) {
  const DeviceSurvey* device = request.device();
  if (device == nullptr) return EINVAL;
  return write_reply(request, RDMA_NLDEV_CMD_GET, out, [&](Writer* w) { put_device_facts(w, *device); });
}

int dump_devices(const Request& request, Dump* out) {
  for (const DeviceSurvey& device : request.devices)
    out->add_message(RDMA_NLDEV_CMD_GET, [&](Writer* w) { put_device_facts(w, device); });
  return 0;
}

int get_port(const Request& request, Writer* out) {
  const DeviceSurvey* device = request.device();
  if (device == nullptr || !request.names_port() || !request.has_valid_port()) return EINVAL;
  // The kernel's reply has the type of another command.
  return write_reply(request, RDMA_NLDEV_CMD_GET, out,
                     [&](Writer* w) { put_port_facts(w, *device, request.named_port()); });
}

int dump_ports(const Request& request, Dump* out) {
  const DeviceSurvey* device = request.device();
  if (device == nullptr) return EINVAL;
  for (uint32_t port = 1; port <= device->ports.size(); ++port)
    out->add_message(RDMA_NLDEV_CMD_PORT_GET, [&](Writer* w) { put_port_facts(w, *device, port); });
  return 0;
}

int get_character_device(const Request& request, Writer* out) {
  const Attributes& attributes = request.attributes;
  if (request.parse_error != 0 || !attributes.has(RDMA_NLDEV_ATTR_CHARDEV_TYPE)) return EINVAL;
  const DeviceSurvey* device = request.device();
  if (attributes.has(RDMA_NLDEV_ATTR_DEV_INDEX) ? device == nullptr || !request.has_valid_port()
                                                : request.names_port())
    return EINVAL;
  if (attributes.get_text(RDMA_NLDEV_ATTR_CHARDEV_TYPE) != "uverbs" || device == nullptr) return EOPNOTSUPP;
  if (request.names_port()) return EINVAL;  // uverbs belongs to the device
  return write_reply(request, RDMA_NLDEV_CMD_GET_CHARDEV, out, [&](Writer* w) {
    w->put64(RDMA_NLDEV_ATTR_CHARDEV, encoded(kPlaceholderMajor, kPlaceholderMinor));
    w->put64(RDMA_NLDEV_ATTR_CHARDEV_ABI, 1);  // of the provider's commands, as in sysfs
    w->put_text(RDMA_NLDEV_ATTR_CHARDEV_NAME, "uverbs" + std::to_string(device->number));
  });
}

// Copy-on-fork: a child does not take the pages of a memory region away from its parent. Peers reach the
// memory of a process through its page tables, so what they write is in the parent's page, whichever process
// copied it first.
int get_system(const Request& request, Writer* out) {
  if (request.parse_error != 0) return request.parse_error;
  return write_reply(request, RDMA_NLDEV_CMD_SYS_GET, out, [](Writer* w) {
    w->put8(RDMA_NLDEV_SYS_ATTR_NETNS_MODE, 1);  // shared: a node is not bound to a network namespace
    w->put8(kSysPrivilegedQkeyMode, 0);          // controlled Q_Keys need CAP_NET_RAW
    w->put8(kSysCopyOnFork, 1);
  });
}

}  // namespace verbena::nldev
