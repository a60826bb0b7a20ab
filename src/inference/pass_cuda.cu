// Forward and backward on a device: one block a sequence and direction walks the steps with its cells on chip, and
// leaves each step's in memory: alpha on nodes, and beta on arrivals, both with the emissions of their own position.
// Where it can, it leaves beta's sums at nodes instead, the outs of the join: half as many numbers, and as the join
// wants them.
#include "inference/expectation_cuda.h"
#include "inference/gold_cuda.h"
#include "inference/sweep_cuda.h"

namespace regccrf::cuda {

namespace {

struct Shape {
  int bytes, threads;
  std::int32_t rows;
  bool resident, on_chip, cells_on_chip;
};

template <class P>
std::int64_t cells_bytes(const DeviceSweep& s) {
  return 2 * room_for(s.all_cells) * static_cast<int>(sizeof(P));
}
template <class P>
std::int64_t matrix_bytes(const DeviceSweep& s) {
  return aligned((s.entries + 8) * std::int64_t{sizeof(P)}) +
         aligned(std::int64_t{s.thin} * s.thin_slots * static_cast<int>(sizeof(P)));
}

template <class P>
Shape shape_of(const DeviceConstraint::Impl& c, const Batch& batch) {
  Shape s{};
  s.rows = rows_kept<P>(c.topology.K, batch.length);
  const std::int64_t rows =
      Peak<unsigned>::kBytes + aligned(s.rows * (std::int64_t{c.topology.K} + 1) * static_cast<int>(sizeof(P)));
  const std::int64_t cells = std::max(cells_bytes<P>(c.forward), cells_bytes<P>(c.backward));
  const std::int64_t all = std::max(c.forward.hot_bytes + matrix_bytes<P>(c.forward) + cells_bytes<P>(c.forward),
                                    c.backward.hot_bytes + matrix_bytes<P>(c.backward) + cells_bytes<P>(c.backward));
  const auto most = [](std::int32_t forward, std::int32_t backward) {
    return forward > 0 && backward > 0 ? std::max(forward, backward) : 0;
  };
  const std::int32_t warps = sizeof(P) == 4 ? most(c.forward.warps[1], c.backward.warps[1])
                                            : most(c.forward.tensor_warps, c.backward.tensor_warps);
  s.resident = c.forward.narrow && warps > 0 && rows + cells <= c.shared_bytes;
  s.on_chip = !s.resident && c.forward.narrow && rows + all <= c.shared_bytes;
  s.cells_on_chip = s.on_chip || rows + cells <= c.shared_bytes;
  s.bytes = static_cast<int>(rows + (s.on_chip ? all : s.cells_on_chip ? cells : 0));
  s.threads = 32 * (s.resident ? warps : std::max(c.forward.warps[0], c.backward.warps[0]));
  return s;
}

template <class P>
struct Args {
  DeviceSweep sweep[2];
  DeviceJoin join;
  DeviceTopology topology;
  Kept<P> kept;
  PassWork<P> work;
  Shape shape;
  std::int64_t T;
};

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

// What becomes of an out in a step. `kept`: null if whole steps are copied.
template <class P>
struct Emit {
  const P* row;
  P *next, *kept;
  P scale;
  unsigned& largest;

  __device__ P weight(std::uint32_t label) const { return value_of(row, label); }
  __device__ void store(std::uint32_t cell, P weight, P sum) const {
    const P v = sum * scale * weight;
    put(next, cell, v);
    if (kept) put(kept, cell, v);
    largest = max(largest, high_word(v));
  }
};

// A thread's part of what becomes of beta at the outs of the join: four of a group's, and some thin ones.
constexpr std::int32_t kThinAtOuts = 2;

bool can_be_at_outs(const DeviceJoin& join, std::int32_t threads) {
  return (join.quad || join.dense_outs == 0) && join.dense_outs <= 4 * threads &&
         join.outs - join.dense_outs <= kThinAtOuts * threads;
}

template <class P>
class AtOuts {
 public:
  __device__ AtOuts(const DeviceJoin& join, std::int32_t thread) : join_(join), thread_(thread) {
    if (join.quad && 4 * thread < join.dense_outs) quad_ = Two<P>::of(join.quad[thread].x, join.quad[thread].y);
#pragma unroll
    for (std::int32_t k = 0; k < kThinAtOuts; ++k) {
      if (thin(k) < join.outs) from_[k] = Two<P>::of(join.out[thin(k)].x, join.out[thin(k)].y);
    }
  }

  __device__ void copy(P* kept, const P* now) const {
    if (4 * thread_ < join_.dense_outs) {
      P x[4]{}, y[4]{};
      add4(now, quad_.x(), x);
      add4(now, quad_.y(), y);
#pragma unroll
      for (std::int32_t i = 0; i < 4; ++i) x[i] += y[i];
      store4(kept + 4 * thread_, x);
    }
#pragma unroll
    for (std::int32_t k = 0; k < kThinAtOuts; ++k) {
      if (thin(k) < join_.outs) kept[thin(k)] = value_of(now, from_[k].x()) + value_of(now, from_[k].y());
    }
  }

