// SPDX-License-Identifier: BSD-2-Clause
#include "wire/node_recipe.h"

#include <errno.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <sstream>

#include "fabric/node.h"
#include "observe/log.h"
#include "wire/address_range_text.h"
#include "wire/key.h"
#include "wire/net_address.h"

namespace verbena::wire {
namespace {

constexpr std::string_view kDevices = "devices", kPorts = "ports", kLmc = "lmc", kPkey = "pkey",
                           kBeside = "beside", kLinkLayer = "link-layer", kProfile = "profile",
                           kNetwork = "net", kAddress = "ip", kPort = "port", kKeyFile = "key",
                           kRoce = "roce", kPeers = "peers";

bool read_number(const std::string& text, uint64_t least, uint64_t most, uint64_t* out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *out);
  return error == std::errc{} && end == text.data() + text.size() && *out >= least && *out <= most;
}

bool read_limit(const std::string& name, const std::string& value, DeviceLimits* limits) {
  for (const Limit& limit : all_limits())
    if (limit.name == name) return read_number(value, limit.least, limit.most, &(limits->*limit.value));
  return false;
}

bool read_profile_name(const std::string& value, DeviceLimits* limits) {
  if (value.empty() || value.size() >= limits->profile.size() || value.find('/') != std::string::npos)
    return false;
  limits->profile = {};
  std::copy(value.begin(), value.end(), limits->profile.begin());
  return true;
}

// Numbers with commas between them.
bool read_pkeys(const std::string& value, std::vector<uint16_t>* pkeys) {
  std::istringstream list(value);
  pkeys->clear();
  for (std::string text; std::getline(list, text, ',');) {
    uint64_t number = 0;
    if (!read_number(text, 1, UINT16_MAX, &number) || pkeys->size() == kMaxPkeys) return false;
    pkeys->push_back(static_cast<uint16_t>(number));
  }
  return !pkeys->empty();
}

bool read_word(const std::string& name, const std::string& value, DeviceTableOptions* options,
               std::string* key_file) {
  NetworkOptions& network = options->network;
  uint64_t number = 0;
  NetAddress address;
  if (name == kDevices) {
    if (!read_number(value, 1, kMaxDevices, &number)) return false;
    options->count = static_cast<uint32_t>(number);
  } else if (name == kBeside) {
    options->beside = true;
  } else if (name == kPorts) {
    if (!read_number(value, 1, kMaxPorts, &number)) return false;
    options->ports = static_cast<uint32_t>(number);
  } else if (name == kLmc) {
    if (!read_number(value, 0, kMaxLmc, &number)) return false;
    options->lmc = static_cast<uint32_t>(number);
  } else if (name == kPkey) {
    return read_pkeys(value, &options->pkeys);
  } else if (name == kLinkLayer) {
    if (value != "ethernet" && value != "infiniband") return false;
    options->link_layer = value == "ethernet" ? LinkLayer::kEthernet : LinkLayer::kInfiniband;
  } else if (name == kProfile) {
    return read_profile_name(value, &options->limits);
  } else if (name == kNetwork) {
    network.enabled = true;
  } else if (name == kRoce) {
    network.kind = NetworkKind::kRoce;
  } else if (name == kPeers) {
    AddressRange range;
    if (!read_range(value, &range) || network.peer_ranges.size() == kMaxPeerRanges) return false;
    network.peer_ranges.push_back(range);
  } else if (name == kAddress) {
    if (!NetAddress::from_text(value, &address) || network.addresses.size() == kMaxGids - 1) return false;
    network.addresses.push_back(address.bytes);
  } else if (name == kPort) {
    if (!read_number(value, 1, UINT16_MAX, &number)) return false;
    network.port = static_cast<uint16_t>(number);
  } else if (name == kKeyFile) {
    *key_file = value;
  } else {
    return read_limit(name, value, &options->limits);
  }
  return true;
}

bool has_space(const std::string& text) { return text.find_first_of(" \t\r\n\v\f") != std::string::npos; }

}  // namespace

std::string write_recipe(const DeviceTableOptions& options, const std::string& key_file) {
  if (has_space(key_file)) return "";
  std::ostringstream recipe;
  recipe << kDevices << '=' << options.count << ' ' << kLinkLayer << '='
         << (options.link_layer == LinkLayer::kEthernet ? "ethernet" : "infiniband");
  const DeviceTableOptions ordinary;
  if (options.beside) recipe << ' ' << kBeside << '=';
  if (options.ports != ordinary.ports) recipe << ' ' << kPorts << '=' << options.ports;
  if (options.lmc != ordinary.lmc) recipe << ' ' << kLmc << '=' << options.lmc;
  if (options.pkeys != ordinary.pkeys) {
    recipe << ' ' << kPkey << '=';
    for (size_t i = 0; i < options.pkeys.size(); ++i) recipe << (i != 0 ? "," : "") << options.pkeys[i];
  }
  const DeviceLimits usual;
  if (!(options.limits == usual)) recipe << ' ' << kProfile << '=' << options.limits.profile.data();
  for (const Limit& limit : all_limits())
    if (options.limits.*limit.value != usual.*limit.value)
      recipe << ' ' << limit.name << '=' << options.limits.*limit.value;
  if (!options.network.enabled) return recipe.str();
  recipe << ' ' << kNetwork << "= ";
  if (options.network.kind == NetworkKind::kRoce)
    recipe << kRoce << '=';
  else
    recipe << kPort << '=' << options.network.port;
  for (const auto& address : options.network.addresses)
    recipe << ' ' << kAddress << '=' << NetAddress{address}.text();
  for (const AddressRange& range : options.network.peer_ranges)
    recipe << ' ' << kPeers << '=' << range_text(range);
  if (!key_file.empty()) recipe << ' ' << kKeyFile << '=' << key_file;
  return recipe.str();
}

bool read_recipe(const std::string& recipe, DeviceTableOptions* options, std::string* key_file) {
  std::istringstream words(recipe);
  bool any = false;
  for (std::string word; words >> word; any = true) {
    const size_t equals = word.find('=');
    if (equals == std::string::npos ||
        !read_word(word.substr(0, equals), word.substr(equals + 1), options, key_file))
      return false;
  }
  const Limit* broken = nullptr;
  return any && check_limits(options->limits, &broken) == nullptr;
}

int restore_node(const std::string& path) {
  const char* recipe = std::getenv(kRecipeVariable);
  DeviceTableOptions options;
  std::string key_file, problem;
  if (recipe == nullptr || !read_recipe(recipe, &options, &key_file)) return ENOENT;
  int error = 0;
  if (options.network.enabled && options.network.kind == NetworkKind::kFrames) {
    NetworkKey* const key = &options.network.key;
    const std::string parent = path.substr(0, path.rfind('/'));
    error = key_file.empty() ? user_key(parent, key, &problem) : read_key(key_file, key, &problem);
  }
  if (error == 0) error = ensure_node(path, options, &problem);
  if (error != 0)
    VERBENA_ERROR(node_not_remade, "the node %s cannot be made again: %s", path.c_str(), problem.c_str());
  return error;
}

}  // namespace verbena::wire
