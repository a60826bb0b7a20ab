// The join: alpha and beta of each position become marginals and sums for the bigrams (see Join in sweep.h).
//
// With m alpha at the arrivals of a position t, and y beta of the next position at the outs, the weight of a bigram (a,
// b) that begins at t is g[a, b] times S_t[a, b] = Σ m[a] · y[b] over the states where a arrives and b leaves; label
// a's is the sum of that over b. So S_t is all that is needed, and it is wanted twice: its rows, weighted by g, for the
// labels of position t, and itself, added up over positions, for the bigrams.
//
// A block has a chunk of neighbouring positions of one sequence:
//   bring     m and y on chip
//   multiply  tasks, whichever is next to the warp that is free: a patch of a group's matrix on the tensor cores in
//             double, some rounds of thin states' pairs, or, in the last position, where no bigram begins, some labels
//   total     z, the weight of a position, and marginals
// Positions behind the end have some numbers and a scale of 0, so that few ask which are there. Where a block has no
// room on chip, it does one position at a time from memory.
//
// Where the pass leaves alpha and beta as they are wanted here (expectation_cuda.h), they are only copied; else they
// are gathered, cell by cell.
//
// z times the scales that the pass took off is the same at all positions but for rounding. So the positions of a chunk
// are added up in units of the first one's z, by the exponents alone, and the z itself is left for `finish`.
#include <cuda_pipeline.h>

#include <algorithm>
#include <limits>

#include "inference/bounds_cuda.h"
#include "inference/expectation_cuda.h"
#include "inference/gold_cuda.h"
#include "inference/multiply_cuda.h"

namespace regccrf::cuda {

namespace {

template <class P>
constexpr int kMostThreads = sizeof(P) == 4 ? 512 : 256;  // as many as find registers
constexpr int kLeastThreads = 128;
constexpr int kMostChunk = 4;
constexpr int kHeadBytes = 128;  // of Head, at the beginning of a block's shared memory
constexpr int kLanes = 8;        // of a warp for one round: the warp does 32 / kLanes
constexpr int kTogether = 32 / kLanes;
constexpr int kTileRows = kPatchRows / 8, kTileColumns = kPatchColumns / 8;  // of a patch; a tile is 8 × 8
static_assert(kTileRows == 2);
constexpr unsigned kAllLanes = 0xffffffffu;

struct Head {
  double scale[kMostChunk];  // of m · y; 0 where no bigram begins
  double unit[kMostChunk];   // z of the first position over that of this one
  std::int32_t task;         // the next
};
static_assert(sizeof(Head) <= kHeadBytes);

// Where a block's arrays begin, in bytes.
struct Layout {
  std::int64_t m, y, shares, labels, bytes;
};

template <class P>
Layout layout_of(const DeviceConstraint::Impl& c, std::int32_t chunk) {
  const DeviceJoin& join = c.join;
  Layout l{};
  const auto take = [&](std::int64_t count) {
    const std::int64_t at = l.bytes;
    l.bytes += (count * chunk * std::int64_t{sizeof(P)} + 15) / 16 * 16;
    return at;
  };
  l.m = take(join.places);  // a patch may read past its last slot, whatever is there …
  l.y = take(join.outs);    // … and past its last out, where others and then zeros are
  l.shares = take(join.shares);
  l.labels = take(join.K);
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
  std::uint32_t gold_blocks;  // of the grid, the first
  std::int32_t* stamps;       // of gold, null: on chip
  bool copied, at_outs;       // m and y are alpha and beta as they lie in memory
  bool gold;
  void* emissions;  // [rows, K] or null
  Type type;        // of the caller's arrays
};

// A chunk's arrays.
template <class P, int kChunk, bool kOnChip>
struct Chunk {
  Head* head;
  P* m;                          // [positions, places] alpha
  P* y;                          // [positions, outs] beta of the next position
  P* shares;                     // [positions, shares]
  P* labels;                     // [positions, K]
  std::int64_t b, at;            // its sequence, and where its first position lies in [B, T]
  std::int32_t first, T, count;  // its first position, the sequence's length, positions that are there
  std::int32_t bigrams;          // positions where one begins

