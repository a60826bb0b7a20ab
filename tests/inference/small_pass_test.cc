// The small pass against the general one: a language by few nodes, and by the same nodes many times over, which the
// small pass does not serve. On every instruction set that this machine has.
#include "inference/cpu/small_pass.h"

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <cmath>
#include <limits>
#include <random>

#include "regccrf/loss.h"
#include "tests/oracle/automata.h"
#include "tests/oracle/random.h"

namespace regccrf {
namespace {

using Random = std::mt19937_64;

double between(Random& random, double low, double high) {
  return low + (high - low) * static_cast<double>(random() >> 11) * 0x1p-53;
}

Labels labels_of(int K) {
  std::vector<std::string> names;
  for (int a = 0; a < K; ++a) names.push_back("L" + std::to_string(a));
  return Labels(names);
}

// The same language with more nodes than the small pass serves.
Constraint enlarged(const Constraint& constraint) {
  const int K = constraint.labels().size();
  const int times = 2 + kFewNodes / static_cast<int>(constraint.size().nodes);
  const Automaton many = oracle::trim(oracle::product(constraint.automaton(), oracle::ring(times, K)));
  return Constraint::from_automaton(many, constraint.labels());
}

// Every sequence, spans, or something random. At most kFewNodes nodes.
Constraint random_constraint(Random& random, int K) {
  if (random() % 3 == 0) return Constraint::unconstrained(labels_of(K));
  Automaton automaton;
  if (random() % 2 == 0 && K % 2 == 1) {  // outside, then beginnings and insides; the next label says the state
    automaton.accepting.assign(static_cast<std::size_t>(K) / 2 + 1, 0);
    automaton.accepting[0] = 1;
    for (State q = 0; 2 * q < K; ++q) {
      automaton.arcs.push_back({0, 2 * q, 0});
      if (q == 0) continue;
      automaton.arcs.push_back({0, 2 * q, q});
      automaton.arcs.push_back({q, 2 * q - 1, q});
      automaton.arcs.push_back({q, 2 * q - 1, 0});
    }
  } else {
    oracle::Random other(random());
    automaton = oracle::random_automaton(other, oracle::automaton_kinds[random() % 3], std::min(K, 4), 8);
  }
  Constraint constraint = Constraint::from_automaton(automaton, labels_of(K));
  return constraint.size().nodes <= kFewNodes ? constraint : Constraint::unconstrained(labels_of(K));
}

struct Case {
  int K;
  std::vector<std::int64_t> first, length;
  std::vector<std::uint8_t> mask;
  std::vector<double> h, g, start, end, weights;
  std::vector<Label> gold;

  Case(Random& random, double size, double forbidden) : K(1 + static_cast<int>(random() % kFewNodes)) {
    std::int64_t rows = 0;
    for (int i = 0; i < 4; ++i) {
      first.push_back(rows);
      length.push_back(static_cast<std::int64_t>(random() % 40));
      rows += length.back();
    }
    const auto fill = [&](std::vector<double>& v, std::size_t count) {
      for (std::size_t i = 0; i < count; ++i) {
        const bool out = between(random, 0, 1) < forbidden;
        v.push_back(out ? -std::numeric_limits<double>::infinity() : between(random, -size, size));
      }
    };
    fill(h, static_cast<std::size_t>(rows) * K);
    fill(g, static_cast<std::size_t>(K) * K);
    if (random() % 2) fill(start, static_cast<std::size_t>(K));
    if (random() % 2) fill(end, static_cast<std::size_t>(K));
    for (int i = 0; i < 4; ++i) weights.push_back(between(random, 0, 2));
    const bool masked = random() % 2;
    for (std::int64_t t = 0; t < rows; ++t) {
      gold.push_back(static_cast<Label>(random() % static_cast<std::uint64_t>(K)));
      if (masked) mask.push_back(random() % 4 > 0);
    }
  }

