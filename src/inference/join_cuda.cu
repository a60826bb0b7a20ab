// The join: alpha and beta of each position become marginals and sums for the bigrams (see Join in sweep.h).
//
// A block has a chunk of neighbouring positions of one sequence, and goes through five rounds of work:
//   stage     alpha and beta on chip, the positions of a cell side by side, so that one load gets a cell at all of them
//   gather    m, alpha at the arrivals, and the weight of every 32 of them; y, beta of the next position at the outs
//   total     weights of labels, their sum z for each position, and whether it can be trusted
//   multiply  marginals; m · y / z over states and positions, a matrix product, for the groups; pair by pair elsewhere
//   add up    what the warps of a group have
// Positions behind the end are staged as the last one again and their scales are 0, so that nothing asks which are
// there. Where a block has no room on chip, it does one position at a time from memory.
//
// The product runs on tensor cores in double: k is the position, and a state more where the chunk is short. Only there
// is 1 / z taken in, so m and y keep the range that the pass gave them.
//
// Trust: see expectation_cuda.cu.
#include <cuda_pipeline.h>

#include <algorithm>
#include <limits>

#include "inference/expectation_cuda.h"
#include "inference/gold_cuda.h"
#include "inference/multiply_cuda.h"

namespace regccrf::cuda {

namespace {

constexpr int kMostThreads = 1024;  // a power of two
constexpr int kMostChunk = 4;
constexpr int kHeadBytes = 256;                   // of Head, at the beginning of a block's shared memory
constexpr int kLanes = 8;                         // of a warp for one round: the warp does 32 / kLanes
constexpr int kPatchRows = 3, kPatchColumns = 3;  // of tiles, 8 × 8, that a warp multiplies at a time
constexpr int kPatchTiles = kPatchRows * kPatchColumns;
constexpr int kMostParts = kMostThreads / 32 / 2;  // patches, times the parts that share their states
constexpr unsigned kAllLanes = 0xffffffffu;

// A number at each of some positions (or of some cells).
template <class P, int kCount>
struct alignas(sizeof(P) * kCount < 16 ? sizeof(P) * kCount : 16) Several {
  P at[kCount];
};

// What is known of a chunk's positions.
template <class P>
struct Head {
  double inverse[kMostChunk];  // 1 / z; 0 for a position that is not there
  P scale[kMostChunk];         // what the next step took off alpha; likewise
  P next_scale[kMostChunk];    // what this step took off beta; likewise, and for the last
  std::int32_t parts;          // that share the states of each patch
};
static_assert(sizeof(Head<double>) <= kHeadBytes);

// Where a block's arrays begin, in bytes.
struct Layout {
  std::int64_t alpha, beta, after, m, y, sums, labels, inverse, round_begin, groups, partial, bytes;
};

// Cells that are a multiple of 128 bytes apart would share their banks: a gap behind every 128 bytes.
template <class P>
constexpr __host__ __device__ std::uint32_t gap_every(int chunk) {
  return 128u / static_cast<std::uint32_t>(sizeof(P) * static_cast<std::size_t>(chunk));
}

// What a chunk keeps, on chip or, but for the cells, in memory.
template <class P>
Layout layout_of(const DeviceConstraint::Impl& c, std::int32_t chunk, bool on_chip, bool bigrams) {
  const DeviceJoin& join = c.join;
  Layout l{};
  const auto take = [&](std::int64_t count, std::int64_t size) {
    const std::int64_t at = l.bytes;
    l.bytes += (count * size + 15) / 16 * 16;
    return at;
  };
  const auto p = static_cast<std::int64_t>(sizeof(P)), numbers = p * chunk;
  const auto spread = [&](std::int64_t count) { return count + count / gap_every<P>(chunk) + 1; };
  if (on_chip) {
    l.alpha = take(spread(join.forward_cells + 1), numbers);
    l.partial = l.beta = take(spread(join.backward_cells + 1), numbers);
    l.after = take(join.backward_cells + 1, p);
  }
  if (bigrams && join.groups > 0) {  // beta is done with when they are written
    const std::int64_t partial = std::int64_t{kMostParts} * kPatchTiles * 64 * p;
    if (!on_chip) l.partial = l.bytes;
    l.bytes = std::max(l.bytes, l.partial + partial);
  }
  l.sums = take(join.rounds, numbers);
  l.labels = take(join.K, numbers);
  l.inverse = take(join.K, numbers);
  l.round_begin = take(join.K + 1, sizeof(std::int32_t));
  if (bigrams) {
    l.m = take(spread(join.places + 8 * kPatchRows), numbers);  // a patch may read past the last slot …
    l.y = take(join.outs + 8 * kPatchColumns, numbers);         // … and past the last out
    l.groups = take(join.groups, sizeof(JoinGroup));
  }
  l.bytes = (l.bytes + 255) / 256 * 256;
  return l;
}

template <class P>
struct JoinArgs {
  DeviceJoin join;
  DeviceTopology topology;
  Kept<P> kept;
  JoinWork<P> work;
  Layout layout;
  std::int64_t T;
  std::uint32_t chunks;       // of all sequences
  std::uint32_t ahead;        // of them that run at the same time
  std::uint32_t gold_blocks;  // of the grid, the first
  std::int32_t* stamps;       // of gold, null: on chip
  bool gold;
  void* emissions;  // [rows, K] or null
  Type type;        // of the caller's arrays
  double least;     // z below this, in units of a step's largest, is not to be trusted
};

// A chunk's arrays.
template <class P, int kChunk, bool kOnChip>
struct Chunk {
  using Numbers = Several<P, kChunk>;
  Head<P>* head;
  const Numbers *alpha, *beta;   // [cells + 1] forward, backward; the last is zero
  const P* after;                // [backward cells + 1] beta at the position behind the chunk
  Numbers* m;                    // [places] alpha at arrivals, scaled
  Numbers* y;                    // [outs] beta of the next position at nodes
  Numbers* sums;                 // [rounds]
  Numbers* labels;               // [K]
  Numbers* inverse;              // [K] 1 / w
  std::int32_t* round_begin;     // [K + 1]
  JoinGroup* groups;             // [groups]
  Several<P, 2>* partial;        // [parts, patches, tiles, 32]
  std::int64_t b, at;            // its sequence, and where its first position lies in [B, T]
  std::int32_t first, T, count;  // its first position, the sequence's length, positions that are there

