// Viterbi for resident sweeps (sweep.h), in whole numbers.
//
// Scores become costs: how far a score lies below the largest of its row of emissions, or of the transitions, in units
// of a power of two, rounded. A path's cost is then a sum of numbers that are not negative, exact in 32 bits. kNoWay is
// for what is forbidden or cannot be reached. A score that is lower still counts as costing kMostCost, and every now
// and then each step's lowest cost is taken off, and what a cell costs beyond kMostKept is left out. So no path costs
// more than it should, but for the rounding: half a unit for each score and, since floats are subtracted, 2⁻²⁴ of the
// cost.
//
// That makes the cost C of the path found a proof: no path scores more than the sum of all largest less C, with an
// error of T + 1 + 2⁻²⁴·C units. The path's own score is summed again in double; where it comes as near to that as the
// tolerance, the path stands, else the sequence is done again in double. The unit is such that the error is below the
// tolerance if the best score is not much smaller than the sum of all largest.
//
// The path is followed outwards on chip: two warps follow it through steps of both halves that the others bring.
#include <cuda_pipeline.h>

#include <algorithm>

#include "inference/resident_cuda.h"
#include "inference/viterbi_cuda.h"

namespace regccrf::cuda {

namespace {

constexpr std::uint32_t kMostCost = (1u << 23) - 1, kMostKept = 1u << 29;
constexpr std::int32_t kRenewal = 32;  // steps until the lowest cost is taken off; before, no cost reaches kNoWay
static_assert(kMostKept + 2 * (kRenewal + 1) * std::uint64_t{kMostCost} < kNoWay + 2 * std::uint64_t{kMostCost});
constexpr std::int32_t kMostChunk = 32;  // steps brought at once

// What a block has on chip, in bytes from the beginning of its shared memory; rows and cells of the walk make way for
// steps of the path.
struct Layout {
  int reduce, matrix[2], thin[2], row_of[2], source[2], group[2], edges, largest, rows, cells, ring, bytes, threads;
  std::int32_t row_count;      // rows of emissions
  std::int32_t share;          // of 256 steps, how many are done from the begin
  std::int32_t steps[2];       // that a half may have, and one
  std::int32_t chunk, chunks;  // steps brought at once, and how many such at a time
};

// A guess at the instructions of a step.
std::int32_t effort(const DeviceSweep& sweep, int threads) {
  const ResidentKind kind = kResidentKinds[sweep.kind];
  return kind.repeats * kind.slots * (8 + sweep.two) + 24 * ((sweep.thin + threads - 1) / threads) + 60;
}

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
  at.threads = 32 * std::max({c.forward.warps[1], c.backward.warps[1], 2});  // two follow the path
  const std::int32_t forward = effort(c.forward, at.threads), backward = effort(c.backward, at.threads);
  at.share = 256 * backward / (forward + backward);
  for (int back = 0; back < 2; ++back)
    at.steps[back] = batch.length > 0 ? Halves(static_cast<std::int32_t>(batch.length), at.share).steps[back] + 1 : 0;
  at.row_count = rows_kept<std::uint32_t>(K, std::max(at.steps[0], at.steps[1]));
  at.reduce = take(64, 4);
  for (int back = 0; back < 2; ++back) {
    at.matrix[back] = take(sweep[back]->entries, 4);
    at.thin[back] = take(std::int64_t{sweep[back]->thin} * sweep[back]->thin_slots, 4);
    at.row_of[back] = take(sweep[back]->cells, sizeof(RowOf));
    at.source[back] = take(std::int64_t{sweep[back]->thin} * sweep[back]->thin_slots, sizeof(Pair<std::uint16_t>));
    at.group[back] = take(sweep[back]->groups, sizeof(SweepGroup));
  }
  const std::int64_t begin = bytes, step = 4 * (std::int64_t{c.forward.cells} + c.backward.cells);
  at.ring = static_cast<int>(std::min<std::int64_t>(begin, c.shared_bytes));
  at.edges = take(K + 1, 4);
  at.largest = take(at.row_count, 8);
  at.rows = take((at.row_count + 1) * (K + 1), 4);
  at.cells = take(2 * room_for(std::max(c.forward.all_cells, c.backward.all_cells)), 4);
  const std::int64_t room = (c.shared_bytes - begin) / step;
  at.chunks = static_cast<std::int32_t>(std::clamp<std::int64_t>(room, 2, 3));
  at.chunk = static_cast<std::int32_t>(std::clamp<std::int64_t>(room / at.chunks, 1, kMostChunk));
  at.chunk = std::min(at.chunk, std::max({at.steps[0], at.steps[1], 1}));
  bytes = std::max(bytes, begin + at.chunks * at.chunk * step);
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
  const double unit = kTolerance * fmax(1.0, 0.25 * best) / (1.25 * (T + 1));
  return static_cast<float>(scalbn(1.0, -ilogb(unit)));
}

// `largest`: of the scores that this one is among.
__device__ std::uint32_t cost_of(float score, float largest, float scale) {
  if (!(score > -INFINITY)) return kNoWay;
  return __float2uint_rn(fminf(fmaxf((largest - score) * scale, 0.0f), static_cast<float>(kMostCost)));
}

// Scores are brought as they are, all at once, and become costs where they lie. A thread turns those that it brought.
template <class Turn>
__device__ void each_own(std::int32_t count, const Turn& turn) {
#pragma unroll 1
  for (auto i = static_cast<std::int32_t>(4 * threadIdx.x); i < count; i += static_cast<std::int32_t>(4 * blockDim.x))
    turn(i);
}
struct Costs {
  std::uint32_t* here;
  const float* from;
  std::int32_t count;
  const double* largest;

