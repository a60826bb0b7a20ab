// The paper's auxiliary CRF (section 4): an ordinary, dense CRF whose tags are the arcs of the automaton (4.1), or the
// classes (q, a) of arcs that leave one state by one label (4.2). A tag carries its arc's label and that label's
// scores; what is illegal has score -inf. Every step is a dense product over tags².
//
// The steps are plain loops over [B, Y] rows and the [Y, Y] matrix, free of branches, so that a compiler vectorises
// them; R is float or double. The same code is the baseline that benchmarks call the paper's dense construction.
//
//   DenseTags<double> crf(arcs_as_tags(automaton), transitions, K);
//   crf.gradients(batch)   probabilities, rescaled at every step: for scores of moderate range
//   crf.log_z(batch)       log domain: for any scores
//   crf.viterbi(batch)     likewise
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "regccrf/automaton.h"

namespace regccrf::oracle {

struct Tags {
  std::vector<Label> label;           // [Y]
  std::vector<std::uint8_t> follows;  // [Y, Y] 1 where the second tag may follow the first
  std::vector<std::uint8_t> first;    // [Y] 1 where the tag may be the first
  std::vector<std::uint8_t> last;     // [Y] … the last
  std::size_t size() const { return label.size(); }
};

Tags arcs_as_tags(const Automaton& automaton);     // section 4.1: Y = A
Tags classes_as_tags(const Automaton& automaton);  // section 4.2: Y = nodes

// B sequences of one length.
template <class R>
struct TagBatch {
  std::size_t sequences, length;  // B, T ≥ 1
  std::span<const R> emissions;   // [B, T, K]
  std::span<const R> start, end;  // [K], or empty
};

template <class R>
struct TagResult {
  std::vector<double> log_z;  // [B]
  std::vector<R> labels;      // [B, T, K] marginals
  std::vector<R> bigrams;     // [K, K] expected counts, summed over the batch
};

template <class R>
struct TagPaths {
  std::vector<double> score;              // [B]
  std::vector<std::vector<Label>> paths;  // [B][T]
};

// out[b, j] = Σ_i x[b, i]·matrix[i, j]
template <class R>
void sum_step(const R* x, const R* matrix, R* out, std::size_t rows, std::size_t tags) {
  std::fill(out, out + rows * tags, R{0});
  for (std::size_t i = 0; i < tags; ++i) {
    const R* __restrict from = matrix + i * tags;
    for (std::size_t b = 0; b < rows; ++b) {
      const R weight = x[b * tags + i];
      R* __restrict to = out + b * tags;
      for (std::size_t j = 0; j < tags; ++j) to[j] += weight * from[j];
    }
  }
}

// out[b, j] = max_i x[b, i] + matrix[i, j]
template <class R>
void max_step(const R* x, const R* matrix, R* out, std::size_t rows, std::size_t tags) {
  std::fill(out, out + rows * tags, -std::numeric_limits<R>::infinity());
  for (std::size_t i = 0; i < tags; ++i) {
    const R* __restrict from = matrix + i * tags;
    for (std::size_t b = 0; b < rows; ++b) {
      const R score = x[b * tags + i];
      R* __restrict to = out + b * tags;
      for (std::size_t j = 0; j < tags; ++j) to[j] = to[j] < score + from[j] ? score + from[j] : to[j];
    }
  }
}

// sum[i, j] += Σ_b x[b, i]·y[b, j]
template <class R>
void outer_step(const R* x, const R* y, R* sum, std::size_t rows, std::size_t tags) {
  for (std::size_t i = 0; i < tags; ++i) {
    R* __restrict to = sum + i * tags;
    for (std::size_t b = 0; b < rows; ++b) {
      const R weight = x[b * tags + i];
      const R* __restrict from = y + b * tags;
      for (std::size_t j = 0; j < tags; ++j) to[j] += weight * from[j];
    }
  }
}

template <class R>
class DenseTags {
 public:
  DenseTags(Tags tags, std::span<const R> transitions, int labels)
      : tags_(std::move(tags)), Y_(tags_.size()), K_(static_cast<std::size_t>(labels)) {
    g_.assign(Y_ * Y_, impossible);
    for (std::size_t i = 0; i < Y_; ++i) {
      for (std::size_t j = 0; j < Y_; ++j) {
        if (tags_.follows[i * Y_ + j]) g_[i * Y_ + j] = transitions[tags_.label[i] * K_ + tags_.label[j]];
      }
    }
    for (R g : g_) largest_g_ = std::max(largest_g_, g);
    if (largest_g_ == impossible) largest_g_ = 0;
    weight_.resize(Y_ * Y_);
    transposed_.resize(Y_ * Y_);
    for (std::size_t i = 0; i < Y_; ++i) {
      for (std::size_t j = 0; j < Y_; ++j) {
        transposed_[j * Y_ + i] = weight_[i * Y_ + j] = std::exp(g_[i * Y_ + j] - largest_g_);
      }
    }
  }