  __device__ Chunk(const JoinArgs<P>& a, char* shared, char* room, std::uint32_t index) {
    const std::uint32_t chunks = static_cast<std::uint32_t>(a.work.chunks);
    b = index / chunks;
    first = static_cast<std::int32_t>(index % chunks) * kChunk;
    at = b * a.T + first;
    T = a.kept.scores.length[b];
    count = min(kChunk, T - first);
    head = reinterpret_cast<Head<P>*>(shared);
    if constexpr (kOnChip) room = shared + kHeadBytes;
    const auto array = [&](auto*& to, std::int64_t where) {
      to = reinterpret_cast<std::remove_reference_t<decltype(to)>>(room + where);
    };
    if constexpr (kOnChip) {
      array(alpha, a.layout.alpha);
      array(beta, a.layout.beta);
      array(after, a.layout.after);
    } else {
      alpha = reinterpret_cast<const Numbers*>(a.kept.alpha + at * a.join.forward_cells);
      beta = reinterpret_cast<const Numbers*>(a.kept.beta + at * a.join.backward_cells);
      // Behind the end any row will do: its scale is 0.
      after = a.kept.beta + (first + 1 < T ? at + 1 : at) * a.join.backward_cells;
    }
    array(m, a.layout.m);
    array(y, a.layout.y);
    array(sums, a.layout.sums);
    array(labels, a.layout.labels);
    array(inverse, a.layout.inverse);
    array(round_begin, a.layout.round_begin);
    array(groups, a.layout.groups);
    array(partial, a.layout.partial);
  }

  __device__ bool there(int j) const { return j < count; }
  __device__ bool last(int j) const { return first + j + 1 >= T; }  // … or behind it

  // Where cell i of alpha, beta and m lies.
  static __device__ std::uint32_t spread(std::int32_t i) {
    const auto at = static_cast<std::uint32_t>(i);
    return kOnChip ? at + at / gap_every<P>(kChunk) : at;
  }
  // The same 8 · n behind the cell that lies at `spread`.
  static __device__ std::uint32_t spread_behind(std::uint32_t spread_at, std::int32_t i, std::int32_t n) {
    constexpr std::uint32_t every = gap_every<P>(kChunk);
    if constexpr (!kOnChip) return spread_at + 8u * static_cast<std::uint32_t>(n);
    if constexpr (8 % every == 0) return spread_at + (8 + 8 / every) * static_cast<std::uint32_t>(n);
    return spread(i + 8 * n);
  }
  // Cell i, or zero.
  static __device__ Numbers read(const Numbers* cells, std::int32_t i, std::int32_t zero) {
    if constexpr (kOnChip) return cells[spread(i)];
    return i < zero ? cells[i] : Numbers{};
  }
  static __device__ P read_plain(const P* cells, std::int32_t i, std::int32_t zero) {
    return kOnChip || i < zero ? cells[i] : P{0};
  }
};

// 2^-e for the exponent e of a step's scale.
__device__ inline float step_scale(std::int32_t e, float) {
  return __uint_as_float(static_cast<unsigned>(127 - e) << 23);
}
__device__ inline double step_scale(std::int32_t e, double) { return __hiloint2double((1023 - e) << 20, 0); }

__device__ inline float smallest_number(float) { return 1.17549435e-38f; }
__device__ inline double smallest_number(double) { return 2.2250738585072014e-308; }

__device__ inline std::int32_t warp_of() { return static_cast<std::int32_t>(threadIdx.x / 32); }
__device__ inline std::int32_t lane_of() { return static_cast<std::int32_t>(threadIdx.x % 32); }
// A power of two.
__device__ inline std::int32_t warps_of() { return static_cast<std::int32_t>(blockDim.x / 32); }

template <class P, int kCount>
__device__ void add(Several<P, kCount>& sum, const Several<P, kCount>& x) {
#pragma unroll
  for (int j = 0; j < kCount; ++j) sum.at[j] += x.at[j];
}

// --- stage

// Some neighbouring cells at all positions.
template <class P, int kChunk>
struct Column {
  static constexpr int kCells = 16 / sizeof(P);  // never on both sides of a gap
  Several<P, kCells> row[kChunk];

