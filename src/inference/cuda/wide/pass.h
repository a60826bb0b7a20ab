// Forward and backward in wide arithmetic, on the plain topology: slow, and always right. One block a sequence.
//
// Written once over what paths have: weights alone, for expected counts and samples, or weights and the mean of a
// quantity, for covariances (inference/cpu/covariance.h explains those).
#pragma once

#include "inference/cuda/block.h"
#include "inference/cuda/wide/wide.h"
#include "inference/numerics/mixture.h"

namespace regccrf::cuda {

// Weights alone: a count is the share that its paths have of all weight.
struct Weights {
  using Value = Wide;
  static __device__ Value of(Wide weight, double) { return weight; }
  static __device__ Value times(Value x, Value y) { return x * y; }

  // The sum of what each(take) hands to take.
  template <class Each>
  static __device__ Value sum(const Each& each) {
    Wide total = kWideZero;
    each([&](Value x) { total = total + x; });
    return total;
  }
  // The same of all threads of a block.
  template <class Each>
  static __device__ Value block_sum(const Each& each) {
    return block_total(sum(each));
  }
  // What paths add to a count, and the count of all that adds up to.
  static __device__ Wide part(Value x, Value) { return x; }
  static __device__ double count(Wide sum, Value whole) { return ratio(sum, whole); }
};

// Weights and the mean of a quantity: in the place of a count, its covariance with that.
template <class Quantity>
struct Means {
  using Value = Averaged;
  static __device__ Value of(Wide weight, double mean) { return {weight, mean}; }
  static __device__ Value times(const Value& x, const Value& y) { return {x.weight * y.weight, x.mean + y.mean}; }

  template <class Each>
  static __device__ Value sum(const Each& each) {
    const Wide total = weight_of(each);
    return total.m == 0 ? Value{kWideZero, 0} : Value{total, mean_of(each, total)};
  }
  template <class Each>
  static __device__ Value block_sum(const Each& each) {
    const Wide total = block_total(weight_of(each));
    return total.m == 0 ? Value{kWideZero, 0} : Value{total, block_total(mean_of(each, total))};
  }
  static __device__ double part(const Value& x, const Value& whole) {
    return covariance_share<Quantity>(x.weight, x.mean, whole);
  }
  static __device__ double count(double sum, const Value&) { return sum; }

 private:
  template <class Each>
  static __device__ Wide weight_of(const Each& each) {
    Wide total = kWideZero;
    each([&](const Value& x) { total = total + x.weight; });
    return total;
  }
  template <class Each>
  static __device__ double mean_of(const Each& each, Wide total) {
    Mixture<Quantity> mixture(total);
    each([&](const Value& x) { mixture.add(x.weight, x.mean); });
    return mixture.value();
  }
};

// What a path gains, as Batch has scores; 0 where there is none.
__device__ inline double gain_at(const ConstArray& numbers, std::int64_t i) {
  return numbers ? read_number(numbers, i) : 0;
}

// A block's way through its sequences, one after the other.
template <class Path>
class WidePass {
 public:
  using Value = typename Path::Value;

  __device__ WidePass(const WideScores& scores, const WideMemory<Value>& memory)
      : scores_(scores), d_(scores.topology), segment_(memory.segment) {
    const std::int64_t slot = blockIdx.x, K = d_.K, N = d_.nodes, M = d_.arrivals;
    g_ = memory.model + slot * (K * K + 3 * K), start_ = g_ + K * K, end_ = start_ + K, exp_row_ = end_ + K;
    saved_ = memory.saved + slot * even(memory.segment * N);
    firsts_ = memory.firsts + slot * even(memory.segments * N);
    arrivals_ = memory.arrivals + slot * 2 * M, back_ = arrivals_ + M;
    beta_ = memory.nodes + slot * 2 * N, after_ = beta_ + N;
    bigrams_ = memory.bigrams + slot * d_.bigrams.rounds;
  }

