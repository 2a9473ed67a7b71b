// SPDX-License-Identifier: BSD-2-Clause
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "fabric/node.h"
#include "tool/command.h"
#include "tool/profile.h"
#include "wire/address_range_text.h"
#include "wire/net_address.h"

namespace verbena::tool {
namespace {

void add_address(NetworkOptions& network, const std::string& option, const std::string& text) {
  wire::NetAddress address;
  if (!wire::NetAddress::from_text(text, &address))
    throw UsageError{option + ": '" + text + "' is no IP address"};
  if (!address.is_reachable())
    throw UsageError{option + ": " + text + " is no address that another machine could reach this one by"};
  for (const auto& other : network.addresses)
    if (other == address.bytes) return;
  if (network.addresses.size() == kMaxGids - 1)  // the first GID is the device's own
    throw UsageError{option + ": more than " + std::to_string(kMaxGids - 1) + " addresses"};
  network.addresses.push_back(address.bytes);
  network.enabled = true;
}

// "192.0.2.0/24", several also with commas between them.
void add_peers(NetworkOptions& network, const std::string& word) {
  std::istringstream list(word);
  for (std::string text; std::getline(list, text, ',');) {
    AddressRange range;
    if (!wire::read_range(text, &range))
      throw UsageError{"--peers: '" + text +
                       "' is no range of addresses: 192.0.2.0/24, 2001:db8::/32, 192.0.2.7"};
    auto& ranges = network.peer_ranges;
    if (std::find(ranges.begin(), ranges.end(), range) != ranges.end()) continue;
    if (ranges.size() == kMaxPeerRanges)
      throw UsageError{"--peers: more than " + std::to_string(kMaxPeerRanges) + " ranges"};
    ranges.push_back(range);
  }
}

// "0x8001", several also with commas between them.
std::vector<uint16_t> read_pkeys(const std::vector<std::string>& words) {
  std::vector<uint16_t> pkeys{kDefaultPkey};
  for (const std::string& word : words) {
    std::istringstream list(word);
    for (std::string text; std::getline(list, text, ',');) {
      char* end = nullptr;
      const unsigned long value = std::strtoul(text.c_str(), &end, 0);
      if (text.empty() || *end != 0 || value > UINT16_MAX || (value & 0x7fff) == 0)
        throw UsageError{"--pkey: '" + text + "' is no P_Key: 1 to 0xffff, but not 0x8000"};
      if (std::find(pkeys.begin(), pkeys.end(), value) == pkeys.end())
        pkeys.push_back(static_cast<uint16_t>(value));
    }
  }
  if (pkeys.size() > kMaxPkeys)
    throw UsageError{"--pkey: a port has " + std::to_string(kMaxPkeys) + " P_Keys at most, with 0xffff"};
  return pkeys;
}

}  // namespace

void add_port_options(CLI::App& command, DeviceTableOptions& devices) {
  command.add_option("--ports", devices.ports, "ports of each device, 1 or 2")
      ->check(CLI::Range(1u, kMaxPorts))
      ->type_name("N");
  command
      .add_option_function<std::vector<std::string>>(
          "--pkey", [&devices](const std::vector<std::string>& words) { devices.pkeys = read_pkeys(words); },
          "a P_Key of each port beside 0xffff, from index 1 on; repeat it, or write commas (InfiniBand)")
      ->expected(1)
      ->take_all()
      ->type_name("PKEY");
  command.add_option("--lmc", devices.lmc, "each port has 2^N LIDs (InfiniBand)")
      ->check(CLI::Range(0u, kMaxLmc))
      ->type_name("N");
}

static void check_port_options(const DeviceTableOptions& devices) {
  if (devices.link_layer == LinkLayer::kInfiniband) return;
  // As mlx5 and rxe (mlx5 main.c, mlx5_query_port_roce(): pkey_tbl_len 1).
  if (devices.pkeys != DeviceTableOptions{}.pkeys || devices.lmc != 0)
    throw UsageError{
        "ports of RoCE have the P_Key 0xffff and no LIDs: --pkey and --lmc need --link-layer infiniband"};
}

void add_network_options(CLI::App& command, NodeOptions& options) {
  NetworkOptions& network = options.devices.network;
  command
      .add_option_function<std::vector<std::string>>(
          "--ip",
          [&network](const std::vector<std::string>& words) {
            for (const std::string& word : words) add_address(network, "--ip", word);
          },
          "open the network: nodes on other machines reach this one by this address (docs/NETWORK.md)")
      ->expected(1)
      ->take_all()
      ->type_name("ADDR");
  command
      .add_option_function<std::vector<std::string>>(
          "--roce",
          [&network](const std::vector<std::string>& words) {
            network.kind = NetworkKind::kRoce;
            for (const std::string& word : words) add_address(network, "--roce", word);
          },
          "speak RoCE v2 by this address, with rxe, adapters and other nodes; without any authentication "
          "(docs/ROCE.md)")
      ->expected(1)
      ->take_all()
      ->type_name("ADDR")
      ->excludes("--ip");
  command
      .add_option_function<std::vector<std::string>>(
          "--peers",
          [&network](const std::vector<std::string>& words) {
            for (const std::string& word : words) add_peers(network, word);
          },
          "with --roce: packets from other addresses are dropped; repeat it, or write commas")
      ->expected(1)
      ->take_all()
      ->type_name("CIDR");
  command
      .add_flag_callback(
          "--net", [&network] { network.enabled = true; }, "open the network on all addresses of the machine")
      ->excludes("--roce");
  command
      .add_option("--port", network.port, "TCP port of the fabric, the same on all nodes; 47910 by default")
      ->check(CLI::Range(1, 65535))
      ->type_name("N");
  command.add_option("--key", options.key_file, "the fabric's key, the same on all nodes (verbena key FILE)")
      ->type_name("FILE");
}

void check_network_options(const NodeOptions& options) {
  check_port_options(options.devices);
  const NetworkOptions& network = options.devices.network;
  if (network.enabled && options.devices.link_layer == LinkLayer::kInfiniband)
    throw UsageError{
        "a network has Ethernet's addresses: --ip, --net and --roce do not go with --link-layer infiniband"};
  if (network.kind == NetworkKind::kRoce && (network.port != kDefaultPort || !options.key_file.empty()))
    throw UsageError{"--port and --key do not go with --roce: RoCE v2 has one port, and no keys"};
  if (network.kind != NetworkKind::kRoce && !network.peer_ranges.empty())
    throw UsageError{
        "--peers is for a node that speaks RoCE v2 (--roce): other nodes know each other by a key"};
  if (!network.enabled && (network.port != kDefaultPort || !options.key_file.empty()))
    throw UsageError{"--port and --key are for a node with a network: --ip ADDR or --net"};
}

void add_node_options(CLI::App& command, NodeOptions& options) {
  static const std::map<std::string, LinkLayer> kLinkLayers = {{"ethernet", LinkLayer::kEthernet},
                                                               {"infiniband", LinkLayer::kInfiniband}};
  command.add_option("--devices", options.devices.count, "how many devices: verbena0, verbena1, ...")
      ->check(CLI::Range(1u, kMaxDevices))
      ->type_name("N");
  add_port_options(command, options.devices);
  command.add_flag("--beside", options.devices.beside, "programs see the machine's own RDMA devices as well");
  command
      .add_option_function<std::string>(
          "--link-layer",
          [&options](const std::string& word) { options.devices.link_layer = kLinkLayers.at(word); },
          "ethernet (as RoCE v2: addressed by GID) or infiniband (addressed by LID)")
      ->check(CLI::IsMember({"ethernet", "infiniband"}))
      ->type_name("LAYER");
  command
      .add_option_function<std::string>(
          "--profile",
          [&options](const std::string& word) {
            std::string problem;
            if (!read_profile(word, &options.devices.limits, &problem)) throw UsageError{problem};
          },
          "what the devices offer: default, minimal, rxe, or a file (docs/PROFILES.md)")
      ->type_name("PROFILE");
  command
      .add_option("--node", options.name, "a node of its own: only programs on the same node see each other")
      ->check(
          [](const std::string& name) {
            return valid_node_name(name)
                       ? std::string()
                       : "'" + name +
                             "' is no node name: 1 to 24 letters, digits, '.', '_', '-', no '.' first";
          },
          "")
      ->type_name("NAME");
  add_network_options(command, options);
}

void add_heap_option(CLI::App& command, NodeOptions& options) {
  command.add_flag("--shared-heap", options.shared_heap,
                   "peers reach registered memory without a system call (docs/SHARED-HEAP.md)");
}

void check_whole_number(CLI::Option& option) {
  option.check(
      [](const std::string& word) {
        const bool is_number = !word.empty() && word.find_first_not_of("0123456789") == std::string::npos;
        return is_number ? std::string() : "'" + word + "' is no whole number, 0 or more";
      },
      "");
}

void check_seconds(CLI::Option& option) {
  option.check(
      [](const std::string& word) {
        char* end = nullptr;
        const double seconds = std::strtod(word.c_str(), &end);
        return !word.empty() && *end == 0 && seconds >= 0
                   ? std::string()
                   : "'" + word + "' is no number of seconds, 0 or more";
      },
      "");
}

bool names_node(const CLI::App& command) {
  size_t given = 0;
  for (const char* option : {"--devices", "--beside", "--ports", "--pkey", "--lmc", "--link-layer",
                             "--profile", "--node", "--ip", "--net", "--roce", "--peers", "--port"})
    given += command.count(option);
  return given != 0;
}

std::vector<std::string> program_of(const CLI::App& command, const CommandLine& line) {
  std::vector<std::string> program = command.remaining();
  if (!program.empty() && program[0].size() > 1 && program[0][0] == '-')
    throw UsageError{"no such option: " + program[0]};
  // A "--" behind the program's name belongs to the program.
  if (!program.empty() && line.has_tail) program.push_back("--");
  program.insert(program.end(), line.tail.begin(), line.tail.end());
  return program;
}

int failed(const std::string& problem) {
  std::fprintf(stderr, "verbena: %s\n", problem.c_str());
  return kFailed;
}

int printed() {
  const bool flushed = std::fflush(stdout) == 0;
  return flushed && std::ferror(stdout) == 0 ? 0 : failed("cannot write to standard output");
}

}  // namespace verbena::tool
