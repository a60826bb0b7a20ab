// The compiled constraint as bytes: the safetensors layout, so that other tools can open it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "regccrf/automaton.h"
#include "regccrf/constraint.h"
#include "regccrf/labels.h"

namespace regccrf {

struct ConstraintFile {
  Automaton automaton;
  Labels labels;
  std::string method;
  std::string text;
  std::vector<Rule> rules = {};
};

// `path` appears in errors only.
std::string encode_constraint_file(const ConstraintFile& file);
ConstraintFile decode_constraint_file(std::string_view bytes, const std::string& path);

}  // namespace regccrf
