// The combine: from alpha and beta of each position, marginals and sums for the bigrams (see combine.h).
//
// The weight of a label at a position is the sum of alpha · beta over its nodes, or over its arrivals, less the
// emission that is in both. The weight of a bigram (a, b) that begins at a position t is g[a, b] times Σ m[a] · y[b]
// over the states where a arrives and b leaves, with m alpha at arrivals, and y beta of the next position at outs; only
// their sums over all positions are needed, so they are accumulated as they are multiplied.
//
// A block has a chunk of neighbouring positions of one sequence:
//   load      m and y on chip
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
  ChunkScales scales;
  std::int64_t row[kMostChunk];
  std::int32_t gold[kMostChunk];
  std::int32_t task;  // the next
};
static_assert(sizeof(Head) <= kHeadBytes);

template <class P>
ChunkLayout layout_of(const DeviceConstraint::Impl& c, std::int32_t chunk) {
  const DeviceCombine& combine = c.combine;
  ChunkLayout l{};
  const auto take = [&](std::int64_t rows, std::int64_t count) {
    const std::int64_t at = l.bytes;
    l.bytes += round_up(rows * count * std::int64_t{sizeof(P)}, 16);
    return at;
  };
  l.m = take(chunk, combine.places);    // a warp tile may read past its last slot, whatever is there …
  l.y = take(chunk + 1, combine.outs);  // … and past its last out, where others and then zeros are
  l.inverse = take(chunk, combine.K);
  l.partials = take(chunk, std::max(combine.nodes.rounds, combine.arrivals.rounds));
  l.labels = take(chunk, combine.K);
  l.begin = take(1, combine.K + 1);
  l.bytes = round_up(l.bytes, 256);
  return l;
}

template <class P>
struct CombineArgs : ExpectationArgs<P> {
  GoldBlocks gold_blocks;
  DeviceRounds labels;  // by nodes, or by arrivals if not at_outs
  bool copied;          // m is alpha as it lies in memory; y is beta if at_outs, and only then
};

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

// A chunk's work. Chunks in the middle of the sequences come first: the pass ends at the sequences' ends, and what it
// wrote last, half of alpha and half of beta there, is longest in the cache.
template <class P, int kChunk, bool kOnChip>
class CombineChunk {
 public:
  // `memory`: for its arrays, where they are not on chip.
  __device__ CombineChunk(const CombineArgs<P>& a, char* shared, char* memory, std::uint32_t index) : a_(a) {
    const auto size = static_cast<std::uint32_t>(a.batch.size), rank = index / size,
               middle = static_cast<std::uint32_t>(a.work.shape.chunks) / 2;
    b_ = index % size;
    number_ = static_cast<std::int32_t>(rank % 2 == 0 ? middle + rank / 2 : middle - (rank + 1) / 2);
    const std::int32_t first = number_ * kChunk;
    at_ = b_ * a.batch.length + first;
    const std::int32_t T = a.trellis.scores.length[b_];
    count_ = min(kChunk, T - first);
    bigrams_ = min(kChunk, T - 1 - first);
    head_ = reinterpret_cast<Head*>(shared);
    char* room = kOnChip ? shared + kHeadBytes : memory;
    const ChunkLayout& layout = a.work.shape.layout;
    m_ = reinterpret_cast<P*>(room + layout.m);
    y_ = reinterpret_cast<P*>(room + layout.y);
    inverse_ = reinterpret_cast<P*>(room + layout.inverse);
    partials_ = reinterpret_cast<P*>(room + layout.partials);
    labels_ = reinterpret_cast<P*>(room + layout.labels);
    begin_ = reinterpret_cast<std::int32_t*>(room + layout.begin);
  }
  __device__ void run() const {
    if (count_ <= 0) return wait_for_prior_kernel();
    load();
    P* sums = a_.work.sums + (b_ * a_.work.shape.chunks + number_) * a_.work.entries;
    do_tasks(a_.work.entries > 0 ? sums : nullptr);
    __syncthreads();
    for (std::int32_t j = warp_of(); j < count_; j += static_cast<std::int32_t>(blockDim.x / 32)) total_position(j);
  }

 private:
  // --- load

  // Alpha and beta where they lie as they are wanted.
  __device__ void copy_trellis() const {
    const std::int64_t m = a_.combine.places, y = a_.combine.outs;
    if (a_.copied) copy<kOnChip>(m_, a_.trellis.alpha + at_ * m, count_ * m);
    if (a_.pass.at_outs && bigrams_ > 0) copy<kOnChip>(y_, a_.trellis.beta + at_ * y, (bigrams_ + 1) * y);
    __pipeline_commit();
  }

