// The combine: from alpha and beta of each position, marginals and sums for the bigrams (see combine.h).
//
// What a label weighs at a position is the sum of alpha · beta over its nodes, or over its arrivals, less the emission
// that is in both. The weight of a bigram (a, b) that begins at a position t is g[a, b] times Σ m[a] · y[b] over the
// states where a arrives and b leaves, with m alpha at arrivals, and y beta of the next position at outs; only their
// sums over all positions are needed, so they are accumulated as they are multiplied.
//
// A block has a chunk of neighbouring positions of one sequence:
//   bring     m and y on chip
//   multiply  tasks, which warps take from a queue: a warp tile of a group's matrix on the tensor cores in double, some
//             rounds of sparse states' pairs, some labels; those of the last position from its ends
//   total     z, the weight of a position, and marginals
// Positions behind the end hold garbage, and their results are not used. A block without room on chip does one position
// at a time from memory.
//
// Where the pass leaves alpha and beta as they are wanted here (expectation.h), they are copied; else they are
// gathered, cell by cell.
#include <cuda_pipeline.h>

#include <algorithm>

#include "inference/cuda/expectation/combine.h"

namespace regccrf::cuda {

namespace {

template <class P>
constexpr int kMostThreads = sizeof(P) == 4 ? 768 : 256;  // as many as find registers
template <class P>
constexpr int kLeastThreads = sizeof(P) == 4 ? 192 : 128;
constexpr int kHeadBytes = 512;                               // of Head, at the beginning of a block's shared memory
constexpr int kEndLanes = 8, kEndsTogether = 32 / kEndLanes;  // of a warp for a label of the last position; labels

struct Head {
  Units units;
  std::int64_t row[kMostChunk];
  std::int32_t gold[kMostChunk];
  std::int32_t task;  // the next
};
static_assert(sizeof(Head) <= kHeadBytes);

// Where a block's arrays begin, in bytes.
struct ChunkLayout {
  std::int64_t m, y, inverse, partials, labels, begin, bytes;
};

template <class P>
ChunkLayout layout_of(const DeviceConstraint::Impl& c, std::int32_t chunk) {
  const DeviceCombine& combine = c.combine;
  ChunkLayout l{};
  const auto take = [&](std::int64_t rows, std::int64_t count) {
    const std::int64_t at = l.bytes;
    l.bytes += (rows * count * std::int64_t{sizeof(P)} + 15) / 16 * 16;
    return at;
  };
  l.m = take(chunk, combine.places);    // a warp tile may read past its last slot, whatever is there …
  l.y = take(chunk + 1, combine.outs);  // … and past its last out, where others and then zeros are
  l.inverse = take(chunk, combine.K);
  l.partials = take(chunk, std::max(combine.nodes.rounds, combine.arrivals.rounds));
  l.labels = take(chunk, combine.K);
  l.begin = take(1, combine.K + 1);
  l.bytes = (l.bytes + 255) / 256 * 256;
  return l;
}

template <class P>
struct CombineArgs {
  DeviceCombine combine;
  DeviceTopology topology;
  Trellis<P> trellis;
  CombineMemory<P> work;
  ChunkLayout layout;
  std::int64_t T;
  std::uint32_t batch;   // sequences
  std::uint32_t chunks;  // of all sequences
  GoldBlocks gold_blocks;
  DeviceRounds labels;   // by nodes, or by arrivals if not at_outs
  bool copied, at_outs;  // m and y are alpha and beta as they lie in memory; the second only with the first
  bool gold;
  Array emissions;  // [rows, K] or absent
};

// A chunk's arrays. Those in the middle of the sequences come first: the pass ends at the sequences' ends, and what it
// wrote last, half of alpha and half of beta there, is longest in the cache.
template <class P, int kChunk, bool kOnChip>
struct Chunk {
  Head* head;
  P* m;                        // [positions, places] alpha
  P* y;                        // [positions + 1, outs] beta
  P* inverse;                  // [positions, K] of emissions times beta's peak
  P* partials;                 // [positions, rounds of labels]
  P* labels;                   // [positions, K]
  std::int32_t* begin;         // [K + 1] the rounds of each label
  std::int64_t b, at;          // its sequence, and where its first position lies in [B, T]
  std::int32_t number, first;  // of the sequence's chunks, its first position
  std::int32_t T, count;       // the sequence's length, positions that are there
  std::int32_t bigrams;        // positions where one begins

