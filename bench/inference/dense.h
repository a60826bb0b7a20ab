// The paper's construction (section 4.1: every arc a tag) as a dense CRF over tags, in float32 with scaled
// probabilities: what a careful engineer would write without the factored step. A step is a [B, tags] × [tags, tags]
// product over the whole batch, blocked and vectorised by the compiler.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "regccrf/constraint.h"

namespace regccrf::bench {

class Dense {
 public:
  Dense(const Constraint& constraint, std::span<const float> transitions, int B, int T, int K)
      : arcs_(constraint.automaton().arcs),
        B_(B),
        T_(T),
        K_(K),
        N_(static_cast<int>(arcs_.size())),
        transitions_(transitions) {
    const Automaton& a = constraint.automaton();
    if (static_cast<double>(N_) * N_ * sizeof(float) > 2e9) return;  // too large to be run
    weight_.assign(static_cast<std::size_t>(N_) * N_, 0);
    for (int x = 0; x < N_; ++x) {
      for (int y = 0; y < N_; ++y) {
        if (arcs_[x].to == arcs_[y].from)
          weight_[std::size_t(x) * N_ + y] = std::exp(g(arcs_[x].label, arcs_[y].label));
      }
      starts_.push_back(arcs_[x].from == a.start);
      ends_.push_back(a.accepting[arcs_[x].to]);
    }
  }

  double log_z(std::span<const float> emissions) const {
    std::vector<float> alpha;
    return forward(emissions, alpha);
  }

  double nll(std::span<const float> emissions, std::span<const Label> gold, std::span<float> d_emissions,
             std::span<float> d_transitions) const {
    std::vector<float> alpha;
    const double z = forward(emissions, alpha);
    backward(emissions, alpha, d_emissions, d_transitions);
    double score = 0;
    for (int b = 0; b < B_; ++b) {
      for (int t = 0; t < T_; ++t) {
        const std::size_t row = std::size_t(b) * T_ + t;
        score += emissions[row * K_ + gold[row]];
        d_emissions[row * K_ + gold[row]] -= 1;
        if (t == 0) continue;
        score += g(gold[row - 1], gold[row]);
        d_transitions[std::size_t(gold[row - 1]) * K_ + gold[row]] -= 1;
      }
    }
    return z - score;
  }

  double viterbi(std::span<const float> emissions) const {
    const float none = -std::numeric_limits<float>::infinity();
    std::vector<float> score(std::size_t(N_) * N_, none);
    for (std::size_t i = 0; i < score.size(); ++i) {
      if (weight_[i] > 0) score[i] = std::log(weight_[i]);
    }
    double total = 0;
    std::vector<float> now(N_), next(N_);
    for (int b = 0; b < B_; ++b) {
      for (int y = 0; y < N_; ++y) now[y] = starts_[y] ? h(emissions, b, 0, y) : none;
      for (int t = 1; t < T_; ++t) {
        std::fill(next.begin(), next.end(), none);
        for (int x = 0; x < N_; ++x) {
          const float from = now[x];
          if (from == none) continue;
          const float* row = &score[std::size_t(x) * N_];
          for (int y = 0; y < N_; ++y) next[y] = std::max(next[y], from + row[y]);
        }
        for (int y = 0; y < N_; ++y) now[y] = next[y] + h(emissions, b, t, y);
      }
      float best = none;
      for (int y = 0; y < N_; ++y) best = ends_[y] ? std::max(best, now[y]) : best;
      total += best;
    }
    return total;
  }

 private:
  float g(Label a, Label b) const { return transitions_[std::size_t(a) * K_ + b]; }
  float h(std::span<const float> emissions, int b, int t, int tag) const {
    return emissions[(std::size_t(b) * T_ + t) * K_ + arcs_[tag].label];
  }
  std::size_t at(int t, int b) const { return (std::size_t(t) * B_ + b) * N_; }

  // alpha[t, b, tag], each row scaled to sum 1; gives Σ_b log Z.
  double forward(std::span<const float> emissions, std::vector<float>& alpha) const {
    alpha.assign(std::size_t(T_) * B_ * N_, 0);
    double log_scale = 0;
    for (int t = 0; t < T_; ++t) {
      if (t > 0) multiply(&alpha[at(t - 1, 0)], &alpha[at(t, 0)], false);
      for (int b = 0; b < B_; ++b) {
        float* row = &alpha[at(t, b)];
        double sum = 0;
        for (int y = 0; y < N_; ++y) {
          if (t == 0) row[y] = starts_[y];
          row[y] *= std::exp(h(emissions, b, t, y));
          if (t == T_ - 1 && !ends_[y]) row[y] = 0;
          sum += row[y];
        }
        for (int y = 0; y < N_; ++y) row[y] = static_cast<float>(row[y] / sum);
        log_scale += std::log(sum);
      }
    }
    return log_scale;
  }

