// SPDX-License-Identifier: BSD-2-Clause
#include "random/generator.h"

#include <algorithm>
#include <random>

#include "random/model.h"

namespace conformance::random {
namespace {

constexpr uint32_t buffer_sizes[] = {256, 1000, 4096, 16384};
constexpr int full_access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

class Generator {
 public:
  Generator(uint64_t seed, const Claims& claims) : claims_(claims), random_(seed) { program_.seed = seed; }

  Program make() {
    make_setup();
    Model model(program_.setup, claims_);
    model_ = &model;
    for (uint32_t i = 0; i < program_.setup.buffers.size(); ++i)
      add(Fill{i, 0, program_.setup.buffers[i], random_()});
    const uint32_t steps = between(10, 60);
    for (uint32_t i = 0; i < steps; ++i) add_step();
    add(Settle{});
    return std::move(program_);
  }

 private:
  // ---- chance ----
  uint32_t between(uint32_t least, uint32_t most) {
    return least + static_cast<uint32_t>(random_() % (most - least + 1));
  }
  bool one_in(uint32_t n) { return random_() % n == 0; }
  uint32_t index_below(size_t n) { return static_cast<uint32_t>(random_() % n); }

  // ---- what a program begins with ----
  void make_setup() {
    Setup& setup = program_.setup;
    std::vector<ibv_qp_type> types = {IBV_QPT_RC, IBV_QPT_RC};
    if (claims_.uc) types.push_back(IBV_QPT_UC);
    if (claims_.ud) types.push_back(IBV_QPT_UD);
    if (claims_.xrc) types.push_back(IBV_QPT_XRC_SEND);
    const uint32_t room =
        static_cast<uint32_t>(claims_.cqe) / (4 * kDepth);  // connections that a CQ can hold
    const uint32_t connections = std::clamp(between(1, 4), 1u, std::max(room, 1u));
    setup.cqs = between(1, 3);
    for (uint32_t i = 0; i < connections; ++i) setup.connections.push_back(make_connection(types));
    for (uint32_t i = 0; i < 2 * connections + 2; ++i)
      setup.buffers.push_back(buffer_sizes[index_below(std::size(buffer_sizes))]);
    for (uint32_t buffer = 0; buffer < setup.buffers.size(); ++buffer) make_regions(buffer);
    for (const auto& [claimed, type] :
         {std::pair{claims_.window1, IBV_MW_TYPE_1}, {claims_.window2, IBV_MW_TYPE_2}})
      for (uint32_t i = 0; claimed && i < between(0, 2); ++i) setup.windows.push_back(type);
    // Of each type as many on either device.
    if (claims_.is_split) {
      std::vector<ibv_mw_type> twice;
      for (const ibv_mw_type type : setup.windows) twice.insert(twice.end(), 2, type);
      setup.windows = std::move(twice);
    }
  }

  Connection make_connection(const std::vector<ibv_qp_type>& types) {
    Connection out{types[index_below(types.size())]};
    const bool is_xrc = out.type == IBV_QPT_XRC_SEND;
    out.shared_receives = is_xrc || (claims_.srq && out.type != IBV_QPT_UC && one_in(3));
    out.signal_all = one_in(4);
    for (uint32_t side = 0; side < 2; ++side) {
      out.send_cq[side] = index_below(program_.setup.cqs);
      out.receive_cq[side] = index_below(program_.setup.cqs);
      out.access[side] = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
      if (claims_.atomics) out.access[side] |= IBV_ACCESS_REMOTE_ATOMIC;
      if (one_in(6)) out.access[side] &= static_cast<unsigned>(random_());
      if (out.type == IBV_QPT_UC) out.access[side] = IBV_ACCESS_REMOTE_WRITE;
      if (out.type == IBV_QPT_UD) out.access[side] = 0;
    }
    return out;
  }

  void make_regions(uint32_t buffer) {
    Setup& setup = program_.setup;
    const uint32_t size = setup.buffers[buffer];
    int access = full_access;
    if (claims_.atomics) access |= IBV_ACCESS_REMOTE_ATOMIC;
    if (claims_.window1 || claims_.window2) access |= IBV_ACCESS_MW_BIND;
    setup.regions.push_back({buffer, 0, size, access});
    if (!one_in(2)) return;
    const uint32_t begin = between(0, size / 2);
    const int some[] = {0, IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_REMOTE_READ,
                        IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE, full_access};
    Region region{buffer, begin, between(1, size - begin), some[index_below(std::size(some))], one_in(5)};
    if (region.in_other_pd) region.access = full_access;  // only the PD is wrong
    setup.regions.push_back(region);
  }

