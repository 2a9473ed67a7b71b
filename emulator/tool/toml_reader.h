// SPDX-License-Identifier: BSD-2-Clause
//
// What the readers of TOML files have in common: the text, and a problem that names the file and the line. Only the
// files that read TOML include it, as its library takes seconds to compile.
#pragma once

#define TOML_HEADER_ONLY 1
#include <toml++/toml.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <system_error>
#include <utility>

namespace verbena::tool {

// The text of a file. false: *problem says that there is none.
inline bool read_text(const std::string& path, std::string* text, std::string* problem) {
  std::error_code error;
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::stringstream stream;
  const bool is_folder = std::filesystem::is_directory(path, error);
  if (!is_folder && file && stream << file.rdbuf()) {
    *text = stream.str();
    return true;
  }
  *problem = path + (is_folder    ? ": is a folder, not a file"
                     : errno != 0 ? std::string(": cannot be read: ") + std::strerror(errno)
                                  : ": is empty");
  return false;
}

class TomlReader {
 public:
  const std::string& problem() const { return problem_; }

 protected:
  explicit TomlReader(std::string file) : file_(std::move(file)) {}
  ~TomlReader() = default;

  // False: problem() says why the file cannot be used.
  template <typename Read>
  bool parse(const std::string& text, Read read) {
    try {
      return read(toml::parse(text, file_));
    } catch (const toml::parse_error& error) {
      return refuse(error.source().begin.line, std::string(error.description()));
    }
  }
  bool refuse(uint64_t line, const std::string& rule) {
    problem_ = file_ + ":" + std::to_string(line) + ": " + rule;
    return false;
  }
  bool refuse(const toml::node& node, const std::string& rule) { return refuse(node.source().begin.line, rule); }

  const std::string file_;

 private:
  std::string problem_;
};

}  // namespace verbena::tool
