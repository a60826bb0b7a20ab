// Entropy and its gradients on a device, as entropy_cpu.cc explains them: sums of local conditional entropies, in wide
// arithmetic over the topology. One block a sequence; forward alone where no gradient is wanted, else back again, with
// what the forward steps left kept for one segment of positions at a time and at the first position of every segment.
#include <algorithm>
#include <cmath>

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
  Entropic* kept;      // [slots, segment, nodes] forward
  Entropic* firsts;    // [slots, segments, nodes]
  Entropic* arrivals;  // [slots, 2, arrivals] forward and backward
  Entropic* nodes;     // [slots, 2, nodes] backward: of what comes after; with its own emission
  double* bigrams;     // [slots, K, K]
};

struct Args {
  DeviceTopology topology;
  Batch batch;
  Entropy wanted;
  Work work;
};

// A block's sequence, and its arrays.
struct Slot {
  std::int32_t T;
  const std::int64_t* row;  // [T]
  Wide *g, *start, *end, *there, *back;
  Entropic *kept, *firsts, *arrival, *arrival_back, *beta, *after;
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

__device__ Entropic* kept_row(const Args& a, const Slot& s, std::int32_t t) {
  return s.kept + std::int64_t{t % a.work.segment} * a.topology.nodes;
}

// Σ of the weights that each(take) hands to take(weight, entropy), with the entropy of the whole.
template <class Each>
__device__ Entropic mix(const Each& each) {
  Wide total = kWideZero;
  each([&](Wide weight, double) { total = total + weight; });
  if (total.m == 0) return {kWideZero, 0};
  Mixture mixture(total);
  each([&](Wide weight, double entropy) { mixture.add(weight, entropy); });
  return {total, mixture.value()};
}

__device__ void arrive(const Args& a, const Slot& s, const Entropic* v) {
  const DeviceTopology& d = a.topology;
  for (std::int32_t m = threadIdx.x; m < d.arrivals; m += kThreads) {
    s.arrival[m] = mix([&](const auto& take) {
      for (std::int32_t i = d.into_begin[m]; i < d.into_begin[m + 1]; ++i)
        take(v[d.into_node[i]].weight, v[d.into_node[i]].entropy);
    });
  }
  __syncthreads();
}

// The forward steps of positions from … to - 1, of which the one before is kept.
__device__ void forward(const Args& a, const Slot& s, std::int32_t from, std::int32_t to, bool save) {
  const DeviceTopology& d = a.topology;
  for (std::int32_t t = from; t < to; ++t) {
    load_wide_row(a.batch, d.K, 1, s.row[t], s.there);
    Entropic* v = kept_row(a, s, t);
    if (t > 0) {
      arrive(a, s, kept_row(a, s, t - 1));
    } else {
      __syncthreads();
    }
    for (std::int32_t n = threadIdx.x; n < d.nodes; n += kThreads) {
      const std::int32_t r = d.node_state[n], label = d.node_label[n];
      Entropic x{r == d.start ? s.start[label] : Wide(kWideZero), 0};
      if (t > 0) {
        x = mix([&](const auto& take) {
          for (std::int32_t m = d.arrival_begin[r]; m < d.arrival_begin[r + 1]; ++m)
            take(s.arrival[m].weight * s.g[d.arrival_label[m] * d.K + label], s.arrival[m].entropy);
        });
      }
      x.weight = x.weight * s.there[label];
      v[n] = x;
      if (save && t % a.work.segment == 0) s.firsts[std::int64_t{t / a.work.segment} * d.nodes + n] = x;
    }
    __syncthreads();
  }
}

// Makes the segment of position t present, whose end has just been left.
__device__ void recall(const Args& a, const Slot& s, std::int32_t t) {
  const std::int32_t first = t / a.work.segment * a.work.segment;
  const Entropic* from = s.firsts + std::int64_t{t / a.work.segment} * a.topology.nodes;
  Entropic* v = kept_row(a, s, first);
  for (std::int32_t n = threadIdx.x; n < a.topology.nodes; n += kThreads) v[n] = from[n];
  __syncthreads();
  forward(a, s, first + 1, t + 1, false);
}

// The whole: its weight is Z.
__device__ Entropic turn(const Args& a, const Slot& s) {
  const DeviceTopology& d = a.topology;
  const Entropic* v = kept_row(a, s, s.T - 1);
  const auto each_mine = [&](const auto& take) {
    for (std::int32_t n = threadIdx.x; n < d.nodes; n += kThreads) {
      if (d.node_accepts[n]) take(v[n].weight * s.end[d.node_label[n]], v[n].entropy);
    }
  };
  Wide mine = kWideZero;
  each_mine([&](Wide weight, double) { mine = mine + weight; });
  const Wide z = block_total<kThreads>(mine);
  if (z.m == 0) return {z, NAN};
  Mixture mixture(z);
  each_mine([&](Wide weight, double entropy) { mixture.add(weight, entropy); });
  return {z, block_total<kThreads>(mixture.value())};
}

__device__ void go_back(const Args& a, const Slot& s) {
  const DeviceTopology& d = a.topology;
  for (std::int32_t m = threadIdx.x; m < d.arrivals; m += kThreads) {
    const std::int32_t r = d.arrival_state[m], label = d.arrival_label[m];
    s.arrival_back[m] = mix([&](const auto& take) {
      for (std::int32_t n = d.node_begin[r]; n < d.node_begin[r + 1]; ++n)
        take(s.g[label * d.K + d.node_label[n]] * s.after[n].weight, s.after[n].entropy);
    });
  }
  __syncthreads();
  for (std::int32_t n = threadIdx.x; n < d.nodes; n += kThreads) {
    s.beta[n] = mix([&](const auto& take) {
      for (std::int32_t i = d.from_begin[n]; i < d.from_begin[n + 1]; ++i)
        take(s.arrival_back[d.from_arrival[i]].weight, s.arrival_back[d.from_arrival[i]].entropy);
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
__device__ void add_bigrams(const Args& a, const Slot& s, Entropic whole) {
  const DeviceTopology& d = a.topology;
  sum_each(
      d.K * d.K, [&](std::int32_t pair) { return d.label_begin[pair % d.K + 1] - d.label_begin[pair % d.K]; },
      [&](std::int32_t pair, std::int32_t j) {
        const std::int32_t n = d.label_node[d.label_begin[pair % d.K] + j];
        const std::int32_t m = s.after[n].weight.m == 0 ? -1 : find_arrival(d, d.node_state[n], pair / d.K);
        if (m < 0) return 0.0;
        return gradient_share(s.arrival[m].weight * s.g[pair] * s.after[n].weight,
                              s.arrival[m].entropy + s.after[n].entropy, whole.weight, whole.entropy);
      },
      [&](std::int32_t pair, double sum) { s.bigrams[pair] += sum; });
}

__device__ void write_labels(const Args& a, const Slot& s, const Entropic* v, std::int64_t row, Entropic whole) {
  const DeviceTopology& d = a.topology;
  sum_each(
      d.K, [&](std::int32_t label) { return d.label_begin[label + 1] - d.label_begin[label]; },
      [&](std::int32_t label, std::int32_t j) {
        const std::int32_t n = d.label_node[d.label_begin[label] + j];
        return gradient_share(v[n].weight * s.beta[n].weight, v[n].entropy + s.beta[n].entropy, whole.weight,
                              whole.entropy);
      },
      [&](std::int32_t label, double sum) { write_score(a.wanted.emissions, a.batch.type, row * d.K + label, sum); });
}

__device__ void backward(const Args& a, const Slot& s, std::int64_t b, Entropic whole) {
  const DeviceTopology& d = a.topology;
  for (std::int32_t i = threadIdx.x; i < d.K * d.K; i += kThreads) s.bigrams[i] = 0;
  __syncthreads();
  for (std::int32_t t = s.T - 1; t >= 0; --t) {
    if (t + 1 < s.T && (t + 1) % a.work.segment == 0) recall(a, s, t);
    const Entropic* v = kept_row(a, s, t);
    load_wide_row(a.batch, d.K, 1, s.row[t], s.back);
    if (t + 1 == s.T) {
      for (std::int32_t n = threadIdx.x; n < d.nodes; n += kThreads)
        s.beta[n] = {d.node_accepts[n] ? s.end[d.node_label[n]] : Wide(kWideZero), 0};
      __syncthreads();
    } else {
      if (a.wanted.transitions) {
        arrive(a, s, v);
        add_bigrams(a, s, whole);
      }
      go_back(a, s);
    }
    if (a.wanted.emissions) write_labels(a, s, v, s.row[t], whole);
    for (std::int32_t n = threadIdx.x; n < d.nodes; n += kThreads)
      s.after[n] = {s.beta[n].weight * s.back[d.node_label[n]], s.beta[n].entropy};
    __syncthreads();
  }
  for (std::int32_t i = threadIdx.x; a.wanted.transitions && i < d.K * d.K; i += kThreads)
    write_score(a.wanted.transitions, a.batch.type, b * d.K * d.K + i, s.bigrams[i]);
}

__global__ void __launch_bounds__(kThreads) entropy_kernel(const __grid_constant__ Args a) {
  const std::int32_t K = a.topology.K;
  for (std::int64_t b = blockIdx.x; b < a.batch.size; b += gridDim.x) {
    const Slot s(a, b);
    if (b == blockIdx.x) load_wide_model(a.batch, K, 1, s.g, s.start, s.end);
    Status& status = a.wanted.status[b];
    const bool bad_transition = *a.work.scores.bad != 0, bad = bad_transition || status.outcome != 0;
    const bool counts = a.wanted.emissions || a.wanted.transitions;
    __syncthreads();
    Entropic whole{kWideZero, NAN};
    if (!bad && s.T == 0 && a.topology.empty) whole = {{1, 0}, 0};
    if (!bad && s.T > 0) {
      forward(a, s, 0, s.T, counts);
      whole = turn(a, s);
    }
    const bool possible = whole.weight.m != 0;
    if (counts && possible && s.T > 0) {
      backward(a, s, b, whole);
    } else {
      zero_counts(a.batch, K, b, s.T, s.row, a.wanted.emissions, a.wanted.transitions);
    }
    __syncthreads();
    if (threadIdx.x != 0) continue;
    a.wanted.value[b] = whole.entropy;
    if (bad_transition) status.outcome = static_cast<std::int32_t>(Outcome::bad_transition);
    if (!bad && !possible) status.outcome = static_cast<std::int32_t>(Outcome::impossible);
  }
}

Work cut_work(Cutter& cutter, const DeviceConstraint::Impl& c, const Batch& batch, const Entropy& wanted) {
  const std::int64_t T = std::max<std::int64_t>(batch.length, 1), K = c.topology.K, N = c.topology.nodes,
                     M = c.topology.arrivals, unit = sizeof(Entropic);
  Work w{};
  w.scores = cut_prepared<double>(cutter, c, batch, false);
  w.segment = 2;
  if (wanted.emissions || wanted.transitions) {
    const auto root = static_cast<std::int64_t>(std::ceil(std::sqrt(static_cast<double>(T))));
    w.segment = static_cast<std::int32_t>(std::max<std::int64_t>(T * N * unit <= kSlotBytes ? T : root, 2));
    w.segments = static_cast<std::int32_t>((T + w.segment - 1) / w.segment);
  }
  const std::int64_t numbers = (w.segment + w.segments + 2) * N + 2 * M, wides = K * K + 4 * K + 2;
  const std::int64_t most = std::max<std::int64_t>(kMostBytes / (numbers * unit + wides * 16 + K * K * 8), 1);
  w.slots = static_cast<std::int32_t>(std::min<std::int64_t>({most, batch.size, c.processors}));
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

}  // namespace

std::size_t entropy_bytes(const DeviceConstraint& constraint, const Batch& batch, const Entropy& wanted) {
  Cutter cutter(Memory{});
  cut_work(cutter, constraint.impl(), batch, wanted);
  return cutter.used();
}

void entropy(const DeviceConstraint& constraint, const Batch& batch, const Entropy& wanted, Memory memory,
             void* stream) {
  check_batch("entropy", batch);
  if (batch.size == 0) return;
  Cutter cutter(memory);
  const DeviceConstraint::Impl& c = constraint.impl();
  const Work work = cut_work(cutter, c, batch, wanted);
  const auto s = static_cast<cudaStream_t>(stream);
  prepare<double>(c, batch, work.scores, Scale::log, false, wanted.status, nullptr, s);
  launch_kernel(entropy_kernel, static_cast<unsigned>(work.slots), kThreads, 0, s, {c.topology, batch, wanted, work},
                "entropy");
}

}  // namespace regccrf::cuda
