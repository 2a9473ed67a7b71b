// SPDX-License-Identifier: BSD-2-Clause
#include "suite/expectations.h"

#include <toml++/toml.h>

#include <algorithm>
#include <stdexcept>

namespace conformance {
namespace {

Expectation expectation_in(const toml::table& table, const std::string& path) {
  const std::string id = table["clause"].value_or<std::string>("");
  const auto clause = ClauseId::find(id);
  if (!clause) throw std::runtime_error(path + ": no clause '" + id + "'");
  Expectation out{*clause, table["reason"].value_or<std::string>(""),
                  table["source"].value_or<std::string>(""), table["sometimes"].value_or(false),
                  table["layer"].value_or<std::string>("")};
  if (out.reason.empty() || out.source.empty())
    throw std::runtime_error(path + ": '" + id + "' needs a reason and a source");
  constexpr std::string_view layers[] = {"",           "device",   "provider library", "kernel core",
                                         "libibverbs", "librdmacm"};
  if (std::find(std::begin(layers), std::end(layers), out.layer) == std::end(layers))
    throw std::runtime_error(path + ": '" + id + "': no layer is called '" + out.layer + "'");
  return out;
}

}  // namespace

std::vector<Expectation> read_expectations(const std::string& path) {
  std::vector<Expectation> out;
  try {
    const toml::table root = toml::parse_file(path);
    if (const toml::array* list = root["deviation"].as_array())
      for (const toml::node& node : *list)
        if (const toml::table* table = node.as_table()) out.push_back(expectation_in(*table, path));
  } catch (const toml::parse_error& error) {
    throw std::runtime_error(path + ": line " + std::to_string(error.source().begin.line) + ": " +
                             std::string(error.description()));
  }
  return out;
}

}  // namespace conformance
