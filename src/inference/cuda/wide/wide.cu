// Layouts in wide arithmetic: slow, and always right (see wide.h). The flow is that of expectation.cu, in one
// block: forward, then backward with alpha at hand, joining as it goes. Samples go back along alpha alone, as in
// inference/cpu/sample.cc. As the last kernel of an expectation it also has all values in the end, and reduces them to
// a loss.
#include <algorithm>
#include <cmath>

#include "base/philox.h"
#include "inference/cuda/loss/loss.h"
#include "inference/cuda/step/step.h"
#include "inference/cuda/wide/wide.h"
#include "inference/numerics/draw_one.h"

namespace regccrf::cuda {

namespace {

constexpr int kThreads = 512;
constexpr std::int64_t kSlotBytes = std::int64_t{1} << 24, kMostBytes = std::int64_t{1} << 27;

struct WideArgs {
  DeviceStep forward, backward;
  DeviceCombine combine;
  DeviceTopology topology;
  Batch batch;
  Expectation wanted;
  Samples samples;
  Present present;
  WideMemory work;
  bool sampling;
  Loss loss;  // of all values, in the end; without `out`: none
  std::uint32_t* blocks_done;
};

// A slot's arrays.
struct WideScratch {
  Wide *g, *start, *end;  // [K, K], [K], [K]
  Wide* rows[2];          // [K + 1] emissions of a position and the next
  Wide *firsts, *saved;   // [segments, all], [segment, all] alpha
  Wide *v[2], *x[2];      // [all] backward cells, with and without their own emission
  Wide *m, *y;            // [places] alpha at arrivals, [forward outs] beta at nodes
  double* bigrams;        // [K, K]

