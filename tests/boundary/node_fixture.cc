// SPDX-License-Identifier: BSD-2-Clause
#include "node_fixture.h"

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "common/new_folder.h"

namespace verbena::testing {
namespace {

namespace fs = std::filesystem;

void write_line(const fs::path& path, const std::string& line) {
  fs::create_directories(path.parent_path());
  std::ofstream(path) << line << '\n';
  fs::permissions(path, fs::perms::owner_read | fs::perms::group_read | fs::perms::others_read);
}

}  // namespace

std::string make_node() {
  const std::string root = test::new_folder("boundary");
  if (root.empty()) {
    std::perror("a folder for the node");
    std::exit(1);
  }
  const fs::path device = fs::path(root) / "sys/class/infiniband/verbena0";
  write_line(device / "node_guid", kNodeGuid);
  write_line(device / "node_type", "1: CA");
  write_line(device / "device/modalias", "verbena:adapter");
  write_line(device / "ports/1/gids/0", "fe80:0000:0000:0000:0001:02ff:fe03:0405");
  const fs::path verbs = fs::path(root) / "sys/class/infiniband_verbs";
  write_line(verbs / "abi_version", "6");
  write_line(verbs / "uverbs0/ibdev", "verbena0");
  write_line(verbs / "uverbs0/dev", "1:7");
  write_line(verbs / "uverbs0/abi_version", "1");
  fs::create_symlink("../../infiniband/verbena0/device", verbs / "uverbs0/device");
  fs::create_symlink(device, verbs / "absolute");  // as no kernel makes it; see files_test.cc
  write_line(fs::path(root) / "dev/infiniband/uverbs0", "");
  return root;
}

void remove_folder(const std::string& path) {
  std::error_code ignored;
  fs::remove_all(path, ignored);
}

}  // namespace verbena::testing
