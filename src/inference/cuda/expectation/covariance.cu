// Entropy and curvature on a device: the mean over all paths of a quantity that paths have, and its covariance with
// counts. One block a sequence, in scaled doubles; where those cannot be trusted, again in wide arithmetic.
#include <algorithm>
#include <cmath>

#include "inference/cuda/expectation/covariance.h"

namespace regccrf::cuda {

namespace covariance {
namespace {

constexpr std::int64_t kDeclaredHere = 24 << 10;  // bytes on chip, at most, that the kernels declare themselves

// A block's way through its sequences: the tables of a call are made once, the wide ones when first wanted. `kOnChip`:
// the scaled arrays are in shared memory, known when compiling, since addresses there take less work.
template <class Quantity, bool kOnChip>
class Worker {
 public:
  __device__ explicit Worker(const CovarianceArgs& a)
      : a_(a),
        room_(kOnChip ? shared_memory() : a.work.scaled + blockIdx.x * a.work.scaled_bytes),
        wide_(a.scores, a.work.wide) {
    const Scaled x(a.scores.topology, room_);
    const std::int32_t K = a.scores.topology.K;
    for (std::int32_t i = threadIdx.x; i < K * K; i += kBlockThreads) x.g[i] = Gains<Quantity>::transition(a, i);
  }

  // `counts`: the sequence has scores. Covariances where wanted, zeros where it does not count.
  __device__ Found average(const CovarianceScratch& s, std::int64_t b, bool counts) {
    const DeviceTopology& d = a_.scores.topology;
    Found found{true, true, counts && s.T == 0 && d.empty, 0};
    bool done = false;
    if (counts && s.T > 0) {
      found = ScaledPass<Quantity>(a_, s, Scaled(d, room_)).run(b);
      if (!found.sure || !found.covariances_sure) {
        const Averaged whole = wide(s, b);
        if (!found.sure) found.possible = whole.weight.m != 0, found.value = whole.mean;
      }
      done = found.possible;
    }
    if (!done) zero_counts(d.K, b, s.T, s.row, a_.emissions, a_.transitions);
    __syncthreads();
    return found;
  }

 private:
  // The whole, without a weight where nothing is possible.
  __device__ Averaged wide(const CovarianceScratch& s, std::int64_t b) {
    const std::int64_t K = a_.scores.topology.K;
    __syncthreads();
    const Averaged whole = wide_.forward(b, a_.both_ways());
    if (!a_.both_ways() || whole.weight.m == 0) return whole;
    wide_.backward(
        whole, static_cast<bool>(a_.transitions),
        [&](std::int32_t t, std::int32_t label, double x) {
          if (a_.emissions) write_number(a_.emissions, s.row[t] * K + label, x);
        },
        [&](std::int32_t pair, double x) { write_number(a_.transitions, b * K * K + pair, x); });
    return whole;
  }

