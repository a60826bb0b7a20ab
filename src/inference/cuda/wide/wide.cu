// The last kernel of an expectation: sequences that the fast pass could not be trusted with are done again in wide
// arithmetic. By then all values are there, and it reduces them to a loss.
#include "inference/cuda/loss/loss.h"
#include "inference/cuda/wide/pass.h"

namespace regccrf::cuda {

namespace {

__device__ void count(const WideArgs& a, WidePass<Weights>& pass, std::int64_t b) {
  const std::int32_t T = a.scores.length[b], K = a.scores.topology.K;
  const std::int64_t *row = a.scores.row + b * a.scores.batch.length, *gold = a.wanted.gold;
  const Array &emissions = a.wanted.emissions, &transitions = a.wanted.transitions;
  if (a.trust[b] == Trust::not_counted || T == 0) return zero_counts(K, b, T, row, emissions, transitions);
  const bool counts = emissions || transitions;
  const Wide z = pass.forward(b, counts);
  if (z.m == 0) {
    zero_counts(K, b, T, row, emissions, transitions);
  } else if (counts) {
    pass.backward(
        z, static_cast<bool>(transitions),
        [&](std::int32_t t, std::int32_t label, double p) {
          if (gold && gold[row[t]] == label) p -= 1;
          if (emissions) write_number(emissions, row[t] * K + label, p);
        },
        [&](std::int32_t pair, double p) {
          for (std::int32_t t = 1; gold && t < T; ++t) p -= gold[row[t - 1]] * K + gold[row[t]] == pair;
          write_number(transitions, b * K * K + pair, p);
        });
  }
  double value = log(z);
  if (gold)
    value -=
        block_sum<kBlockThreads>(path_score(a.scores.batch, K, T, row, [&](std::int32_t t) { return gold[row[t]]; }));
  if (threadIdx.x != 0) return;
  a.wanted.value[b] = value;
  if (z.m == 0) a.wanted.status[b].outcome = static_cast<std::int32_t>(Outcome::impossible);
}

// Whether one of the block's sequences is to be done; in most calls none is.
__device__ bool has_work(const WideArgs& a) {
  bool some = false;
  for (std::int64_t b = blockIdx.x + std::int64_t{threadIdx.x} * gridDim.x; b < a.scores.batch.size;
       b += std::int64_t{kBlockThreads} * gridDim.x)
    some = some || a.trust[b] != Trust::trusted;
  return __syncthreads_or(some);
}

__global__ void __launch_bounds__(kBlockThreads) wide_kernel(const __grid_constant__ WideArgs a) {
  wait_for_prior_kernel();
  if (has_work(a)) {
    WidePass<Weights> pass(a.scores, a.memory);
    for (std::int64_t b = blockIdx.x; b < a.scores.batch.size; b += gridDim.x) {
      if (a.trust[b] == Trust::trusted) continue;
      count(a, pass, b);
      __syncthreads();
    }
  }
  if (a.loss.out && is_last_block(a.blocks_done, gridDim.x)) reduce_values<kBlockThreads>(a.scores.batch.size, a.loss);
}

}  // namespace

void recompute_wide(const DeviceConstraint::Impl& c, const WideArgs& args, cudaStream_t stream) {
  launch_kernel(wide_kernel, {.x = args.memory.slots, .threads = kBlockThreads, .programmatic = c.programmatic}, stream,
                args, "in wide arithmetic");
}

}  // namespace regccrf::cuda
