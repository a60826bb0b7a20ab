// log_z and expected counts on a device. Four kernels:
//   prepare   scores to weights (prepare_cuda.cu)
//   pass      one block a sequence and direction walks the steps with its cells on chip, and leaves each step's in memory:
//             alpha on nodes, and x, which is beta on arrivals. A third block per sequence follows gold through the automaton.
//   join      blocks of some positions each: marginals, and sums for the bigrams
//   finish    one value per sequence; bigrams from the blocks' sums
// and wide (wide_cuda.cu), which does again the sequences that could not be trusted.
//
// Trust. Weights and gains are at most 1 and each step is scaled by a power of two to a largest value of about 1, so what a
// pass loses is at most (number of products) · 2^-126 of the largest alpha of a step, times the largest x there. At every
// position the join knows the whole weight z = Σ alpha · x, the largest alpha and the largest x; where z is so small beside
// their product that the loss could reach the tolerance, the sequence is flagged.
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
  bool pass_on_chip, cells_on_chip, stamps_on_chip, join_on_chip;
};

int aligned(std::int64_t bytes) { return static_cast<int>((bytes + 15) / 16 * 16); }

template <class P>
std::int64_t cells_bytes(const DeviceSweep& s) {
  return aligned(2 * std::int64_t{s.all_cells} * static_cast<int>(sizeof(P)));
}
template <class P>
std::int64_t matrix_bytes(const DeviceSweep& s) {
  return aligned((s.entries + 8) * std::int64_t{sizeof(P)}) + aligned(std::int64_t{s.thin} * s.thin_slots * static_cast<int>(sizeof(P)));
}

template <class P>
Shape shape_of(const DeviceConstraint::Impl& c, const Batch& batch, const Expectation& wanted) {
  Shape s{};
  s.B = batch.size;
  s.T = batch.length;
  s.K = c.topology.K;
  s.entries = wanted.transitions ? c.join.dense + c.join.sparse : 0;
  const std::int64_t rows = aligned(2 * (s.K + 1) * std::int64_t{sizeof(P)}) + 16;
  const std::int64_t cells = std::max(cells_bytes<P>(c.forward), cells_bytes<P>(c.backward));
  const std::int64_t all = std::max(c.forward.hot_bytes + matrix_bytes<P>(c.forward) + cells_bytes<P>(c.forward),
                                    c.backward.hot_bytes + matrix_bytes<P>(c.backward) + cells_bytes<P>(c.backward));
  const std::int64_t stamps = 8 * std::int64_t{c.topology.Q};
  s.pass_on_chip = c.forward.narrow && c.backward.narrow && rows + all <= c.shared_bytes;
  s.cells_on_chip = s.pass_on_chip || rows + cells <= c.shared_bytes;
  s.pass_bytes = static_cast<int>(rows + (s.pass_on_chip ? all : s.cells_on_chip ? cells : 0));
  s.stamps_on_chip = stamps <= c.shared_bytes;
  if (wanted.gold && s.stamps_on_chip) s.pass_bytes = std::max<int>(s.pass_bytes, aligned(stamps));
  s.pass_threads = 32 * std::max(c.forward.warps, c.backward.warps);

  const std::int64_t a_step = (std::int64_t{c.backward.cells} + 1 + c.forward.cells) * static_cast<int>(sizeof(P));
  const std::int64_t a_row = s.K * std::int64_t{sizeof(P)} + 64;
  const std::int64_t fill = (s.B * s.T + c.processors - 1) / c.processors;  // positions a processor would get
  std::int64_t chunk = std::clamp<std::int64_t>(fill, 1, 4);
  while (chunk > 1 && chunk * (a_step + a_row) > c.shared_bytes / 2) --chunk;
  s.join_on_chip = chunk * (a_step + a_row) <= c.shared_bytes;
  s.chunk = static_cast<std::int32_t>(chunk);
  s.chunks = static_cast<std::int32_t>((s.T + chunk - 1) / chunk);
  s.join_bytes = aligned(chunk * a_row) + (s.join_on_chip ? aligned(chunk * a_step) : 0);
  return s;
}