  Scores<double> scores() const {
    return Scores(h, g, Layout::ragged(first, length).with_mask(mask)).with_start_end(start, end);
  }
};

struct Answer {
  std::vector<double> values, dh, dg, ds, de;
  std::vector<std::uint8_t> skipped;
};

// In Real, whose scores are rounded to it first.
template <class Real>
Answer answer(const Case& c, const Constraint& constraint) {
  const auto real = [](const std::vector<double>& x) { return std::vector<Real>(x.begin(), x.end()); };
  const std::vector<Real> h = real(c.h), g = real(c.g), start = real(c.start), end = real(c.end),
                          weights = real(c.weights);
  std::vector<Real> dh(h.size(), 7), dg(g.size(), 7), ds(static_cast<std::size_t>(c.K), 7), de(ds);
  const Scores<Real> scores = Scores(h, g, c.scores().layout).with_start_end(start, end);
  LossOptions options;
  options.outside = OutsideGold::skip;
  const Loss loss = nll<Real>(constraint, scores, c.gold, {dh, dg, ds, de, weights}, options);
  const auto same = [](const std::vector<Real>& x) { return std::vector<double>(x.begin(), x.end()); };
  return {loss.values, same(dh), same(dg), same(ds), same(de), loss.skipped};
}

void expect_near(const std::vector<double>& x, const std::vector<double>& y, double tolerance, const char* what) {
  ASSERT_EQ(x.size(), y.size());
  for (std::size_t i = 0; i < x.size(); ++i)
    ASSERT_NEAR(x[i], y[i], tolerance * std::max(1.0, std::abs(y[i]))) << what << " " << i;
}

template <class Real>
void expect_same(const Case& c, const Constraint& constraint) {
  const double tolerance = std::is_same_v<Real, float> ? 2e-5 : 1e-10;
  const Answer few = answer<Real>(c, constraint), many = answer<Real>(c, enlarged(constraint));
  EXPECT_EQ(few.skipped, many.skipped);
  expect_near(few.values, many.values, tolerance, "value");
  expect_near(few.dh, many.dh, tolerance, "emission");
  expect_near(few.dg, many.dg, tolerance, "transition");
  expect_near(few.ds, many.ds, tolerance, "start");
  expect_near(few.de, many.de, tolerance, "end");
}

// Gold that the constraint allows, where it allows any of that length.
void legalize(Case& c, const Constraint& constraint) {
  const std::vector<double> zeros(c.h.size(), 0.0), none(c.g.size(), 0.0);
  const Scores<double> scores(zeros, none, c.scores().layout);
  Options options;
  options.impossible = Impossible::allow;
  const auto drawn = sample(constraint, scores, {}, options);
  for (std::size_t i = 0; i < drawn.size(); ++i) {
    if (drawn[i].empty()) continue;
    std::size_t at = 0;
    for (std::int64_t t = c.first[i]; t < c.first[i] + c.length[i]; ++t) {
      if (c.mask.empty() || c.mask[t]) c.gold[t] = drawn[i][0].labels[at++];
    }
  }
}

class SmallPassProperty : public testing::TestWithParam<std::int64_t> {
 protected:
  void SetUp() override {
    if (!(hwy::SupportedTargets() & GetParam())) GTEST_SKIP() << "this machine has no " << hwy::TargetName(GetParam());
    hwy::SetSupportedTargetsForTest(GetParam());
    hwy::GetChosenTarget().DeInit();
  }
  void TearDown() override {
    hwy::SetSupportedTargetsForTest(0);
    hwy::GetChosenTarget().DeInit();
  }
};

TEST_P(SmallPassProperty, AgreesWithTheGeneralPass) {
  Random random(1);
  for (int round = 0; round < 200; ++round) {
    const double size = std::pow(10.0, between(random, -1, 4));
    Case c(random, size, round % 3 == 0 ? 0.3 : 0);
    const Constraint constraint = random_constraint(random, c.K);
    legalize(c, constraint);
    round % 4 == 3 ? expect_same<float>(c, constraint) : expect_same<double>(c, constraint);
    if (HasFatalFailure()) FAIL() << "round " << round;
  }
}
INSTANTIATE_TEST_SUITE_P(Targets, SmallPassProperty,
                         testing::Values(HWY_AVX3, HWY_AVX2, HWY_SSE4, HWY_SSSE3, HWY_EMU128, HWY_SCALAR),
                         [](const auto& target) { return std::string(hwy::TargetName(target.param)); });

TEST(SmallPass, ServesOrdinaryScoresItself) {
  Random random(2);
  for (int round = 0; round < 100; ++round) {
    Case c(random, round % 2 ? 5 : 40, 0);
    if (round % 10 == 0) {  // a long one
      c.length = {3000};
      c.first = {0};
      c.mask.clear();
      c.h.resize(3000 * static_cast<std::size_t>(c.K));
      for (double& x : c.h) x = between(random, -20, 20);
    }
    if (round % 10 == 5 && c.K > 1) {  // a label that cannot be reached, and that everybody likes best
      const auto K = static_cast<std::size_t>(c.K);
      c.start.assign(K, 0);
      c.start[0] = -std::numeric_limits<double>::infinity();
      for (std::size_t a = 1; a < K; ++a) c.g[a * K] = -std::numeric_limits<double>::infinity();
      for (std::size_t i = 0; i < c.h.size(); i += K) c.h[i] += 100;
    }
    const Scores<double> scores = c.scores();
    const Constraint constraint = Constraint::unconstrained(labels_of(c.K));
    const Constraints constraints(constraint);
    const Options options;
    const Batch<double> batch("test", constraints, scores, options);
    const Gains<double> gains(constraint.topology(), scores);
    Arena arena;
    for (std::int64_t i = 0; i < batch.size(); ++i) {
      const Sequence<double> sequence = batch.sequence(i, arena);
      if (sequence.T == 0) continue;
      EXPECT_TRUE(small_counts(gains, sequence, arena, Counts<double>{}, 1 << 30).trusted);
      EXPECT_FALSE(small_counts(gains, sequence, arena, Counts<double>{}, 8).trusted);  // no room
    }
  }
}

TEST(SmallPass, AgreesOnALongSequence) {
  Random random(3);
  Case c(random, 3, 0);
  c.first = {0};
  c.length = {100'000};
  c.mask.clear();
  c.weights = {1};
  c.h.resize(100'000 * static_cast<std::size_t>(c.K));
  for (double& x : c.h) x = between(random, -3, 3);
  c.gold.assign(100'000, 0);
  const Constraint constraint = Constraint::unconstrained(labels_of(c.K));
  const Answer few = answer<double>(c, constraint),
               two = answer<double>(c,
                                    Constraint::from_automaton(oracle::ring(2 + kFewNodes / c.K, c.K), labels_of(c.K)));
  expect_near(few.values, two.values, 1e-10, "value");
  expect_near(few.dh, two.dh, 1e-10, "emission");
  expect_near(few.dg, two.dg, 1e-10, "transition");
}

TEST(SmallPass, ServesFewNodes) {
  EXPECT_TRUE(has_small_pass(Constraint::unconstrained(labels_of(64)).topology()));
  EXPECT_FALSE(has_small_pass(Constraint::unconstrained(labels_of(65)).topology()));
  EXPECT_TRUE(has_small_pass(Constraint::from_automaton(oracle::ring(3, 21), labels_of(21)).topology()));
  EXPECT_FALSE(has_small_pass(Constraint::from_automaton(oracle::ring(3, 22), labels_of(22)).topology()));
  Automaton nothing;  // but the empty sequence
  nothing.accepting = {1};
  EXPECT_FALSE(has_small_pass(Constraint::from_automaton(nothing, labels_of(2)).topology()));
}

}  // namespace
}  // namespace regccrf