  const CovarianceArgs& a_;
  char* const room_;  // for Scaled
  WidePass<Means<Quantity>> wide_;
};

template <class Quantity, bool kOnChip>
__global__ void __launch_bounds__(kBlockThreads, 1) covariance_kernel(const __grid_constant__ CovarianceArgs a) {
  constexpr bool is_entropy = std::is_same_v<Quantity, Surprise>;
  const std::int32_t K = a.scores.topology.K;
  Worker<Quantity, kOnChip> worker(a);
  for (std::int64_t b = blockIdx.x; b < a.scores.batch.size; b += gridDim.x) {
    const CovarianceScratch s(a, b);
    Status status;
    if constexpr (is_entropy) {
      status = block_status(a.scores.batch, a.work.scores, b, s.T, K);
    } else {
      status = a.known[b];
    }
    const bool fine = status.outcome == static_cast<std::int32_t>(Outcome::fine);
    const Found mean = worker.average(s, b, fine);
    double value = mean.value;
    if (is_entropy && !mean.possible) {
      value = NAN;
      if (fine) status.outcome = static_cast<std::int32_t>(Outcome::impossible);
    }
    if (!is_entropy && a.gold && fine) {
      const auto label = [&](std::int32_t t) { return a.gold[s.row[t]]; };
      value -= block_sum<kBlockThreads>(path_score<false>(a.scores.gains, K, s.T, s.row, label));
    }
    if (threadIdx.x != 0) continue;
    a.value[b] = value;
    if (is_entropy) a.status[b] = status;
  }
}

CovarianceMemory allocate_memory(Arena& arena, const DeviceConstraint::Impl& c, const CovarianceArgs& args) {
  const Batch& batch = args.scores.batch;
  const std::int64_t T = std::max<std::int64_t>(batch.length, 1), bytes = Scaled::bytes(c.topology);
  CovarianceMemory w{};
  w.scores = allocate_prepared<double>(arena, c, batch, false);
  w.scaled_bytes = bytes <= c.shared_bytes + kDeclared - kDeclaredHere ? 0 : round_up(bytes, 16);
  w.wide = allocate_wide<Averaged>(arena, c, batch, args.both_ways(), 8 * T + w.scaled_bytes);
  w.exponents = arena.allocate<std::int64_t>(std::int64_t{w.wide.slots * T});
  w.scaled = arena.allocate<char>(std::int64_t{w.wide.slots * w.scaled_bytes});
  return w;
}

CovarianceArgs args_of(const Batch& batch, const Entropy& wanted) {
  return {.scores = {.batch = batch},
          .emissions = wanted.emissions,
          .transitions = wanted.transitions,
          .value = wanted.value,
          .status = wanted.status};
}

CovarianceArgs args_of(const Batch& batch, const Curvature& wanted) {
  CovarianceArgs args{.scores = {.batch = batch, .gains = batch},
                      .emissions = wanted.emissions,
                      .transitions = wanted.transitions,
                      .value = wanted.value,
                      .known = wanted.status,
                      .gold = wanted.gold};
  args.scores.gains.emissions = wanted.direction.emissions;
  args.scores.gains.transitions = wanted.direction.transitions;
  args.scores.gains.start = wanted.direction.start;
  args.scores.gains.end = wanted.direction.end;
  return args;
}

std::size_t bytes_for(const DeviceConstraint& constraint, const CovarianceArgs& args) {
  Arena arena(Memory{});
  allocate_memory(arena, constraint.impl(), args);
  return arena.used();
}

template <class Quantity>
void run(const char* what, const DeviceConstraint& constraint, CovarianceArgs args, Memory memory, void* stream) {
  const Batch& batch = args.scores.batch;
  check_batch(what, batch);
  if (batch.size == 0) return;
  Arena arena(memory);
  const DeviceConstraint::Impl& c = constraint.impl();
  args.work = allocate_memory(arena, c, args);
  args.scores.topology = c.topology;
  args.scores.length = args.work.scores.length;
  args.scores.row = args.work.scores.row;
  const auto s = static_cast<cudaStream_t>(stream);
  prepare<double>(c, batch, args.work.scores, Scale::probability, nullptr, s);
  const bool on_chip = args.work.scaled_bytes == 0;
  launch_kernel(on_chip ? covariance_kernel<Quantity, true> : covariance_kernel<Quantity, false>,
                {.x = args.work.wide.slots, .threads = kBlockThreads, .bytes = on_chip ? Scaled::bytes(c.topology) : 0},
                s, args, what);
}

}  // namespace
}  // namespace covariance

std::size_t entropy_bytes(const DeviceConstraint& constraint, const Batch& batch, const Entropy& wanted) {
  return covariance::bytes_for(constraint, covariance::args_of(batch, wanted));
}
void entropy(const DeviceConstraint& constraint, const Batch& batch, const Entropy& wanted, Memory memory,
             void* stream) {
  covariance::run<Surprise>("entropy", constraint, covariance::args_of(batch, wanted), memory, stream);
}

std::size_t curvature_bytes(const DeviceConstraint& constraint, const Batch& batch, const Curvature& wanted) {
  return covariance::bytes_for(constraint, covariance::args_of(batch, wanted));
}
void curvature(const DeviceConstraint& constraint, const Batch& batch, const Curvature& wanted, Memory memory,
               void* stream) {
  covariance::run<Gain>("curvature", constraint, covariance::args_of(batch, wanted), memory, stream);
}

}  // namespace regccrf::cuda
