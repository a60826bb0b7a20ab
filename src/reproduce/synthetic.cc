#include "reproduce/synthetic.h"

#include <cmath>
#include <random>

#include "regccrf/inference.h"
#include "regccrf/language.h"
#include "regccrf/loss.h"

namespace regccrf::experiments {
namespace {

struct Weights {
  std::vector<double> emissions, transitions;  // [T, K], [K, K]
};

Scores<double> scores_of(const Weights& weights) { return {weights.emissions, weights.transitions}; }

// Adds `amount` for every emission and transition that a sequence uses.
void add_counts(const std::vector<Label>& sequence, double amount, int K, Weights& into) {
  for (std::size_t t = 0; t < sequence.size(); ++t) {
    into.emissions[t * K + sequence[t]] += amount;
    if (t > 0) into.transitions[std::size_t(sequence[t - 1]) * K + sequence[t]] += amount;
  }
}

// How often each sequence of the data comes up in a batch, as shares.
std::vector<double> draw(const std::vector<double>& probabilities, int batch, std::mt19937_64& random) {
  std::vector<double> shares(probabilities.size(), 0);
  for (int i = 0; i < batch; ++i) {
    double u = static_cast<double>(random() >> 11) * 0x1p-53;
    std::size_t which = 0;
    while (which + 1 < probabilities.size() && (u -= probabilities[which]) >= 0) ++which;
    shares[which] += 1.0 / batch;
  }
  return shares;
}

Weights train(const Constraint& constraint, const Data& data, const Setting& setting, std::mt19937_64& random) {
  const int K = constraint.labels().size();
  const std::size_t T = data.sequences[0].size();
  Weights weights{std::vector<double>(T * K, 0), std::vector<double>(std::size_t(K) * K)};
  std::normal_distribution<double> normal(0, setting.deviation);
  for (double& g : weights.transitions) g = normal(random);

  Workspace workspace;
  LossOptions options;
  options.workspace = &workspace;
  Weights gradient = weights;
  double rate = setting.learning_rate;
  for (int step = 0; step < setting.steps; ++step) {
    if (step > 0 && step % setting.decay_every == 0) rate *= setting.decay;
    nll(constraint, scores_of(weights), data.sequences[0], {gradient.emissions, gradient.transitions, {}, {}}, options);
    add_counts(data.sequences[0], 1, K, gradient);  // expected counts alone
    const std::vector<double> shares = draw(data.probabilities, setting.batch, random);
    for (std::size_t i = 0; i < shares.size(); ++i) add_counts(data.sequences[i], -shares[i], K, gradient);
    for (std::size_t i = 0; i < gradient.emissions.size(); ++i) weights.emissions[i] -= rate * gradient.emissions[i];
    for (std::size_t i = 0; i < gradient.transitions.size(); ++i)
      weights.transitions[i] -= rate * gradient.transitions[i];
  }
  return weights;
}

std::vector<double> log_probabilities(const Constraint& constraint, const Data& data, const Weights& weights) {
  std::vector<double> result;
  for (const std::vector<Label>& sequence : data.sequences) {
    result.push_back(-nll(constraint, scores_of(weights), sequence).values[0]);
  }
  return result;
}

}  // namespace

Data figure2_data(int k) {
  const Language language = Language::parse("(a c)* | (b c)*", Labels({"a", "b", "c"}));
  std::vector<Label> ac, bc;
  for (int i = 0; i < k; ++i) {
    ac.insert(ac.end(), {0, 2});
    bc.insert(bc.end(), {1, 2});
  }
  return {compile(language), {ac, bc}, {0.75, 0.25}};
}

Data table1_data() {
  const Language language = Language::parse("a c d | b c d | b c e", Labels({"a", "b", "c", "d", "e"}));
  return {compile(language), {{0, 2, 3}, {1, 2, 3}, {1, 2, 4}}, {0.4, 0.3, 0.3}};
}

Outcome run(const Data& data, const Setting& setting, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const Weights free = train(Constraint::unconstrained(data.constraint.labels()), data, setting, random);
  const Weights constrained = train(data.constraint, data, setting, random);
  return {log_probabilities(data.constraint, data, free), log_probabilities(data.constraint, data, constrained)};
}

double cross_entropy(const Data& data, const std::vector<double>& log_p) {
  double sum = 0;
  for (std::size_t i = 0; i < log_p.size(); ++i) sum -= data.probabilities[i] * log_p[i];
  return sum;
}

}  // namespace regccrf::experiments