template <class P>
Work<P> cut_work(Cutter& cutter, const DeviceConstraint::Impl& c, const Batch& batch, const Shape& s, const Expectation& wanted) {
  const auto BT = static_cast<std::size_t>(s.B * s.T), B = static_cast<std::size_t>(s.B);
  Work<P> w{};
  w.scores = cut_prepared<P>(cutter, c, batch, true);
  w.alpha = cutter.take<P>(BT * static_cast<std::size_t>(c.forward.cells));
  w.x = cutter.take<P>(BT * static_cast<std::size_t>(c.backward.cells));
  for (auto*& e : w.exponent) e = cutter.take<std::int32_t>(BT);
  w.z = cutter.take<double>(BT);
  w.sums = cutter.take<P>(B * static_cast<std::size_t>(s.chunks) * static_cast<std::size_t>(s.entries));
  w.flag = cutter.take<std::int32_t>(B);
  w.leaves = cutter.take<std::int32_t>(B);
  const auto most = static_cast<std::size_t>(std::max(c.forward.all_cells, c.backward.all_cells));
  w.cells = cutter.take<P>(s.cells_on_chip ? 0 : B * 4 * most);
  w.stamps = cutter.take<std::int32_t>(wanted.gold && !s.stamps_on_chip ? B * 2 * static_cast<std::size_t>(c.topology.Q) : 0);
  w.joined = cutter.take<P>(s.join_on_chip ? 0 : B * static_cast<std::size_t>(s.chunks) * static_cast<std::size_t>(s.chunk) *
                                                     static_cast<std::size_t>(c.backward.cells + 1 + c.forward.cells));
  return w;
}

// --- pass ----------------------------------------------------------------------------------------------------------------

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
  const std::int64_t* gold;
};

template <class P>
__device__ void prefetch_row(P* to, const P* from, std::int32_t count) {
  for (std::int32_t k = threadIdx.x; k < count; k += blockDim.x) __pipeline_memcpy_async(to + k, from + k, sizeof(P));
  __pipeline_commit();
}

// Sums of more than two cells, in cells of their own.
template <class Index, class P>
__device__ void fill_extras(const SweepView<Index>& view, P* now) {
  for (std::int32_t i = threadIdx.x; i < view.extras; i += blockDim.x) {
    P sum = 0;
    for (std::int32_t j = view.extra_begin[i]; j < view.extra_begin[i + 1]; ++j) sum += now[view.extra_source[j]];
    now[view.cells + 1 + i] = sum;
  }
}

template <class P, class Index>
__device__ void walk(const PassArgs<P>& a, const SweepView<Index>& view, const P* matrix, const P* thin, P* now, P* next, P* rows,
                     unsigned* peak) {
  const int back = blockIdx.y;
  const std::int64_t b = blockIdx.x;
  const Shape& s = a.shape;
  const std::int32_t T = a.work.scores.length[b], K = s.K, cells = view.cells;
  const P* emissions = a.work.scores.emissions + b * s.T * (K + 1);
  P* kept = (back ? a.work.x : a.work.alpha) + b * s.T * cells;
  std::int32_t* exponent = a.work.exponent[back] + b * s.T;
  const P* edge = back ? a.work.scores.end : a.work.scores.start;
  const auto position = [&](std::int32_t n) { return static_cast<std::int64_t>(back ? T - 1 - n : n); };

  if (T == 0) return;
  prefetch_row(rows, emissions + position(0) * (K + 1), K + 1);
  for (std::int32_t c = threadIdx.x; c <= cells + view.extras; c += blockDim.x) now[c] = next[c] = 0;
  if (threadIdx.x < 3) peak[threadIdx.x] = 0;
  __pipeline_wait_prior(0);
  __syncthreads();
  unsigned largest = 0;
  for (std::int32_t c = threadIdx.x; c < cells; c += blockDim.x) {
    const std::int32_t label = view.label[c];
    const P x = a.sweep[back].begins[c] && label < K ? edge[label] : P{0};
    const P v = x * rows[label];
    now[c] = v;
    kept[position(0) * cells + c] = back ? x : v;
    largest = max(largest, high_word(v));
  }
  largest = __reduce_max_sync(0xffffffffu, largest);
  if (threadIdx.x % 32 == 0) atomicMax(&peak[0], largest);
  if (threadIdx.x == 0) exponent[position(0)] = 0;
  if (T > 1) prefetch_row(rows + K + 1, emissions + position(1) * (K + 1), K + 1);
  __pipeline_wait_prior(0);
  __syncthreads();

  for (std::int32_t n = 1; n < T; ++n) {
    const P* row = rows + (n % 2) * (K + 1);
    if (n + 1 < T) prefetch_row(rows + ((n + 1) % 2) * (K + 1), emissions + position(n + 1) * (K + 1), K + 1);
    if (view.extras) {
      fill_extras(view, now);
      __syncthreads();
    }
    std::int32_t e;
    const P scale = scale_of(peak[(n - 1) % 3], e, P{});
    P* out = kept + position(n) * cells;
    largest = 0;
    sweep_step<SumProduct<P>>(view, matrix, thin, now, [&](std::int32_t cell, P sum, const Pair<Index>*, std::int32_t) {
      const P x = sum * scale, v = x * row[view.label[cell]];
      next[cell] = v;
      out[cell] = back ? x : v;
      largest = max(largest, high_word(v));
    });
    largest = __reduce_max_sync(0xffffffffu, largest);
    if (threadIdx.x % 32 == 0) atomicMax(&peak[n % 3], largest);
    if (threadIdx.x == 0) {
      peak[(n + 1) % 3] = 0;
      exponent[position(n)] = e;
    }
    __pipeline_wait_prior(0);
    __syncthreads();
    P* swap = now;
    now = next;
    next = swap;
  }
}