 private:
  __device__ std::int32_t thin(std::int32_t k) const {
    return join_.dense_outs + thread_ + k * static_cast<std::int32_t>(blockDim.x);
  }
  // Behind the zero lies what is none.
  __device__ void add4(const P* now, std::uint32_t place, P (&to)[4]) const {
    if (place < bytes_of<P>(join_.backward_cells))
      load4(reinterpret_cast<const P*>(reinterpret_cast<const char*>(now) + place), to);
  }

  const DeviceJoin& join_;
  std::int32_t thread_;
  Two<P> quad_{}, from_[kThinAtOuts]{};
};

// `now`, `next`: the cells; `room`: for emissions.
template <bool kBack, class P, class Index, class Steps>
__device__ void walk(const Args<P>& a, const SweepView<Index>& view, const Steps& steps, P* now, P* next, P* room,
                     unsigned* peaks) {
  const std::int64_t b = blockIdx.x;
  const std::int32_t T = a.kept.scores.length[b], K = view.K;
  if (T == 0) return;
  constexpr std::int64_t step = kBack ? -1 : 1;
  const std::int64_t first = b * a.T + (kBack ? T - 1 : 0);
  const bool at_outs = kBack && Steps::kResident && a.work.at_outs;
  const std::int64_t kept_row = at_outs ? a.join.outs : view.cells;
  P* kept = (kBack ? a.kept.beta : a.kept.alpha) + first * kept_row;
  std::int32_t* exponent = a.kept.exponent[kBack] + first;
  Rows<P, kBack> rows(room, a.shape.rows, a.kept.scores.emissions + b * a.T * (K + 1), K, T);
  const std::int32_t thread = thread_number();
  Peak<unsigned> peak(peaks, 0, thread);
  const AtOuts<P> outs(a.join, thread);
  const auto leave = [&] {
    if (at_outs) {
      outs.copy(kept, now);
    } else {
      copy_out(kept, now, view.cells, thread);
    }
  };
  for (std::int32_t c = threadIdx.x; c <= view.cells + view.extras; c += blockDim.x) now[c] = next[c] = 0;
  rows.stage(0);
  const P* edge = kBack ? a.kept.scores.end : a.kept.scores.start;
  unsigned largest = 0;
  for (std::int32_t o = threadIdx.x; o < view.outs; o += blockDim.x) {
    const std::int32_t label = view.label[o], cell = view.stored[o];
    if (label == K) continue;
    const P v = a.sweep[kBack].begins[o] ? edge[label] * rows[0][label] : P{0};
    now[cell] = v;
    if (!Steps::kResident) kept[cell] = v;
    largest = max(largest, high_word(v));
  }
  peak.leave(0, largest);
  if (threadIdx.x == 0) *exponent = 0;
  __syncthreads();

  const bool notes = thread == 0;
  for (std::int32_t n = 1; n < T; ++n) {
    const auto loaded = steps.load(now);
    const unsigned seen = peak.of_a_warp(n - 1);
    if constexpr (Steps::kResident) leave();
    kept += step * kept_row;
    exponent += step;
    if (!rows.staged(n)) rows.stage(n);
    if constexpr (!Steps::kResident) {
      if (view.extras) {
        steps.fill_extras(now);
        __syncthreads();
      }
    }
    auto sums = steps.multiply(loaded);
    std::int32_t e;
    const P scale = scale_of(peak.of_all(seen), e, P{});
    largest = 0;
    steps.finish(sums, now, Emit<P>{rows[n], next, Steps::kResident ? nullptr : kept, scale, largest});
    peak.leave(n, largest);
    if (notes) *exponent = e;
    __syncthreads();
    P* swap = now;
    now = next;
    next = swap;
  }
  if constexpr (Steps::kResident) leave();
}

template <class P, class Index, class Steps>
__device__ void walk_a_way(const Args<P>& a, const SweepView<Index>& view, const Steps& steps, P* cells, P* room,
                           unsigned* peaks) {
  P* next = cells + room_for(view.cells + 1 + view.extras);
  if (blockIdx.y) {
    walk<true>(a, view, steps, cells, next, room, peaks);
  } else {
    walk<false>(a, view, steps, cells, next, room, peaks);
  }
}

template <class P, Keep kKeep, std::int32_t kKind>
constexpr int kThreads = kKeep != Keep::registers ? 1024
                         : sizeof(P) == 4         ? 32 * kResidentKinds[kKind].warps
                                                  : 32 * kTensorWarps;

template <class P, class Index, Keep kKeep, std::int32_t kKind>
__global__ void __launch_bounds__(kThreads<P, kKeep, kKind>, 1) pass_kernel(const __grid_constant__ Args<P> a) {
  char* shared = shared_memory();
  const std::int64_t b = blockIdx.x;
  if (blockIdx.y == 2) {
    std::int32_t* stamps = a.work.stamps ? a.work.stamps + b * 2 * a.topology.Q : nullptr;
    follow_gold(a.topology, a.kept.scores.gold + b * a.T, a.kept.scores.length[b], shared, stamps, a.kept.leaves + b);
    return;
  }
  const int back = blockIdx.y;
  const DeviceSweep& sweep = a.sweep[back];
  if (threadIdx.x == 0 && back == 0) a.kept.flag[b] = 0;
  char* at = shared;
  const auto take = [&](std::int64_t bytes) {
    char* here = at;
    at += (bytes + 15) / 16 * 16;
    return here;
  };
  auto* peaks = reinterpret_cast<unsigned*>(take(Peak<unsigned>::kBytes));
  P* rows = reinterpret_cast<P*>(take(a.shape.rows * (std::int64_t{sweep.K} + 1) * std::int64_t{sizeof(P)}));
  const P *matrix = a.kept.scores.matrix[back], *thin = a.kept.scores.thin[back];
  if constexpr (kKeep == Keep::registers) {
    const SweepView<Index> view(sweep, sweep.hot, 1);
    constexpr ResidentKind kind = kResidentKinds[kKind];
    using Steps = std::conditional_t<sizeof(P) == 4, ResidentSteps<SumProduct<P>, Index, kind.slots, kind.repeats>,
                                     TensorSteps<P, Index>>;
    walk_a_way(a, view, Steps(view, matrix, thin), reinterpret_cast<P*>(at), rows, peaks);
  } else {
    const std::int64_t most = room_for(max(a.sweep[0].all_cells, a.sweep[1].all_cells));
    P* cells = a.shape.cells_on_chip ? reinterpret_cast<P*>(at) : a.work.cells + (b * 2 + back) * 2 * most;
    with_general_steps<SumProduct<P>, Index, kKeep>(
        sweep, matrix, thin, at, cells,
        [&](const auto& view, const auto& steps, P* there) { walk_a_way(a, view, steps, there, rows, peaks); });
  }
}

template <class P, class Index, Keep kKeep, std::int32_t kKind = 0>
void launch(const Args<P>& args, std::int64_t B, bool gold, int gold_bytes, cudaStream_t stream) {
  const int bytes = std::max(args.shape.bytes, gold ? gold_bytes : 0);
  launch_kernel(pass_kernel<P, Index, kKeep, kKind>, dim3(static_cast<unsigned>(B), gold ? 3 : 2),
                static_cast<unsigned>(args.shape.threads), bytes, stream, args, "forward and backward");
}

}  // namespace

template <class P>
PassWork<P> cut_pass(Cutter& cutter, const DeviceConstraint::Impl& c, const Batch& batch, bool gold) {
  const auto B = static_cast<std::size_t>(batch.size);
  const auto most = static_cast<std::size_t>(room_for(std::max(c.forward.all_cells, c.backward.all_cells)));
  const Shape shape = shape_of<P>(c, batch);
  PassWork<P> work{};
  work.cells = cutter.take<P>(shape.cells_on_chip ? 0 : B * 4 * most);
  work.whole = shape.resident;
  work.at_outs = shape.resident && can_be_at_outs(c.join, shape.threads);
  if (gold && gold_bytes(c) == 0)
    work.stamps = cutter.take<std::int32_t>(B * 2 * static_cast<std::size_t>(c.topology.Q));
  return work;
}

template <class P>
void run_pass(const DeviceConstraint::Impl& c, const Batch& batch, const Kept<P>& kept, const PassWork<P>& work,
              bool gold, cudaStream_t stream) {
  const Args<P> args{{c.forward, c.backward}, c.join, c.topology, kept, work, shape_of<P>(c, batch), batch.length};
  gold = gold && gold_beside_pass(c, batch);
  const auto go = [&](auto* launcher) { launcher(args, batch.size, gold, gold_bytes(c), stream); };
  if (args.shape.resident) {
    if (sizeof(P) == 8 || c.forward.kind == 0) go(launch<P, std::uint16_t, Keep::registers, 0>);
    if constexpr (sizeof(P) == 4) {
      if (c.forward.kind == 1) go(launch<P, std::uint16_t, Keep::registers, 1>);
      if (c.forward.kind == 2) go(launch<P, std::uint16_t, Keep::registers, 2>);
    }
  } else if (args.shape.on_chip) {
    go(launch<P, std::uint16_t, Keep::chip>);
  } else if (c.forward.narrow) {
    go(launch<P, std::uint16_t, Keep::memory>);
  } else {
    go(launch<P, std::int32_t, Keep::memory>);
  }
}

template PassWork<float> cut_pass(Cutter&, const DeviceConstraint::Impl&, const Batch&, bool);
template PassWork<double> cut_pass(Cutter&, const DeviceConstraint::Impl&, const Batch&, bool);
template void run_pass(const DeviceConstraint::Impl&, const Batch&, const Kept<float>&, const PassWork<float>&, bool,
                       cudaStream_t);
template void run_pass(const DeviceConstraint::Impl&, const Batch&, const Kept<double>&, const PassWork<double>&, bool,
                       cudaStream_t);

}  // namespace regccrf::cuda
