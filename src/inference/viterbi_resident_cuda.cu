// Viterbi for resident sweeps (sweep.h), in whole numbers.
//
// Scores become costs: how far a score lies below the largest of its row of emissions, or of the transitions, in units
// of a power of two, rounded. So a path's cost is a sum of numbers that are not negative, exact but for that rounding:
// half a unit for each score, and for what is lost when two floats are subtracted 2⁻²⁴ of the cost, so for two paths of
// T positions and cost C, the one found and the one that might have been better, less than 2T + 2 + 2⁻²²·C units. The
// unit is such that this is below the tolerance if the best path's score is not much smaller than if it had the largest
// of everything.
//
// Numbers of 32 bits have room for this, with kNoWay for what is forbidden or cannot be reached. Every now and then
// each step's lowest cost is taken off. A score costs at most kLimit; if a cell has ever cost that much, other costs
// may have been more than the numbers say. Then the path found stands only if it costs less than that in all, since so
// does the best path, with everything on it. What cannot be trusted is done again in double.
//
// The path is followed outwards on chip. The block brings steps of both halves, as many as it has room for, while two
// warps follow the path through those brought before.
#include <cuda_pipeline.h>

#include <algorithm>

#include "inference/viterbi_cuda.h"

namespace regccrf::cuda {

namespace {

constexpr std::uint32_t kLimit = 1u << 28;
constexpr std::int32_t kRenewal = 64;    // steps until the lowest cost is taken off
constexpr std::int32_t kMostChunk = 16;  // steps brought at once

// What a block has on chip, in bytes from the beginning of its shared memory; rows and cells of the walk make way for
// steps of the path.
struct Layout {
  int reduce, matrix[2], thin[2], row_of[2], source[2], group[2], rows, cells, bytes, threads;
  std::int32_t row_count, steps, chunk;  // rows of emissions; steps that a half may have; steps brought at once
  bool tables;                           // there is room for what the path is followed by; else it is in memory
};

Layout layout_of(const DeviceConstraint::Impl& c, const Batch& batch) {
  const DeviceSweep* sweep[2] = {&c.forward, &c.backward};
  const std::int64_t K = c.topology.K;
  Layout at{};
  std::int64_t bytes = 0;
  const auto take = [&](std::int64_t count, std::int64_t size) {
    const auto here = static_cast<int>(std::min<std::int64_t>(bytes, c.shared_bytes));
    bytes += (count * size + 15) / 16 * 16;
    return here;
  };
  at.row_count = rows_kept<std::uint32_t>(K, batch.length / 2 + 1);
  at.steps = static_cast<std::int32_t>(batch.length / 2 + 1);
  at.threads = 32 * std::max({c.forward.warps[1], c.backward.warps[1], 2});  // two follow the path
  at.reduce = take(64, 4);
  for (int back = 0; back < 2; ++back) {
    at.matrix[back] = take(sweep[back]->entries, 4);
    at.thin[back] = take(std::int64_t{sweep[back]->thin} * sweep[back]->thin_slots, 4);
  }
  const std::int64_t cells = 2 * room_for(std::max(c.forward.all_cells, c.backward.all_cells)) * 4,
                     walk = (at.row_count + 1) * (K + 1) * 4 + 16 + cells,
                     step = 4 * (std::int64_t{c.forward.cells} + c.backward.cells);
  const std::int64_t before = bytes;
  for (int back = 0; back < 2; ++back) {
    at.row_of[back] = take(sweep[back]->cells, sizeof(RowOf));
    at.source[back] = take(std::int64_t{sweep[back]->thin} * sweep[back]->thin_slots, sizeof(Pair<std::uint16_t>));
    at.group[back] = take(sweep[back]->groups, sizeof(SweepGroup));
  }
  at.tables = bytes + std::max(walk, 2 * step) <= c.shared_bytes;
  if (!at.tables) bytes = before;
  at.chunk = static_cast<std::int32_t>(
      std::clamp<std::int64_t>((c.shared_bytes - bytes) / (2 * step), 0, std::min(kMostChunk, at.steps)));
  bytes += std::max(walk, 2 * at.chunk * step);
  at.rows = static_cast<int>(bytes - std::max(walk, 2 * at.chunk * step));
  at.cells = at.rows + aligned((at.row_count + 1) * (K + 1) * 4);
  at.bytes = static_cast<int>(std::min<std::int64_t>(bytes, c.shared_bytes + 1));
  return at;
}

struct Args {
  DeviceSweep sweep[2];
  DeviceJoin join;
  Batch batch;
  Prepared<float> scores;
  ResidentWork work;
  Layout at;
  Best best;
  std::int32_t* redo;
  std::int32_t empty;  // whether a sequence of no positions is legal
};

template <class T>
__device__ T* on_chip(int at) {
  return reinterpret_cast<T*>(shared_memory() + at);
}

// --- costs

// Units of cost in a unit of score, for a sequence of T positions; the same in every warp.
__device__ float units(const Prepared<float>& scores, std::int64_t first_row, std::int32_t T) {
  const std::int64_t t = std::int64_t{threadIdx.x % 32} * T / 32;  // some of the positions speak for all
  double best = scores.shift[first_row + t];
  for (int bit = 16; bit > 0; bit /= 2) best += __shfl_xor_sync(0xffffffffu, best, bit);
  best = fabs((best / 32 + scores.shifts[0]) * T);
  const double unit = kTolerance * fmax(1.0, 0.25 * best) / (2.5 * (T + 1));
  return static_cast<float>(scalbn(1.0, -ilogb(unit)));
}

// `largest`: of the scores that this one is among.
__device__ std::uint32_t cost_of(float score, float largest, float scale) {
  if (!(score > -INFINITY)) return kNoWay;
  return __float2uint_rn(fminf(fmaxf((largest - score) * scale, 0.0f), static_cast<float>(kLimit)));
}

// The costs of a sweep's entries of g, on chip.
__device__ void bring_costs(std::uint32_t* to, const float* scores, std::int64_t count, float largest, float scale) {
  for (std::int64_t i = threadIdx.x; i < count; i += blockDim.x) to[i] = cost_of(scores[i], largest, scale);
}
__device__ void bring_matrices(const Args& a, int back, float scale) {
  const DeviceSweep& sweep = a.sweep[back];
  const auto largest = static_cast<float>(a.scores.shifts[0]);
  bring_costs(on_chip<std::uint32_t>(a.at.matrix[back]), a.scores.matrix[back], sweep.entries, largest, scale);
  bring_costs(on_chip<std::uint32_t>(a.at.thin[back]), a.scores.thin[back], std::int64_t{sweep.thin} * sweep.thin_slots,
              largest, scale);
}

// The emissions' costs of some steps, on chip.
template <bool kBack>
class CostRows {
 public:
  // `room`: for `count` rows of K + 1 numbers, and one of zeros.
  __device__ CostRows(const Args& a, std::uint32_t* room, std::int32_t T, float scale)
      : room_(room + a.sweep[0].K + 1),
        emissions_(a.scores.emissions + std::int64_t{blockIdx.x} * a.batch.length * (a.sweep[0].K + 1)),
        largest_(a.scores.shift + std::int64_t{blockIdx.x} * a.batch.length),
        count_(a.at.row_count),
        width_(a.sweep[0].K + 1),
        T_(T),
        last_(Halves(T).steps[kBack]),
        scale_(scale) {
    for (std::int32_t k = threadIdx.x; k < width_; k += blockDim.x) room[k] = k + 1 < width_ ? 0 : kNoWay;
  }
  // Copies the rows of step n and those behind it; the block must not be reading rows. Meets.
  __device__ void stage(std::int32_t n) {
    const std::int32_t rows = min(count_, T_ - n);
    end_ = n + rows;
    first_ = kBack ? T_ - end_ : n;
    for (std::int32_t r = threadIdx.x / 32; r < rows; r += blockDim.x / 32) {
      const float* from = emissions_ + std::int64_t{first_ + r} * width_;
      const auto largest = static_cast<float>(largest_[first_ + r]);
      for (std::int32_t k = threadIdx.x % 32; k < width_; k += 32)
        room_[r * width_ + k] = cost_of(from[k], largest, scale_);
    }
    __syncthreads();
  }
  __device__ bool staged(std::int32_t n) const { return n < end_; }
  // The step in the middle leaves out its emissions in one of the two directions.
  __device__ const std::uint32_t* operator[](std::int32_t n) const {
    return kBack && n == last_ ? room_ - width_ : room_ + ((kBack ? T_ - 1 - n : n) - first_) * width_;
  }

