// Means and covariances: forward and backward over the expectation semiring (weight, weight · mean gain), in scaled
// doubles, in shared memory where there is room. It is fast, and says whether its answer can be used.
//
// Paths have a gain, which adds up along them. Beside the weight of some paths goes their weight times mean gain, and
// both follow by products and sums alone, first there and then back (Dual). Entropy is that too: with scores for gains
// it is log Z minus the mean gain, and its gradient minus the covariance of gain and counts.
//
// A position's weights are those of the truth over a power of two, chosen by the largest of the position before. Scores
// have the largest of their row subtracted. As in bounds.h, what would grow too small is kLeast on the way there
// and nothing on the way back, so that alpha is no less than the truth and beta no more; where both find the same Z and
// the same mean, both are right, and if not, the answer does not count. Sums of weights that are kLeast or more are
// normal numbers, so that a sum is 0 only where nothing leads. What a product of alpha and beta can lose by being small
// is nothing beside a position's sum of them, which is looked at.
//
// Covariances are taken around the mean that a position's own products have, not around the whole's: over many
// positions the two drift apart by rounding, as much for one term as for all others.
#pragma once

#include "inference/cuda/bounds.h"
#include "inference/cuda/prepare.h"
#include "inference/cuda/step/cluster_step.h"
#include "inference/cuda/wide/pass.h"
#include "inference/numerics/limits.h"

namespace regccrf::cuda::covariance {

struct CovarianceMemory {
  Prepared<double> scores;
  WideMemory<Averaged> wide;  // the scaled pass keeps its own steps and bigrams in it, too
  std::int64_t scaled_bytes;  // of a slot, for what has no room on chip
  std::int64_t* exponents;    // [slots, T]
  char* scaled;               // [slots, scaled_bytes]
};

// A call's arguments.
struct CovarianceArgs {
  WideScores scores;             // `gains`: of a path along the direction
  Array emissions, transitions;  // covariances with counts, or absent
  double* value;                 // [B]
  Status* status;                // [B] of an entropy, to be set
  const Status* known;           // [B] of a curvature
  const std::int64_t* gold;      // [rows] or null
  CovarianceMemory work;

  __host__ __device__ bool both_ways() const { return emissions || transitions; }
};

// A block's sequence, and the arrays of the scaled pass that are in memory.
struct CovarianceScratch {
  std::int32_t T;
  const std::int64_t* row;  // [T]
  const double *emissions, *shift;
  Averaged *saved, *firsts;
  double* bigrams;
  std::int64_t* exponents;

  __device__ CovarianceScratch(const CovarianceArgs& a, std::int64_t b) {
    const std::int64_t slot = blockIdx.x, K = a.scores.topology.K, N = a.scores.topology.nodes,
                       length = a.scores.batch.length;
    const WideMemory<Averaged>& wide = a.work.wide;
    T = a.scores.length[b];
    row = a.scores.row + b * length;
    emissions = a.work.scores.emissions + b * length * (K + 1);
    shift = a.work.scores.shift + b * length;
    saved = wide.saved + slot * even(wide.segment * N);
    firsts = wide.firsts + slot * even(wide.segments * N);
    bigrams = wide.bigrams + slot * a.scores.topology.bigrams.rounds;
    exponents = a.work.exponents + slot * length;
  }
};

struct __align__(16) Dual {
  double weight, gained;  // of some paths; the second is weight · mean gain
};
__device__ inline Dual operator+(Dual x, Dual y) { return {x.weight + y.weight, x.gained + y.gained}; }
__device__ inline Dual operator*(Dual x, Dual y) {
  return {x.weight * y.weight, x.weight * y.gained + x.gained * y.weight};
}
__device__ inline Dual operator*(Dual x, double y) { return {x.weight * y, x.gained * y}; }
__device__ inline Dual from_lane(Dual x, std::int32_t bit) {
  return {cuda::from_lane(x.weight, bit), cuda::from_lane(x.gained, bit)};
}

constexpr double kLeast = 0x1p-900, kLeastTransition = 0x1p-120;
constexpr double kMostMean = 1e4;          // of scores, beside an entropy of 1 or more: it is right to 1e-11
constexpr double kRounding = 4e-15;        // what a position adds, at most, to the relative error of Z
constexpr double kRoundingOfMean = 4e-16;  // … of a mean, which grows with the root of T

// A block's arrays, in one piece.
struct Scaled {
  Dual *g, *arrival, *back, *now;  // [K, K], [arrivals], [arrivals], [nodes]
  Dual *after, *after_next;        // [nodes] of a position and the one behind it
  Dual* row;                       // [K] emissions of a position
  Dual *both, *warps;              // [nodes] alpha · beta, and its sums by warp

