// log_z and expected counts on a device. Four kernels:
//   prepare   scores to weights (prepare_cuda.cu)
//   pass      one block a sequence and direction walks the steps with its cells on chip, and leaves each step's in
//   memory:
//             alpha on nodes, and x, which is beta on arrivals. A third block per sequence follows gold through the
//             automaton.
//   join      blocks of some positions each: marginals, and sums for the bigrams
//   finish    one value per sequence; bigrams from the blocks' sums
// and wide (wide_cuda.cu), which does again the sequences that could not be trusted.
//
// Trust. Weights and gains are at most 1, and each step begins from a largest value of about 1, so what a step loses to
// the end of its range is at most (number of products) · 2^-126. At every position the join knows the whole weight z =
// Σ alpha · x, the largest alpha and the largest x; where z is so small that a loss of that size in one, times the
// largest of the other, could reach the tolerance, the sequence is flagged.
#include <cuda_pipeline.h>

#include <algorithm>
#include <limits>

#include "inference/prepare_cuda.h"
#include "inference/sweep_cuda.h"
#include "inference/wide_cuda.h"

namespace regccrf::cuda {

namespace {

constexpr std::int64_t kLongestFloat = 256;  // rounding errors of a longer float pass may add up to the tolerance
constexpr int kJoinThreads = 512, kFinishThreads = 256;
constexpr int kMostChunk = 4;  // positions of a join's block
constexpr int kHalves = 2;     // a group's bigrams are summed over its states in so many parts

template <class P>
struct Work {
  Prepared<P> scores;
  P *alpha, *x;               // [B, T, cells] forward, backward
  std::int32_t* exponent[2];  // [B, T] of the scale that a step took off
  double* z;                  // [B, T]
  P* sums;                    // [B, chunks, entries] of bigrams
  std::int32_t* flag;         // [B] not 0: not to be trusted
  std::int32_t* leaves;       // [B] where gold leaves the language; -1: nowhere
  P* cells;                   // scratch where a block has no room for its cells
  std::int32_t* stamps;       // likewise for gold's states
  P* joined;                  // likewise for the join's arrays
};

struct Shape {
  std::int64_t B, T;
  std::int32_t K, chunk, chunks, entries;
  int pass_bytes, pass_threads, join_bytes;
  bool resident, pass_on_chip, cells_on_chip, gold_on_chip, join_on_chip;
};

template <class P>
std::int64_t cells_bytes(const DeviceSweep& s) {
  return aligned(2 * std::int64_t{s.all_cells} * static_cast<int>(sizeof(P)));
}
template <class P>
std::int64_t matrix_bytes(const DeviceSweep& s) {
  return aligned((s.entries + 8) * std::int64_t{sizeof(P)}) +
         aligned(std::int64_t{s.thin} * s.thin_slots * static_cast<int>(sizeof(P)));
}

// What the join keeps besides alpha and x: alpha at arrivals, beta at nodes, products.
std::int64_t join_products(const DeviceConstraint::Impl& c, std::int64_t chunk) {
  return (std::max<std::int64_t>(chunk * c.topology.arrivals, c.pairs) + 3) / 4 * 4;
}
std::int64_t join_scratch(const DeviceConstraint::Impl& c, std::int64_t chunk) {
  return chunk * (std::int64_t{c.forward.cells} + c.join.places) + join_products(c, chunk);
}

template <class P>
Shape shape_of(const DeviceConstraint::Impl& c, const Batch& batch, const Expectation& wanted) {
  Shape s{};
  s.B = batch.size;
  s.T = batch.length;
  s.K = c.topology.K;
  s.entries = wanted.transitions ? c.join.dense + c.join.sparse : 0;
  const std::int64_t rows = aligned(kRowsAhead * (s.K + 1) * std::int64_t{sizeof(P)}) + 16;
  const std::int64_t cells = std::max(cells_bytes<P>(c.forward), cells_bytes<P>(c.backward));
  const std::int64_t all = std::max(c.forward.hot_bytes + matrix_bytes<P>(c.forward) + cells_bytes<P>(c.forward),
                                    c.backward.hot_bytes + matrix_bytes<P>(c.backward) + cells_bytes<P>(c.backward));
  const std::int64_t gold = 8 * std::int64_t{c.topology.Q} + 4 * (c.topology.K + 1) + 4 * std::int64_t{c.topology.arcs};
  s.pass_on_chip = c.forward.narrow && rows + all <= c.shared_bytes;
  s.cells_on_chip = s.pass_on_chip || rows + cells <= c.shared_bytes;
  s.pass_bytes = static_cast<int>(rows + (s.pass_on_chip ? all : s.cells_on_chip ? cells : 0));
  s.gold_on_chip = c.topology.Q < 65536 && gold <= c.shared_bytes;
  if (wanted.gold && s.gold_on_chip) s.pass_bytes = std::max<int>(s.pass_bytes, aligned(gold));
  s.resident = s.pass_on_chip && sizeof(P) == 4 && c.forward.warps[1] > 0 && c.backward.warps[1] > 0;
  s.pass_threads = 32 * std::max(c.forward.warps[s.resident], c.backward.warps[s.resident]);

  // A chunk of positions, with room for two blocks on a processor where that is possible.
  const auto join_bytes = [&](std::int64_t chunk) {
    const std::int64_t numbers = join_scratch(c, chunk) + chunk * c.forward.cells + (chunk + 1) * c.backward.cells;
    return aligned(chunk * (s.K * std::int64_t{sizeof(P)} + 64)) + aligned(numbers * static_cast<int>(sizeof(P)));
  };
  const std::int64_t fill = (s.B * s.T + 2 * c.processors - 1) / (2 * c.processors);  // positions a block would get
  std::int64_t chunk = std::clamp<std::int64_t>(fill, 1, kMostChunk);
  while (chunk > 1 && join_bytes(chunk) > c.shared_bytes / 2 - 1024) --chunk;
  s.join_on_chip = join_bytes(chunk) <= c.shared_bytes;
  s.chunk = static_cast<std::int32_t>(chunk);
  s.chunks = static_cast<std::int32_t>((s.T + chunk - 1) / chunk);
  s.join_bytes =
      static_cast<int>(s.join_on_chip ? join_bytes(chunk) : aligned(chunk * (s.K * std::int64_t{sizeof(P)} + 64)));
  return s;
}

template <class P>
Work<P> cut_work(Cutter& cutter, const DeviceConstraint::Impl& c, const Batch& batch, const Shape& s,
                 const Expectation& wanted) {
  const auto BT = static_cast<std::size_t>(s.B * s.T), B = static_cast<std::size_t>(s.B);
  Work<P> w{};
  w.scores = cut_prepared<P>(cutter, c, batch, true);
  w.alpha = cutter.take<P>(BT * static_cast<std::size_t>(c.forward.cells));
  w.x = cutter.take<P>(BT * static_cast<std::size_t>(c.backward.cells));
  for (auto*& e : w.exponent) e = cutter.take<std::int32_t>(BT);
  w.z = cutter.take<double>(BT);
  w.sums = cutter.take<P>(B * kHalves * static_cast<std::size_t>(s.chunks) * static_cast<std::size_t>(s.entries));
  w.flag = cutter.take<std::int32_t>(B);
  w.leaves = cutter.take<std::int32_t>(B);
  const auto most = static_cast<std::size_t>(std::max(c.forward.all_cells, c.backward.all_cells));
  w.cells = cutter.take<P>(s.cells_on_chip ? 0 : B * 4 * most);
  w.stamps =
      cutter.take<std::int32_t>(wanted.gold && !s.gold_on_chip ? B * 2 * static_cast<std::size_t>(c.topology.Q) : 0);
  const auto joined = static_cast<std::size_t>(s.B * s.chunks * join_scratch(c, s.chunk));
  w.joined = cutter.take<P>(s.join_on_chip ? 0 : joined);
  return w;
}

// --- pass
// ----------------------------------------------------------------------------------------------------------------

// The larger word of a number ≥ 0: ordered as the numbers are, and holds the exponent.
__device__ inline unsigned high_word(float x) { return __float_as_uint(x); }
__device__ inline unsigned high_word(double x) { return static_cast<unsigned>(__double2hiint(x)); }

// 2^-e for the exponent e of the number with this high word, and e.
__device__ inline float scale_of(unsigned high, std::int32_t& e, float) {
  e = high ? min(max(static_cast<std::int32_t>(high >> 23) - 127, -125), 125) : 0;
  return __uint_as_float(static_cast<unsigned>(127 - e) << 23);
}
__device__ inline double scale_of(unsigned high, std::int32_t& e, double) {
  e = high ? min(max(static_cast<std::int32_t>(high >> 20) - 1023, -1021), 1021) : 0;
  return __hiloint2double((1023 - e) << 20, 0);
}

template <class P>
struct PassArgs {
  DeviceSweep sweep[2];
  DeviceTopology topology;
  Work<P> work;
  Shape shape;
  bool gold;
};

// Sums of more than two cells, in cells of their own.
template <class Index, class P>
__device__ void fill_extras(const SweepView<Index>& view, P* now) {
  for (std::int32_t i = threadIdx.x; i < view.extras; i += blockDim.x) {
    P sum = 0;
    for (std::int32_t j = view.extra_begin[i]; j < view.extra_begin[i + 1]; ++j) sum += now[view.extra_source[j]];
    now[view.cells + 1 + i] = sum;
  }
}

template <class P, class Index, class Steps>
__device__ void walk(const PassArgs<P>& a, const SweepView<Index>& view, const Steps& steps, P* now, P* next, P* ring,
                     unsigned* peak) {
  const int back = blockIdx.y;
  const std::int64_t b = blockIdx.x;
  const Shape& s = a.shape;
  const std::int32_t T = a.work.scores.length[b], K = s.K, cells = view.cells;
  if (T == 0) return;
  const std::int64_t first = back ? T - 1 : 0, step = back ? -1 : 1;
  P* kept = (back ? a.work.x : a.work.alpha) + (b * s.T + first) * cells;
  std::int32_t* exponent = a.work.exponent[back] + b * s.T + first;
  const P* edge = back ? a.work.scores.end : a.work.scores.start;
  Rows<P> rows(ring, a.work.scores.emissions + b * s.T * (K + 1), K, T, back != 0);

  rows.begin();
  for (std::int32_t c = threadIdx.x; c <= cells + view.extras; c += blockDim.x) now[c] = next[c] = 0;
  if (threadIdx.x < 3) peak[threadIdx.x] = 0;
  __pipeline_wait_prior(0);
  __syncthreads();
  unsigned largest = 0;
  for (std::int32_t c = threadIdx.x; c < cells; c += blockDim.x) {
    const std::int32_t label = view.label[c];
    const P x = a.sweep[back].begins[c] && label < K ? edge[label] : P{0};
    const P v = x * rows[0][label];
    now[c] = v;
    kept[c] = back ? x : v;
    largest = max(largest, high_word(v));
  }
  const auto share_peak = [&](std::int32_t slot) {
    largest = __reduce_max_sync(0xffffffffu, largest);
    if (threadIdx.x % 32 == 0) atomicMax(&peak[slot], largest);
  };
  share_peak(0);
  if (threadIdx.x == 0) *exponent = 0;
  __syncthreads();

  for (std::int32_t n = 1; n < T; ++n) {
    kept += step * cells;
    exponent += step;
    rows.ask(n + kRowsAhead - 2);
    const P* row = rows[n];
    if (view.extras) {
      fill_extras(view, now);
      __syncthreads();
    }
    std::int32_t e;
    const P scale = scale_of(peak[(n - 1) % 3], e, P{});
    largest = 0;
    steps(now, [&](std::uint32_t cell, std::uint32_t label, P sum) {
      const P x = sum * scale, v = x * value_of(row, label);
      put(next, cell, v);
      put(kept, cell, back ? x : v);
      largest = max(largest, high_word(v));
    });
    share_peak(n % 3);
    if (threadIdx.x == 0) {
      peak[(n + 1) % 3] = 0;
      *exponent = e;
    }
    Rows<P>::wait();
    __syncthreads();
    P* swap = now;
    now = next;
    next = swap;
  }
}

// Which states gold may be in, step by step. A state's stamp is the step in which it was last reached. Where there is
// room, the arcs lie on chip.
template <class P, class State>
__device__ void follow_gold(const PassArgs<P>& a, std::int32_t* stamps, const std::int32_t* arc_begin,
                            const State* from, const State* to) {
  const std::int64_t b = blockIdx.x;
  const DeviceTopology& topology = a.topology;
  const std::int32_t T = a.work.scores.length[b], Q = topology.Q;
  const std::int32_t* gold = a.work.scores.gold + b * a.shape.T;
  for (std::int32_t q = threadIdx.x; q < 2 * Q; q += blockDim.x) stamps[q] = q == topology.start ? 0 : -1;
  __syncthreads();
  std::int32_t leaves = -1, ahead = T > 0 ? gold[0] : -1;
  for (std::int32_t t = 0; t < T && leaves < 0; ++t) {
    const std::int32_t label = ahead;
    ahead = t + 1 < T ? gold[t + 1] : -1;
    const std::int32_t* now = stamps + (t % 2) * Q;
    std::int32_t* next = stamps + ((t + 1) % 2) * Q;
    bool reached = false;
    const std::int32_t last = label >= 0 ? arc_begin[label + 1] : 0;
    for (std::int32_t i = (label >= 0 ? arc_begin[label] : 0) + static_cast<std::int32_t>(threadIdx.x); i < last;
         i += blockDim.x) {
      if (now[from[i]] != t) continue;
      next[to[i]] = t + 1;
      reached = true;
    }
    if (!__syncthreads_or(reached)) leaves = t;
  }
  if (leaves < 0) {
    bool accepted = false;
    for (std::int32_t q = threadIdx.x; q < Q; q += blockDim.x)
      accepted |= stamps[(T % 2) * Q + q] == T && topology.accepting[q];
    if (!__syncthreads_or(accepted)) leaves = T;
  }
  if (threadIdx.x == 0) a.work.leaves[b] = leaves;
}

// The same, with the arcs copied on chip as 16-bit numbers.
template <class P>
__device__ void follow_gold_on_chip(const PassArgs<P>& a, char* shared) {
  const DeviceTopology& topology = a.topology;
  auto* stamps = reinterpret_cast<std::int32_t*>(shared);
  std::int32_t* arc_begin = stamps + 2 * topology.Q;
  auto* from = reinterpret_cast<std::uint16_t*>(arc_begin + topology.K + 1);
  std::uint16_t* to = from + topology.arcs;
  for (std::int32_t k = threadIdx.x; k <= topology.K; k += blockDim.x) arc_begin[k] = topology.arc_begin[k];
  for (std::int32_t i = threadIdx.x; i < topology.arcs; i += blockDim.x) {
    from[i] = static_cast<std::uint16_t>(topology.arc_from[i]);
    to[i] = static_cast<std::uint16_t>(topology.arc_to[i]);
  }
  follow_gold(a, stamps, arc_begin, from, to);
}

template <class P, class Index, Keep kKeep>
__global__ void __launch_bounds__(kKeep == Keep::registers ? 32 * kResidentWarps : 1024, 1)
    pass_kernel(const __grid_constant__ PassArgs<P> a) {
  extern __shared__ __align__(16) char shared[];
  const Shape& s = a.shape;
  const std::int64_t b = blockIdx.x;
  if (blockIdx.y == 2) {
    if (s.gold_on_chip) {
      follow_gold_on_chip(a, shared);
    } else {
      follow_gold(a, a.work.stamps + b * 2 * a.topology.Q, a.topology.arc_begin, a.topology.arc_from,
                  a.topology.arc_to);
    }
    return;
  }
  const int back = blockIdx.y;
  const DeviceSweep& sweep = a.sweep[back];
  if (threadIdx.x == 0 && back == 0) a.work.flag[b] = 0;
  char* at = shared;
  unsigned* peak = reinterpret_cast<unsigned*>(at);
  at += 16;
  P* rows = reinterpret_cast<P*>(at);
  at += (kRowsAhead * (s.K + 1) * sizeof(P) + 15) / 16 * 16;
  if constexpr (kKeep != Keep::memory) {
    P* cells = reinterpret_cast<P*>(at);
    at += (2 * sweep.all_cells * sizeof(P) + 15) / 16 * 16;
    P* matrix = reinterpret_cast<P*>(at);
    at += ((sweep.entries + 8) * sizeof(P) + 15) / 16 * 16;
    P* thin = reinterpret_cast<P*>(at);
    at += (sweep.thin * sweep.thin_slots * sizeof(P) + 15) / 16 * 16;
    copy_in(at, sweep.hot, sweep.hot_bytes);
    for (std::int32_t i = threadIdx.x; i < sweep.entries + 8; i += blockDim.x)
      matrix[i] = a.work.scores.matrix[back][i];
    for (std::int32_t i = threadIdx.x; i < sweep.thin * sweep.thin_slots; i += blockDim.x)
      thin[i] = a.work.scores.thin[back][i];
    __syncthreads();
    const SweepView<Index> view(sweep, at, kKeep == Keep::registers);
    if constexpr (kKeep == Keep::registers) {
      walk(a, view, ResidentSteps<SumProduct<P>, Index>(view, matrix, thin), cells, cells + sweep.all_cells, rows,
           peak);
    } else {
      walk(a, view, GeneralSteps<SumProduct<P>, Index>{view, matrix, thin}, cells, cells + sweep.all_cells, rows, peak);
    }
  } else {
    const std::int64_t most = max(a.sweep[0].all_cells, a.sweep[1].all_cells);
    P* cells = s.cells_on_chip ? reinterpret_cast<P*>(at) : a.work.cells + (b * 2 + back) * 2 * most;
    const SweepView<Index> view(sweep, sweep.hot, 0);
    walk(a, view, GeneralSteps<SumProduct<P>, Index>{view, a.work.scores.matrix[back], a.work.scores.thin[back]}, cells,
         cells + sweep.all_cells, rows, peak);
  }
}

template <class P, class Index, Keep kKeep>
void launch_pass(const PassArgs<P>& args, cudaStream_t stream) {
  auto* kernel = pass_kernel<P, Index, kKeep>;
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, args.shape.pass_bytes),
        "shared memory");
  const dim3 grid(static_cast<unsigned>(args.shape.B), args.gold ? 3 : 2);
  kernel<<<grid, static_cast<unsigned>(args.shape.pass_threads), static_cast<std::size_t>(args.shape.pass_bytes),
           stream>>>(args);
  check(cudaGetLastError(), "forward and backward");
}

