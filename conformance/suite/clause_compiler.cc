// SPDX-License-Identifier: BSD-2-Clause
//
// Build-time program: reads the clauses files, refuses what is not well formed, and writes the tables that
// suite/clause.h and clause.cc include.
//
//   clause_compiler OUTPUT_DIRECTORY FILE.toml...
//
// The files' format is described in docs/CONFORMANCE.md.
#include <toml++/toml.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <iostream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace {

struct Clause {
  std::string id, chapter, promise, source, applies, untestable, pending, level;
  std::vector<std::string> seen_in;
  size_t position;
};

struct Chapter {
  int64_t order;
  std::string key, title;
};

struct Layer {
  std::string pattern, name, does, source;
};

int faults = 0;

void fault(const std::string& where, const std::string& what) {
  std::cerr << where << ": " << what << '\n';
  ++faults;
}

// QP types, objects and capabilities that a clause may be bound to.
const std::set<std::string> vocabulary = {"any",          "RC",           "UC",
                                          "UD",           "XRC_SEND",     "XRC_RECV",
                                          "RAW_PACKET",   "SRQ",          "XRC",
                                          "MW1",          "MW2",          "ODP",
                                          "DM",           "CQ_EX",        "QP_EX",
                                          "TD",           "multicast",    "atomics",
                                          "inline",       "timestamp",    "ethernet",
                                          "infiniband",   "imm",          "send-with-inv",
                                          "rereg",        "null-mr",      "dmabuf",
                                          "ece",          "counters",     "flow",
                                          "wq",           "rate-limit",   "migration",
                                          "cm",           "cm-tcp",       "cm-udp",
                                          "cm-ipoib",     "tag-matching", "import",
                                          "atomic-write", "resize-cq",    "modify-cq",
                                          "srq-resize",   "fork",         "parent-domain",
                                          "rsocket",      "zero-based",   "events",
                                          "cq-events"};

bool is_id(const std::string& id) {
  const size_t dot = id.find('.');
  return dot != std::string::npos && dot > 0 && dot + 1 < id.size() &&
         id.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_.-") == std::string::npos;
}

std::string literal(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c == '\n' ? ' ' : c;
  }
  return out + '"';
}

std::string applies_of(const toml::table& table, const std::string& where) {
  const toml::array* list = table["applies"].as_array();
  if (list == nullptr || list->empty()) {
    fault(where, "'applies' must be a list of QP types and capabilities, or [\"any\"]");
    return {};
  }
  std::string out;
  for (const toml::node& node : *list) {
    const std::string word = node.value_or<std::string>("");
    if (!vocabulary.contains(word)) fault(where, "'applies' does not know '" + word + "'");
    out += (out.empty() ? "" : ", ") + word;
  }
  return out;
}

bool consists_of(std::string_view text, std::string_view characters) {
  return !text.empty() && text.find_first_not_of(characters) == std::string_view::npos;
}

// 6.1 is a kernel, v44 or v44.1 an rdma-core.
bool is_version(std::string_view text) {
  if (text.starts_with('v'))
    text.remove_prefix(1);
  else if (text.find('.') == std::string_view::npos)
    return false;
  return consists_of(text, "0123456789.") && text.front() != '.' && text.back() != '.';
}

// "DRIVER VERSION: FUNCTION() remark". A remark may stand before the function, too.
bool names_a_function(std::string_view text) {
  constexpr std::string_view word = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
  const size_t space = text.find(' '), colon = text.find(": "), call = text.find("()");
  if (call == std::string_view::npos || !(space < colon && colon + 2 < call)) return false;
  return consists_of(text.substr(0, space), word) && is_version(text.substr(space + 1, colon - space - 1)) &&
         word.find(text[call - 1]) != std::string_view::npos;
}