  __host__ __device__ static std::int64_t bytes(const DeviceTopology& d) {
    const std::int64_t K = d.K;
    return 16 * (K * K + K + 2 * d.arrivals + 4 * d.nodes + kBlockThreads / 32);
  }
  __device__ Scaled(const DeviceTopology& d, char* room) {
    const std::int64_t K = d.K;
    g = reinterpret_cast<Dual*>(room);
    arrival = g + K * K, back = arrival + d.arrivals;
    now = back + d.arrivals, after = now + d.nodes, after_next = after + d.nodes;
    row = after_next + d.nodes;
    both = row + K, warps = both + d.nodes;
  }
};

// What scores are, and what they gain: as a direction says, or the scores themselves.
template <class Quantity>
struct Gains {
  static constexpr bool kScores = std::is_same_v<Quantity, Surprise>;
  const CovarianceArgs& a;
  const CovarianceScratch& s;

  // exp(score − shift), and times its gain. `weight`: as prepared.
  static __device__ Dual dual(double weight, double gain) { return {weight, weight > 0 ? weight * gain : 0}; }
  __device__ Dual emission(std::int32_t t, std::int32_t label) const {
    const std::int64_t K = a.scores.topology.K, i = s.row[t] * K + label;
    return dual(s.emissions[t * (K + 1) + label],
                kScores ? score_at(a.scores.batch.emissions, i) - s.shift[t] : gain_at(a.scores.gains.emissions, i));
  }
  static __device__ Dual transition(const CovarianceArgs& a, std::int32_t pair) {
    const double x = score_at(a.scores.batch.transitions, pair) - a.work.scores.shifts[0];
    return dual(exp(x), kScores ? x : gain_at(a.scores.gains.transitions, pair));
  }
  __device__ Dual start(std::int32_t label) const {
    return edge(a.work.scores.start, a.scores.batch.start, a.scores.gains.start, a.work.scores.shifts[1], label);
  }
  __device__ Dual end(std::int32_t label) const {
    return edge(a.work.scores.end, a.scores.batch.end, a.scores.gains.end, a.work.scores.shifts[2], label);
  }

 private:
  static __device__ Dual edge(const double* weights, const ConstArray& scores, const ConstArray& gains, double shift,
                              std::int32_t label) {
    return dual(weights[label], kScores ? optional_score_at(scores, label) - shift : gain_at(gains, label));
  }
};

// What a pass found, and whether it is to be trusted. The value does not depend on whether covariances are wanted.
struct Found {
  bool sure, covariances_sure, possible;
  double value;
};

template <class Quantity>
class ScaledPass {
 public:
  // `x`: its g is there.
  __device__ ScaledPass(const CovarianceArgs& a, const CovarianceScratch& s, const Scaled& x)
      : a_(a), d_(a.scores.topology), s_(s), gains_{a, s}, x_(x), peak_(peaks(), kNoPeak, threadIdx.x) {}

