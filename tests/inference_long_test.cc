// Inference on sequences too long to enumerate: against the paper's dense construction over tags, and against the dense
// long-double pass, forced paths included.
#include <gtest/gtest.h>

#include "inference_fixture.h"
#include "oracle/algorithm1.h"
#include "oracle/automata.h"
#include "oracle/dense.h"
#include "oracle/random.h"
#include "oracle/tags.h"
#include "regccrf/constraint.h"
#include "regccrf/inference.h"
#include "regccrf/loss.h"

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

// --- the SRL language against tags -------------------------------------------------------------------------------------

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
  const oracle::TagBatch<double> batch{1, static_cast<std::size_t>(length), c.scores.emissions, c.scores.start, c.scores.end};
  const oracle::TagResult<double> result = crf.gradients(batch);
  const oracle::TagPaths<double> paths = crf.viterbi(batch);
  c.log_z = result.log_z[0];
  c.best = paths.score[0];
  c.gold = paths.paths[0];
  c.gradient = minus_gold({{result.labels.begin(), result.labels.end()}, {result.bigrams.begin(), result.bigrams.end()}},
                          c.gold, 47);
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
  static const Constraint constraint = Constraint::from_automaton(oracle::algorithm1(oracle::paper_roles()),
                                                                  oracle::role_labels(oracle::paper_roles()));
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
    expect_value(c.best, static_cast<double>(score_of(c.scores, best.labels)), tolerance<TypeParam>, "the path's own score");
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

// --- long sequences against the dense pass -----------------------------------------------------------------------------

template <class Real>
void expect_dense(const Automaton& automaton, const oracle::Scores& scores, const Options& options) {
  const Constraint constraint = Constraint::from_automaton(automaton, numbered_labels(scores.labels));
  const DenseResult expected = oracle::dense(automaton, scores);
  const Instance<Real> instance(scores);
  expect_value(expected.log_z, log_z(constraint, instance.view(), options).at(0), tolerance<Real>, "log_z");
  if (expected.log_z == -inf) return;
  expect_value(expected.entropy, entropy(constraint, instance.view(), options).at(0), tolerance<Real>, "entropy");

  const Path best = viterbi(constraint, instance.view(), options).at(0);
  ASSERT_EQ(oracle::count_paths(automaton, best.labels), 1);
  expect_value(expected.best, best.score, tolerance<Real>, "best score");
  expect_value(expected.best, static_cast<double>(score_of(scores, best.labels)), tolerance<Real>, "the path's own score");
  expect_value(expected.best, viterbi_score(constraint, instance.view(), options).at(0), tolerance<Real>, "score alone");

  std::vector<Real> marginals(instance.emissions.size());
  label_marginals<Real>(constraint, instance.view(), marginals, options);
  expect_all(expected.labels, marginals, tolerance<Real>, "label marginals");

  const Gradient gradient = minus_gold({expected.labels, expected.bigrams}, best.labels, scores.labels);
  std::vector<Real> emissions(instance.emissions.size()), transitions(instance.transitions.size());
  Gradients<Real> gradients;
  gradients.emissions = emissions;
  gradients.transitions = transitions;
  LossOptions loss_options;
  static_cast<Options&>(loss_options) = options;
  const Loss loss = nll<Real>(constraint, instance.view(), best.labels, gradients, loss_options);
  EXPECT_NEAR(loss.values.at(0), static_cast<double>(expected.log_z - expected.best),
              tolerance<Real> * std::max(1.0, static_cast<double>(std::fabs(expected.log_z))));
  expect_all(gradient.labels, emissions, tolerance<Real>, "gradient by emissions");
  expect_all_counts(gradient.bigrams, transitions, tolerance<Real>, "gradient by transitions");
}

TYPED_TEST(InferenceLong, ForcedPathsAreFollowedToTheEnd) {
  Random random(21);
  for (int length : {11, 301, 99999}) {
    const oracle::Forced cases[] = {oracle::forced_by_parity(random, length), oracle::forced_by_end(random, length),
                                    oracle::forced_single(random, length)};
    for (std::size_t i = 0; i < 3; ++i) {
      SCOPED_TRACE("forced case " + std::to_string(i) + ", T = " + std::to_string(length));
      expect_dense<TypeParam>(cases[i].automaton, cases[i].scores, {});
    }
  }
}

TYPED_TEST(InferenceLong, RandomLanguagesAgreeWithTheDensePass) {
  Random random(22);
  for (int i = 0; i < 400; ++i) {
    const int labels = random.between(1, 4), length = random.between(1, 300);
    const Automaton automaton = oracle::random_automaton(random, oracle::automaton_kinds[i % 3], labels, 8);
    const oracle::Scores scores = oracle::random_scores(random, oracle::score_kinds[i / 3 % 4], length, labels, i % 2);
    SCOPED_TRACE("case " + std::to_string(i) + ", T = " + std::to_string(length));
    Options options;
    if (i % 5 == 0) options.keep_bytes = 1;  // as few steps in memory as possible
    expect_dense<TypeParam>(automaton, scores, options);
    if (this->HasFatalFailure()) return;
  }
}

// The shape of the SRL language with few roles, so that the dense pass can afford the length.
TYPED_TEST(InferenceLong, RolesOverLongSequences) {
  const Automaton automaton = oracle::algorithm1({{"X"}, {"Y"}, {{"C-X", "X"}}});
  Random random(23);
  for (oracle::ScoreKind kind : {oracle::ScoreKind::normal, oracle::ScoreKind::wide, oracle::ScoreKind::ties}) {
    for (std::size_t keep : {std::size_t{1}, std::size_t{1} << 28}) {
      SCOPED_TRACE("scores of kind " + std::to_string(static_cast<int>(kind)) + ", keep_bytes " + std::to_string(keep));
      Options options;
      options.keep_bytes = keep;
      expect_dense<TypeParam>(automaton, oracle::random_scores(random, kind, 10000, 7, true), options);
    }
  }
}

}  // namespace
}  // namespace regccrf