  __device__ Chunk(const JoinArgs<P>& a, char* shared, char* room, std::uint32_t index) {
    const std::uint32_t chunks = static_cast<std::uint32_t>(a.work.chunks);
    b = index / chunks;
    first = static_cast<std::int32_t>(index % chunks) * kChunk;
    at = b * a.T + first;
    T = a.kept.scores.length[b];
    count = min(kChunk, T - first);
    bigrams = min(kChunk, T - 1 - first);
    head = reinterpret_cast<Head*>(shared);
    if constexpr (kOnChip) room = shared + kHeadBytes;
    m = reinterpret_cast<P*>(room + a.layout.m);
    y = reinterpret_cast<P*>(room + a.layout.y);
    shares = reinterpret_cast<P*>(room + a.layout.shares);
    labels = reinterpret_cast<P*>(room + a.layout.labels);
  }
};

// 2^-e for the exponent e of a step's scale.
__device__ inline float step_scale(std::int32_t e, float) {
  return __uint_as_float(static_cast<unsigned>(127 - e) << 23);
}
__device__ inline double step_scale(std::int32_t e, double) { return __hiloint2double((1023 - e) << 20, 0); }

__device__ inline std::int32_t warp_of() { return static_cast<std::int32_t>(threadIdx.x / 32); }
__device__ inline std::int32_t lane_of() { return static_cast<std::int32_t>(threadIdx.x % 32); }

// --- bring

// What the pass took off between the steps of a chunk.
template <class P, int kChunk>
struct Exponents {
  std::int32_t alpha[kChunk], beta[kChunk];  // in the step behind a position, forwards, and in its own, backwards

  template <bool kOnChip>
  __device__ Exponents(const JoinArgs<P>& a, const Chunk<P, kChunk, kOnChip>& chunk) {
#pragma unroll
    for (int j = 0; j < kChunk; ++j) {
      const bool there = j < chunk.bigrams;
      alpha[j] = there ? a.kept.exponent[0][chunk.at + j + 1] : 0;
      beta[j] = there ? a.kept.exponent[1][chunk.at + j] : 0;
    }
  }
};

// Where exponents leave this range, so do numbers that count.
__device__ inline std::int32_t largest_exponent(float) { return 120; }
__device__ inline std::int32_t largest_exponent(double) { return 1000; }

template <class P, int kChunk, bool kOnChip>
__device__ void set_head(const JoinArgs<P>& a, const Chunk<P, kChunk, kOnChip>& chunk,
                         const Exponents<P, kChunk>& exponents) {
  const std::int32_t most = largest_exponent(P{});
  std::int32_t unit = 0;
  bool fits = true;
#pragma unroll
  for (int j = 0; j < kChunk; ++j) {
    const std::int32_t scale = exponents.alpha[j] + exponents.beta[j] + Bounds<P>::beta_peak;
    if (j > 0) unit += exponents.alpha[j] - exponents.beta[j - 1];
    fits = fits && abs(unit) <= most && abs(scale) <= most;
    chunk.head->scale[j] = j < chunk.bigrams ? step_scale(min(max(scale, -most), most), double{}) : 0;
    chunk.head->unit[j] = step_scale(min(max(-unit, -most), most), double{});
  }
  chunk.head->task = 0;
  if (!fits) a.kept.flag[chunk.b] = 1;
}

// Sixteen bytes, each on its own way.
template <bool kOnChip, class P>
__device__ void copy_some(P* to, const P* from) {
  if constexpr (kOnChip) {
    __pipeline_memcpy_async(to, from, 16);
  } else {
    *reinterpret_cast<int4*>(to) = *reinterpret_cast<const int4*>(from);
  }
}

// Positions side by side as they lie in memory, `count` of them; behind those, whatever is a number.
template <class P, int kChunk, bool kOnChip>
__device__ void copy_rows(P* to, const P* from, std::int32_t row, std::int32_t count) {
  constexpr std::int32_t together = 16 / sizeof(P);
  const std::int32_t step = together * static_cast<std::int32_t>(blockDim.x), all = kChunk * row, there = count * row;
  std::int32_t i = together * static_cast<std::int32_t>(threadIdx.x);
  const P* source = from + i;
#pragma unroll 4
  for (; i < there; i += step, source += step) copy_some<kOnChip>(to + i, source);
#pragma unroll 1
  for (; i < all; i += step) copy_some<kOnChip>(to + i, from);
}

// Numbers of a step at the positions of a chunk: row j begins at base + row[j].
template <class P, int kChunk>
struct Rows {
  const P* base;
  std::int32_t row[kChunk], zero;