// --- join
// ----------------------------------------------------------------------------------------------------------------

template <class P>
struct JoinArgs {
  DeviceJoin join;
  Work<P> work;
  Shape shape;
  std::int32_t forward_cells, backward_cells;
  const std::int32_t* forward_label;
  bool gold;
  void* emissions;  // [rows, K] or null
  Type type;        // of the caller's arrays
  std::int32_t arrivals, pairs;
  std::int64_t products, scratch;  // numbers
  double least;                    // z below this, in units of a step's largest, is not to be trusted
};

template <class P>
__device__ P warp_sum(P x) {
  for (int bit = 16; bit > 0; bit /= 2) x += __shfl_xor_sync(0xffffffffu, x, bit);
  return x;
}

// A chunk of positions, and one more for x.
template <class P>
struct Chunk {
  const P* alpha;  // [count, forward cells]
  const P* x;      // [count + 1, backward cells]
  P* m;            // [count, places] alpha at arrivals, scaled
  P* y;            // [count, forward cells] beta of the next position at nodes, in units of z
  P* products;     // [count, arrivals] alpha · x; later the sparse bigrams' products
  P* labels;       // [count, K] the weight of each label
  double* z;       // [count]
  std::int64_t b, first;
  std::int32_t T, count;
  bool bigrams;
};

