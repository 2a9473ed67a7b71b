// SPDX-License-Identifier: BSD-2-Clause
#include "tool/status_cm.h"

#include <fmt/format.h>

#include "tool/text_table.h"
#include "tool/words.h"

namespace verbena::tool {
namespace {

using Json = nlohmann::ordered_json;

bool listens(const CmIdSnapshot& id) { return (id.facts.flags & cm::kIdListening) != 0; }

std::string device_word(const NodeSnapshot& node, uint8_t index) {
  if (index == cm::kNoDevice) return "-";
  return index < std::min(node.devices.count, kMaxDevices) ? node.devices.devices[index].name.data()
                                                           : std::to_string(index);
}

std::string peer_word(const CmIdSnapshot& id) {
  if (id.facts.peer == cm::kNoPeer) return "-";
  return id.peer_pid == 0 ? "gone" : fmt::format("{} ({})", id.peer_pid, id.peer_program);
}

std::vector<std::string> option_words(uint8_t flags) {
  std::vector<std::string> words;
  if ((flags & cm::kIdReuse) != 0) words.emplace_back("reuseaddr");
  if ((flags & cm::kIdFamilyOnly) != 0) words.emplace_back("afonly");
  return words;
}

Json peer_as_json(const CmIdSnapshot& id) {
  if (id.facts.peer == cm::kNoPeer) return nullptr;
  Json json = {{"slot", id.facts.peer}, {"alive", id.peer_pid != 0}};
  if (id.peer_pid != 0) json.update({{"pid", id.peer_pid}, {"program", id.peer_program}});
  return json;
}

Json address_as_json(const cm::Address& address) {
  return address.none() ? Json(nullptr) : Json(cm::to_text(address));
}

}  // namespace

std::string cm_as_text(const NodeSnapshot& node, const ProcessSnapshot& process) {
  Table ids({"CM ID", "SPACE", "TYPE", "STATE", "LOCAL", "REMOTE", "PEER", "QP", "DEVICE", "BACKLOG"});
  for (const CmIdSnapshot& id : process.cm_ids)
    ids.row({std::to_string(id.facts.number), std::string(cm::name_of(id.facts.space)),
             qp_type_word(id.facts.qp_type), std::string(cm::name_of(id.facts.state)),
             cm::to_text(id.facts.local), cm::to_text(id.facts.remote), peer_word(id),
             id.facts.qpn == 0 ? "-" : fmt::format("{:#08x}", id.facts.qpn),
             device_word(node, id.facts.device), listens(id) ? std::to_string(id.backlog) : "-"});
  Table groups({"GROUP", "CM ID", "MEMBER"});
  for (const CmGroupSnapshot& group : process.cm_groups)
    groups.row({cm::to_text(group.mgid), std::to_string(group.id), group.send_only ? "sends only" : "full"});
  return (ids.empty() ? "" : ids.text()) + (groups.empty() ? "" : groups.text());
}

void add_cm(const NodeSnapshot& node, const ProcessSnapshot& process, Json* json) {
  Json ids = Json::array();
  for (const CmIdSnapshot& id : process.cm_ids)
    ids.push_back({{"id", id.facts.number},
                   {"port_space", cm::name_of(id.facts.space)},
                   {"qp_type", qp_type_word(id.facts.qp_type)},
                   {"state", cm::name_of(id.facts.state)},
                   {"local", address_as_json(id.facts.local)},
                   {"remote", address_as_json(id.facts.remote)},
                   {"peer", peer_as_json(id)},
                   {"qpn", id.facts.qpn == 0 ? Json(nullptr) : Json(id.facts.qpn)},
                   {"device", id.facts.device == cm::kNoDevice ? Json(nullptr)
                                                               : Json(device_word(node, id.facts.device))},
                   {"backlog", listens(id) ? Json(id.backlog) : Json(nullptr)},
                   {"options", option_words(id.facts.flags)}});
  Json groups = Json::array();
  for (const CmGroupSnapshot& group : process.cm_groups)
    groups.push_back({{"mgid", cm::to_text(group.mgid)}, {"id", group.id}, {"send_only", group.send_only}});
  (*json)["cm_ids"] = std::move(ids);
  (*json)["cm_groups"] = std::move(groups);
}

}  // namespace verbena::tool