  // ---- steps ----
  bool add(Step step) {
    if (!model_->admits(step)) return false;
    model_->apply(step);
    program_.steps.push_back(std::move(step));
    return true;
  }

  void add_step() {
    for (int tries = 0; tries < 20; ++tries) {
      const uint32_t choice = index_below(100);
      const EndIndex end = index_below(2 * program_.setup.connections.size());
      if (choice < 15) {
        if (add(Settle{})) return;
      } else if (choice < 20) {
        const uint32_t buffer = index_below(program_.setup.buffers.size());
        const uint32_t begin = index_below(program_.setup.buffers[buffer]);
        if (add(Fill{buffer, begin, program_.setup.buffers[buffer] - begin, random_()})) return;
      } else if (choice < 23) {
        if (add(RegisterAgain{index_below(program_.setup.regions.size())})) return;
      } else if (choice < 24) {
        if (add(ToError{end})) return;
      } else if (choice < 50) {
        if (add_receives(end)) return;
      } else if (model_->is_broken(end / 2)) {
        add(Settle{});
        if (add(Reconnect{end / 2})) return;
      } else if (add_sends(end)) {
        return;
      }
    }
  }

  bool add_receives(EndIndex end) {
    const Connection& connection = program_.setup.connections[end / 2];
    PostReceives step;
    step.xrc = connection.type == IBV_QPT_XRC_SEND;
    if (!connection.shared_receives) step.end = end;
    if (step.xrc && claims_.is_split) end |= 1;  // the SRQ is on that side
    const uint32_t count = one_in(3) ? between(2, 6) : 1;
    const bool is_shared = !step.end && !step.xrc;
    for (uint32_t i = 0; i < count; ++i) {
      Receive receive{next_id_++, {}};
      const uint32_t most = is_shared ? claims_.srq_sges : claims_.receive_sges;
      const bool is_datagram = connection.type == IBV_QPT_UD;
      if (is_datagram || !one_in(8))
        receive.elements = elements(end, is_datagram ? kGrh + claims_.mtu : length(), most, true);
      step.list.push_back(std::move(receive));
    }
    return add(std::move(step));
  }

  uint32_t length() {
    const uint32_t mtu = claims_.mtu;
    const uint32_t usual[] = {1, 7, 8, 64, 100, 256, 257, mtu - 1, mtu, mtu + 1, 2 * mtu, 3 * mtu + 5};
    return one_in(3) ? between(1, 600) : usual[index_below(std::size(usual))];
  }

  // Regions that an end uses: mostly of buffers of its own. With two devices always of those of its side.
  uint32_t region_for(EndIndex end) {
    const auto& regions = program_.setup.regions;
    for (int tries = 0; tries < 6; ++tries) {
      const uint32_t region = index_below(regions.size());
      if (regions[region].buffer == end) return region;
    }
    for (;;) {
      const uint32_t region = index_below(regions.size());
      if (!claims_.is_split || side_of_buffer(regions[region].buffer) == side_of_end(end)) return region;
    }
  }
  // A window that the end can bind.
  uint32_t window_for(EndIndex end) {
    const uint32_t window = index_below(program_.setup.windows.size());
    if (!claims_.is_split || side_of_window(window) == side_of_end(end)) return window;
    return window ^ 1;
  }

  std::vector<Element> elements(EndIndex end, uint32_t length, uint32_t most, bool to_write) {
    std::vector<Element> out;
    const uint32_t count = one_in(3) ? between(1, std::min(most, 4u)) : 1;
    uint32_t left = length;
    for (uint32_t i = 0; i < count && left > 0; ++i) {
      const uint32_t region = region_for(end);
      const Region& of = program_.setup.regions[region];
      if (to_write && (of.access & IBV_ACCESS_LOCAL_WRITE) == 0 && !one_in(6)) continue;
      if (of.in_other_pd && !one_in(6)) continue;
      uint32_t part = i + 1 == count ? left : between(1, left);
      part = std::min(part, of.length);
      uint32_t offset = between(0, of.length - part);
      if (one_in(15)) offset = of.length - part + 1;  // ends a byte too late
      out.push_back({region, offset, part, one_in(30)});
      left -= part;
    }
    return out;
  }