  // All paths of sequence b, which has positions. `recalls`: backward() or alpha() follow.
  __device__ Value forward(std::int64_t b, bool recalls) {
    T_ = scores_.length[b];
    row_ = scores_.row + b * scores_.batch.length;
    if (!loaded_) load_model();
    loaded_ = true;
    __syncthreads();
    steps(0, T_, recalls);
    const Value* v = saved_row(T_ - 1);
    return Path::block_sum([&](const auto& take) {
      for (std::int32_t n = threadIdx.x; n < d_.nodes; n += kBlockThreads)
        if (d_.node_accepts[n]) take(Path::times(v[n], end(d_.node_label[n])));
    });
  }

  // Alpha of position t, on the way back from the last one. The whole block takes part.
  __device__ const Value* alpha(std::int32_t t) {
    if (t + 1 < T_ && (t + 1) % segment_ == 0) recompute_segment(t);
    return saved_row(t);
  }
  __device__ Value end(std::int32_t label) const { return Path::of(end_[label], gain_at(scores_.gains.end, label)); }
  __device__ Value transition(std::int32_t pair) const {
    return Path::of(g_[pair], gain_at(scores_.gains.transitions, pair));
  }

  // Calls on_label(t, label, count) and, if `bigrams`, on_bigram(pair, count). `whole`: by forward(), not zero.
  template <class OnLabel, class OnBigram>
  __device__ void backward(const Value& whole, bool bigrams, const OnLabel& on_label, const OnBigram& on_bigram) {
    for (std::int32_t r = threadIdx.x; r < d_.bigrams.rounds; r += kBlockThreads) bigrams_[r] = 0;
    for (std::int32_t t = T_ - 1; t >= 0; --t) {
      const Value* v = alpha(t);
      if (t + 1 < T_) {
        if (bigrams) add_bigrams(v, whole);
        go_back();
      } else {
        begin_at_end();
      }
      load_row(t);
      __syncthreads();
      sum_labels(
          d_, [&](std::int32_t n) { return Path::part(Path::times(v[n], beta_[n]), whole); },
          [&](std::int32_t label, auto sum) { on_label(t, label, Path::count(sum, whole)); });
      for (std::int32_t n = threadIdx.x; n < d_.nodes; n += kBlockThreads)
        after_[n] = Path::times(beta_[n], emission(t, d_.node_label[n]));
      __syncthreads();
    }
    if (bigrams) each_bigram(d_.bigrams, d_.K, bigrams_, on_bigram);
  }

 private:
  __device__ void load_model() {
    const Batch& batch = scores_.batch;
    for (std::int32_t i = threadIdx.x; i < d_.K * d_.K; i += kBlockThreads)
      g_[i] = wide_exp(score_at(batch.transitions, i) * scores_.factor);
    for (std::int32_t k = threadIdx.x; k < d_.K; k += kBlockThreads) {
      start_[k] = wide_exp(optional_score_at(batch.start, k) * scores_.factor);
      end_[k] = wide_exp(optional_score_at(batch.end, k) * scores_.factor);
    }
  }
  __device__ void load_row(std::int32_t t) {
    for (std::int32_t k = threadIdx.x; k < d_.K; k += kBlockThreads)
      exp_row_[k] = wide_exp(score_at(scores_.batch.emissions, row_[t] * d_.K + k) * scores_.factor);
  }
  __device__ Value emission(std::int32_t t, std::int32_t label) const {
    return Path::of(exp_row_[label], gain_at(scores_.gains.emissions, row_[t] * d_.K + label));
  }

  __device__ Value* saved_row(std::int32_t t) const { return saved_ + std::int64_t{t % segment_} * d_.nodes; }
  __device__ Value* first_row(std::int32_t t) const { return firsts_ + std::int64_t{t / segment_} * d_.nodes; }

