// SPDX-License-Identifier: BSD-2-Clause
//
// Random programs: --random N of them, from --seed on. Several tests share them, so that they run side by
// side.
#include <malloc.h>

#include <string>

#include "random/generator.h"
#include "random/known.h"
#include "random/run.h"
#include "random/text.h"
#include "support/pair.h"

namespace conformance::random_chapter {
namespace {

constexpr int lanes = 8;

ClauseId clause_about(random::Finding::About about) {
  switch (about) {
    case random::Finding::About::kCall:
      return "random.calls";
    case random::Finding::About::kState:
      return "random.states";
    case random::Finding::About::kMemory:
      return "random.memory";
    default:
      return "random.completions";
  }
}

// Each step of a program copies what the model knows of each byte, some MB, which by default go back to the
// kernel each time: to have their pages again took most of the time of a program.
void keep_freed_memory() {
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  mallopt(M_MMAP_THRESHOLD, 32 << 20);  // the most: mallopt(3)
}

// Every eighth program, beginning with one of the first eight. Ends with the first that deviates.
class ProgramsTest final : public PairTest {
 public:
  explicit ProgramsTest(int lane) : lane_(lane) {}

 private:
  void run() override {
    const int count = options().random;
    if (count == 0) throw NotTested{"asked for by --random N"};
    if (lane_ >= count) return;  // fewer programs than tests: the verdict is that of the others
    if (context()->device->transport_type == IBV_TRANSPORT_IWARP)
      throw NotTested{"iWARP: a QP gets its connection from the connection manager"};
    keep_freed_memory();
    random::Claims claims = random::claims_of(topology());
    claims.known = random::known_of(options().known_deviations);
    for (int i = lane_; i < count; i += lanes) {
      const uint64_t seed = options().seed + static_cast<uint64_t>(i);
      random::Program program = random::generate(seed, claims);
      auto finding = random::run(topology(), program, claims);
      if (!finding) continue;
      const size_t before = program.steps.size();
      const random::Shrunk least =
          random::shrink_on(topology(), std::move(program), std::move(*finding), claims);
      const About about(clause_about(least.finding.about));
      ADD_FAILURE() << least.finding.text << "\nThe least of " << before
                    << " steps that show it (--random 1 --seed " << seed << "):\n"
                    << random::text(least.program);
      return;
    }
  }

  int lane_;
};

const bool registered = [] {
  for (int lane = 0; lane < lanes; ++lane)
    register_generated("random", "Programs" + std::to_string(lane + 1),
                       {"random.calls", "random.completions", "random.states", "random.memory"},
                       Traits().slow().limit(600), __FILE__, __LINE__,
                       [lane] { return new ProgramsTest(lane); });
  return true;
}();

}  // namespace
}  // namespace conformance::random_chapter
