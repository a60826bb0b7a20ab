// The arguments of `regccrf train`.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "cli/constraint_options.h"
#include "regccrf/trainer.h"

namespace regccrf::cli {

struct TrainArguments {
  std::vector<std::string> data;
  std::string model, development, continue_from;
  ConstraintOptions constraint;
  std::string constrain;  // empty: train where there is a constraint
  std::string outside = "error";
  // input
  std::string format = "auto", pattern_file, unknown, embeddings;
  std::vector<std::string> lists;
  std::vector<int> columns;
  int word_column = 1, label_column = -1;
  // training
  TrainOptions train;
  std::vector<double> penalties = {1};
  int folds = 0;
  std::string optimizer = "lbfgs";
  bool no_average = false, quiet = false, json = false;
};

// Adds them to the command, in the order in which --help shows them.
void add_arguments(CLI::App& command, TrainArguments& arguments);

// Errors that can be told before anything is read.
void check_arguments(const TrainArguments& arguments);

// Somebody who gives a wrong path should hear of it before training, not after.
void check_outputs(const TrainArguments& arguments);

Constrain constrain_of(const TrainArguments& arguments);

}  // namespace regccrf::cli