  __device__ Found run(std::int64_t b) {
    for (std::int32_t i = threadIdx.x; i < d_.K * d_.K; i += kBlockThreads) {
      const bool tiny = x_.g[i].weight < kLeastTransition;
      lost_ |= tiny && score_at(a_.scores.batch.transitions, i) > -INFINITY;
      look_at(x_.g[i]);
    }
    for (std::int32_t k = threadIdx.x; k < d_.K; k += kBlockThreads) look_at(gains_.start(k)), look_at(gains_.end(k));
    __syncthreads();
    forward(0, s_.T, false);
    close_forward();
    Found found{true, true, z_.weight > 0, 0};
    if (found.possible) {
      mean_ = z_.gained / z_.weight;
      const double log_z = std::log(z_.weight) + static_cast<double>(z_exponent_) * kLn2;
      found.value = kScores ? fmax(log_z - mean_, 0.0) : mean_;
      lost_ |= kScores && !(fabs(mean_) <= kMostMean * fmax(found.value, 1.0));
    }
    const bool lost = __syncthreads_or(lost_), rounded_up = __syncthreads_or(rounded_up_);
    found.sure = !lost;
    if (lost || !found.possible || !(rounded_up || a_.both_ways())) return found;
    backward(b);
    const double unit = kScores ? 1 : largest(), T = s_.T;
    const bool same = same_whole(T, kScores ? fmax(found.value, unit) : unit);
    found.sure = same || !rounded_up;
    if (!a_.both_ways()) return found;
    lost_ |= !(kRoundingOfMean * sqrt(T) * fabs(mean_) <= unit * (a_.scores.batch.type() == Type::f64 ? 5e-11 : 1e-6));
    found.covariances_sure = same && !__syncthreads_or(lost_);
    return found;
  }

 private:
  static constexpr bool kScores = Gains<Quantity>::kScores;
  static constexpr std::int32_t kNoPeak = -1023;  // the exponent of 0
  static __device__ std::int32_t* peaks() {
    __shared__ std::int32_t room[64];
    return room;
  }
  static __device__ std::int32_t exponent(double x) {  // of x ≥ 0
    return static_cast<std::int32_t>(std::bit_cast<std::uint64_t>(x) >> 52) - 1023;
  }
  static __device__ double exp2_of(std::int64_t e) {  // 2^e, |e| ≤ 1000
    const std::int64_t within = max(std::int64_t{-1000}, min(e, std::int64_t{1000}));
    return std::bit_cast<double>(static_cast<std::uint64_t>(1023 + within) << 52);
  }

  // x ⊗ y · scale, no less than the truth.
  __device__ Dual upwards(Dual x, Dual y, double scale) {
    const Dual result = (x * scale) * y;
    if (result.weight >= kLeast || !(x.weight > 0 && y.weight > 0)) return result;
    rounded_up_ = true;
    return Dual{1, x.gained / x.weight + y.gained / y.weight} * kLeast;
  }
  // The same, no more than the truth.
  static __device__ Dual downwards(Dual x, Dual y, double scale) {
    const Dual result = (x * scale) * y;
    return result.weight >= kLeast ? result : Dual{};
  }
  // Remembers the largest gain.
  __device__ void look_at(Dual x) {
    if (!kScores && x.weight > 0) largest_ = fmax(largest_, fabs(x.gained / x.weight));
  }
  // By how much to scale the next position: the largest exponent of this one.
  __device__ std::int64_t peak(std::int32_t step) const {
    const std::int32_t most = peak_.of_all(peak_.of_warp(step));
    return most == kNoPeak ? 0 : most;
  }

  __device__ Dual* saved_row(std::int32_t t) const {
    return reinterpret_cast<Dual*>(s_.saved) + std::int64_t{t % a_.work.wide.segment} * d_.nodes;
  }
  __device__ Dual* first_row(std::int32_t t) const {
    return reinterpret_cast<Dual*>(s_.firsts) + std::int64_t{t / a_.work.wide.segment} * d_.nodes;
  }

  __device__ void load_row(std::int32_t t) {
    for (std::int32_t k = threadIdx.x; k < d_.K; k += kBlockThreads) {
      x_.row[k] = gains_.emission(t, k);
      look_at(x_.row[k]);
    }
  }

  // Arrivals of the position that is present.
  __device__ void sum_into_arrivals() {
    sum_each(
        d_.arrivals,
        [&](std::int32_t m, std::int32_t lane, std::int32_t lanes) {
          return sum_range(d_.into_begin[m], d_.into_begin[m + 1], lane, lanes,
                           [&](std::int32_t i) { return x_.now[d_.into_node[i]]; });
        },
        [&](std::int32_t m, Dual sum) { x_.arrival[m] = sum; });
  }

