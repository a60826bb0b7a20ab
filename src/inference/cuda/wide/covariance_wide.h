// Means and covariances in wide arithmetic, as inference/cpu/covariance.h explains them: slow, and always right. One
// block a sequence; forward alone where no gradient is wanted, else back again, with what the forward steps left kept
// for one segment of positions at a time and at the first position of every segment.
#pragma once

#include "inference/cuda/expectation/covariance.h"

namespace regccrf::cuda::covariance {

__device__ inline Averaged* saved_row(const CovarianceArgs& a, const CovarianceScratch& s, std::int32_t t) {
  return s.saved + std::int64_t{t % a.work.segment} * a.topology.nodes;
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
__device__ void arrive(const CovarianceArgs& a, const CovarianceScratch& s, const Averaged* v) {
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
__device__ void forward(const CovarianceArgs& a, const CovarianceScratch& s, std::int32_t from, std::int32_t to,
                        bool save) {
  const DeviceTopology& d = a.topology;
  for (std::int32_t t = from; t < to; ++t) {
    load_wide_row(a.batch, d.K, 1, s.row[t], s.there);
    Averaged* v = saved_row(a, s, t);
    if (t > 0) {
      arrive<Quantity>(a, s, saved_row(a, s, t - 1));
    } else {
      __syncthreads();
    }
    for (std::int32_t n = threadIdx.x; n < d.nodes; n += kThreads) {
      const std::int32_t r = d.node_state[n], label = d.node_label[n];
      Averaged x{r == d.start ? s.start[label] : Wide(kWideZero), start_gain(a, label)};
      if (t > 0) {
        x = mix<Quantity>([&](const auto& take) {
          for (std::int32_t m = d.arrival_begin[r]; m < d.arrival_begin[r + 1]; ++m) {
            const std::int32_t pair = d.arrival_label[m] * d.K + label;
            take(s.arrival[m].weight * s.g[pair], s.arrival[m].mean + transition_gain(a, pair));
          }
        });
      }
      x.weight = x.weight * s.there[label];
      x.mean += emission_gain(a, s.row[t], label);
      v[n] = x;
      if (save && t % a.work.segment == 0) s.firsts[std::int64_t{t / a.work.segment} * d.nodes + n] = x;
    }
    __syncthreads();
  }
}

// Makes the segment of position t present, whose end has just been left.
template <class Quantity>
__device__ void recall(const CovarianceArgs& a, const CovarianceScratch& s, std::int32_t t) {
  const std::int32_t first = t / a.work.segment * a.work.segment;
  const Averaged* from = s.firsts + std::int64_t{t / a.work.segment} * a.topology.nodes;
  Averaged* v = saved_row(a, s, first);
  for (std::int32_t n = threadIdx.x; n < a.topology.nodes; n += kThreads) v[n] = from[n];
  __syncthreads();
  forward<Quantity>(a, s, first + 1, t + 1, false);
}

// The whole: its weight is Z.
template <class Quantity>
__device__ Averaged turn(const CovarianceArgs& a, const CovarianceScratch& s) {
  const DeviceTopology& d = a.topology;
  const Averaged* v = saved_row(a, s, s.T - 1);
  const auto each_mine = [&](const auto& take) {
    for (std::int32_t n = threadIdx.x; n < d.nodes; n += kThreads) {
      if (d.node_accepts[n]) take(v[n].weight * s.end[d.node_label[n]], v[n].mean + end_gain(a, d.node_label[n]));
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
__device__ void go_back(const CovarianceArgs& a, const CovarianceScratch& s) {
  const DeviceTopology& d = a.topology;
  for (std::int32_t m = threadIdx.x; m < d.arrivals; m += kThreads) {
    const std::int32_t r = d.arrival_state[m], label = d.arrival_label[m];
    s.arrival_back[m] = mix<Quantity>([&](const auto& take) {
      for (std::int32_t n = d.node_begin[r]; n < d.node_begin[r + 1]; ++n) {
        const std::int32_t pair = label * d.K + d.node_label[n];
        take(s.g[pair] * s.after[n].weight, transition_gain(a, pair) + s.after[n].mean);
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

// Adds what bigrams of positions t and t + 1 give: arrivals of t, and `after` of t + 1.
template <class Quantity>
__device__ void add_bigrams(const CovarianceArgs& a, const CovarianceScratch& s, Averaged whole) {
  const DeviceTopology& d = a.topology;
  sum_columns(
      d.bigrams,
      [&](std::int32_t m, std::int32_t n) {
        const std::int32_t pair = d.arrival_label[m] * d.K + d.node_label[n];
        return covariance_share<Quantity>(s.arrival[m].weight * s.g[pair] * s.after[n].weight,
                                          s.arrival[m].mean + transition_gain(a, pair) + s.after[n].mean, whole);
      },
      [&](std::int32_t column, std::int32_t, double sum) { s.bigrams[column] += sum; });
}

template <class Quantity>
__device__ void write_labels(const CovarianceArgs& a, const CovarianceScratch& s, const Averaged* v, std::int64_t row,
                             Averaged whole) {
  const DeviceTopology& d = a.topology;
  sum_each(
      d.K,
      [&](std::int32_t label, std::int32_t lane, std::int32_t lanes) {
        return sum_label(d, label, lane, lanes, [&](std::int32_t n) {
          return covariance_share<Quantity>(v[n].weight * s.beta[n].weight, v[n].mean + s.beta[n].mean, whole);
        });
      },
      [&](std::int32_t label, double sum) { write_score(a.emissions, a.batch.type, row * d.K + label, sum); });
}

template <class Quantity>
__device__ void backward(const CovarianceArgs& a, const CovarianceScratch& s, std::int64_t b, Averaged whole) {
  const DeviceTopology& d = a.topology;
  for (std::int32_t i = threadIdx.x; i < d.bigrams.columns; i += kThreads) s.bigrams[i] = 0;
  __syncthreads();
  for (std::int32_t t = s.T - 1; t >= 0; --t) {
    if (t + 1 < s.T && (t + 1) % a.work.segment == 0) recall<Quantity>(a, s, t);
    const Averaged* v = saved_row(a, s, t);
    load_wide_row(a.batch, d.K, 1, s.row[t], s.back);
    if (t + 1 == s.T) {
      for (std::int32_t n = threadIdx.x; n < d.nodes; n += kThreads)
        s.beta[n] = {d.node_accepts[n] ? s.end[d.node_label[n]] : Wide(kWideZero), end_gain(a, d.node_label[n])};
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
                    s.beta[n].mean + emission_gain(a, s.row[t], d.node_label[n])};
    __syncthreads();
  }
  if (a.transitions) write_bigrams(a, b, s.bigrams);
}

// The whole, without a weight where nothing is possible; covariances too where wanted, and something is possible.
template <class Quantity>
__device__ Averaged average_wide(const CovarianceArgs& a, const CovarianceScratch& s, std::int64_t b) {
  forward<Quantity>(a, s, 0, s.T, a.both_ways());
  const Averaged whole = turn<Quantity>(a, s);
  if (a.both_ways() && whole.weight.m != 0) backward<Quantity>(a, s, b, whole);
  return whole;
}

}  // namespace regccrf::cuda::covariance
