// The base of a constraint times some of its rules, kept with the constraint for other sentences that break the same
// rules. What is kept changes no answer: which rules a sentence needs follows from its scores alone.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "regccrf/constraint.h"

namespace regccrf {

struct RuleProduct {
  bool too_large = false;                // a step would take more products than the caller allows
  std::optional<Constraint> constraint;  // nothing where it is too large, or where no sequence obeys these rules
};

// `which`: sorted numbers of rules. Safe between threads.
RuleProduct product_with(const Constraint& constraint, const std::vector<int>& which, std::int64_t most_products);

}  // namespace regccrf
