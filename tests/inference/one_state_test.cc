// The one-state pass against the general one: "all sequences" as an automaton of one state, and as one of two that take
// turns, which the one-state pass does not serve. On every instruction set that this machine has.
#include "inference/cpu/one_state.h"

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <cmath>
#include <limits>
#include <random>

#include "regccrf/loss.h"

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

Constraint two_states(int K) {
  Automaton automaton;
  automaton.accepting = {1, 1};
  for (State q : {0, 1}) {
    for (Label a = 0; a < K; ++a) automaton.arcs.push_back({q, a, 1 - q});
  }
  return Constraint::from_automaton(automaton, labels_of(K));
}

struct Case {
  int K;
  std::vector<std::int64_t> first, length;
  std::vector<std::uint8_t> mask;
  std::vector<double> h, g, start, end, weights;
  std::vector<Label> gold;

  Case(Random& random, double size, double forbidden) : K(1 + static_cast<int>(random() % 32)) {
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

Answer answer(const Case& c, const Constraint& constraint) {
  Answer a;
  a.dh.assign(c.h.size(), 7);
  a.dg.assign(c.g.size(), 7);
  a.ds.assign(static_cast<std::size_t>(c.K), 7);
  a.de.assign(static_cast<std::size_t>(c.K), 7);
  LossOptions options;
  options.outside = OutsideGold::skip;
  const Loss loss = nll<double>(constraint, c.scores(), c.gold, {a.dh, a.dg, a.ds, a.de, c.weights}, options);
  a.values = loss.values;
  a.skipped = loss.skipped;
  return a;
}

void expect_near(const std::vector<double>& x, const std::vector<double>& y, const char* what) {
  ASSERT_EQ(x.size(), y.size());
  for (std::size_t i = 0; i < x.size(); ++i)
    ASSERT_NEAR(x[i], y[i], 1e-10 * std::max(1.0, std::abs(y[i]))) << what << " " << i;
}

void expect_same(const Case& c) {
  const Answer one = answer(c, Constraint::unconstrained(labels_of(c.K))), two = answer(c, two_states(c.K));
  EXPECT_EQ(one.skipped, two.skipped);
  expect_near(one.values, two.values, "value");
  expect_near(one.dh, two.dh, "emission");
  expect_near(one.dg, two.dg, "transition");
  expect_near(one.ds, two.ds, "start");
  expect_near(one.de, two.de, "end");
}

class OneStateProperty : public testing::TestWithParam<std::int64_t> {
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

TEST_P(OneStateProperty, AgreesWithTheGeneralPass) {
  Random random(1);
  for (int round = 0; round < 200; ++round) {
    const double size = std::pow(10.0, between(random, -1, 4));
    expect_same(Case(random, size, round % 3 == 0 ? 0.3 : 0));
    if (HasFatalFailure()) FAIL() << "round " << round;
  }
}
INSTANTIATE_TEST_SUITE_P(Targets, OneStateProperty,
                         testing::Values(HWY_AVX3, HWY_AVX2, HWY_SSE4, HWY_SSSE3, HWY_EMU128, HWY_SCALAR),
                         [](const auto& target) { return std::string(hwy::TargetName(target.param)); });

TEST(OneState, ServesOrdinaryScoresItself) {
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
    const OneState gains(scores);
    Arena arena;
    for (std::int64_t i = 0; i < batch.size(); ++i) {
      const Sequence<double> sequence = batch.sequence(i, arena);
      if (sequence.T == 0) continue;
      EXPECT_TRUE(one_state_counts(gains, sequence, arena, {}, 1 << 30).trusted);
      EXPECT_FALSE(one_state_counts(gains, sequence, arena, {}, 8).trusted);  // no room
    }
  }
}

TEST(OneState, AgreesOnALongSequence) {
  Random random(3);
  Case c(random, 3, 0);
  c.first = {0};
  c.length = {100'000};
  c.mask.clear();
  c.weights = {1};
  c.h.resize(100'000 * static_cast<std::size_t>(c.K));
  for (double& x : c.h) x = between(random, -3, 3);
  c.gold.assign(100'000, 0);
  expect_same(c);
}

TEST(OneState, ServesOneStateAlone) {
  EXPECT_TRUE(is_one_state(Constraint::unconstrained(labels_of(32)).topology()));
  EXPECT_FALSE(is_one_state(Constraint::unconstrained(labels_of(33)).topology()));
  EXPECT_FALSE(is_one_state(two_states(3).topology()));
  Automaton some;
  some.accepting = {1};
  some.arcs = {{0, 0, 0}};
  EXPECT_FALSE(is_one_state(Constraint::from_automaton(some, labels_of(2)).topology()));
}

}  // namespace
}  // namespace regccrf