  __device__ void load(const P* from, std::uint32_t i, std::uint32_t cells, std::int32_t count) {
#pragma unroll
    for (int j = 0; j < kChunk; ++j) {
      row[j] = *reinterpret_cast<const Several<P, kCells>*>(from + i);
      if (j + 1 < count) i += cells;
    }
  }
  __device__ void store(Several<P, kChunk>* to) const {
#pragma unroll
    for (int k = 0; k < kCells; ++k) {
      Several<P, kChunk> numbers;
#pragma unroll
      for (int j = 0; j < kChunk; ++j) numbers.at[j] = row[j].at[k];
      to[k] = numbers;
    }
  }
};

template <class P, int kChunk>
__device__ void stage_cells(const JoinArgs<P>& a, const Chunk<P, kChunk, true>& chunk) {
  using Here = Chunk<P, kChunk, true>;
  constexpr std::int32_t together = Column<P, kChunk>::kCells;
  const std::int32_t F = a.join.forward_cells, X = a.join.backward_cells;
  const P *alpha_from = a.kept.alpha + chunk.at * F, *beta_from = a.kept.beta + chunk.at * X;
  const P* after_from = beta_from + (chunk.first + kChunk < chunk.T ? kChunk : chunk.count - 1) * std::int64_t{X};
  auto *alpha = const_cast<typename Here::Numbers*>(chunk.alpha),
       *beta = const_cast<typename Here::Numbers*>(chunk.beta);
  auto* after = const_cast<P*>(chunk.after);
  if (threadIdx.x == 0) {
    alpha[Here::spread(F)] = beta[Here::spread(X)] = {};
    after[X] = 0;
  }
  const std::uint32_t forward_cells = F, backward_cells = X, most = max(F, X);
#pragma unroll 1
  for (std::uint32_t i = together * threadIdx.x; i < most; i += together * blockDim.x) {
    Column<P, kChunk> forward, backward;
    if (i < backward_cells) __pipeline_memcpy_async(after + i, after_from + i, 16);
    if (i < forward_cells) forward.load(alpha_from, i, forward_cells, chunk.count);
    if (i < backward_cells) backward.load(beta_from, i, backward_cells, chunk.count);
    if (i < forward_cells) forward.store(alpha + Here::spread(static_cast<std::int32_t>(i)));
    if (i < backward_cells) backward.store(beta + Here::spread(static_cast<std::int32_t>(i)));
  }
  __pipeline_commit();
}

// What is small: scales, the weights of the next positions, and zeros where no arrival will put alpha. By the last
// quarter of the threads, which have the fewest cells to copy.
template <class P, int kChunk, bool kOnChip>
__device__ void stage_others(const JoinArgs<P>& a, const Chunk<P, kChunk, kOnChip>& chunk, bool bigrams) {
  const std::int32_t K = a.join.K, threads = blockDim.x / 4,
                     thread = static_cast<std::int32_t>(threadIdx.x) - 3 * threads;
  if (thread < 0) return;
  if (thread < kChunk) {  // the last position is as the pass left it
    P scale = chunk.there(thread) ? 1 : 0;
    if (!chunk.last(thread)) scale = step_scale(a.kept.exponent[0][chunk.at + thread + 1], P{});
    chunk.head->scale[thread] = scale;
    chunk.head->next_scale[thread] = chunk.last(thread) ? P{0} : step_scale(a.kept.exponent[1][chunk.at + thread], P{});
  }
#pragma unroll 1
  for (std::int32_t i = thread; i < kChunk * K; i += threads) {
    const std::int32_t j = i / K, label = i - j * K;
    const P w = chunk.there(j) ? a.kept.scores.emissions[(chunk.at + j) * (K + 1) + label] : P{0};
    chunk.inverse[label].at[j] = w >= smallest_number(P{}) ? 1 / w : P{0};
  }
#pragma unroll 1
  for (std::int32_t i = thread; i <= K; i += threads) chunk.round_begin[i] = a.join.round_begin[i];
  if (!bigrams) return;
#pragma unroll 1
  for (std::int32_t i = thread; i < a.join.groups; i += threads) chunk.groups[i] = a.join.group[i];
#pragma unroll 1
  for (std::int32_t i = thread; i < a.join.group_places; i += threads) chunk.m[chunk.spread(i)] = {};
  if (thread == 0) chunk.m[chunk.spread(a.join.zero_place)] = {};
}

// The cells of the chunk that will have this one's place are asked for.
template <class P, int kChunk>
__device__ void ask_ahead([[maybe_unused]] const JoinArgs<P>& a, [[maybe_unused]] std::uint32_t index) {
#if __CUDA_ARCH__ >= 900
  const std::uint32_t next = index + a.ahead, chunks = static_cast<std::uint32_t>(a.work.chunks);
  if (threadIdx.x + 1 != blockDim.x || next >= a.chunks) return;
  const std::int64_t b = next / chunks, first = std::int64_t{next % chunks} * kChunk, at = b * a.T + first,
                     rows = min(std::int64_t{kChunk}, a.T - first);
  const auto ask = [&](const P* from, std::int64_t count) {
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(__cvta_generic_to_global(from)),
                 "r"(static_cast<std::uint32_t>(count * sizeof(P))));
  };
  ask(a.kept.alpha + at * a.join.forward_cells, rows * a.join.forward_cells);
  ask(a.kept.beta + at * a.join.backward_cells, rows * a.join.backward_cells);
#endif
}

// --- gather

// Sums over kLanes neighbouring lanes, to the lane that writes position `part / (kLanes / kChunk)`.
template <class P, int kChunk>
__device__ P sum_of_lanes(Several<P, kChunk> x, std::int32_t part) {
  int width = kChunk;
#pragma unroll
  for (int bit = kLanes / 2; bit > 0; bit /= 2) {
    if (width == 1) {
      x.at[0] += __shfl_xor_sync(kAllLanes, x.at[0], bit);
      continue;
    }
    width /= 2;
    const bool upper = part & bit;
#pragma unroll
    for (int n = 0; n < kChunk / 2; ++n) {
      if (n >= width) continue;
      const P mine = upper ? x.at[n + width] : x.at[n], other = upper ? x.at[n] : x.at[n + width];
      x.at[n] = mine + __shfl_xor_sync(kAllLanes, other, bit);
    }
  }
  return x.at[0];
}

// A lane's arrivals of one round.
template <bool kTwo, class P, int kChunk, bool kOnChip>
__device__ Several<P, kChunk> gather_some(const JoinArgs<P>& a, const Chunk<P, kChunk, kOnChip>& chunk,
                                          const int4 (&arrival)[32 / kLanes], std::int32_t k, std::int32_t label,
                                          bool bigrams) {
  using Numbers = Several<P, kChunk>;
  const std::int32_t F = a.join.forward_cells, X = a.join.backward_cells;
  const Numbers inverse = chunk.inverse[label];
  Numbers scale, sum{};
#pragma unroll
  for (int j = 0; j < kChunk; ++j) scale.at[j] = chunk.head->scale[j];
#pragma unroll
  for (int n = 0; n < 32 / kLanes; ++n) {
    Numbers in = chunk.read(chunk.alpha, arrival[n].x, F);
    if (kTwo) add(in, chunk.read(chunk.alpha, arrival[n].y, F));
    if (kTwo && a.join.arrival_begin) {
      const std::int32_t at = k + n * kLanes;
#pragma unroll 1
      for (std::int32_t i = a.join.arrival_begin[at]; i < a.join.arrival_begin[at + 1]; ++i)
        add(in, chunk.read(chunk.alpha, a.join.arrival_source[i], F));
    }
    const Numbers beta = chunk.read(chunk.beta, arrival[n].z, X);
#pragma unroll
    for (int j = 0; j < kChunk; ++j) {
      in.at[j] *= scale.at[j];
      sum.at[j] += in.at[j] * inverse.at[j] * beta.at[j];  // alpha and beta both have w; the quotient comes first
    }
    if (bigrams) chunk.m[chunk.spread(arrival[n].w)] = in;
  }
  return sum;
}

template <class P, int kChunk, bool kOnChip>
__device__ void gather_arrivals(const JoinArgs<P>& a, const Chunk<P, kChunk, kOnChip>& chunk, bool bigrams) {
  constexpr std::int32_t together = 32 / kLanes;
  const std::int32_t part = lane_of() % kLanes;
#pragma unroll 1
  for (std::int32_t first = warp_of() * together; first < a.join.rounds; first += warps_of() * together) {
    const std::int32_t round = first + lane_of() / kLanes, k = round * 32 + part;
    const bool there = round < a.join.rounds;
    int4 arrival[together];
    bool two = false;
#pragma unroll
    for (int n = 0; n < together; ++n) {
      arrival[n] = {a.join.forward_cells, a.join.forward_cells, a.join.backward_cells, 0};
      if (there) arrival[n] = __ldg(reinterpret_cast<const int4*>(a.join.arrival + k + n * kLanes));
      two = two || arrival[n].y != a.join.forward_cells;
    }
    two = __any_sync(kAllLanes, two);
    Several<P, kChunk> sum{};
    if (there) {
      const std::int32_t label = __ldg(a.join.round_label + round);
      sum = two ? gather_some<true>(a, chunk, arrival, k, label, bigrams)
                : gather_some<false>(a, chunk, arrival, k, label, bigrams);
    }
    const P total = sum_of_lanes(sum, part);
    constexpr std::int32_t share = kLanes / kChunk;  // lanes that have the same sum
    if (there && part % share == 0) chunk.sums[round].at[part / share] = total;
  }
}

// y[t][r, b] = Σ_{arcs (r, b, s)} beta[t+1][s, b], in units of beta[t]. The warps that had no arrivals begin.
template <class P, int kChunk, bool kOnChip>
__device__ void gather_next(const JoinArgs<P>& a, const Chunk<P, kChunk, kOnChip>& chunk) {
  const std::int32_t X = a.join.backward_cells, warps = warps_of(),
                     busy = (a.join.rounds * kLanes + 31) / 32 & (warps - 1);
  const std::int32_t warp = (warp_of() - busy) & (warps - 1);
  // The positions of the chunk, one later.
  const auto later = [&](std::int32_t cell) {
    Several<P, kChunk> beta{};
    if constexpr (kChunk > 1) {
      const Several<P, kChunk> here = chunk.read(chunk.beta, cell, X);
#pragma unroll
      for (int j = 0; j + 1 < kChunk; ++j) beta.at[j] = here.at[j + 1];
    }
    beta.at[kChunk - 1] = chunk.read_plain(chunk.after, cell, X);
    return beta;
  };
  Several<P, kChunk> scale;
#pragma unroll
  for (int j = 0; j < kChunk; ++j) scale.at[j] = chunk.head->next_scale[j];
#pragma unroll 1
  for (std::int32_t o = warp * 32 + lane_of(); o < a.join.outs; o += blockDim.x) {
    const JoinOut* out = a.join.out + o;
    const std::int32_t cell[2] = {__ldg(&out->x), __ldg(&out->y)};
    Several<P, kChunk> y = later(cell[0]);
    add(y, later(cell[1]));
    if (a.join.out_begin) {
#pragma unroll 1
      for (std::int32_t i = a.join.out_begin[o]; i < a.join.out_begin[o + 1]; ++i) add(y, later(a.join.out_target[i]));
    }
#pragma unroll
    for (int j = 0; j < kChunk; ++j) y.at[j] *= scale.at[j];
    chunk.y[o] = y;
  }
}

// --- total

template <class P, int kChunk, bool kOnChip>
__device__ void total_position(const JoinArgs<P>& a, const Chunk<P, kChunk, kOnChip>& chunk, std::int32_t j) {
  double z = 0;
#pragma unroll 1
  for (std::int32_t k = lane_of(); k < a.join.K; k += 32) {
    P sum = 0;
#pragma unroll 1
    for (std::int32_t r = chunk.round_begin[k]; r < chunk.round_begin[k + 1]; ++r) sum += chunk.sums[r].at[j];
    chunk.labels[k].at[j] = sum;
    z += static_cast<double>(sum);
  }
#pragma unroll
  for (int bit = 16; bit > 0; bit /= 2) z += __shfl_xor_sync(kAllLanes, z, bit);
  if (lane_of() != 0) return;
  chunk.head->inverse[j] = chunk.there(j) ? 1 / z : 0;
  if (!chunk.there(j)) return;
  a.kept.z[chunk.at + j] = z;
  // A step's own numbers count from a largest of less than 2 in the step before, and alpha has been scaled since.
  const double scale = static_cast<double>(chunk.head->scale[j]);
  if (!(z > 0 && z >= fmax(2.0, scale) * a.least && isfinite(z))) a.kept.flag[chunk.b] = 1;
}

__device__ inline std::int32_t patches_of(const JoinGroup& group) {
  return (group.rows + 8 * kPatchRows - 1) / (8 * kPatchRows) *
         ((group.width + 8 * kPatchColumns - 1) / (8 * kPatchColumns));
}

// Half the warps multiply, unless there are more patches; the others have the pairs.
template <class P, int kChunk, bool kOnChip>
__device__ void choose_parts(const JoinArgs<P>& a, const Chunk<P, kChunk, kOnChip>& chunk) {
  std::int32_t patches = 0;
#pragma unroll 1
  for (std::int32_t g = lane_of(); g < a.join.groups; g += 32) patches += patches_of(chunk.groups[g]);
  patches = __reduce_add_sync(kAllLanes, patches);
  if (lane_of() == 0) chunk.head->parts = max(1, warps_of() / 2 / max(1, patches));
}

template <class P, int kChunk, bool kOnChip>
__device__ void total(const JoinArgs<P>& a, const Chunk<P, kChunk, kOnChip>& chunk, bool bigrams) {
  const std::int32_t warp = warp_of();
  if (warp < kChunk) total_position(a, chunk, warp);
  if (warp == kChunk && bigrams) choose_parts(a, chunk);
}

// --- multiply

// By the last threads: the first have patches.
template <class P, int kChunk, bool kOnChip>
__device__ void write_emissions(const JoinArgs<P>& a, const Chunk<P, kChunk, kOnChip>& chunk) {
  const std::int32_t K = a.join.K;
#pragma unroll 1
  for (std::int32_t i = blockDim.x - 1 - threadIdx.x; i < chunk.count * K; i += blockDim.x) {
    const std::int32_t j = i / K, label = i - j * K;
    const std::int64_t at = chunk.at + j, row = a.kept.scores.row[at];
    const double p = static_cast<double>(chunk.labels[label].at[j]) * chunk.head->inverse[j];
    write_score(a.emissions, a.type, row * K + label, a.gold && a.kept.scores.gold[at] == label ? p - 1 : p);
  }
}

__device__ inline double largest_number(float) { return 1e37; }
__device__ inline double largest_number(double) { return 1e300; }

template <class P>
__device__ void write_sum(const JoinArgs<P>& a, std::int64_t b, P* to, double x) {
  if (!(x < largest_number(P{}))) a.kept.flag[b] = 1;
  *to = static_cast<P>(x);
}

// Tiles as mma.m8n8k4 leaves them: a lane has row lane / 4, columns 2 · (lane % 4) and the next.
struct Patch {
  double sum[kPatchRows][kPatchColumns][2];
};

// Σ over positions and each `parts`-th state, from slot `row` and out `column` on. Slots and outs past a state's own
// are numbers of others, and go to sums that nobody wants.
template <class P, int kChunk, bool kOnChip>
__device__ void multiply_patch(const Chunk<P, kChunk, kOnChip>& chunk, const JoinGroup& group, std::int32_t row,
                               std::int32_t column, std::int32_t part, std::int32_t parts, Patch& patch) {
  constexpr std::int32_t states = 4 / kChunk;  // at a time
  const std::int32_t k = lane_of() % 4, j = k % kChunk;
  const double inverse = chunk.head->inverse[j];
#pragma unroll 1
  for (std::int32_t first = part * states; first < group.states; first += parts * states) {
    const std::int32_t s = first + k / kChunk;
    const bool there = kChunk == 4 || s < group.states;
    const std::int32_t place = group.first_place + (there ? s : 0) * group.slots + row + lane_of() / 4;
    const Several<P, kChunk>* from = chunk.y + group.first_out + (there ? s : 0) * group.width + column + lane_of() / 4;
    const std::uint32_t at = chunk.spread(place);
    double m[kPatchRows], y[kPatchColumns];
#pragma unroll
    for (int r = 0; r < kPatchRows; ++r) {
      const P x = chunk.m[chunk.spread_behind(at, place, r)].at[j];
      m[r] = there ? static_cast<double>(x) : 0;
    }
#pragma unroll
    for (int c = 0; c < kPatchColumns; ++c) {
      const P x = from[8 * c].at[j];
      y[c] = there ? static_cast<double>(x) * inverse : 0;
    }
#pragma unroll
    for (int r = 0; r < kPatchRows; ++r) {
#pragma unroll
      for (int c = 0; c < kPatchColumns; ++c) multiply_tile(patch.sum[r][c], m[r], y[c]);
    }
  }
}

// Tasks are a part of a patch, numbered through all groups; a warp has every `warps`-th. A patch in one part is done;
// parts are put down to be added up.
template <class P, int kChunk, bool kOnChip>
__device__ void multiply_groups(const JoinArgs<P>& a, const Chunk<P, kChunk, kOnChip>& chunk, P* sums) {
  const std::int32_t lane = lane_of(), warps = warps_of(), parts = chunk.head->parts;
  std::int32_t before = 0;  // tasks of the groups so far
#pragma unroll 1
  for (std::int32_t g = 0; g < a.join.groups; ++g) {
    const JoinGroup group = chunk.groups[g];
    const std::int32_t patches = patches_of(group),
                       across = (group.width + 8 * kPatchColumns - 1) / (8 * kPatchColumns);
    std::int32_t task = (warp_of() - before) & (warps - 1);
#pragma unroll 1
    for (; task < patches * parts; task += warps) {
      const std::int32_t part = task / patches, p = task - part * patches;
      const std::int32_t down = across == 1 ? p : p / across;  // mostly 1, and a division takes longer
      const std::int32_t row = down * 8 * kPatchRows, column = (p - down * across) * 8 * kPatchColumns;
      Patch patch{};
      multiply_patch(chunk, group, row, column, part, parts, patch);
#pragma unroll
      for (int tile = 0; tile < kPatchTiles; ++tile) {
        const double(&sum)[2] = patch.sum[tile / kPatchColumns][tile % kPatchColumns];
        if (parts > 1) {
          chunk.partial[((before + task) * kPatchTiles + tile) * 32 + lane] = {static_cast<P>(sum[0]),
                                                                               static_cast<P>(sum[1])};
          continue;
        }
        const std::int32_t i = row + tile / kPatchColumns * 8 + lane / 4,
                           o = column + tile % kPatchColumns * 8 + lane % 4 * 2;
        if (i >= group.rows || o >= group.width) continue;
        P* to = sums + group.first_entry + i * group.width + o;
        for (int n = 0; n < 2; ++n) write_sum(a, chunk.b, to + n, sum[n]);
      }
    }
    before += patches * parts;
  }
}

// Thin states' bigrams: a warp does 32 / kLanes rounds at a time.
template <class P, int kChunk, bool kOnChip>
__device__ void multiply_pairs(const JoinArgs<P>& a, const Chunk<P, kChunk, kOnChip>& chunk, P* sums) {
  constexpr std::int32_t together = 32 / kLanes;
  const std::int32_t part = lane_of() % kLanes;
  const std::int32_t warp = warps_of() - 1 - warp_of();  // the first warps have patches
#pragma unroll 1
  for (std::int32_t first = warp * together; first < a.join.sparse_rounds; first += warps_of() * together) {
    const std::int32_t round = first + lane_of() / kLanes;
    const bool there = round < a.join.sparse_rounds;
    Several<P, kChunk> sum{};
    if (there) {
#pragma unroll
      for (int n = 0; n < together; ++n) {
        const int2 pair = __ldg(reinterpret_cast<const int2*>(a.join.sparse + round * 32 + n * kLanes + part));
        const Several<P, kChunk> m = chunk.m[chunk.spread(pair.x)], y = chunk.y[pair.y];
#pragma unroll
        for (int j = 0; j < kChunk; ++j) sum.at[j] += m.at[j] * y.at[j];
      }
    }
    double total = 0;
#pragma unroll
    for (int j = 0; j < kChunk; ++j) total += static_cast<double>(sum.at[j]) * chunk.head->inverse[j];
#pragma unroll
    for (int bit = kLanes / 2; bit > 0; bit /= 2) total += __shfl_xor_sync(kAllLanes, total, bit);
    if (there && part == 0) write_sum(a, chunk.b, sums + a.join.dense + round, total);
  }
}

// --- add up

// Over the parts, in their order.
template <class P, int kChunk, bool kOnChip>
__device__ void add_up(const JoinArgs<P>& a, const Chunk<P, kChunk, kOnChip>& chunk, P* sums) {
  const std::int32_t parts = chunk.head->parts, threads = blockDim.x;
  std::int32_t before = 0;
#pragma unroll 1
  for (std::int32_t g = 0; g < a.join.groups; ++g) {
    const JoinGroup group = chunk.groups[g];
    const std::int32_t numbers = patches_of(group) * kPatchTiles * 32,
                       across = (group.width + 8 * kPatchColumns - 1) / (8 * kPatchColumns);
#pragma unroll 1
    for (std::int32_t n = threadIdx.x; n < numbers; n += threads) {
      const std::int32_t lane = n % 32, tile = n / 32 % kPatchTiles, p = n / (32 * kPatchTiles);
      const std::int32_t down = across == 1 ? p : p / across;
      const std::int32_t i = (down * kPatchRows + tile / kPatchColumns) * 8 + lane / 4,
                         o = ((p - down * across) * kPatchColumns + tile % kPatchColumns) * 8 + lane % 4 * 2;
      if (i >= group.rows || o >= group.width) continue;
      const Several<P, 2>* from = chunk.partial + before + n;
      Several<P, 2> sum{};
#pragma unroll 4
      for (std::int32_t part = 0; part < parts; ++part) add(sum, from[part * numbers]);
      P* to = sums + group.first_entry + i * group.width + o;
      for (int k = 0; k < 2; ++k) write_sum(a, chunk.b, to + k, static_cast<double>(sum.at[k]));
    }
    before += numbers * parts;
  }
}

template <class P, int kChunk, bool kOnChip>
__device__ void join_chunk(const JoinArgs<P>& a, char* shared, char* room, std::uint32_t index) {
  const Chunk<P, kChunk, kOnChip> chunk(a, shared, room, index);
  if (chunk.count <= 0) return;
  const bool bigrams = a.work.entries > 0;
  if constexpr (kOnChip) stage_cells(a, chunk);
  stage_others(a, chunk, bigrams);
  __pipeline_wait_prior(0);
  __syncthreads();
  if constexpr (kOnChip) ask_ahead<P, kChunk>(a, index);
  gather_arrivals(a, chunk, bigrams);
  if (bigrams) gather_next(a, chunk);
  __syncthreads();
  total(a, chunk, bigrams);
  __syncthreads();
  if (a.emissions) write_emissions(a, chunk);
  if (!bigrams) return;
  P* sums = a.work.sums + std::int64_t{index} * a.work.entries;
  multiply_groups(a, chunk, sums);
  multiply_pairs(a, chunk, sums);
  if (chunk.head->parts == 1) return;
  __syncthreads();
  add_up(a, chunk, sums);
}

template <class P, int kChunk, bool kOnChip>
__global__ void __launch_bounds__(kMostThreads, 1) join_kernel(const __grid_constant__ JoinArgs<P> a) {
  char* shared = shared_memory();
  if (blockIdx.x < a.gold_blocks) {
    const std::int64_t b = blockIdx.x;
    follow_gold(a.topology, a.kept.scores.gold + b * a.T, a.kept.scores.length[b], shared,
                a.stamps ? a.stamps + b * 2 * a.topology.Q : nullptr, a.kept.leaves + b);
    return;
  }
  const std::uint32_t block = blockIdx.x - a.gold_blocks;
  if constexpr (kOnChip) {
    join_chunk<P, kChunk, true>(a, shared, nullptr, block);
  } else {
    char* room = reinterpret_cast<char*>(a.work.room) + block * a.layout.bytes;
#pragma unroll 1
    for (std::uint32_t index = block; index < a.chunks; index += gridDim.x - a.gold_blocks) {
      join_chunk<P, kChunk, false>(a, shared, room, index);
      __syncthreads();
    }
  }
}

// --- the call

// How the join of a batch is cut into blocks.
struct Shape {
  std::int32_t chunk, chunks, threads;
  std::int64_t blocks;    // without those that follow gold
  std::int32_t together;  // blocks that run at the same time
  bool on_chip;
  Layout layout;
};

// The largest chunk that fits, as long as every processor has one; from memory, blocks that take turns.
template <class P>
Shape shape_of(const DeviceConstraint::Impl& c, const Batch& batch, const Expectation& wanted) {
  const bool bigrams = wanted.transitions != nullptr;
  const std::int64_t room = std::int64_t{c.shared_bytes} - kHeadBytes;
  const auto chunks = [&](std::int32_t chunk) { return (batch.length + chunk - 1) / chunk; };
  const auto fits = [&](std::int32_t chunk) { return layout_of<P>(c, chunk, true, bigrams).bytes <= room; };
  Shape s{};
  s.chunk = kMostChunk;
  while (s.chunk > 1 && (!fits(s.chunk) || 2 * batch.size * chunks(s.chunk) <= c.processors)) s.chunk /= 2;
  s.on_chip = fits(s.chunk);
  s.layout = layout_of<P>(c, s.chunk, s.on_chip, bigrams);
  s.chunks = static_cast<std::int32_t>(chunks(s.chunk));
  s.blocks = batch.size * s.chunks;
  s.threads = kMostThreads;
  // Smaller blocks where more than one finds room on a processor, which then has work while one of them waits.
  const std::int64_t taken = (s.on_chip ? s.layout.bytes : 0) + kHeadBytes + 1024;
  const auto at_once = [&](std::int32_t threads) { return std::int64_t{c.processors} * (kMostThreads / threads); };
  while (s.threads > 256 && s.blocks > at_once(s.threads) &&
         2 * kMostThreads / s.threads * taken <= c.shared_bytes + 1024)
    s.threads /= 2;
  s.together = static_cast<std::int32_t>(at_once(s.threads));
  if (!s.on_chip) s.blocks = std::min<std::int64_t>(s.blocks, s.together);
  return s;
}

// z must exceed the largest product of alpha and beta by this much: what is lost, as in the head of this file, stays
// below a hundredth of the tolerance.
template <class P>
double least_trusted(const DeviceConstraint::Impl& c, std::int64_t T) {
  const double smallest = static_cast<double>(std::numeric_limits<P>::min()), tolerance = sizeof(P) == 4 ? 1e-7 : 1e-13;
  const double products = static_cast<double>(c.products + c.forward.cells + c.backward.cells) * 4;
  const double largest = 4.0 * c.topology.K;  // of alpha or beta / w in a step
  return std::min(1e-3, smallest * products * largest * static_cast<double>(T + 1) / tolerance);
}

template <class P>
auto* kernel_of(const Shape& s) {
  if (!s.on_chip) return join_kernel<P, 1, false>;
  return s.chunk == 4 ? join_kernel<P, 4, true> : s.chunk == 2 ? join_kernel<P, 2, true> : join_kernel<P, 1, true>;
}

}  // namespace