  // Cells x and y, each of which may be the zero, and those of a list.
  __device__ void sum(std::int32_t x, std::int32_t y, const std::int32_t* list, std::int32_t count,
                      P (&to)[kChunk]) const {
    P more[kChunk]{};
#pragma unroll
    for (int j = 0; j < kChunk; ++j) to[j] = 0;
    if (x < zero) load(x, to);
    if (y < zero) load(y, more);
#pragma unroll
    for (int j = 0; j < kChunk; ++j) to[j] += more[j];
#pragma unroll 1
    for (std::int32_t i = 0; i < count; ++i) {
      load(list[i], more);
#pragma unroll
      for (int j = 0; j < kChunk; ++j) to[j] += more[j];
    }
  }

 private:
  __device__ void load(std::int32_t at, P (&to)[kChunk]) const {
#pragma unroll
    for (int j = 0; j < kChunk; ++j) to[j] = base[row[j] + at];
  }
};

// What is behind an arrival's or an out's first two cells.
struct List {
  const std::int32_t* from;
  std::int32_t count;
  __device__ List(const std::int32_t* begin, const std::int32_t* list, std::int32_t i)
      : from(begin ? list + begin[i] : nullptr), count(begin ? begin[i + 1] - begin[i] : 0) {}
};

template <class P, int kChunk, bool kOnChip>
__device__ void gather_alpha(const JoinArgs<P>& a, const Chunk<P, kChunk, kOnChip>& chunk) {
  const std::int32_t F = a.join.forward_cells;
  Rows<P, kChunk> rows{a.kept.alpha + chunk.at * F, {}, F};
#pragma unroll
  for (int j = 0; j < kChunk; ++j) rows.row[j] = min(j, chunk.count - 1) * F;
#pragma unroll 1
  for (std::int32_t i = threadIdx.x; i < kChunk * a.join.places; i += blockDim.x) chunk.m[i] = 0;
  __syncthreads();
#pragma unroll 1
  for (std::int32_t k = threadIdx.x; k < 32 * a.join.rounds; k += blockDim.x) {
    const int4 arrival = __ldg(reinterpret_cast<const int4*>(a.join.arrival + k));
    if (arrival.z == a.join.backward_cells) continue;  // padding
    const List list(a.join.arrival_begin, a.join.arrival_source, k);
    P in[kChunk];
    rows.sum(arrival.x, arrival.y, list.from, list.count, in);
#pragma unroll
    for (int j = 0; j < kChunk; ++j) chunk.m[j * a.join.places + arrival.w] = in[j];
  }
}

// y[t][r, b] = Σ_{arcs (r, b, s)} beta[t+1][s, b]
template <class P, int kChunk, bool kOnChip>
__device__ void gather_beta(const JoinArgs<P>& a, const Chunk<P, kChunk, kOnChip>& chunk) {
  const std::int32_t X = a.join.backward_cells;
  Rows<P, kChunk> rows{a.kept.beta + chunk.at * X, {}, X};
#pragma unroll
  for (int j = 0; j < kChunk; ++j) rows.row[j] = j < chunk.bigrams ? (j + 1) * X : 0;
#pragma unroll 2
  for (std::int32_t o = threadIdx.x; o < a.join.outs; o += blockDim.x) {
    const JoinOut* out = a.join.out + o;
    const List list(a.join.out_begin, a.join.out_target, o);
    P y[kChunk];
    rows.sum(__ldg(&out->x), __ldg(&out->y), list.from, list.count, y);
#pragma unroll
    for (int j = 0; j < kChunk; ++j) chunk.y[j * a.join.outs + o] = y[j];
  }
}

template <class P, int kChunk, bool kOnChip>
__device__ void bring(const JoinArgs<P>& a, const Chunk<P, kChunk, kOnChip>& chunk) {
  if (a.copied) {
    const std::int32_t F = a.join.forward_cells;
    copy_rows<P, kChunk, kOnChip>(chunk.m, a.kept.alpha + chunk.at * F, F, chunk.count);
  }
  if (a.at_outs) {  // at least one row, so that every number is one
    const std::int64_t at = chunk.at + (chunk.bigrams > 0 ? 1 : 0);
    copy_rows<P, kChunk, kOnChip>(chunk.y, a.kept.beta + at * a.join.outs, a.join.outs, max(chunk.bigrams, 1));
  }
  __pipeline_commit();
  if (!a.copied) gather_alpha(a, chunk);
  if (!a.at_outs) gather_beta(a, chunk);
  if (threadIdx.x == 0) set_head(a, chunk, Exponents<P, kChunk>(a, chunk));
  __pipeline_wait_prior(0);
}

// --- multiply

__device__ inline float largest_number(float) { return 1e37f; }
__device__ inline double largest_number(double) { return 1e300; }

template <class P>
__device__ void write_sum(const JoinArgs<P>& a, std::int64_t b, P* to, P x) {
  if (!(x < largest_number(P{}))) a.kept.flag[b] = 1;
  *to = x;
}

template <class P>
struct alignas(2 * sizeof(P)) Two {
  P x, y;
};

// Numbers of a patch as mma.m8n8k4 leaves them: a lane has row lane / 4, columns 2 · (lane % 4) and the next, of each
// tile.
template <class P>
struct Tiles {
  P at[kTileRows][kTileColumns][2];

