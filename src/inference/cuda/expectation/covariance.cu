// Entropy and curvature on a device: the mean over all paths of a quantity that paths have, and its covariance with
// counts. One block a sequence, in scaled doubles; where those cannot be trusted, again in wide arithmetic.
#include <algorithm>
#include <cmath>

#include "inference/cuda/expectation/covariance_scaled.h"
#include "inference/cuda/wide/covariance_wide.h"

namespace regccrf::cuda {

namespace covariance {
namespace {

constexpr std::int64_t kSlotBytes = std::int64_t{1} << 24, kMostBytes = std::int64_t{1} << 28;
constexpr std::int64_t kDeclaredHere = 24 << 10;  // bytes on chip, at most, that the kernels declare themselves

struct Answer {
  bool possible;
  double value;
};

// A block's way through its sequences: the tables of a call are made once, when first wanted. `kOnChip`: the scaled
// arrays are in shared memory, known when compiling, since addresses there take less work.
template <class Quantity, bool kOnChip>
class Worker {
 public:
  __device__ explicit Worker(const CovarianceArgs& a) : a_(a) {}

  // `counts`: the sequence has scores. Covariances where wanted, zeros where it does not count.
  __device__ Answer average(const CovarianceScratch& s, std::int64_t b, bool counts) {
    Answer answer{counts && s.T == 0 && a_.topology.empty, 0};
    bool done = false;
    if (counts && s.T > 0) {
      const Found found = scaled(s, b);
      answer = {found.possible, found.value};
      if (!found.sure || !found.covariances_sure) {
        const Averaged whole = wide(s, b);
        if (!found.sure) answer = {whole.weight.m != 0, whole.mean};
      }
      done = answer.possible;
    }
    if (!done) zero_counts(a_.batch, a_.topology.K, b, s.T, s.row, a_.emissions, a_.transitions);
    __syncthreads();
    return answer;
  }

 private:
  __device__ Found scaled(const CovarianceScratch& s, std::int64_t b) {
    ScaledPass<Quantity> pass(a_, s, kOnChip ? shared_memory() : s.scaled);
    if (!has_transitions_) pass.load_transitions();
    has_transitions_ = true;
    return pass.run(b);
  }
  __device__ Averaged wide(const CovarianceScratch& s, std::int64_t b) {
    if (!has_model_) load_wide_model(a_.batch, a_.topology.K, 1, s.g, s.start, s.end);
    has_model_ = true;
    __syncthreads();
    return average_wide<Quantity>(a_, s, b);
  }

