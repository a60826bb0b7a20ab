// train(): checks the task, makes the features, runs the optimiser, and puts a model together.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/file.h"
#include "base/numbers.h"
#include "base/spelling.h"
#include "constraint/labels_in_use.h"
#include "regccrf/error.h"
#include "regccrf/trainer.h"
#include "train/adagrad.h"
#include "train/estimate.h"
#include "train/features.h"
#include "train/monitor.h"
#include "train/stages.h"

namespace regccrf {

namespace {

using Json = nlohmann::ordered_json;

[[noreturn]] void fail(const std::string& message) { throw Error("[train] " + message); }

void check_options(const TrainOptions& o, const Processes& processes) {
  if (!(o.l1 >= 0) || !(o.l2 >= 0) || !std::isfinite(o.l1) || !std::isfinite(o.l2)) fail("l1 and l2 must be 0 or more");
  if (o.min_count < 1) fail("min_count is " + std::to_string(o.min_count) + ", expected 1 or more");
  if (!(o.min_frequency >= 0) || !(o.epsilon >= 0)) fail("min_frequency and epsilon must be 0 or more");
  if (o.memories < 1 || o.line_search_trials < 1) fail("memories and line_search_trials must be 1 or more");
  if (o.max_iterations < 0 || o.patience < 0 || o.every < 0)
    fail("max_iterations, patience and every must be 0 or more");
  if (!(o.max_gap > 0) || !std::isfinite(o.max_gap))
    fail("max_gap is " + to_text(o.max_gap) + ", expected a number above 0");
  if (o.period < 1) fail("period is " + std::to_string(o.period) + ", expected 1 or more");
  if (o.resume && o.checkpoint.empty()) fail("resume needs a checkpoint's path");
  if (o.optimizer != Optimizer::adagrad) return;
  if (o.l1 > 0) fail("adagrad has no l1 penalty; lbfgs does");
  if (!(o.rate > 0) || o.batch < 1) fail("rate and batch must be more than 0");
  if (processes.count > 1) fail("adagrad works in one process; several processes are for lbfgs");
}

void check_numbers(const Dataset& data, const Training& training, const char* what) {
  const std::int32_t attributes = training.attributes->size();
  if (data.item.size() != static_cast<std::size_t>(data.positions()) + 1 ||
      data.item.back() != static_cast<std::int64_t>(data.attribute.size()) ||
      (!data.value.empty() && data.value.size() != data.attribute.size())) {
    fail(std::string("the ") + what + "'s arrays do not have matching sizes");
  }
  for (const std::int32_t i : data.attribute) {
    if (i < 0 || i >= attributes) {
      fail(std::string("attribute ") + std::to_string(i) + " of the " + what + " is not in 0 … " +
           std::to_string(attributes - 1));
    }
  }
  for (const float value : data.value) {
    if (!std::isfinite(value)) fail(std::string("a value of the ") + what + " is not finite");
  }
}

void check_gold(const Training& training) {
  const Dataset& data = *training.data;
  const int K = training.labels.size();
  if (data.sequences() == 0) fail("there are no sequences");
  if (data.gold.size() != static_cast<std::size_t>(data.positions())) fail("the data has no labels to learn from");
  if (!data.weight.empty() && data.weight.size() != static_cast<std::size_t>(data.sequences())) {
    fail("the data has " + std::to_string(data.weight.size()) + " sequence weights, expected " +
         std::to_string(data.sequences()));
  }
  for (const double w : data.weight) {
    if (!(w >= 0) || !std::isfinite(w)) fail("a sequence's weight is " + to_text(w) + ", expected 0 or more");
  }
  for (const Label a : data.gold) {
    if (a == kUnknownLabel || (a >= 0 && a < K)) continue;
    fail("label " + std::to_string(a) + " is not in 0 … " + std::to_string(K - 1));
  }
}

// Tokens of a file are counted as its lines are, from 1. Positions in memory are counted from 0.
std::string place_of(const OutsideSequence& outside, const Dataset& data) {
  return data.line.empty() ? " at position " + std::to_string(outside.position)
                           : " at token " + std::to_string(outside.position + 1);
}

// The label with which a sequence leaves the language, and what was possible there.
std::string describe(const OutsideSequence& outside, const Training& training) {
  const Labels& labels = training.labels;
  const std::int64_t begin = training.data->position[outside.sequence];
  std::string possible;
  for (const Label a : outside.possible) possible += (possible.empty() ? "" : ", ") + labels.name(a);
  if (possible.empty()) possible = "nothing";
  const bool ends = outside.position >= training.data->length(outside.sequence);
  const Label label = ends ? kUnknownLabel : training.data->gold[begin + outside.position];
  const std::vector<bool> used = labels_in_use(*training.constraint);
  std::string text = ends ? "it ends too early, after " + std::to_string(outside.position) + " labels"
                          : (label == kUnknownLabel ? "an unknown label" : "label " + labels.name(label)) +
                                place_of(outside, *training.data) + " leaves the language";
  text += (outside.rule.empty() ? "" : " by breaking the rule " + outside.rule) + " (possible there: " + possible + ")";
  if (label == kUnknownLabel || used[label]) return text + ".";
  std::vector<std::string> known;
  for (Label a = 0; a < labels.size(); ++a) {
    if (used[a]) known.push_back(labels.name(a));
  }
  const auto near = nearest(labels.name(label), known);
  return text + "; no sequence of the language has this label" + (near ? ": did you mean " + *near + "?" : ".");
}

void check_constraint(const Training& training) {
  if (training.constrain == Constrain::none) return;
  if (!training.constraint) fail("there is no constraint to train or decode under");
  if (!(training.constraint->labels() == training.labels)) {
    fail("the constraint has " + std::to_string(training.constraint->labels().size()) + " labels and the data " +
         std::to_string(training.labels.size()) + ", or in another order; both must be the same");
  }
  if (training.constrain != Constrain::train) return;
  const std::vector<OutsideSequence> outside = find_outside(*training.constraint, *training.data);
  if (outside.empty()) return;
  fail(std::to_string(outside.size()) + " of " + std::to_string(training.data->sequences()) +
       " sequences are outside the language. The first is " + training.data->origin(outside[0].sequence) + ": " +
       describe(outside[0], training) +
       " Leave such sequences out, or repair them: outside=\"skip\" or \"repair\" (in C++ without() or repair())");
}

Constraint training_constraint(const Training& training) {
  return training.constrain == Constrain::train ? *training.constraint : Constraint::unconstrained(training.labels);
}

// No times, no threads: the same task gives the same bytes.
Json facts_of(const Training& training, const TrainOptions& options, const Features& features, const Monitor& monitor) {
  Json facts = training.facts.empty() ? Json::object() : Json::parse(training.facts);
  const bool lbfgs = options.optimizer == Optimizer::lbfgs;
  const char* const constrain[] = {"train", "decode", "none"};
  const Progress &best = monitor.state.best, &last = monitor.state.last;
  facts["optimizer"] = !lbfgs ? "adagrad" : options.l1 > 0 ? "owlqn" : "lbfgs";
  facts["l1"] = options.l1;
  facts["l2"] = options.l2;
  facts["min_count"] = options.min_count;
  if (options.min_frequency > 0) facts["min_frequency"] = options.min_frequency;
  facts["all_features"] = options.all_features;
  facts["all_transitions"] = options.all_transitions;
  facts["tolerance"] = options.tolerance;
  if (!lbfgs) {
    facts["rate"] = options.rate;
    facts["batch"] = options.batch;
    facts["average"] = options.average;
    facts["seed"] = options.seed;
  }
  if (best.phase == Phase::rules) {
    facts["max_gap"] = monitor.state.max_gap;
    facts["largest_gap"] = best.largest_gap;
    facts["slack"] = best.slack;
    facts["uncertified"] = best.uncertified;
    facts["bounds"] = best.bounds;
  }
  facts["constrain"] = constrain[static_cast<int>(training.constrain)];
  facts["sequences"] = training.data->sequences();
  facts["positions"] = training.data->positions();
  facts["unknown_gold"] = std::count(training.data->gold.begin(), training.data->gold.end(), kUnknownLabel);
  facts["weights"] = features.size();
  facts["transitions"] = features.bigram.size();
  if (features.has_pairs()) facts["pairs"] = features.pairs.label.size();
  facts["objective"] = best.objective;
  facts["gradient_norm"] = best.gradient_norm;
  if (best.development) facts["development"] = *best.development;
  if (best.development && !training.score_name.empty()) facts["development_score"] = training.score_name;
  facts["iteration"] = best.iteration;
  facts["iterations"] = last.iteration;
  facts["stopped"] = monitor.stopped;
  if (monitor.processes().count > 1) facts["processes"] = monitor.processes().count;
  return facts;
}

// An attribute's weights, but for those that came out as nothing.
void keep_weights(const Columns& columns, std::int32_t attribute, std::span<const double> w, std::vector<Label>& label,
                  std::vector<double>& weight) {
  for (std::int64_t f = columns.begin[attribute]; f < columns.begin[attribute + 1]; ++f) {
    if (w[f] == 0) continue;
    label.push_back(columns.label[f]);
    weight.push_back(w[f]);
  }
}

// Attributes that have no weights left are not kept.
Model make_model(const Training& training, const Features& features, std::span<const double> w, const Json& facts) {
  ModelParts parts;
  parts.labels = training.labels;
  parts.extractor = training.extractor;
  parts.begin.push_back(0);
  if (features.has_pairs()) parts.pair_begin.push_back(0);
  for (std::int32_t i = 0; i < features.attributes(); ++i) {
    const std::size_t before = parts.label.size() + parts.pair.size();
    keep_weights(features, i, w, parts.label, parts.weight);
    if (features.has_pairs())
      keep_weights(features.pairs, i, w.subspan(static_cast<std::size_t>(features.first_pair())), parts.pair,
                   parts.pair_weight);
    if (parts.label.size() + parts.pair.size() == before) continue;
    parts.attributes.add(training.attributes->name(i));
    parts.begin.push_back(static_cast<std::int64_t>(parts.label.size()));
    if (features.has_pairs()) parts.pair_begin.push_back(static_cast<std::int64_t>(parts.pair.size()));
  }
  parts.transitions = transitions_of(features, w);
  parts.constraint = training.constraint;
  parts.constrain = training.constrain;
  parts.facts = facts.dump();
  return Model(std::move(parts));
}

std::int64_t begin_from(const Training& training, const Features& features, std::span<double> w) {
  if (!training.initial) return 0;
  const std::int64_t taken = take_over(*training.initial, training, features, w);
  if (taken == 0 && !w.empty())
    fail("the model to begin with has none of this training's weights: its labels or its features are others");
  return taken;
}

void say_estimate(const Training& training, const Features& features, const Constraint& constraint,
                  const TrainOptions& options, const Processes& processes) {
  Estimate estimate = estimate_memory(training, features, constraint, options);
  options.on_estimate(estimate);
  estimate.seconds = estimate_seconds(training, features, constraint, options) / processes.count;
  options.on_estimate(estimate);
}

}  // namespace

Trained train(const Training& training, const TrainOptions& given, const OnProgress& on_progress,
              const Processes& processes) {
  if (!training.data || !training.attributes) fail("no data is given");
  TrainOptions options = given;
  if (options.threads <= 0) options.threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  if (options.every == 0) options.every = options.optimizer == Optimizer::lbfgs ? 50 : 1;
  check_options(options, processes);
  if (!options.checkpoint.empty() && processes.rank == 0) check_writable(options.checkpoint);
  check_numbers(*training.data, training, "data");
  if (!training.weighs.empty() && training.weighs.size() != static_cast<std::size_t>(training.attributes->size()))
    fail("weighs has " + std::to_string(training.weighs.size()) + " entries for " +
         std::to_string(training.attributes->size()) + " attributes");
  if (training.development) {
    check_numbers(*training.development, training, "development data");
    if (!training.score) fail("there is a development set and no score for it");
  } else if (options.patience > 0) {
    fail("patience needs a development set");
  }
  check_gold(training);
  check_constraint(training);

  const Features features =
      make_features(*training.data, training.attributes->size(), training.labels.size(), options, training.weighs);
  Monitor monitor(training, options, features, on_progress, processes);
  monitor.state.w.assign(static_cast<std::size_t>(features.size()), 0);
  const std::int64_t taken_over = begin_from(training, features, monitor.state.w);
  if (training.constrain == Constrain::train && training.constraint->rules() > 0) monitor.state.phase = Phase::base;
  monitor.state.max_gap = options.max_gap;
  if (options.resume) monitor.load();
  const Constraint constraint = inference_constraint(features, training_constraint(training));
  try {
    if (options.on_estimate) say_estimate(training, features, constraint.base(), options, processes);
    if (options.max_iterations > 0 && monitor.state.iteration >= options.max_iterations) {
      monitor.stopped = "max_iterations";
    } else if (options.optimizer == Optimizer::lbfgs) {
      run_lbfgs(training, features, constraint, monitor);
    } else {
      run_adagrad(*training.data, features, constraint, monitor);
    }
  } catch (const Stopped&) {
    monitor.stopped = "asked to";
  }
  const Json facts = facts_of(training, options, features, monitor);
  return {make_model(training, features, monitor.best_weights(), facts), monitor.state.best, monitor.state.last,
          monitor.stopped, taken_over};
}

}  // namespace regccrf