  __device__ void bring() const {
    each_own(count, [&](std::int32_t i) { __pipeline_memcpy_async(here + i, from + i, 16); });
  }
  __device__ void turn(float scale) const {
    const auto most = static_cast<float>(*largest);
    each_own(count, [&](std::int32_t i) {
      float four[4];
      load4(reinterpret_cast<const float*>(here + i), four);
      store4(here + i, {cost_of(four[0], most, scale), cost_of(four[1], most, scale), cost_of(four[2], most, scale),
                        cost_of(four[3], most, scale)});
    });
  }
};

// act for both sweeps' entries of g, and for the scores of the end that a direction begins at.
template <class Act>
__device__ void each_matrix(const Args& a, int back, const Act& act) {
#pragma unroll 1
  for (int s = 0; s < 2; ++s) {
    const DeviceSweep& sweep = a.sweep[s];
    const double* largest = a.scores.shifts;
    act(Costs{on_chip<std::uint32_t>(a.at.matrix[s]), a.scores.matrix[s], sweep.entries, largest});
    act(Costs{on_chip<std::uint32_t>(a.at.thin[s]), a.scores.thin[s], sweep.thin * sweep.thin_slots, largest});
  }
  act(Costs{on_chip<std::uint32_t>(a.at.edges), back ? a.scores.end : a.scores.start, a.sweep[0].K,
            a.scores.shifts + 1 + back});
}

// The emissions' costs of some steps, on chip.
template <bool kBack>
class CostRows {
 public:
  __device__ CostRows(const Args& a, std::int32_t T) : a_(a), T_(T) {
    for (std::int32_t k = threadIdx.x; k < width(); k += blockDim.x)
      room()[k - width()] = k + 1 < width() ? 0 : kNoWay;  // a row of zeros
  }
  // The rows of step n and those behind it are asked for; the block must not be reading rows. Once they are there and
  // the block has met, turn() makes them costs, and then it has to meet again.
  __device__ void bring(std::int32_t n) {
    rows_ = min(a_.at.row_count, T_ - n);
    end_ = n + rows_;
    first_ = kBack ? T_ - end_ : n;
    const std::int64_t row = blockIdx.x * a_.batch.length + first_;
    const float* from = a_.scores.emissions + row * width();
#pragma unroll 1
    for (std::int32_t i = threadIdx.x; i < rows_ * width(); i += blockDim.x)
      __pipeline_memcpy_async(room() + i, from + i, 4);
#pragma unroll 1
    for (std::int32_t r = threadIdx.x; r < rows_; r += blockDim.x)
      __pipeline_memcpy_async(on_chip<double>(a_.at.largest) + r, a_.scores.shift + row + r, 8);
  }
  __device__ void turn(float scale) const {
#pragma unroll 1
    for (std::int32_t i = threadIdx.x; i < rows_ * width(); i += blockDim.x) {
      const auto largest = static_cast<float>(on_chip<double>(a_.at.largest)[i / width()]);
      room()[i] = cost_of(__uint_as_float(room()[i]), largest, scale);
    }
  }
  __device__ bool there(std::int32_t n) const { return n < end_; }
  // The step in the middle leaves out its emissions in one of the two directions. `last`: that step.
  __device__ const std::uint32_t* at(std::int32_t n, std::int32_t last) const {
    return kBack && n == last ? room() - width() : room() + ((kBack ? T_ - 1 - n : n) - first_) * width();
  }

