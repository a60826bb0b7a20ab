// Viterbi for layouts in registers (step.h), in whole numbers.
//
// Scores become costs: how far a score lies below the largest of its row of emissions, or of the transitions, in units
// of a power of two, rounded. A path's cost is then a sum of numbers that are not negative, exact in 32 bits.
// kUnreachable is for what is forbidden or cannot be reached. A lower score counts as costing kMaxScoreCost, and every
// kRescaleSteps steps the lowest cost is subtracted from all, and what a cell costs beyond kMaxCellCost is left out. So
// no path costs more than it should, but for the rounding: half a unit for each score and, since floats are subtracted,
// 2⁻²⁴ of the cost.
//
// That makes the cost C of the path found a proof: no path scores more than the sum of all largest less C, with an
// error of T + 1 + 2⁻²⁴·C units. The path's own score is summed again in double; where it comes as near to that as the
// tolerance, the path stands, else the sequence is done again in double. The unit is such that the error is below the
// tolerance if the best score is not much smaller than the sum of all largest.
//
// The two blocks of a sequence are a cluster. Steps stay on chip, in a ring; only those that make way for others go to
// memory. A block sends the cells of its last step to the other, so that both find where the halves of the best path
// meet. Then a warp of each follows its half outwards through the ring, into which the others load the steps that are
// not there.
#include <cuda_pipeline.h>

#include <algorithm>

#include "inference/cuda/decode/viterbi.h"
#include "inference/cuda/step/emission_rows.h"
#include "inference/cuda/step/register_step.h"
#include "inference/numerics/limits.h"

