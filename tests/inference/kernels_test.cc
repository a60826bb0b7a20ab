// The kernels give the same answers on every instruction set that this machine has.
#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <random>

#include "regccrf/inference.h"
#include "regccrf/loss.h"
#include "tests/oracle/algorithm1.h"
#include "tests/oracle/automata.h"

namespace regccrf {
namespace {

template <class Real>
struct Answers {
  std::vector<double> z, nll;
  std::vector<Real> emissions, transitions, start, end;
  std::vector<Label> best;
};

template <class Real>
Answers<Real> answers(const Constraint& constraint, double spread) {
  const int K = constraint.labels().size();
  const std::int64_t T = 30;
  std::mt19937 random(5);
  std::normal_distribution<double> normal(0, spread);
  std::vector<Real> h(static_cast<std::size_t>(T) * K), g(static_cast<std::size_t>(K) * K), start(K), end(K);
  for (auto* v : {&h, &g, &start, &end}) {
    for (Real& x : *v) x = static_cast<Real>(normal(random));
  }
  const Scores scores = Scores(h, g).with_start_end(start, end);
  Answers<Real> found{{}, {}, h, g, start, end, {}};
  found.best = viterbi(constraint, scores)[0].labels;
  found.z = log_z(constraint, scores);
  found.nll =
      nll<Real>(constraint, scores, found.best, {found.emissions, found.transitions, found.start, found.end, {}})
          .values;
  return found;
}

template <class Real>
void expect_near(const std::vector<Real>& x, const std::vector<Real>& y, double bound) {
  ASSERT_EQ(x.size(), y.size());
  for (std::size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(x[i], y[i], bound);
}

template <class Real>
void expect_same_everywhere(const Constraint& constraint, double bound, double spread = 1) {
  const Answers<Real> usual = answers<Real>(constraint, spread);
  const std::int64_t all = hwy::SupportedTargets();
  for (std::int64_t left = all; left != 0; left &= left - 1) {
    hwy::SetSupportedTargetsForTest(left & -left);
    hwy::GetChosenTarget().DeInit();
    SCOPED_TRACE(hwy::TargetName(left & -left));
    const Answers<Real> here = answers<Real>(constraint, spread);
    expect_near(usual.z, here.z, bound * 100);
    expect_near(usual.nll, here.nll, bound * 100);
    expect_near(usual.emissions, here.emissions, bound);
    expect_near(usual.transitions, here.transitions, bound);
    expect_near(usual.start, here.start, bound);
    expect_near(usual.end, here.end, bound);
    EXPECT_EQ(usual.best, here.best);
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().DeInit();
}

Labels numbered(int count) {
  std::vector<std::string> names;
  for (int i = 0; i < count; ++i) names.push_back("L" + std::to_string(i));
  return Labels(std::move(names));
}

TEST(Kernels, AgreeOnEveryInstructionSetInColumns) {
  const oracle::Roles roles = oracle::paper_roles();
  const Constraint srl = Constraint::from_automaton(oracle::algorithm1(roles), oracle::role_labels(roles));
  expect_same_everywhere<float>(srl, 1e-5);
  expect_same_everywhere<double>(srl, 1e-11);
}

TEST(Kernels, AgreeWhereNumbersGrowTooSmall) {
  const oracle::Roles roles = oracle::paper_roles();
  const Constraint srl = Constraint::from_automaton(oracle::algorithm1(roles), oracle::role_labels(roles));
  for (const double spread : {8., 30., 200.}) {
    expect_same_everywhere<float>(srl, 1e-5, spread);
    expect_same_everywhere<double>(srl, 1e-11, spread);
    expect_same_everywhere<float>(Constraint::unconstrained(numbered(33)), 1e-5, spread);
    expect_same_everywhere<double>(Constraint::unconstrained(numbered(33)), 1e-11, spread);
  }
}

TEST(Kernels, AgreeOnEveryInstructionSetInRows) {
  for (int K : {1, 7, 8, 9, 15, 16, 17, 24, 33, 47, 70}) {
    expect_same_everywhere<float>(Constraint::unconstrained(numbered(K)), 1e-5);
    expect_same_everywhere<double>(Constraint::unconstrained(numbered(K)), 1e-11);
  }
}

TEST(Kernels, AgreeOnEveryInstructionSetWhereStatesAreMany) {
  for (int states : {2, 3, 9}) {
    for (int K : {8, 9, 33, 70}) {
      const Constraint ring = Constraint::from_automaton(oracle::ring(states, K), numbered(K));
      expect_same_everywhere<float>(ring, 1e-5);
      expect_same_everywhere<double>(ring, 1e-11);
    }
  }
}

}  // namespace
}  // namespace regccrf