  __device__ Chunk(const CombineArgs<P>& a, char* shared, char* memory, std::uint32_t index) {
    const std::uint32_t rank = index / a.batch, middle = static_cast<std::uint32_t>(a.work.chunks) / 2;
    b = index % a.batch;
    number = static_cast<std::int32_t>(rank % 2 == 0 ? middle + rank / 2 : middle - (rank + 1) / 2);
    first = number * kChunk;
    at = b * a.T + first;
    T = a.trellis.scores.length[b];
    count = min(kChunk, T - first);
    bigrams = min(kChunk, T - 1 - first);
    head = reinterpret_cast<Head*>(shared);
    char* room = kOnChip ? shared + kHeadBytes : memory;
    m = reinterpret_cast<P*>(room + a.layout.m);
    y = reinterpret_cast<P*>(room + a.layout.y);
    inverse = reinterpret_cast<P*>(room + a.layout.inverse);
    partials = reinterpret_cast<P*>(room + a.layout.partials);
    labels = reinterpret_cast<P*>(room + a.layout.labels);
    begin = reinterpret_cast<std::int32_t*>(room + a.layout.begin);
  }
};

// --- bring

// Sixteen bytes at a time.
template <bool kOnChip, class P>
__device__ void copy(P* to, const P* from, std::int32_t count) {
  constexpr std::int32_t together = 16 / sizeof(P);
#pragma unroll 4
  for (std::int32_t i = together * static_cast<std::int32_t>(threadIdx.x); i < count;
       i += together * static_cast<std::int32_t>(blockDim.x)) {
    if constexpr (kOnChip) {
      __pipeline_memcpy_async(to + i, from + i, 16);
    } else {
      *reinterpret_cast<int4*>(to + i) = *reinterpret_cast<const int4*>(from + i);
    }
  }
}

// Alpha and beta where they lie as they are wanted.
template <class P, int kChunk, bool kOnChip>
__device__ void copy_trellis(const CombineArgs<P>& a, const Chunk<P, kChunk, kOnChip>& chunk) {
  const std::int64_t m = a.combine.places, y = a.combine.outs;
  if (a.copied) copy<kOnChip>(chunk.m, a.trellis.alpha + chunk.at * m, chunk.count * m);
  if (a.at_outs && chunk.bigrams > 0) copy<kOnChip>(chunk.y, a.trellis.beta + chunk.at * y, (chunk.bigrams + 1) * y);
  __pipeline_commit();
}

// Numbers of a step at the positions of a chunk: row j begins at base + row[j].
template <class P, int kChunk>
struct PositionRows {
  const P* base;
  std::int32_t row[kChunk];

