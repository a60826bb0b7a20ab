// Viterbi for in registers layouts (step.h), in whole numbers.
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
// The two blocks of a sequence are a cluster. A walk takes the caller's scores as they are, beside the kernel before
// it, which prepares what the answer and the attempt in double need, and which itself has begun after all others had
// ended. With a mask it waits for that kernel, to know which positions are present. Steps stay on chip, in a ring; only
// those that make way for others go to memory. A block sends the cells of its last step to the other, so that both find
// where the halves of the best path meet. Then a warp of each follows its half outwards through the ring, into which
// the others bring the steps that are not there.
#include <cuda_pipeline.h>

#include <algorithm>

#include "inference/cuda/decode/viterbi.h"
#include "inference/cuda/step/register_step.h"
#include "inference/numerics/limits.h"

namespace regccrf::cuda {

namespace {

constexpr std::uint32_t kMostCost = (1u << 23) - 1, kMostKept = 1u << 29;
constexpr float kLargest = 1e10f;      // of finite scores, as bounded_score() has it
constexpr std::int32_t kRenewal = 32;  // steps until the lowest cost is taken off; before, no cost reaches kNoWay
static_assert(kMostKept + 2 * (kRenewal + 1) * std::uint64_t{kMostCost} < kNoWay + 2 * std::uint64_t{kMostCost});
constexpr std::int32_t kMostChunk = 32;  // steps brought at once
constexpr std::int32_t kChunks = 4;      // of the ring
constexpr std::int32_t kSamples = 32;    // positions that speak for all

// What a block has on chip, in bytes from the beginning of its shared memory. Before the first step, samples lie where
// the ring will be, and behind them the transitions if there is room; else that is negative.
struct SharedLayout {
  int boxes, reduce, largest, measure, part, matrix, sparse, row_of, source, idle, group, edges, rows, other, ring,
      transitions, bytes;
  std::int32_t row_count;  // rows of emissions
  std::int32_t steps;      // that the half may have, and one
  std::int32_t stride;     // from one step of the ring to the next
  std::int32_t chunk;      // steps brought at once
  __host__ __device__ std::int32_t ring_steps() const { return kChunks * chunk; }
  __host__ __device__ std::int64_t saved_steps() const { return steps > ring_steps() ? steps - ring_steps() : 0; }
};

// What a block knows of its sequence; but for the edge and `removed`, both blocks know the same.
struct Measure {
  float transitions, edge;  // their largest: what costs are relative to
  float scale;              // units of cost in a unit of score
  std::int32_t T;           // the length
  double removed;           // off the costs of the half
};

// Where the best path is at the middle, forward and backward, and what it costs beside what was taken off. Of equals
// the one with the lowest number.
struct alignas(16) Crossing {
  std::uint32_t cost, number;
  std::int32_t cell[2];
};

// What the answer takes from the other half: its share of the path's score, and what was taken off its costs.
struct Part {
  double sum, rest, removed;
};

// Some warps at least, since there is enough to do before the first step; more where blocks do not share a processor.
int threads_of(const DeviceConstraint::Impl& c, const Batch& batch) {
  return 32 * std::max({c.forward.warps[1], c.backward.warps[1], 2 * batch.size <= c.processors ? 8 : 4});
}

// A guess at how long a step takes; most is the same for all.
std::int32_t effort(const DeviceStep& layout, int threads) {
  const RegisterTile kind = kRegisterTiles[layout.kind];
  return kind.repeats * kind.slots * (8 + layout.two) + 24 * ((layout.sparse + threads - 1) / threads) + 600;
}

// Of 256 steps, how many are done from the begin.
std::int32_t split_of(const DeviceConstraint::Impl& c, const Batch& batch) {
  const int threads = threads_of(c, batch);
  const std::int32_t forward = effort(c.forward, threads), backward = effort(c.backward, threads);
  return 256 * backward / (forward + backward);
}

SharedLayout layout_of(const DeviceConstraint::Impl& c, const Batch& batch, int back) {
  const DeviceStep &layout = back ? c.backward : c.forward, &other = back ? c.forward : c.backward;
  const std::int64_t K = c.topology.K;
  SharedLayout at{};
  std::int64_t bytes = 0;
  const auto take = [&](std::int64_t count, std::int64_t size) {
    const auto here = static_cast<int>(std::min<std::int64_t>(bytes, c.shared_bytes));
    bytes += (count * size + 15) / 16 * 16;
    return here;
  };
  at.steps = batch.length > 0 ? Halves(static_cast<std::int32_t>(batch.length), split_of(c, batch)).steps[back] + 1 : 0;
  at.row_count = rows_in_shared<std::uint32_t>(K, at.steps);
  at.stride = static_cast<std::int32_t>(room_for(layout.all_cells));
  at.boxes = take(2, sizeof(TransactionBarrier));
  at.reduce = take(32, sizeof(Crossing));
  at.largest = take(1, sizeof(double));
  at.measure = take(1, sizeof(Measure));
  at.part = take(1, sizeof(Part));
  at.matrix = take(layout.gains, 4);
  at.sparse = take(std::int64_t{layout.sparse} * layout.sparse_slots, 4);
  at.row_of = take(layout.cells, sizeof(RowOf));
  at.source = take(std::int64_t{layout.sparse} * layout.sparse_slots, sizeof(Pair<std::uint16_t>));
  at.idle = take(layout.idle, sizeof(std::uint16_t));
  at.group = take(layout.groups, sizeof(DenseGroup));
  at.edges = take(K + 1, 4);
  at.rows = take((at.row_count + 1) * (K + 1), 4);
  at.other = take(other.cells, 4);
  const std::int64_t begin = bytes, step = 4 * std::int64_t{at.stride},
                     room = (c.shared_bytes - begin) / step / kChunks;
  at.ring = static_cast<int>(std::min<std::int64_t>(begin, c.shared_bytes));
  at.chunk = static_cast<std::int32_t>(
      std::clamp<std::int64_t>(std::min<std::int64_t>(room, (at.steps + kChunks - 1) / kChunks), 1, kMostChunk));
  bytes = begin + std::max(at.ring_steps() * step, 4 * kSamples * K);
  const std::int64_t transitions = begin + 4 * kSamples * K;
  const bool room_for_them = transitions + 4 * K * K <= c.shared_bytes;
  at.transitions = room_for_them ? static_cast<int>(transitions) : -1;
  if (room_for_them) bytes = std::max(bytes, transitions + 4 * K * K);
  at.bytes = static_cast<int>(std::min<std::int64_t>(bytes, c.shared_bytes + 1));
  return at;
}

struct IntegerViterbiArgs {
  DeviceStep layout[2];
  DeviceCombine combine;
  Batch batch;
  Prepared<float> scores;
  IntegerMemory work;
  SharedLayout at[2];
  std::int32_t split;  // of 256 steps, how many are done from the begin
  Best best;
  std::int32_t* redo;
  std::int32_t empty;  // whether a sequence of no positions is legal
};

__device__ std::int64_t sequence() { return blockIdx.x / 2; }

template <class T>
__device__ T* on_chip(int at) {
  return reinterpret_cast<T*>(shared_memory() + at);
}

// --- costs

// `largest`: of the scores that this one is among.
__device__ std::uint32_t cost_of(float score, float largest, float scale) {
  if (!(score > -INFINITY)) return kNoWay;
  const float cost = (largest - fmaxf(score, -kLargest)) * scale;
  return __float2uint_rn(fminf(fmaxf(cost, 0.0f), static_cast<float>(kMostCost)));
}

// The largest of some scores, as they count; 0 where there is none.
__device__ float as_largest(float most) { return isfinite(most) ? fminf(fmaxf(most, -kLargest), kLargest) : 0; }
__device__ float warp_largest(float mine) { return from_ordered(reduce_max(ordered(mine))); }

// Scores are brought as they are, all at once, and become costs where they lie; a thread turns those that it brought.

// A layout's entries of g; where costs will be lies, before, where in g they are (step.h).
struct Costs {
  std::uint32_t* here;
  const std::int32_t* entry;
  std::int32_t count;

