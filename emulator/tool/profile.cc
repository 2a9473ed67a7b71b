// SPDX-License-Identifier: BSD-2-Clause
#include "tool/profile.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <system_error>

#include "fabric/installation.h"
#include "tool/toml_reader.h"

namespace verbena::tool {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSuffix = ".toml";

bool ends_in_suffix(const std::string& word) {
  const std::string suffix = kSuffix;
  return word.size() > suffix.size() && word.compare(word.size() - suffix.size(), suffix.size(), suffix) == 0;
}

// The name becomes part of the name of the node's folder.
bool valid_name(const std::string& name) {
  constexpr const char* kAllowed = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
  return !name.empty() && name.size() < DeviceLimits{}.profile.size() && name[0] != '.' &&
         name.find_first_not_of(kAllowed) == std::string::npos;
}

class Reader : public TomlReader {
 public:
  Reader(const std::string& file, DeviceLimits* out) : TomlReader(file), out_(out) {}

  bool read(const std::string& text) {
    return parse(text, [this](const toml::table& table) { return read_name(table) && read_entries(table) && check(); });
  }

 private:
  bool read_name(const toml::table& table) {
    std::string name = fs::path(file_).stem().string();
    uint64_t line = 1;
    if (const toml::node* node = table.get("name"); node != nullptr) {
      if (!node->is_string()) return refuse(*node, "name is a string");
      name = **node->as_string();
      line = node->source().begin.line;
    }
    if (!valid_name(name))
      return refuse(line, "the profile's name '" + name +
                              "' is not 1 to 31 letters, digits, '.', '_' or '-', without '.' first");
    out_->profile = {};
    std::copy(name.begin(), name.end(), out_->profile.begin());
    return true;
  }

  bool read_entries(const toml::table& table) {
    for (const auto& [key, node] : table) {
      const std::string_view name = key.str();
      if (name == "name") continue;
      if (name == "description") {
        if (!node.is_string()) return refuse(node, "description is a string");
        continue;
      }
      const auto limits = all_limits();
      const auto limit =
          std::find_if(limits.begin(), limits.end(), [&](const Limit& l) { return l.name == name; });
      if (limit == limits.end())
        return refuse(key.source().begin.line, "no such limit: " + std::string(name));
      if (!read_limit(*limit, node)) return false;
    }
    return true;
  }

  bool read_limit(const Limit& limit, const toml::node& node) {
    const std::string name(limit.name);
    lines_[&limit] = node.source().begin.line;
    // TOML's integers end at 2^63 - 1.
    if (limit.most == UINT64_MAX && node.is_string() && **node.as_string() == "unlimited") {
      out_->*limit.value = UINT64_MAX;
      return true;
    }
    if (!node.is_integer())
      return refuse(node, name + " is an integer" + (limit.most == UINT64_MAX ? " or \"unlimited\"" : ""));
    const int64_t value = **node.as_integer();
    if (value < 0 || static_cast<uint64_t>(value) < limit.least || static_cast<uint64_t>(value) > limit.most)
      return refuse(node, name + " = " + std::to_string(value) + ": must be " + std::to_string(limit.least) +
                              " to " + std::to_string(limit.most));
    out_->*limit.value = static_cast<uint64_t>(value);
    return true;
  }

  bool check() {
    const Limit* field = nullptr;
    const char* rule = check_limits(*out_, &field);
    if (rule == nullptr) return true;
    const auto line = lines_.find(field);
    // The field may have its default, if the profile breaks the rule by another field.
    return refuse(line != lines_.end() ? line->second : 1, std::string(rule) + " (" +
                                                               std::string(field->name) + " is " +
                                                               std::to_string(out_->*field->value) + ")");
  }

  DeviceLimits* out_;
  std::map<const Limit*, uint64_t> lines_;
};

std::string known_profiles() {
  std::error_code error;
  std::vector<std::string> names;
  for (fs::directory_iterator i(profiles_folder(), error), end; !error && i != end; i.increment(error))
    if (i->path().extension() == kSuffix) names.push_back(i->path().stem().string());
  std::sort(names.begin(), names.end());
  std::string list;
  for (const std::string& name : names) list += (list.empty() ? "" : ", ") + name;
  return list.empty() ? "none" : list;
}

}  // namespace

std::string profiles_folder() {
  std::error_code error;
  const fs::path self = fs::read_symlink("/proc/self/exe", error);
  return error ? "" : (self.parent_path() / VERBENA_PROFILES_FROM_BIN).lexically_normal().string();
}

bool parse_profile(const std::string& text, const std::string& file, DeviceLimits* out,
                   std::string* problem) {
  DeviceLimits limits;
  Reader reader(file, &limits);
  if (!reader.read(text)) {
    *problem = reader.problem();
    return false;
  }
  *out = limits;
  return true;
}

bool read_profile(const std::string& word, DeviceLimits* out, std::string* problem) {
  const bool is_file = word.find('/') != std::string::npos || ends_in_suffix(word);
  const std::string path = is_file ? word : profiles_folder() + "/" + word + kSuffix;
  std::error_code error;
  if (!is_file && !fs::exists(path, error)) {
    *problem = "no profile '" + word + "' comes with Verbena (there are: " + known_profiles() +
               "); a file has a '/' in its name or ends in .toml";
    return false;
  }
  std::string text;
  return read_text(path, &text, problem) && parse_profile(text, path, out, problem);
}

}  // namespace verbena::tool
