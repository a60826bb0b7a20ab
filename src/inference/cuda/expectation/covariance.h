// What both ways to covariances on a device share (covariance.cu): a call's arguments, and a block's memory.
#pragma once

#include "inference/cuda/prepare.h"
#include "inference/cuda/wide/pass.h"

namespace regccrf::cuda::covariance {

struct CovarianceMemory {
  Prepared<double> scores;
  WideMemory<Averaged> wide;  // the scaled pass keeps its own steps and bigrams in it, too
  std::int64_t scaled_bytes;  // of a slot, for what has no room on chip
  std::int64_t* exponents;    // [slots, T]
  char* scaled;               // [slots, scaled_bytes]
};

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

// A block's sequence, and the arrays of the scaled pass.
struct CovarianceScratch {
  std::int32_t T;
  const std::int64_t* row;  // [T]
  const double *emissions, *shift;
  Averaged *saved, *firsts;
  double* bigrams;
  std::int64_t* exponents;
  char* scaled;

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
    scaled = a.work.scaled + slot * a.work.scaled_bytes;
  }
};

}  // namespace regccrf::cuda::covariance