  // to[j][place[n]] = the sum of the cells from cell[begin[n]] on at position j; the other numbers are 0. The whole
  // block takes part.
  __device__ void gather(std::int32_t count, const std::int32_t* begin, const std::int32_t* cell,
                         const std::int32_t* place, P* to, std::int32_t width) const {
#pragma unroll 1
    for (std::int32_t i = threadIdx.x; i < kChunk * width; i += blockDim.x) to[i] = 0;
    __syncthreads();
#pragma unroll 2
    for (std::int32_t n = threadIdx.x; n < count; n += blockDim.x) {
      const std::int32_t last = begin[n + 1], at = place[n];
      P sum[kChunk]{};
#pragma unroll 2
      for (std::int32_t i = begin[n]; i < last; ++i) {
#pragma unroll
        for (int j = 0; j < kChunk; ++j) sum[j] += base[row[j] + cell[i]];
      }
#pragma unroll
      for (int j = 0; j < kChunk; ++j) to[j * width + at] = sum[j];
    }
  }
};

template <class P, int kChunk, bool kOnChip>
__device__ void gather_alpha(const CombineArgs<P>& a, const Chunk<P, kChunk, kOnChip>& chunk) {
  const DeviceTopology& top = a.topology;
  const std::int32_t F = a.combine.forward_cells;
  PositionRows<P, kChunk> rows{a.trellis.alpha + chunk.at * F, {}};
#pragma unroll
  for (int j = 0; j < kChunk; ++j) rows.row[j] = min(j, chunk.count - 1) * F;
  rows.gather(top.arrivals, top.into_begin, top.into_cell, a.combine.place, chunk.m, a.combine.places);
}

// y[t][r, b] = Σ_{arcs (r, b, s)} beta[t][s, b] of the next positions, since the labels do without.
template <class P, int kChunk, bool kOnChip>
__device__ void gather_beta(const CombineArgs<P>& a, const Chunk<P, kChunk, kOnChip>& chunk) {
  const DeviceTopology& top = a.topology;
  const std::int32_t X = a.combine.backward_cells, outs = a.combine.outs;
  PositionRows<P, kChunk> rows{a.trellis.beta + chunk.at * X, {}};
#pragma unroll
  for (int j = 0; j < kChunk; ++j) rows.row[j] = j < chunk.bigrams ? (j + 1) * X : 0;
  rows.gather(top.nodes, top.from_begin, top.from_cell, top.node_out, chunk.y + outs, outs);
}

// Loads what is small and needed later. The first warp takes no part.
template <class P, int kChunk, bool kOnChip>
__device__ void bring_small(const CombineArgs<P>& a, const Chunk<P, kChunk, kOnChip>& chunk) {
  const std::int32_t K = a.combine.K, thread = static_cast<std::int32_t>(threadIdx.x) - 32,
                     threads = static_cast<std::int32_t>(blockDim.x) - 32;
  if (thread < 0) return;
  if (thread < chunk.count) {
    chunk.head->row[thread] = a.trellis.scores.row[chunk.at + thread];
    chunk.head->gold[thread] = a.gold ? a.trellis.scores.gold[chunk.at + thread] : -1;
  }
#pragma unroll 1
  for (std::int32_t i = thread; i <= K; i += threads) chunk.begin[i] = a.labels.begin[i];
    // 1 over the emissions as beta has them, and over beta's peak; 0 where they are.
#pragma unroll 2
  for (std::int32_t i = thread; i < chunk.bigrams * K; i += threads) {
    const P weight = Downwards::weight(a.trellis.scores.emissions[(chunk.at + i / K) * (K + 1) + i % K]);
    chunk.inverse[i] = weight > P{0} ? 1 / Bounds<P>::beta_top / weight : P{0};
  }
}

template <class P, int kChunk, bool kOnChip>
__device__ void bring(const CombineArgs<P>& a, const Chunk<P, kChunk, kOnChip>& chunk) {
  bring_small(a, chunk);
  wait_for_prior_kernel();  // until here, nothing of the pass
  copy_trellis(a, chunk);
  if (warp_of() == 0) set_units(chunk.head->units, a.trellis, chunk.at, chunk.b, chunk.bigrams);
  if (threadIdx.x == 0) chunk.head->task = 0;
  if (!a.copied) gather_alpha(a, chunk);
  if (!a.at_outs) gather_beta(a, chunk);
  __pipeline_wait_prior(0);
  __syncthreads();
}

// --- multiply

template <class P>
__device__ void write_sum(const CombineArgs<P>& a, std::int64_t b, P* to, P x) {
  if (!(x < largest_number(P{}))) a.trellis.flag[b] = 1;
  *to = x;
}

template <class P, int kChunk, bool kOnChip>
__device__ void do_warp_tile(const CombineArgs<P>& a, const Chunk<P, kChunk, kOnChip>& chunk, const WarpTile tile,
                             P* sums) {
  Tiles<double> sum{};
#pragma unroll 1
  for (std::int32_t j = 0; j < chunk.bigrams; ++j) {
    multiply_warp_tile(tile, chunk.m + j * a.combine.places + tile.place, chunk.y + (j + 1) * a.combine.outs + tile.out,
                       chunk.head->units.scale[j] * chunk.head->units.unit[j], sum);
  }
  if (!write_warp_tile(tile, sum, sums)) a.trellis.flag[chunk.b] = 1;
}

// Calls act(x, y) for the pairs of a round that are a lane's. Those of the next steps are on their way meanwhile.
template <class Act>
__device__ void each_pair(const DeviceRounds& rounds, std::int32_t round, const Act& act) {
  constexpr std::int32_t together = kRoundSteps * kRoundLanes;
  const auto* pairs = reinterpret_cast<const int2*>(rounds.pair + round * rounds.height + lane_of() % kRoundLanes);
  int2 ahead[kRoundSteps];
#pragma unroll
  for (int k = 0; k < kRoundSteps; ++k) ahead[k] = __ldg(pairs + k * kRoundLanes);
#pragma unroll 1
  for (std::int32_t n = rounds.height; n > 0; n -= together) {
    int2 now[kRoundSteps];
    if (n > together) pairs += together;  // else these once more
#pragma unroll
    for (int k = 0; k < kRoundSteps; ++k) {
      now[k] = ahead[k];
      ahead[k] = __ldg(pairs + k * kRoundLanes);
    }
#pragma unroll
    for (int k = 0; k < kRoundSteps; ++k) act(now[k].x, now[k].y);
  }
}

// Sparse states' bigrams, kRoundsTogether rounds at a time.
template <class P, int kChunk, bool kOnChip>
__device__ void do_pairs(const CombineArgs<P>& a, const Chunk<P, kChunk, kOnChip>& chunk, std::int32_t first, P* sums) {
  const DeviceRounds& rounds = a.combine.sparse;
  const std::int32_t round = first + lane_of() / kRoundLanes;
  const bool there = round < rounds.rounds;
  P sum[kChunk]{};
  double total = 0;
  if (there) {
    P scale[kChunk];
#pragma unroll
    for (int j = 0; j < kChunk; ++j) scale[j] = static_cast<P>(chunk.head->units.scale[j]);
    each_pair(rounds, round, [&](std::int32_t x, std::int32_t y) {
#pragma unroll
      for (int j = 0; j < kChunk; ++j)
        sum[j] += chunk.m[j * a.combine.places + x] * (chunk.y[(j + 1) * a.combine.outs + y] * scale[j]);
    });
  }
#pragma unroll
  for (int j = 0; j < kChunk; ++j) {
    if (j < chunk.bigrams) total += static_cast<double>(sum[j]) * chunk.head->units.unit[j];
  }
  total = sum_of_round(total);
  if (there && lane_of() % kRoundLanes == 0)
    write_sum(a, chunk.b, sums + a.combine.dense + round, static_cast<P>(total));
}

// Labels, kRoundsTogether rounds at a time.
template <class P, int kChunk, bool kOnChip>
__device__ void do_labels(const CombineArgs<P>& a, const Chunk<P, kChunk, kOnChip>& chunk, std::int32_t first) {
  const std::int32_t round = first + lane_of() / kRoundLanes, X = a.combine.backward_cells;
  const bool there = round < a.labels.rounds;
  P sum[kChunk]{};
  if (there) {
    const std::int32_t label = __ldg(a.labels.key + round);
    P inverse[kChunk];
#pragma unroll
    for (int j = 0; j < kChunk; ++j) inverse[j] = chunk.inverse[j * a.combine.K + label];
    if (a.at_outs) {
      each_pair(a.labels, round, [&](std::int32_t x, std::int32_t y) {
#pragma unroll
        for (int j = 0; j < kChunk; ++j)
          sum[j] += chunk.m[j * a.combine.places + x] * (chunk.y[j * a.combine.outs + y] * inverse[j]);
      });
    } else {
      const P* beta = a.trellis.beta + chunk.at * X;
      each_pair(a.labels, round, [&](std::int32_t x, std::int32_t y) {
#pragma unroll
        for (int j = 0; j < kChunk; ++j) {
          const P out = y < X && j < chunk.bigrams ? beta[std::int64_t{j} * X + y] : P{0};
          sum[j] += chunk.m[j * a.combine.places + x] * (out * inverse[j]);
        }
      });
    }
  }
#pragma unroll
  for (int j = 0; j < kChunk; ++j) {
    sum[j] = sum_of_round(sum[j]);
    if (there && lane_of() % kRoundLanes == j % kRoundLanes) chunk.partials[j * a.labels.rounds + round] = sum[j];
  }
}

// Labels of the last position, kEndsTogether at a time.
template <class P, int kChunk, bool kOnChip>
__device__ void do_ends(const CombineArgs<P>& a, const Chunk<P, kChunk, kOnChip>& chunk, std::int32_t first) {
  const std::int32_t part = lane_of() % kEndLanes, label = first + lane_of() / kEndLanes, j = chunk.count - 1;
  const bool there = label < a.combine.K;
  const P* alpha = a.trellis.alpha + (chunk.at + j) * a.combine.forward_cells;
  P sum = 0;
  if (there) {
#pragma unroll 4
    for (std::int32_t i = a.combine.end_begin[label] + part; i < a.combine.end_begin[label + 1]; i += kEndLanes)
      sum += alpha[a.combine.end_cell[i]];
  }
#pragma unroll
  for (int bit = 1; bit < kEndLanes; bit *= 2) sum += __shfl_xor_sync(kAllLanes, sum, bit);
  if (there && part == 0) chunk.labels[j * a.combine.K + label] = sum * a.trellis.scores.end[label];
}

template <class P, int kChunk, bool kOnChip>
__device__ void do_tasks(const CombineArgs<P>& a, const Chunk<P, kChunk, kOnChip>& chunk, P* sums) {
  const auto in_turns = [](std::int32_t count, std::int32_t together = kRoundsTogether) {
    return (count + together - 1) / together;
  };
  const std::int32_t warp_tiles = sums && chunk.bigrams > 0 ? a.combine.warp_tiles : 0,
                     before_labels = warp_tiles + (sums && chunk.bigrams > 0 ? in_turns(a.combine.sparse.rounds) : 0),
                     before_ends = before_labels + (chunk.bigrams > 0 ? in_turns(a.labels.rounds) : 0),
                     tasks = before_ends + (chunk.bigrams < chunk.count ? in_turns(a.combine.K, kEndsTogether) : 0);
#pragma unroll 1
  while (true) {
    std::int32_t task = 0;
    if (lane_of() == 0) task = atomicAdd(&chunk.head->task, 1);
    task = __shfl_sync(kAllLanes, task, 0);
    if (task >= tasks) return;
    if (task < warp_tiles) {
      do_warp_tile(a, chunk, a.combine.tile[task], sums);
    } else if (task < before_labels) {
      do_pairs(a, chunk, (task - warp_tiles) * kRoundsTogether, sums);
    } else if (task < before_ends) {
      do_labels(a, chunk, (task - before_labels) * kRoundsTogether);
    } else {
      do_ends(a, chunk, (task - before_ends) * kEndsTogether);
    }
  }
}

// --- total

// Position j, by a warp; a lane has every 32nd label.
template <class P, int kChunk, bool kOnChip>
__device__ void total_position(const CombineArgs<P>& a, const Chunk<P, kChunk, kOnChip>& chunk, std::int32_t j) {
  const std::int32_t K = a.combine.K;
  const std::int64_t at = chunk.at + j;
  const bool last = j >= chunk.bigrams;
  const P* partials = chunk.partials + j * a.labels.rounds;
  P* labels = chunk.labels + j * K;
  double z = 0;
#pragma unroll 1
  for (std::int32_t k = lane_of(); k < K; k += 32) {
    P sum = last ? labels[k] : P{0};
    if (!last) {
#pragma unroll 1
      for (std::int32_t i = chunk.begin[k]; i < chunk.begin[k + 1]; ++i) sum += partials[i];
      labels[k] = sum;
    }
    z += static_cast<double>(sum);
  }
#pragma unroll
  for (int bit = 16; bit > 0; bit /= 2) z += __shfl_xor_sync(kAllLanes, z, bit);
  const double over = 1 / z;
  if (lane_of() == 0) {
    a.trellis.z[at] = z;
    const double inverse = j == 0 ? over * chunk.head->units.over_first : 1;  // of the chunk's unit
    if (j == 0) a.work.inverse[chunk.b * a.work.chunks + chunk.number] = inverse;
    if (!(z > 0 && z >= chunk.head->units.least[j] && isfinite(z) && isfinite(inverse))) a.trellis.flag[chunk.b] = 1;
  }
  if (!a.emissions) return;
  const std::int64_t row = chunk.head->row[j];
  const std::int32_t gold = chunk.head->gold[j];
#pragma unroll 1
  for (std::int32_t k = lane_of(); k < K; k += 32) {
    const double p = static_cast<double>(labels[k]) * over;
    write_real(a.emissions, row * K + k, k == gold ? p - 1 : p);
  }
}

template <class P, int kChunk, bool kOnChip>
__device__ void combine_chunk(const CombineArgs<P>& a, char* shared, char* room, std::uint32_t index) {
  const Chunk<P, kChunk, kOnChip> chunk(a, shared, room, index);
  if (chunk.count <= 0) return wait_for_prior_kernel();
  bring(a, chunk);
  P* sums = a.work.sums + (chunk.b * a.work.chunks + chunk.number) * a.work.entries;
  do_tasks(a, chunk, a.work.entries > 0 ? sums : nullptr);
  __syncthreads();
  for (std::int32_t j = warp_of(); j < chunk.count; j += static_cast<std::int32_t>(blockDim.x / 32))
    total_position(a, chunk, j);
}

template <class P, int kChunk, bool kOnChip>
__global__ void __launch_bounds__(kMostThreads<P>, 1) combine_kernel(const __grid_constant__ CombineArgs<P> a) {
  launch_dependents();
  char* shared = shared_memory();
  if (follows_gold(a, shared)) return;
  const std::uint32_t block = blockIdx.x - a.gold_blocks.count;
  if constexpr (kOnChip) {
    combine_chunk<P, kChunk, true>(a, shared, nullptr, block);
  } else {
    char* room = reinterpret_cast<char*>(a.work.room) + block * a.layout.bytes;
#pragma unroll 1
    for (std::uint32_t index = block; index < a.chunks; index += gridDim.x - a.gold_blocks.count) {
      combine_chunk<P, kChunk, false>(a, shared, room, index);
      __syncthreads();
    }
  }
}

// --- the call

// How the combine of a batch is cut into blocks.
struct CombineShape {
  std::int32_t chunk, chunks, threads;
  std::int64_t blocks;  // without those that follow gold
  bool on_chip;
  ChunkLayout layout;
};

// Chunks of one position where larger ones would leave processors idle, or do not fit; from memory, blocks that take
// turns.
template <class P>
CombineShape shape_of(const DeviceConstraint::Impl& c, const Batch& batch) {
  const std::int64_t room = std::int64_t{c.shared_bytes} - kHeadBytes;
  const auto chunks = [&](std::int32_t chunk) { return (batch.length + chunk - 1) / chunk; };
  const auto fits = [&](std::int32_t chunk) { return layout_of<P>(c, chunk).bytes <= room; };
  CombineShape s{};
  s.chunk = fits(kMostChunk) && 2 * batch.size * chunks(kMostChunk) > c.processors ? kMostChunk : 1;
  s.on_chip = fits(s.chunk);
  s.layout = layout_of<P>(c, s.chunk);
  s.chunks = static_cast<std::int32_t>(chunks(s.chunk));
  s.blocks = batch.size * s.chunks;
  s.threads = kMostThreads<P>;
  // Smaller blocks where more than one finds room on a processor, which then has work while one of them waits.
  const std::int64_t used = (s.on_chip ? s.layout.bytes : 0) + kHeadBytes + 1024;
  const auto at_once = [&](std::int32_t threads) { return std::int64_t{c.processors} * (kMostThreads<P> / threads); };
  while (s.threads > kLeastThreads<P> && s.blocks > at_once(s.threads) &&
         2 * kMostThreads<P> / s.threads * used <= c.shared_bytes + 1024)
    s.threads /= 2;
  if (!s.on_chip) s.blocks = std::min<std::int64_t>(s.blocks, at_once(s.threads));
  return s;
}

template <class P>
auto* kernel_of(const CombineShape& s) {
  if (!s.on_chip) return combine_kernel<P, 1, false>;
  return s.chunk == 1 ? combine_kernel<P, 1, true> : combine_kernel<P, kMostChunk, true>;
}

}  // namespace

template <class P>
CombineMemory<P> allocate_combine(Arena& arena, const DeviceConstraint::Impl& c, const Batch& batch,
                                  const Expectation& wanted) {
  const CombineShape s = shape_of<P>(c, batch);
  CombineMemory<P> work{};
  work.chunk = s.chunk;
  work.chunks = static_cast<std::int32_t>((batch.length + work.chunk - 1) / work.chunk);
  const std::int64_t chunks = batch.size * work.chunks;
  work.entries = wanted.transitions ? (c.combine.dense + c.combine.sparse.rounds + 3) / 4 * 4 : 0;
  work.sums = arena.allocate<P>(chunks * std::int64_t{work.entries});
  work.inverse = arena.allocate<double>(chunks);
  work.room = arena.allocate<P>(s.on_chip ? 0 : std::int64_t{s.blocks * s.layout.bytes} / sizeof(P));
  if (wanted.gold && gold_bytes(c) == 0)
    work.stamps = arena.allocate<std::int32_t>(std::int64_t{batch.size * 2 * c.topology.Q});
  return work;
}

template <class P>
void run_combine(const DeviceConstraint::Impl& c, const Batch& batch, const Trellis<P>& trellis,
                 const ForwardBackwardMemory<P>& pass, const CombineMemory<P>& work, const Expectation& wanted,
                 cudaStream_t stream) {
  const CombineShape s = shape_of<P>(c, batch);
  const bool follows = wanted.gold && pass.pieces.count == 1;
  const GoldBlocks gold = follows ? gold_blocks(c, batch, work.stamps, s.threads / 32) : GoldBlocks{};
  const std::int64_t blocks = gold.count + s.blocks;
  if (blocks == 0) return;
  const int on_chip = kHeadBytes + static_cast<int>(s.on_chip ? s.layout.bytes : 0);
  const int bytes = std::max(on_chip, gold.bytes);
  const CombineArgs<P> args{c.combine,
                            c.topology,
                            trellis,
                            work,
                            s.layout,
                            batch.length,
                            static_cast<std::uint32_t>(batch.size),
                            static_cast<std::uint32_t>(batch.size * s.chunks),
                            gold,
                            pass.at_outs ? c.combine.nodes : c.combine.arrivals,
                            c.combine.copied && pass.whole,
                            pass.at_outs,
                            wanted.gold != nullptr,
                            wanted.emissions};
  launch_kernel(kernel_of<P>(s), static_cast<unsigned>(blocks), static_cast<unsigned>(s.threads), bytes, stream, args,
                "combining forward and backward", c.programmatic);
}

template CombineMemory<float> allocate_combine(Arena&, const DeviceConstraint::Impl&, const Batch&, const Expectation&);
template CombineMemory<double> allocate_combine(Arena&, const DeviceConstraint::Impl&, const Batch&,
                                                const Expectation&);
template void run_combine(const DeviceConstraint::Impl&, const Batch&, const Trellis<float>&,
                          const ForwardBackwardMemory<float>&, const CombineMemory<float>&, const Expectation&,
                          cudaStream_t);
template void run_combine(const DeviceConstraint::Impl&, const Batch&, const Trellis<double>&,
                          const ForwardBackwardMemory<double>&, const CombineMemory<double>&, const Expectation&,
                          cudaStream_t);

}  // namespace regccrf::cuda
