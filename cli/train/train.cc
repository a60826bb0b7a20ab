// regccrf train: labelled data and a language in, a model out.
#include <algorithm>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/processes.h"
#include "cli/train/arguments.h"
#include "cli/train/estimate_note.h"
#include "cli/train/input.h"
#include "cli/train/outside.h"
#include "cli/train/penalty_search.h"
#include "cli/train/progress_line.h"
#include "cli/train/report.h"
#include "cli/train/text.h"
#include "regccrf/error.h"
#include "regccrf/trainer.h"
#include "tagger/development.h"

namespace regccrf::cli {
namespace {

using Json = nlohmann::ordered_json;

std::vector<std::string> names_of(const Names& names) {
  std::vector<std::string> all;
  for (std::int32_t i = 0; i < names.size(); ++i) all.emplace_back(names.name(i));
  return all;
}

// Gold in the model's order of labels.
void renumber(Dataset& data, const Names& names, const Labels& labels) {
  for (Label& gold : data.gold) {
    if (gold != kUnknownLabel) gold = labels.id(names.name(gold));
  }
}

// The labels of the data, in the language's order where there is one; gold is numbered accordingly.
void settle_labels(const TrainArguments& arguments, Input& input, Training& training) {
  training.labels = Labels(names_of(input.labels));
  if (training.constrain == Constrain::none) return;
  training.constraint = arguments.constraint.constraint(training.labels);
  training.labels = training.constraint->labels();
  renumber(input.data, input.labels, training.labels);
}

// Development gold that no model can have right, because training does not know its label.
void say_strange_gold(const Dataset& development, const Labels& labels, const Labels& known) {
  std::vector<std::string> strange(labels.names().begin() + known.size(), labels.names().end());
  if (strange.empty()) return;
  const auto positions =
      std::count_if(development.gold.begin(), development.gold.end(), [&](Label a) { return a >= known.size(); });
  std::cerr << "the development set has " << (strange.size() == 1 ? "a label" : "labels")
            << " that training does not have, and counts as wrong there (" << plural(positions, "position")
            << "): " << join(strange) << "\n";
}

void settle_development(bool speak, Input& input, Training& training) {
  const Labels labels = with_others(training.labels, input.development_labels);
  renumber(*input.development, input.development_labels, labels);
  if (speak) say_strange_gold(*input.development, labels, training.labels);
  training.development = &*input.development;
  const DevelopmentScore score(*input.development, labels);
  training.score_name = score.name();
  training.score = score;
}

// The task for the trainer; it points into `input`.
Training make_training(const TrainArguments& arguments, bool speak, Input& input) {
  Training training;
  training.constrain = constrain_of(arguments);
  settle_labels(arguments, input, training);
  Json facts = {{"data", arguments.data}};
  if (input.development) facts["development_data"] = arguments.development;
  if (training.constrain == Constrain::train) {
    if (arguments.outside == "error") check_labels(*training.constraint, names_of(input.labels));
    if (speak) say_unused_labels(*training.constraint, names_of(input.labels));
    settle_outside(arguments, *training.constraint, speak, input.data, facts);
  }
  training.attributes = &input.attributes;
  training.weighs = input.extractor->weighs(input.attributes);
  training.data = &input.data;
  training.extractor = input.extractor->text();
  if (input.initial) facts["continued_from"] = arguments.continue_from;
  training.facts = facts.dump();
  if (input.initial) training.initial = &*input.initial;
  if (input.development) settle_development(speak, input, training);
  return training;
}

Trained train_with_progress(const Training& training, const TrainOptions& options, bool speak,
                            const Processes& processes) {
  ProgressLine line(options, training.score_name, !speak);
  const auto show = [&](const Progress& progress) {
    line.show(progress);
    return !Interrupt::asked();
  };
  Trained trained = train(training, options, show, processes);
  line.finish();
  return trained;
}

// In a group of processes another one may have had the signal.
int interrupted_status() { return Interrupt::asked() ? Interrupt::status() : 130; }

// Cut off within the first iteration: weights that are all 0 shall not replace what may be at the model's place.
int end_without_model(const TrainArguments& arguments, bool speak) {
  if (speak) std::cerr << "no iteration was complete: " << arguments.model << " is not written\n";
  return interrupted_status();
}

int finish(const TrainArguments& arguments, const Trained& trained, const std::vector<Trial>& trials, bool first) {
  const bool asked = trained.stopped == "asked to", speak = first && !arguments.quiet;
  if (asked && trained.last.iteration == 0) return end_without_model(arguments, speak);
  if (first) trained.model.save(arguments.model);
  if (first) report(arguments, trained, trials);
  if (!asked && !Interrupt::asked()) return 0;
  if (speak && !arguments.train.checkpoint.empty()) say_where_it_goes_on(arguments.train, true);
  return interrupted_status();
}

int train_command(TrainArguments& arguments) {
  const ProcessGroup group;  // before anything is printed: only the first process speaks and writes
  const bool first = group.processes().rank == 0, speak = first && !arguments.quiet;
  arguments.train.optimizer = arguments.optimizer == "lbfgs" ? Optimizer::lbfgs : Optimizer::adagrad;
  arguments.train.average = !arguments.no_average;
  arguments.train.stop = Interrupt::asked;
  arguments.train.l2 = arguments.penalties[0];
  check_arguments(arguments);
  if (first) check_outputs(arguments);

  Input input = read_all(arguments);
  const Training training = make_training(arguments, speak, input);
  arguments.train.transitions = input.extractor->transitions();
  const Interrupt interrupt;  // held while the model is saved, so that Ctrl-C does not lose it
  if (speak) say_task(input, training);
  if (speak && arguments.train.resume) say_where_it_goes_on(arguments.train, false);
  if (speak) {
    // Where there are several trainings, the first one says what each takes: memory, then time.
    arguments.train.on_estimate = [&training, &arguments, said = 0](const Estimate& estimate) mutable {
      if (said++ < 2) note_estimate(estimate, training, arguments.train);
    };
  }
  std::vector<Trial> trials;
  if (arguments.folds > 0 || arguments.penalties.size() > 1) {
    trials = try_penalties(training, arguments.train, arguments.penalties, arguments.folds, speak, group.processes());
    if (first) say_trials(arguments, trials);
    if (trials.empty() || (arguments.folds > 0 && trials.size() < arguments.penalties.size()))
      return interrupted_status();
    if (arguments.model.empty()) return 0;
    arguments.train.l2 = trials[best_of(trials)].l2;
  }
  const Trained trained = arguments.folds == 0 && !trials.empty()
                              ? std::move(*trials[best_of(trials)].trained)
                              : train_with_progress(training, arguments.train, speak, group.processes());
  return finish(arguments, trained, trials, first);
}

}  // namespace

Run add_train(CLI::App& app) {
  CLI::App* command = app.add_subcommand("train", "Train a tagger whose output obeys a language.");
  auto arguments = std::make_shared<TrainArguments>();
  add_arguments(*command, *arguments);
  return [arguments] { return train_command(*arguments); };
}

}  // namespace regccrf::cli