 private:
  std::uint32_t* room_;
  const float* emissions_;
  const double* largest_;
  std::int32_t count_, width_, T_, last_, first_ = 0, end_ = 0;
  float scale_;
};

// --- towards the middle

// The block's least number. `room`: 32 numbers. Meets.
__device__ std::uint32_t block_least(std::uint32_t mine, std::uint32_t* room) {
  const std::uint32_t least = __reduce_min_sync(0xffffffffu, mine);
  __syncthreads();
  if (threadIdx.x % 32 == 0) room[threadIdx.x / 32] = least;
  __syncthreads();
  return __reduce_min_sync(0xffffffffu, room[threadIdx.x % 32 < blockDim.x / 32 ? threadIdx.x % 32 : 0]);
}

// Takes the lowest cost off all cells; how much that was. Meets.
__device__ std::uint32_t take_off(std::uint32_t* cells, std::int32_t count, std::uint32_t* room) {
  std::uint32_t least = kNoWay;
  for (std::int32_t c = threadIdx.x; c < count; c += blockDim.x) least = min(least, cells[c]);
  least = block_least(least, room);
  if (least == kNoWay) return 0;
  for (std::int32_t c = threadIdx.x; c < count; c += blockDim.x)
    if (cells[c] < kNoWay) cells[c] -= least;
  __syncthreads();
  return least;
}

struct Emit {
  const std::uint32_t* row;
  std::uint32_t* next;
  std::uint32_t& largest;  // less kNoWay, so that kNoWay is least

