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

// What a device pays for groups.
struct GroupCost {
  std::int64_t overhead;  // one group more costs as much as so many states of it
  double most_padding;    // a group does at most so many times the products that its states need; 0: no limit
};

// Every state is in one group; padding is bought where it is cheaper than one group more. The CPU
// (inference/cpu/plan.h) and GPUs (inference/cuda/layout) group by the same rule at their own cost: a GPU rather pads.
std::vector<StateGroup> group_states(const Topology& topology, const GroupCost& cost);

}  // namespace regccrf
