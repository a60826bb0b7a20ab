// Inference on sequences too long to enumerate: against the paper's dense construction over tags, and against the dense
// long-double pass, forced paths included.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "regccrf/constraint.h"
#include "regccrf/inference.h"
#include "regccrf/loss.h"
#include "tests/inference/inference_fixture.h"
#include "tests/oracle/algorithm1.h"
#include "tests/oracle/automata.h"
#include "tests/oracle/dense.h"
#include "tests/oracle/random.h"
#include "tests/oracle/tags.h"

namespace regccrf {
namespace {

using oracle::DenseResult;
using oracle::Random;

// Expected counts minus those of the gold.
struct Gradient {
  std::vector<oracle::Real> labels, bigrams;
};

Gradient minus_gold(Gradient expected, const std::vector<Label>& gold, int labels) {
  const std::size_t K = static_cast<std::size_t>(labels);
  for (std::size_t t = 0; t < gold.size(); ++t) {
    expected.labels[t * K + gold[t]] -= 1;
    if (t > 0) expected.bigrams[gold[t - 1] * K + gold[t]] -= 1;
  }
  return expected;
}

// --- the SRL language against tags ----------------------------------------------------------------------------------

struct SrlCase {
  oracle::Scores scores;
  double log_z, best;
  std::vector<Label> gold;  // the best path
  Gradient gradient;
};

SrlCase srl_case(const oracle::Tags& tags, int length) {
  Random random(static_cast<std::uint64_t>(length));
  SrlCase c;
  c.scores = oracle::random_scores(random, oracle::ScoreKind::normal, length, 47, length % 2 == 0);
  const oracle::DenseTags<double> crf(tags, c.scores.transitions, 47);
  const oracle::TagBatch<double> batch{1, static_cast<std::size_t>(length), c.scores.emissions, c.scores.start,
                                       c.scores.end};
  const oracle::TagResult<double> result = crf.gradients(batch);
  const oracle::TagPaths<double> paths = crf.viterbi(batch);
  c.log_z = result.log_z[0];
  c.best = paths.score[0];
  c.gold = paths.paths[0];
  c.gradient = minus_gold(
      {{result.labels.begin(), result.labels.end()}, {result.bigrams.begin(), result.bigrams.end()}}, c.gold, 47);
  return c;
}

const std::vector<SrlCase>& srl_cases() {
  static const std::vector<SrlCase> cases = [] {
    const Automaton automaton = oracle::algorithm1(oracle::paper_roles());
    const oracle::Tags arcs = oracle::arcs_as_tags(automaton), classes = oracle::classes_as_tags(automaton);
    std::vector<SrlCase> all;
    for (int length : {1, 2, 3, 17, 64, 128}) all.push_back(srl_case(classes, length));
    for (int length : {5, 64, 128}) all.push_back(srl_case(arcs, length));
    return all;
  }();
  return cases;
}

const Constraint& srl() {
  static const Constraint constraint =
      Constraint::from_automaton(oracle::algorithm1(oracle::paper_roles()), oracle::role_labels(oracle::paper_roles()));
  return constraint;
}

template <class Real>
class InferenceLong : public ::testing::Test {};
TYPED_TEST_SUITE(InferenceLong, Precisions);

TYPED_TEST(InferenceLong, SrlAgreesWithThePapersDenseConstruction) {
  for (const SrlCase& c : srl_cases()) {
    SCOPED_TRACE("T = " + std::to_string(c.scores.length));
    const Instance<TypeParam> instance(c.scores);
    expect_value(c.log_z, log_z(srl(), instance.view()).at(0), tolerance<TypeParam>, "log_z");
    const Path best = viterbi(srl(), instance.view()).at(0);
    expect_value(c.best, best.score, tolerance<TypeParam>, "best score");
    expect_value(c.best, static_cast<double>(score_of(c.scores, best.labels)), tolerance<TypeParam>,
                 "the path's own score");
    EXPECT_TRUE(srl().accepts(best.labels).accepted);

    std::vector<TypeParam> emissions(instance.emissions.size()), transitions(instance.transitions.size());
    Gradients<TypeParam> gradients;
    gradients.emissions = emissions;
    gradients.transitions = transitions;
    const Loss loss = nll<TypeParam>(srl(), instance.view(), c.gold, gradients);
    expect_value(c.log_z - c.best, loss.values.at(0), tolerance<TypeParam>, "nll");
    expect_all(c.gradient.labels, emissions, tolerance<TypeParam>, "gradient by emissions");
    expect_all(c.gradient.bigrams, transitions, tolerance<TypeParam>, "gradient by transitions");
  }
}

TYPED_TEST(InferenceLong, SrlSamplesAndKBestAreInTheLanguage) {
  for (const SrlCase& c : srl_cases()) {
    const Instance<TypeParam> instance(c.scores);
    const std::vector<Path> samples = sample(srl(), instance.view(), {30, 1, 2.0, {}}).at(0);
    for (const Path& path : samples) {
      EXPECT_TRUE(srl().accepts(path.labels).accepted);
    }
    double last = inf;
    const std::vector<Path> best = k_best(srl(), instance.view(), 20).at(0);
    for (const Path& path : best) {
      EXPECT_TRUE(srl().accepts(path.labels).accepted);
      expect_value(score_of(c.scores, path.labels), path.score, 1e-12, "the path's own score");
      EXPECT_LE(path.score, last);
      last = path.score;
    }
  }
}

// --- long sequences against the dense pass --------------------------------------------------------------------------

// An instance and what the dense pass says of it; both precisions read the same.
struct DenseCase {
  DenseCase(std::string name_, Automaton automaton_, oracle::Scores scores_)
      : name(std::move(name_)),
        automaton(std::move(automaton_)),
        scores(std::move(scores_)),
        constraint(Constraint::from_automaton(automaton, numbered_labels(scores.labels))),
        expected(oracle::dense(automaton, scores)),
        unconstrained_log_z(oracle::dense(oracle::everything(scores.labels), scores).log_z) {}

