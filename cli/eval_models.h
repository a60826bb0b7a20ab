// What models make of labelled data, in each of the ways in which a constraint can count: the systems of `regccrf eval
// -m`.
#pragma once

#include <string>
#include <vector>

#include "cli/constraint_options.h"
#include "cli/evaluation_report.h"

namespace regccrf::cli {

struct ModelOptions {
  std::vector<std::string> models;  // paths
  std::string embeddings;           // where the models' embeddings file is now
  int threads = 0;                  // 0: as many as the machine has
};

// The systems with their answers, not yet evaluated. A model that was trained without the language is decoded freely
// and under it; one that was trained under it is decoded under it. The language is the one given, or else the first
// that a model has. `gold_column`: from 1, -1 is the last.
Report tag_with_models(const ModelOptions& options, const std::vector<std::string>& data, int gold_column,
                       const ConstraintOptions& constraint);

}  // namespace regccrf::cli
