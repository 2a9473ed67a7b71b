// SPDX-License-Identifier: BSD-2-Clause
#include "suite/layer.h"

#include <algorithm>

namespace conformance {
namespace {

constexpr Layer layer_table[] = {
#include "layer_table.inc"
};

}  // namespace

std::span<const Layer> layers() { return layer_table; }

Attribution attribution_of(const ClauseReport& clause, const Facts& provenance) {
  if (clause.expectation != nullptr && !clause.expectation->layer.empty())
    return {clause.expectation->layer, clause.expectation->source};
  const std::string_view id = clause.id.clause().id;
  const auto found =
      std::lower_bound(std::begin(layer_table), std::end(layer_table), id,
                       [](const Layer& layer, std::string_view wanted) { return layer.clause < wanted; });
  const std::string file = value_of(provenance, "command_file");
  const bool has_kernel = file.empty() || file == "unknown" || file.starts_with("/dev/infiniband/");
  const bool is_known = found != std::end(layer_table) && found->clause == id;
  if (is_known && found->name == "kernel core" && !has_kernel)
    return {"device", "its commands go to " + file + ": it does without the kernel's core"};
  if (is_known)
    return {std::string(found->name), std::string(found->does) + " (" + std::string(found->source) + ")"};
  return {"device", "nothing above it is known to do this: the device, its driver or its provider library"};
}

}  // namespace conformance