// Asks for a copy of numbers, a multiple of 16 bytes.
template <class P>
__device__ void stage(const P* from, P* to, std::int32_t count) {
  constexpr std::int32_t together = 16 / sizeof(P);
  for (std::int32_t i = threadIdx.x * together; i < count; i += kJoinThreads * together)
    __pipeline_memcpy_async(to + i, from + i, 16);
}

template <class P>
__device__ P value_at(const P* row, std::int32_t i, std::int32_t zero) {
  return i < zero ? row[i] : P{0};
}

template <class P>
__device__ void join_labels(const JoinArgs<P>& a, const Chunk<P>& chunk) {
  const std::int32_t K = a.shape.K, lane = threadIdx.x % 32, zero = a.forward_cells;
  P scale[kMostChunk];
#pragma unroll
  for (int j = 0; j < kMostChunk; ++j) {  // what the next step took off alpha; the last position is as the pass left it
    const std::int64_t next = chunk.first + j + 1;
    scale[j] = j < chunk.count && next < chunk.T
                   ? static_cast<P>(scalbn(1.0, -a.work.exponent[0][chunk.b * a.shape.T + next]))
                   : P{1};
  }
#pragma unroll 2
  for (std::int32_t k = threadIdx.x; k < a.arrivals; k += kJoinThreads) {
    const Source from = a.join.first[k];
    const std::int32_t cell = a.join.cell[k], place = a.join.place[k], rest = a.join.begin[k],
                       end = a.join.begin[k + 1];
#pragma unroll
    for (int j = 0; j < kMostChunk; ++j) {
      if (j >= chunk.count) break;
      P in = value_at(chunk.alpha + j * zero, from.x, zero) + value_at(chunk.alpha + j * zero, from.y, zero);
      for (std::int32_t i = rest; i < end; ++i) in += chunk.alpha[j * zero + a.join.source[i]];
      in *= scale[j];
      if (chunk.bigrams) chunk.m[j * a.join.places + place] = in;
      chunk.products[j * a.arrivals + k] = in * chunk.x[j * a.backward_cells + cell];
    }
  }
  __syncthreads();
  for (std::int32_t i = threadIdx.x / 32; i < chunk.count * K; i += kJoinThreads / 32) {
    const std::int32_t j = i / K, label = i - j * K;
    P sum = 0;
    for (std::int32_t k = a.join.label_begin[label] + lane; k < a.join.label_begin[label + 1]; k += 32) {
      sum += chunk.products[j * a.arrivals + k];
    }
    sum = warp_sum(sum);
    if (lane == 0) chunk.labels[i] = sum;
  }
}