  // The forward steps of positions from … to - 1, of which the one before is present. `again`: as they were before.
  __device__ void forward(std::int32_t from, std::int32_t to, bool again) {
    std::int64_t total = 0;
    for (std::int32_t t = from; t < to; ++t) {
      std::int64_t shift = 0;
      load_row(t);
      if (t > 0) {
        shift = again ? s_.exponents[t] - s_.exponents[t - 1] : peak(t - 1);
        sum_into_arrivals();
      }
      __syncthreads();
      total += shift;
      if (!again && threadIdx.x == 0) s_.exponents[t] = total;
      const double scale = exp2_of(-shift);
      const bool save = !again && a_.both_ways() && t % a_.work.wide.segment == 0;
      std::int32_t most = kNoPeak;
      sum_each(
          d_.nodes,
          [&](std::int32_t n, std::int32_t lane, std::int32_t lanes) {
            const std::int32_t r = d_.node_state[n], label = d_.node_label[n];
            if (t == 0) return r == d_.start && lane == 0 ? gains_.start(label) : Dual{};
            return sum_range(d_.arrival_begin[r], d_.arrival_begin[r + 1], lane, lanes,
                             [&](std::int32_t m) { return x_.arrival[m] * x_.g[d_.arrival_label[m] * d_.K + label]; });
          },
          [&](std::int32_t n, Dual sum) {
            const Dual v = upwards(sum, x_.row[d_.node_label[n]], scale);
            x_.now[n] = v;
            if (a_.both_ways()) saved_row(t)[n] = v;
            if (save) first_row(t)[n] = v;
            most = max(most, exponent(v.weight));
          });
      if (!again) peak_.publish(t, most);
      __syncthreads();
    }
    if (!again) z_exponent_ = total;
  }

  // Computes alpha again from the first position of the segment of t, which is kept, up to t.
  __device__ void recompute_segment(std::int32_t t) {
    const std::int32_t first = t / a_.work.wide.segment * a_.work.wide.segment;
    for (std::int32_t n = threadIdx.x; n < d_.nodes; n += kBlockThreads)
      x_.now[n] = saved_row(first)[n] = first_row(first)[n];
    __syncthreads();
    forward(first + 1, t + 1, true);
  }

  __device__ void close_forward() {
    Dual mine{};
    for (std::int32_t n = threadIdx.x; n < d_.nodes; n += kBlockThreads)
      if (d_.node_accepts[n]) mine = mine + upwards(x_.now[n], gains_.end(d_.node_label[n]), 1);
    z_ = block_total(mine);
  }

  // What paths with this weight and gain add to a covariance around this mean.
  static __device__ double share(Dual x, double mean) {
    const double covariance = x.gained - mean * x.weight;
    return kScores ? -covariance : covariance;
  }

  // Bigrams of positions t and t + 1: arrivals of t, and `after` of t + 1. `around`: alpha · beta of t + 1, all of it.
  __device__ void add_bigrams(std::int32_t t, Dual around) {
    const std::int64_t e = s_.exponents[t + 1] - s_.exponents[t];
    lost_ |= !(around.weight * exp2_of(e) >= kLeast);
    const double mean = around.gained / around.weight, factor = exp2_of(-e) / around.weight;
    sum_bigrams(
        d_.bigrams, [&](std::int32_t m, std::int32_t n) { return x_.arrival[m] * x_.after_next[n]; },
        [&](std::int32_t round, std::int32_t pair, Dual sum) {
          s_.bigrams[round] += share(sum * x_.g[pair], mean) * factor;
        });
  }

  __device__ void go_back() {
    sum_each(
        d_.arrivals,
        [&](std::int32_t m, std::int32_t lane, std::int32_t lanes) {
          const std::int32_t r = d_.arrival_state[m], before = d_.arrival_label[m] * d_.K;
          return sum_range(d_.node_begin[r], d_.node_begin[r + 1], lane, lanes,
                           [&](std::int32_t n) { return x_.g[before + d_.node_label[n]] * x_.after_next[n]; });
        },
        [&](std::int32_t m, Dual sum) { x_.back[m] = sum; });
  }