// Which states gold may be in, step by step. A state's stamp is the step in which it was last reached.
template <class P>
__device__ void follow_gold(const PassArgs<P>& a, std::int32_t* stamps) {
  const std::int64_t b = blockIdx.x;
  const DeviceTopology& topology = a.topology;
  const std::int32_t T = a.work.scores.length[b], Q = topology.Q;
  const std::int64_t* row = a.work.scores.row + b * a.shape.T;
  for (std::int32_t q = threadIdx.x; q < 2 * Q; q += blockDim.x) stamps[q] = q == topology.start ? 0 : -1;
  __syncthreads();
  std::int32_t leaves = -1;
  for (std::int32_t t = 0; t < T && leaves < 0; ++t) {
    const std::int64_t label = a.gold[row[t]];
    const std::int32_t *now = stamps + (t % 2) * Q, known = label >= 0 && label < topology.K;
    std::int32_t* next = stamps + ((t + 1) % 2) * Q;
    bool reached = false;
    const std::int32_t last = known ? topology.arc_begin[label + 1] : 0;
    for (std::int32_t i = (known ? topology.arc_begin[label] : 0) + static_cast<std::int32_t>(threadIdx.x); i < last; i += blockDim.x) {
      if (now[topology.arc_from[i]] != t) continue;
      next[topology.arc_to[i]] = t + 1;
      reached = true;
    }
    if (!__syncthreads_or(reached)) leaves = t;
  }
  if (leaves < 0) {
    bool accepted = false;
    for (std::int32_t q = threadIdx.x; q < Q; q += blockDim.x) accepted |= stamps[(T % 2) * Q + q] == T && topology.accepting[q];
    if (!__syncthreads_or(accepted)) leaves = T;
  }
  if (threadIdx.x == 0) a.work.leaves[b] = leaves;
}

