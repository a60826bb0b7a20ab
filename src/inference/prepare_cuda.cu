// Scores as the passes want them (see prepare_cuda.h). One warp a row; a few blocks more for the transitions.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "inference/prepare_cuda.h"

namespace regccrf::cuda {

namespace {

constexpr int kThreads = 256, kRows = kThreads / 32;

template <class T>
__device__ double as_double(T x) {
  return bounded(static_cast<double>(static_cast<float>(x)));
}
template <>
__device__ double as_double(double x) {
  return bounded(x);
}

__device__ double warp_max(double x) {
  for (int bit = 16; bit > 0; bit /= 2) x = fmax(x, __shfl_xor_sync(0xffffffffu, x, bit));
  return x;
}

template <class P>
struct Args {
  std::int64_t B, T, batch_stride, time_stride;
  std::int32_t K;
  const void *emissions, *transitions, *start, *end;
  const std::uint8_t* mask;
  DeviceSweep sweep[2];
  int sweeps;
  bool log, double_scores;
  Prepared<P> out;
  Status* status;
  const std::int64_t* gold;
  const std::int32_t* only;
};

// How many positions of sequence b before t are present. The whole block takes part.
template <class P>
__device__ std::int32_t present_before(const Args<P>& a, std::int64_t b, std::int64_t t) {
  std::int32_t count = 0;
  for (std::int64_t i = threadIdx.x; i < (t + kThreads - 1) / kThreads * kThreads; i += kThreads) {
    const bool present = i < t && a.mask[b * a.batch_stride + i * a.time_stride] != 0;
    count += __syncthreads_count(present);
  }
  return count;
}

template <class P, class In>
__device__ void row_of_emissions(const Args<P>& a, std::int64_t b, std::int64_t rank, std::int64_t row) {
  const int lane = threadIdx.x % 32;
  const In* h = static_cast<const In*>(a.emissions) + row * a.K;
  P* out = a.out.emissions + (b * a.T + rank) * (a.K + 1);
  double largest = -INFINITY;
  for (std::int32_t k = lane; k < a.K; k += 32) {
    const double x = as_double(h[k]);
    if (isnan(x) || x == INFINITY) {
      if (atomicCAS(&a.status[b].outcome, 0, static_cast<std::int32_t>(Outcome::bad_score)) == 0) {
        a.status[b].position = static_cast<std::int32_t>(rank);
        a.status[b].label = k;
      }
    }
    largest = fmax(largest, x);
  }
  largest = warp_max(largest);
  const double shift = a.log || !isfinite(largest) ? 0 : largest;
  if (lane == 0) {
    a.out.shift[b * a.T + rank] = shift;
    a.out.row[b * a.T + rank] = row;
    if (a.gold)
      a.out.gold[b * a.T + rank] = a.gold[row] >= 0 && a.gold[row] < a.K ? static_cast<std::int32_t>(a.gold[row]) : -1;
  }
  for (std::int32_t k = lane; k <= a.K; k += 32) {
    const double x = k < a.K ? as_double(h[k]) : -INFINITY;
    out[k] = static_cast<P>(a.log ? x : exp(x - shift));
  }
}

template <class P, class Score>
__device__ void transitions(const Args<P>& a) {
  __shared__ double largest[3][kRows];
  const Score* scores[3] = {static_cast<const Score*>(a.transitions), static_cast<const Score*>(a.start),
                            static_cast<const Score*>(a.end)};
  const std::int64_t sizes[3] = {std::int64_t{a.K} * a.K, a.start ? a.K : 0, a.end ? a.K : 0};
  double shift[3];
  for (int part = 0; part < 3; ++part) {
    double most = -INFINITY;
    bool bad = false;
#pragma unroll 8
    for (std::int64_t i = threadIdx.x; i < sizes[part]; i += kThreads) {
      const double x = as_double(scores[part][i]);
      bad |= isnan(x) || x == INFINITY;
      most = fmax(most, x);
    }
    if (bad) *a.out.bad = 1;
    most = warp_max(most);
    if (threadIdx.x % 32 == 0) largest[part][threadIdx.x / 32] = most;
  }
  __syncthreads();
  for (int part = 0; part < 3; ++part) {
    double most = -INFINITY;
    for (double x : largest[part]) most = fmax(most, x);
    shift[part] = a.log || !isfinite(most) ? 0 : most;
    if (blockIdx.x == 0 && threadIdx.x == 0) a.out.shifts[part] = shift[part];
  }
  const auto value = [&](double x, double by) { return static_cast<P>(a.log ? x : exp(x - by)); };
  const std::int64_t first = blockIdx.x * std::int64_t{kThreads} + threadIdx.x,
                     stride = std::int64_t{gridDim.x} * kThreads;
  for (int s = 0; s < a.sweeps; ++s) {
    const DeviceSweep& sweep = a.sweep[s];
    for (std::int64_t i = first; i < sweep.entries + 8; i += stride) {  // a tile may read past the last row
      const std::int32_t entry = i < sweep.entries ? sweep.entry[i] : -1;
      a.out.matrix[s][i] = value(entry < 0 ? -INFINITY : as_double(scores[0][entry]), shift[0]);
    }
    for (std::int64_t i = first; i < std::int64_t{sweep.thin} * sweep.thin_slots; i += stride) {
      const std::int32_t entry = sweep.thin_entry[i];
      a.out.thin[s][i] = value(entry < 0 ? -INFINITY : as_double(scores[0][entry]), shift[0]);
    }
  }
  for (std::int64_t k = first; k < a.K; k += stride) {
    a.out.start[k] = value(a.start ? as_double(scores[1][k]) : 0, shift[1]);
    a.out.end[k] = value(a.end ? as_double(scores[2][k]) : 0, shift[2]);
  }
}

template <class P, class In>
__global__ void __launch_bounds__(kThreads) prepare_kernel(const Args<P> a) {
  const std::int64_t b = blockIdx.y;
  if (b == a.B) {
    if (a.double_scores) {
      transitions<P, double>(a);
    } else {
      transitions<P, float>(a);
    }
    return;
  }
  if (a.only && !a.only[b]) return;
  const std::int64_t first = blockIdx.x * std::int64_t{kRows}, t = first + threadIdx.x / 32;
  std::int32_t rank = static_cast<std::int32_t>(t);
  bool present = t < a.T;
  if (a.mask) {
    rank = present_before(a, b, first);
    for (std::int64_t i = first; i < t && i < a.T; ++i) rank += a.mask[b * a.batch_stride + i * a.time_stride] != 0;
    present = present && a.mask[b * a.batch_stride + t * a.time_stride] != 0;
  }
  if (present) row_of_emissions<P, In>(a, b, rank, b * a.batch_stride + t * a.time_stride);
  if (blockIdx.x + 1 == gridDim.x) {  // the last block knows the length
    const std::int32_t length = a.mask ? present_before(a, b, a.T) : static_cast<std::int32_t>(a.T);
    if (threadIdx.x == 0) {
      a.out.length[b] = length;
      a.status[b].length = length;
    }
  }
}

template <class P, class In>
void launch(const Args<P>& args, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(std::max<std::int64_t>((args.T + kRows - 1) / kRows, 1));
  prepare_kernel<P, In><<<dim3(blocks, static_cast<unsigned>(args.B) + 1), kThreads, 0, stream>>>(args);
  check(cudaGetLastError(), "preparing scores");
}

}  // namespace

template <class P>
Prepared<P> cut_prepared(Cutter& cutter, const DeviceConstraint::Impl& constraint, const Batch& batch, bool both) {
  const auto BT = static_cast<std::size_t>(batch.size * batch.length),
             K = static_cast<std::size_t>(constraint.topology.K);
  Prepared<P> out{};
  out.bad = cutter.take<std::int32_t>(1);
  out.length = cutter.take<std::int32_t>(static_cast<std::size_t>(batch.size));
  out.row = cutter.take<std::int64_t>(BT);
  out.gold = cutter.take<std::int32_t>(BT);
  out.emissions = cutter.take<P>(BT * (K + 1));
  out.shift = cutter.take<double>(BT);
  for (int s = 0; s < (both ? 2 : 1); ++s) {
    const DeviceSweep& sweep = s ? constraint.backward : constraint.forward;
    out.matrix[s] = cutter.take<P>(static_cast<std::size_t>(sweep.entries) + 8);
    out.thin[s] = cutter.take<P>(static_cast<std::size_t>(sweep.thin) * static_cast<std::size_t>(sweep.thin_slots));
  }
  out.start = cutter.take<P>(K);
  out.end = cutter.take<P>(K);
  out.shifts = cutter.take<double>(3);
  return out;
}

template <class P>
void prepare(const DeviceConstraint::Impl& constraint, const Batch& batch, const Prepared<P>& prepared, Scale scale,
             bool both, Status* status, const std::int64_t* gold, const std::int32_t* only, cudaStream_t stream) {
  if (!only)
    check(cudaMemsetAsync(status, 0, sizeof(Status) * static_cast<std::size_t>(batch.size), stream),
          "clearing the status");
  check(cudaMemsetAsync(prepared.bad, 0, sizeof(std::int32_t), stream), "clearing the status");
  const Args<P> args{batch.size,
                     batch.length,
                     batch.batch_stride,
                     batch.time_stride,
                     constraint.topology.K,
                     batch.emissions,
                     batch.transitions,
                     batch.start,
                     batch.end,
                     batch.mask,
                     {constraint.forward, constraint.backward},
                     both ? 2 : 1,
                     scale == Scale::log,
                     batch.type == Type::f64,
                     prepared,
                     status,
                     gold,
                     only};
  switch (batch.emissions_type) {
    case Type::f16:
      return launch<P, __half>(args, stream);
    case Type::bf16:
      return launch<P, __nv_bfloat16>(args, stream);
    case Type::f32:
      return launch<P, float>(args, stream);
    case Type::f64:
      return launch<P, double>(args, stream);
  }
}

template Prepared<float> cut_prepared(Cutter&, const DeviceConstraint::Impl&, const Batch&, bool);
template Prepared<double> cut_prepared(Cutter&, const DeviceConstraint::Impl&, const Batch&, bool);
template void prepare(const DeviceConstraint::Impl&, const Batch&, const Prepared<float>&, Scale, bool, Status*,
                      const std::int64_t*, const std::int32_t*, cudaStream_t);
template void prepare(const DeviceConstraint::Impl&, const Batch&, const Prepared<double>&, Scale, bool, Status*,
                      const std::int64_t*, const std::int32_t*, cudaStream_t);

}  // namespace regccrf::cuda
