// Syntax tree → expression over label ids: names looked up, templates applied, quantifiers written out.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "language/expr.h"
#include "language/syntax.h"
#include "regccrf/labels.h"

namespace regccrf {

// An operand of a language that is written `… & … & …`, and how it is written.
struct Conjunct {
  ExprPtr expr;
  std::string text;
  bool bound = false;  // the text has a name that a quantifier or a template binds
};

struct Expanded {
  ExprPtr expr;
  Labels labels;
  std::vector<Conjunct> conjuncts;  // empty where the language is no conjunction
  std::vector<Conjunct> nested;     // operands of other conjunctions in it
  std::int64_t bytes = 0;           // that all of it holds
};

// The alphabet is `given`, or what `labels = …` declares, or what the definition `language` mentions.
Expanded expand(const Module& module, const std::optional<Labels>& given, const Budget& budget);

}  // namespace regccrf
