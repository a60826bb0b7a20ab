#include "cli/train/penalty_search.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iostream>

#include "tagger/development.h"
#include "train/cross_validation.h"

namespace regccrf::cli {
namespace {

std::string spell(double number) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", number);
  return text;
}

// Without scores where a signal ended it.
Trial by_folds(const Training& training, const TrainOptions& options, int folds, bool speak,
               const Processes& processes) {
  const auto on_fold = [&](int done) {
    if (speak) std::cerr << "l2 " << spell(options.l2) << ": fold " << done << " of " << folds << std::endl;
  };
  const auto predicted = cross_predict(training, options, folds, on_fold, processes);
  const DevelopmentScore score(*training.data, training.labels);
  Trial trial{options.l2, {}, {}, score.name()};
  if (predicted) trial.scores = score.of_folds(*predicted, folds);
  return trial;
}

// With what was reached, where a signal ended it; without scores where that is nothing.
Trial by_development(const Training& training, const TrainOptions& options, bool speak, const Processes& processes) {
  Trial trial{options.l2, {}, train(training, options, {}, processes), training.score_name};
  if (trial.trained->best.development) trial.scores = {*trial.trained->best.development};
  if (speak && !trial.scores.empty()) {
    std::fprintf(stderr, "l2 %s: development %s %.2f at iteration %d of %d\n", spell(options.l2).c_str(),
                 trial.score_name.c_str(), trial.scores[0], trial.trained->best.iteration,
                 trial.trained->last.iteration);
  }
  return trial;
}

bool was_stopped(const Trial& trial) {
  return trial.scores.empty() || (trial.trained && trial.trained->stopped == "asked to");
}

}  // namespace

double Trial::mean() const {
  double sum = 0;
  for (const double score : scores) sum += score;
  return sum / static_cast<double>(scores.size());
}

double Trial::deviation() const {
  if (scores.size() < 2) return 0;
  double sum = 0;
  for (const double score : scores) sum += (score - mean()) * (score - mean());
  return std::sqrt(sum / static_cast<double>(scores.size() - 1));
}

std::vector<Trial> try_penalties(const Training& training, const TrainOptions& given,
                                 const std::vector<double>& penalties, int folds, bool speak,
                                 const Processes& processes) {
  std::vector<Trial> trials;
  TrainOptions options = given;
  for (const double l2 : penalties) {
    options.l2 = l2;
    Trial trial = folds > 0 ? by_folds(training, options, folds, speak, processes)
                            : by_development(training, options, speak, processes);
    const bool stopped = was_stopped(trial);
    if (!trial.scores.empty()) trials.push_back(std::move(trial));
    if (stopped) break;
  }
  return trials;
}

std::size_t best_of(const std::vector<Trial>& trials) {
  const auto worse = [](const Trial& x, const Trial& y) {
    return x.mean() != y.mean() ? x.mean() < y.mean() : x.l2 < y.l2;
  };
  return static_cast<std::size_t>(std::max_element(trials.begin(), trials.end(), worse) - trials.begin());
}

void print_table(const std::vector<Trial>& trials) {
  const bool folds = !trials.empty() && !trials[0].trained;
  const std::size_t best = best_of(trials);
  const std::string name = (folds ? "mean " : "") + trials[0].score_name;
  const int width = std::max(7, static_cast<int>(name.size()));
  std::printf(folds ? "%10s  %*s  %9s\n" : "%10s  %*s\n", "l2", width, name.c_str(), "deviation");
  for (std::size_t i = 0; i < trials.size(); ++i) {
    std::printf("%10s  %*.2f", spell(trials[i].l2).c_str(), width, trials[i].mean());
    if (folds) std::printf("  %9.2f", trials[i].deviation());
    std::printf("%s\n", trials.size() > 1 && i == best ? "  best" : "");
  }
  std::fflush(stdout);
}

nlohmann::ordered_json as_json(const std::vector<Trial>& trials) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Trial& trial : trials) {
    list.push_back({{"l2", trial.l2},
                    {"score", trial.score_name},
                    {"mean", trial.mean()},
                    {"deviation", trial.deviation()},
                    {"scores", trial.scores}});
  }
  return list;
}

}  // namespace regccrf::cli
