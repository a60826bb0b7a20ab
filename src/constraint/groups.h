// Groups: states whose label sets are alike share one little matrix. A group is padded to the union of its states'
// in-labels and out-labels, so that their mix (topology.h) is one dense product [states, in] × [in, out] with g[in,
// out].
#pragma once

#include <cstdint>
#include <vector>

#include "constraint/topology.h"

namespace regccrf {

struct StateGroup {
  std::vector<std::int32_t> states;
  std::vector<Label> in_labels, out_labels;  // ascending
};

// Every state is in one group. Padding is bought only where it is cheaper than one more group.
std::vector<StateGroup> group_states(const Topology& topology);

}  // namespace regccrf
