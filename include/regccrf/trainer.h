// Trainer: fits a Model to a Dataset by penalised maximum likelihood, under a constraint or without.
//
//   objective(w) = Σ_i −log P(y_i | x_i, L) + l2 · ‖w‖² + l1 · ‖w‖₁          (y_i: the correct labels)
//
//   Labels labels({"O", "B-PER", "I-PER"});
//   Names attributes, label_names;
//   for (const std::string& name : labels.names()) label_names.add(name);  // the same numbers as in `labels`
//   Extractor words = Extractor::words({});
//   Dataset data = read_dataset({"train.conll"}, Format::columns, words, attributes, label_names);
//   Training task{.labels = labels, .attributes = &attributes, .data = &data};
//   task.constraint = compile(Language::parse("(O | B-PER I-PER*)*", labels));
//   task.constrain = Constrain::train;
//   task.extractor = words.text();                                         // so that a tagger does the same
//   Model model = train(task, {.l2 = 1}).model;
//
// The result depends on the data, the options and the seed, not on the number of threads. Training that is interrupted
// and resumed from a checkpoint gives the same result.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "regccrf/constraint.h"
#include "regccrf/dataset.h"
#include "regccrf/model.h"

namespace regccrf {

// What is learnt. Everything pointed to must outlive the call.
struct Training {
  Labels labels = {};                         // the names of the data's label numbers
  const Names* attributes = nullptr;          // the names of the data's attribute numbers
  std::vector<Weighs> weighs = {};            // [attributes], or empty: labels (Extractor::weighs)
  const Dataset* data = nullptr;              // with gold labels; kUnknownLabel: not known
  std::optional<Constraint> constraint = {};  // over the same labels
  Constrain constrain = Constrain::none;
  std::string extractor = {};      // goes into the model: see extract.h
  std::string facts = {};          // a JSON object that goes into the model's facts, or empty
  const Model* initial = nullptr;  // start with its weights, matched by name; the others start at 0

  // Development set: decoded and scored after every iteration; larger is better. Only `score` uses its gold labels, so
  // their numbers may exceed those of `labels`.
  const Dataset* development = nullptr;
  std::function<double(std::span<const Label> predicted)> score = {};  // predicted: [positions]
  std::string score_name = {};                                         // its name in the model's facts
};

enum class Optimizer { lbfgs, adagrad };                                    // lbfgs with l1 > 0 is OWL-QN
enum class LineSearch { more_thuente, backtracking, strong_backtracking };  // libLBFGS's, by Wolfe's conditions

// An estimate of what training takes.
struct Estimate {
  double weights_bytes = 0;       // memory beyond the data's own: what grows with the weights and the data, …
  double labels_bytes = 0;        // … and what grows with labels², or the constraint's products, and threads
  std::optional<double> seconds;  // of an iteration, without the development set; 0: too little to measure

  double bytes() const { return weights_bytes + labels_bytes; }
};

struct TrainOptions {
  Optimizer optimizer = Optimizer::lbfgs;
  double l1 = 0, l2 = 1;
  int min_count = 1;             // attributes that occur less often are left out
  double min_frequency = 0;      // so are weights whose values add up to less; CRFsuite's feature.minfreq
  bool all_features = false;     // a weight for every (attribute, label), not only for those in the data
  bool all_transitions = false;  // likewise for transitions
  bool transitions = true;       // false: no transition weights
  double max_gap = 1e-3;         // of a sequence's loss, if the constraint keeps rules: see inference.h
  int max_iterations = 0;        // 0: until converged. Iterations of adagrad are passes over the data
  double tolerance = 1e-5;       // stop when the objective's relative improvement over `period` iterations is below it
  int period = 10;
  int patience = 0;       // stop when the development score has not risen for this many iterations; 0: never
  int memories = 6;       // lbfgs: how many steps it remembers
  double epsilon = 1e-5;  // lbfgs: converged when the gradient's norm is below epsilon · max(1, ‖w‖)
  // lbfgs. OWL-QN always uses backtracking.
  LineSearch line_search = LineSearch::more_thuente;
  int line_search_trials = 20;  // lbfgs: at most
  double rate = 0.1;            // adagrad: the step's size
  int batch = 8;                // adagrad: sequences a step
  bool average = true;          // adagrad: take the mean of the weights from the second pass on, not the last
  std::uint64_t seed = 1;       // adagrad: the order of the sequences
  int threads = 0;              // 0: as many as the machine has
  std::string checkpoint = {};  // path; empty: none
  int every = 0;                // iterations from one checkpoint to the next; 0: 50 for lbfgs, 1 for adagrad
  bool resume = false;          // continue from the checkpoint, if there is one
  // Called many times within an iteration, by the thread that called train(). True ends training at once, with the
  // result of the last complete iteration.
  std::function<bool()> stop = {};
  // Called twice before the first iteration: with the memory, before it is allocated; then with the time as well, which
  // is measured on a few sequences.
  std::function<void(const Estimate& estimate)> on_estimate = {};
};

// If the constraint keeps rules beside its base (constraint.h), training starts under the base alone. Its loss is an
// upper bound. Afterwards few sequences are likely, and this makes sums under the rules fast.
enum class Phase { whole, base, rules };  // whole: no rules are kept

struct Progress {
  int iteration = 0;
  double objective = 0, gradient_norm = 0;
  double seconds = 0;                 // since the start
  std::optional<double> development;  // the development score, if there is a development set
  bool best = false;                  // the best so far
  Phase phase = Phase::whole;
  // Under rules: the largest gap of a sequence's loss; by how much the objective may be off for the sake of gaps; how
  // many sequences have a gap above the stage's, because the limits of work allow no better; and how many of these
  // count with the base's loss, an upper bound.
  double largest_gap = 0, slack = 0;
  std::int64_t uncertified = 0, bounds = 0;
};

// Called after every iteration; false stops. (TrainOptions::stop is called within iterations.)
using OnProgress = std::function<bool(const Progress& progress)>;

// Several processes at one task, each with its own part of the sequences and all of the weights.
struct Processes {
  int rank = 0, count = 1;
  std::function<void(std::span<double>)> add_up = {};  // every process's numbers become the sum of all processes'
};

struct Trained {
  Model model;          // the last iteration with the best development score, or the last of all without such a set
  Progress best, last;  // the iteration that the model is from, and the last one
  std::string stopped;  // why it ended: "converged", "max_iterations", "patience", "asked to"
  std::int64_t taken_over = 0;  // how many weights started with those of Training::initial
};

// Error if the data has no gold labels, if these are outside the constraint's language (with Constrain::train), if
// numbers and names do not agree, or if a checkpoint belongs to other data or options.
Trained train(const Training& training, const TrainOptions& options = {}, const OnProgress& on_progress = {},
              const Processes& processes = {});

// A sequence whose gold labels are not in a language, or cannot be completed in it.
struct OutsideSequence {
  std::int64_t sequence;
  std::int64_t position;        // where it leaves the language; its length if it ends too early
  std::vector<Label> possible;  // there
  std::string rule = {};        // the rule that it breaks there, if the constraint keeps rules
};
std::vector<OutsideSequence> find_outside(const Constraint& constraint, const Dataset& data);

// The data without some sequences (their numbers, in ascending order).
Dataset without(const Dataset& data, std::span<const std::int64_t> sequences);

// Makes the gold labels of these sequences legal, by changing as few of them as possible. Returns how many were
// changed. Error if the language has no sequence of that length.
std::int64_t repair(const Constraint& constraint, Dataset& data, std::span<const std::int64_t> sequences);

}  // namespace regccrf