  __device__ void bring() const {
    each([&](std::int32_t i) { __pipeline_memcpy_async(here + i, entry + i, 16); });
  }
  __device__ void turn(const float* transitions, float most, float scale) const {
    each([&](std::int32_t i) {
      std::uint32_t four[4];
      load4(here + i, four);
      float score[4];
#pragma unroll
      for (std::int32_t n = 0; n < 4; ++n) {
        const auto at = static_cast<std::int32_t>(four[n]);
        score[n] = i + n < count && at >= 0 ? transitions[at] : -INFINITY;
      }
      store4(here + i, {cost_of(score[0], most, scale), cost_of(score[1], most, scale), cost_of(score[2], most, scale),
                        cost_of(score[3], most, scale)});
    });
  }

 private:
  template <class Act>
  __device__ void each(const Act& act) const {
#pragma unroll 1
    for (auto i = static_cast<std::int32_t>(4 * threadIdx.x); i < count; i += static_cast<std::int32_t>(4 * blockDim.x))
      act(i);
  }
};

// act for the layout's entries of g.
template <class Act>
__device__ void each_matrix(const DeviceStep& layout, const SharedLayout& at, const Act& act) {
  act(Costs{on_chip<std::uint32_t>(at.matrix), layout.gain_entry, layout.gains});
  act(Costs{on_chip<std::uint32_t>(at.sparse), layout.sparse_entry, layout.sparse * layout.sparse_slots});
}

// Some scores in a row, each brought by a thread.
struct ScoreRow {
  float* here;
  const float* from;  // null: zeros
  std::int32_t count;

  __device__ void bring() const {
#pragma unroll 1
    for (std::int32_t k = threadIdx.x; k < count; k += blockDim.x) {
      if (from) {
        __pipeline_memcpy_async(here + k, from + k, 4);
      } else {
        here[k] = 0;
      }
    }
  }
  // Of the thread's own.
  __device__ float largest() const {
    float most = -INFINITY;
#pragma unroll 4
    for (std::int32_t k = threadIdx.x; k < count; k += blockDim.x) most = fmaxf(most, here[k]);
    return most;
  }
  __device__ void turn(float most, float scale) const {
#pragma unroll 1
    for (std::int32_t k = threadIdx.x; k < count; k += blockDim.x)
      reinterpret_cast<std::uint32_t*>(here)[k] = cost_of(here[k], most, scale);
  }
};

// The caller's emissions of the block's sequence. A row is brought, and looked at, by a warp, a few rows at once; up to
// 64 scores of each are in registers.
struct Emissions {
  static constexpr std::int32_t kTogether = 4;
  const Batch& batch;
  const std::int64_t* row;  // [T], or null: all positions are present
  std::int32_t K, T;