  __device__ std::uint32_t weight(std::uint32_t label) const { return value_of(row, label); }
  __device__ void store(std::uint32_t cell, std::uint32_t weight, std::uint32_t best) const {
    const std::uint32_t v = min(best + weight, kNoWay);
    put(next, cell, v);
    largest = max(largest, v - kNoWay);
  }
};

template <bool kBack, class Index, class Steps>
__device__ void walk(const Args& a, const SweepView<Index>& view, const Steps& steps, std::int32_t T, float scale) {
  const std::int64_t b = blockIdx.x;
  const std::int32_t K = view.K, last = Halves(T).steps[kBack], thread = thread_number();
  auto* now = on_chip<std::uint32_t>(a.at.cells);
  auto* next = now + room_for(view.cells + 1);
  auto* reduce = on_chip<std::uint32_t>(a.at.reduce);
  std::uint32_t* kept = a.work.kept[kBack] + b * a.at.steps * view.cells;
  CostRows<kBack> rows(a, on_chip<std::uint32_t>(a.at.rows), T, scale);
  for (std::int32_t c = thread; c <= view.cells; c += blockDim.x) now[c] = next[c] = kNoWay;
  rows.stage(0);
  const float* edge = kBack ? a.scores.end : a.scores.start;
  const auto edge_largest = static_cast<float>(a.scores.shifts[1 + kBack]);
  std::uint32_t largest = 0;
  std::uint64_t taken = 0;
  const Emit first{rows[0], now, largest};
  for (std::int32_t o = thread; o < view.outs; o += blockDim.x) {
    const std::int32_t label = view.label[o];
    if (label == K) continue;
    first.store(bytes_of<float>(view.stored[o]), first.weight(bytes_of<float>(label)),
                a.sweep[kBack].begins[o] ? cost_of(edge[label], edge_largest, scale) : kNoWay);
  }
  __syncthreads();
  for (std::int32_t n = 1; n <= last; ++n) {
    if (n % kRenewal == 0) taken += take_off(now, view.cells, reduce);
    copy_out(kept, now, view.cells, thread);
    kept += view.cells;
    if (!rows.staged(n)) rows.stage(n);
    auto sums = steps.multiply(steps.load(now));
    steps.finish(sums, now, Emit{rows[n], next, largest});
    __syncthreads();
    std::uint32_t* swap = now;
    now = next;
    next = swap;
  }
  copy_out(kept, now, view.cells, thread);
  largest = kNoWay + ~block_least(~largest, reduce);
  if (thread == 0) {
    a.work.taken[2 * b + kBack] = taken;
    a.work.largest[2 * b + kBack] = largest;
  }
}

// --- and outwards again

// One half of the path: what it is followed by, on chip or in memory, and the steps that were brought.
template <class Index>
struct Half {
  const SweepGroup* group;
  const RowOf* row_of;
  const Pair<Index>* source;
  const std::uint32_t *matrix, *thin_matrix, *kept;
  std::uint32_t* room;  // for two chunks
  std::int32_t cells, thin, thin_slots, steps, chunk;