namespace regccrf::cuda {

namespace {

using Narrow = std::uint16_t;  // a cell's number, on chip

constexpr std::uint32_t kMaxScoreCost = (1u << 23) - 1, kMaxCellCost = 1u << 29;
constexpr float kLargest = 1e10f;  // of finite scores, as bounded_score() has it
// Steps until the lowest cost is subtracted; before, no cost reaches kUnreachable.
constexpr std::int32_t kRescaleSteps = 32;
static_assert(kMaxCellCost + 2 * kRescaleSteps * std::uint64_t{kMaxScoreCost} < kUnreachable);
constexpr std::int32_t kMostChunk = 32;  // steps loaded at once: one for each lane of the warp that follows the path
constexpr std::int32_t kChunks = 4;      // of the ring

// What a block has in shared memory, in bytes from its beginning. Barriers come first, so that both blocks of a cluster
// have them at the same address.
struct SharedLayout {
  int barriers, reduce, largest, cost_scale, part, matrix, sparse, row_of, source, idle, group, edges, rows, other,
      ring, bytes;
  std::int32_t row_count;  // rows of emissions
  std::int32_t steps;      // that the half may have, and one
  std::int32_t stride;     // from one step of the ring to the next
  std::int32_t chunk;      // steps loaded at once
  __host__ __device__ std::int32_t ring_steps() const { return kChunks * chunk; }
  __host__ __device__ std::int64_t saved_steps() const { return steps > ring_steps() ? steps - ring_steps() : 0; }
};

// What a block knows of its sequence; but for `removed`, both blocks know the same.
struct CostScale {
  float transitions;  // their largest: what costs are relative to
  float scale;        // units of cost in a unit of score
  std::int32_t T;     // the length
  double removed;     // subtracted from the costs of the half
};

// Where the best path is at the middle, forward and backward, and what it costs beside what was subtracted. Of equals
// the one with the lowest number.
struct alignas(16) Middle {
  std::uint32_t cost, number;
  std::int32_t cell[2];
};
constexpr std::uint32_t kNoMiddle = 0xffffffff;  // number: there is no path

// What the answer takes from the other half: its share of the path's score, and what was subtracted from its costs.
struct OtherHalf {
  Sum score;
  double removed;
};

// Some warps at least, for the work before the first step; more where every block has a multiprocessor to itself.
int threads_of(const DeviceConstraint::Impl& c, const Batch& batch) {
  return 32 * std::max({c.forward.in_registers.warps, c.backward.in_registers.warps,
                        2 * batch.size <= c.processors ? 8 : 4});
}

SharedLayout layout_of(const DeviceConstraint::Impl& c, const Batch& batch, int back) {
  const DeviceStep &layout = back ? c.backward : c.forward, &other = back ? c.forward : c.backward;
  const std::int64_t K = c.topology.K;
  SharedLayout at{};
  std::int64_t bytes = 0;
  const auto take = [&](std::int64_t count, std::int64_t size) {
    const auto here = static_cast<int>(std::min<std::int64_t>(bytes, c.shared_bytes));
    bytes += round_up(count * size, 16);
    return here;
  };
  at.steps = batch.length > 0 ? Halves(static_cast<std::int32_t>(batch.length)).steps[back] + 1 : 0;
  at.row_count = rows_in_shared<std::uint32_t>(c, at.steps);
  at.stride = static_cast<std::int32_t>(padded_cells(layout.all_cells()));
  at.barriers = take(2, sizeof(TransactionBarrier));
  at.reduce = take(32, sizeof(Middle));
  at.largest = take(1, sizeof(double));
  at.cost_scale = take(1, sizeof(CostScale));
  at.part = take(1, sizeof(OtherHalf));
  at.matrix = take(layout.gains, 4);
  at.sparse = take(std::int64_t{layout.sparse} * layout.sparse_slots, 4);
  at.row_of = take(layout.cells, sizeof(RowOf));
  at.source = take(std::int64_t{layout.sparse} * layout.sparse_slots, 2 * sizeof(Narrow));
  at.idle = take(layout.idle, sizeof(std::uint16_t));
  at.group = take(layout.groups, sizeof(DenseGroup));
  at.edges = take(K, 4);
  at.rows = take((at.row_count + 1) * (K + 1), 4);
  at.other = take(other.cells, 4);
  const std::int64_t step = 4 * std::int64_t{at.stride}, room = (c.shared_bytes - bytes) / step / kChunks;
  at.chunk = static_cast<std::int32_t>(
      std::clamp<std::int64_t>(std::min<std::int64_t>(room, ceil_div(at.steps, kChunks)), 1, kMostChunk));
  at.ring = take(at.ring_steps(), step);
  at.bytes = static_cast<int>(std::min<std::int64_t>(bytes, c.shared_bytes + 1));
  return at;
}

struct IntegerViterbiArgs {
  DeviceStep layout[2];
  DeviceTopology topology;
  Batch batch;
  Prepared<float> scores;
  IntegerMemory work;
  SharedLayout at[2];
  Best best;
  std::int32_t* redo;
};

__device__ std::int64_t sequence() { return blockIdx.x / 2; }
__device__ const double* largest_of_rows(const IntegerViterbiArgs& a) {
  return a.scores.shift + sequence() * a.batch.length;
}

template <class T>
__device__ T* on_chip(int at) {
  return reinterpret_cast<T*>(shared_memory() + at);
}

// --- costs

// `largest`: of the scores that this one is among.
__device__ std::uint32_t cost_of(float score, float largest, float scale) {
  if (!(score > -INFINITY)) return kUnreachable;
  const float cost = (largest - fmaxf(score, -kLargest)) * scale;
  return __float2uint_rn(fminf(fmaxf(cost, 0.0f), static_cast<float>(kMaxScoreCost)));
}
// The largest of some scores, as Prepared has it; where they are no numbers, any will do.
__device__ float as_largest(double most) { return isfinite(most) ? static_cast<float>(most) : 0; }

// By a warp, each for itself. Some positions speak for all.
__device__ CostScale cost_scale(const IntegerViterbiArgs& a, std::int32_t T) {
  float sum = as_largest(largest_of_rows(a)[std::int64_t{threadIdx.x % 32} * T / 32]);
  for (int bit = 16; bit > 0; bit /= 2) sum += __shfl_xor_sync(kAllLanes, sum, bit);
  CostScale m{as_largest(a.scores.shifts[0]), 0, T, 0};
  const auto length = static_cast<float>(T);
  const float best = fabsf((sum / 32 + m.transitions) * length),
              unit = static_cast<float>(kTolerance) * fmaxf(1.0f, 0.25f * best) / (1.25f * (length + 1));
  const std::int32_t exponent = static_cast<std::int32_t>(__float_as_uint(unit) >> 23) - 127;
  m.scale = __uint_as_float(static_cast<std::uint32_t>(127 - exponent) << 23);
  return m;
}

// Reads an emission as its cost. `largest`: of the rows.
struct AsCost {
  const double* largest;
  float scale;
  __device__ std::uint32_t operator()(float score, std::int32_t position) const {
    return cost_of(score, as_largest(largest[position]), scale);
  }
};

// --- towards the middle

// Subtracts the lowest cost from all cells; how much that was. `room`: 32 numbers. Has barriers, and ends with one.
__device__ std::uint32_t subtract_least(std::uint32_t* cells, std::int32_t count, std::uint32_t* room) {
  std::uint32_t least = kUnreachable;
#pragma unroll 1
  for (std::int32_t c = threadIdx.x; c < count; c += blockDim.x) least = min(least, cells[c]);
  least = reduce_min(least);
  __syncthreads();
  if (threadIdx.x % 32 == 0) room[threadIdx.x / 32] = least;
  __syncthreads();
  least = reduce_min(room[threadIdx.x % 32 < blockDim.x / 32 ? threadIdx.x % 32 : 0]);
  if (least == kUnreachable) return 0;
#pragma unroll 1
  for (std::int32_t c = threadIdx.x; c < count; c += blockDim.x)
    if (cells[c] < kUnreachable) cells[c] = min(cells[c] - least, kMaxCellCost);
  __syncthreads();
  return least;
}

struct Epilogue {
  const std::uint32_t* row;
  std::uint32_t* next;

