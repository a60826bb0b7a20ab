// What `regccrf eval` prints of one or more systems on the same sequences.
#pragma once

#include <string>
#include <vector>

#include "regccrf/evaluate.h"

namespace regccrf::cli {

struct System {
  std::string name;
  std::vector<LabelNames> predicted;
  Evaluation evaluation;
};

struct Report {
  std::vector<LabelNames> words;  // what --show prints beside the labels
  std::vector<LabelNames> gold;
  std::vector<System> systems;  // one at least; the others are compared with the first
  EvaluateOptions options;
  Resampling resampling;
};

std::string text_report(const Report& report);
std::string json_report(const Report& report);

// Up to `many` sequences on which the systems differ: a line a token, a column a system. Those come first on which one
// system is right, and among them those on which another one is outside the language.
std::string differences(const Report& report, std::size_t many);

}  // namespace regccrf::cli
