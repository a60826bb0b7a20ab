// The compiled constraint on disk: the safetensors layout, so that other tools can open it.
#pragma once

#include <string>

#include "regccrf/automaton.h"
#include "regccrf/labels.h"

namespace regccrf {

struct ConstraintFile {
  Automaton automaton;
  Labels labels;
  std::string method;
  std::string text;
};

void write_constraint_file(const std::string& path, const ConstraintFile& file);
ConstraintFile read_constraint_file(const std::string& path);

}  // namespace regccrf
