// SPDX-License-Identifier: BSD-2-Clause
#include "tool/faults_file.h"

#include <charconv>
#include <string_view>
#include <utility>

#include "engine/rules/send_rules.h"
#include "engine/rules/vendor_error.h"
#include "fabric/counted.h"
#include "fabric/device_events.h"
#include "tool/toml_reader.h"

namespace verbena::tool {
namespace {

using faults::Fault;
using faults::Rule;

struct Unit {
  const char* word;
  double factor;
};

constexpr Unit kTimes[] = {{"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}};
constexpr Unit kRates[] = {{"kbps", 1e3}, {"Mbps", 1e6}, {"Gbps", 1e9}};
constexpr std::pair<const char*, Counted> kObjects[] = {
    {"QP", Counted::kQps}, {"CQ", Counted::kCqs}, {"MR", Counted::kMrs},   {"MW", Counted::kMws},
    {"PD", Counted::kPds}, {"AH", Counted::kAhs}, {"SRQ", Counted::kSrqs}, {"XRCD", Counted::kXrcds}};

constexpr uint32_t bit(Fault what) { return 1u << static_cast<unsigned>(what); }

constexpr uint32_t kOfRequests = bit(Fault::kLose) | bit(Fault::kLoseAck) | bit(Fault::kDelay) |
                                 bit(Fault::kRnr) | bit(Fault::kFail) | bit(Fault::kDie) |
                                 bit(Fault::kShuffle);
constexpr uint32_t kOfCqs = bit(Fault::kHold) | bit(Fault::kWake) | bit(Fault::kLate);
constexpr uint32_t kOfPackets =
    bit(Fault::kLosePacket) | bit(Fault::kRepeatPacket) | bit(Fault::kDelayPacket);
constexpr uint32_t kTimed =
    bit(Fault::kDelay) | bit(Fault::kHold) | bit(Fault::kLate) | bit(Fault::kDelayPacket);
constexpr uint32_t kAll = kOfRequests | kOfCqs | kOfPackets | bit(Fault::kRefuse);

// The keys beside `what`, and the faults that have them.
constexpr std::pair<std::string_view, uint32_t> kKeys[] = {
    {"qp", kOfRequests},
    {"opcode", kOfRequests},
    {"error", bit(Fault::kFail)},
    {"cq", kOfCqs},
    {"object", bit(Fault::kRefuse)},
    {"packet", kOfPackets},
    {"time", kTimed},
    {"nth", kAll},
    {"every", kAll},
    {"times", kAll},
    {"probability", kAll},
    {"from", kAll},
    {"until", kAll},
};

// 0: there is no such key.
uint32_t faults_with(std::string_view key) {
  for (const auto& [name, faults] : kKeys)
    if (key == name) return faults;
  return 0;
}

template <size_t kCount>
bool parse_quantity(const std::string& text, const Unit (&units)[kCount], uint64_t* out) {
  double number = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || number < 0) return false;
  const std::string_view unit(rest, static_cast<size_t>(text.data() + text.size() - rest));
  for (const Unit& known : units) {
    if (unit != known.word) continue;
    if (number * known.factor > 1e18) return false;
    *out = static_cast<uint64_t>(number * known.factor + 0.5);
    return true;
  }
  return false;
}

// Of a device, not of requests or calls: at one time (tool/schedule.h).
constexpr std::pair<std::string_view, ibv_event_type> kEvents[] = {{"port_down", IBV_EVENT_PORT_ERR},
                                                                   {"gid_change", IBV_EVENT_GID_CHANGE},
                                                                   {"address_change", kAddressChange},
                                                                   {"device_fatal", IBV_EVENT_DEVICE_FATAL}};

class Reader : public TomlReader {
 public:
  Reader(std::string file, faults::Plan* out, Schedule* schedule)
      : TomlReader(std::move(file)), out_(out), schedule_(schedule) {}

  bool read(const std::string& text) {
    return parse(text, [this](const toml::table& table) { return read_head(table); });
  }

 private:
  bool read_head(const toml::table& table) {
    for (const auto& [key, node] : table) {
      if (key == "seed") {
        if (!read_number(node, "seed", &out_->seed)) return false;
      } else if (key == "link") {
        if (!node.is_string() || !parse_link(**node.as_string(), &out_->link))
          return refuse(node, "link is a rate, a latency or both: \"25Gbps,2us\"");
      } else if (key == "fault") {
        if (!node.is_array_of_tables()) return refuse(node, "faults are tables: [[fault]]");
        for (const toml::node& fault : *node.as_array())
          if (!read_fault(*fault.as_table())) return false;
      } else {
        return refuse(key.source().begin.line,
                      "there are seed, link and [[fault]], not " + std::string(key.str()));
      }
    }
    return true;
  }

  bool read_number(const toml::node& node, const char* name, uint64_t* out) {
    if (!node.is_integer() || **node.as_integer() < 0)
      return refuse(node, std::string(name) + " is a whole number, 0 or more");
    *out = static_cast<uint64_t>(**node.as_integer());
    return true;
  }

  bool read_time(const toml::node& node, const char* name, uint64_t* out) {
    if (!node.is_string() || !parse_duration(**node.as_string(), out))
      return refuse(node, std::string(name) + " is a time: \"100us\", \"2ms\", \"1.5s\"");
    return true;
  }

  bool read_times(const toml::node& node, Rule* rule) {
    const toml::array* const range = node.as_array();
    if (range == nullptr) {
      if (!read_time(node, "time", &rule->least_ns)) return false;
      rule->most_ns = rule->least_ns;
      return true;
    }
    if (range->size() != 2) return refuse(node, "time is one time, or the least and the most");
    return read_time(*range->get(0), "time", &rule->least_ns) &&
           read_time(*range->get(1), "time", &rule->most_ns) &&
           (rule->least_ns <= rule->most_ns || refuse(node, "the least time comes first"));
  }

  bool read_entry(std::string_view name, const toml::node& node, Rule* rule) {
    uint64_t number = 0;
    if (const uint32_t fitting = faults_with(name); (fitting & bit(rule->what)) == 0)
      return refuse(node, fitting == 0 ? "a fault has no " + std::string(name)
                                       : std::string(name) + " does not fit to " + word_of(rule->what));
    if (name == "qp" || name == "cq") {
      if (!read_number(node, "an index", &number)) return false;
      if (number >= faults::kAny) return refuse(node, "no index is that large");
      rule->object = static_cast<uint32_t>(number);
      return true;
    }
    if (name == "nth") return read_number(node, "nth", &rule->nth);
    if (name == "every") return read_number(node, "every", &rule->every);
    if (name == "times") return read_number(node, "times", &rule->times);
    if (name == "from") return read_time(node, "from", &rule->from_ns);
    if (name == "until") return read_time(node, "until", &rule->until_ns);
    if (name == "time") return read_times(node, rule);
    if (name == "probability") {
      const auto value = node.value<double>();
      if (!value || !(*value >= 0 && *value <= 1)) return refuse(node, "probability is 0 to 1");
      rule->probability = *value;
      return true;
    }
    return read_word(name, node, rule);
  }

  bool read_word(std::string_view name, const toml::node& node, Rule* rule) {
    if (!node.is_string()) return refuse(node, std::string(name) + " is a word");
    const std::string& word = **node.as_string();
    if (name == "opcode") {
      for (uint32_t opcode = 0; opcode < 256; ++opcode)
        if (const auto* operation = find_send_operation(static_cast<ibv_wr_opcode>(opcode));
            operation != nullptr && word == operation->name)
          return rule->opcode = opcode, true;
      return refuse(node, "there is no opcode " + word + ": write it without IBV_WR_");
    }
    if (name == "packet") {
      faults::PacketKind kind{};
      if (!faults::parse_packet_kind(word, &kind)) return refuse(node, "packet is request, response or mad");
      rule->opcode = static_cast<uint32_t>(kind);
      return true;
    }
    if (name == "error") {
      for (uint32_t number = 1; number <= UINT8_MAX; ++number)
        if (word == find_vendor_error(number)->name) return rule->vendor_err = number, true;
      return refuse(node, "there is no error " + word + ": see verbena explain --list");
    }
    for (const auto& [known, kind] : kObjects)
      if (word == known) return rule->object = static_cast<uint32_t>(kind), true;
    return refuse(node, "object is QP, CQ, MR, MW, PD, AH, SRQ or XRCD");
  }

  // `time`: how long a port is down.
  bool read_event(const toml::table& table, ibv_event_type type) {
    uint64_t device = 0, port = 1, at = 0, time = 0;
    for (const auto& [key, node] : table) {
      if (key == "what") continue;
      const bool is_read =
          key == "device" ? read_number(node, "an index", &device)
          : key == "port" ? read_number(node, "a port", &port)
          : key == "from" ? read_time(node, "from", &at)
          : key == "time" && type == IBV_EVENT_PORT_ERR
              ? read_time(node, "time", &time)
              : refuse(node, std::string(key.str()) + " does not fit to an event of a device");
      if (!is_read) return false;
    }
    if (device >= UINT32_MAX || port >= UINT32_MAX) return refuse(table, "no device or port has that number");
    ScheduledEvent event{type, static_cast<uint32_t>(device), static_cast<uint32_t>(port), at};
    schedule_->push_back(event);
    if (time == 0) return true;
    event.type = IBV_EVENT_PORT_ACTIVE;
    event.at_ns += time;
    schedule_->push_back(event);
    return true;
  }

  bool read_fault(const toml::table& table) {
    Rule rule;
    const toml::node* const what = table.get("what");
    if (what != nullptr && what->is_string())
      for (const auto& [word, type] : kEvents)
        if (**what->as_string() == word) return read_event(table, type);
    if (what == nullptr || !what->is_string() || !faults::parse_fault(**what->as_string(), &rule.what))
      return refuse(what != nullptr ? *what : static_cast<const toml::node&>(table),
                    "what is lose, lose_ack, delay, shuffle, rnr, fail, die, refuse, hold, late, wake, "
                    "lose_packet, repeat_packet, "
                    "delay_packet, port_down, "
                    "gid_change, address_change or device_fatal");
    for (const auto& [key, node] : table)
      if (key != "what" && !read_entry(key.str(), node, &rule)) return false;
    if (rule.what == Fault::kFail && rule.vendor_err == 0)
      return refuse(table, "fail needs an error: error = \"rkey_unknown\" (verbena explain --list)");
    if ((bit(rule.what) & kTimed) != 0 && rule.most_ns == 0)
      return refuse(table, std::string(word_of(rule.what)) + " needs a time: time = \"100us\"");
    out_->rules.push_back(rule);
    return true;
  }

  faults::Plan* const out_;
  Schedule* const schedule_;
};

}  // namespace

bool parse_duration(const std::string& text, uint64_t* nanoseconds) {
  return parse_quantity(text, kTimes, nanoseconds);
}

bool parse_link(const std::string& text, faults::Link* out) {
  const size_t comma = text.find(',');
  const std::string first = text.substr(0, comma);
  if (comma == std::string::npos && parse_duration(first, &out->latency_ns)) return true;
  if (!parse_quantity(first, kRates, &out->bits_per_second) || out->bits_per_second == 0) return false;
  return comma == std::string::npos || parse_duration(text.substr(comma + 1), &out->latency_ns);
}

bool read_faults(const std::string& file, faults::Plan* out, Schedule* schedule, std::string* problem) {
  std::string text;
  if (!read_text(file, &text, problem)) return false;
  Reader reader(file, out, schedule);
  if (reader.read(text)) return true;
  *problem = reader.problem();
  return false;
}

}  // namespace verbena::tool