std::vector<std::string> seen_in_of(const toml::table& table, const std::string& where) {
  const toml::array* list = table["seen_in"].as_array();
  if (list == nullptr || list->empty()) {
    fault(where, "'seen_in' must be a list of what was read, such as [\"DRIVER 6.1: FUNCTION()\"]");
    return {};
  }
  std::vector<std::string> out;
  for (const toml::node& node : *list) {
    out.push_back(node.value_or<std::string>(""));
    if (!names_a_function(out.back()))
      fault(where, "'seen_in' wants \"DRIVER VERSION: FUNCTION() [remark]\", not \"" + out.back() + '"');
  }
  return out;
}

Clause read_clause(const toml::table& table, const std::string& file, const std::string& chapter) {
  Clause clause;
  clause.chapter = chapter;
  clause.id = table["id"].value_or<std::string>("");
  const std::string where = file + ": clause '" + clause.id + "'";
  if (!is_id(clause.id)) fault(where, "an id is page.promise in a-z, 0-9, '_', '-'");
  static const std::set<std::string_view> keys = {"id",    "promise", "source",     "applies",
                                                  "level", "seen_in", "untestable", "pending"};
  for (const auto& [key, value] : table)
    if (!keys.contains(key.str())) fault(where, "unknown key '" + std::string(key.str()) + "'");
  clause.promise = table["promise"].value_or<std::string>("");
  clause.source = table["source"].value_or<std::string>("");
  clause.level = table["level"].value_or<std::string>("must");
  clause.untestable = table["untestable"].value_or<std::string>("");
  clause.pending = table["pending"].value_or<std::string>("");
  clause.applies = applies_of(table, where);
  clause.seen_in = seen_in_of(table, where);
  if (clause.promise.size() < 10) fault(where, "'promise' is missing");
  if (clause.source.size() < 5) fault(where, "'source' is missing");
  if (clause.level != "must" && clause.level != "should" && clause.level != "choice")
    fault(where, "'level' is must, should or choice");
  if (!clause.untestable.empty() && !clause.pending.empty()) fault(where, "is either untestable or pending");
  return clause;
}

// layers.toml: what is known of clauses that something above the device decides.
void read_layers(const toml::table& root, const std::string& path, std::vector<Layer>& layers) {
  static const std::set<std::string> names = {"provider library", "kernel core", "libibverbs", "librdmacm"};
  for (const toml::node& node : *root["layer"].as_array()) {
    const toml::table* table = node.as_table();
    const toml::array* list = table != nullptr ? (*table)["clauses"].as_array() : nullptr;
    if (list == nullptr) {
      fault(path, "a [[layer]] has a list 'clauses'");
      continue;
    }
    Layer layer{{},
                (*table)["name"].value_or<std::string>(""),
                (*table)["does"].value_or<std::string>(""),
                (*table)["source"].value_or<std::string>("")};
    if (!names.contains(layer.name)) fault(path, "no layer is called '" + layer.name + "'");
    if (layer.does.size() < 10 || layer.source.size() < 5) fault(path, "a [[layer]] has 'does' and 'source'");
    for (const toml::node& id : *list) {
      layer.pattern = id.value_or<std::string>("");
      layers.push_back(layer);
    }
  }
}

void read_file(const std::string& path, std::vector<Clause>& clauses, std::vector<Chapter>& chapters,
               std::vector<Layer>& layers) {
  const toml::table root = toml::parse_file(path);
  if (root.contains("layer")) return read_layers(root, path, layers);
  const Chapter chapter{root["order"].value_or<int64_t>(0), root["chapter"].value_or<std::string>(""),
                        root["title"].value_or<std::string>("")};
  if (chapter.key.empty() || chapter.title.empty() || chapter.order == 0)
    fault(path, "needs 'chapter', 'title' and 'order'");
  chapters.push_back(chapter);
  for (const auto& [key, value] : root)
    if (key != "chapter" && key != "title" && key != "order" && key != "clause")
      fault(path, "unknown key '" + std::string(key.str()) + "'");
  const toml::array* list = root["clause"].as_array();
  if (list == nullptr) return fault(path, "has no [[clause]]");
  for (const toml::node& node : *list) {
    if (const toml::table* table = node.as_table())
      clauses.push_back(read_clause(*table, path, chapter.key));
    else
      fault(path, "a clause is a table");
  }
}

