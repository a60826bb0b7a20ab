// Viterbi on a device where scores or lengths are unusual, against the CPU; skipped where there is no device.
#include "tests/inference/cuda_fixture.h"

namespace regccrf {
namespace {

using oracle::Random;

TYPED_TEST_SUITE(Cuda, Precisions);

template <class Real>
void expect_viterbi_like_cpu(const Constraint& constraint, const Ragged<Real>& x) {
  const std::vector<Path> expected = viterbi(constraint, x.view(), {.impossible = Impossible::allow});
  const DevicePaths got = run_viterbi(cuda::DeviceConstraint(constraint), x.there());
  for (std::size_t b = 0; b < expected.size(); ++b) {
    SCOPED_TRACE("sequence " + std::to_string(b));
    const bool possible = expected[b].score != -inf;
    EXPECT_EQ(got.status[b].outcome, possible ? 0 : 3);
    EXPECT_EQ(got.labels[b].size(), expected[b].labels.size());
    expect_value(expected[b].score, got.score[b], tolerance<Real>, "best");
    if (possible) {
      EXPECT_TRUE(constraint.accepts(got.labels[b]).accepted);
    }
  }
}

// Scores that are all the same, whole numbers, tiny, or far apart in some places: labels that are as good as forbidden,
// at one position all but one that may be illegal there. Lengths from the shortest on, some of them impossible.
TYPED_TEST(Cuda, ViterbiOfUnusualScores) {
  const Constraint languages[] = {srl(), Constraint::unconstrained(numbered_labels(47)),
                                  compile(Language::parse("(O | B-A I-A* | B-B I-B*)*")),
                                  compile(Language::parse("(A B | B A)* A A")), counting(12, 20, true)};
  for (int i = 0; i < cases(400, 60); ++i) {
    Random random(static_cast<std::uint64_t>(i) + 70000);
    const Constraint& constraint = languages[i % 5];
    const double spreads[] = {0, 1e-4, 1, 1, 50};
    Ragged<TypeParam> x(constraint, 3, i < 20 ? 1 + i / 5 : random.between(4, 30), spreads[random.below(5)],
                        static_cast<std::uint64_t>(i));
    const double far[] = {0, -100, -1e4, -1e9, -inf};
    const auto low = static_cast<TypeParam>(far[random.below(5)]);
    const bool whole = random.chance(0.3);
    for (TypeParam& h : x.emissions) h = random.chance(0.2) ? low : whole ? std::round(h) : h;
    for (TypeParam& g : x.transitions) g = random.chance(0.1) ? low : whole ? std::round(g) : g;
    const auto position = static_cast<std::size_t>((random.chance(0.5) ? 0 : random.below(x.T)) * x.K);
    for (std::size_t k = 0; low > -inf && k < static_cast<std::size_t>(x.K); ++k)
      x.emissions[position + k] = low * static_cast<TypeParam>(static_cast<float>(1 + std::fabs(random.normal())));
    x.emissions[position + static_cast<std::size_t>(random.below(x.K))] = 0;
    SCOPED_TRACE("case " + std::to_string(i));
    expect_viterbi_like_cpu(constraint, x);
    if (this->HasFailure()) return;
  }
}

// Low scores that only a forced label takes, now and then, over many steps.
TYPED_TEST(Cuda, ViterbiOfLongSequencesOfUnusualScores) {
  const Constraint bio = compile(Language::parse("(O | B-A I-A* | B-B I-B*)*"));
  for (double low : {-30.0, -1e4, -1e9}) {
    Ragged<TypeParam> x(bio, 2, cases(3000, 300), 1.0, 71, false);
    Random random(72);
    for (TypeParam& h : x.emissions) h = random.chance(0.5) ? static_cast<TypeParam>(low) : h;
    expect_viterbi_like_cpu(bio, x);
  }
}

// How much a block has on chip depends on the length.
TYPED_TEST(Cuda, ViterbiOfEveryLength) {
  for (int T = 1; T <= cases(300, 3); ++T) {
    SCOPED_TRACE("length " + std::to_string(T));
    expect_viterbi_like_cpu(srl(), Ragged<TypeParam>(srl(), 2, T, 1.0, static_cast<std::uint64_t>(T), false));
    if (this->HasFailure()) return;
  }
}

}  // namespace
}  // namespace regccrf