template <class P>
__device__ void join_totals(const JoinArgs<P>& a, const Chunk<P>& chunk) {
  const std::int32_t K = a.shape.K, lane = threadIdx.x % 32, j = threadIdx.x / 32;
  if (j >= chunk.count) return;
  double z = 0;
  for (std::int32_t k = lane; k < K; k += 32) z += static_cast<double>(chunk.labels[j * K + k]);
  z = warp_sum(z);
  if (lane != 0) return;
  const std::int64_t t = chunk.first + j, at = chunk.b * a.shape.T + t;
  chunk.z[j] = z;
  a.work.z[at] = z;
  // A step's own numbers count from a largest of less than 2 in the step before, and alpha has been scaled since.
  const double scale = t + 1 < chunk.T ? scalbn(1.0, -a.work.exponent[0][at + 1]) : 1.0;
  if (!(z > 0 && z >= fmax(2.0, scale) * a.least && isfinite(z))) a.work.flag[chunk.b] = 1;
}

template <class P>
__device__ void write_emissions(const JoinArgs<P>& a, const Chunk<P>& chunk) {
  const std::int32_t K = a.shape.K;
  for (std::int32_t i = threadIdx.x; i < chunk.count * K; i += kJoinThreads) {
    const std::int32_t j = i / K, label = i - j * K;
    const std::int64_t at = chunk.b * a.shape.T + chunk.first + j, row = a.work.scores.row[at];
    const double p = static_cast<double>(chunk.labels[i]) / chunk.z[j];
    write_score(a.emissions, a.type, row * K + label, a.gold && a.work.scores.gold[at] == label ? p - 1 : p);
  }
}