bool matches(const std::string& pattern, const std::string& id) {
  return pattern.ends_with('*') ? id.starts_with(pattern.substr(0, pattern.size() - 1)) : id == pattern;
}

// `clauses` sorted by id. The first layer that names a clause has it.
std::string layer_table(const std::vector<Layer>& layers, const std::vector<Clause>& clauses) {
  std::set<std::string> used;
  std::string out;
  for (const Clause& clause : clauses) {
    const auto found = std::find_if(layers.begin(), layers.end(),
                                    [&](const Layer& layer) { return matches(layer.pattern, clause.id); });
    if (found == layers.end()) continue;
    used.insert(found->pattern);
    out += "{" + literal(clause.id) + ", " + literal(found->name) + ", " + literal(found->does) + ", " +
           literal(found->source) + "},\n";
  }
  for (const Layer& layer : layers)
    if (!used.contains(layer.pattern))
      fault("layers", "no clause '" + layer.pattern + "', or an earlier layer has it");
  return out;
}

// Written only when changed, so that its includers are not compiled again for nothing.
void write(const std::string& path, const std::string& text) {
  std::ifstream before(path);
  std::stringstream old;
  old << before.rdbuf();
  if (before && old.str() == text) return;
  std::ofstream(path) << text;
}

void write_tables(const std::string& directory, std::vector<Clause> clauses, std::vector<Chapter> chapters,
                  const std::vector<Layer>& layers) {
  std::stable_sort(chapters.begin(), chapters.end(), [](auto& a, auto& b) { return a.order < b.order; });
  std::map<std::string, size_t> rank;
  std::string chapter_table, ids, table, seen;
  size_t seen_count = 0;
  for (const Chapter& chapter : chapters) {
    if (!rank.emplace(chapter.key, rank.size()).second) fault(chapter.key, "two files have this chapter");
    chapter_table += "{" + literal(chapter.key) + ", " + literal(chapter.title) + "},\n";
  }
  std::stable_sort(clauses.begin(), clauses.end(),
                   [&](auto& a, auto& b) { return rank[a.chapter] < rank[b.chapter]; });
  for (size_t i = 0; i < clauses.size(); ++i) clauses[i].position = i;
  std::sort(clauses.begin(), clauses.end(), [](auto& a, auto& b) { return a.id < b.id; });
  for (size_t i = 0; i < clauses.size(); ++i) {
    const Clause& c = clauses[i];
    if (i > 0 && clauses[i - 1].id == c.id) fault(c.id, "two clauses have this id");
    ids += literal(c.id) + ",\n";
    table += "{";
    for (const std::string& text : {c.id, c.chapter, c.promise, c.source, c.applies, c.untestable, c.pending})
      table += literal(text) + ", ";
    table += "{seen_table + " + std::to_string(seen_count) + ", " + std::to_string(c.seen_in.size()) + "}, ";
    table += "Level::" + c.level + ", " + std::to_string(c.position) + "},\n";
    for (const std::string& text : c.seen_in) seen += literal(text) + ",\n";
    seen_count += c.seen_in.size();
  }
  const std::string layer = layer_table(layers, clauses);
  if (faults > 0) return;
  write(directory + "/layer_table.inc", layer);
  write(directory + "/chapter_table.inc", chapter_table);
  write(directory + "/clause_ids.inc", ids);
  write(directory + "/clause_table.inc", table);
  write(directory + "/seen_table.inc", seen + "\"\",\n");  // never empty
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::cerr << "usage: clause_compiler OUTPUT_DIRECTORY FILE.toml...\n";
    return 2;
  }
  std::vector<Clause> clauses;
  std::vector<Chapter> chapters;
  std::vector<Layer> layers;
  for (int i = 2; i < argc; ++i) {
    try {
      read_file(argv[i], clauses, chapters, layers);
    } catch (const toml::parse_error& error) {
      std::cerr << error << '\n';
      ++faults;
    }
  }
  if (faults == 0) write_tables(argv[1], std::move(clauses), std::move(chapters), layers);
  return faults == 0 ? 0 : 1;
}
