// The built-in templates: bio, at_most, before and the others.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "language/expr.h"

namespace regccrf {

struct BuiltinArguments {
  std::uint32_t number = 0;
  std::vector<ExprPtr> patterns;
  std::vector<std::string> set;
  std::function<ExprPtr(const std::string&)> label;  // the one-label pattern of a name
  int labels = 0;                                    // K
};

struct Builtin {
  enum class Signature { kSet, kNumberPattern, kPattern, kTwoPatterns, kManyPatterns };
  const char* name;
  const char* usage;  // `at_most(n, X)`
  Signature signature;
  ExprPtr (*apply)(const BuiltinArguments&);
};

const Builtin* find_builtin(std::string_view name);
std::vector<std::string> builtin_names();

}  // namespace regccrf