  TagResult<R> gradients(const TagBatch<R>& batch) const {
    const std::size_t row = batch.sequences * Y_;
    std::vector<R> h(batch.length * row), alpha(batch.length * row), moved(row), beta(row), joint(Y_ * Y_, R{0});
    TagResult<R> result;
    result.log_z.assign(batch.sequences, static_cast<double>(largest_g_) * static_cast<double>(batch.length - 1));
    for (std::size_t t = 0; t < batch.length; ++t) emission_weights(batch, t, &h[t * row], result.log_z);

    for (std::size_t t = 0; t < batch.length; ++t) {
      R* now = &alpha[t * row];
      if (t == 0) std::copy(h.begin(), h.begin() + static_cast<std::ptrdiff_t>(row), now);
      if (t > 0) sum_step(now - row, weight_.data(), now, batch.sequences, Y_);
      if (t > 0) multiply(now, &h[t * row], row);
      for (std::size_t b = 0; b < batch.sequences; ++b) result.log_z[b] += rescale(now + b * Y_);
    }
    result.labels.assign(batch.sequences * batch.length * K_, R{0});
    std::fill(beta.begin(), beta.end(), R{1});
    for (std::size_t t = batch.length; t-- > 0;) {
      add_labels(batch, t, &alpha[t * row], beta, result.labels);
      if (t == 0) break;
      multiply(beta.data(), &h[t * row], row);
      sum_step(beta.data(), transposed_.data(), moved.data(), batch.sequences, Y_);
      balance(&alpha[(t - 1) * row], moved, beta, batch.sequences);
      outer_step(&alpha[(t - 1) * row], beta.data(), joint.data(), batch.sequences, Y_);
      std::swap(beta, moved);
    }
    result.bigrams = by_label(joint);
    return result;
  }

  std::vector<double> log_z(const TagBatch<R>& batch) const {
    std::vector<double> log_z;
    for (std::size_t b = 0; b < batch.sequences; ++b) {
      std::vector<R> alpha = emission_scores(batch, b, 0), next(Y_), largest(Y_);
      for (std::size_t t = 1; t < batch.length; ++t) {
        log_step(alpha.data(), largest.data(), next.data());
        const std::vector<R> h = emission_scores(batch, b, t);
        for (std::size_t j = 0; j < Y_; ++j) alpha[j] = next[j] + h[j];
      }
      log_z.push_back(log_sum(alpha));
    }
    return log_z;
  }

  TagPaths<R> viterbi(const TagBatch<R>& batch) const {
    const std::size_t row = batch.sequences * Y_;
    std::vector<R> best(batch.length * row);
    for (std::size_t t = 0; t < batch.length; ++t) {
      R* now = &best[t * row];
      if (t == 0) std::fill(now, now + row, R{0});
      if (t > 0) max_step(now - row, g_.data(), now, batch.sequences, Y_);
      for (std::size_t b = 0; b < batch.sequences; ++b) {
        const std::vector<R> h = emission_scores(batch, b, t);
        for (std::size_t j = 0; j < Y_; ++j) now[b * Y_ + j] += h[j];
      }
    }
    TagPaths<R> result;
    for (std::size_t b = 0; b < batch.sequences; ++b) trace_back(batch, b, best, result);
    return result;
  }

 private:
  static constexpr R impossible = -std::numeric_limits<R>::infinity();

  // h' of one position. [Y]
  std::vector<R> emission_scores(const TagBatch<R>& batch, std::size_t b, std::size_t t) const {
    const bool is_first = t == 0, is_last = t + 1 == batch.length;
    std::vector<R> h(Y_);
    for (std::size_t y = 0; y < Y_; ++y) {
      const Label a = tags_.label[y];
      h[y] = batch.emissions[(b * batch.length + t) * K_ + a];
      if (is_first && !batch.start.empty()) h[y] += batch.start[a];
      if (is_last && !batch.end.empty()) h[y] += batch.end[a];
      if ((is_first && !tags_.first[y]) || (is_last && !tags_.last[y])) h[y] = impossible;
    }
    return h;
  }

  // exp h' of one position for the batch, its largest score moved into log_z. [B, Y]
  void emission_weights(const TagBatch<R>& batch, std::size_t t, R* weights, std::vector<double>& log_z) const {
    for (std::size_t b = 0; b < batch.sequences; ++b) {
      const std::vector<R> h = emission_scores(batch, b, t);
      R largest = *std::max_element(h.begin(), h.end());
      if (largest == impossible) largest = 0;
      log_z[b] += largest;
      for (std::size_t y = 0; y < Y_; ++y) weights[b * Y_ + y] = std::exp(h[y] - largest);
    }
  }

  static void multiply(R* __restrict x, const R* __restrict y, std::size_t size) {
    for (std::size_t i = 0; i < size; ++i) x[i] *= y[i];
  }

  // Divides a row by its sum, and returns the sum's log.
  double rescale(R* row) const {
    double sum = 0;
    for (std::size_t j = 0; j < Y_; ++j) sum += row[j];
    if (sum == 0) return impossible;
    const R scale = static_cast<R>(1 / sum);
    for (std::size_t j = 0; j < Y_; ++j) row[j] *= scale;
    return std::log(sum);
  }