  void backward(std::span<const float> emissions, const std::vector<float>& alpha, std::span<float> d_emissions,
                std::span<float> d_transitions) const {
    std::fill(d_emissions.begin(), d_emissions.end(), 0.0f);
    std::fill(d_transitions.begin(), d_transitions.end(), 0.0f);
    std::vector<float> beta(std::size_t(B_) * N_), weighted(std::size_t(B_) * N_), counts(std::size_t(N_) * N_, 0);
    for (int b = 0; b < B_; ++b) {
      for (int y = 0; y < N_; ++y) beta[std::size_t(b) * N_ + y] = ends_[y];
    }
    for (int t = T_ - 1; t >= 0; --t) {
      for (int b = 0; b < B_; ++b) {
        const float* row = &alpha[at(t, b)];
        float* back = &beta[std::size_t(b) * N_];
        double sum = 0;
        for (int y = 0; y < N_; ++y) sum += static_cast<double>(row[y]) * back[y];
        const float scale = static_cast<float>(1 / sum);
        for (int y = 0; y < N_; ++y) {
          back[y] *= scale;
          d_emissions[(std::size_t(b) * T_ + t) * K_ + arcs_[y].label] += row[y] * back[y];
        }
        if (t == 0) continue;
        for (int y = 0; y < N_; ++y) weighted[std::size_t(b) * N_ + y] = back[y] * std::exp(h(emissions, b, t, y));
      }
      if (t == 0) break;
      multiply(weighted.data(), beta.data(), true);
      for (int b = 0; b < B_; ++b)
        expect(&alpha[at(t - 1, b)], &weighted[std::size_t(b) * N_], &beta[std::size_t(b) * N_], counts);
    }
    for (int x = 0; x < N_; ++x) {
      for (int y = 0; y < N_; ++y) {
        const std::size_t i = std::size_t(x) * N_ + y;
        if (weight_[i] > 0) d_transitions[std::size_t(arcs_[x].label) * K_ + arcs_[y].label] += counts[i] * weight_[i];
      }
    }
  }

  // counts[x, y] += alpha[x] · weighted[y] / norm, to be multiplied by the weights at the end
  void expect(const float* alpha, const float* weighted, const float* beta, std::vector<float>& counts) const {
    double sum = 0;
    for (int x = 0; x < N_; ++x) sum += static_cast<double>(alpha[x]) * beta[x];
    for (int x = 0; x < N_; ++x) {
      const float from = static_cast<float>(alpha[x] / sum);
      if (from == 0) continue;
      float* row = &counts[std::size_t(x) * N_];
      for (int y = 0; y < N_; ++y) row[y] += from * weighted[y];
    }
  }

  // out[b, y] = Σ_x in[b, x] weight[x, y], or out[b, x] = Σ_y in[b, y] weight[x, y]; each weight is read once for the
  // batch.
  void multiply(const float* in, float* out, bool transposed) const {
    std::fill(out, out + std::size_t(B_) * N_, 0.0f);
    for (int x = 0; x < N_; ++x) {
      const float* row = &weight_[std::size_t(x) * N_];
      for (int b = 0; b < B_; ++b) {
        if (transposed) {
          const float* values = in + std::size_t(b) * N_;
          float sums[16] = {};
          int y = 0;
          for (; y + 16 <= N_; y += 16) {
            for (int k = 0; k < 16; ++k) sums[k] += values[y + k] * row[y + k];
          }
          float sum = 0;
          for (; y < N_; ++y) sum += values[y] * row[y];
          for (float part : sums) sum += part;
          out[std::size_t(b) * N_ + x] = sum;
        } else {
          const float from = in[std::size_t(b) * N_ + x];
          float* to = out + std::size_t(b) * N_;
          for (int y = 0; y < N_; ++y) to[y] += from * row[y];
        }
      }
    }
  }

  std::vector<Arc> arcs_;
  int B_, T_, K_, N_;
  std::span<const float> transitions_;
  std::vector<float> weight_;  // [N, N] exp of the transition, 0 where it is illegal
  std::vector<std::uint8_t> starts_, ends_;
};

}  // namespace regccrf::bench