template <class P>
JoinWork<P> cut_join(Cutter& cutter, const DeviceConstraint::Impl& c, const Batch& batch, const Expectation& wanted) {
  const Shape s = shape_of<P>(c, batch, wanted);
  JoinWork<P> work{};
  work.chunk = s.chunk;
  work.chunks = s.chunks;
  work.entries = wanted.transitions ? c.join.dense + c.join.sparse_rounds : 0;
  work.sums = cutter.take<P>(static_cast<std::size_t>(batch.size * s.chunks) * static_cast<std::size_t>(work.entries));
  work.room = cutter.take<P>(s.on_chip ? 0 : static_cast<std::size_t>(s.blocks * s.layout.bytes) / sizeof(P));
  return work;
}

template <class P>
void run_join(const DeviceConstraint::Impl& c, const Batch& batch, const Kept<P>& kept, const PassWork<P>& pass,
              const JoinWork<P>& work, const Expectation& wanted, cudaStream_t stream) {
  const Shape s = shape_of<P>(c, batch, wanted);
  const bool follows = wanted.gold && !gold_beside_pass(c, batch);
  const std::uint32_t gold_blocks = follows ? static_cast<std::uint32_t>(batch.size) : 0;
  const std::int64_t blocks = gold_blocks + s.blocks;
  if (blocks == 0) return;
  const int on_chip = kHeadBytes + static_cast<int>(s.on_chip ? s.layout.bytes : 0);
  const int bytes = std::max(on_chip, follows ? gold_bytes(c) : 0);
  const JoinArgs<P> args{c.join,
                         c.topology,
                         kept,
                         work,
                         s.layout,
                         batch.length,
                         static_cast<std::uint32_t>(batch.size * s.chunks),
                         static_cast<std::uint32_t>(s.together),
                         gold_blocks,
                         gold_bytes(c) > 0 ? nullptr : pass.stamps,
                         wanted.gold != nullptr,
                         wanted.emissions,
                         batch.type,
                         least_trusted<P>(c, batch.length)};
  launch_kernel(kernel_of<P>(s), static_cast<unsigned>(blocks), static_cast<unsigned>(s.threads), bytes, stream, args,
                "joining forward and backward");
}

template JoinWork<float> cut_join(Cutter&, const DeviceConstraint::Impl&, const Batch&, const Expectation&);
template JoinWork<double> cut_join(Cutter&, const DeviceConstraint::Impl&, const Batch&, const Expectation&);
template void run_join(const DeviceConstraint::Impl&, const Batch&, const Kept<float>&, const PassWork<float>&,
                       const JoinWork<float>&, const Expectation&, cudaStream_t);
template void run_join(const DeviceConstraint::Impl&, const Batch&, const Kept<double>&, const PassWork<double>&,
                       const JoinWork<double>&, const Expectation&, cudaStream_t);

}  // namespace regccrf::cuda