  __device__ std::uint32_t weight(std::uint32_t label) const { return value_of(row, label); }
  __device__ void store(std::uint32_t cell, std::uint32_t weight, std::uint32_t best) const {
    put(next, cell, min(best + weight, kUnreachable));
  }
};

// A block's half of a sequence, from its end to the middle.
template <class Steps, bool kBack>
class HalfWalk {
 public:
  __device__ explicit HalfWalk(const IntegerViterbiArgs& a)
      : a_(a), layout_(a.layout[kBack]), at_(a.at[kBack]), thread_(thread_number()) {}

  // The length of the sequence. Sends the last step's cells to the other block, and leaves a CostScale on chip.
  __device__ std::int32_t run() {
    auto* barriers = on_chip<TransactionBarrier>(at_.barriers);
    if (thread_ == 0) {
      init_barrier(barriers);
      init_barrier(barriers + 1);
    }
    arrive_cluster();
    load_tables();
    __pipeline_commit();
    Steps steps(layout_);
    wait_for_prior_kernel();
    const std::int32_t T = a_.scores.length[sequence()];
    if (T == 0) return 0;
    Rows rows = make_costs(T);
    __pipeline_wait_prior(0);
    __syncthreads();
    steps.load_gains_by_thread(layout_, on_chip<std::uint32_t>(at_.matrix), on_chip<std::uint32_t>(at_.sparse));
    const std::uint32_t* cells = run_steps(steps, rows, Halves(T).steps[kBack]);
    wait_cluster();  // the other block's barriers are initialised; nothing else is stored at `other`
    auto* there = on_chip<std::uint64_t>(a_.at[!kBack].other);
    for (std::int32_t c = thread_; c < layout_.cells / 2; c += blockDim.x)
      send(there + c, !kBack, reinterpret_cast<const std::uint64_t*>(cells)[c], barriers);
    if (thread_ == 0) expect(barriers, static_cast<std::uint32_t>(4 * a_.layout[!kBack].cells));
    return T;
  }

 private:
  using Rows = EmissionRows<std::uint32_t, kBack, float, AsCost>;

  // What the path is followed by, on its way onto the chip.
  __device__ void load_tables() const {
    const auto load = [&](int to, const void* from, std::int32_t bytes) {
#pragma unroll 1
      for (std::int32_t i = 16 * thread_; i < bytes; i += static_cast<std::int32_t>(16 * blockDim.x))
        __pipeline_memcpy_async(on_chip<char>(to) + i, static_cast<const char*>(from) + i, 16);
    };
    load(at_.row_of, layout_.row_of, layout_.cells * int{sizeof(RowOf)});
    for (std::int32_t i = thread_; i < 2 * layout_.sparse * layout_.sparse_slots; i += blockDim.x)
      on_chip<Narrow>(at_.source)[i] =
          static_cast<Narrow>(reinterpret_cast<const std::int32_t*>(layout_.sparse_source)[i]);
    load(at_.idle, layout_.idle_cell, layout_.idle * int{sizeof(std::uint16_t)});
    load(at_.group, layout_.group, layout_.groups * int{sizeof(DenseGroup)});
  }