  __device__ Emissions(const IntegerViterbiArgs& a, std::int32_t T_)
      : batch(a.batch),
        row(a.batch.mask ? a.scores.row + sequence() * a.batch.length : nullptr),
        K(a.layout[0].K),
        T(T_) {}
  static __device__ std::int32_t lane() { return static_cast<std::int32_t>(threadIdx.x % 32); }
  // act(n) for the warp's numbers below count, every `further`-th.
  template <class Act>
  static __device__ void each(std::int32_t count, const Act& act, std::int32_t further = 1) {
#pragma unroll 1
    for (auto n = static_cast<std::int32_t>(threadIdx.x / 32); n < count; n += further * warps()) act(n);
  }
  static __device__ std::int32_t warps() { return static_cast<std::int32_t>(blockDim.x / 32); }
  __device__ std::int64_t row_at(std::int32_t t) const {
    return (row ? row[t] : sequence() * batch.batch_stride + t * batch.time_stride) * K;
  }
  __device__ void bring(std::int32_t t, float* to) const {
    const std::int64_t at = row_at(t);
    if (batch.emissions.type == Type::f32) {
      const float* from = static_cast<const float*>(batch.emissions.data) + at;
      if (lane() < K) __pipeline_memcpy_async(to + lane(), from + lane(), 4);
      if (lane() + 32 < K) __pipeline_memcpy_async(to + lane() + 32, from + lane() + 32, 4);
#pragma unroll 1
      for (std::int32_t k = lane() + 64; k < K; k += 32) __pipeline_memcpy_async(to + k, from + k, 4);
    } else {
#pragma unroll 1
      for (std::int32_t k = lane(); k < K; k += 32) to[k] = static_cast<float>(score_at(batch.emissions, at + k));
    }
  }
  // act(r, x, y, largest) for the warp's rows below count, two of a lane's scores, -inf
  // where there is none, and the largest of the row. here(r): the row.
  template <class Here, class Act>
  __device__ void each_largest(std::int32_t count, const Here& here, const Act& act) const {
    each(
        count,
        [&](std::int32_t first) {
          float x[kTogether], y[kTogether], most[kTogether];
#pragma unroll
          for (std::int32_t i = 0; i < kTogether; ++i) {
            const float* row = here(first + i * warps() < count ? first + i * warps() : first);
            x[i] = lane() < K ? row[lane()] : -INFINITY;
            y[i] = lane() + 32 < K ? row[lane() + 32] : -INFINITY;
            most[i] = fmaxf(x[i], y[i]);
#pragma unroll 1
            for (std::int32_t k = lane() + 64; k < K; k += 32) most[i] = fmaxf(most[i], row[k]);
          }
#pragma unroll
          for (float& m : most) m = as_largest(warp_largest(m));
#pragma unroll
          for (std::int32_t i = 0; i < kTogether; ++i) {
            if (first + i * warps() < count) act(first + i * warps(), x[i], y[i], most[i]);
          }
        },
        kTogether);
  }
};

// Some positions that speak for all.
struct Samples {
  const Emissions& emissions;
  float* here;

