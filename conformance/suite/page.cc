// SPDX-License-Identifier: BSD-2-Clause
#include "suite/page.h"

#include <algorithm>
#include <iterator>
#include <sstream>

#include "suite/page_style.h"
#include "suite/report.h"

namespace conformance {

std::string page_begin(const std::string& title) {
  return "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
         "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\"><title>" +
         escaped(title) + "</title>\n" + page_style + "\n</head><body>\n<h1>" + escaped(title) + "</h1>\n";
}

std::string page_end() { return std::string(page_script) + "\n</body></html>\n"; }

std::string css_class(Verdict verdict) {
  std::string name(name_of(verdict));
  std::replace(name.begin(), name.end(), ' ', '-');
  return name;
}

std::string kind_of(Verdict verdict, bool is_expected) {
  return verdict == Verdict::deviates && is_expected ? "EXPECTED" : css_class(verdict);
}

std::string badge(Verdict verdict, bool is_expected) {
  const std::string kind = kind_of(verdict, is_expected);
  return "<span class=\"v " + kind + "\">" + (kind == "EXPECTED" ? kind : std::string(name_of(verdict))) +
         "</span>";
}

std::string in_short(const std::string& detail) {
  constexpr size_t most = 200;
  constexpr std::string_view first_words[] = {"Failure", "Failed", "Expected equality", "Value of",
                                              "Expected:"};
  std::string out = detail.substr(0, detail.find('\n'));
  const size_t place = out.find(".cc:");
  const size_t text = place == std::string::npos ? std::string::npos : out.find(": ", place);
  if (text == std::string::npos) return out.size() > most ? out.substr(0, most) + " ..." : out;
  out.erase(0, text + 2);
  // GoogleTest's own words come first; what the test says of it, last.
  if (std::any_of(std::begin(first_words), std::end(first_words),
                  [&](auto words) { return out.starts_with(words); })) {
    if (!out.starts_with("Expected:")) out.clear();
    std::istringstream rest(detail.substr(std::min(detail.find('\n'), detail.size() - 1) + 1));
    for (std::string line; out.size() < most && std::getline(rest, line);) {
      if (line.find(".cc:") != std::string::npos) break;  // the next finding
      line.erase(0, line.find_first_not_of(' '));
      out += (out.empty() ? "" : " ") + line;
    }
  }
  return out.size() > most ? out.substr(0, most) + " ..." : out;
}

std::string filters(const std::vector<std::pair<std::string, std::string>>& chapters) {
  std::string out = "<div class=\"filters\" role=\"search\" hidden>";
  for (const auto& [verdict, is_expected] :
       {std::pair(Verdict::deviates, false), std::pair(Verdict::deviates, true),
        std::pair(Verdict::conforms, false), std::pair(Verdict::not_claimed, false),
        std::pair(Verdict::not_tested, false)}) {
    const std::string kind = kind_of(verdict, is_expected);
    out += "<label><input type=\"checkbox\" checked value=\"" + kind + "\"> " +
           (is_expected ? kind : std::string(name_of(verdict))) + "</label>";
  }
  out += "<select data-by=\"c\" aria-label=\"Chapter\"><option value=\"\">all chapters</option>";
  for (const auto& [key, title] : chapters)
    out += "<option value=\"" + escaped(key) + "\">" + escaped(title) + "</option>";
  out += "</select><select data-by=\"l\" aria-label=\"Level\"><option value=\"\">all levels</option>";
  for (const Level level : {Level::must, Level::should, Level::choice}) {
    const std::string name(name_of(level));
    out += "<option value=\"" + name + "\">" + name + "</option>";
  }
  return out +
         "</select><input type=\"search\" placeholder=\"clause, word, test\" aria-label=\"Search\">"
         "<output aria-live=\"polite\"></output></div>\n";
}

}  // namespace conformance