  // The costs of everything but later rows.
  __device__ Rows make_costs(std::int32_t T) {
    const CostScale m = cost_scale(a_, T);
    if (thread_ == 0) *on_chip<CostScale>(at_.cost_scale) = m;
    const auto* g = static_cast<const float*>(a_.batch.transitions.data);
    const auto entries = [&](int to, const std::int32_t* entry, std::int32_t count) {
#pragma unroll 8
      for (std::int32_t i = thread_; i < count; i += blockDim.x)
        on_chip<std::uint32_t>(to)[i] = cost_of(entry[i] >= 0 ? g[entry[i]] : -INFINITY, m.transitions, m.scale);
    };
    entries(at_.matrix, layout_.gain_entry, layout_.gains);
    entries(at_.sparse, layout_.entry + layout_.first_sparse_entry, layout_.sparse * layout_.sparse_slots);
    const float* edge = kBack ? a_.scores.end : a_.scores.start;
    const float largest = as_largest(a_.scores.shifts[1 + kBack]);
    for (std::int32_t k = thread_; k < layout_.K; k += blockDim.x)
      on_chip<std::uint32_t>(at_.edges)[k] = cost_of(edge[k], largest, m.scale);
    std::uint32_t* rows_at = zeros() + layout_.K + 1;
    for (std::int32_t k = thread_; k <= layout_.K; k += blockDim.x) zeros()[k] = k < layout_.K ? 0 : kUnreachable;
    Rows rows(rows_at, at_.row_count, a_.scores.emissions + sequence() * a_.batch.length * (layout_.K + 1), layout_.K,
              T, AsCost{largest_of_rows(a_), m.scale});
    rows.stage(0);
    return rows;
  }

  // The row of the step in the middle, which leaves out its emissions in one of the two directions.
  __device__ std::uint32_t* zeros() const { return on_chip<std::uint32_t>(at_.rows); }

  // The first step's cells, and nothing in cells of the ring that no step writes.
  __device__ void begin(std::uint32_t* ring, const std::uint32_t* row, std::int32_t last) {
    const auto* row_of = on_chip<RowOf>(at_.row_of);
    const std::uint32_t* edges = on_chip<std::uint32_t>(at_.edges);
#pragma unroll 4
    for (std::int32_t c = thread_; c < layout_.cells; c += blockDim.x) {
      const RowOf at = row_of[c];
      ring[c] = at.begins ? min(edges[at.label] + row[at.label], kUnreachable) : kUnreachable;
    }
    const std::int32_t steps = min(at_.ring_steps(), last + 1);
#pragma unroll 1
    for (std::int32_t i = thread_; i < layout_.idle; i += blockDim.x) {
      std::uint32_t* at = ring + on_chip<std::uint16_t>(at_.idle)[i];
#pragma unroll 4
      for (std::int32_t n = 0; n < steps; ++n, at += at_.stride) *at = kUnreachable;
    }
    __syncthreads();
  }

  // Steps 1 … last; the cells of the last.
  __device__ const std::uint32_t* run_steps(const Steps& steps, Rows& rows, std::int32_t last) {
    auto *ring = on_chip<std::uint32_t>(at_.ring), *ring_end = ring + at_.ring_steps() * at_.stride;
    const auto next_row = [&](bool in_the_middle) {
      const std::uint32_t* row = rows.next();
      return kBack && in_the_middle ? zeros() : row;
    };
    begin(ring, next_row(last == 0), last);
    std::uint32_t *saved = a_.work.saved[kBack] + sequence() * at_.saved_steps() * layout_.cells, *now = ring,
                  *next = ring + at_.stride;
    for (std::int32_t n = 1; n <= last; ++n) {
      if (n % kRescaleSteps == 0) {
        const std::uint32_t off = subtract_least(now, layout_.cells, on_chip<std::uint32_t>(at_.reduce));
        if (thread_ == 0) on_chip<CostScale>(at_.cost_scale)->removed += off;
      }
      if (!rows.staged(n)) {
        rows.stage(n);
        __syncthreads();
      }
      const Epilogue epilogue{next_row(n == last), next};
      const auto loaded = steps.load(now);
      if (n + at_.ring_steps() <= last + 1) {  // these cells make way for others
        copy_out(saved, now, layout_.cells, thread_);
        saved += layout_.cells;
      }
      steps.sparse(now, epilogue);
      auto sums = steps.multiply(loaded);
      steps.finish_tiles(sums, now, epilogue);
      __syncthreads();
      now = next;
      next += at_.stride;
      if (next == ring_end) next = ring;
    }
    return now;
  }