  __device__ void bring() const {
    emissions.each(kSamples, [&](std::int32_t i) {
      emissions.bring(static_cast<std::int32_t>(std::int64_t{i} * emissions.T / kSamples), here + i * emissions.K);
    });
  }
  // The sum of the warp's.
  __device__ float largest() const {
    float sum = 0;
    emissions.each_largest(
        kSamples, [&](std::int32_t i) { return here + i * emissions.K; },
        [&](std::int32_t, float, float, float largest) { sum += largest; });
    return sum;
  }
};

// `most`: room for 96 numbers. Meets.
__device__ Measure measure(float transitions, float edge, float samples, std::int32_t T, float* most) {
  float* sums = most + 64;
  const auto lane = static_cast<std::int32_t>(threadIdx.x % 32), warp = static_cast<std::int32_t>(threadIdx.x / 32),
             warps = static_cast<std::int32_t>(blockDim.x / 32);
  transitions = warp_largest(transitions);
  edge = warp_largest(edge);
  if (lane == 0) {
    most[warp] = transitions;
    most[32 + warp] = edge;
    sums[warp] = samples;
  }
  __syncthreads();
  Measure m{};
  m.transitions = as_largest(warp_largest(most[lane < warps ? lane : 0]));
  m.edge = as_largest(warp_largest(most[32 + (lane < warps ? lane : 0)]));
  float sum = 0;
#pragma unroll 4
  for (std::int32_t w = 0; w < warps; ++w) sum += sums[w];
  const auto length = static_cast<float>(T);
  const float best = fabsf((sum / kSamples + m.transitions) * length),
              unit = static_cast<float>(kTolerance) * fmaxf(1.0f, 0.25f * best) / (1.25f * (length + 1));
  const std::int32_t exponent = static_cast<std::int32_t>(__float_as_uint(unit) >> 23) - 127;
  m.T = T;
  m.scale = __uint_as_float(static_cast<std::uint32_t>(127 - exponent) << 23);
  return m;
}

// The emissions' costs of some steps, on chip, one step after the other.
template <bool kBack>
class CostRows {
 public:
  __device__ explicit CostRows(const IntegerViterbiArgs& a) : a_(a) {
#pragma unroll 1
    for (std::int32_t k = threadIdx.x; k < width(); k += blockDim.x)
      room()[k - width()] = k + 1 < width() ? 0 : kNoWay;  // a row of zeros
  }
  // The rows of step n, of a sequence of T positions, and of those behind it are asked for; the block must not be
  // reading rows. Once they are there, turn() makes them costs, and then the block has to meet.
  __device__ void bring(std::int32_t n, std::int32_t T) {
    const std::int32_t count = min(a_.at[kBack].row_count, T - n), first = kBack ? T - n - count : n;
    end_ = n + count;
    row_ = room() + (kBack ? count - 1 : 0) * width();
    const Emissions emissions(a_, T);
    emissions.each(count, [&](std::int32_t r) { emissions.bring(first + r, row(r)); });
  }
  __device__ void turn(std::int32_t n, std::int32_t T, float scale) const {
    const Emissions emissions(a_, T);
    emissions.each_largest(
        end_ - n, [&](std::int32_t r) { return row(r); },
        [&](std::int32_t r, float x, float y, float largest) {
          std::uint32_t* cost = room() + r * width();
          const std::int32_t k = Emissions::lane();
          if (k < width()) cost[k] = cost_of(x, largest, scale);  // the last one: none
          if (k + 32 < width()) cost[k + 32] = cost_of(y, largest, scale);
#pragma unroll 1
          for (std::int32_t i = k + 64; i < width(); i += 32)
            cost[i] = i + 1 < width() ? cost_of(row(r)[i], largest, scale) : kNoWay;
        });
  }
  __device__ bool there(std::int32_t n) const { return n < end_; }
  // The row of the next step. The one in the middle, the last, leaves out its emissions in one of the two directions.
  __device__ const std::uint32_t* next(bool last) {
    const std::uint32_t* row = kBack && last ? room() - width() : row_;
    row_ += kBack ? -width() : width();
    return row;
  }

 private:
  __device__ std::int32_t width() const { return a_.layout[0].K + 1; }
  __device__ std::uint32_t* room() const { return on_chip<std::uint32_t>(a_.at[kBack].rows) + width(); }
  __device__ float* row(std::int32_t r) const { return reinterpret_cast<float*>(room() + r * width()); }