  // beta of position t, and what depends on it. The position before becomes present, if it is kept.
  __device__ void step_back(std::int32_t t, double scale) {
    const bool last = t + 1 == s_.T;
    const Dual* before = a_.both_ways() && t % a_.work.wide.segment > 0 ? saved_row(t - 1) : nullptr;
    std::int32_t most = kNoPeak;
    Dual mine{};
    sum_each(
        d_.nodes,
        [&](std::int32_t n, std::int32_t lane, std::int32_t lanes) {
          if (last) return d_.node_accepts[n] && lane == 0 ? gains_.end(d_.node_label[n]) : Dual{};
          return sum_range(d_.from_begin[n], d_.from_begin[n + 1], lane, lanes,
                           [&](std::int32_t i) { return x_.back[d_.from_arrival[i]]; });
        },
        [&](std::int32_t n, Dual sum) {
          const Dual both = x_.now[n] * (sum * scale);
          x_.both[n] = both;
          mine = mine + both;
          if (before) x_.now[n] = before[n];
          const Dual after = downwards(sum, x_.row[d_.node_label[n]], scale);
          most = max(most, exponent(after.weight));
          x_.after[n] = after;
        });
    peak_.publish(t, most);
    mine = sum_of_lanes(mine, 32);
    if (threadIdx.x % 32 == 0) x_.warps[threadIdx.x / 32] = mine;
  }
  // alpha · beta of that position, after a barrier.
  __device__ Dual visited() {
    Dual sum{};
    for (std::int32_t w = 0; w < kBlockThreads / 32; ++w) sum = sum + x_.warps[w];
    lost_ |= !(sum.weight >= kLeast);
    return sum;
  }

  __device__ void write_labels(std::int32_t t, Dual around) {
    const double mean = around.gained / around.weight;
    sum_labels(
        d_, [&](std::int32_t n) { return x_.both[n]; },
        [&](std::int32_t label, Dual sum) {
          write_number(a_.emissions, s_.row[t] * d_.K + label, share(sum, mean) / around.weight);
        });
  }

  __device__ void backward(std::int64_t b) {
    for (std::int32_t i = threadIdx.x; i < d_.bigrams.rounds; i += kBlockThreads) s_.bigrams[i] = 0;
    Dual around{};
    for (std::int32_t t = s_.T - 1; t >= 0; --t) {
      std::int64_t shift = 0;
      if (t + 1 < s_.T) {
        if (a_.both_ways() && (t + 1) % a_.work.wide.segment == 0) recompute_segment(t);
        shift = peak(t + 1);
        if (a_.transitions) sum_into_arrivals();
        go_back();
      }
      load_row(t);
      __syncthreads();
      if (a_.transitions && t + 1 < s_.T) add_bigrams(t, around);
      beta_exponent_ += shift;
      step_back(t, exp2_of(-shift));
      __syncthreads();
      around = visited();
      if (a_.emissions) write_labels(t, around);
      Dual* const next = x_.after;
      x_.after = x_.after_next;
      x_.after_next = next;
    }
    if (!a_.transitions) return;
    each_bigram(d_.bigrams, d_.K, s_.bigrams,
                [&](std::int32_t pair, double sum) { write_number(a_.transitions, b * d_.K * d_.K + pair, sum); });
  }

  // Whether the way back has found the same Z, and the same mean in units of `size`.
  __device__ bool same_whole(double T, double size) {
    Dual mine{};
    for (std::int32_t n = d_.node_begin[d_.start] + threadIdx.x; n < d_.node_begin[d_.start + 1]; n += kBlockThreads)
      mine = mine + gains_.start(d_.node_label[n]) * x_.after_next[n];
    const Dual z = block_total(mine);
    return fabs(z.weight * exp2_of(beta_exponent_ - z_exponent_) / z_.weight - 1) <= kRounding * (T + 64) &&
           fabs(z.gained / z.weight - mean_) <= kAgreement<double> * size;
  }
  // The power of two above the largest gain.
  __device__ double largest() {
    peak_.publish(0, exponent(largest_));
    __syncthreads();
    return 2 * exp2_of(peak_.of_all(peak_.of_warp(0)));
  }

  const CovarianceArgs& a_;
  const DeviceTopology& d_;
  const CovarianceScratch& s_;
  Gains<Quantity> gains_;
  Scaled x_;
  Peak<std::int32_t> peak_;
  bool lost_ = false, rounded_up_ = false;
  Dual z_{};
  std::int64_t z_exponent_ = 0, beta_exponent_ = 0;
  double mean_ = 0, largest_ = 0;
};

}  // namespace regccrf::cuda::covariance
