// Entropy and curvature on a device: the mean over all paths of a quantity that paths have, and its covariance with
// counts, as covariance_cpu.h explains them, in wide arithmetic over the topology. One block a sequence; forward alone
// where no gradient is wanted, else back again, with what the forward steps left kept for one segment of positions at a
// time and at the first position of every segment.
#include <algorithm>
#include <cmath>
#include <type_traits>

#include "inference/mixture.h"
#include "inference/prepare_cuda.h"
#include "inference/wide_cuda.h"

namespace regccrf::cuda {

namespace {

constexpr int kThreads = 512;
constexpr std::int64_t kSlotBytes = std::int64_t{1} << 24, kMostBytes = std::int64_t{1} << 28;

// One slot serves one block; blocks take sequences in turn.
struct Work {
  Prepared<double> scores;
  std::int32_t slots, segment, segments;
  Wide* model;         // [slots, K · K + 2 K] exp of transitions, start and end
  Wide* rows;          // [slots, 2, K + 1] of emissions, on the way there and on the way back
  Averaged* kept;      // [slots, segment, nodes] forward
  Averaged* firsts;    // [slots, segments, nodes]
  Averaged* arrivals;  // [slots, 2, arrivals] forward and backward
  Averaged* nodes;     // [slots, 2, nodes] backward: of what comes after; with its own emission
  double* bigrams;     // [slots, K, K]
};

struct Args {
  Batch batch;
  Batch direction;                // the same, with what a path gains in the place of scores
  void *emissions, *transitions;  // covariances with counts, or null
  double* value;                  // [B]
  Status* status;                 // [B] to be set, or null
  const Status* known;            // [B] … since it is known already
  const std::int64_t* gold;       // [rows] or null
  DeviceTopology topology;
  Work work;

  __host__ __device__ bool both_ways() const { return emissions || transitions; }
};

// What quantities gain by a score: Batch::emissions and the like, or null. Surprise comes from probabilities alone.
template <class Quantity>
__device__ double gain(const void* numbers, Type type, std::int64_t i) {
  if constexpr (std::is_same_v<Quantity, Gain>) {
    return numbers ? read_number(numbers, type, i) : 0;
  } else {
    return 0;
  }
}
template <class Quantity>
__device__ double emission_gain(const Args& a, std::int64_t row, std::int32_t label) {
  return gain<Quantity>(a.direction.emissions, a.direction.emissions_type, row * a.topology.K + label);
}
template <class Quantity>
__device__ double transition_gain(const Args& a, std::int64_t pair) {
  return gain<Quantity>(a.direction.transitions, a.direction.type, pair);
}
template <class Quantity>
__device__ double end_gain(const Args& a, std::int32_t label) {
  return gain<Quantity>(a.direction.end, a.direction.type, label);
}

// A block's sequence, and its arrays.
struct Slot {
  std::int32_t T;
  const std::int64_t* row;  // [T]
  Wide *g, *start, *end, *there, *back;
  Averaged *kept, *firsts, *arrival, *arrival_back, *beta, *after;
  double* bigrams;