  const IntegerViterbiArgs& a_;
  const std::uint32_t* row_ = nullptr;
  std::int32_t end_ = 0;
};

// --- towards the middle

// The block's least number. `room`: 32 numbers. Meets.
__device__ std::uint32_t block_least(std::uint32_t mine, std::uint32_t* room) {
  const std::uint32_t least = reduce_min(mine);
  __syncthreads();
  if (threadIdx.x % 32 == 0) room[threadIdx.x / 32] = least;
  __syncthreads();
  return reduce_min(room[threadIdx.x % 32 < blockDim.x / 32 ? threadIdx.x % 32 : 0]);
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

// The first step's cells.
__device__ void begin(const RowOf* row_of, const std::uint32_t* edges, const std::uint32_t* row, std::uint32_t* ring,
                      std::int32_t cells, std::int32_t thread) {
#pragma unroll 4
  for (std::int32_t c = thread; c < cells; c += blockDim.x) {
    const RowOf at = row_of[c];
    ring[c] = at.begins ? min(edges[at.label] + row[at.label], kNoWay) : kNoWay;
  }
}
// Nothing is in cells of the ring that no step writes.
__device__ void clear_idle(const std::uint16_t* cell, std::int32_t count, std::uint32_t* ring, std::int32_t stride,
                           std::int32_t steps, std::int32_t thread) {
#pragma unroll 1
  for (std::int32_t i = thread; i < count; i += blockDim.x) {
    std::uint32_t* at = ring + cell[i];
#pragma unroll 4
    for (std::int32_t n = 0; n < steps; ++n, at += stride) *at = kNoWay;
  }
}

// What the path is followed by, on its way onto the chip.
__device__ void bring_tables(const DeviceStep& layout, const SharedLayout& at) {
  const auto bring = [&](int to, const void* from, std::int32_t bytes) {
#pragma unroll 1
    for (auto i = static_cast<std::int32_t>(16 * threadIdx.x); i < bytes;
         i += static_cast<std::int32_t>(16 * blockDim.x))
      __pipeline_memcpy_async(on_chip<char>(to) + i, static_cast<const char*>(from) + i, 16);
  };
  bring(at.row_of, layout.row_of, layout.cells * int{sizeof(RowOf)});
  bring(at.source, layout.tables + layout.sparse_source_at,
        layout.sparse * layout.sparse_slots * int{sizeof(Pair<std::uint16_t>)});
  bring(at.idle, layout.idle_cell, layout.idle * int{sizeof(std::uint16_t)});
  bring(at.group, layout.tables + layout.group_at, layout.groups * int{sizeof(DenseGroup)});
}

// The length of the sequence. Sends the last step's cells to the other block, and leaves a Measure on chip.
template <class Steps, bool kBack, class Index>
__device__ std::int32_t walk(const IntegerViterbiArgs& a) {
  const std::int64_t b = sequence();
  const DeviceStep& layout = a.layout[kBack];
  const SharedLayout& at = a.at[kBack];
  const StepView<Index> view(layout, layout.tables, 1);
  const std::int32_t thread = thread_number();
  each_matrix(layout, at, [](const Costs& costs) { costs.bring(); });
  auto* box = on_chip<TransactionBarrier>(at.boxes);
  if (thread == 0) {
    init_barrier(box);
    init_barrier(box + 1);
  }
  arrive_cluster();
  if (a.batch.mask) wait_for_prior_kernel();
  const std::int32_t T = a.batch.mask ? a.scores.length[b] : static_cast<std::int32_t>(a.batch.length);
  if (T == 0) return T;
  const Emissions emissions(a, T);
  const Samples samples{emissions, on_chip<float>(at.ring)};
  const ScoreRow edges{on_chip<float>(at.edges), static_cast<const float*>((kBack ? a.batch.end : a.batch.start).data),
                       view.K};
  const auto* g = static_cast<const float*>(a.batch.transitions.data);
  const ScoreRow transitions{on_chip<float>(at.transitions), g, view.K * view.K};
  CostRows<kBack> rows(a);
  if (at.transitions >= 0) transitions.bring();
  rows.bring(0, T);
  samples.bring();
  edges.bring();
  __pipeline_commit();
  bring_tables(layout, at);
  __pipeline_commit();
  Steps steps(view);
  __pipeline_wait_prior(1);
  const float largest =
      at.transitions < 0 ? ScoreRow{const_cast<float*>(g), g, view.K * view.K}.largest() : transitions.largest();
  const Measure m = measure(largest, edges.largest(), samples.largest(), T, on_chip<float>(at.reduce));
  each_matrix(layout, at, [&](const Costs& costs) {
    costs.turn(at.transitions < 0 ? g : transitions.here, m.transitions, m.scale);
  });
  edges.turn(m.edge, m.scale);
  rows.turn(0, T, m.scale);
  if (thread == 0) *on_chip<Measure>(at.measure) = m;
  __pipeline_wait_prior(0);
  __syncthreads();
  steps.load_gains_by_thread(view, on_chip<std::uint32_t>(at.matrix), on_chip<std::uint32_t>(at.sparse));
  const std::int32_t last = Halves(T, a.split).steps[kBack];
  auto *ring = on_chip<std::uint32_t>(at.ring), *ring_end = ring + at.ring_steps() * at.stride;
  begin(on_chip<RowOf>(at.row_of), on_chip<std::uint32_t>(at.edges), rows.next(last == 0), ring, view.cells, thread);
  clear_idle(on_chip<std::uint16_t>(at.idle), layout.idle, ring, at.stride, min(at.ring_steps(), last + 1), thread);
  __syncthreads();
  std::uint32_t *saved = a.work.saved[kBack] + b * at.saved_steps() * view.cells, *now = ring, *next = ring + at.stride;
  for (std::int32_t n = 1; n <= last; ++n) {
    if (n % kRenewal == 0) {
      const std::uint32_t off = take_off(now, view.cells, on_chip<std::uint32_t>(at.reduce));
      if (thread == 0) on_chip<Measure>(at.measure)->removed += off;
    }
    if (!rows.there(n)) {
      const Measure& known = *on_chip<Measure>(at.measure);
      rows.bring(n, known.T);
      __pipeline_commit();
      __pipeline_wait_prior(0);
      rows.turn(n, known.T, known.scale);
      __syncthreads();
    }
    const Emit emit{rows.next(n == last), next};
    const auto loaded = steps.load(now);
    if (n + at.ring_steps() <= last + 1) {  // these cells make way for others
      copy_out(saved, now, view.cells, thread);
      saved += view.cells;
    }
    steps.sparse(now, emit);
    auto sums = steps.multiply(loaded);
    steps.finish_tiles(sums, now, emit);
    __syncthreads();
    now = next;
    next += at.stride;
    if (next == ring_end) next = ring;
  }
  wait_cluster();
  for (std::int32_t c = thread; c < view.cells / 2; c += blockDim.x)
    send(on_chip<std::uint64_t>(a.at[!kBack].other) + c, !kBack, reinterpret_cast<const std::uint64_t*>(now)[c], box);
  if (thread == 0) expect(box, static_cast<std::uint32_t>(4 * a.layout[!kBack].cells));
  return on_chip<Measure>(at.measure)->T;
}

// --- and outwards again

// One half of the path: what it is followed by. Its last steps are in the ring, those before are brought, chunk after
// chunk from the middle outwards, into places that were passed.
template <class Index>
struct Half {
  const DenseGroup* group;
  const RowOf* row_of;
  const Index* source;
  const std::uint32_t *matrix, *sparse_matrix, *saved;
  std::uint32_t* ring;
  std::int32_t cells, steps, stride, ring_steps, chunk;

  __device__ Half(const IntegerViterbiArgs& a, int back, std::int32_t T)
      : group(on_chip<DenseGroup>(a.at[back].group)),
        row_of(on_chip<RowOf>(a.at[back].row_of)),
        source(on_chip<Index>(a.at[back].source)),
        matrix(on_chip<std::uint32_t>(a.at[back].matrix)),
        sparse_matrix(on_chip<std::uint32_t>(a.at[back].sparse)),
        saved(a.work.saved[back] + sequence() * a.at[back].saved_steps() * a.layout[back].cells),
        ring(on_chip<std::uint32_t>(a.at[back].ring)),
        cells(a.layout[back].cells),
        steps(back ? Halves(T, a.split).steps[1] : Halves(T, a.split).steps[0]),
        stride(a.at[back].stride),
        ring_steps(a.at[back].ring_steps()),
        chunk(a.at[back].chunk) {}

  __device__ std::uint32_t* step(std::int32_t n) const { return ring + n % ring_steps * stride; }
  // The highest step of chunk j, and the lowest.
  __device__ std::int32_t high(std::int32_t j) const { return steps - j * chunk; }
  __device__ std::int32_t low(std::int32_t j) const { return max(high(j) - chunk + 1, 0); }
  // Chunk j, by some threads of the block; `thread`: of those.
  __device__ void bring(std::int32_t j, std::int32_t thread, std::int32_t threads) const {
#pragma unroll 1
    for (std::int32_t n = high(j); n >= low(j); --n) {
#pragma unroll 1
      for (std::int32_t i = 4 * thread; i < cells; i += 4 * threads)
        __pipeline_memcpy_async(step(n) + i, saved + std::int64_t{n} * cells + i, 16);
    }
  }
};

// How a lane looks at the sources of a cell (step.h): those of a row, two at a distance of 32 and two in the other
// plane, or one of the two that a sparse out has.
template <std::int32_t kSlots>
struct Look {
  std::int32_t lane, group = -1, slots = 0, plane = 0, row = 0, near = 0, far = 0;
  std::int32_t sparse_source, sparse_cost;  // from the first sparse out's to the lane's own
  bool sparse;

  __device__ explicit Look(const DeviceStep& layout)
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
template <class Index, std::int32_t kSlots>
__device__ std::int32_t predecessor(const Half<Index>& half, Look<kSlots>& look, RowOf at, const std::uint32_t* now) {
  std::uint32_t best = kNoWay;
  std::int32_t from = 0x7fffffff;
  const auto offer = [&](std::uint32_t cost, std::int32_t source) {
    from = cost < best ? source : from;
    best = min(best, cost);
  };
  if (at.group == kSparseGroup) {
    if (look.sparse) {
      const std::int32_t source = half.source[2 * at.entry + look.sparse_source];
      const std::uint32_t cost = half.sparse_matrix[at.entry + look.sparse_cost];
      if (source < half.cells) offer(now[source] + cost, source);
    }
  } else {
    if (at.group != look.group) look.take(at.group, half.group[at.group]);
    const std::uint32_t *x = now + at.row, *y = x + look.plane, *cost = half.matrix + at.entry;
    const auto offer_two = [&](std::int32_t i, std::int32_t to_near, std::int32_t to_far) {
      const bool near = i < look.slots, far = i + 32 < look.slots;
      const std::uint32_t c0 = near ? cost[to_near] : kNoWay, c1 = far ? cost[to_far] : kNoWay, x0 = near ? x[i] : 0,
                          y0 = near ? y[i] : 0, x1 = far ? x[i + 32] : 0, y1 = far ? y[i + 32] : 0;
      const std::int32_t source = at.row + i;
      offer(x0 + c0, source);
      offer(y0 + c0, source + look.plane);
      offer(x1 + c1, source + 32);
      offer(y1 + c1, source + 32 + look.plane);
    };
    offer_two(look.lane, look.near, look.far);
#pragma unroll 1
    for (std::int32_t i = look.lane + 64; i < look.slots; i += 64) offer_two(i, look.cost(i), look.cost(i + 32));
  }
  const std::uint32_t least = reduce_min(best);
  return reduce_min(best == least ? from : 0x7fffffff);
}

// A warp follows the path through a chunk, from step `high` to `low`. `n`, `cell`, `now`: where it is, and then where
// it has come to. `path`: of the half's first step, with the others behind or, by `direction`, before it. A lane
// remembers the cell of its own step.
template <class Index, std::int32_t kSlots>
__device__ void follow(const Half<Index>& half, Look<kSlots>& look, std::int32_t high, std::int32_t low,
                       std::int32_t& n, std::int32_t& cell, const std::uint32_t*& now, std::int32_t* path,
                       std::int32_t direction) {
  const std::int32_t own = high - look.lane;
  std::int32_t own_cell = n == own ? cell : half.cells;
#pragma unroll 1
  while (n > low && cell < half.cells) {
    --n;
    now -= half.stride;
    if (now < half.ring) now += half.ring_steps * half.stride;
    cell = predecessor(half, look, half.row_of[cell], now);
    if (n == own) own_cell = cell;
  }
  if (own >= low) path[direction * own] = own_cell < half.cells ? half.row_of[own_cell].label : -1;
}

// Where the halves of the best path meet; number 0xffffffff: there is no path. `delta`, `x`: the last steps of the
// halves; the one that the other block sends is there when `box` is full. Meets.
__device__ Crossing meet(const DeviceCombine& combine, const std::uint32_t* delta, const std::uint32_t* x,
                         TransactionBarrier* box, Crossing* room) {
  Crossing best{0xffffffffu, 0xffffffffu, {-1, -1}};
  const auto count = 32u * static_cast<std::uint32_t>(combine.rounds);
  if (combine.arrival_begin) {
    wait_for(box, 0);
#pragma unroll 1
    for (std::uint32_t k = threadIdx.x; k < count; k += blockDim.x) {
      const CombineArrival arrival = combine.arrival[k];
      if (arrival.cell == combine.backward_cells) continue;  // padding
      std::uint32_t in = kNoWay;
      std::int32_t from = -1;
      each_cell(combine, static_cast<std::int32_t>(k), arrival, [&](std::int32_t cell) {
        from = delta[cell] < in ? cell : from;
        in = min(in, delta[cell]);
      });
      const std::uint32_t out = x[arrival.cell];
      if (in < kNoWay && out < kNoWay && in + out < best.cost) best = {in + out, k, {from, arrival.cell}};
    }
  } else {
    constexpr std::uint32_t together = 8;
    CombineArrival arrival[together];
    const auto ask = [&](std::uint32_t first) {
#pragma unroll
      for (std::uint32_t i = 0; i < together; ++i)
        arrival[i] = combine.arrival[min(first + i * blockDim.x, count - 1)];  // the last one several times
    };
    ask(threadIdx.x);
    wait_for(box, 0);
#pragma unroll 1
    for (std::uint32_t first = threadIdx.x; first < count; first += together * blockDim.x) {
      if (first > threadIdx.x) ask(first);
#pragma unroll
      for (std::uint32_t i = 0; i < together; ++i) {
        const CombineArrival& at = arrival[i];
        const bool real = at.cell < combine.backward_cells;
        const std::uint32_t in0 = real && at.x < combine.forward_cells ? delta[at.x] : kNoWay,
                            in1 = real && at.y < combine.forward_cells ? delta[at.y] : kNoWay,
                            out = real ? x[at.cell] : kNoWay, in = min(in0, in1);
        if (in < kNoWay && out < kNoWay && in + out < best.cost)
          best = {in + out, min(first + i * blockDim.x, count - 1), {in1 < in0 ? at.y : at.x, at.cell}};
      }
    }
  }
  // Every warp's best, and of those the best.
  const auto least = [](const Crossing& mine) {
    const std::uint32_t cost = reduce_min(mine.cost),
                        number = reduce_min(mine.cost == cost ? mine.number : 0xffffffffu);
    return mine.cost == cost && mine.number == number;
  };
  const std::uint32_t lane = threadIdx.x % 32;
  std::uint32_t who = __ballot_sync(0xffffffffu, least(best));
  if (lane == __ffs(static_cast<std::int32_t>(who)) - 1u) room[threadIdx.x / 32] = best;
  __syncthreads();
  who = __ballot_sync(0xffffffffu, least(room[lane < blockDim.x / 32 ? lane : 0]));
  return room[__ffs(static_cast<std::int32_t>(who)) - 1];
}

// The sum of the largest of everything, by a warp, to all lanes.
__device__ double largest_sum(const IntegerViterbiArgs& a, const Measure& m) {
  const double* shift = a.scores.shift + sequence() * a.batch.length;
  double sum = 0;
#pragma unroll 4
  for (std::int32_t t = Emissions::lane(); t < m.T; t += 32) sum += shift[t];
  for (int bit = 16; bit > 0; bit /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, bit);
  return sum + a.scores.shifts[1] + a.scores.shifts[2] + static_cast<double>(m.transitions) * (m.T - 1);
}

// A thread's share of the score of the half's path, once that is written. The position in the middle counts forwards.
__device__ Sum half_score(const IntegerViterbiArgs& a, int back, std::int32_t T, std::int32_t last,
                          const std::int32_t* path) {
  const Batch& batch = a.batch;
  const Emissions emissions(a, T);
  const std::int32_t K = emissions.K;
  const ConstArray& edge = back ? batch.end : batch.start;
  Sum sum;
#pragma unroll 1
  for (auto n = static_cast<std::int32_t>(threadIdx.x); n <= last; n += static_cast<std::int32_t>(blockDim.x)) {
    const std::int32_t t = back ? T - 1 - n : n, label = path[t], inner = n < last ? path[back ? t - 1 : t + 1] : -1;
    if (label < 0) continue;  // scores that are no numbers
    if (n < last || !back) sum.add(score_at(batch.emissions, emissions.row_at(t) + label));
    if (n == 0 && edge) sum.add(score_at(edge, label));
    if (inner >= 0) sum.add(score_at(batch.transitions, back ? inner * K + label : label * K + inner));
  }
  return sum;
}

// Both halves' last steps are on their way: the answer, each half by its block.
template <class Index, std::int32_t kSlots, int kThreads>
__device__ void answer(const IntegerViterbiArgs& a, int back, std::int32_t T) {
  const SharedLayout& at = a.at[back];
  const std::int64_t b = sequence();
  const Answer answer(a.best, a.batch, b, T, a.layout[0].K);
  const Measure& m = *on_chip<Measure>(at.measure);
  const auto warp = static_cast<std::int32_t>(threadIdx.x) / 32;
  const auto no_path = [&] {
    if (back) return;
    answer.clear_path(0);
    if (warp > 0) return;
    answer.judge(a.scores);
    answer.no_path(a.empty);
    if (threadIdx.x == 0) a.redo[b] = 0;
  };
  if (T == 0) return no_path();
  auto* box = on_chip<TransactionBarrier>(at.boxes);
  if (back == 0) answer.clear_path(T);
  const Half<Index> half(a, back, T);
  const auto *own = half.step(half.steps), *other = on_chip<std::uint32_t>(at.other);
  const Crossing best = meet(a.combine, back ? other : own, back ? own : other, box, on_chip<Crossing>(at.reduce));
  if (best.number == 0xffffffffu) return no_path();

  // The first warp follows, and leaves bringing to the others.
  const std::int32_t thread = static_cast<std::int32_t>(threadIdx.x) - 32,
                     threads = static_cast<std::int32_t>(blockDim.x) - 32;
  std::int32_t n = half.steps, cell = back ? best.cell[1] : best.cell[0];
  const std::uint32_t* now = own;
  Look<kSlots> look(a.layout[back]);
#pragma unroll 1
  for (std::int32_t j = 0; half.high(j) >= 0; ++j) {
    __pipeline_wait_prior(kChunks - 2);
    __syncthreads();  // chunk j is there, and nobody reads the one before any more
    if (j > 0 && thread >= 0) half.bring(j + kChunks - 1, thread, threads);
    __pipeline_commit();
    if (warp == 1 && j == 0 && back == 0) {  // meanwhile
      answer.judge(a.scores);
      const double largest = largest_sum(a, m);
      if (threadIdx.x == 32) *on_chip<double>(at.largest) = largest;
    }
    if (warp == 0)
      follow(half, look, half.high(j), half.low(j), n, cell, now, answer.path + (back ? T - 1 : 0), back ? -1 : 1);
  }
  __pipeline_wait_prior(0);
  __syncthreads();
  const Sum mine = block_exact<kThreads>(half_score(a, back, T, half.steps, answer.path), half.steps + 1);
  Part* part = on_chip<Part>(a.at[0].part);  // of the forward block
  if (back) {
    if (threadIdx.x != 0) return;
    send(&part->sum, 0, mine.sum, box + 1);
    send(&part->rest, 0, mine.rest, box + 1);
    send(&part->removed, 0, m.removed, box + 1);
    return;
  }
  if (threadIdx.x == 0) expect(box + 1, sizeof(Part));
  wait_for(box + 1, 0);
  if (threadIdx.x != 0) return;
  Sum all = mine;
  all.add(part->sum);
  all.rest += part->rest;
  const double value = all.value(), cost = m.removed + part->removed + best.cost, error = T + 1 + cost / (1 << 24);
  const double bound = *on_chip<double>(at.largest);
  a.best.score[b] = value;
  a.redo[b] = bound - (cost - error) / static_cast<double>(m.scale) - value > kTolerance * fmax(1.0, fabs(value));
}

template <std::int32_t kKind>
__global__ void __launch_bounds__(32 * kRegisterTiles[kKind].warps, 1)
    integer_kernel(const __grid_constant__ IntegerViterbiArgs a) {
  using Index = std::uint16_t;
  constexpr RegisterTile kind = kRegisterTiles[kKind];
  using Steps = RegisterSteps<MinPlus, Index, kind.slots, kind.repeats>;
  const int back = blockIdx.x % 2;
  const std::int32_t T = back ? walk<Steps, true, Index>(a) : walk<Steps, false, Index>(a);
  launch_dependents();
  wait_for_prior_kernel();
  __pipeline_wait_prior(0);
  answer<Index, kind.slots, 32 * kind.warps>(a, back, T);
}

}  // namespace

bool integer_fits(const DeviceConstraint::Impl& c, const Batch& batch) {
  return c.forward.narrow && c.forward.kind >= 0 && c.clusters[1] > 0 &&
         std::max(layout_of(c, batch, 0).bytes, layout_of(c, batch, 1).bytes) <= c.shared_bytes;
}

IntegerMemory allocate_integer(Arena& arena, const DeviceConstraint::Impl& c, const Batch& batch) {
  const auto B = static_cast<std::size_t>(batch.size);
  IntegerMemory w{};
  for (int back = 0; back < 2; ++back) {
    const SharedLayout at = layout_of(c, batch, back);
    const auto cells = static_cast<std::size_t>((back ? c.backward : c.forward).cells);
    w.saved[back] = arena.allocate<std::uint32_t>(B * static_cast<std::size_t>(at.saved_steps()) * cells);
  }
  return w;
}

void run_integer(const DeviceConstraint::Impl& c, const Batch& batch, const Best& best, const Prepared<float>& scores,
                 const IntegerMemory& work, std::int32_t* redo, cudaStream_t stream) {
  const IntegerViterbiArgs args{{c.forward, c.backward},
                                c.combine,
                                batch,
                                scores,
                                work,
                                {layout_of(c, batch, 0), layout_of(c, batch, 1)},
                                split_of(c, batch),
                                best,
                                redo,
                                c.topology.empty};
  const auto launch = [&](auto* kernel) {
    launch_kernel(kernel, dim3(2 * static_cast<unsigned>(batch.size)), static_cast<unsigned>(threads_of(c, batch)),
                  std::max(args.at[0].bytes, args.at[1].bytes), stream, args, "viterbi", c.programmatic, 2);
  };
  if (c.forward.kind == 0) launch(integer_kernel<0>);
  if (c.forward.kind == 1) launch(integer_kernel<1>);
  if (c.forward.kind == 2) launch(integer_kernel<2>);
}

}  // namespace regccrf::cuda
