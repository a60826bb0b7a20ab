// Long sequences that a device cuts into pieces (inference/cuda/pieces.h), against the CPU and the oracle; skipped
// where there is no device.
#include "tests/inference/cuda_fixture.h"
#include "tests/inference/triples.h"
#include "tests/oracle/dense.h"

namespace regccrf {
namespace {

using oracle::Random;

TYPED_TEST_SUITE(Cuda, Precisions);

// Automata of every size that a scan takes; pieces from one step to all but a few, ragged, with holes.
TYPED_TEST(Cuda, RandomLanguagesInPieces) {
  for (int i = 0; i < cases(400, 40); ++i) {
    Random random(static_cast<std::uint64_t>(i) + 70000);
    const int labels = random.between(1, i % 4 == 0 ? 96 : 12);
    const Automaton automaton =
        oracle::random_automaton(random, oracle::automaton_kinds[i % 3], labels, random.between(1, 12));
    const Constraint constraint = Constraint::from_automaton(automaton, numbered_labels(labels));
    SCOPED_TRACE("language " + std::to_string(i));
    const double spreads[] = {0.1, 3, 100, 300, 3000};
    const int T = random.between(3, random.chance(0.2) ? 200 : 40);
    const Ragged<TypeParam> x(constraint, random.between(1, 3), T, spreads[random.below(5)],
                              static_cast<std::uint64_t>(i), random.chance(0.5));
    expect_like_cpu(constraint, x, random.between(1, T - 1));
    if (this->HasFailure()) return;
  }
}

// Extreme scores, holes, and languages that leave only what the scores think impossible.
TYPED_TEST(Cuda, ExtremeScoresInPieces) {
  const auto check = [](const Automaton& automaton, const oracle::Scores& scores, int steps) {
    const cuda::DeviceConstraint there(Constraint::from_automaton(automaton, numbered_labels(scores.labels)));
    if (!cuda::can_scan(there)) return;
    const oracle::DenseResult expected = oracle::dense(automaton, scores);
    const auto got = expectation_in_pieces(there, one<TypeParam>(scores), {}, steps);
    expect_value(expected.log_z, got.value.at(0), tolerance<TypeParam>, "log_z");
    const auto best = viterbi_in_pieces(there, one<TypeParam>(scores), steps);
    expect_value(expected.best, best.score.at(0), tolerance<TypeParam>, "best");
    EXPECT_EQ(best.status[0].outcome, expected.log_z == -inf ? 3 : 0);
    EXPECT_EQ(best.labels[0].size(), expected.log_z == -inf ? 0u : static_cast<std::size_t>(scores.length));
    EXPECT_EQ(got.status[0].outcome, expected.log_z == -inf ? 3 : 0);
    if (expected.log_z == -inf) return;
    expect_all(expected.labels, got.emissions, tolerance<TypeParam>, "marginals");
    expect_all_sums(expected.bigrams, expected.bigrams, got.transitions, tolerance<TypeParam>, "bigrams");
  };
  for (int i = 0; i < cases(600, 50); ++i) {
    Random random(static_cast<std::uint64_t>(i) + 80000);
    const int labels = random.between(2, 6), T = random.between(3, 60);
    const Automaton automaton =
        oracle::random_automaton(random, oracle::automaton_kinds[i % 3], labels, random.between(1, 8));
    SCOPED_TRACE("language " + std::to_string(i));
    check(automaton, oracle::random_scores(random, oracle::score_kinds[i % 5], T, labels, random.chance(0.5)),
          random.between(1, T - 1));
    if (this->HasFailure()) return;
  }
  for (int length : {5, cases(500, 40) | 1}) {
    for (double depth : {50.0, 600.0, 5000.0}) {
      Random random(static_cast<std::uint64_t>(length));
      SCOPED_TRACE("forced, length " + std::to_string(length) + ", depth " + std::to_string(depth));
      for (const oracle::Forced& x :
           {oracle::forced_by_parity(random, length, depth), oracle::forced_by_end(random, length, depth),
            oracle::forced_single(random, length, depth)})
        check(x.automaton, x.scores, length / 4);
    }
  }
}

// As long as to leave no room on chip for backpointers, on a small device: two pieces, and as many as there are steps.
TYPED_TEST(Cuda, LongPiecesAndMany) {
  const Constraint bio = compile(Language::parse("(O | B-A I-A* | B-B I-B*)*"));
  const int T = cases(20000, 1300);
  Ragged<TypeParam> x(bio, 1, T, 1.0, 22, false);
  std::fill(x.mask.begin(), x.mask.end(), 1);
  for (int steps : {1, T - 3}) expect_like_cpu(bio, x, steps);
}

TYPED_TEST(Cuda, GoldInPieces) {
  for (int i = 0; i < cases(400, 60); ++i) {
    Random random(static_cast<std::uint64_t>(i) + 60000);
    const int labels = random.between(2, 4), T = random.between(3, 30);
    const Automaton automaton =
        oracle::random_automaton(random, oracle::automaton_kinds[i % 3], labels, random.between(2, 12));
    const Constraint constraint = Constraint::from_automaton(automaton, numbered_labels(labels));
    const auto scores = oracle::random_scores(random, oracle::ScoreKind::normal, T, labels, false);
    // A sequence of the language, one label of which may be another.
    const Instance<TypeParam> instance(scores);
    std::vector<Label> gold = viterbi(constraint, instance.view(), {.impossible = Impossible::allow}).at(0).labels;
    gold.resize(static_cast<std::size_t>(T));
    if (random.chance(0.7)) gold[static_cast<std::size_t>(random.below(T))] = random.below(labels);
    const cuda::DeviceConstraint there(constraint);
    if (!cuda::can_scan(there)) continue;
    SCOPED_TRACE("language " + std::to_string(i));
    const auto got = expectation_in_pieces(
        there, one<TypeParam>(scores), std::vector<std::int64_t>(gold.begin(), gold.end()), random.between(1, T - 1));
    const Membership member = constraint.accepts(gold);
    EXPECT_EQ(got.status[0].outcome, member.accepted ? 0 : 2);
    if (!member.accepted) {
      EXPECT_EQ(got.status[0].position, member.position);
    }
    if (this->HasFailure()) return;
  }
}

TEST(CudaScan, OnlyWhereStepsAreManyAndSequencesFew) {
  const auto count = [](std::int32_t nodes, std::int64_t B, std::int64_t T) {
    return cuda::choose_pieces({B, T, 132}, cuda::expectation_costs(nodes, false)).count;
  };
  EXPECT_EQ(count(47, 1, 20), 1);
  EXPECT_EQ(count(47, 256, 10000), 1);
  EXPECT_GT(count(47, 1, 10000), 20);
  EXPECT_GT(count(47, 8, 10000), 4);
  EXPECT_GE(count(47, 1, 100000), count(47, 1, 10000));
  for (const std::int64_t B : {0, 1, 3, 50, 65534}) {
    for (const std::int64_t T : {0, 1, 2, 3, 500, 1000000}) {
      const cuda::Pieces pieces = cuda::choose_pieces({B, T, 132}, cuda::viterbi_costs(24));
      EXPECT_GE(pieces.count, 1);
      if (pieces.count == 1) continue;
      EXPECT_LE(B * pieces.count, 2 * 132);
      EXPECT_EQ(pieces.count, (T - 1 + pieces.steps - 1) / pieces.steps);
    }
  }
}

}  // namespace
}  // namespace regccrf
