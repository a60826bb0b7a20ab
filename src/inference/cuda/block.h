// Sums by a whole block of kBlockThreads threads, of doubles, wide numbers, or whatever has a + and a from_lane.
#pragma once

#include <type_traits>

#include "inference/cuda/device.h"
#include "inference/cuda/warp.h"
#include "inference/numerics/wide.h"

namespace regccrf::cuda {

constexpr int kBlockThreads = 512;

template <class Number>
__device__ Number from_lane(Number x, std::int32_t bit) {
  return __shfl_xor_sync(kAllLanes, x, bit);
}
__device__ inline Wide from_lane(Wide x, std::int32_t bit) {
  return {__shfl_xor_sync(kAllLanes, x.m, bit), __shfl_xor_sync(kAllLanes, x.e, bit)};
}
template <class Number>
__device__ Number zero_of() {
  if constexpr (std::is_same_v<Number, Wide>) {
    return kWideZero;
  } else {
    return {};
  }
}

// Of so many neighbouring lanes, to all of them.
template <class Number>
__device__ Number sum_of_lanes(Number sum, std::int32_t lanes) {
  for (std::int32_t bit = lanes / 2; bit > 0; bit /= 2) sum = sum + from_lane(sum, bit);
  return sum;
}

// The sum of what the threads have, to all of them.
template <class Number>
__device__ Number block_total(Number mine) {
  __shared__ Number all[kBlockThreads];
  __syncthreads();
  all[threadIdx.x] = mine;
  __syncthreads();
  for (int half = kBlockThreads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) all[threadIdx.x] = all[threadIdx.x] + all[threadIdx.x + half];
    __syncthreads();
  }
  return all[0];
}

// Calls result(i, Σ part(i, lane, lanes)) for every i < count. `lanes` neighbouring threads share an i, and each one's
// part is what has its lane. An i has the same threads every time.
template <class Part, class Result>
__device__ void sum_each(std::int32_t count, std::int32_t lanes, const Part& part, const Result& result) {
  const std::int32_t lane = threadIdx.x % lanes;
  for (std::int32_t first = 0; first < count; first += kBlockThreads / lanes) {
    const std::int32_t i = first + threadIdx.x / lanes;
    auto sum = zero_of<decltype(part(i, lane, lanes))>();
    if (i < count) sum = part(i, lane, lanes);
    sum = sum_of_lanes(sum, lanes);
    if (lane == 0 && i < count) result(i, sum);
  }
}
// The same with as many lanes as keep the block busy.
template <class Part, class Result>
__device__ void sum_each(std::int32_t count, const Part& part, const Result& result) {
  std::int32_t lanes = 32;
  while (lanes > 1 && std::int64_t{count} * lanes > 2 * kBlockThreads) lanes /= 2;
  sum_each(count, lanes, part, result);
}

// Σ term(j) for begin ≤ j < end.
template <class Term>
__device__ auto sum_range(std::int32_t begin, std::int32_t end, std::int32_t lane, std::int32_t lanes,
                          const Term& term) {
  auto sum = zero_of<decltype(term(begin))>();
#pragma unroll 4
  for (std::int32_t j = begin + lane; j < end; j += lanes) sum = sum + term(j);
  return sum;
}

// Calls result(label, Σ term(n)), over the nodes of each label.
template <class Term, class Result>
__device__ void sum_labels(const DeviceTopology& d, const Term& term, const Result& result) {
  sum_each(
      d.K,
      [&](std::int32_t label, std::int32_t lane, std::int32_t lanes) {
        return sum_range(d.label_begin[label], d.label_begin[label + 1], lane, lanes,
                         [&](std::int32_t j) { return term(d.label_node[j]); });
      },
      result);
}

// Calls result(round, pair, Σ term(m, n)) for the rounds of bigrams, arrivals m and nodes n, of a pair of labels.
template <class Term, class Result>
__device__ void sum_bigrams(const DeviceRounds& rounds, const Term& term, const Result& result) {
  constexpr std::int32_t together = 4;  // pairs in a sector of memory
  sum_each(
      rounds.rounds, together,
      [&](std::int32_t round, std::int32_t lane, std::int32_t lanes) {
        auto sum = zero_of<decltype(term(0, 0))>();
        const Source* pair = rounds.pair + round * std::int64_t{rounds.height};
        for (std::int32_t k = lane; k < rounds.height && pair[k].x >= 0; k += lanes)
          sum = sum + term(pair[k].x, pair[k].y);
        return sum;
      },
      [&](std::int32_t round, auto sum) { result(round, rounds.key[round], sum); });
}

// Calls result(pair, what its rounds have) for every pair of labels.
template <class Result>
__device__ void each_bigram(const DeviceRounds& rounds, std::int32_t K, const double* of_round, const Result& result) {
  for (std::int32_t pair = threadIdx.x; pair < K * K; pair += kBlockThreads) {
    double sum = 0;
    for (std::int32_t r = rounds.begin[pair]; r < rounds.begin[pair + 1]; ++r) sum += of_round[r];
    result(pair, sum);
  }
}

}  // namespace regccrf::cuda
