// What a Language holds, for the rooms behind it.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "language/expand.h"
#include "language/expr.h"
#include "language/unambiguous.h"
#include "regccrf/language.h"

namespace regccrf {

struct Language::Impl {
  Labels labels;
  ExprPtr expr;
  std::string text;
  std::vector<Conjunct> conjuncts;  // where the text is a conjunction

  std::string why_empty() const;  // for errors
  const Automaton& built(const Budget& budget) const;
  const Unambiguous& cheapest(const Budget& budget) const;

  mutable std::mutex mutex;
  mutable std::unique_ptr<const Automaton> automaton;
  mutable std::unique_ptr<const Unambiguous> unambiguous;
};

}  // namespace regccrf
