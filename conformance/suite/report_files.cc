// SPDX-License-Identifier: BSD-2-Clause
#include "suite/report_files.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <stdexcept>

#include "suite/document.h"
#include "suite/report_page.h"

namespace conformance {
namespace {

[[noreturn]] void fail(const std::string& path, int error) {
  throw std::runtime_error("cannot write " + path + ": " + strerror(error));
}

// A device, such as /dev/stdout, and a link are written as they are.
bool is_replaced(const std::string& path) {
  std::error_code error;
  const auto status = std::filesystem::symlink_status(path, error);
  return !std::filesystem::exists(status) || std::filesystem::is_regular_file(status);
}

}  // namespace

void write_file(const std::string& path, const std::string& text) {
  const bool replaced = is_replaced(path);
  const std::string written = replaced ? path + ".new" : path;
  const int descriptor = open(written.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (descriptor < 0) fail(path, errno);
  int error = 0;
  for (size_t done = 0; done < text.size() && error == 0;) {
    const ssize_t count = write(descriptor, text.data() + done, text.size() - done);
    if (count > 0) done += static_cast<size_t>(count);
    if (count <= 0 && errno != EINTR) error = errno;
  }
  if (replaced && error == 0 && fsync(descriptor) != 0) error = errno;
  if (close(descriptor) != 0 && error == 0) error = errno;
  if (replaced && error == 0 && rename(written.c_str(), path.c_str()) != 0) error = errno;
  if (error == 0) return;
  if (replaced) unlink(written.c_str());
  fail(path, error);
}

void write_reports(const Report& report, const std::string& directory) {
  const std::filesystem::path path(directory);
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) throw std::runtime_error("cannot make " + directory + ": " + error.message());
  const Document document = document_of(report);
  write_file(path / "report.json", to_json(document));
  write_file(path / "report.xml", to_junit(report));
  write_file(path / "report.html", to_html(document));
}

}  // namespace conformance
