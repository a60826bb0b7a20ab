// What a Language holds, for the rooms behind it.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/budget.h"
#include "language/expand.h"
#include "language/expr.h"
#include "language/unambiguous.h"
#include "regccrf/language.h"

namespace regccrf {

Budget budget_of(const Limits& limits);

struct Language::Impl {
  Labels labels;
  ExprPtr expr;
  std::string text;
  std::vector<Conjunct> conjuncts;  // where the text is a conjunction
  std::vector<Conjunct> nested;     // operands of conjunctions within it

  std::int64_t bytes = 0;  // of the expression …
  double seconds = 0;      // … and what reading it took: both count for every limit

  Budget budget(const Limits& limits) const;
  std::string why_empty(const Budget& budget) const;  // for errors
  const Automaton& built(const Budget& budget) const;
  const Unambiguous& cheapest(const Budget& budget) const;

  // The constraint of a conjunction that is too large to be multiplied out, null for other languages. In compile.cc.
  const Constraint* with_rules(const Limits& limits) const;
  // Error where it is such a conjunction: `operation` needs one automaton.
  void refuse_rules(const char* operation, const Limits& limits) const;

  mutable std::mutex rules_mutex;
  mutable bool rules_known = false;
  mutable std::optional<Constraint> kept;  // base and rules, whether they fit or not; nothing where none can be kept
  mutable std::optional<std::int64_t> most_products;  // for which `kept_fits` was found
  mutable bool kept_fits = false;

  mutable std::mutex mutex;
  mutable std::unique_ptr<const Automaton> automaton;
  mutable std::unique_ptr<const Unambiguous> unambiguous;
};

}  // namespace regccrf