__device__ inline double largest_number(float) { return 1e37; }
__device__ inline double largest_number(double) { return 1e300; }

// y[t][r, b] = w[t+1][b] · Σ_{arcs (r, b, s)} x[t+1][s, b], so that m · g · y is a bigram's weight, in units of z.
template <class P>
__device__ void join_next(const JoinArgs<P>& a, const Chunk<P>& chunk) {
  const std::int32_t K = a.shape.K, zero = a.backward_cells;
  double scale[kMostChunk];
  const P* w[kMostChunk];
#pragma unroll
  for (int j = 0; j < kMostChunk; ++j) {
    const std::int64_t at = chunk.b * a.shape.T + chunk.first + j;
    const bool there = j < chunk.count && chunk.first + j + 1 < chunk.T;
    // x[t] took this step's scale off, and z has it too.
    scale[j] = there ? scalbn(1.0, -a.work.exponent[1][at]) / chunk.z[j] : 0;
    w[j] = a.work.scores.emissions + (at + 1) * (K + 1);
  }
  for (std::int32_t cell = threadIdx.x; cell < a.forward_cells; cell += kJoinThreads) {
    const Source to = a.join.node_first[cell];
    const std::int32_t label = a.forward_label[cell], rest = a.join.node_begin[cell], end = a.join.node_begin[cell + 1];
#pragma unroll
    for (int j = 0; j < kMostChunk; ++j) {
      if (j >= chunk.count) break;
      if (chunk.first + j + 1 >= chunk.T) {
        chunk.y[j * a.forward_cells + cell] = 0;
        break;
      }
      const P* x = chunk.x + (j + 1) * zero;
      P sum = value_at(x, to.x, zero) + value_at(x, to.y, zero);
      for (std::int32_t i = rest; i < end; ++i) sum += x[a.join.node_target[i]];
      const double y = static_cast<double>(sum) * static_cast<double>(w[j][label]) * scale[j];
      if (!(y < largest_number(P{}))) a.work.flag[chunk.b] = 1;
      chunk.y[j * a.forward_cells + cell] = static_cast<P>(y);
    }
  }
}