template <class P, class Index, bool kOnChip>
__global__ void __launch_bounds__(1024, 1) pass_kernel(const __grid_constant__ PassArgs<P> a) {
  extern __shared__ __align__(16) char shared[];
  const Shape& s = a.shape;
  const std::int64_t b = blockIdx.x;
  if (blockIdx.y == 2) {
    follow_gold(a, s.stamps_on_chip ? reinterpret_cast<std::int32_t*>(shared) : a.work.stamps + b * 2 * a.topology.Q);
    return;
  }
  const int back = blockIdx.y;
  const DeviceSweep& sweep = a.sweep[back];
  if (threadIdx.x == 0 && back == 0) a.work.flag[b] = 0;
  char* at = shared;
  unsigned* peak = reinterpret_cast<unsigned*>(at);
  at += 16;
  P* rows = reinterpret_cast<P*>(at);
  at += (2 * (s.K + 1) * sizeof(P) + 15) / 16 * 16;
  if constexpr (kOnChip) {
    P* cells = reinterpret_cast<P*>(at);
    at += (2 * sweep.all_cells * sizeof(P) + 15) / 16 * 16;
    P* matrix = reinterpret_cast<P*>(at);
    at += ((sweep.entries + 8) * sizeof(P) + 15) / 16 * 16;
    P* thin = reinterpret_cast<P*>(at);
    at += (sweep.thin * sweep.thin_slots * sizeof(P) + 15) / 16 * 16;
    copy_in(at, sweep.hot, sweep.hot_bytes);
    for (std::int32_t i = threadIdx.x; i < sweep.entries + 8; i += blockDim.x) matrix[i] = a.work.scores.matrix[back][i];
    for (std::int32_t i = threadIdx.x; i < sweep.thin * sweep.thin_slots; i += blockDim.x) thin[i] = a.work.scores.thin[back][i];
    __syncthreads();
    walk(a, SweepView<Index>(sweep, at), matrix, thin, cells, cells + sweep.all_cells, rows, peak);
  } else {
    const std::int64_t most = max(a.sweep[0].all_cells, a.sweep[1].all_cells);
    P* cells = s.cells_on_chip ? reinterpret_cast<P*>(at) : a.work.cells + (b * 2 + back) * 2 * most;
    walk(a, SweepView<Index>(sweep, sweep.hot), a.work.scores.matrix[back], a.work.scores.thin[back], cells, cells + sweep.all_cells,
         rows, peak);
  }
}

template <class P, class Index, bool kOnChip>
void launch_pass(const PassArgs<P>& args, cudaStream_t stream) {
  auto* kernel = pass_kernel<P, Index, kOnChip>;
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, args.shape.pass_bytes), "shared memory");
  const dim3 grid(static_cast<unsigned>(args.shape.B), args.gold ? 3 : 2);
  kernel<<<grid, static_cast<unsigned>(args.shape.pass_threads), static_cast<std::size_t>(args.shape.pass_bytes), stream>>>(args);
  check(cudaGetLastError(), "forward and backward");
}

// --- join ----------------------------------------------------------------------------------------------------------------

template <class P>
struct JoinArgs {
  DeviceJoin join;
  Work<P> work;
  Shape shape;
  std::int32_t forward_cells, backward_cells;
  const std::int32_t* forward_label;
  const std::int64_t* gold;
  void* emissions;  // [rows, K] or null
  Type type;        // of the caller's arrays
  double least;     // z below largest alpha · largest x times this is not to be trusted
};

template <class P>
__device__ P warp_sum(P x) {
  for (int bit = 16; bit > 0; bit /= 2) x += __shfl_xor_sync(0xffffffffu, x, bit);
  return x;
}

// A chunk of positions: `m` [chunk, backward cells + 1] is alpha gathered at arrivals, `y` [chunk, forward cells] is beta of
// the next position gathered at nodes and divided by z, `labels` [chunk, K] the weight of each label.
template <class P>
struct Chunk {
  P *m, *y, *labels;
  double* z;
  unsigned *largest_alpha, *largest_x;
  std::int64_t b, first;
  std::int32_t T, count;
};

template <class P>
__device__ void join_labels(const JoinArgs<P>& a, const Chunk<P>& chunk) {
  const std::int32_t K = a.shape.K, lane = threadIdx.x % 32;
  for (std::int32_t i = threadIdx.x / 32; i < chunk.count * K; i += kJoinThreads / 32) {
    const std::int32_t j = i / K, label = i - j * K;
    const std::int64_t at = chunk.b * a.shape.T + chunk.first + j;
    const P *alpha = a.work.alpha + at * a.forward_cells, *x = a.work.x + at * a.backward_cells;
    P* m = chunk.m + std::int64_t{j} * (a.backward_cells + 1);
    P sum = 0, most_alpha = 0, most_x = 0;
    for (std::int32_t k = a.join.label_begin[label] + lane; k < a.join.label_begin[label + 1]; k += 32) {
      P in = 0;
      for (std::int32_t s = a.join.begin[k]; s < a.join.begin[k + 1]; ++s) in += alpha[a.join.source[s]];
      const P out = x[a.join.cell[k]];
      m[a.join.cell[k]] = in;
      sum += in * out;
      most_alpha = max(most_alpha, in);
      most_x = max(most_x, out);
    }
    sum = warp_sum(sum);
    const unsigned alpha_word = __reduce_max_sync(0xffffffffu, high_word(most_alpha));
    const unsigned x_word = __reduce_max_sync(0xffffffffu, high_word(most_x));
    if (lane == 0) {
      chunk.labels[j * K + label] = sum;
      atomicMax(&chunk.largest_alpha[j], alpha_word);
      atomicMax(&chunk.largest_x[j], x_word);
    }
  }
}

