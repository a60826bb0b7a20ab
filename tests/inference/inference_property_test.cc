// Inference against the enumeration of all legal sequences: random languages, scores and lengths, in both precisions.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "regccrf/constraint.h"
#include "regccrf/error.h"
#include "regccrf/inference.h"
#include "regccrf/loss.h"
#include "tests/inference/inference_fixture.h"
#include "tests/inference/triples.h"
#include "tests/oracle/automata.h"
#include "tests/oracle/enumerate.h"
#include "tests/oracle/random.h"

namespace regccrf {
namespace {

using oracle::Counts;
using oracle::Enumeration;
using oracle::Random;

constexpr int triples = 6000;

template <class Real>
struct Gradient {
  explicit Gradient(const Instance<Real>& x)
      : emissions(x.emissions.size(), 7),
        transitions(x.transitions.size(), 7),
        start(x.start.size(), 7),
        end(x.end.size(), 7) {}
  Gradients<Real> view() {
    Gradients<Real> gradients;
    gradients.emissions = emissions;
    gradients.transitions = transitions;
    gradients.start = start;
    gradients.end = end;
    return gradients;
  }
  std::vector<Real> emissions, transitions, start, end;
};

template <class Real>
void expect_gradient(const Counts& expected, const Gradient<Real>& actual, const std::string& what) {
  expect_all(expected.labels, actual.emissions, tolerance<Real>, what + " by emissions");
  expect_all(expected.bigrams, actual.transitions, tolerance<Real>, what + " by transitions");
  if (!actual.start.empty()) expect_all(expected.start, actual.start, tolerance<Real>, what + " by start");
  if (!actual.end.empty()) expect_all(expected.end, actual.end, tolerance<Real>, what + " by end");
}

// Runs `check(triple, enumeration, instance)` on every triple, or on those with a possible sequence.
template <class Real, class Check>
void for_each_triple(Check check) {
  for (int i = 0; i < triples; ++i) {
    const Triple x = triple(i);
    SCOPED_TRACE(x.name);
    try {
      check(x, Enumeration(x.automaton, x.scores), Instance<Real>(x.scores));
    } catch (const std::exception& error) {
      ADD_FAILURE() << error.what();
    }
    if (::testing::Test::HasFatalFailure()) return;
  }
}

template <class Real, class Check>
void for_each_possible(Check check) {
  for_each_triple<Real>([&check](const Triple& x, const Enumeration& all, const Instance<Real>& instance) {
    if (all.log_z() != -inf) check(x, all, instance);
  });
}

template <class Real>
class InferenceProperty : public ::testing::Test {};
TYPED_TEST_SUITE(InferenceProperty, Precisions);

TYPED_TEST(InferenceProperty, LogZ) {
  for_each_triple<TypeParam>([](const Triple& x, const Enumeration& all, const Instance<TypeParam>& instance) {
    expect_value(all.log_z(), log_z(x.constraint, instance.view()).at(0), tolerance<TypeParam>, "log_z");
  });
}

TYPED_TEST(InferenceProperty, ViterbiFindsABestSequenceOfTheLanguage) {
  for_each_possible<TypeParam>([](const Triple& x, const Enumeration& all, const Instance<TypeParam>& instance) {
    const Path best = viterbi(x.constraint, instance.view()).at(0);
    EXPECT_TRUE(is_member(x, best.labels));
    expect_value(all.best(), best.score, tolerance<TypeParam>, "score");
    expect_value(score_of(x.scores, best.labels), best.score, 1e-12, "the path's own score");
    expect_value(all.best(), viterbi_score(x.constraint, instance.view()).at(0), tolerance<TypeParam>, "score alone");
  });
}

TYPED_TEST(InferenceProperty, KBestAreDistinctOrderedAndBest) {
  for_each_possible<TypeParam>([](const Triple& x, const Enumeration& all, const Instance<TypeParam>& instance) {
    const int k = 1 + static_cast<int>(x.automaton.arcs.size()) % 12;
    const std::vector<Path> found = k_best(x.constraint, instance.view(), k).at(0);
    expect_k_best(x, all.k_best(static_cast<std::size_t>(k)), found, tolerance<TypeParam>);
  });
}

TYPED_TEST(InferenceProperty, LabelMarginals) {
  for_each_possible<TypeParam>([](const Triple& x, const Enumeration& all, const Instance<TypeParam>& instance) {
    std::vector<TypeParam> out(instance.emissions.size(), 7);
    label_marginals<TypeParam>(x.constraint, instance.view(), out);
    expect_all(all.marginals().labels, out, tolerance<TypeParam>, "marginals");
  });
}

TYPED_TEST(InferenceProperty, BigramMarginals) {
  for_each_possible<TypeParam>([](const Triple& x, const Enumeration& all, const Instance<TypeParam>& instance) {
    std::vector<TypeParam> out(instance.emissions.size() * static_cast<std::size_t>(x.scores.labels), 7);
    bigram_marginals<TypeParam>(x.constraint, instance.view(), out);
    std::vector<oracle::Real> expected = all.marginals().pairs;
    expected.resize(out.size(), 0);  // nothing follows the last position
    expect_all(expected, out, tolerance<TypeParam>, "marginals");
  });
}

TYPED_TEST(InferenceProperty, StateMarginals) {
  for_each_possible<TypeParam>([](const Triple& x, const Enumeration&, const Instance<TypeParam>& instance) {
    const Automaton& automaton = x.constraint.automaton();
    const std::size_t size = static_cast<std::size_t>(x.scores.length) * automaton.accepting.size();
    std::vector<TypeParam> out(size, 7);
    state_marginals<TypeParam>(x.constraint, instance.view(), out);
    std::vector<oracle::Real> expected = Enumeration(automaton, x.scores).marginals().states;
    expected.resize(size);  // the state after the last position is not asked for
    expect_all(expected, out, tolerance<TypeParam>, "marginals");
  });
}

// Spans of legal sequences and of none, with and without neighbours that may not stand beside them, at any place.
std::vector<Span> random_spans(const Triple& x, const Enumeration& all, Random& random) {
  const int T = x.scores.length, K = x.scores.labels;
  std::vector<Span> spans;
  for (int i = 0; i < 8 && T > 0; ++i) {
    const int begin = random.between(0, T - 1), length = random.between(1, T - begin);
    const auto& from = all.paths()[static_cast<std::size_t>(i) % all.paths().size()].labels;
    Span span{.sequence = 0, .begin = begin, .labels = {from.begin() + begin, from.begin() + begin + length}};
    if (i == 7) span.labels[0] = random.between(0, K - 1);
    for (Label a = 0; a < K; ++a) {
      if (random.chance(0.3)) span.not_before.push_back(a);
      if (random.chance(0.3)) span.not_after.push_back(a);
    }
    spans.push_back(span);
  }
  return spans;
}

bool has_span(const std::vector<Label>& y, const Span& span) {
  const auto holds = [](const std::vector<Label>& labels, Label a) {
    return std::count(labels.begin(), labels.end(), a) > 0;
  };
  const std::size_t begin = static_cast<std::size_t>(span.begin), end = begin + span.labels.size();
  if (!std::equal(span.labels.begin(), span.labels.end(), y.begin() + span.begin)) return false;
  if (begin > 0 && holds(span.not_before, y[begin - 1])) return false;
  return end == y.size() || !holds(span.not_after, y[end]);
}

TYPED_TEST(InferenceProperty, SpanMarginals) {
  Random random(11);
  for_each_possible<TypeParam>([&](const Triple& x, const Enumeration& all, const Instance<TypeParam>& instance) {
    const std::vector<Span> spans = random_spans(x, all, random);
    std::vector<oracle::Real> expected(spans.size(), 0);
    for (std::size_t i = 0; i < spans.size(); ++i) {
      for (std::size_t p = 0; p < all.paths().size(); ++p) {
        if (has_span(all.paths()[p].labels, spans[i])) expected[i] += all.probabilities()[p];
      }
    }
    expect_all(expected, span_marginals<TypeParam>(x.constraint, instance.view(), spans), tolerance<TypeParam>, "kept");
    Options options;
    options.keep_bytes = 1;
    expect_all(expected, span_marginals<TypeParam>(x.constraint, instance.view(), spans, options), tolerance<TypeParam>,
               "checkpointed");
  });
}

TYPED_TEST(InferenceProperty, NllAndItsGradient) {
  for_each_possible<TypeParam>([](const Triple& x, const Enumeration& all, const Instance<TypeParam>& instance) {
    const std::vector<oracle::Path> legal = all.k_best(all.paths().size());
    const std::vector<Label> gold = legal[legal.size() / 2].labels;
    Gradient<TypeParam> gradient(instance);
    const Loss loss = nll<TypeParam>(x.constraint, instance.view(), gold, gradient.view());
    expect_value(all.nll(gold), loss.values.at(0), tolerance<TypeParam>, "nll");
    expect_value(all.nll(gold), nll<TypeParam>(x.constraint, instance.view(), gold).values.at(0), tolerance<TypeParam>,
                 "nll alone");
    expect_gradient(all.nll_gradient(gold), gradient, "nll");
  });
}

std::vector<std::uint8_t> random_allowed(const std::vector<Label>& gold, int labels, Random& random) {
  std::vector<std::uint8_t> allowed(gold.size() * static_cast<std::size_t>(labels), 0);
  for (std::uint8_t& flag : allowed) flag = random.chance(0.4);
  for (std::size_t t = 0; t < gold.size(); ++t) allowed[t * static_cast<std::size_t>(labels) + gold[t]] = 1;
  return allowed;
}

TYPED_TEST(InferenceProperty, PartialNllAndItsGradient) {
  Random random(11);
  for_each_possible<TypeParam>([&random](const Triple& x, const Enumeration& all, const Instance<TypeParam>& instance) {
    const std::vector<oracle::Path> legal = all.k_best(all.paths().size());
    const std::vector<Label> gold = legal[random.below(static_cast<int>(legal.size()))].labels;
    const std::vector<std::uint8_t> allowed = random_allowed(gold, x.scores.labels, random);
    Gradient<TypeParam> gradient(instance);
    const Loss loss = partial_nll<TypeParam>(x.constraint, instance.view(), allowed, gradient.view());
    expect_value(all.partial_nll(allowed), loss.values.at(0), tolerance<TypeParam>, "partial nll");
    expect_gradient(all.partial_nll_gradient(allowed), gradient, "partial nll");
  });
}

TYPED_TEST(InferenceProperty, EntropyAndItsGradient) {
  for_each_possible<TypeParam>([](const Triple& x, const Enumeration& all, const Instance<TypeParam>& instance) {
    Gradient<TypeParam> gradient(instance);
    const Loss loss = entropy<TypeParam>(x.constraint, instance.view(), gradient.view());
    expect_value(all.entropy(), loss.values.at(0), tolerance<TypeParam>, "entropy");
    expect_value(all.entropy(), entropy<TypeParam>(x.constraint, instance.view()).at(0), tolerance<TypeParam>,
                 "entropy alone");
    expect_gradient(all.entropy_gradient(), gradient, "entropy");
  });
}

TYPED_TEST(InferenceProperty, CurvatureAlongADirection) {
  for_each_possible<TypeParam>([](const Triple& x, const Enumeration& all, const Instance<TypeParam>& instance) {
    oracle::Random random(static_cast<std::uint64_t>(x.automaton.arcs.size()));
    const oracle::Scores v =
        oracle::random_scores(random, oracle::ScoreKind::normal, x.scores.length, x.scores.labels, random.chance(0.5));
    const Instance<TypeParam> along(v);
    Gradient<TypeParam> gradient(instance);
    const Direction<TypeParam> direction{along.emissions, along.transitions, along.start, along.end};
    const Loss loss = curvature<TypeParam>(x.constraint, instance.view(), direction, gradient.view());
    expect_value(all.slope(v), loss.values.at(0), tolerance<TypeParam>, "slope");
    expect_value(all.slope(v), curvature<TypeParam>(x.constraint, instance.view(), direction, {}).values.at(0),
                 tolerance<TypeParam>, "slope alone");
    expect_gradient(all.curvature(v), gradient, "curvature");
  });
}

TYPED_TEST(InferenceProperty, LanguageMassAndItsGradient) {
  for_each_possible<TypeParam>([](const Triple& x, const Enumeration& all, const Instance<TypeParam>& instance) {
    Gradient<TypeParam> gradient(instance);
    const Loss loss = language_mass<TypeParam>(x.constraint, instance.view(), gradient.view());
    expect_value(all.language_mass(), loss.values.at(0), tolerance<TypeParam>, "mass");
    expect_value(all.language_mass(), language_mass<TypeParam>(x.constraint, instance.view()).at(0),
                 tolerance<TypeParam>, "mass alone");
    expect_gradient(all.language_mass_gradient(), gradient, "mass");
  });
}

// Finite scores count as at most 1e10 in size, whatever pass a sequence gets and wherever gold runs.
TYPED_TEST(InferenceProperty, HugeScores) {
  const double largest = std::numeric_limits<float>::max();
  int huge = 0;
  for_each_possible<TypeParam>([&](Triple x, const Enumeration&, const Instance<TypeParam>&) {
    Random random(static_cast<std::uint64_t>(++huge));
    oracle::Scores bounded = x.scores;
    const double far[] = {-largest, -1e30, -3e10, 2e10, 1e12, largest};
    const auto change = [&](std::vector<double>& numbers, std::vector<double>& kept) {
      for (std::size_t i = 0; i < numbers.size(); ++i) {
        if (numbers[i] == -inf || !random.chance(0.3)) continue;
        numbers[i] = static_cast<float>(far[random.below(random.chance(0.8) ? 3 : 6)]);
        kept[i] = std::clamp(numbers[i], -1e10, 1e10);
      }
    };
    change(x.scores.emissions, bounded.emissions);
    if (random.chance(0.5)) change(x.scores.transitions, bounded.transitions);
    change(x.scores.start, bounded.start);
    change(x.scores.end, bounded.end);
    const Enumeration all(x.automaton, bounded);
    const Instance<TypeParam> instance(x.scores);
    const double near = 1e-4;  // around 1e10, numbers lie 2e-6 apart
    const auto expect_near = [&](oracle::Real expected, double actual, const char* what) {
      EXPECT_NEAR(static_cast<double>(expected), actual, near + 1e-12 * std::fabs(actual)) << what;
    };
    expect_near(all.log_z(), log_z<TypeParam>(x.constraint, instance.view()).at(0), "log_z");
    EXPECT_NEAR(static_cast<double>(all.best()), viterbi<TypeParam>(x.constraint, instance.view()).at(0).score,
                tolerance<TypeParam> * 1e10);
    Gradient<TypeParam> gradient(instance);
    const std::size_t chosen = static_cast<std::size_t>(random.below(static_cast<int>(all.paths().size())));
    const oracle::Path& path = all.paths()[chosen];
    if (path.score == -inf) return;
    const Loss loss = nll<TypeParam>(x.constraint, instance.view(), path.labels, gradient.view());
    expect_near(all.nll(path.labels), loss.values.at(0), "nll");
    expect_all(all.nll_gradient(path.labels).labels, gradient.emissions, near, "nll by emissions");
    std::vector<TypeParam> marginals(instance.emissions.size());
    label_marginals<TypeParam>(x.constraint, instance.view(), marginals);
    expect_all(all.marginals().labels, marginals, near, "marginals");
    expect_near(all.entropy(), entropy<TypeParam>(x.constraint, instance.view()).at(0), "entropy");
  });
}

TYPED_TEST(InferenceProperty, PosteriorDecodingStaysInTheLanguage) {
  for_each_possible<TypeParam>([](const Triple& x, const Enumeration& all, const Instance<TypeParam>& instance) {
    const Path found = posterior_decode(x.constraint, instance.view()).at(0);
    EXPECT_TRUE(is_member(x, found.labels));
    expect_value(all.best_posterior_score(), found.score, tolerance<TypeParam>, "sum of marginals");
    expect_value(all.posterior_score(found.labels), found.score, tolerance<TypeParam>, "the path's own sum");
  });
}

TYPED_TEST(InferenceProperty, SamplesAreInTheLanguage) {
  for_each_possible<TypeParam>([](const Triple& x, const Enumeration&, const Instance<TypeParam>& instance) {
    for (double temperature : {1.0, 0.25, 4.0}) {
      const std::vector<Path> samples = sample(x.constraint, instance.view(), {5, 3, temperature, {}}).at(0);
      ASSERT_EQ(samples.size(), 5u);
      for (const Path& path : samples) {
        EXPECT_TRUE(is_member(x, path.labels));
        EXPECT_GT(path.score, -inf);
        expect_value(score_of(x.scores, path.labels), path.score, 1e-12, "the path's own score");
      }
    }
  });
}

TYPED_TEST(InferenceProperty, ImpossibleSequencesAreErrorsOrEmptyAnswers) {
  int impossible = 0;
  for_each_triple<TypeParam>(
      [&impossible](const Triple& x, const Enumeration& all, const Instance<TypeParam>& instance) {
        if (all.log_z() != -inf) return;
        ++impossible;
        const Scores<TypeParam> scores = instance.view();
        std::vector<TypeParam> out(instance.emissions.size(), 7);
        EXPECT_EQ(viterbi_score(x.constraint, scores).at(0), -inf);
        EXPECT_EQ(language_mass<TypeParam>(x.constraint, scores, {.impossible = Impossible::allow}).at(0), -inf);
        EXPECT_THROW(viterbi(x.constraint, scores), Error);
        EXPECT_THROW(k_best(x.constraint, scores, 2), Error);
        EXPECT_THROW(sample(x.constraint, scores), Error);
        EXPECT_THROW(posterior_decode(x.constraint, scores), Error);
        EXPECT_THROW(entropy(x.constraint, scores), Error);
        EXPECT_THROW(label_marginals<TypeParam>(x.constraint, scores, out), Error);
        const std::vector<Label> gold(static_cast<std::size_t>(x.scores.length), 0);
        EXPECT_THROW(nll<TypeParam>(x.constraint, scores, gold), Error);

        const Options allow{.impossible = Impossible::allow};
        EXPECT_EQ(viterbi(x.constraint, scores, allow).at(0).score, -inf);
        EXPECT_TRUE(viterbi(x.constraint, scores, allow).at(0).labels.empty());
        EXPECT_TRUE(k_best(x.constraint, scores, 2, allow).at(0).empty());
        label_marginals<TypeParam>(x.constraint, scores, out, allow);
        for (TypeParam value : out) ASSERT_EQ(value, 0);
        LossOptions skip;
        skip.outside = OutsideGold::skip;
        EXPECT_EQ(nll<TypeParam>(x.constraint, scores, gold, {}, skip).skipped_count(), 1);
      });
  EXPECT_GT(impossible, 100);
}

TYPED_TEST(InferenceProperty, GoldOutsideTheLanguageIsAnError) {
  Random random(12);
  int outside = 0;
  for_each_possible<TypeParam>([&](const Triple& x, const Enumeration&, const Instance<TypeParam>& instance) {
    std::vector<Label> gold(static_cast<std::size_t>(x.scores.length));
    for (Label& label : gold) label = random.below(x.scores.labels);
    const bool is_possible = is_member(x, gold) && score_of(x.scores, gold) != -inf;
    if (is_possible) return;
    ++outside;
    EXPECT_THROW(nll<TypeParam>(x.constraint, instance.view(), gold), Error);
  });
  EXPECT_GT(outside, 100);
}

// --- batches --------------------------------------------------------------------------------------------------------

// Sequences over several languages, padded and with the time first, some positions masked out. The oracle sees each
// sequence without its masked positions.
template <class Real>
struct RandomBatch {
  explicit RandomBatch(int seed)
      : random(static_cast<std::uint64_t>(seed)), longest(6), sequences(random.between(1, 7)) {
    for (int i = 0; i < 3; ++i) {
      automata.push_back(oracle::random_automaton(random, oracle::automaton_kinds[i], K, 6));
      constraints.push_back(Constraint::from_automaton(automata.back(), numbered_labels(K)));
    }
    shared = oracle::random_scores(random, oracle::ScoreKind::normal, longest * sequences, K, true);
    mask.resize(static_cast<std::size_t>(longest * sequences));
    for (std::uint8_t& flag : mask) flag = random.chance(0.7);
    for (int i = 0; i < sequences; ++i) {
      which.push_back(random.below(3));
      length.push_back(random.between(0, longest));
      alone.push_back(without_masked(i));
    }
  }

