// The oracles against each other and against numbers that are known: what checks the library must itself be checked.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>

#include "regccrf/automaton.h"
#include "tests/oracle/algorithm1.h"
#include "tests/oracle/automata.h"
#include "tests/oracle/dense.h"
#include "tests/oracle/enumerate.h"
#include "tests/oracle/matcher.h"
#include "tests/oracle/random.h"
#include "tests/oracle/tags.h"

namespace regccrf::oracle {
namespace {

constexpr double inf = std::numeric_limits<double>::infinity();

void expect_close(Real expected, Real actual, Real tolerance, const char* what) {
  if (expected == actual) return;  // infinities
  EXPECT_NEAR(static_cast<double>(expected), static_cast<double>(actual),
              static_cast<double>(tolerance * std::max(Real{1}, std::fabs(expected))))
      << what;
}

template <class X, class Y>
void expect_all_close(const std::vector<X>& expected, const std::vector<Y>& actual, double tolerance,
                      const char* what) {
  ASSERT_EQ(expected.size(), actual.size()) << what;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    ASSERT_NEAR(static_cast<double>(expected[i]), static_cast<double>(actual[i]), tolerance) << what << " at " << i;
  }
}

struct Case {
  Automaton automaton;
  Scores scores;
};

Case random_case(Random& random, AutomatonKind kind, ScoreKind scores, int most_length) {
  const int labels = random.between(1, 3);
  Automaton automaton = random_automaton(random, kind, labels, 5);
  return {std::move(automaton),
          random_scores(random, scores, random.between(1, most_length), labels, random.chance(0.5))};
}

// --- Algorithm 1 ----------------------------------------------------------------------------------------------------

TEST(Algorithm1, HasThePapersSize) {
  const Size size = measure(algorithm1(paper_roles()));
  EXPECT_EQ(role_labels(paper_roles()).size(), 47);
  EXPECT_EQ(size.states, 672);
  EXPECT_EQ(size.arcs, 2592);
  EXPECT_EQ(size.nodes, 1312);
  EXPECT_EQ(size.products, 28768);
}

TEST(Algorithm1, NumbersLabelsRoleByRole) {
  const Labels labels = role_labels({{"X"}, {"Y"}, {{"C-X", "X"}}});
  EXPECT_EQ(labels.names(), (std::vector<std::string>{"O", "B-X", "I-X", "B-Y", "I-Y", "B-C-X", "I-C-X"}));
}

// BIO, X at most once, C-X only after X.
bool is_legal(const std::vector<Label>& word) {
  enum { O, B_X, I_X, B_Y, I_Y, B_C, I_C };
  int begun = 0;
  for (std::size_t t = 0; t < word.size(); ++t) {
    const Label a = word[t], before = t == 0 ? O : word[t - 1];
    const bool is_inside = a == I_X || a == I_Y || a == I_C;
    if (is_inside && before != a && before != a - 1) return false;
    if (a == B_X && begun++ > 0) return false;
    if (a == B_C && begun == 0) return false;
  }
  return true;
}

TEST(Algorithm1, AcceptsExactlyTheLegalSequencesByOnePathEach) {
  const Automaton automaton = algorithm1({{"X"}, {"Y"}, {{"C-X", "X"}}});
  const Domain words = Domain::words_up_to(5, 7);
  for (std::size_t i = 0; i < words.size(); ++i) {
    ASSERT_EQ(count_paths(automaton, words.word(i)), is_legal(words.word(i)) ? 1 : 0);
  }
}

// --- random automata ------------------------------------------------------------------------------------------------

TEST(RandomAutomata, AreTrimmedAndUnambiguous) {
  Random random(1);
  for (int i = 0; i < 600; ++i) {
    const int labels = random.between(1, 3);
    const Automaton automaton = random_automaton(random, automaton_kinds[i % 3], labels, 6);
    EXPECT_EQ(trim(automaton).states(), automaton.states());
    const Domain words = Domain::words_up_to(4, labels);
    for (std::size_t w = 0; w < words.size(); ++w) ASSERT_LE(count_paths(automaton, words.word(w)), 1);
  }
}

TEST(RandomAutomata, ReverseAcceptsTheReversedSequences) {
  Random random(2);
  const Domain words = Domain::words_up_to(5, 2);
  for (int i = 0; i < 100; ++i) {
    const Automaton automaton = random_automaton(random, AutomatonKind::deterministic, 2, 4);
    const Automaton reversed = reverse(automaton);
    for (std::size_t w = 0; w < words.size(); ++w) {
      const std::vector<Label> backwards(words.word(w).rbegin(), words.word(w).rend());
      ASSERT_EQ(count_paths(automaton, words.word(w)), count_paths(reversed, backwards));
    }
  }
}

// --- enumeration ----------------------------------------------------------------------------------------------------

TEST(Enumeration, KnowsAWorkedExample) {
  Scores scores{2, 2, {1, 2, 0.5, -1}, {0, 0.25, -inf, 3}, {}, {}};
  const Enumeration all(everything(2), scores);  // AA 1.5, AB 0.25, BA -inf, BB 4
  const double z = std::exp(1.5) + std::exp(0.25) + std::exp(4);
  EXPECT_EQ(all.paths().size(), 4u);
  EXPECT_NEAR(static_cast<double>(all.log_z()), std::log(z), 1e-15);
  EXPECT_EQ(all.best(), 4);
  EXPECT_EQ(all.k_best(9).size(), 3u);
  EXPECT_EQ(all.k_best(2)[1].labels, (std::vector<Label>{0, 0}));
  expect_all_close(std::vector<double>{std::exp(1.5) / z, std::exp(0.25) / z, 0, std::exp(4) / z},
                   all.marginals().bigrams, 1e-15, "bigrams");
  expect_close(0, all.language_mass(), 1e-15L, "mass");
}

TEST(Enumeration, RefusesAnAmbiguousAutomaton) {
  Automaton automaton;
  automaton.accepting = {0, 1, 1};
  automaton.arcs = {{0, 0, 1}, {0, 0, 2}};
  EXPECT_THROW(Enumeration(automaton, Scores{1, 1, {0}, {0}, {}, {}}), std::logic_error);
}

TEST(Enumeration, CountsTheEmptySequence) {
  const Scores none{0, 1, {}, {0}, {}, {}};
  EXPECT_EQ(Enumeration(everything(1), none).log_z(), 0);
  Automaton one;
  one.accepting = {0, 1};
  one.arcs = {{0, 0, 1}};
  EXPECT_EQ(Enumeration(one, none).log_z(), -inf);
}

// Central differences of `value` in every score against `gradient`.
template <class Value>
void expect_gradient(const Case& c, const Counts& gradient, Value value, const char* what) {
  const auto check = [&](std::vector<double> Scores::*part, const std::vector<Real>& expected) {
    for (std::size_t i = 0; i < (c.scores.*part).size(); ++i) {
      const double step = 1e-5;
      Scores up = c.scores, down = c.scores;
      (up.*part)[i] += step;
      (down.*part)[i] -= step;
      const Real slope = (value(Enumeration(c.automaton, up)) - value(Enumeration(c.automaton, down))) / (2 * step);
      ASSERT_NEAR(static_cast<double>(slope), static_cast<double>(expected[i]), 1e-8) << what;
    }
  };
  check(&Scores::emissions, gradient.labels);
  check(&Scores::transitions, gradient.bigrams);
  check(&Scores::start, gradient.start);
  check(&Scores::end, gradient.end);
}

TEST(Enumeration, GradientsAreDerivatives) {
  Random random(3);
  for (int i = 0; i < 60; ++i) {
    const Case c = random_case(random, automaton_kinds[i % 3], ScoreKind::normal, 4);
    const Enumeration all(c.automaton, c.scores);
    if (all.paths().empty()) continue;
    const std::vector<Label> gold = all.paths()[random.below(static_cast<int>(all.paths().size()))].labels;
    std::vector<std::uint8_t> allowed(c.scores.emissions.size(), 0);
    for (std::size_t t = 0; t < gold.size(); ++t) allowed[t * static_cast<std::size_t>(c.scores.labels) + gold[t]] = 1;
    for (std::uint8_t& flag : allowed) flag = flag || random.chance(0.5);

    expect_gradient(
        c, all.nll_gradient(gold), [&](const Enumeration& e) { return e.nll(gold); }, "nll");
    expect_gradient(
        c, all.entropy_gradient(), [](const Enumeration& e) { return e.entropy(); }, "entropy");
    const Scores v = random_scores(random, ScoreKind::normal, c.scores.length, c.scores.labels, true);
    expect_gradient(
        c, all.curvature(v), [&](const Enumeration& e) { return e.slope(v); }, "slope");
    expect_gradient(
        c, all.language_mass_gradient(), [](const Enumeration& e) { return e.language_mass(); }, "mass");
    expect_gradient(
        c, all.partial_nll_gradient(allowed), [&](const Enumeration& e) { return e.partial_nll(allowed); }, "partial");
  }
}

// --- the dense pass -------------------------------------------------------------------------------------------------

TEST(Dense, AgreesWithEnumeration) {
  Random random(4);
  for (int i = 0; i < 600; ++i) {
    const Case c = random_case(random, automaton_kinds[i % 3], score_kinds[i % 5], 6);
    const Enumeration all(c.automaton, c.scores);
    const DenseResult result = dense(c.automaton, c.scores);
    const Counts marginals = all.marginals();
    expect_close(all.log_z(), result.log_z, 1e-15L, "log_z");
    expect_close(all.best(), result.best, 1e-15L, "best");
    expect_close(all.entropy(), result.entropy, 1e-13L, "entropy");
    expect_all_close(marginals.labels, result.labels, 1e-13, "labels");
    expect_all_close(marginals.bigrams, result.bigrams, 1e-13, "bigrams");
    expect_all_close(marginals.start, result.start, 1e-13, "start");
    expect_all_close(marginals.end, result.end, 1e-13, "end");
  }
}

TEST(Dense, FollowsForcedPaths) {
  Random random(5);
  for (int length : {1, 3, 7}) {
    for (const Forced& forced :
         {forced_by_parity(random, length), forced_by_end(random, length), forced_single(random, length)}) {
      const Enumeration all(forced.automaton, forced.scores);
      const DenseResult result = dense(forced.automaton, forced.scores);
      expect_close(all.log_z(), result.log_z, 1e-15L, "log_z");
      expect_all_close(all.marginals().labels, result.labels, 1e-12, "labels");
    }
  }
}

// --- tags -----------------------------------------------------------------------------------------------------------

template <class R>
void expect_tags_agree(const Tags& tags, const Case& c, double tolerance) {
  const Enumeration all(c.automaton, c.scores);
  if (all.log_z() == -inf) return;
  const std::vector<R> emissions(c.scores.emissions.begin(), c.scores.emissions.end());
  const std::vector<R> transitions(c.scores.transitions.begin(), c.scores.transitions.end());
  const std::vector<R> start(c.scores.start.begin(), c.scores.start.end()),
      end(c.scores.end.begin(), c.scores.end.end());
  const DenseTags<R> crf(tags, transitions, c.scores.labels);
  const TagBatch<R> batch{1, static_cast<std::size_t>(c.scores.length), emissions, start, end};
  const TagResult<R> result = crf.gradients(batch);
  const TagPaths<R> best = crf.viterbi(batch);
  expect_close(all.log_z(), result.log_z[0], tolerance, "log_z");
  expect_close(all.log_z(), crf.log_z(batch)[0], tolerance, "log_z in logs");
  expect_close(all.best(), best.score[0], tolerance, "best");
  expect_close(all.best(), score_of(c.scores, best.paths[0]), tolerance, "the best path's score");
  EXPECT_EQ(count_paths(c.automaton, best.paths[0]), 1);
  expect_all_close(all.marginals().labels, result.labels, tolerance, "labels");
  expect_all_close(all.marginals().bigrams, result.bigrams, tolerance, "bigrams");
}

TEST(Tags, BothConstructionsAgreeWithEnumeration) {
  Random random(6);
  for (int i = 0; i < 300; ++i) {
    const Case c = random_case(random, automaton_kinds[i % 3], i % 2 ? ScoreKind::normal : ScoreKind::holes, 5);
    expect_tags_agree<double>(arcs_as_tags(c.automaton), c, 1e-12);
    expect_tags_agree<double>(classes_as_tags(c.automaton), c, 1e-12);
    expect_tags_agree<float>(classes_as_tags(c.automaton), c, 2e-5);
  }
}

TEST(Tags, BatchIsItsSequences) {
  Random random(7);
  const Automaton automaton = random_automaton(random, AutomatonKind::product, 3, 6);
  const Scores x = random_scores(random, ScoreKind::normal, 8, 3, false),
               y = random_scores(random, ScoreKind::normal, 8, 3, false);
  std::vector<double> both = x.emissions;
  both.insert(both.end(), y.emissions.begin(), y.emissions.end());
  const DenseTags<double> crf(arcs_as_tags(automaton), x.transitions, 3);
  const TagResult<double> batch = crf.gradients({2, 8, both, {}, {}});
  const TagResult<double> first = crf.gradients({1, 8, x.emissions, {}, {}}),
                          second = crf.gradients({1, 8, y.emissions, {}, {}});
  EXPECT_DOUBLE_EQ(batch.log_z[0], first.log_z[0]);
  EXPECT_DOUBLE_EQ(batch.log_z[1], second.log_z[0]);
  for (std::size_t i = 0; i < 9; ++i) EXPECT_NEAR(batch.bigrams[i], first.bigrams[i] + second.bigrams[i], 1e-12);
}

TEST(Tags, SizesAreThePapers) {
  const Automaton automaton = algorithm1(paper_roles());
  EXPECT_EQ(arcs_as_tags(automaton).size(), 2592u);
  EXPECT_EQ(classes_as_tags(automaton).size(), 1312u);
}

// --- the matcher ----------------------------------------------------------------------------------------------------

Pattern leaf(Op op, std::vector<Label> labels = {}, int least = 0) { return {op, std::move(labels), {}, least, 0}; }

TEST(Matcher, KnowsWorkedExamples) {
  const Pattern a = leaf(Op::label, {0}), b = leaf(Op::label, {1});
  const Pattern ab{Op::concat, {}, {a, b}, 0, 0}, twice{Op::repeat, {}, {ab}, 2, 2}, plus{Op::repeat, {}, {ab}, 1, -1};
  EXPECT_TRUE(matches(twice, {0, 1, 0, 1}));
  EXPECT_FALSE(matches(twice, {0, 1}));
  EXPECT_TRUE(matches(plus, {0, 1, 0, 1, 0, 1}));
  EXPECT_FALSE(matches(plus, {}));
  EXPECT_TRUE(matches({Op::complement, {}, {plus}, 0, 0}, {}));
  EXPECT_TRUE(matches(leaf(Op::before, {0, 1}), {2, 0, 1, 1}));
  EXPECT_FALSE(matches(leaf(Op::before, {0, 1}), {1, 0}));
  EXPECT_FALSE(matches(leaf(Op::requires_, {0, 1}), {0, 2}));
  EXPECT_TRUE(matches(leaf(Op::requires_, {0, 1}), {1, 0}));
  EXPECT_FALSE(matches(leaf(Op::ordered, {0, 1, 2}), {0, 2, 1}));
  EXPECT_TRUE(matches(leaf(Op::ordered, {0, 1, 2}), {0, 0, 2, 2}));
  EXPECT_TRUE(matches(leaf(Op::once_contiguous, {0}), {1, 0, 0, 1}));
  EXPECT_FALSE(matches(leaf(Op::once_contiguous, {0}), {0, 1, 0}));
  EXPECT_TRUE(matches(leaf(Op::exactly, {0}, 2), {0, 1, 0}));
}

TEST(Matcher, OneWordAndAllWordsAgree) {
  Random random(8);
  const Domain words = Domain::words_up_to(4, 3);
  for (int i = 0; i < 200; ++i) {
    const Pattern pattern = random_pattern(random, 3, 3);
    const Domain::Set all = words.matches(pattern);
    const std::size_t w = static_cast<std::size_t>(random.below(static_cast<int>(words.size())));
    ASSERT_EQ(all[w], matches(pattern, words.word(w)));
  }
}

void collect(const Pattern& pattern, std::set<Op>& ops) {
  ops.insert(pattern.op);
  for (const Pattern& part : pattern.parts) collect(part, ops);
}

TEST(Matcher, RandomPatternsUseEveryOperator) {
  Random random(9);
  std::set<Op> ops;
  for (int i = 0; i < 200; ++i) collect(random_pattern(random, 3, 4), ops);
  EXPECT_EQ(ops.size(), 17u);
}

TEST(Matcher, PrinterKeepsTheBinding) {
  const Pattern a = leaf(Op::label, {0}), b = leaf(Op::label, {1});
  const Pattern negated{Op::complement, {}, {a}, 0, 0}, either{Op::either, {}, {a, b}, 0, 0};
  const std::vector<std::string> names = {"A", "B"};
  std::set<std::string> texts;
  Random random(10);
  for (int i = 0; i < 400; ++i)
    texts.insert(print({Op::concat, {}, {{Op::repeat, {}, {negated}, 0, -1}, either}, 0, 0}, names, random));
  EXPECT_TRUE(texts.count("(!A)* (A|B)"));
}

}  // namespace
}  // namespace regccrf::oracle