__device__ inline double from_high_word(unsigned high, float) { return static_cast<double>(__uint_as_float(high)); }
__device__ inline double from_high_word(unsigned high, double) { return __hiloint2double(static_cast<int>(high), 0); }

template <class P>
__device__ void join_totals(const JoinArgs<P>& a, const Chunk<P>& chunk) {
  const std::int32_t K = a.shape.K, lane = threadIdx.x % 32, j = threadIdx.x / 32;
  if (j >= chunk.count) return;
  double z = 0;
  for (std::int32_t k = lane; k < K; k += 32) z += static_cast<double>(chunk.labels[j * K + k]);
  z = warp_sum(z);
  if (lane != 0) return;
  chunk.z[j] = z;
  a.work.z[chunk.b * a.shape.T + chunk.first + j] = z;
  const double largest = from_high_word(chunk.largest_alpha[j], P{}) * from_high_word(chunk.largest_x[j], P{});
  if (!(z > 0 && z >= largest * a.least && isfinite(z))) a.work.flag[chunk.b] = 1;
}

template <class P>
__device__ void write_emissions(const JoinArgs<P>& a, const Chunk<P>& chunk) {
  const std::int32_t K = a.shape.K;
  for (std::int32_t i = threadIdx.x; i < chunk.count * K; i += kJoinThreads) {
    const std::int32_t j = i / K, label = i - j * K;
    const std::int64_t row = a.work.scores.row[chunk.b * a.shape.T + chunk.first + j];
    const double p = static_cast<double>(chunk.labels[i]) / chunk.z[j];
    write_score(a.emissions, a.type, row * K + label, a.gold && a.gold[row] == label ? p - 1 : p);
  }
}

// y[t][r, b] = w[t+1][b] · Σ_{arcs (r, b, s)} x[t+1][s, b], so that m · g · y is a bigram's weight, in units of z.
template <class P>
__device__ void join_next(const JoinArgs<P>& a, const Chunk<P>& chunk) {
  const std::int32_t K = a.shape.K;
  for (std::int64_t i = threadIdx.x; i < std::int64_t{chunk.count} * a.forward_cells; i += kJoinThreads) {
    const auto j = static_cast<std::int32_t>(i / a.forward_cells), cell = static_cast<std::int32_t>(i - std::int64_t{j} * a.forward_cells);
    const std::int64_t t = chunk.first + j, at = chunk.b * a.shape.T + t;
    double y = 0;
    if (t + 1 < chunk.T) {
      const P* x = a.work.x + (at + 1) * a.backward_cells;
      P sum = 0;
      for (std::int32_t k = a.join.node_begin[cell]; k < a.join.node_begin[cell + 1]; ++k) sum += x[a.join.node_target[k]];
      const P w = a.work.scores.emissions[(at + 1) * (K + 1) + a.forward_label[cell]];
      // x[t] took this step's scale off; z has it too.
      y = static_cast<double>(sum) * static_cast<double>(w) * scalbn(1 / chunk.z[j], -a.work.exponent[1][at]);
    }
    chunk.y[i] = static_cast<P>(y);
  }
}