  bool add_sends(EndIndex end) {
    PostSends step{end, {}};
    const uint32_t count = one_in(3) ? between(2, 5) : 1;
    for (uint32_t i = 0; i < count; ++i) step.list.push_back(request(end));
    step.list.back().signaled = true;
    // Mostly there is a receive for each.
    size_t missing = 0;
    for (const Request& each : step.list) missing += consumes_a_receive(each.opcode);
    for (; missing > model_->receives_of(other_end(end)) && !one_in(10);)
      if (!add_receives(other_end(end))) break;
    if (add(step)) return true;
    // The first alone, perhaps.
    if (step.list.size() == 1) return false;
    step.list.resize(1);
    step.list.back().signaled = true;
    return add(step);
  }

  ibv_wr_opcode opcode(ibv_qp_type type) {
    if (type == IBV_QPT_UD) return one_in(3) ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND;
    std::vector<ibv_wr_opcode> out = {IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE,
                                      IBV_WR_RDMA_WRITE_WITH_IMM};
    if (type != IBV_QPT_UC) {
      out.insert(out.end(), {IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE});
      if (claims_.atomics) out.insert(out.end(), {IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD});
      if (type == IBV_QPT_RC && !program_.setup.windows.empty())
        out.insert(out.end(), {IBV_WR_BIND_MW, IBV_WR_LOCAL_INV, IBV_WR_SEND_WITH_INV});
    }
    return out[index_below(out.size())];
  }

  Request request(EndIndex end) {
    const Connection& connection = program_.setup.connections[end / 2];
    Request out{next_id_++, opcode(connection.type)};
    out.signaled = !one_in(3);
    out.solicited = one_in(4);
    out.imm = static_cast<uint32_t>(random_());
    out.compare_add = one_in(2) ? 0 : random_();
    out.swap = random_();
    out.wrong_qkey = connection.type == IBV_QPT_UD && one_in(15);
    if (out.opcode == IBV_WR_BIND_MW) return out.bind = bind(end), out.signaled = true, out;
    if (out.opcode == IBV_WR_LOCAL_INV) return out.window = window_for(end), out;
    if (out.opcode == IBV_WR_SEND_WITH_INV) out.window = window_for(other_end(end));
    const bool is_atomic = is_atomic_operation(out.opcode), is_read = out.opcode == IBV_WR_RDMA_READ;
    out.fenced = connection.type == IBV_QPT_RC && one_in(5);
    uint32_t size = is_atomic ? 8 : length();
    if (connection.type == IBV_QPT_UD) size = std::min(size, claims_.mtu);
    out.inlined = !is_atomic && !is_read && claims_.inline_data > 0 && one_in(4);
    if (out.inlined) size = std::min(size, claims_.inline_data);
    const bool is_empty = is_send(out.opcode) && one_in(12);
    if (!is_empty)
      out.elements = elements(end, size, is_atomic ? 1 : claims_.send_sges, is_atomic || is_read);
    if (is_write(out.opcode) || is_read || is_atomic) out.target = target(other_end(end), out);
    return out;
  }

  Target target(EndIndex at, const Request& request) {
    const uint32_t size = length_of(request.elements);
    Target out;
    const auto& windows = program_.setup.windows;
    if (!windows.empty() && one_in(3)) {
      out = {true, window_for(at)};
      const uint32_t length = model_->binding(out.index).length;
      out.offset = length >= size ? between(0, length - size) : 0;
    } else {
      out.index = region_for(at);
      const uint32_t length = program_.setup.regions[out.index].length;
      out.offset = length >= size ? between(0, length - size) : 0;
      if (one_in(12) && length >= size) out.offset = length - size + 1;
      if (is_atomic_operation(request.opcode) && !one_in(20))
        out.offset += -(program_.setup.regions[out.index].begin + out.offset) & 7;
    }
    out.bad_key = one_in(30);
    return out;
  }

  Bind bind(EndIndex end) {
    const uint32_t window = window_for(end), region = region_for(end);
    const uint32_t length = program_.setup.regions[region].length, offset = between(0, length - 1);
    const unsigned rights[] = {IBV_ACCESS_REMOTE_WRITE, IBV_ACCESS_REMOTE_READ,
                               IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ};
    return {window, region, offset, between(1, length - offset), rights[index_below(std::size(rights))]};
  }

  const Claims claims_;
  std::mt19937_64 random_;
  Program program_;
  Model* model_ = nullptr;
  uint64_t next_id_ = 1;
};

}  // namespace

Program generate(uint64_t seed, const Claims& claims) { return Generator(seed, claims).make(); }

}  // namespace conformance::random
