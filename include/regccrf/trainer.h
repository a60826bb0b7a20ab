// Trainer: fits a Model to a Dataset by penalised maximum likelihood, under a constraint or without.
//
//   objective(w) = Σ_i −log P(gold_i | x_i, L) + l2 · ‖w‖² + l1 · ‖w‖₁
//
// Deterministic for a seed and a number of threads. Interrupted work loses nothing: a checkpoint resumes to the same result.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "regccrf/constraint.h"
#include "regccrf/dataset.h"
#include "regccrf/model.h"

namespace regccrf {

enum class Optimizer { lbfgs, adagrad };  // lbfgs with l1 > 0 is OWL-QN

struct TrainOptions {
  Optimizer optimizer = Optimizer::lbfgs;
  double l1 = 0, l2 = 1;
  int min_count = 1;               // attributes seen less often are left out
  bool all_features = false;       // a weight for every (attribute, label), not only for those seen in gold
  bool all_transitions = false;    // likewise for transitions
  int max_iterations = 0;          // 0: until converged
  double tolerance = 1e-5;         // stop when the objective's relative improvement over `period` iterations is below it
  int period = 10;
  int patience = 0;                // stop when the development score has not risen for this many iterations; 0: never
  double rate = 0.1;               // adagrad
  int batch = 8;                   // adagrad: sequences a step
  std::uint64_t seed = 1;
  int threads = 0;                 // 0: as many as the machine has
  std::string checkpoint;          // path; empty: none
};

struct Progress {
  int iteration = 0;
  double objective = 0, gradient_norm = 0;
  double seconds = 0;                      // since the start
  std::optional<double> development;       // the development score, where there is a development set
  bool best = false;                       // the best so far
};

// Called after every iteration with the weights so far, as a model; return false to stop (the best so far is returned).
using OnProgress = std::function<bool(const Progress&, const std::function<Model()>& model_so_far)>;

// Scores a model on the development set; larger is better.
using Development = std::function<double(const Model&)>;

}  // namespace regccrf