  const IntegerViterbiArgs& a_;
  const DeviceStep& layout_;
  const SharedLayout& at_;
  const std::int32_t thread_;
};

// --- and outwards again

// One half of the path: what it is followed by. Its last steps are in the ring, those before are loaded, chunk after
// chunk from the middle outwards, into places that were passed.
struct Half {
  const DenseGroup* group;
  const RowOf* row_of;
  const Narrow* source;
  const std::uint32_t *matrix, *sparse_matrix, *saved;
  std::uint32_t* ring;
  std::int32_t cells, steps, stride, ring_steps, chunk;

  __device__ Half(const IntegerViterbiArgs& a, int back, std::int32_t T)
      : group(on_chip<DenseGroup>(a.at[back].group)),
        row_of(on_chip<RowOf>(a.at[back].row_of)),
        source(on_chip<Narrow>(a.at[back].source)),
        matrix(on_chip<std::uint32_t>(a.at[back].matrix)),
        sparse_matrix(on_chip<std::uint32_t>(a.at[back].sparse)),
        saved(a.work.saved[back] + sequence() * a.at[back].saved_steps() * a.layout[back].cells),
        ring(on_chip<std::uint32_t>(a.at[back].ring)),
        cells(a.layout[back].cells),
        steps(Halves(T).steps[back]),
        stride(a.at[back].stride),
        ring_steps(a.at[back].ring_steps()),
        chunk(a.at[back].chunk) {}

  __device__ std::uint32_t* step(std::int32_t n) const { return ring + n % ring_steps * stride; }
  // The highest step of chunk j, and the lowest.
  __device__ std::int32_t high(std::int32_t j) const { return steps - j * chunk; }
  __device__ std::int32_t low(std::int32_t j) const { return max(high(j) - chunk + 1, 0); }
  // Chunk j, by some threads of the block; `thread`: of those.
  __device__ void load_chunk(std::int32_t j, std::int32_t thread, std::int32_t threads) const {
#pragma unroll 1
    for (std::int32_t n = high(j); n >= low(j); --n) {
#pragma unroll 1
      for (std::int32_t i = 4 * thread; i < cells; i += 4 * threads)
        __pipeline_memcpy_async(step(n) + i, saved + std::int64_t{n} * cells + i, 16);
    }
  }
};

// Which sources of a cell (step.h) a lane looks at: of a row, two at a distance of 32 and two in the other plane, or
// one of the two of a sparse out.
template <std::int32_t kSlots>
struct LaneSources {
  std::int32_t lane, group = -1, slots = 0, plane = 0, row = 0, near = 0, far = 0;
  std::int32_t sparse_source, sparse_cost;  // from the first sparse out's to the lane's own
  bool sparse;