template <class P>
__device__ void join_bigrams(const JoinArgs<P>& a, const Chunk<P>& chunk, P* sums) {
  const std::int32_t wide_m = a.backward_cells + 1;
  for (std::int32_t g = 0; g < a.join.groups; ++g) {
    const SweepGroup group = a.join.group[g];
    const std::int32_t quads = group.width / 4;
    for (std::int32_t i = threadIdx.x; i < group.slots * quads; i += kJoinThreads) {
      const std::int32_t slot = i / quads, o = (i - slot * quads) * 4;
      P sum[4] = {0, 0, 0, 0};
      for (std::int32_t s = 0; s < group.states; ++s) {
        const std::int32_t from = a.join.slot_cell[group.first_source + s * group.slots + slot];
        const P* y = chunk.y + group.first_cell + s * group.width + o;
        for (std::int32_t j = 0; j < chunk.count; ++j) {
          const P m = chunk.m[std::int64_t{j} * wide_m + from];
          for (int k = 0; k < 4; ++k) sum[k] += m * y[std::int64_t{j} * a.forward_cells + k];
        }
      }
      for (int k = 0; k < 4; ++k) sums[group.first_entry + slot * group.width + o + k] = sum[k];
    }
  }
  const std::int32_t lane = threadIdx.x % 32;
  for (std::int32_t e = threadIdx.x / 32; e < a.join.sparse; e += kJoinThreads / 32) {
    P sum = 0;
    for (std::int32_t k = a.join.sparse_begin[e] + lane; k < a.join.sparse_begin[e + 1]; k += 32) {
      const Source pair = a.join.sparse_pair[k];
      for (std::int32_t j = 0; j < chunk.count; ++j) {
        sum += chunk.m[std::int64_t{j} * wide_m + pair.x] * chunk.y[std::int64_t{j} * a.forward_cells + pair.y];
      }
    }
    sum = warp_sum(sum);
    if (lane == 0) sums[a.join.dense + e] = sum;
  }
}

template <class P>
__global__ void __launch_bounds__(kJoinThreads) join_kernel(const __grid_constant__ JoinArgs<P> a) {
  extern __shared__ __align__(16) char shared[];
  const Shape& s = a.shape;
  Chunk<P> chunk;
  chunk.b = blockIdx.y;
  chunk.first = std::int64_t{blockIdx.x} * s.chunk;
  chunk.T = a.work.scores.length[chunk.b];
  if (chunk.first >= chunk.T) return;
  chunk.count = static_cast<std::int32_t>(min(std::int64_t{s.chunk}, chunk.T - chunk.first));
  chunk.z = reinterpret_cast<double*>(shared);
  chunk.largest_alpha = reinterpret_cast<unsigned*>(chunk.z + s.chunk);
  chunk.largest_x = chunk.largest_alpha + s.chunk;
  chunk.labels = reinterpret_cast<P*>(shared + 64 * s.chunk);
  P* on_chip = reinterpret_cast<P*>(shared + (s.chunk * (s.K * sizeof(P) + 64) + 15) / 16 * 16);
  const std::int64_t a_step = a.backward_cells + 1 + a.forward_cells;
  P* arrays = s.join_on_chip ? on_chip : a.work.joined + (chunk.b * s.chunks + blockIdx.x) * s.chunk * a_step;
  chunk.y = arrays;
  chunk.m = arrays + std::int64_t{s.chunk} * a.forward_cells;
  if (threadIdx.x < 2 * s.chunk) chunk.largest_alpha[threadIdx.x] = 0;
  if (threadIdx.x < s.chunk) chunk.m[std::int64_t{threadIdx.x} * (a.backward_cells + 1) + a.backward_cells] = 0;
  __syncthreads();
  join_labels(a, chunk);
  __syncthreads();
  join_totals(a, chunk);
  __syncthreads();
  if (a.emissions) write_emissions(a, chunk);
  if (!s.entries) return;
  join_next(a, chunk);
  __syncthreads();
  join_bigrams(a, chunk, a.work.sums + (chunk.b * s.chunks + blockIdx.x) * s.entries);
}

