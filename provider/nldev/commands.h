// SPDX-License-Identifier: BSD-2-Clause
//
// The commands of RDMA_NL_NLDEV (drivers/infiniband/core/nldev.c). Each handler gets a parsed request and
// writes its reply. All of them return 0 or the errno that the kernel gives for the same request.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "nldev/message.h"
#include "survey/devices.h"

namespace verbena::nldev {

struct Request {
  uint16_t type = 0;  // nlmsg_type, which most replies have, too
  uint32_t sequence = 0;
  uint32_t port = 0;  // the port id of the program's socket
  Attributes attributes;
  int parse_error = 0;            // of the attributes: most commands give EINVAL for any
  bool is_administrator = false;  // CAP_NET_ADMIN
  std::string node;
  std::vector<DeviceSurvey> devices;

  // The device that DEV_INDEX names; nullptr: there is none, or the attributes are wrong.
  const DeviceSurvey* device() const;
  // Beside the machine's devices: does it name one of those?
  bool is_for_kernel() const;
  bool names_port() const { return attributes.has(RDMA_NLDEV_ATTR_PORT_INDEX); }
  // Is PORT_INDEX absent, or that of a port of device()?
  bool has_valid_port() const;
  // 0: no port is named.
  uint32_t named_port() const { return names_port() ? attributes.get32(RDMA_NLDEV_ATTR_PORT_INDEX) : 0; }
};

constexpr uint16_t type_of(uint32_t command) { return RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, command); }

// Writes the one message of a reply: a message with `command`'s type, filled by `fill`. EMSGSIZE: too long.
int write_reply(const Request& request, uint32_t command, Writer* out,
                const std::function<void(Writer*)>& fill);

// The datagrams of a dump, without the NLMSG_DONE that ends it.
class Dump {
 public:
  explicit Dump(const Request& request) : request_(request) {}
  // A message of its own, in the current datagram if it fits.
  void add_message(uint32_t command, const std::function<void(Writer*)>& fill);
  // A message with a table of entries, continued in further datagrams. Nothing if there are no entries.
  // `begin` writes what precedes the table in each message, `fill` the entry with this number.
  void add_table(uint16_t table, uint16_t entry, size_t entries, const std::function<void(Writer*)>& begin,
                 const std::function<void(Writer*, size_t)>& fill);
  std::vector<std::string> take();

 private:
  void finish_datagram();
  const Request& request_;
  Writer current_;
  std::vector<std::string> datagrams_;
};

// DEV_INDEX and DEV_NAME, with which most messages begin.
void put_device(Writer* out, const DeviceSurvey& device);

struct Command {
  int (*get)(const Request& request, Writer* out) = nullptr;
  int (*dump)(const Request& request, Dump* out) = nullptr;
  bool changes = false;  // for CAP_NET_ADMIN only
};

// nullptr: there is no such command.
const Command* find_command(uint32_t number);

}  // namespace verbena::nldev
