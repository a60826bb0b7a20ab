// Syntax tree → expression over label ids: names looked up, templates applied, quantifiers written out.
#pragma once

#include <optional>

#include "language/expr.h"
#include "language/syntax.h"
#include "regccrf/labels.h"

namespace regccrf {

struct Expanded {
  ExprPtr expr;
  Labels labels;
};

// The alphabet is `given`, or what `labels = …` declares, or what the definition `language` mentions.
Expanded expand(const Module& module, const std::optional<Labels>& given);

}  // namespace regccrf
