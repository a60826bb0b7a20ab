// The development set's score: spans' F1 as conlleval counts it, or accuracy where gold has no spans.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "regccrf/dataset.h"
#include "regccrf/evaluate.h"

namespace regccrf {

// The model's labels, and behind them those that only development gold has. No model predicts these: such gold counts
// as an error, and neither the model nor its language knows of it.
Labels with_others(const Labels& labels, const Names& of_gold);

class DevelopmentScore {
 public:
  DevelopmentScore(const Dataset& data,
                   const Labels& labels);                     // what gold's numbers mean; keeps a reference to the data
  double operator()(std::span<const Label> predicted) const;  // predicted: [positions]
  const char* name() const { return spans_ ? "F1" : "accuracy"; }
  // [folds] of the sequences i with i mod folds = 0, 1, …; all by the same measure
  std::vector<double> of_folds(std::span<const Label> predicted, int folds) const;

 private:
  std::vector<LabelNames> names(std::span<const Label> labels) const;

  const Dataset& data_;
  Labels labels_;
  std::vector<LabelNames> gold_;
  EvaluateOptions options_;
  bool spans_;  // gold has some
};

}  // namespace regccrf