  std::string name;
  Automaton automaton;
  oracle::Scores scores;
  Constraint constraint;
  DenseResult expected;
  oracle::Real unconstrained_log_z;
};

template <class Real>
void expect_values(const DenseCase& c, const Scores<Real>& scores, const Options& options) {
  const double bound = tolerance<Real>;
  expect_value(c.expected.log_z, log_z(c.constraint, scores, options).at(0), bound, "log_z");
  expect_value(c.expected.best, viterbi_score(c.constraint, scores, options).at(0), bound, "best score alone");
  if (c.expected.log_z == -inf) return;
  const oracle::Real mass = c.expected.log_z - c.unconstrained_log_z;
  expect_value(c.expected.entropy, entropy(c.constraint, scores, options).at(0), bound, "entropy");
  expect_value(mass, language_mass(c.constraint, scores, options).at(0), bound, "language mass");
}

template <class Real>
void expect_gradients(const DenseCase& c, const Instance<Real>& instance, const std::vector<Label>& gold,
                      const Options& options) {
  std::vector<Real> emissions(instance.emissions.size()), transitions(instance.transitions.size());
  Gradients<Real> gradients;
  gradients.emissions = emissions;
  gradients.transitions = transitions;
  LossOptions loss_options;
  static_cast<Options&>(loss_options) = options;
  const Loss loss = nll<Real>(c.constraint, instance.view(), gold, gradients, loss_options);
  const Gradient expected = minus_gold({c.expected.labels, c.expected.bigrams}, gold, c.scores.labels);
  const double size_of_log_z = static_cast<double>(std::fabs(c.expected.log_z));  // the nll is a difference of such
  EXPECT_NEAR(static_cast<double>(c.expected.log_z - score_of(c.scores, gold)), loss.values.at(0),
              tolerance<Real> * std::max(1.0, size_of_log_z));
  expect_all(expected.labels, emissions, tolerance<Real>, "gradient by emissions");
  expect_all_sums(expected.bigrams, c.expected.bigrams, transitions, tolerance<Real>, "gradient by transitions");
}

template <class Real>
void expect_dense(const DenseCase& c, const Options& options) {
  SCOPED_TRACE(c.name);
  const Instance<Real> instance(c.scores);
  expect_values(c, instance.view(), options);
  if (c.expected.log_z == -inf) return;

  const Path best = viterbi(c.constraint, instance.view(), options).at(0);
  ASSERT_EQ(oracle::count_paths(c.automaton, best.labels), 1);
  expect_value(c.expected.best, best.score, tolerance<Real>, "best score");
  expect_value(score_of(c.scores, best.labels), best.score, 1e-10, "the path's own score");

  std::vector<Real> marginals(instance.emissions.size());
  label_marginals<Real>(c.constraint, instance.view(), marginals, options);
  expect_all(c.expected.labels, marginals, tolerance<Real>, "label marginals");
  expect_gradients(c, instance, best.labels, options);
}

const std::vector<DenseCase>& forced_cases() {
  static const std::vector<DenseCase> cases = [] {
    Random random(21);
    std::vector<DenseCase> all;
    for (int length : {11, 301, 99999}) {
      const std::string name = ", T = " + std::to_string(length);
      const oracle::Forced parity = forced_by_parity(random, length), end = forced_by_end(random, length),
                           single = forced_single(random, length);
      all.emplace_back("forced by parity" + name, parity.automaton, parity.scores);
      all.emplace_back("forced by the end" + name, end.automaton, end.scores);
      all.emplace_back("single" + name, single.automaton, single.scores);
    }
    return all;
  }();
  return cases;
}

TYPED_TEST(InferenceLong, ForcedPathsAreFollowedToTheEnd) {
  for (const DenseCase& c : forced_cases()) expect_dense<TypeParam>(c, {});
}

// Depths at which the weight of what is legal leaves the range of float or double after a few steps, or after many.
TYPED_TEST(InferenceLong, ForcedPathsOfAnyDepth) {
  Random random(26);
  for (double depth : {0.5, 5., 16., 40., 80., 87.5, 104., 350., 709., 745., 1500.}) {
    for (int length : {3, 9, 35, 201}) {
      const std::string name = "depth " + std::to_string(depth) + ", T = " + std::to_string(length);
      const oracle::Forced parity = forced_by_parity(random, length, depth), end = forced_by_end(random, length, depth);
      expect_dense<TypeParam>({"forced by parity, " + name, parity.automaton, parity.scores}, {});
      expect_dense<TypeParam>({"forced by the end, " + name, end.automaton, end.scores}, {});
    }
  }
}

TYPED_TEST(InferenceLong, RandomLanguagesAgreeWithTheDensePass) {
  Random random(22);
  for (int i = 0; i < 400; ++i) {
    const int labels = random.between(1, 4), length = random.between(1, 300);
    Automaton automaton = oracle::random_automaton(random, oracle::automaton_kinds[i % 3], labels, 8);
    oracle::Scores scores = oracle::random_scores(random, oracle::score_kinds[i / 3 % 5], length, labels, i % 2);
    Options options;
    if (i % 5 == 0) options.keep_bytes = 1;  // as few steps in memory as possible
    const std::string name = "case " + std::to_string(i) + ", T = " + std::to_string(length);
    expect_dense<TypeParam>({name, std::move(automaton), std::move(scores)}, options);
    if (this->HasFatalFailure()) return;
  }
}

// --- numbers that grow too small ------------------------------------------------------------------------------------

// What no sequence can have is not merely unlikely.
template <class Real>
void expect_exact_zeros(const DenseCase& c, const Options& options) {
  if (c.expected.log_z == -inf) return;
  oracle::Scores even = c.scores;
  for (auto* scores : {&even.emissions, &even.transitions, &even.start, &even.end}) {
    for (double& x : *scores) x = x == -inf ? x : 0;
  }
  const DenseResult possible = oracle::dense(c.automaton, even);
  const Instance<Real> instance(c.scores);
  std::vector<Real> marginals(instance.emissions.size());
  label_marginals<Real>(c.constraint, instance.view(), marginals, options);
  for (std::size_t i = 0; i < marginals.size(); ++i) {
    if (possible.labels[i] == 0) {
      ASSERT_EQ(marginals[i], 0);
    }
  }
}

TYPED_TEST(InferenceLong, ExtremeScoresAgreeWithTheDensePass) {
  Random random(27);
  for (int i = 0; i < 1000; ++i) {
    const int labels = random.between(1, 4), length = random.between(1, 60);
    Automaton automaton = i % 4 == 3 ? oracle::everything(labels)
                                     : oracle::random_automaton(random, oracle::automaton_kinds[i % 4], labels, 8);
    oracle::Scores scores = oracle::random_scores(random, oracle::ScoreKind::extreme, length, labels, i % 3 > 0);
    Options options;
    if (i % 5 == 0) options.keep_bytes = 1;
    const DenseCase c("case " + std::to_string(i), std::move(automaton), std::move(scores));
    expect_dense<TypeParam>(c, options);
    expect_exact_zeros<TypeParam>(c, options);
    if (this->HasFatalFailure()) return;
  }
}

// Sequences of one label each, worth about the same, whose scores rise and fall on the way: which of them is worth what
// shows at the end alone, from either side.
oracle::Scores lanes(Random& random, int labels, int length) {
  oracle::Scores scores = oracle::random_scores(random, oracle::ScoreKind::normal, length, labels, false);
  const std::size_t K = static_cast<std::size_t>(labels), T = static_cast<std::size_t>(length);
  for (double& g : scores.transitions) g = 0;
  for (std::size_t a = 0; a < K; ++a) {
    const double size = std::pow(10, random.uniform(0, 3.5));
    const std::size_t edge = random.chance(0.5) ? 0 : std::max<std::size_t>(1, T / 7);
    double sum = random.uniform(-3, 3);
    for (std::size_t t = 0; t < T; ++t) {
      double& h = scores.emissions[t * K + a];
      if (edge == 0) h *= size;
      if (t < edge || t + edge >= T) h -= size;
      sum -= h;
    }
    for (std::size_t t = edge; t + edge < T; ++t)
      scores.emissions[t * K + a] += sum / static_cast<double>(T - 2 * edge);
  }
  for (double& h : scores.emissions) h = static_cast<float>(h);
  return scores;
}

TYPED_TEST(InferenceLong, PathsThatRiseAndFallAreCounted) {
  Random random(28);
  for (int i = 0; i < 600; ++i) {
    const int labels = random.between(2, 4), length = random.between(3, 250);
    oracle::Scores scores = lanes(random, labels, length);
    Automaton apart;
    apart.accepting.assign(static_cast<std::size_t>(labels) + 1, 1);
    for (Label a = 0; a < labels; ++a) {
      apart.arcs.push_back({0, a, a + 1});
      apart.arcs.push_back({a + 1, a, a + 1});
    }
    Options options;
    if (i % 5 == 0) options.keep_bytes = 1;
    const std::string name = "case " + std::to_string(i) + ", T = " + std::to_string(length);
    expect_dense<TypeParam>({name, apart, scores}, options);
    for (Label a = 0; a < labels; ++a) {
      for (Label b = 0; b < labels; ++b)
        scores.transitions[static_cast<std::size_t>(a * labels + b)] = a == b ? 0 : -inf;
    }
    expect_dense<TypeParam>({name + ", apart by transitions", oracle::everything(labels), scores}, options);
    if (this->HasFailure()) return;
  }
}

oracle::Scores even_scores(int length, int labels) {
  oracle::Scores scores;
  scores.length = length;
  scores.labels = labels;
  const std::size_t K = static_cast<std::size_t>(labels);
  scores.emissions.assign(static_cast<std::size_t>(length) * K, 0);
  scores.transitions.assign(K * K, 0);
  return scores;
}

// One of two sequences is worst wherever a sequence begins and ends, and makes up for it in between.
TYPED_TEST(InferenceLong, PathsThatVanishAtOnceAreCounted) {
  Automaton apart;
  apart.accepting = {1, 1, 1};
  apart.arcs = {{0, 0, 1}, {0, 1, 2}, {1, 0, 1}, {2, 1, 2}};
  constexpr std::size_t T = 100;
  for (const double depth : {10., 30., 50., 60., 69., 70., 100., 300., 500., 600., 640., 660., 1000., 3000.}) {
    for (const double first : {0., 1.}) {
      for (const double last : {0., 1.}) {
        oracle::Scores scores = even_scores(T, 2);
        scores.start = {-first * depth, 0};
        scores.end = {-last * depth, 0};
        scores.transitions = {-depth, -inf, -inf, 0};
        const double rise = (first * 2 + last * 2 + T - 1) * depth / (T - 2);
        for (std::size_t t = 0; t < T; ++t)
          scores.emissions[2 * t] = static_cast<float>(t == 0 ? -first * depth : t + 1 == T ? -last * depth : rise);
        const std::string name = "depth " + std::to_string(depth);
        expect_dense<TypeParam>({name, apart, scores}, {});
        expect_dense<TypeParam>({name + ", everything", oracle::everything(2), scores}, {});
      }
    }
  }
}

// A* | A* B C*, where B is too unlikely for a number and whatever ends with C is likely: what rounding B up adds to a
// sequence is little at each position, and too much at all of them.
TYPED_TEST(InferenceLong, WhatIsAddedLittleByLittleIsNoticed) {
  constexpr bool in_float = std::is_same_v<TypeParam, float>;
  Automaton automaton;
  automaton.accepting = {1, 1};
  automaton.arcs = {{0, 0, 0}, {0, 1, 1}, {1, 2, 1}};
  oracle::Scores scores = even_scores(250, 3);
  for (std::size_t t = 0; t < 250; ++t) scores.emissions[t * 3 + 1] = in_float ? -87 : -700;
  scores.end = {in_float ? -54.8f : -625.2f, 0, 0};
  expect_dense<TypeParam>({"A* | A* B C*", automaton, scores}, {});
}

// The likeliest first label forbids the second position's only one: their bigram is a large number times a larger one,
// times 0.
TYPED_TEST(InferenceLong, ABigramThatIsForbiddenCannotOverflow) {
  for (const double depth : {20., 45., 60., 300., 600., 2000.}) {
    oracle::Scores scores = even_scores(3, 3);
    scores.emissions = {0, static_cast<float>(-depth), -inf, -inf, -inf, 0, 0, 0, 0};
    scores.transitions[2] = -inf;
    scores.transitions[5] = static_cast<float>(-depth);
    Automaton turns;  // everything, as two states that take turns
    turns.accepting = {1, 1};
    for (State q : {0, 1}) {
      for (Label a : {0, 1, 2}) turns.arcs.push_back({q, a, 1 - q});
    }
    expect_dense<TypeParam>({"in turns, depth " + std::to_string(depth), turns, scores}, {});
    expect_dense<TypeParam>({"depth " + std::to_string(depth), oracle::everything(3), scores}, {});
  }
}

// Many labels and states: whole vectors and what is left over at their ends.
const std::vector<DenseCase>& broad_cases() {
  static const std::vector<DenseCase> cases = [] {
    Random random(25);
    std::vector<DenseCase> all;
    for (int labels : {1, 2, 7, 8, 9, 15, 16, 17, 33, 47, 64}) {
      const oracle::ScoreKind kind = oracle::score_kinds[all.size() % 5];
      const std::string name = "everything over " + std::to_string(labels) + " labels";
      all.emplace_back(name, oracle::everything(labels), oracle::random_scores(random, kind, 20, labels, true));
    }
    for (int i = 0; i < 30; ++i) {
      const int labels = random.between(5, 24), length = random.between(1, 12);
      Automaton automaton = oracle::random_automaton(random, oracle::automaton_kinds[i % 3], labels, 12);
      oracle::Scores scores = oracle::random_scores(random, oracle::score_kinds[i / 3 % 5], length, labels, i % 2);
      all.emplace_back("broad case " + std::to_string(i), std::move(automaton), std::move(scores));
    }
    return all;
  }();
  return cases;
}

TYPED_TEST(InferenceLong, BroadLanguagesAgreeWithTheDensePass) {
  for (const DenseCase& c : broad_cases()) expect_dense<TypeParam>(c, {});
}

// The shape of the SRL language with few roles, so that the dense pass can afford the length.
const std::vector<DenseCase>& role_cases() {
  static const std::vector<DenseCase> cases = [] {
    const Automaton automaton = oracle::algorithm1({{"X"}, {"Y"}, {{"C-X", "X"}}});
    Random random(23);
    std::vector<DenseCase> all;
    for (oracle::ScoreKind kind : oracle::score_kinds) {
      const std::string name = "roles, scores of kind " + std::to_string(static_cast<int>(kind));
      all.emplace_back(name, automaton, oracle::random_scores(random, kind, 10000, 7, true));
    }
    return all;
  }();
  return cases;
}

TYPED_TEST(InferenceLong, RolesOverLongSequences) {
  for (const DenseCase& c : role_cases()) expect_dense<TypeParam>(c, {});
}

TYPED_TEST(InferenceLong, RolesOverLongSequencesInLittleMemory) {
  Options little;
  little.keep_bytes = 1;
  for (const DenseCase& c : role_cases()) expect_dense<TypeParam>(c, little);
}

const std::vector<DenseCase>& srl_dense_cases() {
  static const std::vector<DenseCase> cases = [] {
    const Automaton automaton = oracle::algorithm1(oracle::paper_roles());
    Random random(24);
    std::vector<DenseCase> all;
    for (oracle::ScoreKind kind : oracle::score_kinds) {
      const std::string name = "SRL, scores of kind " + std::to_string(static_cast<int>(kind));
      all.emplace_back(name, automaton, oracle::random_scores(random, kind, 25, 47, true));
    }
    return all;
  }();
  return cases;
}

TYPED_TEST(InferenceLong, SrlAgreesWithTheDensePassForAnyScores) {
  for (const DenseCase& c : srl_dense_cases()) expect_dense<TypeParam>(c, {});
}

}  // namespace
}  // namespace regccrf
