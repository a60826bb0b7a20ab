// Course: where training stands. The state that an optimiser leaves between two iterations, what is judged after each
// of them (convergence, the development score, whether to go on), and the checkpoint that holds all of it.
#pragma once

#include <chrono>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "regccrf/trainer.h"
#include "train/features.h"

namespace regccrf {

struct CourseState {
  int iteration = 0;               // done
  double seconds = 0;              // spent before this process began
  std::vector<double> w;           // [features]
  std::vector<double> objectives;  // the last of them, at most period + 1
  std::vector<double> best_w;      // [features], or empty: w is the best
  Progress best, last;
  int since_best = 0;
  // adagrad
  std::vector<double> squares;  // [features] sums of squared gradients
  std::vector<double> drift;    // [features] what turns w into the mean weights: see adagrad.cc
  double steps = 0;             // that the mean is over
};

class Course {
 public:
  Course(const Training& training, const TrainOptions& options, const Features& features, const OnProgress& on_progress,
         const Processes& processes);

  CourseState state;
  std::string stopped;  // why, when it has

  // Takes note of an iteration; false: stop. `w`: what a model would have now.
  bool after(double objective, double gradient_norm, std::span<const double> w);

  // Writes a checkpoint, reads one if there is one (Error if it belongs to other data or options).
  void save() const;
  bool load();

  const TrainOptions& options() const { return options_; }
  const Processes& processes() const { return processes_; }
  const std::vector<double>& best_weights() const { return state.best_w.empty() ? state.w : state.best_w; }

 private:
  bool develop(std::span<const double> w, Progress& progress);
  bool converged() const;
  std::map<std::string, std::string> fingerprint() const;

  const Training& training_;
  const TrainOptions& options_;
  const Features& features_;
  const OnProgress& on_progress_;
  const Processes& processes_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// What the model decodes under: the constraint, or none.
Constraint decoding_constraint(const Training& training);

}  // namespace regccrf