// Σ over the chunk and over a part of a group's states; `sums`: [kHalves, entries]. Neighbouring threads begin with
// neighbouring states, so that they read different banks.
template <class P>
__device__ void join_groups(const JoinArgs<P>& a, const Chunk<P>& chunk, P* sums) {
  for (std::int32_t g = 0; g < a.join.groups; ++g) {
    const SweepGroup group = a.join.group[g];
    const std::int32_t S = group.states, quads = group.width / 4, tiles = group.slots * quads;
    for (std::int32_t i = threadIdx.x; i < kHalves * tiles; i += kJoinThreads) {
      const std::int32_t half = i / tiles, tile = i - half * tiles, quad = tile / group.slots,
                         slot = tile - quad * group.slots;
      const std::int32_t begin = half * S / kHalves, count = (half + 1) * S / kHalves - begin;
      const P *m = chunk.m + group.first_source + slot * S + begin,
              *y = chunk.y + group.first_cell + 4 * quad * S + begin;
      P sum[4] = {};
      std::int32_t s = count > 0 ? static_cast<std::int32_t>(threadIdx.x) % count : 0;
#pragma unroll 4
      for (std::int32_t n = 0; n < count; ++n) {
#pragma unroll
        for (int j = 0; j < kMostChunk; ++j) {
          if (j >= chunk.count) break;
          const P x = m[j * a.join.places + s];
          for (int k = 0; k < 4; ++k) sum[k] += x * y[j * a.forward_cells + k * S + s];
        }
        s = s + 1 == count ? 0 : s + 1;
      }
      for (int k = 0; k < 4; ++k)
        sums[half * a.shape.entries + group.first_entry + slot * group.width + 4 * quad + k] = sum[k];
    }
  }
}

template <class P>
__device__ void join_sparse(const JoinArgs<P>& a, const Chunk<P>& chunk, P* sums) {
  const std::int32_t lane = threadIdx.x % 32;
#pragma unroll 2
  for (std::int32_t k = threadIdx.x; k < a.pairs; k += kJoinThreads) {
    const Source pair = a.join.sparse_pair[k];
    P sum = 0;
#pragma unroll
    for (int j = 0; j < kMostChunk; ++j) {
      if (j < chunk.count) sum += chunk.m[j * a.join.places + pair.x] * chunk.y[j * a.forward_cells + pair.y];
    }
    chunk.products[k] = sum;
  }
  __syncthreads();
  for (std::int32_t e = threadIdx.x / 32; e < a.join.sparse; e += kJoinThreads / 32) {
    P sum = 0;
    for (std::int32_t k = a.join.sparse_begin[e] + lane; k < a.join.sparse_begin[e + 1]; k += 32)
      sum += chunk.products[k];
    sum = warp_sum(sum);
    if (lane != 0) continue;
    sums[a.join.dense + e] = sum;
    for (int half = 1; half < kHalves; ++half) sums[half * a.shape.entries + a.join.dense + e] = 0;
  }
}

template <class P, bool kOnChip>
__global__ void __launch_bounds__(kJoinThreads, 2) join_kernel(const __grid_constant__ JoinArgs<P> a) {
  extern __shared__ __align__(16) char shared[];
  const Shape& s = a.shape;
  Chunk<P> chunk;
  chunk.b = blockIdx.y;
  chunk.first = std::int64_t{blockIdx.x} * s.chunk;
  chunk.T = a.work.scores.length[chunk.b];
  if (chunk.first >= chunk.T) return;
  chunk.count = static_cast<std::int32_t>(min(std::int64_t{s.chunk}, chunk.T - chunk.first));
  chunk.bigrams = s.entries > 0;
  chunk.z = reinterpret_cast<double*>(shared);
  chunk.labels = reinterpret_cast<P*>(shared + 64 * s.chunk);

  const std::int64_t at = chunk.b * s.T + chunk.first;
  const P *alpha = a.work.alpha + at * a.forward_cells, *x = a.work.x + at * a.backward_cells;
  const auto cut = [&](P* room) {
    chunk.y = room;
    chunk.m = chunk.y + std::int64_t{s.chunk} * a.forward_cells;
    chunk.products = chunk.m + std::int64_t{s.chunk} * a.join.places;
  };
  if constexpr (kOnChip) {
    cut(reinterpret_cast<P*>(shared + (s.chunk * (s.K * sizeof(P) + 64) + 15) / 16 * 16));
    P* alpha_here = chunk.products + a.products;
    P* x_here = alpha_here + std::int64_t{s.chunk} * a.forward_cells;
    const std::int32_t rows = chunk.first + chunk.count < chunk.T ? chunk.count + 1 : chunk.count;
    stage(alpha, alpha_here, chunk.count * a.forward_cells);
    stage(x, x_here, rows * a.backward_cells);
    __pipeline_commit();
    chunk.alpha = alpha_here;
    chunk.x = x_here;
  } else {
    cut(a.work.joined + (chunk.b * s.chunks + blockIdx.x) * a.scratch);
    chunk.alpha = alpha;
    chunk.x = x;
  }
  for (std::int32_t j = 0; chunk.bigrams && j < chunk.count; ++j) {  // slots that no arrival fills
    for (std::int32_t i = threadIdx.x; i < a.join.slots; i += kJoinThreads) chunk.m[j * a.join.places + i] = 0;
  }
  __pipeline_wait_prior(0);
  __syncthreads();
  join_labels(a, chunk);
  __syncthreads();
  join_totals(a, chunk);
  __syncthreads();
  if (a.emissions) write_emissions(a, chunk);
  if (!chunk.bigrams) return;
  join_next(a, chunk);
  __syncthreads();
  P* sums = a.work.sums + (chunk.b * s.chunks + blockIdx.x) * kHalves * s.entries;
  join_groups(a, chunk, sums);
  join_sparse(a, chunk, sums);
}