// --- finish --------------------------------------------------------------------------------------------------------------

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
        path_score(a.batch, K, T, row, [&](std::int32_t t) { return a.wanted.gold[row[t]]; }));
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
    const bool bad = outcome == static_cast<std::int32_t>(Outcome::bad_score) || outcome == static_cast<std::int32_t>(Outcome::bad_transition);
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
    const std::int32_t chunks = (T + a.shape.chunk - 1) / a.shape.chunk;
    for (std::int32_t e = a.join.pair_begin[pair]; e < a.join.pair_begin[pair + 1]; ++e) {
      const P* sums = a.work.sums + b * a.shape.chunks * a.shape.entries + a.join.pair_entry[e];
      for (std::int32_t c = 0; c < chunks; ++c) sum += static_cast<double>(sums[std::int64_t{c} * a.shape.entries]);
    }
    if (sum != 0) sum *= exp(score_at(a.batch.transitions, a.batch.type, pair) - a.work.scores.shifts[0]);
  }
  if (a.wanted.gold) {
    std::int32_t seen = 0;
    for (std::int32_t first = 1; first < T; first += kFinishThreads) {
      const std::int32_t t = first + static_cast<std::int32_t>(threadIdx.x);
      __syncthreads();
      const std::int64_t* row = a.work.scores.row + b * a.shape.T;
      bigram[threadIdx.x] = t < T ? static_cast<std::int32_t>(a.wanted.gold[row[t - 1]] * K + a.wanted.gold[row[t]]) : -1;
      __syncthreads();
      for (int i = 0; i < kFinishThreads && first + i < T; ++i) seen += bigram[i] == pair;
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

// --- the call ------------------------------------------------------------------------------------------------------------

// z must exceed the largest product of alpha and x by this much: what is lost, as in the head of this file, stays below a
// hundredth of the tolerance.
template <class P>
double least_trusted(const DeviceConstraint::Impl& c, std::int64_t T) {
  const double smallest = static_cast<double>(std::numeric_limits<P>::min()), tolerance = sizeof(P) == 4 ? 1e-7 : 1e-13;
  const double products = static_cast<double>(c.products + c.forward.cells + c.backward.cells) * 4;
  return std::min(0.5, smallest * products * static_cast<double>(T + 1) / tolerance);
}

template <class P>
std::size_t bytes_as(const DeviceConstraint::Impl& c, const Batch& batch, const Expectation& wanted) {
  Cutter cutter(Memory{});
  cut_work<P>(cutter, c, batch, shape_of<P>(c, batch, wanted), wanted);
  cut_wide(cutter, c, batch, wanted.transitions != nullptr);
  return cutter.used();
}

template <class P>
void run_as(const DeviceConstraint::Impl& c, const Batch& batch, const Expectation& wanted, Memory memory, cudaStream_t stream) {
  const Shape s = shape_of<P>(c, batch, wanted);
  Cutter cutter(memory);
  const Work<P> work = cut_work<P>(cutter, c, batch, s, wanted);
  const WideWork wide = cut_wide(cutter, c, batch, wanted.transitions != nullptr);
  prepare<P>(c, batch, work.scores, Scale::probability, true, wanted.status, nullptr, stream);

  const PassArgs<P> pass{{c.forward, c.backward}, c.topology, work, s, wanted.gold};
  if (s.pass_on_chip) {
    launch_pass<P, std::uint16_t, true>(pass, stream);
  } else if (c.forward.narrow && c.backward.narrow) {
    launch_pass<P, std::uint16_t, false>(pass, stream);
  } else {
    launch_pass<P, std::int32_t, false>(pass, stream);
  }

  const JoinArgs<P> join{c.join,          work,        s, c.forward.cells, c.backward.cells, c.forward.label, wanted.gold,
                         wanted.emissions, batch.type, least_trusted<P>(c, s.T)};
  if (s.chunks > 0) {
    check(cudaFuncSetAttribute(join_kernel<P>, cudaFuncAttributeMaxDynamicSharedMemorySize, s.join_bytes), "shared memory");
    join_kernel<P><<<dim3(static_cast<unsigned>(s.chunks), static_cast<unsigned>(s.B)), kJoinThreads,
                     static_cast<std::size_t>(s.join_bytes), stream>>>(join);
    check(cudaGetLastError(), "joining forward and backward");
  }

  const FinishArgs<P> finish{c.join,      work,        s,       wanted, batch, c.topology.empty != 0};
  const auto pairs = wanted.transitions ? (std::int64_t{s.K} * s.K + kFinishThreads - 1) / kFinishThreads : 0;
  finish_kernel<P><<<dim3(1 + static_cast<unsigned>(pairs), static_cast<unsigned>(s.B)), kFinishThreads, 0, stream>>>(finish);
  check(cudaGetLastError(), "finishing");
  again_wide(c, batch, wanted, {work.scores.length, work.scores.row, work.flag}, wide, stream);
}

// Float where its errors stay below the tolerance, else double.
bool in_float(const Batch& batch) { return batch.type == Type::f32 && batch.length <= kLongestFloat; }

}  // namespace

std::size_t expectation_bytes(const DeviceConstraint& constraint, const Batch& batch, const Expectation& wanted) {
  return in_float(batch) ? bytes_as<float>(constraint.impl(), batch, wanted) : bytes_as<double>(constraint.impl(), batch, wanted);
}

void expectation(const DeviceConstraint& constraint, const Batch& batch, const Expectation& wanted, Memory memory, void* stream) {
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
