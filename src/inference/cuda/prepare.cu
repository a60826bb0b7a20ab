// Scores in the form that passes read (see prepare.h). One warp a row of emissions. Before those come blocks for all
// other numbers, since they take longest: one for every 256, at most one for each multiprocessor.
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
  std::int64_t numbers;             // but for the emissions
  std::uint32_t transition_blocks;  // that do those
  std::int64_t row_blocks;          // of a sequence
};

// Numbers of a layout's matrix, and what a tile may read behind it; of its sparse outs'.
__host__ __device__ std::int64_t matrix_size(const DeviceStep& layout) { return std::int64_t{layout.entries} + 8; }
__host__ __device__ std::int64_t sparse_size(const DeviceStep& layout) {
  return std::int64_t{layout.sparse} * layout.sparse_slots;
}

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

// The largest of the transitions, of start and of end, and minus the smallest transition, -inf left out.
struct Extents {
  double most[4] = {-INFINITY, -INFINITY, -INFINITY, -INFINITY};
};

// This thread's share of them, and whether one of its scores is NaN or +inf. Eight loads are in flight at a time.
template <class Score>
__device__ Extents own_extents(const Score* const (&scores)[3], std::int64_t K, bool& bad) {
  constexpr int together = 8;
  Extents own;
  for (int part = 0; part < 3; ++part) {
    const std::int64_t count = !scores[part] ? 0 : part == 0 ? K * K : K;
    Score most = -INFINITY, least = INFINITY;
    for (std::int64_t first = threadIdx.x; first < count; first += together * kThreads) {
      Score x[together];
#pragma unroll
      for (int i = 0; i < together; ++i)
        x[i] = first + i * kThreads < count ? scores[part][first + i * kThreads] : -Score{INFINITY};
#pragma unroll
      for (int i = 0; i < together; ++i) {
        bad |= !(x[i] < INFINITY);
        most = x[i] > most ? x[i] : most;
        least = x[i] < least && x[i] > -INFINITY ? x[i] : least;
      }
    }
    own.most[part] = bounded_score(static_cast<double>(most));
    if (part == 0) own.most[3] = -bounded_score(static_cast<double>(least));
  }
  return own;
}

// Those of the block, to all threads.
__device__ Extents block_extents(Extents own) {
  __shared__ Extents of_warp[kRows];
  for (double& x : own.most) x = warp_max(x);
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = own;
  __syncthreads();
  for (const Extents& other : of_warp)
    for (int k = 0; k < 4; ++k) own.most[k] = fmax(own.most[k], other.most[k]);
  return own;
}

// Everything but the emissions, one number after the other: the layouts' entries of g, then start and end.
template <class P>
std::int64_t numbers_of(const PrepareArgs<P>& a) {
  std::int64_t count = 2 * a.K;
  for (int s = 0; s < a.layouts; ++s) count += matrix_size(a.layout[s]) + sparse_size(a.layout[s]);
  return count;
}

// Number n of them. `shift`: the largest of transitions, start, end.
template <class P, class Score>
__device__ void prepare_number(const PrepareArgs<P>& a, const Score* const (&scores)[3], const double (&shift)[3],
                               std::int64_t n) {
  int s = 0;
  for (; s < a.layouts; ++s) {
    const std::int64_t size = matrix_size(a.layout[s]) + sparse_size(a.layout[s]);
    if (n < size) break;
    n -= size;
  }
  if (s == a.layouts) {
    const int end = n >= a.K;
    n -= end * a.K;
    const double x = scores[1 + end] ? as_double(scores[1 + end][n]) : 0;
    (end ? a.out.end : a.out.start)[n] = a.log ? static_cast<P>(x) : weight_of(x - shift[1 + end], Bounds<P>::normal);
    return;
  }
  const DeviceStep& layout = a.layout[s];
  const std::int64_t sparse = n - matrix_size(layout);
  // A tile may read past the last row of the matrix.
  const std::int32_t entry = sparse >= 0 ? layout.sparse_entry[sparse] : n < layout.entries ? layout.entry[n] : -1;
  const double x = entry >= 0 ? as_double(scores[0][entry]) : -INFINITY;
  const P least = s == 0 ? Bounds<P>::least_gain : P{0}, vanishes = s == 0 ? P{0} : Bounds<P>::normal;
  (sparse >= 0 ? a.out.sparse[s] + sparse : a.out.matrix[s] + n)[0] =
      a.log ? static_cast<P>(x) : weight_of(x - shift[0], least, vanishes);
}

