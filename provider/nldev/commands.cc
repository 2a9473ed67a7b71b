// SPDX-License-Identifier: BSD-2-Clause
#include "nldev/commands.h"

#include <errno.h>

#include <array>

#include "nldev/device_commands.h"
#include "nldev/resource_commands.h"
#include "nldev/statistic_commands.h"

namespace verbena::nldev {
namespace {

// What the kernel lets a network administrator do, and nobody does here: rename or remove a device, for
// example.
int not_supported(const Request&, Writer*) { return EOPNOTSUPP; }
int no_entries(const Request& request, Dump*) { return request.device() != nullptr ? 0 : EINVAL; }

template <Kind kind>
constexpr Command of_objects() {
  return {get_object<kind>, dump_objects<kind>};
}

constexpr std::array<Command, kCommands> make_table() {
  std::array<Command, kCommands> table{};
  table[RDMA_NLDEV_CMD_GET] = {get_device, dump_devices};
  table[RDMA_NLDEV_CMD_PORT_GET] = {get_port, dump_ports};
  table[RDMA_NLDEV_CMD_GET_CHARDEV] = {get_character_device};
  table[RDMA_NLDEV_CMD_SYS_GET] = {get_system};
  table[RDMA_NLDEV_CMD_RES_GET] = {get_summary, dump_summaries};
  table[RDMA_NLDEV_CMD_RES_QP_GET] = of_objects<Kind::kQp>();
  table[RDMA_NLDEV_CMD_RES_CM_ID_GET] = of_objects<Kind::kCmId>();
  table[RDMA_NLDEV_CMD_RES_CQ_GET] = of_objects<Kind::kCq>();
  table[RDMA_NLDEV_CMD_RES_MR_GET] = of_objects<Kind::kMr>();
  table[RDMA_NLDEV_CMD_RES_PD_GET] = of_objects<Kind::kPd>();
  table[RDMA_NLDEV_CMD_RES_CTX_GET] = of_objects<Kind::kContext>();
  table[kResSrqGet] = of_objects<Kind::kSrq>();
  table[RDMA_NLDEV_CMD_STAT_GET] = {get_statistics, dump_statistics};
  table[kStatGetStatus] = {get_counter_status};
  table[kFrmrPoolsGet] = {nullptr, no_entries};
  for (const uint32_t number :
       {uint32_t{RDMA_NLDEV_CMD_SET}, uint32_t{RDMA_NLDEV_CMD_NEWLINK}, uint32_t{RDMA_NLDEV_CMD_DELLINK},
        uint32_t{RDMA_NLDEV_CMD_SYS_SET}, uint32_t{RDMA_NLDEV_CMD_STAT_SET},
        uint32_t{RDMA_NLDEV_CMD_STAT_DEL}, uint32_t{RDMA_NLDEV_CMD_RES_QP_GET_RAW},
        uint32_t{RDMA_NLDEV_CMD_RES_CQ_GET_RAW}, uint32_t{RDMA_NLDEV_CMD_RES_MR_GET_RAW},
        uint32_t{kResSrqGetRaw}, uint32_t{kNewDev}, uint32_t{kDelDev}, uint32_t{kFrmrPoolsSet}})
    table[number] = {not_supported, nullptr, true};
  return table;
}
constexpr std::array<Command, kCommands> kTable = make_table();

}  // namespace

const DeviceSurvey* Request::device() const {
  if (parse_error != 0 || !attributes.has(RDMA_NLDEV_ATTR_DEV_INDEX)) return nullptr;
  const uint32_t number = attributes.get32(RDMA_NLDEV_ATTR_DEV_INDEX);
  for (const DeviceSurvey& device : devices)
    if (device.number == number) return &device;
  return nullptr;
}

bool Request::is_for_kernel() const {
  if (devices.empty() || !devices[0].is_beside || parse_error != 0) return false;
  return attributes.has(RDMA_NLDEV_ATTR_DEV_INDEX) && device() == nullptr;
}

bool Request::has_valid_port() const {
  const DeviceSurvey* named = device();
  return !names_port() || (named != nullptr && named_port() >= 1 && named_port() <= named->ports.size());
}

void put_device(Writer* out, const DeviceSurvey& device) {
  out->put32(RDMA_NLDEV_ATTR_DEV_INDEX, device.number);
  out->put_text(RDMA_NLDEV_ATTR_DEV_NAME, device.name);
}

int write_reply(const Request& request, uint32_t command, Writer* out,
                const std::function<void(Writer*)>& fill) {
  const size_t message = out->begin(type_of(command), 0, request.sequence, request.port);
  fill(out);
  out->end(message);
  return out->full() ? EMSGSIZE : 0;
}

void Dump::add_message(uint32_t command, const std::function<void(Writer*)>& fill) {
  for (int i = 0; i < 2; ++i) {
    const size_t before = current_.size();
    const size_t message = current_.begin(type_of(command), NLM_F_MULTI, request_.sequence, request_.port);
    fill(&current_);
    current_.end(message);
    if (!current_.full()) return;
    current_.cut(before);
    finish_datagram();
  }
}

void Dump::add_table(uint16_t table, uint16_t entry, size_t entries,
                     const std::function<void(Writer*)>& begin,
                     const std::function<void(Writer*, size_t)>& fill) {
  for (size_t i = 0; i < entries;) {
    const size_t message = current_.begin(request_.type, NLM_F_MULTI, request_.sequence, request_.port);
    begin(&current_);
    const size_t nest = current_.begin_nest(table);
    for (const size_t first = i; i < entries; ++i) {
      const size_t before = current_.size();
      const size_t one = current_.begin_nest(entry);
      fill(&current_, i);
      current_.end_nest(one);
      if (!current_.full()) continue;
      current_.cut(before);
      if (i == first) ++i;  // longer than a datagram: there is no such entry
      break;
    }
    current_.end_nest(nest);
    current_.end(message);
    finish_datagram();
  }
}

void Dump::finish_datagram() {
  if (current_.size() != 0) datagrams_.push_back(current_.take());
  current_ = Writer();
}

std::vector<std::string> Dump::take() {
  finish_datagram();
  return std::move(datagrams_);
}

const Command* find_command(uint32_t number) {
  if (number >= kTable.size()) return nullptr;
  const Command& command = kTable[number];
  return command.get != nullptr || command.dump != nullptr ? &command : nullptr;
}

}  // namespace verbena::nldev