  __device__ Half(const Args& a, int back, std::int32_t T)
      : matrix(on_chip<std::uint32_t>(a.at.matrix[back])),
        thin_matrix(on_chip<std::uint32_t>(a.at.thin[back])),
        kept(a.work.kept[back] + std::int64_t{blockIdx.x} * a.at.steps * a.sweep[back].cells),
        room(on_chip<std::uint32_t>(a.at.rows) + (back ? 2 * a.at.chunk * a.sweep[0].cells : 0)),
        cells(a.sweep[back].cells),
        thin(a.sweep[back].thin),
        thin_slots(a.sweep[back].thin_slots),
        steps(Halves(T).steps[back]),
        chunk(a.at.chunk) {
    const SweepView<Index> view(a.sweep[back], a.sweep[back].hot, 0);
    group = a.at.tables ? on_chip<SweepGroup>(a.at.group[back]) : view.group;
    row_of = a.at.tables ? on_chip<RowOf>(a.at.row_of[back]) : a.sweep[back].row_of;
    source = a.at.tables ? on_chip<Pair<Index>>(a.at.source[back]) : view.thin_source;
  }

  // Chunk j has the steps from low(j) to high(j), from the middle outwards.
  __device__ std::int32_t high(std::int32_t j) const { return chunk ? steps - j * chunk : steps; }
  __device__ std::int32_t low(std::int32_t j) const { return chunk ? max(high(j + 1) + 1, 0) : 0; }
  __device__ const std::uint32_t* step(std::int32_t j, std::int32_t n) const {
    return chunk ? room + (j % 2 * chunk + n - low(j)) * cells : kept + std::int64_t{n} * cells;
  }
  // The whole block takes part.
  __device__ void bring(std::int32_t j) const {
    const std::int32_t count = (high(j) - low(j) + 1) * cells;
    const std::uint32_t* from = kept + std::int64_t{low(j)} * cells;
    std::uint32_t* to = room + j % 2 * chunk * cells;
    for (std::int32_t i = 4 * static_cast<std::int32_t>(threadIdx.x); i < count; i += 4 * blockDim.x)
      __pipeline_memcpy_async(to + i, from + i, 16);
  }
};

// The best cell of the step before, `now`, for a cell whose sources are there; a number past all cells where there is
// none. By a warp.
template <class Index>
__device__ std::int32_t predecessor(const Half<Index>& half, const SweepGroup& group, RowOf at,
                                    const std::uint32_t* now) {
  const std::int32_t lane = threadIdx.x % 32;
  std::uint32_t best = kNoWay;
  std::int32_t from = 0x7fffffff;
  const auto offer = [&](std::uint32_t cost, std::int32_t source) {
    if (cost < best || (cost == best && source < from)) best = cost, from = source;
  };
  if (at.group == kThinGroup) {
    if (lane < half.thin_slots) {
      const std::int32_t i = lane * half.thin + at.entry;
      const Pair<Index> source = half.source[i];
      const std::uint32_t cost = half.thin_matrix[i];
      if (source.x < half.cells) offer(now[source.x] + cost, source.x);
      if (source.y < half.cells) offer(now[source.y] + cost, source.y);
    }
  } else {
    const std::int32_t plane = group.states * group.stride;
    for (std::int32_t first = lane; first < group.slots; first += 64) {
      std::uint32_t cost[4];
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const std::int32_t i = first + k % 2 * 32;
        const bool there = i < group.slots && k / 2 < group.planes;
        cost[k] = there ? now[at.row + i + k / 2 * plane] + half.matrix[at.entry + i * group.width] : kNoWay;
      }
#pragma unroll
      for (int k = 0; k < 4; ++k) offer(cost[k], at.row + first + k % 2 * 32 + k / 2 * plane);
    }
  }
  const std::uint32_t least = __reduce_min_sync(0xffffffffu, best);
  return __reduce_min_sync(0xffffffffu, best == least && best < kNoWay ? from : 0x7fffffff);
}

// A warp follows the path through chunk j. `n`, `cell`: where it is, and then where it has come to.
template <class Index, class Write>
__device__ void follow(const Half<Index>& half, std::int32_t j, std::int32_t& n, std::int32_t& cell,
                       const Write& write) {
  std::int32_t group_at = -1;
  SweepGroup group{};
  while (cell < half.cells) {
    const RowOf at = half.row_of[cell];
    write(n, at.label);
    if (n == half.low(j)) return;
    if (at.group != group_at && at.group != kThinGroup) group = half.group[group_at = at.group];
    --n;
    cell = predecessor(half, group, at, half.step(j, n));
  }
}

// Where the best path is at the middle, and what it costs beside what was taken off. `delta`, `x`: the last steps of
// the halves. `room`: 64 numbers.
struct Crossing {
  Meeting at;
  std::uint32_t cost;
};
__device__ Crossing meet(const DeviceJoin& join, const std::uint32_t* delta, const std::uint32_t* x,
                         std::uint32_t* room) {
  std::uint32_t best = 0xffffffffu, number = 0xffffffffu;
#pragma unroll 4
  for (std::uint32_t k = threadIdx.x; k < 32u * static_cast<std::uint32_t>(join.rounds); k += blockDim.x) {
    const JoinArrival arrival = join.arrival[k];
    if (arrival.cell == join.backward_cells) continue;  // padding
    std::uint32_t in = kNoWay;
    each_cell(join, static_cast<std::int32_t>(k), arrival, [&](std::int32_t cell) { in = min(in, delta[cell]); });
    const std::uint32_t cost = in + x[arrival.cell];
    if (in < kNoWay && x[arrival.cell] < kNoWay && cost < best) best = cost, number = k;
  }
  const std::uint32_t least = block_least(best, room);
  number = block_least(best == least ? number : 0xffffffffu, room + 32);
  if (number == 0xffffffffu) return {{{-1, -1}}, 0};
  const JoinArrival arrival = join.arrival[number];
  std::int32_t from = -1;
  each_cell(join, static_cast<std::int32_t>(number), arrival,
            [&](std::int32_t cell) { from = from < 0 || delta[cell] < delta[from] ? cell : from; });
  return {{{from, arrival.cell}}, least};
}

// Whether no cost was more than the numbers say.
__device__ bool within_limit(const Args& a) {
  const std::uint32_t* largest = a.work.largest + 2 * blockIdx.x;
  return max(largest[0], largest[1]) < kLimit;
}

__device__ bool trusted(const Args& a, std::int32_t T, std::uint32_t meeting_cost, double score, float scale) {
  const std::uint64_t* taken = a.work.taken + 2 * blockIdx.x;
  const double cost = static_cast<double>(taken[0]) + static_cast<double>(taken[1]) + meeting_cost;
  const double error = 2.0 * T + 2 + cost / (1 << 22);
  if (!within_limit(a) && cost + error >= kLimit) return false;
  return error <= kTolerance * fmax(1.0, fabs(score)) * static_cast<double>(scale);
}

// What the path is followed by, on its way onto the chip while the block walks.
__device__ void bring_tables(const Args& a) {
  if (!a.at.tables) return;
  const auto bring = [&](int to, const char* from, std::int64_t bytes) {
    for (std::int64_t i = 16 * threadIdx.x; i < bytes; i += 16 * blockDim.x)
      __pipeline_memcpy_async(on_chip<char>(to) + i, from + i, 16);
  };
  for (int back = 0; back < 2; ++back) {
    const DeviceSweep& sweep = a.sweep[back];
    const std::int64_t sources = std::int64_t{sweep.thin} * sweep.thin_slots;
    bring(a.at.row_of[back], reinterpret_cast<const char*>(sweep.row_of), sweep.cells * sizeof(RowOf));
    bring(a.at.source[back], sweep.hot + sweep.thin_source_at, sources * sizeof(Pair<std::uint16_t>));
    bring(a.at.group[back], sweep.hot + sweep.group_at, sweep.groups * sizeof(SweepGroup));
  }
}

// Both halves of a sequence are there: its answer. `brought`: whose matrices are on chip.
template <class Index, int kThreads>
__device__ void answer(const Args& a, std::int32_t T, float scale, int brought) {
  const Answer answer(a.best, a.batch, T, a.sweep[0].K);
  answer.clear(a.scores.bad);
  if (threadIdx.x == 0) a.redo[answer.b] = 0;
  if (T == 0) return answer.no_path(a.empty);

  const Half<Index> forward(a, 0, T), backward(a, 1, T);
  const auto bring = [&](std::int32_t j) {
    if (a.at.chunk > 0 && forward.high(j) >= 0) forward.bring(j);
    if (a.at.chunk > 0 && backward.high(j) >= 0) backward.bring(j);
    __pipeline_commit();
  };
  bring(0);
  bring_matrices(a, 1 - brought, scale);
  const std::int32_t chunks = a.at.chunk > 0 ? backward.steps / a.at.chunk + 1 : 1;  // it has no fewer steps
  const int back = static_cast<int>(threadIdx.x) / 32;
  std::int32_t n = Halves(T).steps[back % 2], cell = 0;
  std::uint32_t cost = 0;
  for (std::int32_t j = 0; j < chunks; ++j) {
    bring(j + 1);
    __pipeline_wait_prior(1);
    __syncthreads();
    if (j == 0) {
      const Crossing best = meet(a.join, forward.step(0, forward.steps), backward.step(0, backward.steps),
                                 on_chip<std::uint32_t>(a.at.reduce));
      if (best.at.cell[0] < 0) {
        __pipeline_wait_prior(0);
        if (within_limit(a)) return answer.no_path(a.empty);
        if (threadIdx.x == 0) a.redo[answer.b] = 1;
        return;
      }
      cell = best.at.cell[back % 2];
      cost = best.cost;
    }
    if (back == 0 && forward.high(j) >= 0) {
      follow(forward, j, n, cell, [&](std::int32_t t, std::int32_t label) {
        if (threadIdx.x % 32 == 0) answer.path[t] = label;
      });
    }
    if (back == 1) {
      follow(backward, j, n, cell, [&](std::int32_t t, std::int32_t label) {
        if (threadIdx.x % 32 == 0) answer.path[T - 1 - t] = label;
      });
    }
    __syncthreads();
  }
  const double score = answer.score<kThreads>(a.scores.row);
  if (threadIdx.x == 0 && !trusted(a, T, cost, score, scale)) a.redo[answer.b] = 1;
}

template <std::int32_t kKind>
constexpr int kThreads = 32 * kResidentKinds[kKind].warps;

template <std::int32_t kKind>
__global__ void __launch_bounds__(kThreads<kKind>, 1) resident_kernel(const __grid_constant__ Args a) {
  using Index = std::uint16_t;
  const std::int64_t b = blockIdx.x;
  const int back = blockIdx.y;
  const std::int32_t T = a.scores.length[b];
  float scale = 1;
  if (T > 0) {
    bring_tables(a);
    __pipeline_commit();
    scale = units(a.scores, b * a.batch.length, T);
    bring_matrices(a, back, scale);
    __syncthreads();
    const SweepView<Index> view(a.sweep[back], a.sweep[back].hot, 1);
    constexpr ResidentKind kind = kResidentKinds[kKind];
    const std::uint32_t *matrix = on_chip<std::uint32_t>(a.at.matrix[back]),
                        *thin = on_chip<std::uint32_t>(a.at.thin[back]);
    const ResidentSteps<MinPlus, Index, kind.slots, kind.repeats> steps(view, matrix, thin);
    if (back) {
      walk<true>(a, view, steps, T, scale);
    } else {
      walk<false>(a, view, steps, T, scale);
    }
  }
  __pipeline_wait_prior(0);
  if (comes_last(a.scores.met + b)) answer<Index, kThreads<kKind>>(a, T, scale, back);
}

}  // namespace