  __device__ explicit LaneSources(const DeviceStep& layout)
      : lane(static_cast<std::int32_t>(threadIdx.x % 32)),
        sparse_source(lane * (layout.sparse_slots > 1 ? 2 * layout.sparse : 1)),
        sparse_cost(lane * (layout.sparse_slots > 1 ? layout.sparse : 0)),
        sparse(lane < 2) {}
  __device__ void take(std::int32_t number, const DenseGroup& of) {
    group = number;
    slots = of.slots;
    plane = of.planes > 1 ? of.states * of.stride : 0;
    row = gain_row(of.tiles, of.stride / kSlots);
    near = cost(lane);
    far = cost(lane + 32);
  }
  // From the cost of a column's first slot to that of another.
  __device__ std::int32_t cost(std::int32_t slot) const { return slot % kSlots * row + slot / kSlots * 4; }
};

// The best cell of the step before, `now`, for a cell whose sources are there; a number past all cells where there is
// none. By a warp.
template <std::int32_t kSlots>
__device__ std::int32_t predecessor(const Half& half, LaneSources<kSlots>& lane, RowOf at, const std::uint32_t* now) {
  std::uint32_t best = kUnreachable;
  std::int32_t from = 0x7fffffff;
  const auto offer = [&](std::uint32_t cost, std::int32_t source) {
    from = cost < best ? source : from;
    best = min(best, cost);
  };
  if (at.group == kSparseGroup) {
    if (lane.sparse) {
      const std::int32_t source = half.source[2 * at.entry + lane.sparse_source];
      const std::uint32_t cost = half.sparse_matrix[at.entry + lane.sparse_cost];
      if (source < half.cells) offer(now[source] + cost, source);
    }
  } else {
    if (at.group != lane.group) lane.take(at.group, half.group[at.group]);
    const std::uint32_t *x = now + at.row, *y = x + lane.plane, *cost = half.matrix + at.entry;
    const auto offer_two = [&](std::int32_t i, std::int32_t to_near, std::int32_t to_far) {
      const bool near = i < lane.slots, far = i + 32 < lane.slots;
      const std::uint32_t c0 = near ? cost[to_near] : kUnreachable, c1 = far ? cost[to_far] : kUnreachable,
                          x0 = near ? x[i] : 0, y0 = near ? y[i] : 0, x1 = far ? x[i + 32] : 0,
                          y1 = far ? y[i + 32] : 0;
      const std::int32_t source = at.row + i;
      offer(x0 + c0, source);
      offer(y0 + c0, source + lane.plane);
      offer(x1 + c1, source + 32);
      offer(y1 + c1, source + 32 + lane.plane);
    };
    offer_two(lane.lane, lane.near, lane.far);
#pragma unroll 1
    for (std::int32_t i = lane.lane + 64; i < lane.slots; i += 64) offer_two(i, lane.cost(i), lane.cost(i + 32));
  }
  const std::uint32_t least = reduce_min(best);
  return reduce_min(best == least ? from : 0x7fffffff);
}

// A warp follows the path through a chunk, from step `high` to `low`. `n`, `cell`, `now`: where it is, and then where
// it has come to. `path`: of the half's first step, with the others behind or, by `direction`, before it. A lane
// remembers the cell of its own step.
template <std::int32_t kSlots>
__device__ void follow(const Half& half, LaneSources<kSlots>& lane, std::int32_t high, std::int32_t low,
                       std::int32_t& n, std::int32_t& cell, const std::uint32_t*& now, std::int32_t* path,
                       std::int32_t direction) {
  const std::int32_t own = high - lane.lane;
  std::int32_t own_cell = n == own ? cell : half.cells;
#pragma unroll 1
  while (n > low && cell < half.cells) {
    --n;
    now -= half.stride;
    if (now < half.ring) now += half.ring_steps * half.stride;
    cell = predecessor(half, lane, half.row_of[cell], now);
    if (n == own) own_cell = cell;
  }
  if (own >= low) path[direction * own] = own_cell < half.cells ? half.row_of[own_cell].label : -1;
}

// The best of what a block's threads have found. `room`: one for each warp. Has a barrier.
__device__ Middle block_best(const Middle& mine, Middle* room) {
  const auto least = [](const Middle& one) {
    const std::uint32_t cost = reduce_min(one.cost), number = reduce_min(one.cost == cost ? one.number : kNoMiddle);
    return one.cost == cost && one.number == number;
  };
  const std::uint32_t lane = threadIdx.x % 32;
  std::uint32_t who = __ballot_sync(kAllLanes, least(mine));
  if (lane == __ffs(static_cast<std::int32_t>(who)) - 1u) room[threadIdx.x / 32] = mine;
  __syncthreads();
  who = __ballot_sync(kAllLanes, least(room[lane < blockDim.x / 32 ? lane : 0]));
  return room[__ffs(static_cast<std::int32_t>(who)) - 1];
}

// Where the halves of the best path meet. `delta`, `x`: the last steps of the halves; the one that the other block
// sends is there when `barrier` is full. Has a barrier.
__device__ Middle find_middle(const DeviceTopology& top, const std::uint32_t* delta, const std::uint32_t* x,
                              TransactionBarrier* barrier, Middle* room) {
  Middle best{kNoMiddle, kNoMiddle, {-1, -1}};
  wait_for(barrier, 0);
#pragma unroll 4
  for (std::int32_t m = threadIdx.x; m < top.arrivals; m += blockDim.x) {
    std::uint32_t in = kUnreachable;
    std::int32_t from = -1;
    for (std::int32_t i = top.into_begin[m]; i < top.into_begin[m + 1]; ++i) {
      const std::int32_t cell = top.into_cell[i];
      from = delta[cell] < in ? cell : from;
      in = min(in, delta[cell]);
    }
    const std::int32_t cell = top.arrival_cell[m];
    const std::uint32_t cost = in + x[cell];
    if (in < kUnreachable && x[cell] < kUnreachable && cost < best.cost)
      best = {cost, static_cast<std::uint32_t>(m), {from, cell}};
  }
  return block_best(best, room);
}

// The sum of the largest of everything, by a warp, to all lanes.
__device__ double largest_sum(const IntegerViterbiArgs& a, const CostScale& m) {
  const double* largest = largest_of_rows(a);
  double sum = 0;
#pragma unroll 4
  for (std::int32_t t = threadIdx.x % 32; t < m.T; t += 32) sum += largest[t];
  for (int bit = 16; bit > 0; bit /= 2) sum += __shfl_xor_sync(kAllLanes, sum, bit);
  return sum + a.scores.shifts[1] + a.scores.shifts[2] + static_cast<double>(m.transitions) * (m.T - 1);
}

// One sequence's answer, each half by its block; both halves' last steps are on their way.
template <std::int32_t kSlots, int kThreads>
class HalfAnswer {
 public:
  __device__ HalfAnswer(const IntegerViterbiArgs& a, int back, std::int32_t T)
      : a_(a),
        back_(back),
        T_(T),
        at_(a.at[back]),
        scale_(*on_chip<CostScale>(at_.cost_scale)),
        barriers_(on_chip<TransactionBarrier>(at_.barriers)),
        answer_(a.best, a.batch, sequence(), T, a.layout[0].K) {}