  __device__ void gather_alpha() const {
    const DeviceTopology& top = a_.topology;
    const std::int32_t F = a_.combine.forward_cells;
    PositionRows<P, kChunk> rows{a_.trellis.alpha + at_ * F, {}};
#pragma unroll
    for (int j = 0; j < kChunk; ++j) rows.row[j] = min(j, count_ - 1) * F;
    rows.gather(top.arrivals, top.into_begin, top.into_cell, a_.combine.place, m_, a_.combine.places);
  }

  // y[t][r, b] = Σ_{arcs (r, b, s)} beta[t][s, b] of the next positions, since the labels do without.
  __device__ void gather_beta() const {
    const DeviceTopology& top = a_.topology;
    const std::int32_t X = a_.combine.backward_cells, outs = a_.combine.outs;
    PositionRows<P, kChunk> rows{a_.trellis.beta + at_ * X, {}};
#pragma unroll
    for (int j = 0; j < kChunk; ++j) rows.row[j] = j < bigrams_ ? (j + 1) * X : 0;
    rows.gather(top.nodes, top.from_begin, top.from_cell, top.node_out, y_ + outs, outs);
  }

  // Loads what is small and needed later. The first warp takes no part.
  __device__ void load_small() const {
    const std::int32_t K = a_.combine.K, thread = static_cast<std::int32_t>(threadIdx.x) - 32,
                       threads = static_cast<std::int32_t>(blockDim.x) - 32;
    if (thread < 0) return;
    if (thread < count_) {
      head_->row[thread] = a_.trellis.scores.row[at_ + thread];
      head_->gold[thread] = a_.wanted.gold ? a_.trellis.scores.gold[at_ + thread] : -1;
    }
#pragma unroll 1
    for (std::int32_t i = thread; i <= K; i += threads) begin_[i] = a_.labels.begin[i];
      // 1 over the emissions as beta has them, and over beta's peak; 0 where they are.
#pragma unroll 2
    for (std::int32_t i = thread; i < bigrams_ * K; i += threads) {
      const P weight = Downwards::weight(a_.trellis.scores.emissions[(at_ + i / K) * (K + 1) + i % K]);
      inverse_[i] = weight > P{0} ? 1 / Bounds<P>::beta_top / weight : P{0};
    }
  }

  __device__ void load() const {
    load_small();
    wait_for_prior_kernel();  // until here, nothing of the pass
    copy_trellis();
    if (warp_of() == 0) set_scales(head_->scales, a_.trellis, at_, b_, bigrams_);
    if (threadIdx.x == 0) head_->task = 0;
    if (!a_.copied) gather_alpha();
    if (!a_.pass.at_outs) gather_beta();
    __pipeline_wait_prior(0);
    __syncthreads();
  }

  // --- multiply

  __device__ void write_sum(P* to, P x) const {
    if (!(x < Bounds<P>::most)) a_.trellis.trust[b_] = Trust::untrusted;
    *to = x;
  }

  __device__ void do_warp_tile(const WarpTile tile, P* sums) const {
    Tiles<double> sum{};
#pragma unroll 1
    for (std::int32_t j = 0; j < bigrams_; ++j) {
      multiply_warp_tile(tile, m_ + j * a_.combine.places + tile.place, y_ + (j + 1) * a_.combine.outs + tile.out,
                         head_->scales.scale[j] * head_->scales.unit[j], sum);
    }
    if (!write_warp_tile(tile, sum, sums)) a_.trellis.trust[b_] = Trust::untrusted;
  }

  // Sparse states' bigrams, kRoundsTogether rounds at a time.
  __device__ void do_pairs(std::int32_t first, P* sums) const {
    const DeviceRounds& rounds = a_.combine.sparse;
    const std::int32_t round = first + lane_of() / kRoundLanes;
    const bool there = round < rounds.rounds;
    P sum[kChunk]{};
    double total = 0;
    if (there) {
      P scale[kChunk];
#pragma unroll
      for (int j = 0; j < kChunk; ++j) scale[j] = static_cast<P>(head_->scales.scale[j]);
      each_pair(rounds, round, [&](std::int32_t x, std::int32_t y) {
#pragma unroll
        for (int j = 0; j < kChunk; ++j)
          sum[j] += m_[j * a_.combine.places + x] * (y_[(j + 1) * a_.combine.outs + y] * scale[j]);
      });
    }
#pragma unroll
    for (int j = 0; j < kChunk; ++j) {
      if (j < bigrams_) total += static_cast<double>(sum[j]) * head_->scales.unit[j];
    }
    total = sum_of_lanes(total, kRoundLanes);
    if (there && lane_of() % kRoundLanes == 0) write_sum(sums + a_.combine.dense + round, static_cast<P>(total));
  }

