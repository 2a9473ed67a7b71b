// SPDX-License-Identifier: BSD-2-Clause
//
// The numbers in emulator/tool/gdb/verbena.py against the layout.
#include <gtest/gtest.h>

#include <cstddef>
#include <fstream>
#include <map>
#include <regex>
#include <sstream>
#include <string>

#include "adapter/layout.h"

namespace verbena {
namespace {

std::map<std::string, uint64_t> numbers_of_script() {
  std::ostringstream text;
  text << std::ifstream(VERBENA_SOURCE_DIR "/emulator/tool/gdb/verbena.py").rdbuf();
  const std::string all = text.str();
  const size_t from = all.find("LAYOUT = {"), to = all.find('}', from);
  const std::string table = all.substr(from, to - from);
  std::map<std::string, uint64_t> numbers;
  const std::regex entry("\"([a-z_.]+)\": (0x[0-9a-f]+|[0-9]+)");
  for (std::sregex_iterator i(table.begin(), table.end(), entry), end; i != end; ++i)
    numbers[(*i)[1]] = std::stoull((*i)[2], nullptr, 0);
  return numbers;
}

TEST(GdbScript, KnowsTheLayout) {
  const std::map<std::string, uint64_t> layout = {
      {"version", kLayoutVersion},
      {"magic", kSegmentMagic},
      {"qp_table", kQpTableOffset},
      {"qp_size", sizeof(SharedQp)},
      {"cq_table", kCqTableOffset},
      {"cq_size", sizeof(SharedCq)},
      {"mr_table", kMrTableOffset},
      {"mr_size", sizeof(SharedMr)},
      {"header.size", offsetof(SegmentHeader, size)},
      {"header.slot", offsetof(SegmentHeader, slot)},
      {"header.pid", offsetof(SegmentHeader, pid)},
      {"header.qps", offsetof(SegmentHeader, qp_high_water)},
      {"header.cqs", offsetof(SegmentHeader, cq_high_water)},
      {"header.mrs", offsetof(SegmentHeader, mr_high_water)},
      {"qp.state", offsetof(SharedQp, responder_state)},
      {"qp.qpn", offsetof(SharedQp, qpn)},
      {"qp.dest_qpn", offsetof(SharedQp, dest_qpn)},
      {"qp.incarnation", offsetof(SharedQp, incarnation)},
      {"qp.type", offsetof(SharedQp, type)},
      {"qp.recv_cq", offsetof(SharedQp, recv_cq)},
      {"qp.send_cq", offsetof(SharedQp, send_cq)},
      {"qp.in_use", offsetof(SharedQp, in_use)},
      {"qp.taken", offsetof(SharedQp, rq_taken)},
      {"qp.rq_posted", offsetof(SharedQp, rq_posted)},
      {"qp.sq_posted", offsetof(SharedQp, sq_posted)},
      {"qp.sq_completed", offsetof(SharedQp, sq_completed)},
      {"cq.alive", offsetof(SharedCq, alive)},
      {"cq.channel", offsetof(SharedCq, channel)},
      {"cq.generation", offsetof(SharedCq, ring_generation)},
      {"cq.rings", offsetof(SharedCq, rings)},
      {"cq.ring_size", sizeof(SharedCqRing)},
      {"ring.tail", offsetof(SharedCqRing, tail)},
      {"ring.head", offsetof(SharedCqRing, head)},
      {"ring.order", offsetof(SharedCqRing, order)},
      {"cq.armed", offsetof(SharedCq, armed)},
      {"cq.overrun", offsetof(SharedCq, overrun)},
      {"mr.valid", offsetof(SharedMr, valid)},
      {"mr.pd", offsetof(SharedMr, pd)},
      {"mr.access", offsetof(SharedMr, access)},
      {"mr.iova", offsetof(SharedMr, iova)},
      {"mr.length", offsetof(SharedMr, length)},
      {"mr.kind", offsetof(SharedMr, kind)},
  };
  EXPECT_EQ(numbers_of_script(), layout);
}

}  // namespace
}  // namespace verbena