  __device__ void sum_into_arrivals(const Value* v) {
    for (std::int32_t m = threadIdx.x; m < d_.arrivals; m += kBlockThreads) {
      arrivals_[m] = Path::sum([&](const auto& take) {
        for (std::int32_t i = d_.into_begin[m]; i < d_.into_begin[m + 1]; ++i) take(v[d_.into_node[i]]);
      });
    }
  }
  // What leads to node n, from the start or from arrivals.
  __device__ Value at_start(std::int32_t n) const {
    const std::int32_t label = d_.node_label[n];
    return Path::of(d_.node_state[n] == d_.start ? start_[label] : Wide(kWideZero),
                    gain_at(scores_.gains.start, label));
  }
  __device__ Value from_arrivals(std::int32_t n) const {
    const std::int32_t r = d_.node_state[n], label = d_.node_label[n];
    return Path::sum([&](const auto& take) {
      for (std::int32_t m = d_.arrival_begin[r]; m < d_.arrival_begin[r + 1]; ++m)
        take(Path::times(arrivals_[m], transition(d_.arrival_label[m] * d_.K + label)));
    });
  }

  // Alpha of positions from … to - 1, of which the one before is kept.
  __device__ void steps(std::int32_t from, std::int32_t to, bool keep) {
    for (std::int32_t t = from; t < to; ++t) {
      load_row(t);
      if (t > 0) sum_into_arrivals(saved_row(t - 1));
      __syncthreads();
      for (std::int32_t n = threadIdx.x; n < d_.nodes; n += kBlockThreads) {
        const Value x = Path::times(t > 0 ? from_arrivals(n) : at_start(n), emission(t, d_.node_label[n]));
        saved_row(t)[n] = x;
        if (keep && t % segment_ == 0) first_row(t)[n] = x;
      }
      __syncthreads();
    }
  }
  // Computes alpha again from the first position of the segment of t, which is kept, up to t.
  __device__ void recompute_segment(std::int32_t t) {
    const std::int32_t first = t / segment_ * segment_;
    for (std::int32_t n = threadIdx.x; n < d_.nodes; n += kBlockThreads) saved_row(first)[n] = first_row(first)[n];
    __syncthreads();
    steps(first + 1, t + 1, false);
  }

  __device__ void begin_at_end() {
    for (std::int32_t n = threadIdx.x; n < d_.nodes; n += kBlockThreads) {
      const Value at_end = end(d_.node_label[n]);
      beta_[n] = d_.node_accepts[n] ? at_end : Path::times(Path::of(kWideZero, 0), at_end);
    }
  }
  // Beta of the position before that of `after_`.
  __device__ void go_back() {
    for (std::int32_t m = threadIdx.x; m < d_.arrivals; m += kBlockThreads) {
      const std::int32_t r = d_.arrival_state[m], before = d_.arrival_label[m] * d_.K;
      back_[m] = Path::sum([&](const auto& take) {
        for (std::int32_t n = d_.node_begin[r]; n < d_.node_begin[r + 1]; ++n)
          take(Path::times(transition(before + d_.node_label[n]), after_[n]));
      });
    }
    __syncthreads();
    for (std::int32_t n = threadIdx.x; n < d_.nodes; n += kBlockThreads) {
      beta_[n] = Path::sum([&](const auto& take) {
        for (std::int32_t i = d_.from_begin[n]; i < d_.from_begin[n + 1]; ++i) take(back_[d_.from_arrival[i]]);
      });
    }
  }
  // Bigrams of a position with this alpha and of the one behind it, which has `after_`.
  __device__ void add_bigrams(const Value* v, const Value& whole) {
    sum_into_arrivals(v);
    __syncthreads();
    sum_bigrams(
        d_.bigrams,
        [&](std::int32_t m, std::int32_t n) {
          const Value g = transition(d_.arrival_label[m] * d_.K + d_.node_label[n]);
          return Path::part(Path::times(Path::times(arrivals_[m], g), after_[n]), whole);
        },
        [&](std::int32_t round, std::int32_t, auto sum) { bigrams_[round] += Path::count(sum, whole); });
  }

  const WideScores& scores_;
  const DeviceTopology& d_;
  const std::int32_t segment_;
  Wide *g_, *start_, *end_, *exp_row_;
  Value *saved_, *firsts_, *arrivals_, *back_, *beta_, *after_;
  double* bigrams_;
  bool loaded_ = false;
  std::int32_t T_ = 0;
  const std::int64_t* row_ = nullptr;
};

}  // namespace regccrf::cuda