  // act(two numbers, row, column of the first); both columns are in a patch or neither is
  template <class Act>
  __device__ void each(const Act& act) {
#pragma unroll
    for (int r = 0; r < kTileRows; ++r) {
#pragma unroll
      for (int c = 0; c < kTileColumns; ++c) act(at[r][c], 8 * r + lane_of() / 4, 8 * c + 2 * (lane_of() % 4));
    }
  }
};

// S of one position, scaled. `m`, `y`: in the patch's first state. Slots and outs past a state's own are numbers of
// others, and go to sums that nobody wants.
template <class P>
__device__ void multiply_patch(const JoinPatch& patch, const P* m, const P* y, P scale, Tiles<double>& sum) {
  const std::int32_t row = lane_of() / 4, k = lane_of() % 4;
  m += k * patch.slots + row;
  y += k * patch.width + row;
  // Four states, of which a lane has the k-th, if there is one.
  const auto step = [&](bool there) {
    double x[kTileRows], z[kTileColumns];
#pragma unroll
    for (int r = 0; r < kTileRows; ++r) {
      const P from = m[8 * r];
      x[r] = static_cast<double>(there ? from : P{0});
    }
#pragma unroll
    for (int c = 0; c < kTileColumns; ++c) {
      const P from = y[8 * c];
      z[c] = static_cast<double>(there ? from * scale : P{0});
    }
#pragma unroll
    for (int c = 0; c < kTileColumns; ++c) multiply_two_tiles(sum.at[0][c], sum.at[1][c], x[0], x[1], z[c]);
  };
#pragma unroll 2
  for (std::int32_t n = patch.states / 4; n > 0; --n) {
    step(true);
    m += 4 * patch.slots;
    y += 4 * patch.width;
  }
  const std::int32_t left = patch.states % 4;
  if (left == 0) return;
  if (k >= left) m -= (k + 1 - left) * patch.slots, y -= (k + 1 - left) * patch.width;
  step(k < left);
}

template <class P, int kChunk, bool kOnChip>
__device__ void do_patch(const JoinArgs<P>& a, const Chunk<P, kChunk, kOnChip>& chunk, const JoinPatch patch, P* sums) {
  Tiles<P> gain, total{};
  const P* matrix = a.kept.scores.matrix[0] + patch.entry;
  gain.each([&](P(&x)[2], std::int32_t i, std::int32_t o) {
    const bool real = i < patch.rows && o < patch.columns;
#pragma unroll
    for (int n = 0; n < 2; ++n) x[n] = real ? matrix[i * patch.width + o + n] : P{0};
  });
  std::int32_t share[kTileRows];
#pragma unroll
  for (int r = 0; r < kTileRows; ++r) {
    const std::int32_t i = 8 * r + lane_of() / 4;
    share[r] = lane_of() % 4 == 0 && i < patch.rows ? a.join.share_at[patch.share + i] : -1;
  }
#pragma unroll 1
  for (std::int32_t j = 0; j < chunk.bigrams; ++j) {
    Tiles<double> sum{};
    multiply_patch(patch, chunk.m + j * a.join.places + patch.place, chunk.y + j * a.join.outs + patch.out,
                   static_cast<P>(chunk.head->scale[j]), sum);
    const P unit = static_cast<P>(chunk.head->unit[j]);
#pragma unroll
    for (int r = 0; r < kTileRows; ++r) {
      P weight = 0;
#pragma unroll
      for (int c = 0; c < kTileColumns; ++c) {
#pragma unroll
        for (int n = 0; n < 2; ++n) {
          const P x = static_cast<P>(sum.at[r][c][n]);
          weight += x * gain.at[r][c][n];
          total.at[r][c][n] += x * unit;
        }
      }
#pragma unroll
      for (int bit = 1; bit <= 2; bit *= 2) weight += __shfl_xor_sync(kAllLanes, weight, bit);
      if (share[r] >= 0) chunk.shares[j * a.join.shares + share[r]] = weight;
    }
  }
  if (!sums) return;
  sums += patch.entry;
  bool small = true;
  total.each([&](const P(&x)[2], std::int32_t i, std::int32_t o) {
    if (i >= patch.rows || o >= patch.columns) return;
    small = small && x[0] < largest_number(P{}) && x[1] < largest_number(P{});
    *reinterpret_cast<Two<P>*>(sums + i * patch.width + o) = {x[0], x[1]};
  });
  if (!small) a.kept.flag[chunk.b] = 1;
}

// Sums over kLanes neighbouring lanes, to the lane that has position `part / (kLanes / kChunk)`.
template <class P, int kChunk>
__device__ P sum_of_lanes(P (&x)[kChunk], std::int32_t part) {
  int width = kChunk;
#pragma unroll
  for (int bit = kLanes / 2; bit > 0; bit /= 2) {
    if (width == 1) {
      x[0] += __shfl_xor_sync(kAllLanes, x[0], bit);
      continue;
    }
    width /= 2;
    const bool upper = part & bit;
#pragma unroll
    for (int n = 0; n < kChunk / 2; ++n) {
      if (n >= width) continue;
      const P mine = upper ? x[n + width] : x[n], other = upper ? x[n] : x[n + width];
      x[n] = mine + __shfl_xor_sync(kAllLanes, other, bit);
    }
  }
  return x[0];
}

// Thin states' bigrams, kTogether rounds at a time.
template <class P, int kChunk, bool kOnChip>
__device__ void do_pairs(const JoinArgs<P>& a, const Chunk<P, kChunk, kOnChip>& chunk, std::int32_t first, P* sums) {
  const std::int32_t part = lane_of() % kLanes, round = first + lane_of() / kLanes;
  const bool there = round < a.join.sparse_rounds;
  P sum[kChunk]{}, scale[kChunk], gain = 0;
#pragma unroll
  for (int j = 0; j < kChunk; ++j) scale[j] = static_cast<P>(chunk.head->scale[j]);
  if (there) {
    gain = a.kept.scores.thin[0][__ldg(a.join.sparse_gain + round)];
#pragma unroll
    for (int n = 0; n < 32 / kLanes; ++n) {
      const int2 pair = __ldg(reinterpret_cast<const int2*>(a.join.sparse + round * 32 + n * kLanes + part));
#pragma unroll
      for (int j = 0; j < kChunk; ++j)
        sum[j] += chunk.m[j * a.join.places + pair.x] * scale[j] * chunk.y[j * a.join.outs + pair.y];
    }
  }
  constexpr std::int32_t same = kLanes / kChunk;  // lanes that have the same sum
  const std::int32_t j = part / same;
  const P weight = sum_of_lanes<P, kChunk>(sum, part);
  P total = weight * static_cast<P>(chunk.head->unit[j]);
#pragma unroll
  for (int bit = same; bit < kLanes; bit *= 2) total += __shfl_xor_sync(kAllLanes, total, bit);
  if (there && part % same == 0)
    chunk.shares[j * a.join.shares + a.join.share_at[a.join.dense_shares + round]] = weight * gain;
  if (there && part == 0 && sums) write_sum(a, chunk.b, sums + a.join.dense + round, total);
}

// Labels of the last position, kTogether at a time.
template <class P, int kChunk, bool kOnChip>
__device__ void do_ends(const JoinArgs<P>& a, const Chunk<P, kChunk, kOnChip>& chunk, std::int32_t first) {
  const std::int32_t part = lane_of() % kLanes, label = first + lane_of() / kLanes, j = chunk.count - 1;
  const bool there = label < a.join.K;
  const P* alpha = a.kept.alpha + (chunk.at + j) * a.join.forward_cells;
  P sum = 0;
  if (there) {
#pragma unroll 4
    for (std::int32_t i = a.join.end_begin[label] + part; i < a.join.end_begin[label + 1]; i += kLanes)
      sum += alpha[a.join.end_cell[i]];
  }
#pragma unroll
  for (int bit = 1; bit < kLanes; bit *= 2) sum += __shfl_xor_sync(kAllLanes, sum, bit);
  if (there && part == 0) chunk.labels[j * a.join.K + label] = sum * a.kept.scores.end[label];
}

template <class P, int kChunk, bool kOnChip>
__device__ void do_tasks(const JoinArgs<P>& a, const Chunk<P, kChunk, kOnChip>& chunk, P* sums) {
  const auto in_turns = [](std::int32_t count) { return (count + kTogether - 1) / kTogether; };
  const std::int32_t patches = a.join.patches, before_ends = patches + in_turns(a.join.sparse_rounds),
                     tasks = before_ends + (chunk.bigrams < chunk.count ? in_turns(a.join.K) : 0);
#pragma unroll 1
  while (true) {
    std::int32_t task = 0;
    if (lane_of() == 0) task = atomicAdd(&chunk.head->task, 1);
    task = __shfl_sync(kAllLanes, task, 0);
    if (task >= tasks) return;
    if (task < patches) {
      do_patch(a, chunk, a.join.patch[task], sums);
    } else if (task < before_ends) {
      do_pairs(a, chunk, (task - patches) * kTogether, sums);
    } else {
      do_ends(a, chunk, (task - before_ends) * kTogether);
    }
  }
}

// --- total

// Position j, by a warp; a lane has every 32nd label.
template <class P, int kChunk, bool kOnChip>
__device__ void total_position(const JoinArgs<P>& a, const Chunk<P, kChunk, kOnChip>& chunk, std::int32_t j) {
  const std::int32_t K = a.join.K;
  const std::int64_t at = chunk.at + j;
  const bool last = j >= chunk.bigrams;
  const P* shares = chunk.shares + j * a.join.shares;
  P* labels = chunk.labels + j * K;
  double z = 0;
#pragma unroll 1
  for (std::int32_t k = lane_of(); k < K; k += 32) {
    P sum = last ? labels[k] : P{0};
    if (!last) {
#pragma unroll 1
      for (std::int32_t i = a.join.share_begin[k]; i < a.join.share_begin[k + 1]; ++i) sum += shares[i];
      labels[k] = sum;
    }
    z += static_cast<double>(sum);
  }
#pragma unroll
  for (int bit = 16; bit > 0; bit /= 2) z += __shfl_xor_sync(kAllLanes, z, bit);
  if (lane_of() == 0) {
    a.kept.z[at] = z;
    if (j == 0) a.work.inverse[chunk.b * a.work.chunks + chunk.first / kChunk] = 1 / z;
    if (!(z >= (last ? 0 : Bounds<P>::least_z) && z > 0 && isfinite(z))) a.kept.flag[chunk.b] = 1;
  }
  if (!a.emissions) return;
  const std::int64_t row = a.kept.scores.row[at];
  const std::int32_t gold = a.gold ? a.kept.scores.gold[at] : -1;
#pragma unroll 1
  for (std::int32_t k = lane_of(); k < K; k += 32) {
    const double p = static_cast<double>(labels[k]) * (1 / z);
    write_score(a.emissions, a.type, row * K + k, k == gold ? p - 1 : p);
  }
}

template <class P, int kChunk, bool kOnChip>
__device__ void join_chunk(const JoinArgs<P>& a, char* shared, char* room, std::uint32_t index) {
  const Chunk<P, kChunk, kOnChip> chunk(a, shared, room, index);
  if (chunk.count <= 0) return;
  bring(a, chunk);
  __syncthreads();
  do_tasks(a, chunk, a.work.entries > 0 ? a.work.sums + std::int64_t{index} * a.work.entries : nullptr);
  __syncthreads();
  for (std::int32_t j = warp_of(); j < chunk.count; j += static_cast<std::int32_t>(blockDim.x / 32))
    total_position(a, chunk, j);
}

template <class P, int kChunk, bool kOnChip>
__global__ void __launch_bounds__(kMostThreads<P>, 1) join_kernel(const __grid_constant__ JoinArgs<P> a) {
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
  std::int64_t blocks;  // without those that follow gold
  bool on_chip;
  Layout layout;
};

// The largest chunk that fits, as long as every processor has one; from memory, blocks that take turns.
template <class P>
Shape shape_of(const DeviceConstraint::Impl& c, const Batch& batch) {
  const std::int64_t room = std::int64_t{c.shared_bytes} - kHeadBytes;
  const auto chunks = [&](std::int32_t chunk) { return (batch.length + chunk - 1) / chunk; };
  const auto fits = [&](std::int32_t chunk) { return layout_of<P>(c, chunk).bytes <= room; };
  Shape s{};
  s.chunk = kMostChunk;
  while (s.chunk > 1 && (!fits(s.chunk) || 2 * batch.size * chunks(s.chunk) <= c.processors)) s.chunk /= 2;
  s.on_chip = fits(s.chunk);
  s.layout = layout_of<P>(c, s.chunk);
  s.chunks = static_cast<std::int32_t>(chunks(s.chunk));
  s.blocks = batch.size * s.chunks;
  s.threads = kMostThreads<P>;
  // Smaller blocks where more than one finds room on a processor, which then has work while one of them waits.
  const std::int64_t taken = (s.on_chip ? s.layout.bytes : 0) + kHeadBytes + 1024;
  const auto at_once = [&](std::int32_t threads) { return std::int64_t{c.processors} * (kMostThreads<P> / threads); };
  while (s.threads > kLeastThreads && s.blocks > at_once(s.threads) &&
         2 * kMostThreads<P> / s.threads * taken <= c.shared_bytes + 1024)
    s.threads /= 2;
  if (!s.on_chip) s.blocks = std::min<std::int64_t>(s.blocks, at_once(s.threads));
  return s;
}

template <class P>
auto* kernel_of(const Shape& s) {
  if (!s.on_chip) return join_kernel<P, 1, false>;
  return s.chunk == 4 ? join_kernel<P, 4, true> : s.chunk == 2 ? join_kernel<P, 2, true> : join_kernel<P, 1, true>;
}

}  // namespace

template <class P>
JoinWork<P> cut_join(Cutter& cutter, const DeviceConstraint::Impl& c, const Batch& batch, const Expectation& wanted) {
  const Shape s = shape_of<P>(c, batch);
  const auto chunks = static_cast<std::size_t>(batch.size * s.chunks);
  JoinWork<P> work{};
  work.chunk = s.chunk;
  work.chunks = s.chunks;
  work.entries = wanted.transitions ? (c.join.dense + c.join.sparse_rounds + 3) / 4 * 4 : 0;
  work.sums = cutter.take<P>(chunks * static_cast<std::size_t>(work.entries));
  work.inverse = cutter.take<double>(chunks);
  work.room = cutter.take<P>(s.on_chip ? 0 : static_cast<std::size_t>(s.blocks * s.layout.bytes) / sizeof(P));
  return work;
}

template <class P>
void run_join(const DeviceConstraint::Impl& c, const Batch& batch, const Kept<P>& kept, const PassWork<P>& pass,
              const JoinWork<P>& work, const Expectation& wanted, cudaStream_t stream) {
  const Shape s = shape_of<P>(c, batch);
  const bool follows = pass.gold == Follows::join;
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
                         gold_blocks,
                         gold_bytes(c) > 0 ? nullptr : pass.stamps,
                         c.join.copied && pass.whole,
                         pass.at_outs,
                         wanted.gold != nullptr,
                         wanted.emissions,
                         batch.type};
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
