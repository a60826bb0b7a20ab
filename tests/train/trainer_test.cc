// The trainer: its objective against enumeration, its gradient against differences, and what a user relies on: the same
// result for any number of threads or processes, and after an interruption.
#include "regccrf/trainer.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <barrier>
#include <cmath>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <thread>

#include "base/file.h"
#include "regccrf/error.h"
#include "regccrf/extract.h"
#include "regccrf/language.h"
#include "regccrf/tagger.h"
#include "train/features.h"
#include "train/objective.h"

namespace regccrf {
namespace {

using Random = std::mt19937_64;

int below(Random& random, int n) { return static_cast<int>(random() % static_cast<std::uint64_t>(n)); }
double between(Random& random, double low, double high) {
  return low + (high - low) * static_cast<double>(random() >> 11) * 0x1p-53;
}

struct Shape {
  int sequences = 6, longest = 4, K = 3, attributes = 8, items = 3;
  bool values = false, weights = false, unknown = false;
};

Labels labels_of(int K) {
  std::vector<std::string> names;
  for (int a = 0; a < K; ++a) names.push_back(std::string(1, static_cast<char>('A' + a)));
  return Labels(names);
}

Names names_of(int attributes) {
  Names names;
  for (int i = 0; i < attributes; ++i) names.add("x" + std::to_string(i));
  return names;
}

// Gold follows from the attributes more often than not, so that there is something to learn.
Dataset random_data(Random& random, const Shape& shape) {
  Dataset data;
  for (int i = 0; i < shape.sequences; ++i) {
    const int T = 1 + below(random, shape.longest);
    for (int t = 0; t < T; ++t) {
      const int gold = below(random, shape.K);
      for (int k = 0, n = below(random, shape.items + 1); k < n; ++k) {
        const bool telling = below(random, 3) > 0;
        data.attribute.push_back(telling ? (gold + shape.K * below(random, 2)) % shape.attributes
                                         : below(random, shape.attributes));
        if (shape.values) data.value.push_back(static_cast<float>(between(random, -2, 2)));
      }
      data.item.push_back(static_cast<std::int64_t>(data.attribute.size()));
      data.gold.push_back(shape.unknown && below(random, 4) == 0 ? kUnknownLabel : gold);
    }
    data.position.push_back(static_cast<std::int64_t>(data.gold.size()));
    if (shape.weights) data.weight.push_back(between(random, 0, 3));
  }
  return data;
}

// No B after A, and B at most twice.
Constraint some_constraint(int K) { return compile(Language::parse("!(.* A B .*) & at_most(2, B)", labels_of(K))); }

void make_legal(const Constraint& constraint, Dataset& data) {
  std::vector<std::int64_t> which;
  for (const OutsideSequence& outside : find_outside(constraint, data)) which.push_back(outside.sequence);
  repair(constraint, data, which);
}

std::vector<double> random_weights(Random& random, std::int64_t size) {
  std::vector<double> w(static_cast<std::size_t>(size));
  for (double& x : w) x = between(random, -1, 1);
  return w;
}

// Some attributes weigh pairs of labels, some both.
std::vector<Weighs> random_kinds(Random& random, int attributes) {
  std::vector<Weighs> kinds;
  for (int i = 0; i < attributes; ++i) kinds.push_back(static_cast<Weighs>(below(random, 3)));
  return kinds;
}

// Every label sequence of a length, for `body`.
template <class Body>
void each_sequence(int K, std::int64_t T, const Body& body) {
  std::vector<Label> y(static_cast<std::size_t>(T), 0);
  for (;;) {
    body(y);
    std::size_t t = 0;
    while (t < y.size() && ++y[t] == K) y[t++] = 0;
    if (t == y.size()) return;
  }
}

double score_of(const Features& features, const std::vector<double>& w, const Dataset& data, std::int64_t begin,
                const std::vector<Label>& y) {
  double score = 0;
  for (std::size_t t = 0; t < y.size(); ++t) {
    const auto at = static_cast<std::size_t>(begin) + t;
    for (std::int64_t k = data.item[at]; k < data.item[at + 1]; ++k) {
      const std::int32_t i = data.attribute[k];
      const double value = data.value.empty() ? 1.0 : static_cast<double>(data.value[k]);
      for (std::int64_t f = features.begin[i]; f < features.begin[i + 1]; ++f) {
        if (features.label[f] == y[t]) score += w[f] * value;
      }
      for (std::int64_t f = 0; features.has_pairs() && t > 0 && f < features.pairs.begin.back(); ++f) {
        const bool of_i = f >= features.pairs.begin[i] && f < features.pairs.begin[i + 1];
        const std::int32_t from = features.pairs.label[f] / features.K, to = features.pairs.label[f] % features.K;
        if (of_i && from == y[t - 1] && to == y[t])
          score += w[features.label.size() + features.bigram.size() + f] * value;
      }
    }
    for (std::size_t b = 0; t > 0 && b < features.bigram.size(); ++b) {
      if (features.bigram[b] == y[t - 1] * features.K + y[t]) score += w[features.label.size() + b];
    }
  }
  return score;
}

double enumerated(const Features& features, const std::vector<double>& w, const Dataset& data,
                  const Constraint& constraint) {
  double sum = 0;
  for (std::int64_t i = 0; i < data.sequences(); ++i) {
    long double all = 0, consistent = 0;
    each_sequence(features.K, data.length(i), [&](const std::vector<Label>& y) {
      if (!constraint.accepts(y)) return;
      const long double p = std::exp(static_cast<long double>(score_of(features, w, data, data.position[i], y)));
      all += p;
      bool agrees = true;
      for (std::size_t t = 0; t < y.size(); ++t) {
        const Label gold = data.gold[static_cast<std::size_t>(data.position[i]) + t];
        agrees = agrees && (gold == kUnknownLabel || gold == y[t]);
      }
      if (agrees) consistent += p;
    });
    sum += (data.weight.empty() ? 1 : data.weight[i]) * static_cast<double>(std::log(all / consistent));
  }
  return sum;
}

class ObjectiveProperty : public testing::TestWithParam<int> {};

TEST_P(ObjectiveProperty, IsTheEnumeratedLossWithItsGradient) {
  Random random(static_cast<std::uint64_t>(GetParam()));
  Shape shape;
  shape.K = 2 + below(random, 3);
  shape.values = below(random, 2) == 0;
  shape.weights = below(random, 2) == 0;
  shape.unknown = below(random, 2) == 0;
  Dataset data = random_data(random, shape);
  const bool constrained = below(random, 2) == 0;
  const Constraint constraint = constrained ? some_constraint(shape.K) : Constraint::unconstrained(labels_of(shape.K));
  if (constrained) make_legal(constraint, data);
  TrainOptions options;
  options.all_features = below(random, 2) == 0;
  options.all_transitions = below(random, 2) == 0;
  options.min_count = 1 + below(random, 2);
  std::vector<Weighs> kinds;
  if (GetParam() % 2 == 0) kinds = random_kinds(random, shape.attributes);
  const Features features = make_features(data, shape.attributes, shape.K, options, kinds);
  const std::vector<double> w = random_weights(random, features.size());
  std::vector<double> gradient(w.size());
  const Constraint inference = inference_constraint(features, constraint);
  Objective objective(data, features, inference, 0, data.sequences(), 1);
  const double value = objective(w, gradient);
  EXPECT_NEAR(value, enumerated(features, w, data, constraint), 1e-9 * std::max(1.0, value));

  std::vector<double> ignored(w.size());
  for (std::size_t f = 0; f < w.size(); ++f) {
    constexpr double step = 1e-5;
    std::vector<double> more = w, less = w;
    more[f] += step;
    less[f] -= step;
    const double slope = (objective(more, ignored) - objective(less, ignored)) / (2 * step);
    EXPECT_NEAR(gradient[f], slope, 1e-6) << "weight " << f;
  }
}
INSTANTIATE_TEST_SUITE_P(Random, ObjectiveProperty, testing::Range(0, 120));

TEST(Objective, IsTheSameToTheLastBitForAnyNumberOfThreads) {
  Random random(5);
  Shape shape{400, 30, 7, 300, 12};
  shape.unknown = true;
  shape.values = true;
  const Dataset data = random_data(random, shape);
  for (const std::vector<Weighs>& kinds : {std::vector<Weighs>(), random_kinds(random, shape.attributes)}) {
    const Features features = make_features(data, shape.attributes, shape.K, {}, kinds);
    const std::vector<double> w = random_weights(random, features.size());
    const Constraint constraint = inference_constraint(features, Constraint::unconstrained(labels_of(shape.K)));
    std::vector<double> one(w.size()), several(w.size());
    Objective alone(data, features, constraint, 0, data.sequences(), 1);
    const double value = alone(w, one);
    for (const int threads : {2, 3, 5}) {
      Objective together(data, features, constraint, 0, data.sequences(), threads);
      EXPECT_EQ(together(w, several), value) << threads << " threads";
      EXPECT_EQ(several, one) << threads << " threads";
    }
  }
}

TEST(Objective, OfPartsAddsUp) {
  Random random(6);
  const Shape shape{50, 10, 4, 40, 5};
  const Dataset data = random_data(random, shape);
  const Features features = make_features(data, shape.attributes, shape.K, {});
  const std::vector<double> w = random_weights(random, features.size());
  const Constraint constraint = Constraint::unconstrained(labels_of(shape.K));
  std::vector<double> whole(w.size()), first(w.size()), second(w.size());
  const double value = Objective(data, features, constraint, 0, 50, 1)(w, whole);
  const double parts = Objective(data, features, constraint, 0, 20, 1)(w, first) +
                       Objective(data, features, constraint, 20, 50, 1)(w, second);
  EXPECT_NEAR(parts, value, 1e-9 * value);
  for (std::size_t f = 0; f < w.size(); ++f) EXPECT_NEAR(first[f] + second[f], whole[f], 1e-9);
}

// --- train() --------------------------------------------------------------------------------------------------------

struct Task {
  explicit Task(std::uint64_t seed, Shape s = {60, 12, 3, 20, 4}, bool pairs = false)
      : shape(s), names(names_of(s.attributes)) {
    Random random(seed);
    data = random_data(random, shape);
    training.labels = labels_of(shape.K);
    training.attributes = &names;
    training.data = &data;
    if (pairs) training.weighs = random_kinds(random, shape.attributes);
  }
  Shape shape;
  Names names;
  Dataset data;
  Training training;
};

std::vector<double> weights_of(const Model& model) {
  std::vector<double> all(model.weight().begin(), model.weight().end());
  all.insert(all.end(), model.transitions().begin(), model.transitions().end());
  all.insert(all.end(), model.pair_weight().begin(), model.pair_weight().end());
  return all;
}

// A folder of this process alone, so that two runs at a time do not write the same files.
struct Folder {
  std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("regccrf_trainer_test." + std::to_string(::getpid()));
  Folder() { std::filesystem::create_directory(path); }
  ~Folder() { std::filesystem::remove_all(path); }
};

std::string temporary(const std::string& name) {
  static const Folder folder;
  const auto path = folder.path / name;
  std::filesystem::remove(path);
  return path.string();
}

TEST(Train, ReachesAPointWithoutSlope) {
  Task task(1);
  TrainOptions options;
  options.tolerance = 0;
  options.max_iterations = 500;
  const Trained trained = train(task.training, options);
  EXPECT_LT(trained.last.gradient_norm, 1e-3);
  EXPECT_EQ(trained.best.iteration, trained.last.iteration);
}

TEST(Train, LearnsUnderTheConstraint) {
  Task task(2);
  const Constraint constraint = some_constraint(3);
  make_legal(constraint, task.data);
  task.training.constraint = constraint;
  task.training.constrain = Constrain::train;
  const double constrained = train(task.training).best.objective;
  task.training.constrain = Constrain::decode;
  const Trained plain = train(task.training);
  EXPECT_LT(constrained, plain.best.objective);  // the mass is on fewer sequences
  EXPECT_TRUE(plain.model.constraint().has_value());
}

// As some_constraint(), with its rules kept beside a base.
Constraint kept_rules(int K) {
  const Constraint constraint =
      compile(Language::parse("!(.* A B .*) & at_most(2, B) & at_most(3, C)", labels_of(K)), {}, Rules::all);
  EXPECT_GT(constraint.rules(), 0);
  return constraint;
}
Constraint multiplied_rules(int K) {
  return compile(Language::parse("!(.* A B .*) & at_most(2, B) & at_most(3, C)", labels_of(K)), {}, Rules::none);
}

void put_under_rules(Task& task) {
  task.training.constraint = kept_rules(3);
  make_legal(*task.training.constraint, task.data);
  task.training.constrain = Constrain::train;
}

// A sequence that counts three times may be off three times.
TEST(Objective, UnderRulesIsAsUncertainAsItsSequencesTogether) {
  Task task(24);
  put_under_rules(task);
  const Features features = make_features(task.data, task.shape.attributes, 3, {});
  Random random(7);
  const std::vector<double> w = random_weights(random, features.size());
  std::vector<double> gradient(w.size());
  const auto certainty = [&](double weight) {
    task.data.weight.assign(static_cast<std::size_t>(task.data.sequences()), weight);
    Objective objective(task.data, features, *task.training.constraint, 0, task.data.sequences(), 1);
    objective.under(*task.training.constraint, 1e-2);
    objective(w, gradient);
    return objective.certainty();
  };
  const Certainty once = certainty(1), thrice = certainty(3);
  EXPECT_GT(once.slack, 0);
  EXPECT_NEAR(thrice.slack, 3 * once.slack, 1e-12);
  EXPECT_EQ(thrice.largest_gap, once.largest_gap);
}

// A gap of 1 is the most that a sequence may have; with less work than that takes its loss is the base's.
TEST(GoldLoss, TakesTheBaseBeyondAGapOfOne) {
  const Constraint kept = compile(
      Language::parse(".* & at_most(1, A) & at_most(2, B) & once_contiguous(C) & requires(D, A)", labels_of(6)), {},
      Rules::all);
  Random random(25);
  int large = 0, bounds = 0;
  for (int i = 0; i < 200; ++i) {
    const int T = 20;
    GoldSequences sequences;
    sequences.first = {0};
    sequences.length = {T};
    sequences.known = 1;
    sequences.gold.assign(T, 5);
    std::vector<double> h = random_weights(random, std::int64_t{T} * 6);
    for (double& x : h) x *= 5;
    std::vector<double> dh(h.size()), more(h.size());
    RuleLosses rules{.max_gap = between(random, 1e-3, 9e-3), .cells_a_position = 3 + below(random, 60)};
    Workspace workspace;
    const double value = gold_loss(kept, sequences, h, {}, dh, {}, 1, workspace, &rules);
    EXPECT_LE(rules.certainty.largest_gap, 1);
    EXPECT_TRUE(rules.allowed[0] <= 1 || std::isinf(rules.allowed[0])) << rules.allowed[0];
    // An optimiser sees one function.
    EXPECT_EQ(gold_loss(kept, sequences, h, {}, more, {}, 1, workspace, &rules), value);
    EXPECT_EQ(more, dh);
    EXPECT_EQ(rules.certainty.bounds, std::isinf(rules.allowed[0]));
    EXPECT_EQ(rules.certainty.uncertified, rules.allowed[0] > rules.max_gap);
    large += rules.allowed[0] > 0.1 && rules.allowed[0] <= 1;
    bounds += std::isinf(rules.allowed[0]);
  }
  EXPECT_GT(large, 10);
  EXPECT_GT(bounds, 10);
}

class UnderRules : public testing::TestWithParam<bool> {};

TEST_P(UnderRules, ReachesTheOptimumOfTheLanguageMultipliedOut) {
  Task task(21, {60, 8, 3, 20, 4, false, true, GetParam()});
  put_under_rules(task);
  TrainOptions options;
  options.max_gap = 1e-5;
  options.tolerance = 1e-8;
  std::vector<Phase> phases;
  const Trained kept = train(task.training, options, [&](const Progress& progress) {
    if (phases.empty() || phases.back() != progress.phase) phases.push_back(progress.phase);
    EXPECT_EQ(progress.uncertified, 0);
    return true;
  });
  EXPECT_EQ(phases, (std::vector{Phase::base, Phase::rules}));
  EXPECT_LE(kept.last.largest_gap, 2.1e-5);  // of two sums, where labels are unknown
  task.training.constraint = multiplied_rules(3);
  const Trained multiplied = train(task.training, options);
  EXPECT_NEAR(kept.last.objective, multiplied.last.objective, kept.last.slack + 1e-4);
  const std::vector<double> w = weights_of(kept.model), v = weights_of(multiplied.model);
  ASSERT_EQ(w.size(), v.size());
  for (std::size_t f = 0; f < w.size(); ++f) EXPECT_NEAR(w[f], v[f], 0.02);
}
INSTANTIATE_TEST_SUITE_P(Gold, UnderRules, testing::Bool());

// However few iterations there are, the last ones are under the gap that the caller wants.
TEST(Train, UnderRulesComesToTheWantedGap) {
  Task task(23);
  put_under_rules(task);
  for (const double max_gap : {0.5, 0.01, 1e-3, 1e-6}) {
    for (int iterations = 2; iterations < 12; ++iterations) {
      TrainOptions options;
      options.max_iterations = iterations;
      options.tolerance = 0;
      options.max_gap = max_gap;
      const Trained trained = train(task.training, options);
      const std::string facts = trained.model.facts();
      EXPECT_EQ(trained.last.iteration, iterations);
      EXPECT_EQ(trained.last.phase, Phase::rules);
      EXPECT_LE(trained.last.largest_gap, max_gap) << iterations;
      EXPECT_LE(nlohmann::json::parse(facts).at("max_gap"), max_gap) << iterations;
    }
  }
}

TEST(Train, UnderRulesIsTheSameForAnyNumberOfThreadsAndAfterAnInterruption) {
  for (const Optimizer optimizer : {Optimizer::lbfgs, Optimizer::adagrad}) {
    Task task(22);
    put_under_rules(task);
    TrainOptions options;
    options.optimizer = optimizer;
    options.max_iterations = 20;
    options.tolerance = 0;
    options.every = 3;
    options.threads = 1;
    options.checkpoint = temporary("rules");
    const Trained whole = train(task.training, options);
    EXPECT_EQ(whole.last.phase, Phase::rules);
    options.threads = 2;
    options.resume = true;
    for (const int cut : {2, 11, 13, 17}) {
      options.checkpoint = temporary("rules_cut");
      train(task.training, options, [&](const Progress& p) { return p.iteration < cut; });
      const Trained resumed = train(task.training, options);
      EXPECT_EQ(weights_of(resumed.model), weights_of(whole.model)) << "cut after " << cut;
    }
  }
}

TEST(Train, L1MakesWeightsZero) {
  Task task(3);
  TrainOptions options;
  options.l2 = 0;
  std::size_t before = std::numeric_limits<std::size_t>::max();
  for (const double l1 : {0.1, 2.0, 10.0, 1000.0}) {
    options.l1 = l1;
    const std::size_t kept = train(task.training, options).model.weight().size();
    EXPECT_LE(kept, before) << l1;
    before = kept;
  }
  EXPECT_EQ(before, 0u);
}

TEST(Train, MinCountLeavesRareAttributesOut) {
  Task task(4);
  TrainOptions options;
  options.min_count = 1'000'000;
  EXPECT_EQ(train(task.training, options).model.attributes(), 0);
}

// CRFsuite counts a weight's values in gold, not an attribute's occurrences.
TEST(Train, MinFrequencyLeavesRareWeightsOut) {
  Dataset data;
  for (const Label gold : {0, 1, 0, 1, 1}) {
    data.attribute.push_back(0);
    data.item.push_back(static_cast<std::int64_t>(data.attribute.size()));
    data.gold.push_back(gold);
  }
  data.position.push_back(5);
  const auto kept = [&](double least, bool all) {
    const Features features =
        make_features(data, 1, 2, {.min_frequency = least, .all_features = all, .all_transitions = all});
    return std::pair(features.label, features.bigram);
  };
  using Kept = std::pair<std::vector<Label>, std::vector<std::int32_t>>;
  EXPECT_EQ(kept(0, false), Kept({0, 1}, {1, 2, 3}));
  EXPECT_EQ(kept(2, false), Kept({0, 1}, {1}));
  EXPECT_EQ(kept(3, false), Kept({1}, {}));
  EXPECT_EQ(kept(0, true), Kept({0, 1}, {0, 1, 2, 3}));
  EXPECT_EQ(kept(1, true), Kept({0, 1}, {1, 2, 3}));  // what gold never has is rare, too
  data.value = {0.5, 1, 1, -1, 1};
  EXPECT_EQ(kept(1.5, false), Kept({0}, {1}));
  data.weight = {2};
  EXPECT_EQ(kept(1.5, false), Kept({0, 1}, {1, 2, 3}));
}

TEST(Train, ReachesTheSameByAnyLineSearch) {
  Task task(4);
  TrainOptions options{.tolerance = 0, .epsilon = 1e-9};
  const double objective = train(task.training, options).last.objective;
  for (const LineSearch search : {LineSearch::backtracking, LineSearch::strong_backtracking}) {
    options.line_search = search;
    options.memories = 3;
    EXPECT_NEAR(train(task.training, options).last.objective, objective, 1e-6);
  }
  options.epsilon = 10;  // so large that the first steps will do
  EXPECT_GT(train(task.training, options).last.objective, objective);
}

TEST(Train, GivesTheSameForAnyNumberOfThreads) {
  Task task(5, {300, 30, 5, 200, 8});
  TrainOptions options;
  options.threads = 1;
  const std::vector<double> one = weights_of(train(task.training, options).model);
  options.threads = 3;
  EXPECT_EQ(weights_of(train(task.training, options).model), one);
}

TEST(Train, AdagradGivesTheSameForAnyNumberOfThreads) {
  Task task(5, {40, 300, 60, 200, 8});  // enough work in a batch for several threads
  TrainOptions options;
  options.optimizer = Optimizer::adagrad;
  options.max_iterations = 3;
  options.threads = 1;
  const std::vector<double> one = weights_of(train(task.training, options).model);
  for (const int threads : {2, 3}) {
    options.threads = threads;
    EXPECT_EQ(weights_of(train(task.training, options).model), one) << threads << " threads";
  }
}

class StoppedTraining : public testing::TestWithParam<Optimizer> {};

TEST_P(StoppedTraining, LeavesWhatTheLastWholeIterationGave) {
  Task task(7, {300, 30, 5, 200, 8});
  TrainOptions options;
  options.optimizer = GetParam();
  options.tolerance = 0;
  options.threads = 2;
  options.max_iterations = 4;
  const std::vector<double> whole = weights_of(train(task.training, options).model);
  int done = 0, asked = 0;
  options.max_iterations = 0;
  options.stop = [&] { return done == 4 && ++asked == 2; };  // some way into the fifth, which asks at least twice
  const Trained cut = train(task.training, options, [&](const Progress& progress) {
    done = progress.iteration;
    return true;
  });
  EXPECT_EQ(cut.last.iteration, 4);
  EXPECT_EQ(cut.stopped, "asked to");
  EXPECT_EQ(weights_of(cut.model), whole);
}
INSTANTIATE_TEST_SUITE_P(Optimizers, StoppedTraining, testing::Values(Optimizer::lbfgs, Optimizer::adagrad));

class ByTwoProcesses : public testing::TestWithParam<bool> {};

TEST_P(ByTwoProcesses, IsTheSameToRounding) {
  Task task(6, {100, 20, 4, 60, 6}, GetParam());
  TrainOptions options;
  options.threads = 1;
  const Trained alone = train(task.training, options);

  std::barrier<> meet(2);
  std::vector<double> sum;
  std::vector<std::optional<Trained>> results(2);
  const auto run = [&](int rank) {
    Processes processes{rank, 2, {}};
    processes.add_up = [&, rank](std::span<double> numbers) {
      if (rank == 0) sum.assign(numbers.begin(), numbers.end());
      meet.arrive_and_wait();
      for (std::size_t i = 0; rank == 1 && i < numbers.size(); ++i) sum[i] += numbers[i];
      meet.arrive_and_wait();
      std::copy(sum.begin(), sum.end(), numbers.begin());
      meet.arrive_and_wait();
    };
    results[rank] = train(task.training, options, {}, processes);
  };
  std::thread other(run, 1);
  run(0);
  other.join();
  EXPECT_EQ(weights_of(results[0]->model), weights_of(results[1]->model));
  EXPECT_NEAR(results[0]->best.objective, alone.best.objective, 1e-4 * alone.best.objective);
}
INSTANTIATE_TEST_SUITE_P(Pairs, ByTwoProcesses, testing::Bool());

class AdagradProperty : public testing::TestWithParam<bool> {};

TEST_P(AdagradProperty, ComesNearTheOptimum) {
  Task task(7, {60, 12, 3, 20, 4}, GetParam());
  const double best = train(task.training).best.objective;
  TrainOptions options;
  options.optimizer = Optimizer::adagrad;
  options.max_iterations = 60;
  const Trained trained = train(task.training, options);
  EXPECT_LT(trained.last.objective, 1.05 * best);
  EXPECT_GT(trained.last.objective, 0.95 * best);
  EXPECT_EQ(weights_of(train(task.training, options).model), weights_of(trained.model));
  options.seed = 2;
  EXPECT_NE(weights_of(train(task.training, options).model), weights_of(trained.model));
}
INSTANTIATE_TEST_SUITE_P(Pairs, AdagradProperty, testing::Bool());

TEST(Train, UnknownGoldIsSummedOver) {
  Task task(8, {60, 12, 3, 20, 4, false, false, true});
  const Trained trained = train(task.training);
  EXPECT_EQ(trained.stopped, "converged");
  std::fill(task.data.gold.begin(), task.data.gold.end(), kUnknownLabel);
  EXPECT_NEAR(train(task.training).last.objective, 0, 1e-9);  // everything agrees with everything
}

TEST(Train, KeepsTheBestOnTheDevelopmentSet) {
  Task task(9);
  task.training.development = &task.data;
  int call = 0;
  task.training.score = [&](std::span<const Label> predicted) {
    EXPECT_EQ(predicted.size(), task.data.gold.size());
    return ++call == 3 ? 5.0 : 1.0;  // the third is best
  };
  TrainOptions options;
  options.patience = 4;
  const Trained trained = train(task.training, options);
  EXPECT_EQ(trained.stopped, "patience");
  EXPECT_EQ(trained.best.iteration, 3);
  EXPECT_EQ(trained.last.iteration, 7);
  options = {};
  options.max_iterations = 3;
  task.training.development = nullptr;
  EXPECT_EQ(weights_of(train(task.training, options).model), weights_of(trained.model));
}

TEST(Train, KeepsTheLaterOfEqualScores) {
  Task task(9);
  task.training.development = &task.data;
  int call = 0;
  task.training.score = [&](std::span<const Label>) { return ++call <= 3 ? 2.0 : 1.0; };  // three are equal
  TrainOptions options;
  options.patience = 5;
  const Trained trained = train(task.training, options);
  EXPECT_EQ(trained.best.iteration, 3);
  EXPECT_EQ(trained.last.iteration, 6);  // patience counts from the first of them: nothing rose since
  options = {};
  options.max_iterations = 3;
  task.training.development = nullptr;
  EXPECT_EQ(weights_of(train(task.training, options).model), weights_of(trained.model));
}

TEST(Train, StopsWhenAsked) {
  Task task(10);
  const Trained trained = train(task.training, {}, [](const Progress& p) { return p.iteration < 2; });
  EXPECT_EQ(trained.stopped, "asked to");
  EXPECT_EQ(trained.last.iteration, 2);
}

class Resume : public testing::TestWithParam<std::tuple<Optimizer, double, bool, bool>> {};

TEST_P(Resume, GoesOnToTheSameResult) {
  const auto [optimizer, l1, development, pairs] = GetParam();
  Task task(11, {60, 12, 3, 20, 4}, pairs);
  Dataset other = task.data;
  if (development) {
    task.training.development = &other;
    task.training.score = [&](std::span<const Label> predicted) {
      double right = 0;
      for (std::size_t t = 0; t < predicted.size(); ++t) right += predicted[t] == other.gold[t];
      return right;
    };
  }
  TrainOptions options;
  options.optimizer = optimizer;
  options.l1 = l1;
  options.every = 4;
  options.max_iterations = 25;
  options.tolerance = 0;
  options.checkpoint = temporary("whole");
  const Trained whole = train(task.training, options);
  for (const int cut : {1, 4, 5, 11, 24}) {
    options.checkpoint = temporary("cut");
    options.resume = true;  // there is nothing yet to resume from
    train(task.training, options, [&](const Progress& p) { return p.iteration < cut; });
    const Trained resumed = train(task.training, options);
    EXPECT_EQ(weights_of(resumed.model), weights_of(whole.model)) << "cut after " << cut;
    EXPECT_EQ(resumed.last.iteration, whole.last.iteration);
    EXPECT_EQ(resumed.last.objective, whole.last.objective);
    EXPECT_EQ(resumed.best.iteration, whole.best.iteration);
  }
}
INSTANTIATE_TEST_SUITE_P(
    Optimizers, Resume,
    testing::Values(std::tuple{Optimizer::lbfgs, 0.0, false, false}, std::tuple{Optimizer::lbfgs, 0.0, true, false},
                    std::tuple{Optimizer::lbfgs, 0.3, false, false}, std::tuple{Optimizer::adagrad, 0.0, false, false},
                    std::tuple{Optimizer::adagrad, 0.0, true, false}, std::tuple{Optimizer::lbfgs, 0.0, true, true},
                    std::tuple{Optimizer::lbfgs, 0.3, false, true}, std::tuple{Optimizer::adagrad, 0.0, true, true}));

// Whether a label is that of the position before or the other one, the input says. That is neither in the input alone
// nor in the labels alone.
struct Switches {
  Switches() {
    for (const char* name : {"U:is A", "U:is B", "U:stay", "U:switch", "B:stay", "B:switch"}) names.add(name);
    Random random(4);
    for (int i = 0; i < 40; ++i) {
      Label label = below(random, 2);
      for (int t = 0; t < 12; ++t) {
        const int turn = below(random, 2);
        if (t > 0) label = turn ? 1 - label : label;
        data.attribute.push_back(t == 0 ? label : 2 + turn);
        if (t > 0) data.attribute.push_back(4 + turn);
        data.item.push_back(static_cast<std::int64_t>(data.attribute.size()));
        data.gold.push_back(label);
      }
      data.position.push_back(static_cast<std::int64_t>(data.gold.size()));
    }
    training.labels = labels_of(2);
    training.attributes = &names;
    training.data = &data;
    const Extractor extractor = Extractor::from_template("U:%x[0,0]\nB:%x[0,0]\nB\n");
    training.extractor = extractor.text();
    training.weighs = extractor.weighs(names);
  }

