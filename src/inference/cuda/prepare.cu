// Scores in the form that passes read (see prepare.h). One warp a row, and a few blocks for the transitions; these take
// longest and so come first.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "inference/cuda/bounds.h"
#include "inference/cuda/prepare.h"
#include "inference/numerics/limits.h"

namespace regccrf::cuda {

namespace {

constexpr int kThreads = 256, kRows = kThreads / 32;

template <class T>
__device__ double as_double(T x) {
  return bounded_score(static_cast<double>(static_cast<float>(x)));
}
template <>
__device__ double as_double(double x) {
  return bounded_score(x);
}

__device__ double warp_max(double x) {
  for (int bit = 16; bit > 0; bit /= 2) x = fmax(x, __shfl_xor_sync(kAllLanes, x, bit));
  return x;
}

template <class P>
struct PrepareArgs {
  Batch batch;
  std::int32_t K;
  DeviceStep layout[2];
  int layouts;
  bool log;
  Prepared<P> out;
  const std::int64_t* gold;
};

// exp(x) of a score, as P, but no less than `least`; or 0 if that is less than `vanishes`.
template <class P>
__device__ P weight_of(double x, P least, P vanishes = 0) {
  if (!(x > -INFINITY)) return P{0};
  const P weight = max(static_cast<P>(exp(x)), least);
  return weight < vanishes ? P{0} : weight;
}

__device__ std::int64_t row_at(const Batch& batch, std::int64_t b, std::int64_t t) {
  return b * batch.batch_stride + t * batch.time_stride;
}
__device__ bool is_present(const Batch& batch, std::int64_t b, std::int64_t t) {
  return batch.mask[row_at(batch, b, t)] != 0;
}

// How many positions of sequence b before t are present. The whole block takes part.
template <class P>
__device__ std::int32_t present_before(const PrepareArgs<P>& a, std::int64_t b, std::int64_t t) {
  std::int32_t count = 0;
  for (std::int64_t i = threadIdx.x; i < round_up(t, kThreads); i += kThreads) {
    const bool present = i < t && is_present(a.batch, b, i);
    count += __syncthreads_count(present);
  }
  return count;
}

template <class P, class In>
__device__ void row_of_emissions(const PrepareArgs<P>& a, std::int64_t b, std::int64_t rank, std::int64_t row) {
  const int lane = threadIdx.x % 32;
  const In* h = static_cast<const In*>(a.batch.emissions.data) + row * a.K;
  P* out = a.out.emissions + (b * a.batch.length + rank) * (a.K + 1);
  double largest = -INFINITY;
  bool bad = false;
  for (std::int32_t k = lane; k < a.K; k += 32) {
    const double x = as_double(h[k]);
    bad = bad || isnan(x) || x == INFINITY;
    largest = fmax(largest, x);
  }
  largest = warp_max(largest);
  bad = __any_sync(kAllLanes, bad);
  const double shift = bad ? NAN : isfinite(largest) ? largest : 0;
  if (lane == 0) {
    a.out.shift[b * a.batch.length + rank] = shift;
    a.out.row[b * a.batch.length + rank] = row;
    if (a.gold)
      a.out.gold[b * a.batch.length + rank] =
          a.gold[row] >= 0 && a.gold[row] < a.K ? static_cast<std::int32_t>(a.gold[row]) : -1;
  }
  for (std::int32_t k = lane; k <= a.K; k += 32) {
    const double x = k < a.K ? as_double(h[k]) : -INFINITY;
    out[k] = a.log ? static_cast<P>(x) : weight_of(x - shift, Bounds<P>::least);
  }
}

// The largest and the smallest of some scores but for -inf, to the whole block, and whether one of them is NaN or +inf.
// Eight loads are in flight at a time.
struct Extent {
  double largest, smallest;
};
template <class Score>
__device__ Extent extent_of(const Score* scores, std::int64_t count, bool& bad) {
  __shared__ Extent extent[kRows];
  constexpr int together = 8;
  Score most = -INFINITY, least = INFINITY;
  for (std::int64_t first = threadIdx.x; first < count; first += together * kThreads) {
    Score x[together];
#pragma unroll
    for (int i = 0; i < together; ++i)
      x[i] = first + i * kThreads < count ? scores[first + i * kThreads] : -Score{INFINITY};
#pragma unroll
    for (int i = 0; i < together; ++i) {
      bad |= !(x[i] < INFINITY);
      most = x[i] > most ? x[i] : most;
      least = x[i] < least && x[i] > -INFINITY ? x[i] : least;
    }
  }
  for (int bit = 16; bit > 0; bit /= 2) {
    most = max(most, __shfl_xor_sync(kAllLanes, most, bit));
    least = min(least, __shfl_xor_sync(kAllLanes, least, bit));
  }
  const Extent mine{bounded_score(static_cast<double>(most)), bounded_score(static_cast<double>(least))};
  __syncthreads();
  if (threadIdx.x % 32 == 0) extent[threadIdx.x / 32] = mine;
  __syncthreads();
  Extent all = mine;
  for (const Extent& x : extent) all = {fmax(all.largest, x.largest), fmin(all.smallest, x.smallest)};
  return all;
}

// Everything but the emissions, one number after the other: the layouts' entries of g, then start and end.
template <class P, class Score>
__device__ void transitions(const PrepareArgs<P>& a) {
  const Score* scores[3] = {static_cast<const Score*>(a.batch.transitions.data),
                            static_cast<const Score*>(a.batch.start.data), static_cast<const Score*>(a.batch.end.data)};
  double shift[3];
  bool bad = false;
#pragma unroll 1
  for (int part = 0; part < 3; ++part) {
    const std::int64_t count = !scores[part] ? 0 : part == 0 ? std::int64_t{a.K} * a.K : a.K;
    const Extent extent = extent_of(scores[part], count, bad);
    shift[part] = isfinite(extent.largest) ? extent.largest : 0;
    if (blockIdx.x > 0 || threadIdx.x > 0) continue;
    a.out.shifts[part] = shift[part];
    if (part == 0) *a.out.floor = floor_for(static_cast<P>(exp(fmin(extent.smallest, shift[0]) - shift[0])));
  }
  bad = __syncthreads_or(bad);  // of all scores, in every block
  if (blockIdx.x == 0 && threadIdx.x == 0) *a.out.bad = bad;

  const std::int64_t matrix[2] = {a.layout[0].entries + 8, a.layouts > 1 ? a.layout[1].entries + 8 : 0},
                     sparse[2] = {std::int64_t{a.layout[0].sparse} * a.layout[0].sparse_slots,
                                  a.layouts > 1 ? std::int64_t{a.layout[1].sparse} * a.layout[1].sparse_slots : 0};
  const std::int64_t count = matrix[0] + sparse[0] + matrix[1] + sparse[1] + 2 * a.K;
#pragma unroll 1
  for (std::int64_t n = blockIdx.x * std::int64_t{kThreads} + threadIdx.x; n < count;
       n += std::int64_t{gridDim.x} * kThreads) {
    std::int64_t i = n;
    int s = 0;
    if (i >= matrix[0] + sparse[0]) i -= matrix[0] + sparse[0], s = 1;
    double x = -INFINITY, by = shift[0];
    P *to, least = s == 0 ? Bounds<P>::least_gain : P{0}, vanishes = s == 0 ? P{0} : Bounds<P>::normal;
    if (i < matrix[s]) {
      to = a.out.matrix[s] + i;
      const std::int32_t entry =
          i < a.layout[s].entries ? a.layout[s].entry[i] : -1;  // a tile may read past the last row
      if (entry >= 0) x = as_double(scores[0][entry]);
    } else if (i < matrix[s] + sparse[s]) {
      i -= matrix[s];
      to = a.out.sparse[s] + i;
      const std::int32_t entry = a.layout[s].sparse_entry[i];
      if (entry >= 0) x = as_double(scores[0][entry]);
    } else {
      i -= matrix[s] + sparse[s];
      const int end = i >= a.K;
      i -= end * a.K;
      to = (end ? a.out.end : a.out.start) + i;
      x = scores[1 + end] ? as_double(scores[1 + end][i]) : 0;
      by = shift[1 + end];
      least = Bounds<P>::normal;
      vanishes = 0;
    }
    *to = a.log ? static_cast<P>(x) : weight_of(x - by, least, vanishes);
  }
}

template <class P, class In>
__global__ void __launch_bounds__(kThreads) prepare_kernel(const PrepareArgs<P> a) {
  launch_dependents();
  if (blockIdx.y == 0) {
    if (a.batch.type() == Type::f64) {
      transitions<P, double>(a);
    } else {
      transitions<P, float>(a);
    }
    return;
  }
  const std::int64_t b = blockIdx.y - 1, first = blockIdx.x * std::int64_t{kRows}, t = first + threadIdx.x / 32;
  std::int32_t rank = static_cast<std::int32_t>(t);
  bool present = t < a.batch.length;
  if (a.batch.mask) {
    rank = present_before(a, b, min(first, a.batch.length));  // there may be more blocks than rows
    for (std::int64_t i = first; i < t && i < a.batch.length; ++i) rank += is_present(a.batch, b, i);
    present = present && is_present(a.batch, b, t);
  }
  if (present) row_of_emissions<P, In>(a, b, rank, row_at(a.batch, b, t));
  if (blockIdx.x + 1 == gridDim.x) {  // the last block knows the length
    const std::int32_t length =
        a.batch.mask ? present_before(a, b, a.batch.length) : static_cast<std::int32_t>(a.batch.length);
    if (threadIdx.x == 0) {
      a.out.length[b] = length;
      a.out.blocks_done[b] = 0;
    }
  }
}

template <class P, class In>
void launch(const PrepareArgs<P>& args, cudaStream_t stream) {
  const std::int64_t blocks = std::max<std::int64_t>(ceil_div(args.batch.length, kRows), 8);  // for transitions
  launch_kernel(prepare_kernel<P, In>, {.x = blocks, .y = args.batch.size + 1, .threads = kThreads}, stream, args,
                "preparing scores");
}

}  // namespace

template <class P>
Prepared<P> allocate_prepared(Arena& arena, const DeviceConstraint::Impl& constraint, const Batch& batch, bool both) {
  const std::int64_t BT = batch.size * batch.length, K = constraint.topology.K;
  Prepared<P> out{};
  out.bad = arena.allocate<std::int32_t>(1);
  out.blocks_done = arena.allocate<std::uint32_t>(batch.size);
  out.length = arena.allocate<std::int32_t>(batch.size);
  out.row = arena.allocate<std::int64_t>(BT);
  out.gold = arena.allocate<std::int32_t>(BT);
  out.emissions = arena.allocate<P>(BT * (K + 1));
  out.shift = arena.allocate<double>(BT);
  for (int s = 0; s < (both ? 2 : 1); ++s) {
    const DeviceStep& layout = s ? constraint.backward : constraint.forward;
    out.matrix[s] = arena.allocate<P>(std::int64_t{layout.entries} + 8);
    out.sparse[s] = arena.allocate<P>(std::int64_t{layout.sparse} * std::int64_t{layout.sparse_slots});
  }
  out.start = arena.allocate<P>(K);
  out.end = arena.allocate<P>(K);
  out.shifts = arena.allocate<double>(3);
  out.floor = arena.allocate<P>(1);
  return out;
}

template <class P>
void prepare(const DeviceConstraint::Impl& constraint, const Batch& batch, const Prepared<P>& prepared, Scale scale,
             const std::int64_t* gold, cudaStream_t stream) {
  const PrepareArgs<P> args{batch,
                            constraint.topology.K,
                            {constraint.forward, constraint.backward},
                            prepared.matrix[1] ? 2 : 1,
                            scale == Scale::log,
                            prepared,
                            gold};
  switch (batch.emissions.type) {
    case Type::f16:
      return launch<P, __half>(args, stream);
    case Type::bf16:
      return launch<P, __nv_bfloat16>(args, stream);
    case Type::f32:
      return launch<P, float>(args, stream);
    case Type::f64:
      return launch<P, double>(args, stream);
  }
}

template Prepared<float> allocate_prepared(Arena&, const DeviceConstraint::Impl&, const Batch&, bool);
template Prepared<double> allocate_prepared(Arena&, const DeviceConstraint::Impl&, const Batch&, bool);
template void prepare(const DeviceConstraint::Impl&, const Batch&, const Prepared<float>&, Scale, const std::int64_t*,
                      cudaStream_t);
template void prepare(const DeviceConstraint::Impl&, const Batch&, const Prepared<double>&, Scale, const std::int64_t*,
                      cudaStream_t);

}  // namespace regccrf::cuda
