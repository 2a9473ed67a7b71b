// SPDX-License-Identifier: BSD-2-Clause
#include "suite/registry.h"

#include <algorithm>
#include <cctype>
#include <string_view>

namespace conformance {
namespace {

std::vector<TestInfo>& registered() {
  static std::vector<TestInfo> list;
  return list;
}

size_t rank_of(const std::string& chapter) {
  const auto all = chapters();
  return std::find_if(all.begin(), all.end(), [&](const Chapter& c) { return c.key == chapter; }) -
         all.begin();
}

}  // namespace

const std::vector<TestInfo>& tests() {
  static const bool sorted = [] {
    // Files compiled together are not linked in the order of their names.
    std::stable_sort(registered().begin(), registered().end(), [](auto& a, auto& b) {
      const size_t one = rank_of(a.chapter), other = rank_of(b.chapter);
      return one != other ? one < other : std::string_view(a.file) < std::string_view(b.file);
    });
    return true;
  }();
  (void)sorted;
  return registered();
}

Registration::Registration(const char* chapter, const char* name, std::initializer_list<ClauseId> clauses,
                           Traits traits, const char* file, int line, std::function<testing::Test*()> make) {
  registered().push_back({chapter, name, clauses, {}, traits, file, line, std::move(make)});
}

std::string test_name(const std::string& row) {
  std::string name;
  bool begins = true;
  for (const char c : row) {
    const bool separates = c == '-' || c == '.' || c == '_';
    if (!separates) name += begins ? static_cast<char>(toupper(static_cast<unsigned char>(c))) : c;
    begins = separates;
  }
  return name;
}

void register_generated(const char* chapter, const std::string& name,
                        const std::vector<std::string>& clause_ids, Traits traits, const char* file, int line,
                        std::function<testing::Test*()> make) {
  TestInfo info{chapter, name, {}, {}, traits, file, line, std::move(make)};
  for (const std::string& id : clause_ids) {
    if (const auto found = ClauseId::find(id))
      info.clauses.push_back(*found);
    else
      info.unknown_clauses.push_back(id);
  }
  registered().push_back(std::move(info));
}

}  // namespace conformance
