// SPDX-License-Identifier: BSD-2-Clause
#include "random/shrink.h"

#include <algorithm>
#include <set>
#include <string>

#include "random/messages.h"
#include "random/model.h"

namespace conformance::random {
namespace {

bool is_admitted(const Program& program, const Claims& claims) {
  Model model(program.setup, claims);
  for (const Step& step : program.steps) {
    if (!model.admits(step)) return false;
    model.apply(step);
  }
  return true;
}

// Equal for equal steps. The objects are the same in all candidates.
std::string key_of(const Program& program) {
  wire::Writer writer;
  for (const Step& step : program.steps) writer(Run{step});
  return std::move(writer.bytes);
}

class Shrinker {
 public:
  Shrinker(Program program, const Claims& claims, int most,
           const std::function<bool(const Program&)>& deviates)
      : best_(std::move(program)), claims_(claims), left_(most), deviates_(deviates) {}

  Program run() {
    for (size_t before = weight() + 1; weight() < before && left_ > 0;) {
      before = weight();
      remove_steps();
      shorten_lists();
      simplify_requests();
    }
    return best_;
  }

 private:
  size_t weight() const {
    size_t sum = 0;
    for (const Step& step : best_.steps) {
      sum += 10;
      if (const auto* sends = std::get_if<PostSends>(&step))
        for (const Request& request : sends->list)
          sum += 5 + request.elements.size() + request.solicited + request.fenced + request.inlined;
      if (const auto* receives = std::get_if<PostReceives>(&step)) sum += 5 * receives->list.size();
    }
    return sum;
  }

  bool try_this(Program candidate) {
    if (left_ <= 0 || candidate.steps.empty() || !is_admitted(candidate, claims_)) return false;
    std::string key = key_of(candidate);
    if (in_vain_.count(key) != 0) return false;
    --left_;
    if (!deviates_(candidate)) {
      in_vain_.insert(std::move(key));
      return false;
    }
    best_ = std::move(candidate);
    return true;
  }

  // Halves, quarters, and so on to single steps. The last one is the Settle that shows the deviation.
  void remove_steps() {
    for (size_t size = std::max<size_t>(best_.steps.size() / 2, 1); size > 0 && left_ > 0; size /= 2)
      for (size_t first = 0; first + 1 < best_.steps.size();) {
        Program candidate = best_;
        const size_t end = std::min(first + size, best_.steps.size() - 1);
        candidate.steps.erase(candidate.steps.begin() + static_cast<ptrdiff_t>(first),
                              candidate.steps.begin() + static_cast<ptrdiff_t>(end));
        if (!try_this(std::move(candidate))) first += size;
      }
  }

  template <typename Posted>
  void shorten(size_t step) {
    for (size_t i = 0; i < std::get<Posted>(best_.steps[step]).list.size() && left_ > 0;) {
      Program candidate = best_;
      auto& list = std::get<Posted>(candidate.steps[step]).list;
      if (list.size() == 1) return;
      list.erase(list.begin() + static_cast<ptrdiff_t>(i));
      if (!try_this(std::move(candidate))) ++i;
    }
  }

  void shorten_lists() {
    for (size_t step = 0; step < best_.steps.size(); ++step) {
      if (std::holds_alternative<PostSends>(best_.steps[step])) shorten<PostSends>(step);
      if (std::holds_alternative<PostReceives>(best_.steps[step])) shorten<PostReceives>(step);
    }
  }

  void simplify_requests() {
    for (size_t step = 0; step < best_.steps.size(); ++step) {
      const auto* sends = std::get_if<PostSends>(&best_.steps[step]);
      for (size_t i = 0; sends != nullptr && i < sends->list.size() && left_ > 0; ++i) {
        change(step, i, [](Request& request) { request.solicited = false; });
        change(step, i, [](Request& request) { request.fenced = false; });
        change(step, i, [](Request& request) { request.inlined = false; });
        change(step, i, [](Request& request) {
          request.elements.resize(std::min<size_t>(request.elements.size(), 1));
        });
        sends = std::get_if<PostSends>(&best_.steps[step]);
      }
    }
  }

  template <typename Change>
  void change(size_t step, size_t index, Change change) {
    Program candidate = best_;
    Request& request = std::get<PostSends>(candidate.steps[step]).list[index];
    const bool differs = [&] {
      const Request before = request;
      change(request);
      return before.solicited != request.solicited || before.fenced != request.fenced ||
             before.inlined != request.inlined || before.elements.size() != request.elements.size();
    }();
    if (differs) try_this(std::move(candidate));
  }

  Program best_;
  const Claims& claims_;
  int left_;
  std::set<std::string> in_vain_;  // the keys of candidates that do not deviate: later rounds skip these
  const std::function<bool(const Program&)>& deviates_;
};

}  // namespace

Program shrink(Program program, const Claims& claims, int most,
               const std::function<bool(const Program&)>& still_deviates) {
  return Shrinker(std::move(program), claims, most, still_deviates).run();
}

}  // namespace conformance::random