// --- finish
// --------------------------------------------------------------------------------------------------------------

template <class P>
struct FinishArgs {
  DeviceJoin join;
  Work<P> work;
  Shape shape;
  Expectation wanted;
  Batch batch;
  bool empty;
};

template <class P>
__device__ void finish_sequence(const FinishArgs<P>& a, std::int64_t b) {
  const std::int32_t T = a.work.scores.length[b], K = a.shape.K;
  const std::int64_t at = b * a.shape.T;
  Exact sum;
  for (std::int32_t t = threadIdx.x; t < T; t += kFinishThreads) {
    sum.add(a.work.scores.shift[at + t]);
    sum.add(a.work.exponent[0][at + t] * 0.693147180559945309417232121458);
  }
  if (threadIdx.x == 0 && T > 0) {
    for (int n = 0; n < 2; ++n) sum.add(a.work.scores.shifts[1 + n]);
    sum.add(a.work.scores.shifts[0] * (T - 1));
    sum.add(::log(a.work.z[at + T - 1]));
  }
  double value = T > 0 ? block_sum<kFinishThreads>(sum) : a.empty ? 0.0 : -INFINITY;
  if (a.wanted.gold) {
    const std::int64_t* row = a.work.scores.row + at;
    const double gold = block_sum<kFinishThreads>(
        path_score(a.batch, K, T, row, [&](std::int32_t t) { return a.work.scores.gold[at + t]; }));
    const bool outside = a.work.leaves[b] >= 0 || gold == -INFINITY;
    value = outside ? INFINITY : value - gold;
    if (threadIdx.x == 0 && outside && a.wanted.status[b].outcome == 0) {
      a.wanted.status[b].outcome = static_cast<std::int32_t>(Outcome::outside);
      a.wanted.status[b].position = a.work.leaves[b];
    }
  } else if (threadIdx.x == 0 && T == 0 && !a.empty) {
    a.wanted.status[b].outcome = static_cast<std::int32_t>(Outcome::impossible);
  }
  if (threadIdx.x == 0) {
    if (*a.work.scores.bad) a.wanted.status[b].outcome = static_cast<std::int32_t>(Outcome::bad_transition);
    const std::int32_t outcome = a.wanted.status[b].outcome;
    const bool bad = outcome == static_cast<std::int32_t>(Outcome::bad_score) ||
                     outcome == static_cast<std::int32_t>(Outcome::bad_transition);
    a.wanted.value[b] = bad ? NAN : value;
    if (bad || (a.wanted.gold && value == INFINITY)) a.work.flag[b] = 2;  // nothing to do again; counts are zeros
  }
}

template <class P>
__device__ void finish_transitions(const FinishArgs<P>& a, std::int64_t b) {
  __shared__ std::int32_t bigram[kFinishThreads];
  const std::int32_t T = a.work.scores.length[b], K = a.shape.K;
  const std::int64_t pair = (std::int64_t{blockIdx.x} - 1) * kFinishThreads + threadIdx.x, pairs = std::int64_t{K} * K;
  double sum = 0;
  if (pair < pairs && T > 1) {
    const std::int32_t chunks = (T + a.shape.chunk - 1) / a.shape.chunk * kHalves;
    for (std::int32_t e = a.join.pair_begin[pair]; e < a.join.pair_begin[pair + 1]; ++e) {
      const P* sums = a.work.sums + b * a.shape.chunks * kHalves * a.shape.entries + a.join.pair_entry[e];
#pragma unroll 16
      for (std::int32_t c = 0; c < chunks; ++c) sum += static_cast<double>(sums[std::int64_t{c} * a.shape.entries]);
    }
    if (sum != 0) sum *= exp(score_at(a.batch.transitions, a.batch.type, pair) - a.work.scores.shifts[0]);
  }
  if (a.wanted.gold) {
    std::int32_t seen = 0;
    for (std::int32_t first = 1; first < T; first += kFinishThreads) {
      const std::int32_t t = first + static_cast<std::int32_t>(threadIdx.x);
      __syncthreads();
      const std::int32_t* gold = a.work.scores.gold + b * a.shape.T;
      bigram[threadIdx.x] = t < T && gold[t - 1] >= 0 && gold[t] >= 0 ? gold[t - 1] * K + gold[t] : -1;
      __syncthreads();
      const std::int32_t count = min(kFinishThreads, T - first);
#pragma unroll 8
      for (std::int32_t i = 0; i < count; ++i) seen += bigram[i] == pair;
    }
    sum -= seen;
  }
  if (pair < pairs) write_score(a.wanted.transitions, a.batch.type, b * pairs + pair, sum);
}