  __device__ void run() {
    if (T_ == 0) return no_path();
    if (back_ == 0) answer_.clear_path(T_);
    const Half half(a_, back_, T_);
    const auto *own = half.step(half.steps), *other = on_chip<std::uint32_t>(at_.other);
    const Middle best =
        find_middle(a_.topology, back_ ? other : own, back_ ? own : other, barriers_, on_chip<Middle>(at_.reduce));
    if (best.number == kNoMiddle) return no_path();  // both blocks find the same, so neither waits for the other
    follow_all(half, best.cell[back_], own);
    const std::int32_t begin = back_ ? T_ - half.steps : 0, end = back_ ? T_ : half.steps + 1;  // the middle: forwards
    const Sum share = path_score(
        a_.batch, answer_.K, T_, a_.scores.row + sequence() * a_.batch.length,
        [&](std::int32_t t) { return answer_.path[t]; }, begin, end);
    const Sum mine = block_exact<kThreads>(share, end - begin);
    if (!back_) return accept_or_redo(mine, best.cost);
    if (threadIdx.x == 0) send_share(mine);
  }

 private:
  __device__ void no_path() const {
    if (back_) return;
    answer_.clear_path(0);
    if (threadIdx.x >= 32) return;
    answer_.write_status(a_.scores);
    answer_.no_path(a_.topology.empty);
    if (threadIdx.x == 0) a_.redo[sequence()] = 0;
  }

  // The first warp follows the path, the others load what it needs next.
  __device__ void follow_all(const Half& half, std::int32_t cell, const std::uint32_t* now) const {
    const std::int32_t warp = static_cast<std::int32_t>(threadIdx.x) / 32,
                       thread = static_cast<std::int32_t>(threadIdx.x) - 32,
                       threads = static_cast<std::int32_t>(blockDim.x) - 32;
    std::int32_t n = half.steps;
    LaneSources<kSlots> lane(a_.layout[back_]);
#pragma unroll 1
    for (std::int32_t j = 0; half.high(j) >= 0; ++j) {
      __pipeline_wait_prior(kChunks - 2);
      __syncthreads();  // chunk j is there, and nobody reads the one before any more
      if (j > 0 && thread >= 0) half.load_chunk(j + kChunks - 1, thread, threads);
      __pipeline_commit();
      if (warp == 1 && j == 0 && back_ == 0) {  // meanwhile
        answer_.write_status(a_.scores);
        const double largest = largest_sum(a_, scale_);
        if (threadIdx.x == 32) *on_chip<double>(at_.largest) = largest;
      }
      if (warp == 0)
        follow(half, lane, half.high(j), half.low(j), n, cell, now, answer_.path + (back_ ? T_ - 1 : 0),
               back_ ? -1 : 1);
    }
    __pipeline_wait_prior(0);
    __syncthreads();
  }