 private:
  __device__ std::int32_t width() const { return a_.sweep[0].K + 1; }
  __device__ std::uint32_t* room() const { return on_chip<std::uint32_t>(a_.at.rows) + width(); }

  const Args& a_;
  std::int32_t T_, first_ = 0, end_ = 0, rows_ = 0;
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
#pragma unroll 1
  for (std::int32_t c = threadIdx.x; c < count; c += blockDim.x) least = min(least, cells[c]);
  least = block_least(least, room);
  if (least == kNoWay) return 0;
#pragma unroll 1
  for (std::int32_t c = threadIdx.x; c < count; c += blockDim.x)
    if (cells[c] < kNoWay) cells[c] = min(cells[c] - least, kMostKept);
  __syncthreads();
  return least;
}

struct Emit {
  const std::uint32_t* row;
  std::uint32_t* next;

  __device__ std::uint32_t weight(std::uint32_t label) const { return value_of(row, label); }
  __device__ void store(std::uint32_t cell, std::uint32_t weight, std::uint32_t best) const {
    put(next, cell, min(best + weight, kNoWay));
  }
};

// What the first step puts into the cells: the outs where the direction begins. Loads go out several at a time.
template <bool kBack, class Index>
__device__ void begin(const Args& a, const SweepView<Index>& view, const std::uint32_t* edges, const Emit& emit,
                      std::int32_t thread) {
  constexpr std::int32_t together = 4;
  const auto threads = static_cast<std::int32_t>(blockDim.x);
#pragma unroll 1
  for (std::int32_t first = thread; first < view.outs; first += together * threads) {
    std::int32_t label[together], cell[together];
    bool begins[together];
#pragma unroll
    for (std::int32_t k = 0; k < together; ++k) {
      const std::int32_t o = first + k * threads;
      label[k] = o < view.outs ? view.label[o] : view.K;
      cell[k] = o < view.outs ? view.stored[o] : 0;
      begins[k] = o < view.outs && a.sweep[kBack].begins[o];
    }
#pragma unroll
    for (std::int32_t k = 0; k < together; ++k) {
      if (label[k] < view.K && begins[k])
        emit.store(bytes_of<float>(cell[k]), emit.weight(bytes_of<float>(label[k])), edges[label[k]]);
    }
  }
}

// What the path is followed by, on its way onto the chip while the block walks.
__device__ void bring_tables(const Args& a) {
  const auto bring = [&](int to, const char* from, std::int32_t bytes) {
#pragma unroll 1
    for (auto i = static_cast<std::int32_t>(16 * threadIdx.x); i < bytes;
         i += static_cast<std::int32_t>(16 * blockDim.x))
      __pipeline_memcpy_async(on_chip<char>(to) + i, from + i, 16);
  };
#pragma unroll 1
  for (int back = 0; back < 2; ++back) {
    const DeviceSweep& sweep = a.sweep[back];
    bring(a.at.row_of[back], reinterpret_cast<const char*>(sweep.row_of), sweep.cells * int{sizeof(RowOf)});
    bring(a.at.source[back], sweep.hot + sweep.thin_source_at,
          sweep.thin * sweep.thin_slots * int{sizeof(Pair<std::uint16_t>)});
    bring(a.at.group[back], sweep.hot + sweep.group_at, sweep.groups * int{sizeof(SweepGroup)});
  }
}

// The length of the sequence.
template <class Steps, bool kBack, class Index>
__device__ std::int32_t walk(const Args& a) {
  const std::int64_t b = blockIdx.x;
  const SweepView<Index> view(a.sweep[kBack], a.sweep[kBack].hot, 1);
  const std::int32_t thread = thread_number();
  bring_tables(a);
  Steps steps(view);
  auto *now = on_chip<std::uint32_t>(a.at.cells), *next = now + room_for(view.cells + 1);
#pragma unroll 1
  for (std::int32_t c = thread; c <= view.cells; c += blockDim.x) now[c] = next[c] = kNoWay;
  wait_for_kernel_before();  // from here on, scores
  each_matrix(a, kBack, [](const Costs& costs) { costs.bring(); });
  const std::int32_t T = a.scores.length[b];
  if (T == 0) return T;
  const std::int32_t last = Halves(T, a.at.share).steps[kBack];
  std::uint32_t* kept = a.work.kept[kBack] + b * a.at.steps[kBack] * view.cells;
  CostRows<kBack> rows(a, T);
  rows.bring(0);
  __pipeline_commit();
  const float scale = units(a.scores, b * a.batch.length, T);
  __pipeline_wait_prior(0);
  each_matrix(a, kBack, [&](const Costs& costs) { costs.turn(scale); });
  __syncthreads();
  rows.turn(scale);
  steps.load_gains(view, on_chip<std::uint32_t>(a.at.matrix[kBack]), on_chip<std::uint32_t>(a.at.thin[kBack]));
  __syncthreads();
  std::uint64_t taken = 0;
  begin<kBack>(a, view, on_chip<std::uint32_t>(a.at.edges), Emit{rows.at(0, last), now}, thread);
  __syncthreads();
  for (std::int32_t n = 1; n <= last; ++n) {
    if (n % kRenewal == 0) taken += take_off(now, view.cells, on_chip<std::uint32_t>(a.at.reduce));
    if (!rows.there(n)) {
      rows.bring(n);
      __pipeline_commit();
      __pipeline_wait_prior(0);
      __syncthreads();
      rows.turn(scale);
      __syncthreads();
    }
    const Emit emit{rows.at(n, last), next};
    const auto loaded = steps.load(now);
    copy_out(kept, now, view.cells, thread);
    kept += view.cells;
    steps.thin(now, emit);
    auto sums = steps.multiply(loaded);
    steps.finish_tiles(sums, now, emit);
    __syncthreads();
    std::uint32_t* swap = now;
    now = next;
    next = swap;
  }
  copy_out(kept, now, view.cells, thread);
  if (thread == 0) a.work.taken[2 * b + kBack] = taken;
  return T;
}

// --- and outwards again

// One half of the path: what it is followed by. Its steps are brought into a ring, chunk after chunk from the middle
// outwards and from the end of the ring to its begin.
template <class Index>
struct Half {
  const SweepGroup* group;
  const RowOf* row_of;
  const Index* source;
  const std::uint32_t *matrix, *thin_matrix, *kept;
  std::uint32_t* ring;
  std::int32_t cells, steps;