  __device__ WideScratch(const WideArgs& a, std::int32_t slot) {
    Wide* at = a.work.numbers + slot * a.work.slot_numbers;
    const std::int64_t K = a.topology.K, F = a.forward.all_cells, B = a.backward.all_cells;
    const auto take = [&](std::int64_t count) {
      Wide* here = at;
      at += count;
      return here;
    };
    g = take(K * K), start = take(K), end = take(K);
    rows[0] = take(K + 1), rows[1] = take(K + 1);
    firsts = take(a.work.segments * F), saved = take(a.work.segment * F);
    if (a.sampling) return;
    v[0] = take(B), v[1] = take(B), x[0] = take(B), x[1] = take(B);
    m = take(a.combine.places), y = take(a.combine.outs);
    bigrams = a.work.bigrams ? a.work.bigrams + slot * K * K : nullptr;
  }
};

std::int64_t slot_numbers(const DeviceConstraint::Impl& c, std::int64_t segment, std::int64_t segments) {
  const std::int64_t K = c.topology.K, F = c.forward.all_cells, B = c.backward.all_cells;
  return K * K + 4 * K + 2 + (segments + segment) * F + 4 * B + c.combine.places + c.combine.outs;
}

__device__ double factor(const WideArgs& a) { return a.sampling ? 1 / a.samples.temperature : 1.0; }

__device__ void load_model(const WideArgs& a, const WideScratch& s) {
  load_wide_model(a.batch, a.topology.K, factor(a), s.g, s.start, s.end);
}

__device__ void load_row(const WideArgs& a, std::int64_t b, std::int32_t t, Wide* row) {
  load_wide_row(a.batch, a.topology.K, factor(a), a.present.row[b * a.batch.length + t], row);
}

// The zero and the fan-ins of a row; the cells that nobody writes are never read.
__device__ void zero_behind(const DeviceStep& layout, Wide* v, Wide* x) {
  for (std::int32_t c = layout.cells + static_cast<std::int32_t>(threadIdx.x); c < layout.all_cells; c += kThreads) {
    v[c] = kWideZero;
    if (x) x[c] = kWideZero;
  }
}

// The first step of a direction: weight on the outs where it begins.
template <class Index>
__device__ void first_step(const DeviceStep& layout, const Wide* edge, const Wide* row, Wide* x, Wide* v) {
  const StepView<Index> view(layout, layout.tables, 0);
  for (std::int32_t o = threadIdx.x; o < view.outs; o += kThreads) {
    const std::int32_t label = view.label[o], cell = view.stored[o];
    if (label == layout.K) continue;
    const Wide weight = layout.begins[o] ? edge[label] : kWideZero;
    if (x) x[cell] = weight;
    v[cell] = weight * row[label];
  }
  zero_behind(layout, v, x);
  __syncthreads();
}

template <class Index>
__device__ void next_step(const DeviceStep& layout, const Wide* g, const Wide* row, Wide* now, Wide* x, Wide* v) {
  const StepView<Index> view(layout, layout.tables, 0);
  for (std::int32_t i = threadIdx.x; i < view.fan_ins; i += kThreads) {
    Wide sum = kWideZero;
    for (std::int32_t j = view.fan_in_begin[i]; j < view.fan_in_begin[i + 1]; ++j)
      sum = sum + now[view.fan_in_source[j]];
    now[view.cells + 1 + i] = sum;
  }
  __syncthreads();
  const auto source = [&](Pair<Index> from) { return view.two ? now[from.x] + now[from.y] : now[from.x]; };
  const auto emit = [&](std::int32_t out, Wide sum) {
    const std::int32_t label = view.label[out], cell = view.stored[out];
    if (label == layout.K) return;  // padding
    if (x) x[cell] = sum;
    v[cell] = sum * row[label];
  };
  for (std::int32_t k = 0; k < layout.groups; ++k) {
    const DenseGroup group = view.group[k];
    for (std::int32_t i = threadIdx.x; i < group.states * group.width; i += kThreads) {
      const std::int32_t state = i / group.width, o = i - state * group.width;
      if (layout.entry[group.first_entry + o] < 0) continue;  // a column of padding
      Wide sum = kWideZero;
#pragma unroll 4
      for (std::int32_t slot = 0; slot < group.slots; ++slot) {
        const std::int32_t entry = layout.entry[group.first_entry + slot * group.width + o];
        sum = sum + source(view.source[group.first_source + state * group.slots + slot]) * g[entry];
      }
      emit(group.first_out + i, sum);
    }
  }
  for (std::int32_t i = threadIdx.x; i < view.sparse; i += kThreads) {
    Wide sum = kWideZero;
    for (std::int32_t slot = 0; slot < view.sparse_slots; ++slot) {
      const std::int32_t entry = layout.sparse_entry[slot * view.sparse + i];
      if (entry < 0) continue;
      sum = sum + source(view.sparse_source[slot * view.sparse + i]) * g[entry];
    }
    emit(view.first_sparse + i, sum);
  }
  zero_behind(layout, v, x);
  __syncthreads();
}

__device__ Wide* saved_row(const WideArgs& a, const WideScratch& s, std::int32_t t) {
  return s.saved + std::int64_t{t % a.work.segment} * a.forward.all_cells;
}

// alpha of the positions from … to, of which the one before is kept.
template <class Index>
__device__ void forward(const WideArgs& a, const WideScratch& s, std::int64_t b, std::int32_t from, std::int32_t to,
                        bool save) {
  const std::int32_t all = a.forward.all_cells;
  for (std::int32_t t = from; t < to; ++t) {
    load_row(a, b, t, s.rows[0]);
    __syncthreads();
    Wide* alpha = saved_row(a, s, t);
    if (t == 0) {
      first_step<Index>(a.forward, s.start, s.rows[0], nullptr, alpha);
    } else {
      next_step<Index>(a.forward, s.g, s.rows[0], saved_row(a, s, t - 1), nullptr, alpha);
    }
    if (save && t % a.work.segment == 0) {
      for (std::int32_t c = threadIdx.x; c < all; c += kThreads)
        s.firsts[std::int64_t{t / a.work.segment} * all + c] = alpha[c];
    }
  }
}

// Makes the segment of position t present, whose end has just been left.
template <class Index>
__device__ void recall(const WideArgs& a, const WideScratch& s, std::int64_t b, std::int32_t t) {
  const std::int32_t all = a.forward.all_cells, first = t / a.work.segment * a.work.segment;
  Wide* alpha = saved_row(a, s, first);
  for (std::int32_t c = threadIdx.x; c < all; c += kThreads)
    alpha[c] = s.firsts[std::int64_t{first / a.work.segment} * all + c];
  __syncthreads();
  forward<Index>(a, s, b, first + 1, t + 1, false);
}

__device__ double warp_sum(double x) {
  for (int bit = 16; bit > 0; bit /= 2) x += __shfl_xor_sync(0xffffffffu, x, bit);
  return x;
}

// alpha at arrivals.
__device__ void gather(const WideArgs& a, const WideScratch& s, const Wide* alpha) {
  for (std::int32_t i = threadIdx.x; i < a.combine.places; i += kThreads)
    s.m[i] = kWideZero;  // some that no arrival fills
  __syncthreads();
  for (std::int32_t k = threadIdx.x; k < 32 * a.combine.rounds; k += kThreads) {
    const CombineArrival arrival = a.combine.arrival[k];
    Wide sum = alpha[arrival.x] + alpha[arrival.y];
    if (a.combine.arrival_begin) {
      for (std::int32_t i = a.combine.arrival_begin[k]; i < a.combine.arrival_begin[k + 1]; ++i)
        sum = sum + alpha[a.combine.arrival_source[i]];
    }
    if (arrival.cell != a.backward.cells) s.m[arrival.place] = sum;  // else padding
  }
  __syncthreads();
}

// The weight of arrival k of the combine.
__device__ Wide weight_of(const WideArgs& a, const WideScratch& s, const Wide* x, std::int32_t k) {
  const CombineArrival arrival = a.combine.arrival[k];
  return arrival.cell == a.backward.cells ? kWideZero : s.m[arrival.place] * x[arrival.cell];
}

__device__ void write_labels(const WideArgs& a, const WideScratch& s, std::int64_t row, const Wide* x, Wide z) {
  const std::int32_t K = a.topology.K, lane = threadIdx.x % 32;
  for (std::int32_t label = threadIdx.x / 32; label < K; label += kThreads / 32) {
    double p = 0;
    for (std::int32_t r = a.combine.round_begin[label]; r < a.combine.round_begin[label + 1]; ++r)
      p += ratio(weight_of(a, s, x, 32 * r + lane), z);
    p = warp_sum(p);
    if (a.wanted.gold && a.wanted.gold[row] == label) p -= 1;
    if (lane == 0) write_score(a.wanted.emissions, a.batch.type, row * K + label, p);
  }
}

// The weight of what is behind entry `entry` of the combine's sums (combine.h).
__device__ Wide entry_weight(const WideArgs& a, const WideScratch& s, std::int32_t entry) {
  Wide sum = kWideZero;
  if (entry >= a.combine.dense) {
    const DeviceRounds& sparse = a.combine.sparse;
    const Source* pair = sparse.pair + sparse.height * (entry - a.combine.dense);
#pragma unroll 4
    for (std::int32_t k = 0; k < sparse.height; ++k) sum = sum + s.m[pair[k].x] * s.y[pair[k].y];
    return sum;
  }
  std::int32_t k = 0;
  while (k + 1 < a.combine.groups && entry >= a.combine.group[k + 1].first_entry) ++k;
  const CombineGroup group = a.combine.group[k];
  const std::int32_t slot = (entry - group.first_entry) / group.width, o = (entry - group.first_entry) % group.width;
#pragma unroll 4
  for (std::int32_t state = 0; state < group.states; ++state)
    sum = sum + s.m[group.first_place + state * group.slots + slot] * s.y[group.first_out + state * group.width + o];
  return sum;
}

// Adds the bigrams of positions t and t + 1: m of t, and beta of t + 1 at nodes. Each thread owns its pairs of labels.
__device__ void add_bigrams(const WideArgs& a, const WideScratch& s, const Wide* next_v, Wide z) {
  for (std::int32_t o = threadIdx.x; o < a.combine.outs; o += kThreads) {
    const CombineOut out = a.combine.out[o];
    Wide sum = next_v[out.x] + next_v[out.y];
    if (a.combine.out_begin) {
      for (std::int32_t k = a.combine.out_begin[o]; k < a.combine.out_begin[o + 1]; ++k)
        sum = sum + next_v[a.combine.out_target[k]];
    }
    s.y[o] = sum;
  }
  __syncthreads();
  const std::int32_t pairs = a.topology.K * a.topology.K;
  for (std::int32_t pair = threadIdx.x; pair < pairs; pair += kThreads) {
    Wide sum = kWideZero;
    for (std::int32_t i = a.combine.pair_begin[pair]; i < a.combine.pair_begin[pair + 1]; ++i)
      sum = sum + entry_weight(a, s, a.combine.pair_entry[i]);
    if (sum.m != 0) s.bigrams[pair] += ratio(sum * s.g[pair], z);
  }
  __syncthreads();
}

template <class Index>
__device__ Wide backward(const WideArgs& a, const WideScratch& s, std::int64_t b, std::int32_t T) {
  Wide z = kWideZero;
  for (std::int32_t t = T - 1; t >= 0; --t) {
    if (t + 1 < T && (t + 1) % a.work.segment == 0) recall<Index>(a, s, b, t);
    Wide *x = s.x[t % 2], *v = s.v[t % 2];
    load_row(a, b, t, s.rows[1]);
    __syncthreads();
    if (t == T - 1) {
      first_step<Index>(a.backward, s.end, s.rows[1], x, v);
    } else {
      next_step<Index>(a.backward, s.g, s.rows[1], s.v[(t + 1) % 2], x, v);
    }
    gather(a, s, saved_row(a, s, t));
    if (t == T - 1) {
      Wide mine = kWideZero;
      for (std::int32_t k = threadIdx.x; k < 32 * a.combine.rounds; k += kThreads) mine = mine + weight_of(a, s, x, k);
      z = block_total<kThreads>(mine);
      if (z.m == 0) return z;
    }
    if (a.wanted.emissions) write_labels(a, s, a.present.row[b * a.batch.length + t], x, z);
    if (s.bigrams && t + 1 < T) add_bigrams(a, s, s.v[(t + 1) % 2], z);
    __syncthreads();
  }
  return z;
}

__device__ void zero_counts(const WideArgs& a, std::int64_t b, std::int32_t T) {
  zero_counts(a.batch, a.topology.K, b, T, a.present.row + b * a.batch.length, a.wanted.emissions,
              a.wanted.transitions);
}

__device__ void write_bigrams(const WideArgs& a, const WideScratch& s, std::int64_t b, std::int32_t T) {
  const std::int32_t K = a.topology.K;
  const std::int64_t* row = a.present.row + b * a.batch.length;
  for (std::int32_t pair = threadIdx.x; pair < K * K; pair += kThreads) {
    double count = s.bigrams[pair];
    for (std::int32_t t = 1; a.wanted.gold && t < T; ++t)
      count -= a.wanted.gold[row[t - 1]] * K + a.wanted.gold[row[t]] == pair;
    write_score(a.wanted.transitions, a.batch.type, std::int64_t{b} * K * K + pair, count);
  }
}

template <class Index>
__device__ void count(const WideArgs& a, const WideScratch& s, std::int64_t b) {
  const std::int32_t T = a.present.length[b], K = a.topology.K;
  if (a.present.flag[b] == 2 || T == 0) return zero_counts(a, b, T);
  for (std::int32_t i = threadIdx.x; s.bigrams && i < K * K; i += kThreads) s.bigrams[i] = 0;
  forward<Index>(a, s, b, 0, T, true);
  const Wide z = backward<Index>(a, s, b, T);
  if (z.m == 0) zero_counts(a, b, T);
  double value = log(z);
  if (a.wanted.gold) {
    const std::int64_t* row = a.present.row + b * a.batch.length;
    value -= block_sum<kThreads>(path_score(a.batch, K, T, row, [&](std::int32_t t) { return a.wanted.gold[row[t]]; }));
  }
  if (s.bigrams && z.m != 0) write_bigrams(a, s, b, T);
  if (threadIdx.x == 0) {
    a.wanted.value[b] = value;
    if (z.m == 0) a.wanted.status[b].outcome = static_cast<std::int32_t>(Outcome::impossible);
  }
}

template <class Index>
__device__ void draw_paths(const WideArgs& a, const WideScratch& s, std::int64_t b) {
  const DeviceTopology& top = a.topology;
  const std::int32_t T = a.present.length[b], K = top.K;
  const std::uint64_t id = a.samples.ids ? a.samples.ids[b] : static_cast<std::uint64_t>(b);
  const auto out = [&](std::int32_t sample) {
    return a.samples.labels + (b * a.samples.count + sample) * a.batch.length;
  };
  for (std::int32_t n = 0; n < a.samples.count; ++n) {
    for (std::int64_t t = threadIdx.x; t < a.batch.length; t += kThreads) out(n)[t] = -1;
  }
  if (*a.present.bad) {
    if (threadIdx.x == 0) a.samples.status[b].outcome = static_cast<std::int32_t>(Outcome::bad_transition);
    return;
  }
  if (a.samples.status[b].outcome == static_cast<std::int32_t>(Outcome::bad_score)) return;
  if (T == 0) {
    if (threadIdx.x == 0 && !top.empty) a.samples.status[b].outcome = static_cast<std::int32_t>(Outcome::impossible);
    return;
  }
  forward<Index>(a, s, b, 0, T, true);
  for (std::int32_t t = T - 1; t >= 0; --t) {
    if (t + 1 < T && (t + 1) % a.work.segment == 0) recall<Index>(a, s, b, t);
    const Wide* alpha = saved_row(a, s, t);
    for (std::int32_t n = threadIdx.x; n < a.samples.count; n += kThreads) {
      // Until its label is written, a place holds the node.
      const std::int32_t after = t + 1 < T ? out(n)[t + 1] : 0;
      const double u = uniform(a.samples.seed, id, static_cast<std::uint32_t>(n), static_cast<std::uint64_t>(t));
      std::int32_t node = -1;
      if (t + 1 == T) {
        node = draw_one(u, [&](const auto& take) {
          for (std::int32_t i = 0; i < top.nodes; ++i) {
            if (top.node_accepts[i]) take(i, alpha[top.node_cell[i]] * s.end[top.node_label[i]]);
          }
        });
      } else if (after >= 0) {
        const std::int32_t r = top.node_state[after], label = top.node_label[after];
        node = draw_one(u, [&](const auto& take) {
          for (std::int32_t m = top.arrival_begin[r]; m < top.arrival_begin[r + 1]; ++m) {
            const Wide g = s.g[top.arrival_label[m] * K + label];
            for (std::int32_t i = top.into_begin[m]; i < top.into_begin[m + 1]; ++i) {
              take(top.into_node[i], alpha[top.node_cell[top.into_node[i]]] * g);
            }
          }
        });
      }
      if (node < 0) a.samples.status[b].outcome = static_cast<std::int32_t>(Outcome::impossible);
      out(n)[t] = node;
      if (t + 1 < T) out(n)[t + 1] = after < 0 ? -1 : top.node_label[after];
      if (t == 0) out(n)[0] = node < 0 ? -1 : top.node_label[node];
    }
    __syncthreads();
  }
}

// Whether one of the block's sequences is to be done; in most calls none is.
__device__ bool has_work(const WideArgs& a) {
  bool some = a.sampling;
  for (std::int64_t b = blockIdx.x + std::int64_t{threadIdx.x} * gridDim.x; b < a.batch.size;
       b += std::int64_t{kThreads} * gridDim.x)
    some = some || a.present.flag[b] != 0;
  return __syncthreads_or(some);
}

template <class Index>
__device__ void do_sequences(const WideArgs& a) {
  bool ready = false;
  const WideScratch slot(a, static_cast<std::int32_t>(blockIdx.x));
  for (std::int64_t b = blockIdx.x; b < a.batch.size; b += gridDim.x) {
    if (!a.sampling && a.present.flag[b] == 0) continue;
    if (!ready) load_model(a, slot);
    ready = true;
    __syncthreads();
    if (a.sampling) {
      draw_paths<Index>(a, slot, b);
    } else {
      count<Index>(a, slot, b);
    }
    __syncthreads();
  }
}

template <class Index>
__global__ void __launch_bounds__(kThreads) wide_kernel(const __grid_constant__ WideArgs a) {
  wait_for_prior_kernel();
  if (has_work(a)) do_sequences<Index>(a);
  if (a.loss.out && is_last_block(a.blocks_done, gridDim.x)) reduce_values<kThreads>(a.batch.size, a.loss);
}

void launch(const WideArgs& args, bool programmatic, cudaStream_t stream) {
  const bool narrow = args.forward.narrow && args.backward.narrow;
  const auto blocks = static_cast<unsigned>(args.work.slots);
  auto* kernel = narrow ? wide_kernel<std::uint16_t> : wide_kernel<std::int32_t>;
  launch_kernel(kernel, blocks, kThreads, 0, stream, args, "in wide arithmetic", programmatic);
}

}  // namespace

WideMemory allocate_wide(Arena& arena, const DeviceConstraint::Impl& c, const Batch& batch, bool bigrams) {
  WideMemory work{};
  const std::int64_t T = std::max<std::int64_t>(batch.length, 1), row = 16 * std::int64_t{c.forward.all_cells};
  const std::int64_t segment =
      T * row <= kSlotBytes ? T : static_cast<std::int64_t>(std::ceil(std::sqrt(static_cast<double>(T))));
  work.segment = static_cast<std::int32_t>(std::max<std::int64_t>(segment, 2));
  work.segments = static_cast<std::int32_t>((T + work.segment - 1) / work.segment);
  work.slot_numbers = slot_numbers(c, work.segment, work.segments);
  const std::int64_t most = std::max<std::int64_t>(kMostBytes / (work.slot_numbers * 16), 1);
  work.slots = static_cast<std::int32_t>(std::min<std::int64_t>({most, batch.size, c.processors}));
  work.numbers = arena.allocate<Wide>(static_cast<std::size_t>(work.slots * work.slot_numbers));
  const auto K = static_cast<std::size_t>(c.topology.K);
  if (bigrams) work.bigrams = arena.allocate<double>(static_cast<std::size_t>(work.slots) * K * K);
  return work;
}

void again_wide(const DeviceConstraint::Impl& c, const Batch& batch, const Expectation& wanted, const Present& present,
                const WideMemory& work, const Loss* loss, std::uint32_t* blocks_done, cudaStream_t stream) {
  launch({c.forward,
          c.backward,
          c.combine,
          c.topology,
          batch,
          wanted,
          {},
          present,
          work,
          false,
          loss ? *loss : Loss{},
          blocks_done},
         c.programmatic, stream);
}

void sample_wide(const DeviceConstraint::Impl& c, const Batch& batch, const Samples& samples, const Present& present,
                 const WideMemory& work, cudaStream_t stream) {
  launch({c.forward, c.backward, c.combine, c.topology, batch, {}, samples, present, work, true, {}, nullptr}, false,
         stream);
}

}  // namespace regccrf::cuda
