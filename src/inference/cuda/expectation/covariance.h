// What both ways to covariances on a device share (covariance.cu): a call's arguments, a block's memory, what
// paths gain by a score, and sums by all threads of a block.
#pragma once

#include <type_traits>

#include "inference/cuda/prepare.h"
#include "inference/cuda/wide/wide.h"
#include "inference/numerics/mixture.h"

namespace regccrf::cuda::covariance {

constexpr int kThreads = 512;

// So many Averaged that what comes behind them is aligned to 16 bytes, as pairs of doubles want it.
__host__ __device__ constexpr std::int64_t even(std::int64_t count) { return count + count % 2; }

// One slot serves one block; blocks take sequences in turn.
struct CovarianceMemory {
  Prepared<double> scores;
  std::int32_t slots, segment, segments;
  std::int64_t scaled_bytes;  // of a slot, for what has no room on chip
  Wide* model;                // [slots, K · K + 2 K] exp of transitions, start and end
  Wide* rows;                 // [slots, 2, K + 1] of emissions, on the way there and on the way back
  Averaged* saved;            // [slots, even(segment · nodes)] forward
  Averaged* firsts;           // [slots, even(segments · nodes)]
  Averaged* arrivals;         // [slots, 2, arrivals] forward and backward
  Averaged* nodes;            // [slots, 2, nodes] backward: of what comes after; with its own emission
  double* bigrams;            // [slots, columns of bigrams]
  std::int64_t* exponents;    // [slots, T]
  char* scaled;               // [slots, scaled_bytes]
};

struct CovarianceArgs {
  Batch batch;
  Batch direction;                // the same, with what a path gains in the place of scores
  void *emissions, *transitions;  // covariances with counts, or null
  double* value;                  // [B]
  Status* status;                 // [B] to be set, or null
  const Status* known;            // [B] … since it is known already
  const std::int64_t* gold;       // [rows] or null
  DeviceTopology topology;
  CovarianceMemory work;

  __host__ __device__ bool both_ways() const { return emissions || transitions; }
};

// A block's sequence, and its arrays.
struct CovarianceScratch {
  std::int32_t T;
  const std::int64_t* row;  // [T]
  const double *emissions, *shift;
  Wide *g, *start, *end, *there, *back;
  Averaged *saved, *firsts, *arrival, *arrival_back, *beta, *after;
  double* bigrams;
  std::int64_t* exponents;
  char* scaled;