template <class P, class Score>
__device__ void prepare_transitions(const PrepareArgs<P>& a) {
  const Score* const scores[3] = {static_cast<const Score*>(a.batch.transitions.data),
                                  static_cast<const Score*>(a.batch.start.data),
                                  static_cast<const Score*>(a.batch.end.data)};
  bool bad = false;
  const Extents extents = block_extents(own_extents(scores, a.K, bad));
  bad = __syncthreads_or(bad);
  double shift[3];
  for (int part = 0; part < 3; ++part) shift[part] = isfinite(extents.most[part]) ? extents.most[part] : 0;
  if (blockIdx.x == 0 && threadIdx.x == 0) {
    for (int part = 0; part < 3; ++part) a.out.shifts[part] = shift[part];
    *a.out.floor = floor_for(static_cast<P>(exp(fmin(-extents.most[3], shift[0]) - shift[0])));
    *a.out.bad = bad;
  }
#pragma unroll 1
  for (std::int64_t n = blockIdx.x * std::int64_t{kThreads} + threadIdx.x; n < a.numbers;
       n += std::int64_t{a.transition_blocks} * kThreads)
    prepare_number(a, scores, shift, n);
}

// Some rows of a sequence; the last block of a sequence finds its length.
template <class P, class In>
__device__ void prepare_rows(const PrepareArgs<P>& a, std::int64_t block) {
  const std::int64_t b = block / a.row_blocks, first = block % a.row_blocks * kRows, t = first + threadIdx.x / 32;
  std::int32_t rank = static_cast<std::int32_t>(t);
  bool present = t < a.batch.length;
  if (a.batch.mask) {
    rank = present_before(a, b, first);
    for (std::int64_t i = first; i < t && i < a.batch.length; ++i) rank += is_present(a.batch, b, i);
    present = present && is_present(a.batch, b, t);
  }
  if (present) row_of_emissions<P, In>(a, b, rank, row_at(a.batch, b, t));
  if (block % a.row_blocks + 1 < a.row_blocks) return;
  const std::int32_t length =
      a.batch.mask ? present_before(a, b, a.batch.length) : static_cast<std::int32_t>(a.batch.length);
  if (threadIdx.x != 0) return;
  a.out.length[b] = length;
  a.out.blocks_done[b] = 0;
}

template <class P, class In>
__global__ void __launch_bounds__(kThreads) prepare_kernel(const __grid_constant__ PrepareArgs<P> a) {
  launch_dependents();
  if (blockIdx.x >= a.transition_blocks) return prepare_rows<P, In>(a, blockIdx.x - a.transition_blocks);
  if (a.batch.type() == Type::f64) {
    prepare_transitions<P, double>(a);
  } else {
    prepare_transitions<P, float>(a);
  }
}

template <class P, class In>
void launch(const PrepareArgs<P>& args, cudaStream_t stream) {
  launch_kernel(prepare_kernel<P, In>,
                {.x = args.transition_blocks + args.batch.size * args.row_blocks, .threads = kThreads}, stream, args,
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
    out.matrix[s] = arena.allocate<P>(matrix_size(layout));
    out.sparse[s] = arena.allocate<P>(sparse_size(layout));
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
  PrepareArgs<P> args{batch,
                      constraint.topology.K,
                      {constraint.forward, constraint.backward},
                      prepared.matrix[1] ? 2 : 1,
                      scale == Scale::log,
                      prepared,
                      gold};
  args.numbers = numbers_of(args);
  args.transition_blocks =
      static_cast<std::uint32_t>(std::min<std::int64_t>(ceil_div(args.numbers, kThreads), constraint.processors));
  args.row_blocks = std::max<std::int64_t>(ceil_div(batch.length, kRows), 1);
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
