// The CUDA operations against the oracles, as the CPU's are; skipped where there is no device.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <set>

#include "inference/cuda/layout/step.h"
#include "regccrf/inference.h"
#include "regccrf/language.h"
#include "regccrf/loss.h"
#include "tests/inference/cuda_fixture.h"
#include "tests/inference/inference_fixture.h"
#include "tests/oracle/algorithm1.h"
#include "tests/oracle/dense.h"

namespace regccrf {
namespace {

using oracle::Enumeration;
using oracle::Random;

TYPED_TEST_SUITE(Cuda, Precisions);

TYPED_TEST(Cuda, LogZAndMarginals) {
  for_each_triple(6000, [](const Triple& x, const Enumeration& all, const cuda::DeviceConstraint& constraint) {
    const auto got = run_expectation(constraint, one<TypeParam>(x.scores));
    expect_value(all.log_z(), got.value.at(0), tolerance<TypeParam>, "log_z");
    const auto expected = all.log_z() == -inf ? oracle::Counts{std::vector<oracle::Real>(got.emissions.size()),
                                                               {},
                                                               std::vector<oracle::Real>(got.transitions.size()),
                                                               {},
                                                               {},
                                                               {}}
                                              : all.marginals();
    expect_all(expected.labels, got.emissions, tolerance<TypeParam>, "marginals");
    expect_all(expected.bigrams, got.transitions, tolerance<TypeParam>, "bigrams");
    EXPECT_EQ(got.status[0].outcome, all.log_z() == -inf ? 3 : 0);
  });
}

TYPED_TEST(Cuda, NllAndItsGradient) {
  for_each_triple(3000, [](const Triple& x, const Enumeration& all, const cuda::DeviceConstraint& constraint) {
    if (all.log_z() == -inf || x.scores.length == 0) return;
    for (const oracle::Path& path : {all.paths().front(), all.paths().back()}) {
      if (path.score == -inf) continue;
      const std::vector<std::int64_t> gold(path.labels.begin(), path.labels.end());
      const auto got = run_expectation(constraint, one<TypeParam>(x.scores), gold);
      expect_value(all.nll(path.labels), got.value.at(0),
                   tolerance<TypeParam> * std::max(1.0, std::fabs(static_cast<double>(all.log_z()))), "nll");
      const auto expected = all.nll_gradient(path.labels);
      expect_all(expected.labels, got.emissions, tolerance<TypeParam>, "by emissions");
      expect_all(expected.bigrams, got.transitions, tolerance<TypeParam>, "by transitions");
    }
  });
}

TYPED_TEST(Cuda, GoldOutsideTheLanguageIsNoticed) {
  for_each_triple(1000, [](const Triple& x, const Enumeration& all, const cuda::DeviceConstraint& constraint) {
    if (x.scores.length == 0) return;
    Random random(7);
    std::vector<Label> gold;
    for (int t = 0; t < x.scores.length; ++t) gold.push_back(random.below(x.scores.labels));
    const Membership member = x.constraint.accepts(gold);
    const auto got =
        run_expectation(constraint, one<TypeParam>(x.scores), std::vector<std::int64_t>(gold.begin(), gold.end()));
    const bool possible = member.accepted && score_of(x.scores, gold) != -inf;
    EXPECT_EQ(std::isfinite(got.value[0]), possible);
    EXPECT_EQ(got.status[0].outcome, possible ? 0 : 2);
    if (!member.accepted) {
      EXPECT_EQ(got.status[0].position, member.position);
    }
    if (!possible) {
      for (TypeParam p : got.emissions) EXPECT_EQ(p, 0);
    }
    (void)all;
  });
}

TYPED_TEST(Cuda, ViterbiFindsABestSequenceOfTheLanguage) {
  for_each_triple(6000, [](const Triple& x, const Enumeration& all, const cuda::DeviceConstraint& constraint) {
    const auto got = run_viterbi(constraint, one<TypeParam>(x.scores));
    expect_value(all.best(), got.score.at(0), tolerance<TypeParam>, "score");
    if (all.best() == -inf) {
      EXPECT_EQ(got.status[0].outcome, 3);
      return;
    }
    EXPECT_TRUE(is_member(x, got.labels[0]));
    expect_value(score_of(x.scores, got.labels[0]), got.score[0], 1e-12, "the path's own score");
  });
}

TYPED_TEST(Cuda, SamplesAreTheCpus) {
  for_each_triple(500, [](const Triple& x, const Enumeration& all, const cuda::DeviceConstraint& constraint) {
    if (all.log_z() == -inf || x.scores.length == 0) return;
    const auto got = run_sample(constraint, one<TypeParam>(x.scores), 20, 5, 1.5);
    const Instance<TypeParam> instance(x.scores);
    const auto expected = sample(x.constraint, instance.view(), {20, 5, 1.5, {}}).at(0);
    for (std::size_t n = 0; n < 20; ++n) EXPECT_EQ(expected[n].labels, got[0][n]);
  });
}

TYPED_TEST(Cuda, KBestAreDistinctOrderedAndBest) {
  for_each_triple(3000, [](const Triple& x, const Enumeration& all, const cuda::DeviceConstraint& constraint) {
    const int k = x.automaton.arcs.size() % 7 == 0 ? 1000 : 1 + static_cast<int>(x.automaton.arcs.size()) % 12;
    std::vector<cuda::Status> status;
    const std::vector<Path> found = run_k_best(constraint, one<TypeParam>(x.scores), k, &status).at(0);
    const bool possible = all.log_z() != -inf;
    EXPECT_EQ(status[0].outcome, possible ? 0 : 3);
    expect_k_best(x, possible ? all.k_best(static_cast<std::size_t>(k)) : std::vector<oracle::Path>{}, found,
                  tolerance<TypeParam>);
  });
}

// Languages with states of many arcs, so that groups, fan_ins and every number of lanes occur; against the dense
// oracle.
TYPED_TEST(Cuda, LargerRandomLanguages) {
  bool dense = false, fan_ins = false, two = false;
  for (int i = 0; i < cases(300, 50); ++i) {
    Random random(static_cast<std::uint64_t>(i) + 50000);
    const int labels = random.between(5, 24);
    const Automaton automaton =
        oracle::random_automaton(random, oracle::automaton_kinds[i % 3], labels, random.between(2, 40));
    const auto scores =
        oracle::random_scores(random, oracle::score_kinds[i % 5], random.between(1, 30), labels, random.chance(0.5));
    const Constraint constraint = Constraint::from_automaton(automaton, numbered_labels(labels));
    const StepLayouts layouts = make_step_layouts(constraint.topology(), 32);
    for (const StepLayout& layout : {layouts.forward, layouts.backward}) {
      dense = dense || !layout.groups.empty();
      fan_ins = fan_ins || layout.fan_ins > 0;
      two = two || layout.two;
    }
    SCOPED_TRACE("language " + std::to_string(i));
    const oracle::DenseResult expected = oracle::dense(automaton, scores);
    const cuda::DeviceConstraint there(constraint);
    const auto batch = one<TypeParam>(scores);
    const auto got = run_expectation(there, batch);
    expect_value(expected.log_z, got.value.at(0), tolerance<TypeParam>, "log_z");
    if (expected.log_z == -inf) continue;
    expect_all(expected.labels, got.emissions, tolerance<TypeParam>, "marginals");
    expect_all_sums(expected.bigrams, expected.bigrams, got.transitions, tolerance<TypeParam>, "bigrams");
    const auto best = run_viterbi(there, batch);
    expect_value(expected.best, best.score.at(0), tolerance<TypeParam>, "best");
    EXPECT_TRUE(constraint.accepts(best.labels[0]).accepted);
    if (this->HasFailure()) return;
  }
  EXPECT_TRUE(dense && fan_ins && two);
}

// Scores alone are compared: of equals, any may come first.
template <class Real>
void expect_k_best_like_cpu(const Constraint& constraint, const Ragged<Real>& x, int k) {
  const auto expected = k_best(constraint, x.view(), k, {.impossible = Impossible::allow});
  std::vector<cuda::Status> status;
  const auto found = run_k_best(cuda::DeviceConstraint(constraint), x.there(), k, &status);
  for (std::size_t b = 0; b < expected.size(); ++b) {
    SCOPED_TRACE("sequence " + std::to_string(b));
    EXPECT_EQ(status[b].outcome, expected[b].empty() ? 3 : 0);
    ASSERT_EQ(expected[b].size(), found[b].size());
    std::set<std::vector<Label>> distinct;
    for (std::size_t i = 0; i < found[b].size(); ++i) {
      expect_value(expected[b][i].score, found[b][i].score, 2 * tolerance<Real>, "score " + std::to_string(i));
      EXPECT_EQ(found[b][i].labels.size(), expected[b][i].labels.size());
      EXPECT_TRUE(constraint.accepts(found[b][i].labels).accepted);
      distinct.insert(found[b][i].labels);
    }
    EXPECT_EQ(distinct.size(), found[b].size());
  }
}

TYPED_TEST(Cuda, KBestInRaggedBatches) {
  for (double spread : {1.0, 100.0, 3000.0}) {
    SCOPED_TRACE("spread " + std::to_string(spread));
    expect_k_best_like_cpu(srl(), Ragged<TypeParam>(srl(), cases(8, 2), 40, spread, 14), 20);
  }
  const Constraint everything = Constraint::unconstrained(numbered_labels(47));
  expect_k_best_like_cpu(everything, Ragged<TypeParam>(everything, 4, cases(30, 10), 3.0, 15), cases(700, 150));
  const Constraint pairs = compile(Language::parse("(A B | B A)*"));  // of every even length, and no odd one
  expect_k_best_like_cpu(pairs, Ragged<TypeParam>(pairs, cases(150, 40), 9, 1.0, 16), 9);
  const Constraint bio = compile(Language::parse("(O | B-A I-A* | B-B I-B*)*"));
  Ragged<TypeParam> whole(bio, 1, cases(5000), 2.0, 17, false);
  std::fill(whole.mask.begin(), whole.mask.end(), 1);
  expect_k_best_like_cpu(bio, whole, 30);
}

TYPED_TEST(Cuda, KBestPutsEqualsOutOnce) {
  const Constraint everything = Constraint::unconstrained(numbered_labels(3));
  Ragged<TypeParam> x(everything, 1, 4, 0.0, 18, false);
  std::fill(x.mask.begin(), x.mask.end(), 1);
  const auto found = run_k_best(cuda::DeviceConstraint(everything), x.there(), 100).at(0);
  std::set<std::vector<Label>> distinct;
  for (const Path& path : found) distinct.insert(path.labels);
  EXPECT_EQ(found.size(), 81u);
  EXPECT_EQ(distinct.size(), 81u);
}

TYPED_TEST(Cuda, SrlInRaggedBatches) {
  for (double spread : {1.0, 10.0, 100.0, 3000.0}) {
    SCOPED_TRACE("spread " + std::to_string(spread));
    expect_like_cpu(srl(), Ragged<TypeParam>(srl(), cases(8, 3), cases(64, 20), spread, 11));
    expect_like_cpu(srl(), Ragged<TypeParam>(srl(), cases(3), 300, spread, 12));
  }
  const Constraint everything = Constraint::unconstrained(numbered_labels(47));
  expect_like_cpu(everything, Ragged<TypeParam>(everything, cases(8, 2), 64, 3.0, 13));
}

TYPED_TEST(Cuda, RandomLanguagesInRaggedBatches) {
  for (int i = 0; i < cases(300, 20); ++i) {
    Random random(static_cast<std::uint64_t>(i) + 90000);
    const int labels = random.between(1, 60);
    const Automaton automaton =
        oracle::random_automaton(random, oracle::automaton_kinds[i % 3], labels, random.between(1, 60));
    const Constraint constraint = Constraint::from_automaton(automaton, numbered_labels(labels));
    SCOPED_TRACE("language " + std::to_string(i));
    const double spreads[] = {0.1, 3, 100, 3000};
    const Ragged<TypeParam> x(constraint, random.between(1, 5), random.between(1, 40), spreads[random.below(4)],
                              static_cast<std::uint64_t>(i));
    expect_like_cpu(constraint, x);
    const auto alone = run_expectation(cuda::DeviceConstraint(constraint), x.there(), {}, false);
    const std::vector<double> z = log_z(constraint, x.view());
    for (std::size_t n = 0; n < z.size(); ++n) expect_value(z[n], alone.value[n], tolerance<TypeParam>, "log_z alone");
    if (this->HasFailure()) return;
  }
}

// So many positions that several small blocks share a processor, under small automata.
TYPED_TEST(Cuda, LargeBatches) {
  for (int i = 0; i < cases(60, 4); ++i) {
    Random random(static_cast<std::uint64_t>(i) + 120000);
    const int labels = random.between(1, 60);
    const Automaton automaton =
        oracle::random_automaton(random, oracle::automaton_kinds[i % 3], labels, random.between(1, 30));
    const Constraint constraint = Constraint::from_automaton(automaton, numbered_labels(labels));
    SCOPED_TRACE("language " + std::to_string(i));
    const double spreads[] = {0.1, 3, 100};
    const int T = random.between(1, 40);
    expect_like_cpu(constraint, Ragged<TypeParam>(constraint, random.between(550, 8000) / T, T,
                                                  spreads[random.below(3)], static_cast<std::uint64_t>(i)));
    if (this->HasFailure()) return;
  }
  expect_like_cpu(srl(), Ragged<TypeParam>(srl(), cases(64, 20), 48, 2.0, 17));
}

// Positions of one chunk whose weights, as the pass scales them, lie far apart: first one track of two is worth more at
// every step, then the other.
TYPED_TEST(Cuda, TracksThatTakeTurns) {
  const Constraint apart = compile(Language::parse("A* | B*"));
  const std::size_t T = 40;
  Ragged<TypeParam> x(apart, 300, static_cast<int>(T), 0.0, 29, false);
  std::fill(x.mask.begin(), x.mask.end(), 1);
  for (std::size_t i = 0; i < x.emissions.size(); i += 2)
    x.emissions[i] = static_cast<TypeParam>(i / 2 % T < T / 2 ? 3.0 : -3.0) + static_cast<TypeParam>(i % 7) / 8;
  expect_like_cpu(apart, x);
}

// Paths that are worth most although they look hopeless from both ends: they vanish from alpha at the beginning and
// from beta at the end.
TYPED_TEST(Cuda, PathsThatVanishFromBothEnds) {
  const auto check = [](const Automaton& automaton, const oracle::Scores& scores, int steps) {
    const cuda::DeviceConstraint there(Constraint::from_automaton(automaton, numbered_labels(scores.labels)));
    const oracle::DenseResult expected = oracle::dense(automaton, scores);
    const auto batch = one<TypeParam>(scores);
    const auto got = steps > 0 && cuda::can_scan(there) ? expectation_in_pieces(there, batch, {}, steps)
                                                        : run_expectation(there, batch);
    expect_value(expected.log_z, got.value.at(0), tolerance<TypeParam>, "log_z");
    if (expected.log_z == -inf) return;
    expect_all(expected.labels, got.emissions, tolerance<TypeParam>, "marginals");
    oracle::Scores even = scores;  // what is possible at all
    for (auto* numbers : {&even.emissions, &even.transitions, &even.start, &even.end}) {
      for (double& x : *numbers) x = x == -inf ? x : 0;
    }
    const oracle::DenseResult possible = oracle::dense(automaton, even);
    for (std::size_t i = 0; i < expected.labels.size(); ++i) {
      if (possible.labels[i] == 0) {
        EXPECT_LT(std::fabs(got.emissions[i]), steps > 0 ? 1e-50 : 1e-300);
      }
    }
    expect_all_sums(expected.bigrams, expected.bigrams, got.transitions, tolerance<TypeParam>, "bigrams");
  };
  for (int i = 0; i < cases(600, 80); ++i) {
    Random random(static_cast<std::uint64_t>(i) + 60000);
    const int labels = random.between(2, 5), T = random.between(3, 40);
    const Constraint apart = compile(Language::parse("A* | B*"));
    const Automaton automaton =
        i % 2 ? oracle::random_automaton(random, oracle::automaton_kinds[i / 2 % 3], labels, random.between(1, 8))
              : apart.automaton();
    const int K = i % 2 ? labels : 2;
    oracle::Scores scores = oracle::random_scores(random, oracle::score_kinds[i / 6 % 5], T, K, random.chance(0.5));
    const double depths[] = {30, 60, 110, 400, 1000, 9000};
    const double depth = depths[random.below(6)], surplus = random.normal() * 3;
    const int a = random.below(K), edge = random.between(1, std::max(1, T / 3));
    for (int t = 0; t < T; ++t) {
      const bool at_end = t < edge || t >= T - edge;
      double& h = scores.emissions[static_cast<std::size_t>(t * K + a)];
      h = static_cast<float>(h + (at_end ? -depth / edge : (2 * depth + surplus) / std::max(1, T - 2 * edge)));
    }
    SCOPED_TRACE("case " + std::to_string(i));
    check(automaton, scores, 0);
    check(automaton, scores, random.between(1, T - 1));
    if (this->HasFailure()) return;
  }
}

// Little weight at the first position, at the last, and at both: numbers vanish where nothing is done with them later.
TYPED_TEST(Cuda, LowAtTheEdges) {
  for (int i = 0; i < cases(600, 100); ++i) {
    Random random(static_cast<std::uint64_t>(i) + 50000);
    const int labels = random.between(2, 5), T = random.between(1, 3);
    const Automaton automaton =
        i % 2 ? oracle::random_automaton(random, oracle::automaton_kinds[i / 2 % 3], labels, random.between(1, 5))
              : compile(Language::parse("A | B | C C | A B C")).automaton();
    const int K = i % 2 ? labels : 3;
    oracle::Scores scores = oracle::random_scores(random, oracle::score_kinds[0], T, K, true);
    for (auto* numbers : {&scores.emissions, &scores.start, &scores.end}) {
      const double depth = random.between(0, 3) * (i % 4 < 2 ? 30 : 250);
      for (double& x : *numbers)
        x = static_cast<float>(random.chance(0.2) ? x : x - depth * (0.9 + 0.1 * random.normal()));
    }
    SCOPED_TRACE("case " + std::to_string(i));
    const oracle::DenseResult expected = oracle::dense(automaton, scores);
    const auto got = run_expectation(cuda::DeviceConstraint(Constraint::from_automaton(automaton, numbered_labels(K))),
                                     one<TypeParam>(scores));
    expect_value(expected.log_z, got.value.at(0), tolerance<TypeParam>, "log_z");
    if (expected.log_z != -inf) expect_all(expected.labels, got.emissions, tolerance<TypeParam>, "marginals");
    if (this->HasFailure()) return;
  }
}

// Scores that add up to nothing over many steps, each of which takes off as much as it brings.
TYPED_TEST(Cuda, LargeScoresThatCancel) {
  const Constraint forced = compile(Language::parse("B* & [A B]*"));
  Ragged<TypeParam> x(forced, 1, cases(3000, 700), 0.0, 23, false);
  std::fill(x.mask.begin(), x.mask.end(), 1);
  const auto other = static_cast<std::size_t>(*forced.labels().find("A"));
  for (std::size_t i = 0; i < x.emissions.size(); i += 2)
    x.emissions[i + other] = static_cast<TypeParam>(400 + i % 290);
  std::fill(x.transitions.begin(), x.transitions.end(), TypeParam{0});
  const auto got = run_expectation(cuda::DeviceConstraint(forced), x.there());
  EXPECT_NEAR(got.value.at(0), 0, 1e-10);
}

// Steps are shared out in ways that depend on the language (step.h): each way, at lengths from the shortest on.
TYPED_TEST(Cuda, EveryWayToShareOutAStep) {
  std::set<std::int32_t> kinds;
  bool fan_ins = false, partitions = false;
  for (const std::string name : {"bio", "bioes", "srl", "srl-ewt", "citation-frequent", "address", "membrane"}) {
    const Constraint constraint =
        name == "srl" ? srl() : compile(Language::load(REGCCRF_SOURCE_DIR "/languages/" + name + ".lang"));
    const StepLayouts layouts = make_step_layouts(constraint.topology(), 32);
    kinds.insert(layouts.forward.kind);
    fan_ins = fan_ins || layouts.forward.fan_ins > 0 || layouts.backward.fan_ins > 0;
    partitions = partitions || layouts.forward.partitions.cells > 0;
    for (int length : {1, 2, 3, 21}) {
      SCOPED_TRACE(name + ", length " + std::to_string(length));
      expect_like_cpu(constraint, Ragged<TypeParam>(constraint, 2, length, 2.0, 81));
    }
  }
  EXPECT_EQ(kinds, (std::set<std::int32_t>{-1, 0, 1, 2}));
  EXPECT_TRUE(fan_ins && partitions);
}

// Large enough for clusters of blocks, with outs that many partitions want and fan_ins among them; as many sequences as
// leave room for clusters of each size.
TYPED_TEST(Cuda, Clusters) {
  bool many = false, fan_ins = false;
  for (int i = 0; i < cases(60, 8); ++i) {
    Random random(static_cast<std::uint64_t>(i) + 95000);
    const int labels = random.between(12, 40);
    const Constraint constraint = Constraint::from_automaton(
        oracle::random_automaton(random, oracle::automaton_kinds[i % 3], labels, random.between(60, 200)),
        numbered_labels(labels));
    const StepLayouts layouts = make_step_layouts(constraint.topology(), 32);
    for (const Partitions& partitions : {layouts.forward.partitions, layouts.backward.partitions}) {
      many = many || !partitions.rest.empty();
      fan_ins = fan_ins || partitions.fan_in_begin.size() > 1;
    }
    SCOPED_TRACE("language " + std::to_string(i));
    const Ragged<TypeParam> x(constraint, 1 << random.below(4), random.between(1, 12), 3.0,
                              static_cast<std::uint64_t>(i));
    expect_like_cpu(constraint, x);
    if (this->HasFailure()) return;
  }
  EXPECT_TRUE(many && fan_ins);
}

// A position's scores may not find room on chip; then that is said.
TYPED_TEST(Cuda, ManyLabels) {
  constexpr int labels = 2600;
  Automaton ring;
  for (int q = 0; q < labels; ++q) {
    ring.accepting.push_back(1);
    ring.arcs.push_back({q, q, (q + 1) % labels});
  }
  const Constraint constraint = Constraint::from_automaton(ring, numbered_labels(labels));
  try {
    expect_like_cpu(constraint, Ragged<TypeParam>(constraint, 1, 3, 1.0, 96));
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("2600 labels"), std::string::npos) << error.what();
  }
}

TYPED_TEST(Cuda, LongSequences) {
  const Constraint bio = compile(Language::parse("(O | B-A I-A* | B-B I-B*)*"));
  for (double spread : {1.0, 2000.0}) expect_like_cpu(bio, Ragged<TypeParam>(bio, 1, cases(20000), spread, 21, false));
}

TYPED_TEST(Cuda, ForcedPaths) {
  for (int length : {5, 63, 501}) {
    Random random(static_cast<std::uint64_t>(length));
    for (const oracle::Forced& x : {oracle::forced_by_parity(random, length), oracle::forced_by_end(random, length),
                                    oracle::forced_single(random, length)}) {
      const oracle::DenseResult expected = oracle::dense(x.automaton, x.scores);
      const cuda::DeviceConstraint there(Constraint::from_automaton(x.automaton, numbered_labels(x.scores.labels)));
      const auto got = run_expectation(there, one<TypeParam>(x.scores));
      expect_value(expected.log_z, got.value.at(0), tolerance<TypeParam>, "log_z");
      expect_all(expected.labels, got.emissions, tolerance<TypeParam>, "marginals");
      expect_value(expected.best, run_viterbi(there, one<TypeParam>(x.scores)).score.at(0), tolerance<TypeParam>,
                   "best");
    }
  }
}

// More nodes than 16-bit numbers count, and than a block has room for.
TYPED_TEST(Cuda, LargeAutomata) {
  const Constraint large = counting(50, 1050, true);
  ASSERT_GT(large.size().nodes, 100000);
  for (double spread : {1.0, 3000.0}) expect_like_cpu(large, Ragged<TypeParam>(large, 3, cases(12, 6), spread, 31));
  expect_k_best_like_cpu(large, Ragged<TypeParam>(large, 2, 6, 1.0, 33), 5);
  const Constraint middle = counting(50, 700, false);
  expect_like_cpu(middle, Ragged<TypeParam>(middle, 2, 12, 1.0, 32));

  const Ragged<TypeParam> x(large, 2, 6, 1.0, 35, false);
  const auto drawn = run_sample(cuda::DeviceConstraint(large), x.there(), 5, 3, 1.0);
  const auto expected = sample(large, x.view(), {5, 3, 1.0, {}}, {.impossible = Impossible::allow});
  for (std::size_t b = 0; b < drawn.size(); ++b) {
    for (std::size_t n = 0; n < expected[b].size(); ++n) EXPECT_EQ(expected[b][n].labels, drawn[b][n]);
  }
}

// Every operation names the first bad score that is not masked, by its place among the present positions, and does the
// other sequence all the same.
TYPED_TEST(Cuda, BadScoresAreNamed) {
  const Constraint language = compile(Language::parse("(A | B C*)*"));
  for (const bool masked : {false, true}) {
    Ragged<TypeParam> x(language, 2, 9, 1.0, 41, false);
    std::fill(x.mask.begin(), x.mask.end(), 1);
    const auto spoil = [&](int t, int label, TypeParam score) {
      x.emissions[static_cast<std::size_t>((x.T + t) * x.K + label)] = score;
    };
    spoil(1, 0, std::numeric_limits<TypeParam>::infinity());
    spoil(3, 2, std::numeric_limits<TypeParam>::quiet_NaN());
    spoil(5, 1, std::numeric_limits<TypeParam>::quiet_NaN());
    if (masked) x.mask[static_cast<std::size_t>(x.T + 1)] = 0;
    const auto expect_named = [&](const std::vector<cuda::Status>& status, const char* operation) {
      SCOPED_TRACE(std::string(operation) + (masked ? ", a bad score masked" : ""));
      EXPECT_EQ(status[0].outcome, 0);
      EXPECT_EQ(status[1].outcome, 1);
      EXPECT_EQ(status[1].position, masked ? 2 : 1);
      EXPECT_EQ(status[1].label, masked ? 2 : 0);
      EXPECT_EQ(status[1].length, masked ? x.T - 1 : x.T);
      EXPECT_EQ(cuda::status_error(operation, language, 1, status[1]).position(), masked ? 2 : 1);
    };
    const cuda::DeviceConstraint there(language);
    const auto sums = run_expectation(there, x.there());
    expect_named(sums.status, "nll");
    EXPECT_TRUE(std::isfinite(sums.value[0]));
    expect_named(expectation_in_pieces(there, x.there(), {}, 3).status, "nll in pieces");
    const auto best = run_viterbi(there, x.there());
    expect_named(best.status, "viterbi");
    EXPECT_TRUE(std::isfinite(best.score[0]));
    expect_named(viterbi_in_pieces(there, x.there(), 3).status, "viterbi in pieces");
    std::vector<cuda::Status> status;
    const auto paths = run_k_best(there, x.there(), 2, &status);
    expect_named(status, "k_best");
    EXPECT_EQ(paths[0].size(), 2u);
    EXPECT_EQ(paths[1].size(), 0u);
    const auto entropy = run_entropy(there, x.there());
    expect_named(entropy.status, "entropy");
    EXPECT_TRUE(std::isfinite(entropy.value[0]) && std::isnan(entropy.value[1]));
    run_sample(there, x.there(), 3, 1, 1.0, &status);
    expect_named(status, "sample");
  }
}

TYPED_TEST(Cuda, BadTransitionsAreToldBeforeBadEmissions) {
  Ragged<TypeParam> x(srl(), 2, 5, 1.0, 41, false);
  const cuda::DeviceConstraint there(srl());
  std::vector<cuda::Status> status;
  const auto expect_told = [&] {
    EXPECT_EQ(run_expectation(there, x.there()).status[0].outcome, 4);
    EXPECT_EQ(run_entropy(there, x.there()).status[0].outcome, 4);
    EXPECT_EQ(run_viterbi(there, x.there()).status[0].outcome, 4);
    run_k_best(there, x.there(), 2, &status);
    EXPECT_EQ(status[0].outcome, 4);
    run_sample(there, x.there(), 3, 1, 1.0, &status);
    EXPECT_EQ(status[0].outcome, 4);
  };
  x.transitions[3] = std::numeric_limits<TypeParam>::infinity();
  expect_told();
  std::fill(x.emissions.begin(), x.emissions.end(), std::numeric_limits<TypeParam>::quiet_NaN());
  expect_told();
}

// Rows of present positions; the others are untouched.
template <class Real>
std::vector<Real> present(const Ragged<Real>& x, const std::vector<Real>& rows) {
  std::vector<Real> numbers;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (x.mask[i / static_cast<std::size_t>(x.K)]) numbers.push_back(rows[i]);
  }
  return numbers;
}

