// The paper's theory at work: training under the constraint is never worse than adding it afterwards.
#include "reproduce/synthetic.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "regccrf/language.h"
#include "regccrf/loss.h"

namespace regccrf {
namespace {

using experiments::Data;

TEST(Synthetic, TrainingRecoversTheDataAndDecodingDoesNot) {
  const Data data = experiments::table1_data();
  const experiments::Outcome outcome = experiments::run(data, {}, 1);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_NEAR(std::exp(outcome.training[i]), data.probabilities[i], 0.03);
  EXPECT_NEAR(std::exp(outcome.decoding[1]), 0.48, 0.03);
}

TEST(Synthetic, TheSameSeedGivesTheSameResult) {
  experiments::Setting setting;
  setting.steps = 50;
  const Data data = experiments::figure2_data(3);
  EXPECT_EQ(experiments::run(data, setting, 5).training, experiments::run(data, setting, 5).training);
}

// Weights that minimise the exact NLL of the data under a constraint, by gradient descent with momentum.
struct Fit {
  std::vector<double> emissions, transitions;
};

double loss_and_gradient(const Constraint& constraint, const Data& data, const Fit& fit, Fit& gradient) {
  const Scores scores(fit.emissions, fit.transitions);
  std::fill(gradient.emissions.begin(), gradient.emissions.end(), 0);
  std::fill(gradient.transitions.begin(), gradient.transitions.end(), 0);
  Fit one = gradient;
  double loss = 0;
  for (std::size_t i = 0; i < data.sequences.size(); ++i) {
    loss += data.probabilities[i] *
            nll<double>(constraint, scores, data.sequences[i], {one.emissions, one.transitions, {}, {}}).values[0];
    for (std::size_t j = 0; j < one.emissions.size(); ++j)
      gradient.emissions[j] += data.probabilities[i] * one.emissions[j];
    for (std::size_t j = 0; j < one.transitions.size(); ++j)
      gradient.transitions[j] += data.probabilities[i] * one.transitions[j];
  }
  return loss;
}

Fit converged(const Constraint& constraint, const Data& data) {
  const int K = constraint.labels().size();
  Fit fit{std::vector<double>(data.sequences[0].size() * K), std::vector<double>(std::size_t(K) * K)}, gradient = fit,
                                                                                                       speed = fit;
  const auto move = [](std::vector<double>& at, std::vector<double>& velocity, const std::vector<double>& slope) {
    for (std::size_t i = 0; i < at.size(); ++i) at[i] += velocity[i] = 0.95 * velocity[i] - 0.1 * slope[i];
  };
  for (int step = 0; step < 3'000; ++step) {
    loss_and_gradient(constraint, data, fit, gradient);
    move(fit.emissions, speed.emissions, gradient.emissions);
    move(fit.transitions, speed.transitions, gradient.transitions);
  }
  return fit;
}

TEST(Synthetic, UnconstrainedIsNeverBetterThanDecodingNorDecodingThanTraining) {
  const char* const patterns[] = {"(A | B C*)*", "(A B)* (C | ())",    "!(.* A A .*)", "at_most(1, A) & requires(B, C)",
                                  "A .* | .* B", "once_contiguous(A)", "(. .)* C?"};
  const Labels labels({"A", "B", "C"});
  std::mt19937 random(3);
  for (int round = 0; round < 28; ++round) {
    const Language language = Language::parse(patterns[round % 7], labels);
    const std::size_t length = 2 + random() % 4;
    if (language.count(length) == "0") continue;
    Data data{compile(language), {}, {}};
    double sum = 0;
    for (auto& sequence : language.random(length, 4, random())) {
      data.sequences.push_back(std::move(sequence));
      data.probabilities.push_back(0.1 + static_cast<double>(random() % 1000) / 1000);
      sum += data.probabilities.back();
    }
    for (double& p : data.probabilities) p /= sum;
    const Constraint free = Constraint::unconstrained(labels);
    const Fit free_fit = converged(free, data), constrained_fit = converged(data.constraint, data);
    Fit gradient = free_fit;
    const double unconstrained = loss_and_gradient(free, data, free_fit, gradient);
    const double decoding = loss_and_gradient(data.constraint, data, free_fit, gradient);
    const double training = loss_and_gradient(data.constraint, data, constrained_fit, gradient);
    EXPECT_GE(unconstrained, decoding - 1e-12) << patterns[round % 7];
    EXPECT_GE(decoding, training - 1e-3) << patterns[round % 7];  // the descent may not have ended yet
  }
}

}  // namespace
}  // namespace regccrf
