// Samples on a device: alpha in wide arithmetic, then back along it, all samples of a sequence side by side. They draw
// as the CPU does, and so are the CPU's.
#include "base/philox.h"
#include "inference/cuda/prepare.h"
#include "inference/cuda/wide/pass.h"
#include "inference/numerics/draw_one.h"

namespace regccrf::cuda {

namespace {

struct SampleMemory {
  Prepared<double> scores;
  WideMemory<Wide> wide;
};
SampleMemory allocate_memory(Arena& arena, const DeviceConstraint::Impl& c, const Batch& batch) {
  return {allocate_prepared<double>(arena, c, batch, false), allocate_wide<Wide>(arena, c, batch, true)};
}

struct SampleArgs {
  WideScores scores;
  Samples samples;
  SampleMemory work;
};

using Pass = WidePass<Weights>;

// One of the nodes where a sequence may end, or of those before the node `after`.
__device__ std::int32_t draw_end(const DeviceTopology& d, const Pass& pass, const Wide* alpha, double u) {
  return draw_one(u, [&](const auto& take) {
    for (std::int32_t n = 0; n < d.nodes; ++n)
      if (d.node_accepts[n]) take(n, alpha[n] * pass.end(d.node_label[n]));
  });
}
__device__ std::int32_t draw_before(const DeviceTopology& d, const Pass& pass, const Wide* alpha, std::int32_t after,
                                    double u) {
  const std::int32_t r = d.node_state[after], label = d.node_label[after];
  return draw_one(u, [&](const auto& take) {
    for (std::int32_t m = d.arrival_begin[r]; m < d.arrival_begin[r + 1]; ++m) {
      const Wide g = pass.transition(d.arrival_label[m] * d.K + label);
      for (std::int32_t i = d.into_begin[m]; i < d.into_begin[m + 1]; ++i)
        take(d.into_node[i], alpha[d.into_node[i]] * g);
    }
  });
}

// Samples of sequence b, of T positions. Until its label is written, a place holds the node.
__device__ void draw_paths(const SampleArgs& a, Pass& pass, std::int64_t b, std::int32_t T, std::int32_t* labels) {
  const DeviceTopology& d = a.scores.topology;
  const std::uint64_t id = a.samples.ids ? a.samples.ids[b] : static_cast<std::uint64_t>(b);
  pass.forward(b, true);
  for (std::int32_t t = T - 1; t >= 0; --t) {
    const Wide* alpha = pass.alpha(t);
    for (std::int32_t n = threadIdx.x; n < a.samples.count; n += kBlockThreads) {
      std::int32_t* out = labels + std::int64_t{n} * a.scores.batch.length + t;
      const double u = uniform(a.samples.seed, id, static_cast<std::uint32_t>(n), static_cast<std::uint64_t>(t));
      const std::int32_t after = t + 1 < T ? out[1] : 0;
      const std::int32_t node = t + 1 == T  ? draw_end(d, pass, alpha, u)
                                : after < 0 ? -1
                                            : draw_before(d, pass, alpha, after, u);
      if (node < 0) a.samples.status[b].outcome = static_cast<std::int32_t>(Outcome::impossible);
      out[0] = t > 0 || node < 0 ? node : d.node_label[node];
      if (t + 1 < T) out[1] = after < 0 ? -1 : d.node_label[after];
    }
    __syncthreads();
  }
}

__global__ void __launch_bounds__(kBlockThreads) sample_kernel(const __grid_constant__ SampleArgs a) {
  Pass pass(a.scores, a.work.wide);
  for (std::int64_t b = blockIdx.x; b < a.scores.batch.size; b += gridDim.x) {
    const std::int32_t T = a.scores.length[b];
    const std::int64_t places = a.samples.count * a.scores.batch.length;
    std::int32_t* labels = a.samples.labels + b * places;
    Status status = block_status(a.scores.batch, a.work.scores, b, T, a.scores.topology.K);
    const bool fine = status.outcome == 0;
    if (fine && T == 0 && !a.scores.topology.empty) status.outcome = static_cast<std::int32_t>(Outcome::impossible);
    if (threadIdx.x == 0) a.samples.status[b] = status;
    for (std::int64_t i = threadIdx.x; i < places; i += kBlockThreads) labels[i] = -1;
    __syncthreads();
    if (fine && T > 0) draw_paths(a, pass, b, T, labels);
  }
}

}  // namespace

std::size_t sample_bytes(const DeviceConstraint& constraint, const Batch& batch, const Samples&) {
  Arena arena(Memory{});
  allocate_memory(arena, constraint.impl(), batch);
  return arena.used();
}

void sample(const DeviceConstraint& constraint, const Batch& batch, const Samples& samples, Memory memory,
            void* stream) {
  check_batch("sample", batch);
  if (batch.size == 0 || samples.count == 0) return;
  Arena arena(memory);
  const DeviceConstraint::Impl& c = constraint.impl();
  const SampleMemory work = allocate_memory(arena, c, batch);
  const auto s = static_cast<cudaStream_t>(stream);
  prepare<double>(c, batch, work.scores, Scale::log, nullptr, s);
  const WideScores scores{c.topology, batch, {}, 1 / samples.temperature, work.scores.length, work.scores.row};
  launch_kernel(sample_kernel, {.x = work.wide.slots, .threads = kBlockThreads}, s, {scores, samples, work}, "samples");
}

}  // namespace regccrf::cuda