  // Labels, kRoundsTogether rounds at a time.
  __device__ void do_labels(std::int32_t first) const {
    const std::int32_t round = first + lane_of() / kRoundLanes, X = a_.combine.backward_cells;
    const bool there = round < a_.labels.rounds;
    P sum[kChunk]{};
    if (there) {
      const std::int32_t label = __ldg(a_.labels.key + round);
      P inverse[kChunk];
#pragma unroll
      for (int j = 0; j < kChunk; ++j) inverse[j] = inverse_[j * a_.combine.K + label];
      const auto add = [&](const auto& beta_at) {
        each_pair(a_.labels, round, [&](std::int32_t x, std::int32_t y) {
#pragma unroll
          for (int j = 0; j < kChunk; ++j) sum[j] += m_[j * a_.combine.places + x] * (beta_at(j, y) * inverse[j]);
        });
      };
      if (a_.pass.at_outs) {
        add([&](int j, std::int32_t y) { return y_[j * a_.combine.outs + y]; });
      } else {
        const P* beta = a_.trellis.beta + at_ * X;
        add([&](int j, std::int32_t y) { return y < X && j < bigrams_ ? beta[std::int64_t{j} * X + y] : P{0}; });
      }
    }
#pragma unroll
    for (int j = 0; j < kChunk; ++j) {
      sum[j] = sum_of_lanes(sum[j], kRoundLanes);
      if (there && lane_of() % kRoundLanes == j % kRoundLanes) partials_[j * a_.labels.rounds + round] = sum[j];
    }
  }

  // Labels of the last position, kEndsTogether at a time.
  __device__ void do_ends(std::int32_t first) const {
    const std::int32_t part = lane_of() % kEndLanes, label = first + lane_of() / kEndLanes, j = count_ - 1;
    const bool there = label < a_.combine.K;
    const P* alpha = a_.trellis.alpha + (at_ + j) * a_.combine.forward_cells;
    P sum = 0;
    if (there) {
#pragma unroll 4
      for (std::int32_t i = a_.combine.end_begin[label] + part; i < a_.combine.end_begin[label + 1]; i += kEndLanes)
        sum += alpha[a_.combine.end_cell[i]];
    }
    sum = sum_of_lanes(sum, kEndLanes);
    if (there && part == 0) labels_[j * a_.combine.K + label] = sum * a_.trellis.scores.end[label];
  }

  __device__ void do_tasks(P* sums) const {
    const std::int32_t warp_tiles = sums && bigrams_ > 0 ? a_.combine.warp_tiles : 0,
                       before_labels = warp_tiles +
                                       (sums && bigrams_ > 0 ? ceil_div(a_.combine.sparse.rounds, kRoundsTogether) : 0),
                       before_ends = before_labels + (bigrams_ > 0 ? ceil_div(a_.labels.rounds, kRoundsTogether) : 0),
                       tasks = before_ends + (bigrams_ < count_ ? ceil_div(a_.combine.K, kEndsTogether) : 0);
#pragma unroll 1
    while (true) {
      std::int32_t task = 0;
      if (lane_of() == 0) task = atomicAdd(&head_->task, 1);
      task = __shfl_sync(kAllLanes, task, 0);
      if (task >= tasks) return;
      if (task < warp_tiles) {
        do_warp_tile(a_.combine.tile[task], sums);
      } else if (task < before_labels) {
        do_pairs((task - warp_tiles) * kRoundsTogether, sums);
      } else if (task < before_ends) {
        do_labels((task - before_labels) * kRoundsTogether);
      } else {
        do_ends((task - before_ends) * kEndsTogether);
      }
    }
  }

  // --- total

  // Position j, by a warp; a lane has every 32nd label.
  __device__ void total_position(std::int32_t j) const {
    const std::int32_t K = a_.combine.K;
    const std::int64_t at = at_ + j;
    const bool last = j >= bigrams_;
    const P* partials = partials_ + j * a_.labels.rounds;
    P* labels = labels_ + j * K;
    double z = 0;
#pragma unroll 1
    for (std::int32_t k = lane_of(); k < K; k += 32) {
      P sum = last ? labels[k] : P{0};
      if (!last) {
#pragma unroll 1
        for (std::int32_t i = begin_[k]; i < begin_[k + 1]; ++i) sum += partials[i];
        labels[k] = sum;
      }
      z += static_cast<double>(sum);
    }
    z = sum_of_lanes(z, 32);
    const double over = 1 / z;
    if (lane_of() == 0) {
      a_.trellis.z[at] = z;
      const double inverse = j == 0 ? over * head_->scales.over_first : 1;  // of the chunk's unit
      if (j == 0) a_.work.inverse[b_ * a_.work.shape.chunks + number_] = inverse;
      if (!(z > 0 && z >= head_->scales.least[j] && isfinite(z) && isfinite(inverse)))
        a_.trellis.trust[b_] = Trust::untrusted;
    }
    if (!a_.wanted.emissions) return;
    const std::int64_t row = head_->row[j];
    const std::int32_t gold = head_->gold[j];
#pragma unroll 1
    for (std::int32_t k = lane_of(); k < K; k += 32) {
      const double p = static_cast<double>(labels[k]) * over;
      write_number(a_.wanted.emissions, row * K + k, k == gold ? p - 1 : p);
    }
  }

