// SPDX-License-Identifier: BSD-2-Clause
#include "random/text.h"

#include <set>
#include <sstream>

#include "suite/names.h"
#include "support/objects.h"

namespace conformance::random {
namespace {

struct Flag {
  unsigned bit;
  const char* name;
};
constexpr Flag access_flags[] = {{IBV_ACCESS_LOCAL_WRITE, "LOCAL_WRITE"},
                                 {IBV_ACCESS_REMOTE_WRITE, "REMOTE_WRITE"},
                                 {IBV_ACCESS_REMOTE_READ, "REMOTE_READ"},
                                 {IBV_ACCESS_REMOTE_ATOMIC, "REMOTE_ATOMIC"},
                                 {IBV_ACCESS_MW_BIND, "MW_BIND"}};

std::string access_text(unsigned access) {
  std::string out;
  for (const Flag& flag : access_flags)
    if ((access & flag.bit) != 0) out += (out.empty() ? "" : "|") + std::string(flag.name);
  return out.empty() ? "0" : out;
}

void add_elements(std::ostringstream& out, const std::vector<Element>& elements) {
  out << '[';
  for (size_t i = 0; i < elements.size(); ++i) {
    const Element& element = elements[i];
    out << (i == 0 ? "" : ", ") << element.length << " bytes of mr " << element.region << '+'
        << element.offset;
    if (element.bad_key) out << " by a dead lkey";
  }
  out << ']';
}

void add(std::ostringstream& out, const Receive& receive) {
  out << "\n      " << receive.id << ": ";
  add_elements(out, receive.elements);
}

void add(std::ostringstream& out, const Request& request) {
  out << "\n      " << request.id << ": " << name_of(request.opcode);
  if (!request.elements.empty() || is_send(request.opcode)) {
    out << ' ';
    add_elements(out, request.elements);
  }
  if (request.target) {
    const Target& target = *request.target;
    out << (target.is_window ? " at mw " : " at mr ") << target.index << '+' << target.offset;
    if (target.bad_key) out << " by a dead rkey";
  }
  if (request.opcode == IBV_WR_ATOMIC_CMP_AND_SWP)
    out << " compare " << hex(request.compare_add) << " swap " << hex(request.swap);
  if (request.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) out << " add " << hex(request.compare_add);
  if (request.opcode == IBV_WR_SEND_WITH_IMM || request.opcode == IBV_WR_RDMA_WRITE_WITH_IMM)
    out << " imm " << hex(request.imm);
  if (request.bind)
    out << " mw " << request.bind->window << " to " << request.bind->length << " bytes of mr "
        << request.bind->region << '+' << request.bind->offset << ' ' << access_text(request.bind->access);
  if (request.window) out << " mw " << *request.window;
  if (!request.signaled) out << ", unsignaled";
  if (request.fenced) out << ", fenced";
  if (request.inlined) out << ", inline";
  if (request.solicited) out << ", solicited";
  if (request.wrong_qkey) out << ", another Q_Key";
}

struct Writer {
  std::ostringstream& out;
  void operator()(const PostReceives& step) {
    out << (step.end   ? "post receives to " + end_text(*step.end)
            : step.xrc ? "post receives to the XRC SRQ"
                       : "post receives to the SRQ");
    for (const Receive& receive : step.list) add(out, receive);
  }
  void operator()(const PostSends& step) {
    out << "post requests to " << end_text(step.end);
    for (const Request& request : step.list) add(out, request);
  }
  void operator()(const Fill& step) {
    out << "fill buffer " << step.buffer << " from byte " << step.begin << ", " << step.length << " bytes";
  }
  void operator()(const RegisterAgain& step) {
    out << "deregister mr " << step.region << " and register it again";
  }
  void operator()(const ToError& step) { out << "modify " << end_text(step.end) << " to ERR"; }
  void operator()(const Reconnect& step) {
    out << "connect " << end_text(2 * step.connection) << " and " << end_text(2 * step.connection + 1)
        << " again, through RESET";
  }
  void operator()(const Settle&) { out << "take all completions; compare states and memory"; }
};

}  // namespace

std::string hex(uint64_t number) {
  std::ostringstream out;
  out << "0x" << std::hex << number;
  return out.str();
}

std::string end_text(EndIndex end) { return "qp " + std::to_string(end / 2) + (end % 2 == 0 ? 'a' : 'b'); }

std::string text(const Step& step) {
  std::ostringstream out;
  std::visit(Writer{out}, step);
  return out.str();
}

namespace {

// The objects that the steps use.
struct Used {
  std::set<uint32_t> buffers, regions, windows, connections;

  Used(const Program& program) {
    for (const Step& step : program.steps) std::visit([&](const auto& each) { add(each); }, step);
    for (const uint32_t region : regions) buffers.insert(program.setup.regions[region].buffer);
  }
  void add(const std::vector<Element>& elements) {
    for (const Element& element : elements) regions.insert(element.region);
  }
  void add(const PostReceives& step) {
    if (step.end) connections.insert(*step.end / 2);
    for (const Receive& receive : step.list) add(receive.elements);
  }
  void add(const PostSends& step) {
    connections.insert(step.end / 2);
    for (const Request& request : step.list) {
      add(request.elements);
      if (request.target) (request.target->is_window ? windows : regions).insert(request.target->index);
      if (request.bind) windows.insert(request.bind->window), regions.insert(request.bind->region);
      if (request.window) windows.insert(*request.window);
    }
  }
  void add(const Fill& step) { buffers.insert(step.buffer); }
  void add(const RegisterAgain& step) { regions.insert(step.region); }
  void add(const ToError& step) { connections.insert(step.end / 2); }
  void add(const Reconnect& step) { connections.insert(step.connection); }
  void add(const Settle&) {}
};

void add(std::ostringstream& out, const Setup& setup, const Used& used) {
  for (const uint32_t i : used.buffers) out << "    buffer " << i << ": " << setup.buffers[i] << " bytes\n";
  for (const uint32_t i : used.regions) {
    const Region& region = setup.regions[i];
    out << "    mr " << i << ": " << region.length << " bytes of buffer " << region.buffer << '+'
        << region.begin << ", " << access_text(static_cast<unsigned>(region.access))
        << (region.in_other_pd ? ", in another PD" : "") << '\n';
  }
  for (const uint32_t i : used.windows)
    out << "    mw " << i << ": type " << (setup.windows[i] == IBV_MW_TYPE_1 ? 1 : 2) << '\n';
  for (const uint32_t i : used.connections) {
    const Connection& connection = setup.connections[i];
    out << "    qp " << i << "a and " << i << "b: " << type_name(connection.type)
        << (connection.shared_receives ? ", SRQ" : "") << (connection.signal_all ? ", sq_sig_all" : "");
    for (uint32_t side = 0; side < 2; ++side)
      out << "; "
          << "ab"[side] << ": CQs " << connection.send_cq[side] << " and " << connection.receive_cq[side]
          << ", access " << access_text(connection.access[side]);
    out << '\n';
  }
}

}  // namespace

std::string text(const Program& program) {
  std::ostringstream out;
  out << "program of seed " << program.seed << ", " << program.steps.size() << " steps, on\n";
  add(out, program.setup, Used(program));
  for (size_t i = 0; i < program.steps.size(); ++i)
    out << "  " << i + 1 << ". " << text(program.steps[i]) << '\n';
  return out.str();
}

}  // namespace conformance::random