  __device__ CovarianceScratch(const CovarianceArgs& a, std::int64_t b) {
    const std::int64_t slot = blockIdx.x, K = a.topology.K, N = a.topology.nodes, M = a.topology.arrivals;
    T = a.work.scores.length[b];
    row = a.work.scores.row + b * a.batch.length;
    emissions = a.work.scores.emissions + b * a.batch.length * (K + 1);
    shift = a.work.scores.shift + b * a.batch.length;
    g = a.work.model + slot * (K * K + 2 * K), start = g + K * K, end = start + K;
    there = a.work.rows + slot * 2 * (K + 1), back = there + K + 1;
    saved = a.work.saved + slot * even(a.work.segment * N);
    firsts = a.work.firsts + slot * even(a.work.segments * N);
    arrival = a.work.arrivals + slot * 2 * M, arrival_back = arrival + M;
    beta = a.work.nodes + slot * 2 * N, after = beta + N;
    bigrams = a.work.bigrams + slot * a.topology.bigrams.columns;
    exponents = a.work.exponents + slot * a.batch.length;
    scaled = a.work.scaled + slot * a.work.scaled_bytes;
  }
};

// What a path gains along the direction: Batch::emissions and the like, or null.
__device__ inline double gain(const void* numbers, Type type, std::int64_t i) {
  return numbers ? read_number(numbers, type, i) : 0;
}
__device__ inline double emission_gain(const CovarianceArgs& a, std::int64_t row, std::int32_t label) {
  return gain(a.direction.emissions, a.direction.emissions_type, row * a.topology.K + label);
}
__device__ inline double transition_gain(const CovarianceArgs& a, std::int64_t pair) {
  return gain(a.direction.transitions, a.direction.type, pair);
}
__device__ inline double start_gain(const CovarianceArgs& a, std::int32_t label) {
  return gain(a.direction.start, a.direction.type, label);
}
__device__ inline double end_gain(const CovarianceArgs& a, std::int32_t label) {
  return gain(a.direction.end, a.direction.type, label);
}

__device__ inline double from_lane(double x, std::int32_t bit) { return __shfl_xor_sync(0xffffffffu, x, bit); }
template <class Number>
__device__ Number sum_of_lanes(Number sum, std::int32_t lanes) {
  for (std::int32_t bit = lanes / 2; bit > 0; bit /= 2) sum = sum + from_lane(sum, bit);
  return sum;
}

// Calls result(i, Σ part(i, lane, lanes)) for every i < count. As many neighbouring threads share an i as keeps the
// block busy, and each thread's part is what has its lane, of lanes.
template <class Part, class Result>
__device__ void sum_each(std::int32_t count, const Part& part, const Result& result) {
  std::int32_t lanes = 32;
  while (lanes > 1 && std::int64_t{count} * lanes > 2 * kThreads) lanes /= 2;
  const std::int32_t lane = threadIdx.x % lanes;
  for (std::int32_t first = 0; first < count; first += kThreads / lanes) {
    const std::int32_t i = first + threadIdx.x / lanes;
    decltype(part(i, lane, lanes)) sum{};
    if (i < count) sum = part(i, lane, lanes);
    sum = sum_of_lanes(sum, lanes);
    if (lane == 0 && i < count) result(i, sum);
  }
}

// Σ term(j) for begin ≤ j < end.
template <class Term>
__device__ auto sum_range(std::int32_t begin, std::int32_t end, std::int32_t lane, std::int32_t lanes,
                          const Term& term) {
  decltype(term(begin)) sum{};
#pragma unroll 4
  for (std::int32_t j = begin + lane; j < end; j += lanes) sum = sum + term(j);
  return sum;
}

// Σ term(n) over the nodes of a label.
template <class Term>
__device__ auto sum_label(const DeviceTopology& d, std::int32_t label, std::int32_t lane, std::int32_t lanes,
                          const Term& term) {
  return sum_range(d.label_begin[label], d.label_begin[label + 1], lane, lanes,
                   [&](std::int32_t j) { return term(d.label_node[j]); });
}

// Calls result(column, pair, Σ term(m, n)) for the columns of bigrams, arrivals m and nodes n, of a pair of labels. A
// column has the same thread every time.
template <class Term, class Result>
__device__ void sum_columns(const DeviceBigrams& bigrams, const Term& term, const Result& result) {
  for (std::int32_t c = threadIdx.x; c < bigrams.columns; c += kThreads) {
    decltype(term(0, 0)) sum{};
#pragma unroll 4
    for (std::int32_t k = bigrams.round_begin[c / 32]; k < bigrams.round_begin[c / 32 + 1]; ++k) {
      const Bigram at = bigrams.bigram[k * std::int64_t{32} + c % 32];
      if (at.arrival >= 0) sum = sum + term(at.arrival, at.node);
    }
    result(c, bigrams.pair[c], sum);
  }
}

// The covariances with bigrams of sequence b, from those of columns.
__device__ inline void write_bigrams(const CovarianceArgs& a, std::int64_t b, const double* columns) {
  const std::int32_t pairs = a.topology.K * a.topology.K, *begin = a.topology.bigrams.pair_begin;
  for (std::int32_t pair = threadIdx.x; pair < pairs; pair += kThreads) {
    double sum = 0;
    for (std::int32_t c = begin[pair]; c < begin[pair + 1]; ++c) sum += columns[c];
    write_score(a.transitions, a.batch.type, b * pairs + pair, sum);
  }
}

}  // namespace regccrf::cuda::covariance