  const CombineArgs<P>& a_;
  Head* head_;
  P* m_;                  // [positions, places] alpha
  P* y_;                  // [positions + 1, outs] beta
  P* inverse_;            // [positions, K] of emissions times beta's peak
  P* partials_;           // [positions, rounds of labels]
  P* labels_;             // [positions, K]
  std::int32_t* begin_;   // [K + 1] the rounds of each label
  std::int64_t b_, at_;   // its sequence, and where its first position lies in [B, T]
  std::int32_t number_;   // of the sequence's chunks
  std::int32_t count_;    // positions that are there
  std::int32_t bigrams_;  // positions where one begins
};

template <class P, int kChunk, bool kOnChip>
__global__ void __launch_bounds__(kMostThreads<P>, 1) combine_kernel(const __grid_constant__ CombineArgs<P> a) {
  launch_dependents();
  char* shared = shared_memory();
  if (follows_gold(a, a.gold_blocks, shared)) return;
  const std::uint32_t block = blockIdx.x - a.gold_blocks.count;
  if constexpr (kOnChip) {
    CombineChunk<P, kChunk, true>(a, shared, nullptr, block).run();
  } else {
    const auto chunks = static_cast<std::uint32_t>(a.batch.size) * static_cast<std::uint32_t>(a.work.shape.chunks);
    char* room = reinterpret_cast<char*>(a.work.room) + block * a.work.shape.layout.bytes;
#pragma unroll 1
    for (std::uint32_t index = block; index < chunks; index += gridDim.x - a.gold_blocks.count) {
      CombineChunk<P, kChunk, false>(a, shared, room, index).run();
      __syncthreads();
    }
  }
}

// --- the call

// Chunks of one position where larger ones would leave processors idle, or do not fit; from memory, blocks that take
// turns.
template <class P>
CombineShape shape_of(const DeviceConstraint::Impl& c, const Batch& batch) {
  const std::int64_t room = std::int64_t{c.shared_bytes} - kHeadBytes;
  const auto chunks = [&](std::int32_t chunk) { return ceil_div(batch.length, chunk); };
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
Combine<P> Combine<P>::allocate(Arena& arena, const DeviceConstraint::Impl& c, const Batch& batch,
                                const Expectation& wanted) {
  Combine work{shape_of<P>(c, batch)};
  const CombineShape& s = work.shape;
  const std::int64_t chunks = batch.size * s.chunks;
  work.entries = wanted.transitions ? round_up(c.combine.dense + c.combine.sparse.rounds, 4) : 0;
  work.sums = arena.allocate<P>(chunks * std::int64_t{work.entries});
  work.inverse = arena.allocate<double>(chunks);
  work.room = arena.allocate<P>(s.on_chip ? 0 : std::int64_t{s.blocks * s.layout.bytes} / sizeof(P));
  if (wanted.gold && gold_bytes(c) == 0)
    work.stamps = arena.allocate<std::int32_t>(std::int64_t{batch.size * 2 * c.topology.Q});
  return work;
}

template <class P>
void Combine<P>::run(const DeviceConstraint::Impl& c, const ExpectationArgs<P>& call, cudaStream_t stream) {
  const CombineShape& s = call.work.shape;
  std::int64_t bytes = kHeadBytes + (s.on_chip ? s.layout.bytes : 0);
  GoldBlocks gold{};
  if (call.wanted.gold && call.pass.pieces.count == 1) {
    gold.together = gold_together(c, s.threads / 32);
    gold.count = static_cast<std::uint32_t>(ceil_div(call.batch.size, gold.together));
    bytes = std::max<std::int64_t>(bytes, gold_bytes(c, gold.together));
  }
  const std::int64_t blocks = gold.count + s.blocks;
  if (blocks == 0) return;
  const CombineArgs<P> args{call, gold, call.pass.at_outs ? c.combine.nodes : c.combine.arrivals,
                            c.combine.copied && call.pass.shape.storage == Storage::registers};
  launch_kernel(kernel_of<P>(s), {.x = blocks, .threads = s.threads, .bytes = bytes, .programmatic = c.programmatic},
                stream, args, "combining forward and backward");
}

template struct Combine<float>;
template struct Combine<double>;

}  // namespace regccrf::cuda