  oracle::Scores without_masked(int i) const {
    oracle::Scores scores = shared;
    scores.length = 0;
    scores.emissions.clear();
    for (int row : rows_of(i)) {
      ++scores.length;
      for (Label a = 0; a < K; ++a) scores.emissions.push_back(shared.emission(row, a));
    }
    return scores;
  }

  std::vector<int> rows_of(int i) const {
    std::vector<int> rows;
    for (int t = 0; t < length[static_cast<std::size_t>(i)]; ++t) {
      const int row = t * sequences + i;
      if (mask[static_cast<std::size_t>(row)]) rows.push_back(row);
    }
    return rows;
  }

  Layout layout() const { return Layout::time_first(longest, sequences).with_lengths(length).with_mask(mask); }
  Constraints choice() const { return {constraints, which}; }

  static constexpr int K = 3;
  Random random;
  int longest, sequences;
  std::vector<Automaton> automata;
  std::vector<Constraint> constraints;
  std::vector<std::int32_t> which;
  std::vector<std::int64_t> length;
  std::vector<std::uint8_t> mask;
  oracle::Scores shared;              // emissions: [longest, sequences, K]
  std::vector<oracle::Scores> alone;  // [B]
};

TYPED_TEST(InferenceProperty, BatchesAreTheirSequences) {
  const Options allow{.threads = 2, .impossible = Impossible::allow};
  Workspace workspace;
  for (int seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE("batch " + std::to_string(seed));
    const RandomBatch<TypeParam> batch(seed);
    const Instance<TypeParam> instance(batch.shared);
    const Scores<TypeParam> scores = instance.view(batch.layout());
    Options options = allow;
    options.workspace = seed % 2 ? &workspace : nullptr;
    std::vector<TypeParam> marginals(instance.emissions.size(), 7);
    label_marginals<TypeParam>(batch.choice(), scores, marginals, options);
    const std::vector<double> z = log_z(batch.choice(), scores, options);
    const std::vector<Path> best = viterbi(batch.choice(), scores, options);
    for (int i = 0; i < batch.sequences; ++i) {
      const Enumeration all(batch.automata[batch.which[i]], batch.alone[i]);
      expect_value(all.log_z(), z[i], tolerance<TypeParam>, "log_z");
      expect_value(all.best(), best[i].score, tolerance<TypeParam>, "score");
      const std::vector<int> rows = batch.rows_of(i);
      std::vector<TypeParam> found;
      for (int row : rows) found.insert(found.end(), marginals.begin() + row * 3, marginals.begin() + row * 3 + 3);
      expect_all(all.marginals().labels, found, tolerance<TypeParam>, "marginals");
    }
  }
}

// Gold for a batch, random weights, and the gradient of the weighted nll.
struct WeightedNll {
  template <class Real>
  explicit WeightedNll(RandomBatch<Real>& batch)
      : gold(batch.mask.size(), -100), emissions(batch.mask.size() * 3, 7), bigrams(9, 0), start(3, 0), end(3, 0) {
    for (int i = 0; i < batch.sequences; ++i) {
      weights.push_back(batch.random.between(-2, 2) / 2.0);
      for (std::int64_t t = 0; t < batch.length[i]; ++t) set_row(t * batch.sequences + i, {0, 0, 0}, 1);
      add_sequence(batch.rows_of(i), Enumeration(batch.automata[batch.which[i]], batch.alone[i]));
    }
  }