template <class P>
__global__ void __launch_bounds__(kFinishThreads) finish_kernel(const __grid_constant__ FinishArgs<P> a) {
  if (blockIdx.x == 0) {
    finish_sequence(a, blockIdx.y);
  } else {
    finish_transitions(a, blockIdx.y);
  }
}

// --- the call
// ------------------------------------------------------------------------------------------------------------

// z must exceed the largest product of alpha and x by this much: what is lost, as in the head of this file, stays below
// a hundredth of the tolerance.
template <class P>
double least_trusted(const DeviceConstraint::Impl& c, std::int64_t T) {
  const double smallest = static_cast<double>(std::numeric_limits<P>::min()), tolerance = sizeof(P) == 4 ? 1e-7 : 1e-13;
  const double products = static_cast<double>(c.products + c.forward.cells + c.backward.cells) * 4;
  const double largest = 4.0 * c.topology.K;  // of alpha or x in a step
  return std::min(1e-3, smallest * products * largest * static_cast<double>(T + 1) / tolerance);
}

template <class P>
std::size_t bytes_as(const DeviceConstraint::Impl& c, const Batch& batch, const Expectation& wanted) {
  Cutter cutter(Memory{});
  cut_work<P>(cutter, c, batch, shape_of<P>(c, batch, wanted), wanted);
  cut_wide(cutter, c, batch, wanted.transitions != nullptr);
  return cutter.used();
}

template <class P>
void run_as(const DeviceConstraint::Impl& c, const Batch& batch, const Expectation& wanted, Memory memory,
            cudaStream_t stream) {
  const Shape s = shape_of<P>(c, batch, wanted);
  Cutter cutter(memory);
  const Work<P> work = cut_work<P>(cutter, c, batch, s, wanted);
  const WideWork wide = cut_wide(cutter, c, batch, wanted.transitions != nullptr);
  prepare<P>(c, batch, work.scores, Scale::probability, true, wanted.status, wanted.gold, nullptr, stream);

  const PassArgs<P> pass{{c.forward, c.backward}, c.topology, work, s, wanted.gold != nullptr};
  if (s.resident) {
    if constexpr (std::is_same_v<P, float>) launch_pass<P, std::uint16_t, Keep::registers>(pass, stream);
  } else if (s.pass_on_chip) {
    launch_pass<P, std::uint16_t, Keep::chip>(pass, stream);
  } else if (c.forward.narrow) {
    launch_pass<P, std::uint16_t, Keep::memory>(pass, stream);
  } else {
    launch_pass<P, std::int32_t, Keep::memory>(pass, stream);
  }

  const JoinArgs<P> join{c.join,
                         work,
                         s,
                         c.forward.cells,
                         c.backward.cells,
                         c.forward.label,
                         wanted.gold != nullptr,
                         wanted.emissions,
                         batch.type,
                         c.topology.arrivals,
                         c.pairs,
                         join_products(c, s.chunk),
                         join_scratch(c, s.chunk),
                         least_trusted<P>(c, s.T)};
  if (s.chunks > 0) {
    auto* kernel = s.join_on_chip ? join_kernel<P, true> : join_kernel<P, false>;
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, s.join_bytes), "shared memory");
    kernel<<<dim3(static_cast<unsigned>(s.chunks), static_cast<unsigned>(s.B)), kJoinThreads,
             static_cast<std::size_t>(s.join_bytes), stream>>>(join);
    check(cudaGetLastError(), "joining forward and backward");
  }

  const FinishArgs<P> finish{c.join, work, s, wanted, batch, c.topology.empty != 0};
  const auto pairs = wanted.transitions ? (std::int64_t{s.K} * s.K + kFinishThreads - 1) / kFinishThreads : 0;
  finish_kernel<P>
      <<<dim3(1 + static_cast<unsigned>(pairs), static_cast<unsigned>(s.B)), kFinishThreads, 0, stream>>>(finish);
  check(cudaGetLastError(), "finishing");
  again_wide(c, batch, wanted, {work.scores.length, work.scores.row, work.flag}, wide, stream);
}

// Float where its errors stay below the tolerance, else double.
bool in_float(const Batch& batch) { return batch.type == Type::f32 && batch.length <= kLongestFloat; }

}  // namespace

std::size_t expectation_bytes(const DeviceConstraint& constraint, const Batch& batch, const Expectation& wanted) {
  return in_float(batch) ? bytes_as<float>(constraint.impl(), batch, wanted)
                         : bytes_as<double>(constraint.impl(), batch, wanted);
}

void expectation(const DeviceConstraint& constraint, const Batch& batch, const Expectation& wanted, Memory memory,
                 void* stream) {
  check_batch("expectation", batch);
  if (batch.size == 0) return;
  const auto s = static_cast<cudaStream_t>(stream);
  if (in_float(batch)) {
    run_as<float>(constraint.impl(), batch, wanted, memory, s);
  } else {
    run_as<double>(constraint.impl(), batch, wanted, memory, s);
  }
}

}  // namespace regccrf::cuda
