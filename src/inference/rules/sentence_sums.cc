// The walk back over a sentence's automaton, and the entropy of its distribution (see sentence_automaton.h).
#include <algorithm>
#include <cmath>

#include "inference/rules/sentence_automaton.h"

namespace regccrf {

// later_: beta of the cell that each row of position t goes to by each node of the position after it.
void SentenceAutomaton::find_later(std::int64_t t) {
  const Layer &layer = layers_[t], &after = layers_[t + 1];
  const std::size_t width = layer.width();
  later_.assign(static_cast<std::size_t>(after.live) * width, 0.0);
  for (std::int32_t j = 0; j < after.live; ++j) {
    const double* beta = beta_.data() + cell(t + 1, j, 0);
    double* to = later_.data() + static_cast<std::size_t>(j) * width;
    for (std::int32_t i = 0; i < layer.rows; ++i) {
      const std::int32_t row = moved(t, i, j);
      if (row != kGone) to[i] = beta[row];
    }
  }
}

void SentenceAutomaton::backward() {
  beta_.assign(alpha_.size(), 0.0);
  const std::int64_t last = chain_->T() - 1;
  for (std::size_t c = layers_[last].cells; c < alpha_.size(); ++c) beta_[c] = alpha_[c] > 0 ? 1 : 0;
  for (std::int64_t t = last - 1; t >= 0; --t) {
    find_later(t);
    for (std::int32_t j = 0; j < layers_[t].live; ++j) {
      const std::int32_t n = node(t, j), begin = chain_->arc_begin[n];
      sum_rows(chain_->arc_probability.data() + begin, chain_->arc_to.data() + begin,
               static_cast<std::size_t>(chain_->arc_begin[n + 1] - begin), later_.data(), layers_[t].width(),
               beta_.data() + cell(t, j, 0));
    }
  }
}

// P_A is a Markov chain over cells, so −log P_A(y) is a sum over steps, and its mean a sum of local entropies.
double SentenceAutomaton::entropy() {
  find_means();
  entropy_ = 0;
  visit_cells(0, [&](std::int32_t, std::int32_t, std::size_t c) {
    entropy_ += alpha_[c] * beta_[c] / mass_ * (mean_before_[c] + mean_after_[c]);
  });
  return entropy_;
}

void SentenceAutomaton::find_means() {
  mean_before_.assign(alpha_.size(), 0.0);
  mean_after_.assign(alpha_.size(), 0.0);
  for (std::int64_t t = chain_->T() - 2; t >= 0; --t) {
    visit_steps(t, [&](std::size_t c, std::int32_t, std::size_t d, std::int32_t, double p) {
      mean_after_[c] += p * (mean_after_[d] - std::log(p));
    });
  }
  visit_cells(
      0, [&](std::int32_t, std::int32_t, std::size_t c) { mean_before_[c] = -std::log(alpha_[c] * beta_[c] / mass_); });
  for (std::int64_t t = 0; t + 1 < chain_->T(); ++t) {
    visit_steps(t, [&](std::size_t c, std::int32_t, std::size_t d, std::int32_t, double p) {
      // P(c | d) = P(c) p / P(d)
      const double share = alpha_[c] * beta_[c] * p / (alpha_[d] * beta_[d]);
      mean_before_[d] += share * (mean_before_[c] - std::log(p));
    });
  }
}

}  // namespace regccrf