  void add_sequence(const std::vector<int>& rows, const Enumeration& all) {
    skipped += all.paths().empty();
    for (int row : rows) gold[row] = 0;
    if (all.paths().empty()) return;
    const std::vector<Label> chosen = all.paths()[all.paths().size() / 2].labels;
    const Counts gradient = all.nll_gradient(chosen);
    for (std::size_t t = 0; t < rows.size(); ++t) {
      gold[rows[t]] = chosen[t];
      set_row(rows[t], {gradient.labels[t * 3], gradient.labels[t * 3 + 1], gradient.labels[t * 3 + 2]},
              weights.back());
    }
    for (std::size_t a = 0; a < 9; ++a) bigrams[a] += weights.back() * gradient.bigrams[a];
    for (std::size_t a = 0; a < 3; ++a) start[a] += weights.back() * gradient.start[a];
    for (std::size_t a = 0; a < 3; ++a) end[a] += weights.back() * gradient.end[a];
  }

  void set_row(std::int64_t row, const std::vector<oracle::Real>& values, double weight) {
    for (std::size_t a = 0; a < 3; ++a) emissions[static_cast<std::size_t>(row) * 3 + a] = weight * values[a];
  }

  std::vector<Label> gold;
  std::vector<double> weights;
  std::vector<oracle::Real> emissions, bigrams, start, end;  // emissions: 7, as before the call, where no sequence is
  int skipped = 0;
};

TYPED_TEST(InferenceProperty, BatchGradientsAreWeightedSums) {
  LossOptions options;
  options.threads = 2;
  options.outside = OutsideGold::skip;
  for (int seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE("batch " + std::to_string(seed));
    RandomBatch<TypeParam> batch(seed);
    const WeightedNll expected(batch);
    const Instance<TypeParam> instance(batch.shared);
    const Scores<TypeParam> scores = instance.view(batch.layout());
    Gradient<TypeParam> gradient(instance);
    Gradients<TypeParam> out = gradient.view();
    const std::vector<TypeParam> weights(expected.weights.begin(), expected.weights.end());
    out.weights = weights;
    EXPECT_EQ(nll<TypeParam>(batch.choice(), scores, expected.gold, out, options).skipped_count(), expected.skipped);
    expect_all(expected.emissions, gradient.emissions, tolerance<TypeParam>, "emissions");
    expect_all(expected.bigrams, gradient.transitions, tolerance<TypeParam>, "transitions");
    expect_all(expected.start, gradient.start, tolerance<TypeParam>, "start");
    expect_all(expected.end, gradient.end, tolerance<TypeParam>, "end");
  }
}

// --- sampling -------------------------------------------------------------------------------------------------------

// Pearson's statistic; cells with an expectation below 5 are pooled. Returns its normal deviate (Wilson–Hilferty).
double chi_square_deviate(const std::vector<oracle::Real>& probability, const std::vector<int>& observed, int total) {
  double statistic = 0, pooled_expected = 0, pooled_observed = 0;
  int cells = 0;
  const auto add = [&](double expected, double seen) {
    statistic += (seen - expected) * (seen - expected) / expected;
    ++cells;
  };
  for (std::size_t i = 0; i < probability.size(); ++i) {
    const double expected = static_cast<double>(probability[i]) * total;
    if (expected >= 5) {
      add(expected, observed[i]);
      continue;
    }
    pooled_expected += expected;
    pooled_observed += observed[i];
  }
  if (pooled_expected >= 1) add(pooled_expected, pooled_observed);
  const double freedom = cells - 1;
  if (freedom <= 0) return 0;
  const double spread = 2 / (9 * freedom);
  return (std::cbrt(statistic / freedom) - (1 - spread)) / std::sqrt(spread);
}

TYPED_TEST(InferenceProperty, SamplesFollowTheDistribution) {
  const int total = 20000;
  int tested = 0;
  for (int i = 0; tested < 40; ++i) {
    const Triple x = triple(i);
    const Enumeration all(x.automaton, x.scores);
    const bool is_interesting = all.entropy() > 0.7L && all.paths().size() > 3;
    if (!is_interesting) continue;
    ++tested;
    SCOPED_TRACE(x.name);
    std::map<std::vector<Label>, std::size_t> place;
    for (std::size_t p = 0; p < all.paths().size(); ++p) place[all.paths()[p].labels] = p;
    for (double temperature : {1.0, 0.5}) {
      const Sampling sampling{total, 20240601u + static_cast<std::uint64_t>(i), temperature, {}};
      std::vector<int> observed(all.paths().size(), 0);
      const std::vector<std::vector<Path>> samples =
          sample(x.constraint, Instance<TypeParam>(x.scores).view(), sampling);
      for (const Path& path : samples.at(0)) ++observed[place.at(path.labels)];
      const double deviate = chi_square_deviate(all.probabilities(temperature), observed, total);
      EXPECT_LT(deviate, 4.5) << "temperature " << temperature;
      EXPECT_GT(deviate, -4.5) << "temperature " << temperature << ": too even to be random";
    }
  }
}

TYPED_TEST(InferenceProperty, SamplesDependOnSeedAndIdAlone) {
  const Constraint constraint = Constraint::unconstrained(numbered_labels(3));
  Random random(13);
  const oracle::Scores scores = oracle::random_scores(random, oracle::ScoreKind::normal, 12, 3, false);
  const Instance<TypeParam> instance(scores);
  const std::vector<std::int64_t> first = {6, 0}, length = {6, 6};
  const Scores<TypeParam> view = instance.view(Layout::ragged(first, length));
  const std::vector<std::uint64_t> ids = {41, 40};
  const auto both = sample(constraint, view, {8, 5, 1.0, ids}, {.threads = 2});

  Scores<TypeParam> lone = instance.view();
  lone.emissions = lone.emissions.subspan(18);
  const std::vector<std::uint64_t> id = {41};
  const auto one = sample(constraint, lone, {8, 5, 1.0, id});
  for (std::size_t i = 0; i < 8; ++i) EXPECT_EQ(both[0][i].labels, one[0][i].labels);
}

// --- the paper's theory ---------------------------------------------------------------------------------------------

oracle::Scores midpoint(const oracle::Scores& x, const oracle::Scores& y) {
  oracle::Scores middle = x;
  for (auto part :
       {&oracle::Scores::emissions, &oracle::Scores::transitions, &oracle::Scores::start, &oracle::Scores::end}) {
    for (std::size_t i = 0; i < (x.*part).size(); ++i) (middle.*part)[i] = ((x.*part)[i] + (y.*part)[i]) / 2;
  }
  return middle;
}

TEST(Theory, LossIsConvexInTheScores) {
  Random random(14);
  int strictly = 0;
  for (int i = 0; i < triples / 3; ++i) {
    const Triple x = triple(i);
    const std::vector<oracle::Path> legal = Enumeration(x.automaton, x.scores).k_best(1000);
    if (legal.empty()) continue;
    const std::vector<Label> gold = legal[random.below(static_cast<int>(legal.size()))].labels;
    const auto scores = [&](double spread) {
      oracle::Scores s =
          oracle::random_scores(random, oracle::ScoreKind::normal, x.scores.length, x.scores.labels, true);
      for (double& h : s.emissions) h *= spread;
      return s;
    };
    const oracle::Scores left = scores(1 + i % 30), right = scores(1 + i % 7);
    const auto loss = [&](const oracle::Scores& s) {
      return nll<double>(x.constraint, Instance<double>(s).view(), gold).values.at(0);
    };
    const double middle = loss(midpoint(left, right)), mean = (loss(left) + loss(right)) / 2;
    EXPECT_LE(middle, mean + 1e-10 * std::max(1.0, mean)) << x.name;
    strictly += middle < mean - 1e-6;
  }
  EXPECT_GT(strictly, 500);
}

TEST(Theory, ConstraintScalesTheProbabilityOfWhatIsLegal) {
  int removing = 0;
  for (int i = 0; i < triples; ++i) {
    const Triple x = triple(i);
    Random random(static_cast<std::uint64_t>(i));
    const oracle::Scores scores =
        oracle::random_scores(random, oracle::ScoreKind::normal, x.scores.length, x.scores.labels, false);
    const std::vector<oracle::Path> paths = Enumeration(x.automaton, scores).paths();
    if (paths.empty()) continue;
    const Instance<double> instance(scores);
    const Constraint free = Constraint::unconstrained(numbered_labels(x.scores.labels));
    const double log_alpha = -language_mass<double>(x.constraint, instance.view()).at(0);
    const bool removes = static_cast<double>(paths.size()) < std::pow(x.scores.labels, x.scores.length);
    removing += removes;
    SCOPED_TRACE(x.name);
    EXPECT_NEAR(log_alpha, removes ? std::max(log_alpha, 1e-10) : 0, removes ? 0 : 1e-10);
    for (std::size_t p = 0; p < paths.size(); p += 1 + paths.size() / 4) {
      const double constrained = nll<double>(x.constraint, instance.view(), paths[p].labels).values.at(0);
      const double unconstrained = nll<double>(free, instance.view(), paths[p].labels).values.at(0);
      EXPECT_NEAR(constrained, unconstrained - log_alpha, 1e-10 * std::max(1.0, unconstrained));
    }
  }
  EXPECT_GT(removing, 1000);
}

}  // namespace
}  // namespace regccrf
