// Entropy and curvature on a device, against enumeration and the CPU; skipped where there is no device.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "regccrf/loss.h"
#include "tests/inference/cuda_fixture.h"

namespace regccrf {
namespace {

using oracle::Enumeration;
using oracle::Random;

TYPED_TEST_SUITE(Cuda, Precisions);

template <class Real>
void expect_zeros(const DeviceCounts<Real>& got) {
  for (const auto* gradient : {&got.emissions, &got.transitions}) {
    for (Real x : *gradient) ASSERT_EQ(x, 0);
  }
}

TYPED_TEST(Cuda, EntropyAndItsGradient) {
  for_each_triple(3000, [](const Triple& x, const Enumeration& all, const cuda::DeviceConstraint& constraint) {
    const auto got = run_entropy(constraint, one<TypeParam>(x.scores));
    const auto alone = run_entropy(constraint, one<TypeParam>(x.scores), false);
    EXPECT_EQ(got.status[0].outcome, all.log_z() == -inf ? 3 : 0);
    if (all.log_z() == -inf) {
      EXPECT_TRUE(std::isnan(got.value[0]) && std::isnan(alone.value[0]));
      expect_zeros(got);
      return;
    }
    expect_value(all.entropy(), got.value[0], tolerance<TypeParam>, "entropy");
    EXPECT_EQ(got.value, alone.value);
    expect_all(all.entropy_gradient().labels, got.emissions, tolerance<TypeParam>, "by emissions");
    expect_all(all.entropy_gradient().bigrams, got.transitions, tolerance<TypeParam>, "by transitions");
  });
}

// Mostly as large as scores are; at times huge.
oracle::Scores random_direction(Random& random, const Triple& x) {
  oracle::Scores v =
      oracle::random_scores(random, oracle::ScoreKind::normal, x.scores.length, x.scores.labels, random.chance(0.5));
  const double size = random.chance(0.1) ? 1e12 : 1;
  for (auto* numbers : {&v.emissions, &v.transitions, &v.start, &v.end}) {
    for (double& number : *numbers) number = static_cast<float>(number * size);
  }
  return v;
}

double size_of(const oracle::Scores& v) {
  double largest = 1;
  for (const auto* numbers : {&v.emissions, &v.transitions, &v.start, &v.end}) {
    for (double number : *numbers) largest = std::max(largest, std::fabs(number));
  }
  return largest;
}

TYPED_TEST(Cuda, CurvatureAlongADirection) {
  for_each_triple(3000, [](const Triple& x, const Enumeration& all, const cuda::DeviceConstraint& constraint) {
    Random random(static_cast<std::uint64_t>(x.automaton.arcs.size()));
    const oracle::Scores v = random_direction(random, x);
    const double bound = tolerance<TypeParam> * size_of(v);
    const auto got = run_curvature(constraint, one<TypeParam>(x.scores), one<TypeParam>(v));
    if (all.log_z() == -inf) {
      EXPECT_EQ(got.value[0], 0);
      return expect_zeros(got);
    }
    expect_value(all.slope(v), got.value[0], bound, "slope");
    EXPECT_EQ(run_curvature(constraint, one<TypeParam>(x.scores), one<TypeParam>(v), {}, false).value, got.value);
    expect_all(all.curvature(v).labels, got.emissions, bound, "by emissions");
    expect_all(all.curvature(v).bigrams, got.transitions, bound, "by transitions");
  });
}

// The gradients of a loss have the same curvature as those of log_z; the loss itself changes by less than log_z.
TYPED_TEST(Cuda, CurvatureOfALoss) {
  for_each_triple(1000, [](const Triple& x, const Enumeration& all, const cuda::DeviceConstraint& constraint) {
    if (all.log_z() == -inf || x.scores.length == 0) return;
    Random random(static_cast<std::uint64_t>(x.automaton.arcs.size()));
    const oracle::Scores v = random_direction(random, x);
    const double bound = tolerance<TypeParam> * size_of(v);
    std::vector<Label> labels =
        all.paths()[static_cast<std::size_t>(random.below(static_cast<int>(all.paths().size())))].labels;
    const bool outside = random.chance(0.2) || oracle::score_of(x.scores, labels) == -inf;
    if (outside) labels[0] = x.scores.labels;
    const std::vector<std::int64_t> gold(labels.begin(), labels.end());
    const auto got = run_curvature(constraint, one<TypeParam>(x.scores), one<TypeParam>(v), gold);
    if (outside) {
      EXPECT_EQ(got.value[0], 0);
      return expect_zeros(got);
    }
    expect_value(all.slope(v) - oracle::score_of(v, labels), got.value[0], bound, "slope");
    expect_all(all.curvature(v).labels, got.emissions, bound, "by emissions");
    expect_all(all.curvature(v).bigrams, got.transitions, bound, "by transitions");
  });
}

// A device's covariances beside the CPU's, whose transitions' are sums over sequences.
template <class Real>
struct OfTheCpu {
  explicit OfTheCpu(const Ragged<Real>& batch)
      : x(batch), emissions(x.emissions.size()), transitions(x.transitions.size()) {
    wanted.emissions = emissions;
    wanted.transitions = transitions;
  }
  void expect(const DeviceCounts<Real>& got) const {
    const std::size_t pairs = transitions.size();
    for (std::size_t i = 0; i < emissions.size(); ++i) {
      if (!x.mask[i / static_cast<std::size_t>(x.K)]) continue;
      ASSERT_NEAR(static_cast<double>(emissions[i]), static_cast<double>(got.emissions[i]), 2 * tolerance<Real>)
          << "emission " << i;
    }
    for (std::size_t p = 0; p < pairs; ++p) {
      double sum = 0;
      for (std::size_t b = 0; b < got.value.size(); ++b) sum += static_cast<double>(got.transitions[b * pairs + p]);
      ASSERT_NEAR(static_cast<double>(transitions[p]), sum, 3 * tolerance<Real> * std::max(1.0, std::fabs(sum) + x.B))
          << "transition " << p;
    }
  }
  const Ragged<Real>& x;
  std::vector<Real> emissions, transitions;
  Gradients<Real> wanted;
};

template <class Real>
void expect_entropy_like_cpu(const Constraint& constraint, const Ragged<Real>& x) {
  OfTheCpu<Real> cpu(x);
  const Loss expected = entropy(constraint, x.view(), cpu.wanted, {.impossible = Impossible::allow});
  const std::vector<double> z = log_z(constraint, x.view());
  const cuda::DeviceConstraint there(constraint);
  const auto got = run_entropy(there, x.there());
  EXPECT_EQ(run_entropy(there, x.there(), false).status[0].outcome, got.status[0].outcome);
  for (std::size_t b = 0; b < z.size(); ++b) {
    SCOPED_TRACE("sequence " + std::to_string(b));
    EXPECT_EQ(got.status[b].outcome, z[b] == -inf ? 3 : 0);
    EXPECT_EQ(std::isnan(got.value[b]), z[b] == -inf);
    if (z[b] != -inf) expect_value(expected.values[b], got.value[b], 2 * tolerance<Real>, "entropy");
  }
  cpu.expect(got);
}

template <class Real>
void expect_curvature_like_cpu(const Constraint& constraint, const Ragged<Real>& x) {
  const Ragged<Real> v(constraint, x.B, x.T, 1.0, 99);
  OfTheCpu<Real> cpu(x);
  const Direction<Real> direction{v.emissions, v.transitions, v.start, v.end};
  const Loss expected = curvature(constraint, x.view(), direction, cpu.wanted, {.impossible = Impossible::allow});
  const auto got = run_curvature(cuda::DeviceConstraint(constraint), x.there(), v.there());
  for (std::size_t b = 0; b < got.value.size(); ++b)
    expect_value(expected.values[b], got.value[b], 2 * tolerance<Real>, "slope " + std::to_string(b));
  cpu.expect(got);
}

template <class Real>
void expect_both_like_cpu(const Constraint& constraint, const Ragged<Real>& x) {
  expect_entropy_like_cpu(constraint, x);
  expect_curvature_like_cpu(constraint, x);
}

TYPED_TEST(Cuda, CovariancesInRaggedBatches) {
  for (double spread : {1.0, 100.0, 3000.0}) {
    SCOPED_TRACE("spread " + std::to_string(spread));
    expect_both_like_cpu(srl(), Ragged<TypeParam>(srl(), cases(6, 2), 30, spread, 24));
  }
  const Constraint everything = Constraint::unconstrained(numbered_labels(47));
  expect_both_like_cpu(everything, Ragged<TypeParam>(everything, 4, 30, 3.0, 25));
  const Constraint pairs = compile(Language::parse("(A B | B A)*"));
  expect_both_like_cpu(pairs, Ragged<TypeParam>(pairs, 150, 9, 1.0, 26));
}

// Long enough that the forward steps are computed twice.
TYPED_TEST(Cuda, CovariancesOfLongSequences) {
  const Constraint counts = compile(Language::parse("labels = {A B C}\nlanguage = at_most(300, A)\n"));
  ASSERT_GT(counts.size().nodes, 800);
  Ragged<TypeParam> x(counts, 1, 1500, 1.0, 27, false);
  std::fill(x.mask.begin(), x.mask.end(), 1);
  expect_both_like_cpu(counts, x);
}

// Scores that mean "never" and are finite.
TYPED_TEST(Cuda, CovariancesWhereScoresMask) {
  Ragged<TypeParam> x(srl(), 4, 20, 1.0, 28);
  for (std::size_t i = 0; i < x.emissions.size(); i += 3) x.emissions[i] = -1e4;
  expect_both_like_cpu(srl(), x);
  for (std::size_t i = 0; i < x.transitions.size(); i += 7) x.transitions[i] = -1e4;
  expect_both_like_cpu(srl(), x);
}

// A score that no path has is far above all others, so that what paths have adds up to millions, and entropy to little.
TYPED_TEST(Cuda, CovariancesBesideALargeScore) {
  const Constraint two = compile(Language::parse("labels = {A B C}\nlanguage = (A | B)*\n"));
  for (std::int64_t T : {20, cases(8000, 1000)}) {
    Ragged<TypeParam> x(two, 1, T, 1.0, 30, false);
    std::fill(x.mask.begin(), x.mask.end(), 1);
    for (std::size_t i = 0; i < x.emissions.size(); i += 3) {
      x.emissions[i] += 20;
      x.emissions[i + 2] = 600;
    }
    expect_entropy_like_cpu(two, x);
    if (T < 100) expect_curvature_like_cpu(two, x);
  }
}

// Gains of paths add up to much more than their spread.
TYPED_TEST(Cuda, CovariancesAroundALargeMean) {
  const Constraint two = compile(Language::parse("labels = {A B C}\nlanguage = (A | B)*\n"));
  for (double spread : {1.0, 5.0}) {
    Ragged<TypeParam> x(two, 1, cases(1000, 500), spread, 31, false);
    std::fill(x.mask.begin(), x.mask.end(), 1);
    for (std::size_t i = 2; i < x.emissions.size(); i += 3) x.emissions[i] = 100;
    for (TypeParam& score : x.emissions) score *= static_cast<TypeParam>(1 + 1e-9);  // not only whole floats
    expect_both_like_cpu(two, x);
  }
}

// Of two tracks that never meet, one is masked, and the other has a weight that is near the least.
TYPED_TEST(Cuda, CovariancesBesideAMaskedTrack) {
  const Constraint tracks = compile(Language::parse("labels = {A B C D E}\nlanguage = A (A | B)* E | C (C | D)*\n"));
  for (double mask : {-1e30, -1e4, -1e3}) {
    for (double low : {570.0, 580.0, 590.0, 598.5, 599.0, 601.0, 700.0}) {
      SCOPED_TRACE(std::to_string(mask) + ", " + std::to_string(low));
      Ragged<TypeParam> x(tracks, 1, 12, 0.0, 32, false);
      std::fill(x.mask.begin(), x.mask.end(), 1);
      x.emissions[2] = static_cast<TypeParam>(mask);
      x.emissions[5 * 11 + 4] = static_cast<TypeParam>(-low);
      expect_both_like_cpu(tracks, x);
    }
  }
}

// Two tracks that never meet. The first outweighs the second by more than a double holds, until it comes to nothing.
TYPED_TEST(Cuda, CovariancesOfATrackThatWasLost) {
  const Constraint tracks = compile(Language::parse("labels = {A B C D E}\nlanguage = A (A | B)* E | C (C | D)*\n"));
  for (double more : {10.0, 40.0, 200.0}) {
    for (bool dead : {false, true}) {
      SCOPED_TRACE(std::to_string(more) + (dead ? ", dead" : ""));
      Ragged<TypeParam> x(tracks, 2, 30, 1.0, 29, false);
      std::fill(x.mask.begin(), x.mask.end(), 1);
      for (std::size_t i = 0; i < x.emissions.size(); ++i) {
        const std::size_t t = i / 5 % 30, label = i % 5;
        if (label < 2) x.emissions[i] += static_cast<TypeParam>(more);
        if (label == 4 && t == 29 && dead) x.emissions[i] = -std::numeric_limits<TypeParam>::infinity();
        if (label == 4 && t == 29 && !dead) x.emissions[i] -= static_cast<TypeParam>(29 * more);
      }
      expect_both_like_cpu(tracks, x);
    }
  }
}

TYPED_TEST(Cuda, CovariancesUnderLargeAutomata) {
  const Constraint large = counting(50, 1050, true);
  ASSERT_GT(large.size().nodes, 100000);
  expect_both_like_cpu(large, Ragged<TypeParam>(large, 2, 4, 1.0, 34));
}

TYPED_TEST(Cuda, CurvatureWhereScoresAreBadIsNothing) {
  Ragged<TypeParam> x(srl(), 2, 5, 1.0, 41, false);
  const Ragged<TypeParam> v(srl(), 2, 5, 1.0, 42, false);
  std::fill(x.mask.begin(), x.mask.end(), 1);
  const cuda::DeviceConstraint there(srl());
  const std::size_t middle = x.emissions.size() / 2;
  x.emissions[middle + 2] = std::numeric_limits<TypeParam>::quiet_NaN();
  const auto got = run_curvature(there, x.there(), v.there());
  EXPECT_TRUE(std::isfinite(got.value[0]) && got.value[0] != 0 && got.value[1] == 0);
  for (std::size_t i = middle; i < 2 * middle; ++i) ASSERT_EQ(got.emissions[i], 0);
  x.emissions[middle + 2] = 0;
  x.transitions[3] = std::numeric_limits<TypeParam>::infinity();
  expect_zeros(run_curvature(there, x.there(), v.there()));
}

TYPED_TEST(Cuda, CurvatureIsTheSameFromRunToRun) {
  Ragged<TypeParam> x(srl(), cases(8, 2), cases(64, 30), 3.0, 51);
  std::fill(x.mask.begin(), x.mask.end(), 1);
  const Ragged<TypeParam> v(srl(), x.B, x.T, 1.0, 52);
  const cuda::DeviceConstraint there(srl());
  const auto one = run_curvature(there, x.there(), v.there()), another = run_curvature(there, x.there(), v.there());
  EXPECT_EQ(one.value, another.value);
  EXPECT_EQ(one.emissions, another.emissions);
  EXPECT_EQ(one.transitions, another.transitions);
}

template <class Half>
std::vector<Half> halves_of(const std::vector<float>& numbers) {
  std::vector<Half> halves;
  for (float x : numbers) halves.push_back(Half(x));
  return halves;
}

template <class Half>
void curvature_in_half(cuda::Type type) {
  const Ragged<float> x(srl(), 2, 9, 2.0, 71), v(srl(), 2, 9, 1.0, 72);
  const auto in_half = [&](const Ragged<float>& from) {
    const std::vector<Half> halves = halves_of<Half>(from.emissions);
    return DeviceBatch<float, Half>(2, 9, x.K, std::span<const Half>(halves), std::span<const float>(from.transitions),
                                    {}, {}, std::span<const std::uint8_t>(x.mask), type);
  };
  const auto in_float = [&](const Ragged<float>& from) {
    std::vector<float> rounded;
    for (Half number : halves_of<Half>(from.emissions)) rounded.push_back(static_cast<float>(number));
    return DeviceBatch<float>(2, 9, x.K, std::span<const float>(rounded), std::span<const float>(from.transitions), {},
                              {}, std::span<const std::uint8_t>(x.mask));
  };
  const cuda::DeviceConstraint there(srl());
  const auto one = run_curvature(there, in_half(x), in_half(v)), whole = run_curvature(there, in_float(x), in_float(v));
  EXPECT_EQ(one.value, whole.value);
  EXPECT_EQ(one.transitions, whole.transitions);
}

TEST(CudaTypes, DirectionsInHalfPrecisionAreReadAsTheyAre) {
  if (!cuda::available()) GTEST_SKIP() << "no CUDA device here";
  curvature_in_half<__half>(cuda::Type::f16);
  curvature_in_half<__nv_bfloat16>(cuda::Type::bf16);
}

}  // namespace
}  // namespace regccrf