bool resident_fits(const DeviceConstraint::Impl& c, const Batch& batch) {
  return c.forward.narrow && c.forward.kind >= 0 && layout_of(c, batch).bytes <= c.shared_bytes;
}

ResidentWork cut_resident(Cutter& cutter, const DeviceConstraint::Impl& c, const Batch& batch) {
  const auto B = static_cast<std::size_t>(batch.size), steps = static_cast<std::size_t>(batch.length / 2 + 1);
  ResidentWork w{};
  w.kept[0] = cutter.take<std::uint32_t>(B * steps * static_cast<std::size_t>(c.forward.cells));
  w.kept[1] = cutter.take<std::uint32_t>(B * steps * static_cast<std::size_t>(c.backward.cells));
  w.taken = cutter.take<std::uint64_t>(2 * B);
  w.largest = cutter.take<std::uint32_t>(2 * B);
  return w;
}

void run_resident(const DeviceConstraint::Impl& c, const Batch& batch, const Best& best, const Prepared<float>& scores,
                  const ResidentWork& work, std::int32_t* redo, cudaStream_t stream) {
  const Layout at = layout_of(c, batch);
  const Args args{{c.forward, c.backward}, c.join, batch, scores, work, at, best, redo, c.topology.empty};
  const auto launch = [&](auto* kernel) {
    launch_kernel(kernel, dim3(static_cast<unsigned>(batch.size), 2), static_cast<unsigned>(at.threads), at.bytes,
                  stream, args, "viterbi");
  };
  if (c.forward.kind == 0) launch(resident_kernel<0>);
  if (c.forward.kind == 1) launch(resident_kernel<1>);
  if (c.forward.kind == 2) launch(resident_kernel<2>);
}

}  // namespace regccrf::cuda