  // Scales a backward row, before and after its move, so that alpha·beta sums to 1: both are then probabilities.
  void balance(const R* alpha, std::vector<R>& after, std::vector<R>& before, std::size_t rows) const {
    for (std::size_t b = 0; b < rows; ++b) {
      double sum = 0;
      for (std::size_t j = 0; j < Y_; ++j) sum += static_cast<double>(alpha[b * Y_ + j]) * after[b * Y_ + j];
      const R scale = sum == 0 ? R{0} : static_cast<R>(1 / sum);
      for (std::size_t j = 0; j < Y_; ++j) after[b * Y_ + j] *= scale;
      for (std::size_t j = 0; j < Y_; ++j) before[b * Y_ + j] *= scale;
    }
  }

  void add_labels(const TagBatch<R>& batch, std::size_t t, const R* alpha, const std::vector<R>& beta,
                  std::vector<R>& labels) const {
    for (std::size_t b = 0; b < batch.sequences; ++b) {
      R* to = &labels[(b * batch.length + t) * K_];
      for (std::size_t y = 0; y < Y_; ++y) to[tags_.label[y]] += alpha[b * Y_ + y] * beta[b * Y_ + y];
    }
  }

  std::vector<R> by_label(const std::vector<R>& joint) const {
    std::vector<double> sums(K_ * K_, 0);
    for (std::size_t i = 0; i < Y_; ++i) {
      for (std::size_t j = 0; j < Y_; ++j) {
        sums[tags_.label[i] * K_ + tags_.label[j]] += static_cast<double>(joint[i * Y_ + j]) * weight_[i * Y_ + j];
      }
    }
    return {sums.begin(), sums.end()};
  }

  // out[j] = log Σ_i exp(x[i] + g'[i, j])
  void log_step(const R* x, R* largest, R* out) const {
    max_step(x, g_.data(), largest, 1, Y_);
    for (std::size_t j = 0; j < Y_; ++j) largest[j] = largest[j] == impossible ? R{0} : largest[j];
    std::fill(out, out + Y_, R{0});
    for (std::size_t i = 0; i < Y_; ++i) {
      for (std::size_t j = 0; j < Y_; ++j) out[j] += std::exp(x[i] + g_[i * Y_ + j] - largest[j]);
    }
    for (std::size_t j = 0; j < Y_; ++j) out[j] = largest[j] + std::log(out[j]);
  }

  static double log_sum(const std::vector<R>& values) {
    const double largest = *std::max_element(values.begin(), values.end());
    if (largest == impossible) return largest;
    double sum = 0;
    for (R value : values) sum += std::exp(static_cast<double>(value) - largest);
    return largest + std::log(sum);
  }

  void trace_back(const TagBatch<R>& batch, std::size_t b, const std::vector<R>& best, TagPaths<R>& result) const {
    const auto row = [&](std::size_t t) { return &best[(t * batch.sequences + b) * Y_]; };
    std::vector<Label> path(batch.length);
    const R* last = row(batch.length - 1);
    std::size_t tag = static_cast<std::size_t>(std::max_element(last, last + Y_) - last);
    result.score.push_back(last[tag]);
    for (std::size_t t = batch.length; t-- > 0;) {
      path[t] = tags_.label[tag];
      if (t > 0) tag = best_before(row(t - 1), tag);
    }
    result.paths.push_back(std::move(path));
  }

  std::size_t best_before(const R* before, std::size_t tag) const {
    std::size_t best = 0;
    for (std::size_t i = 1; i < Y_; ++i) {
      if (before[i] + g_[i * Y_ + tag] > before[best] + g_[best * Y_ + tag]) best = i;
    }
    return best;
  }

  Tags tags_;
  std::size_t Y_, K_;
  R largest_g_ = impossible;
  std::vector<R> g_;                    // [Y, Y] g'
  std::vector<R> weight_, transposed_;  // [Y, Y] exp(g' - largest_g_), and its transpose
};

inline Tags arcs_as_tags(const Automaton& automaton) {
  Tags tags;
  const std::vector<Arc>& arcs = automaton.arcs;
  for (const Arc& arc : arcs) {
    tags.label.push_back(arc.label);
    tags.first.push_back(arc.from == automaton.start);
    tags.last.push_back(automaton.accepting[arc.to]);
    for (const Arc& next : arcs) tags.follows.push_back(arc.to == next.from);
  }
  return tags;
}

inline Tags classes_as_tags(const Automaton& automaton) {
  std::map<std::pair<State, Label>, std::set<State>> targets;
  for (const Arc& arc : automaton.arcs) targets[{arc.from, arc.label}].insert(arc.to);
  Tags tags;
  for (const auto& [source, reached] : targets) {
    bool accepts = false;
    for (State r : reached) accepts = accepts || automaton.accepting[r];
    tags.label.push_back(source.second);
    tags.first.push_back(source.first == automaton.start);
    tags.last.push_back(accepts);
    for (const auto& [next, unused] : targets) tags.follows.push_back(reached.count(next.first) > 0);
  }
  return tags;
}

}  // namespace regccrf::oracle