  __device__ Slot(const Args& a, std::int64_t b) {
    const std::int64_t slot = blockIdx.x, K = a.topology.K, N = a.topology.nodes, M = a.topology.arrivals;
    T = a.work.scores.length[b];
    row = a.work.scores.row + b * a.batch.length;
    g = a.work.model + slot * (K * K + 2 * K), start = g + K * K, end = start + K;
    there = a.work.rows + slot * 2 * (K + 1), back = there + K + 1;
    kept = a.work.kept + slot * a.work.segment * N;
    firsts = a.work.firsts + slot * a.work.segments * N;
    arrival = a.work.arrivals + slot * 2 * M, arrival_back = arrival + M;
    beta = a.work.nodes + slot * 2 * N, after = beta + N;
    bigrams = a.work.bigrams + slot * K * K;
  }
};

// Calls result(i, Σ_j term(i, j)) for every i < count, j < size(i). As many neighbouring threads share an i as keeps
// the block busy.
template <class Size, class Term, class Result>
__device__ void sum_each(std::int32_t count, const Size& size, const Term& term, const Result& result) {
  std::int32_t lanes = 32;
  while (lanes > 1 && std::int64_t{count} * lanes > 2 * kThreads) lanes /= 2;
  const std::int32_t lane = threadIdx.x % lanes;
  for (std::int32_t first = 0; first < count; first += kThreads / lanes) {
    const std::int32_t i = first + threadIdx.x / lanes;
    double sum = 0;
    for (std::int32_t j = lane; i < count && j < size(i); j += lanes) sum += term(i, j);
    for (std::int32_t bit = lanes / 2; bit > 0; bit /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, bit);
    if (lane == 0 && i < count) result(i, sum);
  }
}

__device__ Averaged* kept_row(const Args& a, const Slot& s, std::int32_t t) {
  return s.kept + std::int64_t{t % a.work.segment} * a.topology.nodes;
}

// Σ of the weights that each(take) hands to take(weight, mean), with the mean of the whole.
template <class Quantity, class Each>
__device__ Averaged mix(const Each& each) {
  Wide total = kWideZero;
  each([&](Wide weight, double) { total = total + weight; });
  if (total.m == 0) return {kWideZero, 0};
  Mixture<Quantity> mixture(total);
  each([&](Wide weight, double mean) { mixture.add(weight, mean); });
  return {total, mixture.value()};
}

template <class Quantity>
__device__ void arrive(const Args& a, const Slot& s, const Averaged* v) {
  const DeviceTopology& d = a.topology;
  for (std::int32_t m = threadIdx.x; m < d.arrivals; m += kThreads) {
    s.arrival[m] = mix<Quantity>([&](const auto& take) {
      for (std::int32_t i = d.into_begin[m]; i < d.into_begin[m + 1]; ++i)
        take(v[d.into_node[i]].weight, v[d.into_node[i]].mean);
    });
  }
  __syncthreads();
}

// The forward steps of positions from … to - 1, of which the one before is kept.
template <class Quantity>
__device__ void forward(const Args& a, const Slot& s, std::int32_t from, std::int32_t to, bool save) {
  const DeviceTopology& d = a.topology;
  for (std::int32_t t = from; t < to; ++t) {
    load_wide_row(a.batch, d.K, 1, s.row[t], s.there);
    Averaged* v = kept_row(a, s, t);
    if (t > 0) {
      arrive<Quantity>(a, s, kept_row(a, s, t - 1));
    } else {
      __syncthreads();
    }
    for (std::int32_t n = threadIdx.x; n < d.nodes; n += kThreads) {
      const std::int32_t r = d.node_state[n], label = d.node_label[n];
      Averaged x{r == d.start ? s.start[label] : Wide(kWideZero),
                 gain<Quantity>(a.direction.start, a.direction.type, label)};
      if (t > 0) {
        x = mix<Quantity>([&](const auto& take) {
          for (std::int32_t m = d.arrival_begin[r]; m < d.arrival_begin[r + 1]; ++m) {
            const std::int32_t pair = d.arrival_label[m] * d.K + label;
            take(s.arrival[m].weight * s.g[pair], s.arrival[m].mean + transition_gain<Quantity>(a, pair));
          }
        });
      }
      x.weight = x.weight * s.there[label];
      x.mean += emission_gain<Quantity>(a, s.row[t], label);
      v[n] = x;
      if (save && t % a.work.segment == 0) s.firsts[std::int64_t{t / a.work.segment} * d.nodes + n] = x;
    }
    __syncthreads();
  }
}

// Makes the segment of position t present, whose end has just been left.
template <class Quantity>
__device__ void recall(const Args& a, const Slot& s, std::int32_t t) {
  const std::int32_t first = t / a.work.segment * a.work.segment;
  const Averaged* from = s.firsts + std::int64_t{t / a.work.segment} * a.topology.nodes;
  Averaged* v = kept_row(a, s, first);
  for (std::int32_t n = threadIdx.x; n < a.topology.nodes; n += kThreads) v[n] = from[n];
  __syncthreads();
  forward<Quantity>(a, s, first + 1, t + 1, false);
}

// The whole: its weight is Z.
template <class Quantity>
__device__ Averaged turn(const Args& a, const Slot& s) {
  const DeviceTopology& d = a.topology;
  const Averaged* v = kept_row(a, s, s.T - 1);
  const auto each_mine = [&](const auto& take) {
    for (std::int32_t n = threadIdx.x; n < d.nodes; n += kThreads) {
      if (d.node_accepts[n])
        take(v[n].weight * s.end[d.node_label[n]], v[n].mean + end_gain<Quantity>(a, d.node_label[n]));
    }
  };
  Wide mine = kWideZero;
  each_mine([&](Wide weight, double) { mine = mine + weight; });
  const Wide z = block_total<kThreads>(mine);
  if (z.m == 0) return {z, 0};
  Mixture<Quantity> mixture(z);
  each_mine([&](Wide weight, double mean) { mixture.add(weight, mean); });
  return {z, block_total<kThreads>(mixture.value())};
}

template <class Quantity>
__device__ void go_back(const Args& a, const Slot& s) {
  const DeviceTopology& d = a.topology;
  for (std::int32_t m = threadIdx.x; m < d.arrivals; m += kThreads) {
    const std::int32_t r = d.arrival_state[m], label = d.arrival_label[m];
    s.arrival_back[m] = mix<Quantity>([&](const auto& take) {
      for (std::int32_t n = d.node_begin[r]; n < d.node_begin[r + 1]; ++n) {
        const std::int32_t pair = label * d.K + d.node_label[n];
        take(s.g[pair] * s.after[n].weight, transition_gain<Quantity>(a, pair) + s.after[n].mean);
      }
    });
  }
  __syncthreads();
  for (std::int32_t n = threadIdx.x; n < d.nodes; n += kThreads) {
    s.beta[n] = mix<Quantity>([&](const auto& take) {
      for (std::int32_t i = d.from_begin[n]; i < d.from_begin[n + 1]; ++i)
        take(s.arrival_back[d.from_arrival[i]].weight, s.arrival_back[d.from_arrival[i]].mean);
    });
  }
  __syncthreads();
}

// The arrival in state r by a label, -1 where there is none.
__device__ std::int32_t find_arrival(const DeviceTopology& d, std::int32_t r, std::int32_t label) {
  std::int32_t low = d.arrival_begin[r], high = d.arrival_begin[r + 1];
  while (low < high) {
    const std::int32_t middle = low + (high - low) / 2;
    if (d.arrival_label[middle] < label) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low < d.arrival_begin[r + 1] && d.arrival_label[low] == label ? low : -1;
}

// Adds what bigrams of positions t and t + 1 give: arrivals of t, and `after` of t + 1.
template <class Quantity>
__device__ void add_bigrams(const Args& a, const Slot& s, Averaged whole) {
  const DeviceTopology& d = a.topology;
  sum_each(
      d.K * d.K, [&](std::int32_t pair) { return d.label_begin[pair % d.K + 1] - d.label_begin[pair % d.K]; },
      [&](std::int32_t pair, std::int32_t j) {
        const std::int32_t n = d.label_node[d.label_begin[pair % d.K] + j];
        const std::int32_t m = s.after[n].weight.m == 0 ? -1 : find_arrival(d, d.node_state[n], pair / d.K);
        if (m < 0) return 0.0;
        return covariance_share<Quantity>(s.arrival[m].weight * s.g[pair] * s.after[n].weight,
                                          s.arrival[m].mean + transition_gain<Quantity>(a, pair) + s.after[n].mean,
                                          whole);
      },
      [&](std::int32_t pair, double sum) { s.bigrams[pair] += sum; });
}

template <class Quantity>
__device__ void write_labels(const Args& a, const Slot& s, const Averaged* v, std::int64_t row, Averaged whole) {
  const DeviceTopology& d = a.topology;
  sum_each(
      d.K, [&](std::int32_t label) { return d.label_begin[label + 1] - d.label_begin[label]; },
      [&](std::int32_t label, std::int32_t j) {
        const std::int32_t n = d.label_node[d.label_begin[label] + j];
        return covariance_share<Quantity>(v[n].weight * s.beta[n].weight, v[n].mean + s.beta[n].mean, whole);
      },
      [&](std::int32_t label, double sum) { write_score(a.emissions, a.batch.type, row * d.K + label, sum); });
}

template <class Quantity>
__device__ void backward(const Args& a, const Slot& s, std::int64_t b, Averaged whole) {
  const DeviceTopology& d = a.topology;
  for (std::int32_t i = threadIdx.x; i < d.K * d.K; i += kThreads) s.bigrams[i] = 0;
  __syncthreads();
  for (std::int32_t t = s.T - 1; t >= 0; --t) {
    if (t + 1 < s.T && (t + 1) % a.work.segment == 0) recall<Quantity>(a, s, t);
    const Averaged* v = kept_row(a, s, t);
    load_wide_row(a.batch, d.K, 1, s.row[t], s.back);
    if (t + 1 == s.T) {
      for (std::int32_t n = threadIdx.x; n < d.nodes; n += kThreads)
        s.beta[n] = {d.node_accepts[n] ? s.end[d.node_label[n]] : Wide(kWideZero),
                     end_gain<Quantity>(a, d.node_label[n])};
      __syncthreads();
    } else {
      if (a.transitions) {
        arrive<Quantity>(a, s, v);
        add_bigrams<Quantity>(a, s, whole);
      }
      go_back<Quantity>(a, s);
    }
    if (a.emissions) write_labels<Quantity>(a, s, v, s.row[t], whole);
    for (std::int32_t n = threadIdx.x; n < d.nodes; n += kThreads)
      s.after[n] = {s.beta[n].weight * s.back[d.node_label[n]],
                    s.beta[n].mean + emission_gain<Quantity>(a, s.row[t], d.node_label[n])};
    __syncthreads();
  }
  for (std::int32_t i = threadIdx.x; a.transitions && i < d.K * d.K; i += kThreads)
    write_score(a.transitions, a.batch.type, b * d.K * d.K + i, s.bigrams[i]);
}

// The whole of a sequence that has scores: without a weight where nothing is possible. Covariances where wanted, zeros
// where it does not count.
template <class Quantity>
__device__ Averaged average(const Args& a, const Slot& s, std::int64_t b, bool counts) {
  Averaged whole{kWideZero, 0};
  if (counts && s.T == 0 && a.topology.empty) whole.weight = {1, 0};
  if (counts && s.T > 0) {
    forward<Quantity>(a, s, 0, s.T, a.both_ways());
    whole = turn<Quantity>(a, s);
  }
  if (a.both_ways() && whole.weight.m != 0 && s.T > 0) {
    backward<Quantity>(a, s, b, whole);
  } else {
    zero_counts(a.batch, a.topology.K, b, s.T, s.row, a.emissions, a.transitions);
  }
  __syncthreads();
  return whole;
}

__global__ void __launch_bounds__(kThreads) entropy_kernel(const __grid_constant__ Args a) {
  for (std::int64_t b = blockIdx.x; b < a.batch.size; b += gridDim.x) {
    const Slot s(a, b);
    if (b == blockIdx.x) load_wide_model(a.batch, a.topology.K, 1, s.g, s.start, s.end);
    Status& status = a.status[b];
    const bool bad_transition = *a.work.scores.bad != 0, bad = bad_transition || status.outcome != 0;
    __syncthreads();
    const Averaged whole = average<Surprise>(a, s, b, !bad);
    if (threadIdx.x != 0) continue;
    const bool possible = whole.weight.m != 0;
    a.value[b] = possible ? whole.mean : NAN;
    if (bad_transition) status.outcome = static_cast<std::int32_t>(Outcome::bad_transition);
    if (!bad && !possible) status.outcome = static_cast<std::int32_t>(Outcome::impossible);
  }
}

__global__ void __launch_bounds__(kThreads) curvature_kernel(const __grid_constant__ Args a) {
  for (std::int64_t b = blockIdx.x; b < a.batch.size; b += gridDim.x) {
    const Slot s(a, b);
    if (b == blockIdx.x) load_wide_model(a.batch, a.topology.K, 1, s.g, s.start, s.end);
    const bool fine = a.known[b].outcome == static_cast<std::int32_t>(Outcome::fine);
    __syncthreads();
    double value = average<Gain>(a, s, b, fine).mean;
    if (a.gold && fine) {
      const auto label = [&](std::int32_t t) { return a.gold[s.row[t]]; };
      value -= block_sum<kThreads>(path_score<false>(a.direction, a.topology.K, s.T, s.row, label));
    }
    if (threadIdx.x == 0) a.value[b] = value;
  }
}

Work cut_work(Cutter& cutter, const DeviceConstraint::Impl& c, const Args& args) {
  const std::int64_t T = std::max<std::int64_t>(args.batch.length, 1), K = c.topology.K, N = c.topology.nodes,
                     M = c.topology.arrivals, unit = sizeof(Averaged);
  Work w{};
  w.scores = cut_prepared<double>(cutter, c, args.batch, false);
  w.segment = 2;
  if (args.both_ways()) {
    const auto root = static_cast<std::int64_t>(std::ceil(std::sqrt(static_cast<double>(T))));
    w.segment = static_cast<std::int32_t>(std::max<std::int64_t>(T * N * unit <= kSlotBytes ? T : root, 2));
    w.segments = static_cast<std::int32_t>((T + w.segment - 1) / w.segment);
  }
  const std::int64_t numbers = (w.segment + w.segments + 2) * N + 2 * M, wides = K * K + 4 * K + 2;
  const std::int64_t most = std::max<std::int64_t>(kMostBytes / (numbers * unit + wides * 16 + K * K * 8), 1);
  w.slots = static_cast<std::int32_t>(std::min<std::int64_t>({most, args.batch.size, c.processors}));
  const auto take = [&]<class Number>(Number*& to, std::int64_t count) {
    to = cutter.take<Number>(static_cast<std::size_t>(w.slots * count));
  };
  take(w.model, K * K + 2 * K);
  take(w.rows, 2 * (K + 1));
  take(w.kept, w.segment * N);
  take(w.firsts, w.segments * N);
  take(w.arrivals, 2 * M);
  take(w.nodes, 2 * N);
  take(w.bigrams, K * K);
  return w;
}

Args args_of(const Batch& batch, const Entropy& wanted) {
  return {.batch = batch,
          .emissions = wanted.emissions,
          .transitions = wanted.transitions,
          .value = wanted.value,
          .status = wanted.status};
}

Args args_of(const Batch& batch, const Curvature& wanted) {
  Args args{.batch = batch,
            .direction = batch,
            .emissions = wanted.emissions,
            .transitions = wanted.transitions,
            .value = wanted.value,
            .known = wanted.status,
            .gold = wanted.gold};
  args.direction.emissions = wanted.direction.emissions;
  args.direction.transitions = wanted.direction.transitions;
  args.direction.start = wanted.direction.start;
  args.direction.end = wanted.direction.end;
  return args;
}

std::size_t bytes_for(const DeviceConstraint& constraint, const Args& args) {
  Cutter cutter(Memory{});
  cut_work(cutter, constraint.impl(), args);
  return cutter.used();
}

void run(void (*kernel)(Args), const char* what, const DeviceConstraint& constraint, Args args, Memory memory,
         void* stream) {
  check_batch(what, args.batch);
  if (args.batch.size == 0) return;
  Cutter cutter(memory);
  const DeviceConstraint::Impl& c = constraint.impl();
  args.topology = c.topology;
  args.work = cut_work(cutter, c, args);
  const auto s = static_cast<cudaStream_t>(stream);
  prepare<double>(c, args.batch, args.work.scores, Scale::log, false, args.status, nullptr, s);
  launch_kernel(kernel, static_cast<unsigned>(args.work.slots), kThreads, 0, s, args, what);
}

}  // namespace

std::size_t entropy_bytes(const DeviceConstraint& constraint, const Batch& batch, const Entropy& wanted) {
  return bytes_for(constraint, args_of(batch, wanted));
}
void entropy(const DeviceConstraint& constraint, const Batch& batch, const Entropy& wanted, Memory memory,
             void* stream) {
  run(entropy_kernel, "entropy", constraint, args_of(batch, wanted), memory, stream);
}

std::size_t curvature_bytes(const DeviceConstraint& constraint, const Batch& batch, const Curvature& wanted) {
  return bytes_for(constraint, args_of(batch, wanted));
}
void curvature(const DeviceConstraint& constraint, const Batch& batch, const Curvature& wanted, Memory memory,
               void* stream) {
  run(curvature_kernel, "curvature", constraint, args_of(batch, wanted), memory, stream);
}

}  // namespace regccrf::cuda