  // By one thread of the backward block; by the whole forward block.
  __device__ void send_share(const Sum& mine) const {
    OtherHalf* there = on_chip<OtherHalf>(a_.at[0].part);
    send(&there->score.sum, 0, mine.sum, barriers_ + 1);
    send(&there->score.rest, 0, mine.rest, barriers_ + 1);
    send(&there->removed, 0, scale_.removed, barriers_ + 1);
  }
  __device__ void accept_or_redo(Sum all, std::uint32_t middle_cost) const {
    const OtherHalf& other = *on_chip<OtherHalf>(at_.part);
    if (threadIdx.x == 0) expect(barriers_ + 1, sizeof(OtherHalf));
    wait_for(barriers_ + 1, 0);
    if (threadIdx.x != 0) return;
    all.add(other.score);
    const double value = all.value(), cost = scale_.removed + other.removed + middle_cost,
                 error = T_ + 1 + cost / (1 << 24),
                 bound = *on_chip<double>(at_.largest) - (cost - error) / static_cast<double>(scale_.scale);
    a_.best.score[sequence()] = value;
    a_.redo[sequence()] = bound - value > kTolerance * fmax(1.0, fabs(value));
  }

  const IntegerViterbiArgs& a_;
  const int back_;
  const std::int32_t T_;
  const SharedLayout& at_;
  const CostScale& scale_;
  TransactionBarrier* barriers_;
  const Answer answer_;
};

template <std::int32_t kKind>
__global__ void __launch_bounds__(32 * kRegisterTiles[kKind].warps, 1)
    integer_kernel(const __grid_constant__ IntegerViterbiArgs a) {
  constexpr RegisterTile kind = kRegisterTiles[kKind];
  using Steps = RegisterSteps<MinPlus, kind.slots, kind.repeats>;
  const int back = blockIdx.x % 2;
  const std::int32_t T = back ? HalfWalk<Steps, true>(a).run() : HalfWalk<Steps, false>(a).run();
  launch_dependents();
  HalfAnswer<kind.slots, 32 * kind.warps>(a, back, T).run();
}

}  // namespace

bool integer_fits(const DeviceConstraint::Impl& c, const Batch& batch) {
  return c.forward.kind >= 0 && c.clusters[1] > 0 &&
         std::max(layout_of(c, batch, 0).bytes, layout_of(c, batch, 1).bytes) <= c.shared_bytes;
}

IntegerMemory allocate_integer(Arena& arena, const DeviceConstraint::Impl& c, const Batch& batch) {
  const std::int64_t B = batch.size;
  IntegerMemory w{};
  for (int back = 0; back < 2; ++back) {
    const SharedLayout at = layout_of(c, batch, back);
    const std::int64_t cells = (back ? c.backward : c.forward).cells;
    w.saved[back] = arena.allocate<std::uint32_t>(B * std::int64_t{at.saved_steps()} * cells);
  }
  return w;
}

void run_integer(const DeviceConstraint::Impl& c, const Batch& batch, const Best& best, const Prepared<float>& scores,
                 const IntegerMemory& work, std::int32_t* redo, cudaStream_t stream) {
  const IntegerViterbiArgs args{{c.forward, c.backward},
                                c.topology,
                                batch,
                                scores,
                                work,
                                {layout_of(c, batch, 0), layout_of(c, batch, 1)},
                                best,
                                redo};
  const auto launch = [&](auto* kernel) {
    launch_kernel(kernel,
                  {.x = 2 * batch.size,
                   .threads = threads_of(c, batch),
                   .bytes = std::max(args.at[0].bytes, args.at[1].bytes),
                   .programmatic = c.programmatic,
                   .cluster = 2},
                  stream, args, "viterbi");
  };
  if (c.forward.kind == 0) launch(integer_kernel<0>);
  if (c.forward.kind == 1) launch(integer_kernel<1>);
  if (c.forward.kind == 2) launch(integer_kernel<2>);
}

}  // namespace regccrf::cuda
