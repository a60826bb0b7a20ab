// Cross-validation, and the choice of a penalty: one training for each value of l2, or several where there is no
// development set, and a table of what came of them.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "regccrf/trainer.h"

namespace regccrf::cli {

struct Trial {
  double l2 = 1;
  std::vector<double> scores;      // one a fold, or the development set's
  std::optional<Trained> trained;  // where there is a development set
  std::string score_name = {};

  double mean() const;
  double deviation() const;  // of the folds' scores; 0 where there is one
};

// One trial for each penalty; fewer where a signal ended it. With folds = 0 they are judged by the development set.
std::vector<Trial> try_penalties(const Training& training, const TrainOptions& options,
                                 const std::vector<double>& penalties, int folds, bool speak,
                                 const Processes& processes);

// The best score; of equal ones the largest penalty. There is one at least.
std::size_t best_of(const std::vector<Trial>& trials);

void print_table(const std::vector<Trial>& trials);
nlohmann::ordered_json as_json(const std::vector<Trial>& trials);

}  // namespace regccrf::cli