TYPED_TEST(Cuda, TheSameFromRunToRun) {
  const Ragged<TypeParam> x(srl(), cases(8, 2), cases(64, 30), 3.0, 51);
  const cuda::DeviceConstraint there(srl());
  const auto first = run_expectation(there, x.there()), second = run_expectation(there, x.there());
  EXPECT_EQ(first.value, second.value);
  EXPECT_EQ(present(x, first.emissions), present(x, second.emissions));
  EXPECT_EQ(first.transitions, second.transitions);
  const auto one = run_entropy(there, x.there()), another = run_entropy(there, x.there());
  EXPECT_EQ(one.value, another.value);
  EXPECT_EQ(present(x, one.emissions), present(x, another.emissions));
  EXPECT_EQ(one.transitions, another.transitions);
}

TYPED_TEST(Cuda, CapturedInAGraph) {
  const Ragged<TypeParam> x(srl(), 4, 32, 1.0, 61);
  const cuda::DeviceConstraint there(srl());
  const DeviceBatch<TypeParam> batch = x.there();
  const OnDevice<double> value(4), score(4), scores(4 * 3), entropies(4);
  const OnDevice<cuda::Status> status(4);
  const OnDevice<std::int32_t> labels(4 * 32), paths(4 * 3 * 32);
  const cuda::Expectation wanted{value.get(), {}, {}, status.get(), nullptr};
  const cuda::KBest best{3, paths.get(), scores.get(), status.get()};
  const cuda::Entropy spread{entropies.get(), {}, {}, status.get()};
  const std::size_t bytes =
      std::max({cuda::expectation_bytes(there, batch.view(), wanted), cuda::viterbi_bytes(there, batch.view()),
                cuda::k_best_bytes(there, batch.view(), best), cuda::entropy_bytes(there, batch.view(), spread)});
  const OnDevice<char> memory(bytes);
  cudaStream_t stream;
  must(cudaStreamCreate(&stream));
  cudaGraph_t graph;
  must(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  cuda::expectation(there, batch.view(), wanted, {memory.get(), bytes}, stream);
  cuda::viterbi(there, batch.view(), {labels.get(), score.get(), status.get()}, {memory.get(), bytes}, stream);
  cuda::k_best(there, batch.view(), best, {memory.get(), bytes}, stream);
  cuda::entropy(there, batch.view(), spread, {memory.get(), bytes}, stream);
  must(cudaStreamEndCapture(stream, &graph));
  cudaGraphExec_t replay;
  must(cudaGraphInstantiate(&replay, graph, 0));
  for (int again = 0; again < 2; ++again) must(cudaGraphLaunch(replay, stream));
  must(cudaStreamSynchronize(stream));
  must(cudaGraphExecDestroy(replay));
  must(cudaGraphDestroy(graph));
  must(cudaStreamDestroy(stream));
  const std::vector<double> z = log_z(srl(), x.view());
  const std::vector<double> expected = entropy(srl(), x.view());
  for (std::size_t i = 0; i < 4; ++i) {
    expect_value(z[i], value.host()[i], tolerance<TypeParam>, "log_z");
    expect_value(expected[i], entropies.host()[i], tolerance<TypeParam>, "entropy");
    expect_value(score.host()[i], scores.host()[3 * i], tolerance<TypeParam>, "best");
  }
}

template <class Half>
void half_emissions(cuda::Type type) {
  const Ragged<float> x(srl(), 4, 32, 2.0, 71);
  std::vector<Half> halves;
  std::vector<float> rounded;
  for (float h : x.emissions) {
    halves.push_back(Half(h));
    rounded.push_back(static_cast<float>(halves.back()));
  }
  const cuda::DeviceConstraint there(srl());
  const std::span<const float> g(x.transitions), none;
  const DeviceBatch<float, Half> in_half(4, 32, x.K, std::span<const Half>(halves), g, none, none,
                                         std::span<const std::uint8_t>(x.mask), type);
  const DeviceBatch<float> in_float(4, 32, x.K, std::span<const float>(rounded), g, none, none,
                                    std::span<const std::uint8_t>(x.mask));
  EXPECT_EQ(run_expectation(there, in_half).value, run_expectation(there, in_float).value);
  EXPECT_EQ(run_viterbi(there, in_half).labels, run_viterbi(there, in_float).labels);
  EXPECT_EQ(run_k_best(there, in_half, 3)[0][2].labels, run_k_best(there, in_float, 3)[0][2].labels);
  EXPECT_EQ(run_entropy(there, in_half).value, run_entropy(there, in_float).value);
}

TEST(CudaTypes, HalfPrecisionEmissionsAreReadAsTheyAre) {
  if (!cuda::available()) GTEST_SKIP() << "no CUDA device here";
  half_emissions<__half>(cuda::Type::f16);
  half_emissions<__nv_bfloat16>(cuda::Type::bf16);
}

}  // namespace
}  // namespace regccrf