  __device__ Half(const Args& a, int back, std::int32_t T)
      : group(on_chip<SweepGroup>(a.at.group[back])),
        row_of(on_chip<RowOf>(a.at.row_of[back])),
        source(on_chip<Index>(a.at.source[back])),
        matrix(on_chip<std::uint32_t>(a.at.matrix[back])),
        thin_matrix(on_chip<std::uint32_t>(a.at.thin[back])),
        kept(a.work.kept[back] + std::int64_t{blockIdx.x} * a.at.steps[back] * a.sweep[back].cells),
        ring(on_chip<std::uint32_t>(a.at.ring) + (back ? a.at.chunks * a.at.chunk * a.sweep[0].cells : 0)),
        cells(a.sweep[back].cells),
        steps(Halves(T, a.at.share).steps[back]) {}

  // Chunk j, to place `slot` of the ring, by some threads of the block; `thread`: of those.
  __device__ void bring(const Layout& at, std::int32_t j, std::int32_t slot, std::int32_t thread,
                        std::int32_t threads) const {
    const std::int32_t low = steps - (j + 1) * at.chunk + 1;  // steps before the first are not there
    const std::uint32_t* from = kept + std::int64_t{low} * cells;
    std::uint32_t* to = ring + slot * at.chunk * cells;
#pragma unroll 1
    for (std::int32_t i = 4 * thread + max(-low, 0) * cells; i < at.chunk * cells; i += 4 * threads)
      __pipeline_memcpy_async(to + i, from + i, 16);
  }
};

// How a lane looks at the sources of a cell (sweep.h): those of a row, two at a distance of 32 and two in the other
// plane, or one of the two that a thin out has.
struct Look {
  std::int32_t lane, group = -1, slots = 0, width = 0, plane = 0;
  std::int32_t thin_source, thin_cost;  // from the first thin out's to the lane's own
  bool thin;

