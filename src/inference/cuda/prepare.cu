// Scores in the form that passes read (see prepare.h). One warp a row of emissions. Before those come blocks for all
// other numbers, since they take longest: one for every 256, at most one for each multiprocessor.
#include "inference/cuda/bounds.h"
#include "inference/cuda/prepare.h"
#include "inference/numerics/limits.h"

namespace regccrf::cuda {

namespace {

constexpr int kThreads = 256, kRows = kThreads / 32;

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

// `h`: the row's scores.
template <class P, class In>
__device__ void row_of_emissions(const PrepareArgs<P>& a, const In* h, std::int64_t b, std::int64_t rank,
                                 std::int64_t row) {
  const int lane = threadIdx.x % 32;
  P* out = a.out.emissions + (b * a.batch.length + rank) * (a.K + 1);
  double largest = -INFINITY;
  bool bad = false;
  for (std::int32_t k = lane; k < a.K; k += 32) {
    const double x = bounded_score(as_double(h[k]));
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
    const double x = k < a.K ? bounded_score(as_double(h[k])) : -INFINITY;
    out[k] = a.log ? static_cast<P>(x) : weight_of(x - shift, Bounds<P>::least);
  }
}

// The largest of the transitions, of start and of end, and minus the smallest transition, -inf left out: of what this
// thread looks at, and whether one of its scores is NaN or +inf. Eight loads are in flight at a time.
template <class Score>
__device__ void own_extents(const Score* const (&scores)[3], std::int64_t K, double (&most)[4], bool& bad) {
  constexpr int together = 8;
  for (int part = 0; part < 3; ++part) {
    const std::int64_t count = !scores[part] ? 0 : part == 0 ? K * K : K;
    Score largest = -INFINITY, smallest = INFINITY;
    for (std::int64_t first = threadIdx.x; first < count; first += together * kThreads) {
      Score x[together];
#pragma unroll
      for (int i = 0; i < together; ++i)
        x[i] = first + i * kThreads < count ? scores[part][first + i * kThreads] : -Score{INFINITY};
#pragma unroll
      for (int i = 0; i < together; ++i) {
        bad |= !(x[i] < INFINITY);
        largest = x[i] > largest ? x[i] : largest;
        smallest = x[i] < smallest && x[i] > -INFINITY ? x[i] : smallest;
      }
    }
    most[part] = bounded_score(static_cast<double>(largest));
    if (part == 0) most[3] = -bounded_score(static_cast<double>(smallest));
  }
}

// Those of the block, to all threads.
__device__ void block_extents(double (&most)[4]) {
  __shared__ double of_warp[kRows][4];
  for (int k = 0; k < 4; ++k) {
    most[k] = warp_max(most[k]);
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32][k] = most[k];
  }
  __syncthreads();
  for (int warp = 0; warp < kRows; ++warp)
    for (int k = 0; k < 4; ++k) most[k] = fmax(most[k], of_warp[warp][k]);
}

// Everything but the emissions, one number after the other: the layouts' entries of g, then start and end.
// Number n of them. `shift`: the largest of transitions, start, end.
template <class P>
__device__ void prepare_number(const PrepareArgs<P>& a, const double (&shift)[3], std::int64_t n) {
  for (int s = 0; s < a.layouts; ++s) {
    if (n < a.layout[s].entries) {
      const std::int32_t entry = a.layout[s].entry[n];
      const double x = entry >= 0 ? score_at(a.batch.transitions, entry) : -INFINITY;
      const P least = s == 0 ? Bounds<P>::least_gain : P{0}, vanishes = s == 0 ? P{0} : Bounds<P>::normal;
      a.out.matrix[s][n] = a.log ? static_cast<P>(x) : weight_of(x - shift[0], least, vanishes);
      return;
    }
    n -= a.layout[s].entries;
  }
  const int end = n >= a.K;
  n -= end * a.K;
  const double x = optional_score_at(end ? a.batch.end : a.batch.start, n);
  (end ? a.out.end : a.out.start)[n] = a.log ? static_cast<P>(x) : weight_of(x - shift[1 + end], Bounds<P>::normal);
}

template <class P, class Score>
__device__ void prepare_transitions(const PrepareArgs<P>& a) {
  const Score* const scores[3] = {static_cast<const Score*>(a.batch.transitions.data),
                                  static_cast<const Score*>(a.batch.start.data),
                                  static_cast<const Score*>(a.batch.end.data)};
  bool bad = false;
  double most[4], shift[3];
  own_extents(scores, a.K, most, bad);
  block_extents(most);
  bad = __syncthreads_or(bad);
  for (int part = 0; part < 3; ++part) shift[part] = isfinite(most[part]) ? most[part] : 0;
  if (blockIdx.x == 0 && threadIdx.x == 0) {
    for (int part = 0; part < 3; ++part) a.out.shifts[part] = shift[part];
    *a.out.floor = floor_for(static_cast<P>(exp(fmin(-most[3], shift[0]) - shift[0])));
    *a.out.bad = bad;
  }
#pragma unroll 1
  for (std::int64_t n = blockIdx.x * std::int64_t{kThreads} + threadIdx.x; n < a.numbers;
       n += std::int64_t{a.transition_blocks} * kThreads)
    prepare_number(a, shift, n);
}

// Some rows of a sequence; the last block of a sequence finds its length.
template <class P>
__device__ void prepare_rows(const PrepareArgs<P>& a, std::int64_t block) {
  const std::int64_t b = block / a.row_blocks, first = block % a.row_blocks * kRows, t = first + threadIdx.x / 32;
  std::int32_t rank = static_cast<std::int32_t>(t);
  bool present = t < a.batch.length;
  if (a.batch.mask) {
    rank = present_before(a, b, first);
    for (std::int64_t i = first; i < t && i < a.batch.length; ++i) rank += is_present(a.batch, b, i);
    present = present && is_present(a.batch, b, t);
  }
  if (present) {
    const std::int64_t row = row_at(a.batch, b, t);
    with_numbers(a.batch.emissions, [&](const auto* h) { row_of_emissions(a, h + row * a.K, b, rank, row); });
  }
  if (block % a.row_blocks + 1 < a.row_blocks) return;
  const std::int32_t length =
      a.batch.mask ? present_before(a, b, a.batch.length) : static_cast<std::int32_t>(a.batch.length);
  if (threadIdx.x != 0) return;
  a.out.length[b] = length;
  a.out.blocks_done[b] = 0;
}

template <class P>
__global__ void __launch_bounds__(kThreads) prepare_kernel(const __grid_constant__ PrepareArgs<P> a) {
  launch_dependents();
  if (blockIdx.x >= a.transition_blocks) return prepare_rows(a, blockIdx.x - a.transition_blocks);
  if (a.batch.type() == Type::f64) {
    prepare_transitions<P, double>(a);
  } else {
    prepare_transitions<P, float>(a);
  }
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
    out.matrix[s] = arena.allocate<P>(layout.entries);
    out.sparse[s] = out.matrix[s] ? out.matrix[s] + layout.first_sparse_entry : nullptr;
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
  args.numbers = 2 * std::int64_t{args.K};
  for (int s = 0; s < args.layouts; ++s) args.numbers += args.layout[s].entries;
  args.transition_blocks =
      static_cast<std::uint32_t>(std::min<std::int64_t>(ceil_div(args.numbers, kThreads), constraint.processors));
  args.row_blocks = std::max<std::int64_t>(ceil_div(batch.length, kRows), 1);
  launch_kernel(prepare_kernel<P>, {.x = args.transition_blocks + batch.size * args.row_blocks, .threads = kThreads},
                stream, args, "preparing scores");
}

template Prepared<float> allocate_prepared(Arena&, const DeviceConstraint::Impl&, const Batch&, bool);
template Prepared<double> allocate_prepared(Arena&, const DeviceConstraint::Impl&, const Batch&, bool);
template void prepare(const DeviceConstraint::Impl&, const Batch&, const Prepared<float>&, Scale, const std::int64_t*,
                      cudaStream_t);
template void prepare(const DeviceConstraint::Impl&, const Batch&, const Prepared<double>&, Scale, const std::int64_t*,
                      cudaStream_t);

}  // namespace regccrf::cuda