  const CovarianceArgs& a_;
  bool has_transitions_ = false, has_model_ = false;
};

template <bool kOnChip>
__global__ void __launch_bounds__(kThreads, 1) entropy_kernel(const __grid_constant__ CovarianceArgs a) {
  Worker<Surprise, kOnChip> worker(a);
  for (std::int64_t b = blockIdx.x; b < a.batch.size; b += gridDim.x) {
    const CovarianceScratch s(a, b);
    Status& status = a.status[b];
    const bool bad_transition = *a.work.scores.bad != 0, bad = bad_transition || status.outcome != 0;
    __syncthreads();
    const Answer answer = worker.average(s, b, !bad);
    if (threadIdx.x != 0) continue;
    a.value[b] = answer.possible ? answer.value : NAN;
    if (bad_transition) status.outcome = static_cast<std::int32_t>(Outcome::bad_transition);
    if (!bad && !answer.possible) status.outcome = static_cast<std::int32_t>(Outcome::impossible);
  }
}

template <bool kOnChip>
__global__ void __launch_bounds__(kThreads, 1) curvature_kernel(const __grid_constant__ CovarianceArgs a) {
  Worker<Gain, kOnChip> worker(a);
  for (std::int64_t b = blockIdx.x; b < a.batch.size; b += gridDim.x) {
    const CovarianceScratch s(a, b);
    const bool fine = a.known[b].outcome == static_cast<std::int32_t>(Outcome::fine);
    double value = worker.average(s, b, fine).value;
    if (a.gold && fine) {
      const auto label = [&](std::int32_t t) { return a.gold[s.row[t]]; };
      value -= block_sum<kThreads>(path_score<false>(a.direction, a.topology.K, s.T, s.row, label));
    }
    if (threadIdx.x == 0) a.value[b] = value;
  }
}

CovarianceMemory allocate_memory(Arena& arena, const DeviceConstraint::Impl& c, const CovarianceArgs& args) {
  const std::int64_t T = std::max<std::int64_t>(args.batch.length, 1), K = c.topology.K, N = c.topology.nodes,
                     M = c.topology.arrivals, C = c.topology.bigrams.columns, unit = sizeof(Averaged);
  CovarianceMemory w{};
  w.scores = allocate_prepared<double>(arena, c, args.batch, false);
  w.segment = 2;
  if (args.both_ways()) {
    const auto root = static_cast<std::int64_t>(std::ceil(std::sqrt(static_cast<double>(T))));
    w.segment = static_cast<std::int32_t>(std::max<std::int64_t>(T * N * unit <= kSlotBytes ? T : root, 2));
    w.segments = static_cast<std::int32_t>((T + w.segment - 1) / w.segment);
  }
  const std::int64_t bytes = Scaled::bytes(c.topology);
  w.scaled_bytes = bytes <= c.shared_bytes + kDeclared - kDeclaredHere ? 0 : (bytes + 15) / 16 * 16;
  const std::int64_t numbers = (w.segment + w.segments + 2) * N + 2 * M, wides = K * K + 4 * K + 2;
  const std::int64_t most =
      std::max<std::int64_t>(kMostBytes / (numbers * unit + wides * 16 + (C + T) * 8 + w.scaled_bytes), 1);
  w.slots = static_cast<std::int32_t>(std::min<std::int64_t>({most, args.batch.size, c.processors}));
  const auto take = [&]<class Number>(Number*& to, std::int64_t count) {
    to = arena.allocate<Number>(static_cast<std::size_t>(w.slots * count));
  };
  take(w.model, K * K + 2 * K);
  take(w.rows, 2 * (K + 1));
  take(w.saved, even(w.segment * N));
  take(w.firsts, even(w.segments * N));
  take(w.arrivals, 2 * M);
  take(w.nodes, 2 * N);
  take(w.bigrams, C);
  take(w.exponents, T);
  take(w.scaled, w.scaled_bytes);
  return w;
}

CovarianceArgs args_of(const Batch& batch, const Entropy& wanted) {
  return {.batch = batch,
          .emissions = wanted.emissions,
          .transitions = wanted.transitions,
          .value = wanted.value,
          .status = wanted.status};
}

CovarianceArgs args_of(const Batch& batch, const Curvature& wanted) {
  CovarianceArgs args{.batch = batch,
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

std::size_t bytes_for(const DeviceConstraint& constraint, const CovarianceArgs& args) {
  Arena arena(Memory{});
  allocate_memory(arena, constraint.impl(), args);
  return arena.used();
}

using Kernel = void (*)(CovarianceArgs);

void run(Kernel on_chip, Kernel in_memory, const char* what, const DeviceConstraint& constraint, CovarianceArgs args,
         Memory memory, void* stream) {
  check_batch(what, args.batch);
  if (args.batch.size == 0) return;
  Arena arena(memory);
  const DeviceConstraint::Impl& c = constraint.impl();
  args.topology = c.topology;
  args.work = allocate_memory(arena, c, args);
  const auto s = static_cast<cudaStream_t>(stream);
  prepare<double>(c, args.batch, args.work.scores, Scale::probability, false, args.status, nullptr, s);
  const bool room = args.work.scaled_bytes == 0;
  launch_kernel(room ? on_chip : in_memory, static_cast<unsigned>(args.work.slots), kThreads,
                room ? Scaled::bytes(c.topology) : 0, s, args, what);
}

}  // namespace
}  // namespace covariance

std::size_t entropy_bytes(const DeviceConstraint& constraint, const Batch& batch, const Entropy& wanted) {
  return covariance::bytes_for(constraint, covariance::args_of(batch, wanted));
}
void entropy(const DeviceConstraint& constraint, const Batch& batch, const Entropy& wanted, Memory memory,
             void* stream) {
  covariance::run(covariance::entropy_kernel<true>, covariance::entropy_kernel<false>, "entropy", constraint,
                  covariance::args_of(batch, wanted), memory, stream);
}

std::size_t curvature_bytes(const DeviceConstraint& constraint, const Batch& batch, const Curvature& wanted) {
  return covariance::bytes_for(constraint, covariance::args_of(batch, wanted));
}
void curvature(const DeviceConstraint& constraint, const Batch& batch, const Curvature& wanted, Memory memory,
               void* stream) {
  covariance::run(covariance::curvature_kernel<true>, covariance::curvature_kernel<false>, "curvature", constraint,
                  covariance::args_of(batch, wanted), memory, stream);
}

}  // namespace regccrf::cuda
