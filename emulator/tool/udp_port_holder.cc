// SPDX-License-Identifier: BSD-2-Clause
#include "tool/udp_port_holder.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>
#include <vector>

namespace verbena::tool {
namespace {

namespace fs = std::filesystem;

// The kernel prints the words of an address as numbers of the machine (net/ipv4/udp.c, udp4_format_sock()).
std::string kernel_text(const uint8_t* bytes, size_t words) {
  std::string text;
  for (size_t i = 0; i < words; ++i) {
    uint32_t word;
    std::memcpy(&word, bytes + 4 * i, sizeof word);
    char digits[9];
    std::snprintf(digits, sizeof digits, "%08X", word);
    text += digits;
  }
  return text;
}

struct Entry {
  std::string local;
  uint64_t inode = 0;
};

// The socket with one of these local addresses. False: there is none in this table.
bool find_entry(const char* table, const std::vector<std::string>& locals, Entry* out) {
  std::ifstream file(table);
  std::string line;
  std::getline(file, line);
  while (std::getline(file, line)) {
    std::istringstream words(line);
    std::string word;
    std::vector<std::string> fields;
    while (words >> word) fields.push_back(word);
    // sl local remote st queues timer retransmits uid timeout inode
    if (fields.size() < 10 || std::find(locals.begin(), locals.end(), fields[1]) == locals.end()) continue;
    out->local = fields[1];
    const std::string& text = fields[9];
    return std::from_chars(text.data(), text.data() + text.size(), out->inode).ec == std::errc{};
  }
  return false;
}

bool has_socket(const fs::path& process, const std::string& link) {
  std::error_code error;
  for (fs::directory_iterator each(process / "fd", error), end; !error && each != end;
       each.increment(error)) {
    std::error_code unreadable;
    if (fs::read_symlink(each->path(), unreadable) == link) return true;
  }
  return false;
}

int find_process(uint64_t inode) {
  const std::string link = "socket:[" + std::to_string(inode) + "]";
  std::error_code error;
  for (fs::directory_iterator each("/proc", error), end; !error && each != end; each.increment(error)) {
    const std::string name = each->path().filename();
    int pid = 0;
    if (std::from_chars(name.data(), name.data() + name.size(), pid).ec == std::errc{} &&
        has_socket(each->path(), link))
      return pid;
  }
  return 0;
}

}  // namespace

PortHolder find_udp_port_holder(const wire::NetAddress& address, uint16_t port) {
  const size_t words = address.is_ipv4() ? 1 : 4;
  const std::string own = kernel_text(address.bytes.data() + 16 - 4 * words, words);
  char at_port[8];
  std::snprintf(at_port, sizeof at_port, ":%04X", port);
  const std::string any4 = std::string(8, '0') + at_port, any6 = std::string(32, '0') + at_port;
  Entry entry;
  // A socket of IPv6 at all addresses may have IPv4 as well.
  if (!(address.is_ipv4() && find_entry("/proc/self/net/udp", {own + at_port, any4}, &entry)) &&
      !find_entry("/proc/self/net/udp6", {own + at_port, any6}, &entry))
    return {};
  PortHolder holder{entry.local == any4 || entry.local == any6, find_process(entry.inode), ""};
  std::ifstream comm("/proc/" + std::to_string(holder.pid) + "/comm");
  std::getline(comm, holder.program);
  return holder;
}

}  // namespace verbena::tool