  __device__ explicit Look(const DeviceSweep& sweep)
      : lane(static_cast<std::int32_t>(threadIdx.x % 32)),
        thin_source(lane * (sweep.thin_slots > 1 ? 2 * sweep.thin : 1)),
        thin_cost(lane * (sweep.thin_slots > 1 ? sweep.thin : 0)),
        thin(lane < 2) {}
  __device__ void take(std::int32_t number, const SweepGroup& of) {
    group = number;
    slots = of.slots;
    width = of.width;
    plane = of.planes > 1 ? of.states * of.stride : 0;
  }
};

// The best cell of the step before, `now`, for a cell whose sources are there; a number past all cells where there is
// none. By a warp.
template <class Index>
__device__ std::int32_t predecessor(const Half<Index>& half, Look& look, RowOf at, const std::uint32_t* now) {
  std::uint32_t best = kNoWay;
  std::int32_t from = 0x7fffffff;
  const auto offer = [&](std::uint32_t cost, std::int32_t source) {
    from = cost < best ? source : from;
    best = min(best, cost);
  };
  if (at.group == kThinGroup) {
    if (look.thin) {
      const std::int32_t source = half.source[2 * at.entry + look.thin_source];
      const std::uint32_t cost = half.thin_matrix[at.entry + look.thin_cost];
      if (source < half.cells) offer(now[source] + cost, source);
    }
  } else {
    if (at.group != look.group) look.take(at.group, half.group[at.group]);
    const std::uint32_t *x = now + at.row + look.lane, *y = x + look.plane,
                        *cost = half.matrix + at.entry + look.lane * look.width;
#pragma unroll 1
    for (std::int32_t i = 0; i < look.slots; i += 64) {
      const bool near = i + look.lane < look.slots, far = i + look.lane + 32 < look.slots;
      const std::uint32_t c0 = near ? cost[i * look.width] : kNoWay, c1 = far ? cost[(i + 32) * look.width] : kNoWay,
                          x0 = near ? x[i] : 0, y0 = near ? y[i] : 0, x1 = far ? x[i + 32] : 0,
                          y1 = far ? y[i + 32] : 0;
      const std::int32_t source = at.row + look.lane + i;
      offer(x0 + c0, source);
      offer(y0 + c0, source + look.plane);
      offer(x1 + c1, source + 32);
      offer(y1 + c1, source + 32 + look.plane);
    }
  }
  const std::uint32_t least = __reduce_min_sync(0xffffffffu, best);
  return __reduce_min_sync(0xffffffffu, best == least ? from : 0x7fffffff);
}

// A warp follows the path through a chunk, up to step `low`. `n`, `cell`, `now`: where it is, and then where it has
// come to. `path`: of the half's first step, with the others behind or, by `direction`, before it. A lane remembers the
// cell of its own step, of those from `high` on.
template <class Index>
__device__ void follow(const Half<Index>& half, Look& look, std::int32_t ring_steps, std::int32_t high,
                       std::int32_t low, std::int32_t& n, std::int32_t& cell, const std::uint32_t*& now,
                       std::int32_t* path, std::int32_t direction) {
  const std::int32_t own = high - look.lane;
  std::int32_t own_cell = n == own ? cell : half.cells;
#pragma unroll 1
  while (n > low && cell < half.cells) {
    --n;
    now -= half.cells;
    if (now < half.ring) now += ring_steps * half.cells;
    cell = predecessor(half, look, half.row_of[cell], now);
    if (n == own) own_cell = cell;
  }
  if (own_cell < half.cells) path[direction * own] = half.row_of[own_cell].label;
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
  const auto count = 32u * static_cast<std::uint32_t>(join.rounds);
  if (join.arrival_begin) {
#pragma unroll 1
    for (std::uint32_t k = threadIdx.x; k < count; k += blockDim.x) {
      const JoinArrival arrival = join.arrival[k];
      if (arrival.cell == join.backward_cells) continue;  // padding
      std::uint32_t in = kNoWay;
      each_cell(join, static_cast<std::int32_t>(k), arrival, [&](std::int32_t cell) { in = min(in, delta[cell]); });
      const std::uint32_t out = x[arrival.cell];
      if (in < kNoWay && out < kNoWay && in + out < best) best = in + out, number = k;
    }
  } else {
    constexpr std::uint32_t together = 4;
#pragma unroll 1
    for (std::uint32_t first = threadIdx.x; first < count; first += together * blockDim.x) {
      JoinArrival arrival[together];
#pragma unroll
      for (std::uint32_t i = 0; i < together; ++i)
        arrival[i] = join.arrival[min(first + i * blockDim.x, count - 1)];  // the last one several times
#pragma unroll
      for (std::uint32_t i = 0; i < together; ++i) {
        const JoinArrival& at = arrival[i];
        const bool real = at.cell < join.backward_cells;
        const std::uint32_t in0 = real && at.x < join.forward_cells ? delta[at.x] : kNoWay,
                            in1 = real && at.y < join.forward_cells ? delta[at.y] : kNoWay,
                            out = real ? x[at.cell] : kNoWay, in = min(in0, in1);
        if (in < kNoWay && out < kNoWay && in + out < best)
          best = in + out, number = min(first + i * blockDim.x, count - 1);
      }
    }
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

// The sum of a warp's share of the largest of everything, in every lane.
__device__ double largest_sum(const Args& a, std::int32_t T) {
  const double* shift = a.scores.shift + blockIdx.x * a.batch.length;
  double sum = 0;
#pragma unroll 1
  for (std::int32_t t = threadIdx.x; t < T; t += blockDim.x) sum += shift[t];
  for (int bit = 16; bit > 0; bit /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, bit);
  return sum;
}

// Both halves of a sequence are there: its answer.
template <class Index, int kThreads>
__device__ void answer(const Args& a, std::int32_t T) {
  const Answer answer(a.best, a.batch, T, a.sweep[0].K);
  if (threadIdx.x == 0) a.redo[answer.b] = 0;
  if (T == 0) {
    answer.clear(a.scores);
    return answer.no_path(a.empty);
  }
  const auto warp = static_cast<std::int32_t>(threadIdx.x) / 32;
  // The first two warps follow, and leave bringing to the others if there are any.
  const std::int32_t free = blockDim.x > 64 ? 64 : 0, thread = static_cast<std::int32_t>(threadIdx.x) - free,
                     threads = static_cast<std::int32_t>(blockDim.x) - free;
  const Half<Index> forward(a, 0, T), backward(a, 1, T), half(a, warp == 1, T);
  const std::int32_t chunk = a.at.chunk, ring_steps = a.at.chunks * chunk;
  std::int32_t slot = a.at.chunks - 1;
  const auto bring = [&](std::int32_t j) {
    if (thread >= 0) {
      forward.bring(a.at, j, slot, thread, threads);
      backward.bring(a.at, j, slot, thread, threads);
    }
    __pipeline_commit();
    slot = slot == 0 ? a.at.chunks - 1 : slot - 1;
  };
#pragma unroll 1
  for (std::int32_t j = 0; j < a.at.chunks - 1; ++j) bring(j);
  answer.clear(a.scores);
  __shared__ double largest[kThreads / 32];
  const double warps_largest = largest_sum(a, T);
  if (threadIdx.x % 32 == 0) largest[warp] = warps_largest;
  const float scale = units(a.scores, answer.b * a.batch.length, T);
  std::int32_t n = half.steps, cell = 0;
  const std::uint32_t* now = half.ring + (ring_steps - 1) * half.cells;
  Look look(a.sweep[warp == 1]);
  double cost = static_cast<double>(a.work.taken[2 * answer.b]) + static_cast<double>(a.work.taken[2 * answer.b + 1]);
#pragma unroll 1
  for (std::int32_t j = 0; j * chunk <= max(forward.steps, backward.steps); ++j) {
    if (a.at.chunks == 2) {
      __pipeline_wait_prior(0);
    } else {
      __pipeline_wait_prior(1);
    }
    __syncthreads();  // chunk j is there, and nobody reads the one before any more
    if (j == 0) {
      const Crossing best =
          meet(a.join, forward.ring + (ring_steps - 1) * forward.cells,
               backward.ring + (ring_steps - 1) * backward.cells, on_chip<std::uint32_t>(a.at.reduce));
      if (best.at.cell[0] < 0) {
        __pipeline_wait_prior(0);
        return answer.no_path(a.empty);
      }
      cell = best.at.cell[warp == 1];
      cost += best.cost;
    }
    bring(j + a.at.chunks - 1);
    if (warp < 2) {
      const std::int32_t high = half.steps - j * chunk;
      follow(half, look, ring_steps, high, max(high - chunk + 1, 0), n, cell, now, answer.path + (warp ? T - 1 : 0),
             warp ? -1 : 1);
    }
  }
  const double score = answer.score<kThreads>(a.scores.row);
  if (threadIdx.x != 0) return;
  double bound = a.scores.shifts[0] * (T - 1) + a.scores.shifts[1] + a.scores.shifts[2];
#pragma unroll 1
  for (std::int32_t w = 0; w < static_cast<std::int32_t>(blockDim.x) / 32; ++w) bound += largest[w];
  const double error = T + 1 + cost / (1 << 24);
  if (bound - (cost - error) / static_cast<double>(scale) - score > kTolerance * fmax(1.0, fabs(score)))
    a.redo[answer.b] = 1;
}

template <std::int32_t kKind>
constexpr int kThreads = 32 * kResidentKinds[kKind].warps;

template <std::int32_t kKind>
__global__ void __launch_bounds__(kThreads<kKind>, 1) resident_kernel(const __grid_constant__ Args a) {
  using Index = std::uint16_t;
  constexpr ResidentKind kind = kResidentKinds[kKind];
  using Steps = ResidentSteps<MinPlus, Index, kind.slots, kind.repeats>;
  const std::int32_t T = blockIdx.y ? walk<Steps, true, Index>(a) : walk<Steps, false, Index>(a);
  let_kernel_behind_begin();
  __pipeline_wait_prior(0);
  if (comes_last(a.scores.met + blockIdx.x)) answer<Index, kThreads<kKind>>(a, T);
}

}  // namespace

bool resident_fits(const DeviceConstraint::Impl& c, const Batch& batch) {
  return c.forward.narrow && c.forward.kind >= 0 && layout_of(c, batch).bytes <= c.shared_bytes;
}

ResidentWork cut_resident(Cutter& cutter, const DeviceConstraint::Impl& c, const Batch& batch) {
  const auto B = static_cast<std::size_t>(batch.size);
  const Layout at = layout_of(c, batch);
  ResidentWork w{};
  for (int back = 0; back < 2; ++back) {
    const auto cells = static_cast<std::size_t>((back ? c.backward : c.forward).cells);
    w.kept[back] = cutter.take<std::uint32_t>(B * static_cast<std::size_t>(at.steps[back]) * cells);
  }
  w.taken = cutter.take<std::uint64_t>(2 * B);
  return w;
}

void run_resident(const DeviceConstraint::Impl& c, const Batch& batch, const Best& best, const Prepared<float>& scores,
                  const ResidentWork& work, std::int32_t* redo, cudaStream_t stream) {
  const Layout at = layout_of(c, batch);
  const Args args{{c.forward, c.backward}, c.join, batch, scores, work, at, best, redo, c.topology.empty};
  const auto launch = [&](auto* kernel) {
    launch_kernel(kernel, dim3(static_cast<unsigned>(batch.size), 2), static_cast<unsigned>(at.threads), at.bytes,
                  stream, args, "viterbi", c.early);
  };
  if (c.forward.kind == 0) launch(resident_kernel<0>);
  if (c.forward.kind == 1) launch(resident_kernel<1>);
  if (c.forward.kind == 2) launch(resident_kernel<2>);
}

}  // namespace regccrf::cuda