  double accuracy(const Model& model) const {
    Tagger tagger(model, Extractor::attributes());
    for (std::int64_t t = 0; t < data.positions(); ++t) {
      for (std::int64_t k = data.item[t]; k < data.item[t + 1]; ++k) tagger.attribute(names.name(data.attribute[k]), 1);
      tagger.next();
      if (t % 12 == 11) tagger.end();
    }
    double right = 0;
    std::int64_t at = 0;
    for (const Tagged& tagged : tagger.decode()) {
      for (const Label label : tagged.paths[0].labels) right += label == data.gold[at++];
    }
    return right / static_cast<double>(data.positions());
  }

  Names names;
  Dataset data;
  Training training;
};

TEST(Pairs, LearnWhatNeitherInputNorTransitionsTell) {
  Switches task;
  for (const Optimizer optimizer : {Optimizer::lbfgs, Optimizer::adagrad}) {
    TrainOptions options;
    options.optimizer = optimizer;
    options.max_iterations = 100;
    const Trained trained = train(task.training, options);
    EXPECT_EQ(task.accuracy(trained.model), 1.0);
    EXPECT_TRUE(trained.model.has_pairs());
    EXPECT_EQ(task.accuracy(Model::from_bytes(trained.model.to_bytes())), 1.0);
  }
  task.training.weighs.clear();  // the same attributes, for labels alone
  const Trained plain = train(task.training);
  EXPECT_FALSE(plain.model.has_pairs());
  EXPECT_LT(task.accuracy(plain.model), 0.8);
}

TEST(Pairs, ContinueFromAModel) {
  Switches task;
  const Trained first = train(task.training);
  task.training.initial = &first.model;
  const Trained again = train(task.training);
  EXPECT_EQ(again.taken_over, static_cast<std::int64_t>(weights_of(first.model).size()));
  EXPECT_LT(again.last.iteration, first.last.iteration / 2);
  EXPECT_NEAR(again.last.objective, first.last.objective, 1e-3 * first.last.objective);
}

// Rules that are kept are obeyed in training, too: to the certificate the same as when they are multiplied out.
TEST(Pairs, LearnUnderRulesThatAreKept) {
  Task task(14, {40, 6, 3, 12, 3}, true);
  const Language language = Language::parse("[A B C]* & at_most(2, A) & once_contiguous(B)", labels_of(3));
  const Constraint whole = compile(language, {}, Rules::none);
  make_legal(whole, task.data);
  task.training.constrain = Constrain::train;
  task.training.constraint = whole;
  const double exact = train(task.training).last.objective;
  task.training.constraint = compile(language, {}, Rules::all);
  ASSERT_GT(task.training.constraint->rules(), 0);
  const Trained kept = train(task.training);
  EXPECT_TRUE(kept.model.has_pairs());
  EXPECT_NEAR(kept.last.objective, exact, 0.01 * exact);
}

TEST(Pairs, KindsMustFitTheAttributes) {
  Switches task;
  task.training.weighs.pop_back();
  EXPECT_THROW(train(task.training), Error);
}

std::string error_of(const std::function<void()>& act) {
  try {
    act();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Train, ACheckpointOfOtherWorkIsRefused) {
  Task task(12);
  TrainOptions options;
  options.checkpoint = temporary("other");
  options.every = 2;
  options.max_iterations = 5;
  train(task.training, options);
  options.resume = true;
  EXPECT_EQ(error_of([&] { train(task.training, options); }), "");
  options.l2 = 0.5;
  EXPECT_NE(error_of([&] { train(task.training, options); }).find("l2 was 1, is 0.5"), std::string::npos);
  options.l2 = 1;
  task.data.gold[0] = (task.data.gold[0] + 1) % 3;
  EXPECT_NE(error_of([&] { train(task.training, options); }).find("training data differs"), std::string::npos);
}

TEST(Train, ADamagedCheckpointIsRefused) {
  const Task task(12);
  TrainOptions options;
  options.checkpoint = temporary("damaged");
  options.every = 2;
  options.max_iterations = 5;
  train(task.training, options);
  options.resume = true;
  const std::string good = read_file(options.checkpoint);
  Random random(1);
  for (int i = 0; i < 300; ++i) {
    std::string bad = good;
    const std::size_t place = random() % good.size();
    if (good[place] == ' ') continue;  // between header and numbers, where nothing stands
    bad[place] = static_cast<char>(bad[place] ^ (1 << random() % 8));
    if (i % 10 == 0) bad.resize(place);
    write_file(options.checkpoint, bad);
    const std::string said = error_of([&] { train(task.training, options); });
    EXPECT_TRUE(said.starts_with("[resume] ")) << "byte " << place << " of " << good.size() << ": " << said;
  }
  write_file(options.checkpoint, good);
  EXPECT_EQ(error_of([&] { train(task.training, options); }), "");
}

TEST(Train, SaysWhatIsWrong) {
  Task task(13);
  Training none = task.training;
  none.constrain = Constrain::decode;
  EXPECT_NE(error_of([&] { train(none); }).find("no constraint"), std::string::npos);
  Training outside = task.training;
  outside.constrain = Constrain::train;
  outside.constraint = compile(Language::parse("C*", labels_of(3)));
  EXPECT_NE(error_of([&] { train(outside); }).find("outside the language"), std::string::npos);
  Training other = task.training;
  other.labels = labels_of(2);
  EXPECT_NE(error_of([&] { train(other); }).find("is not in 0 … 1"), std::string::npos);
  const auto complains = [&](const TrainOptions& options, const char* of) {
    return error_of([&] { train(task.training, options); }).find(of) != std::string::npos;
  };
  EXPECT_TRUE(complains({.min_frequency = -1}, "min_frequency"));
  EXPECT_TRUE(complains({.memories = 0}, "memories"));
  EXPECT_TRUE(complains({.epsilon = std::nan("")}, "epsilon"));
  EXPECT_TRUE(complains({.line_search_trials = 0}, "line_search_trials"));
  task.data.gold.clear();
  EXPECT_NE(error_of([&] { train(task.training); }).find("no labels to learn from"), std::string::npos);
}

// --- gold outside the language --------------------------------------------------------------------------------------

class OutsideProperty : public testing::TestWithParam<int> {};

TEST_P(OutsideProperty, IsFoundAndRepairedWithTheFewestChanges) {
  Random random(static_cast<std::uint64_t>(GetParam()));
  Shape shape{12, 5, 3, 4, 1};
  shape.unknown = GetParam() % 2 == 1;
  Dataset data = random_data(random, shape);
  const Dataset before = data;
  const Constraint constraint = some_constraint(shape.K);
  std::vector<std::int64_t> expected, distances;
  for (std::int64_t i = 0; i < data.sequences(); ++i) {
    std::int64_t nearest = data.length(i) + 1;
    each_sequence(shape.K, data.length(i), [&](const std::vector<Label>& y) {
      if (!constraint.accepts(y)) return;
      std::int64_t changes = 0;
      for (std::size_t t = 0; t < y.size(); ++t) {
        const Label gold = data.gold[static_cast<std::size_t>(data.position[i]) + t];
        changes += gold != kUnknownLabel && gold != y[t];
      }
      nearest = std::min(nearest, changes);
    });
    if (nearest == 0) continue;
    expected.push_back(i);
    distances.push_back(nearest);
  }
  std::vector<std::int64_t> found;
  for (const OutsideSequence& outside : find_outside(constraint, data)) found.push_back(outside.sequence);
  EXPECT_EQ(found, expected);
  EXPECT_EQ(without(data, found).sequences(), data.sequences() - static_cast<std::int64_t>(found.size()));
  EXPECT_EQ(repair(constraint, data, found), std::accumulate(distances.begin(), distances.end(), std::int64_t{0}));
  EXPECT_TRUE(find_outside(constraint, data).empty());
  EXPECT_EQ(std::count(data.gold.begin(), data.gold.end(), kUnknownLabel),
            std::count(before.gold.begin(), before.gold.end(), kUnknownLabel));
}
INSTANTIATE_TEST_SUITE_P(Random, OutsideProperty, testing::Range(0, 40));

TEST(Outside, SaysWhereAndWhatWasPossible) {
  Dataset data;
  data.gold = {0, 1, 2};  // A B C
  data.item = {0, 0, 0, 0};
  data.position = {0, 3};
  const std::vector<OutsideSequence> outside = find_outside(some_constraint(3), data);
  ASSERT_EQ(outside.size(), 1u);
  EXPECT_EQ(outside[0].position, 1);
  EXPECT_EQ(outside[0].possible, (std::vector<Label>{0, 2}));
}

}  // namespace
}  // namespace regccrf
