// Viterbi in pieces (step/scan.h), for long sequences under small automata. Everything on nodes, where a step is one
// small matrix, and in double, so that no sequence need be done again. Behind the products of the pieces, which are the
// best scores from every node to every node, come three kernels:
//   cross     a block a sequence: the best way through the pieces, hence the nodes at which it leaves each
//   follow    a block a piece: the best way between these two nodes, with a backpointer for every node and step, and
//             what it adds to the path's score
//   total     the score, summed in double as everywhere
#include <algorithm>

#include "inference/cuda/decode/candidate.h"
#include "inference/cuda/expectation/expectation.h"
#include "inference/cuda/step/scan.h"

namespace regccrf::cuda {

namespace {

constexpr std::int32_t kParts = 8;  // threads for each node of a step
constexpr std::int32_t kTotalThreads = 1024;

struct ScanViterbiArgs : PieceArgs {
  double* products;       // [B, pieces, width, width]
  std::int32_t* node;     // [B, pieces + 1] where a piece begins and the last one ends; -1: there is no path
  Sum* partial;           // [B, pieces] of the score
  std::uint8_t* crossed;  // [B, pieces, width] the best node at the begin of a piece for each at its end
  std::uint8_t* before;   // [B, T, width] the best node of the step before for each; both null where on chip
  Best best;
};

__device__ double none() { return -INFINITY; }

// --- a step from one vector to the next

// A block's vector of a number for each node. Thread i + width · part looks at every kParts-th node before node i.
template <std::int32_t kTiles>
struct Vector {
  static constexpr std::int32_t kWidth = 8 * kTiles;
  double now[kWidth], partial[kParts][kWidth];
  std::uint8_t from[kParts][kWidth];

  static __device__ std::int32_t part() { return static_cast<std::int32_t>(threadIdx.x) / kWidth; }
  static __device__ std::int32_t mine() { return static_cast<std::int32_t>(threadIdx.x) % kWidth; }

  // `gain`: this thread's, from node part + kParts · k. To the threads of part 0, the best of all for their node. Has
  // a barrier; there must be another when they have put it into `now`.
  __device__ Candidate best_before(const double (&gain)[kTiles]) {
    Candidate best{none(), part()};
#pragma unroll
    for (std::int32_t k = 0; k < kTiles; ++k) {
      const double value = now[part() + kParts * k] + gain[k];
      if (value > best.value) best = {value, part() + kParts * k};
    }
    partial[part()][mine()] = best.value;
    from[part()][mine()] = static_cast<std::uint8_t>(best.number);
    __syncthreads();
    if (part() != 0) return best;
#pragma unroll
    for (std::int32_t p = 1; p < kParts; ++p) best.take({partial[p][mine()], from[p][mine()]});
    return best;
  }
};

// --- cross

// The last position's best node, to all lanes of a warp; -1: there is none.
template <std::int32_t kWidth>
__device__ std::int32_t last_node(const ScanViterbiArgs& a, const double* alpha) {
  const DeviceTopology& top = a.topology;
  Candidate best{none(), kWidth};
  for (std::int32_t i = threadIdx.x % 32; i < top.nodes; i += 32)
    if (top.node_accepts[i]) best.take({alpha[i] + a.scores.end[top.node_label[i]], i});
  best = warp_best(best);
  return best.value > none() ? best.number : -1;
}

// `crossed`: on chip, or in memory where there is no room.
template <std::int32_t kTiles>
__device__ void cross(const ScanViterbiArgs& a, std::int64_t b, std::int32_t T, std::uint8_t* crossed) {
  constexpr std::int32_t width = 8 * kTiles;
  __shared__ Vector<kTiles> alpha;
  const DeviceTopology& top = a.topology;
  const std::int32_t part = alpha.part(), mine = alpha.mine(), of = Piece(T, a.pieces.steps, 0).of;
  double gains[2][kTiles];  // two pieces ahead
  const auto load = [&](double(&gain)[kTiles], std::int32_t piece) {
    const double* from = a.products + ((b * a.pieces.count + piece) * width + part) * width + mine;
#pragma unroll
    for (std::int32_t k = 0; k < kTiles; ++k) gain[k] = piece < of ? from[k * kParts * width] : 0;
  };
  load(gains[0], 0);
  load(gains[1], 1);
  if (part == 0) {
    const bool begins = mine < top.nodes && top.node_state[mine] == top.start;
    const std::int32_t label = begins ? top.node_label[mine] : 0;
    alpha.now[mine] = begins ? a.scores.start[label] + a.emissions(b)[label] : none();
  }
  __syncthreads();
  const auto step = [&](std::int32_t n, double(&gain)[kTiles]) {
    const Candidate best = alpha.best_before(gain);
    if (part == 0) {
      alpha.now[mine] = best.value;
      crossed[n * width + mine] = static_cast<std::uint8_t>(best.number);
    }
    load(gain, n + 2);
    __syncthreads();
  };
  for (std::int32_t n = 0; n < of; n += 2) {
    step(n, gains[0]);
    if (n + 1 < of) step(n + 1, gains[1]);
  }
  if (threadIdx.x >= 32) return;
  std::int32_t node = last_node<width>(a, alpha.now);
  if (threadIdx.x > 0) return;
  std::int32_t* to = a.node + b * (a.pieces.count + 1);
  for (std::int32_t n = of; n >= 0; --n) {
    to[n] = node;
    if (n > 0 && node >= 0) node = crossed[(n - 1) * width + node];
  }
}

template <std::int32_t kTiles>
__global__ void __launch_bounds__(64 * kTiles, 1) cross_kernel(const __grid_constant__ ScanViterbiArgs a) {
  const std::int64_t b = blockIdx.x;
  const std::int32_t T = a.scores.length[b];
  if (T > 0) {
    std::uint8_t* on_chip = reinterpret_cast<std::uint8_t*>(shared_memory());
    cross<kTiles>(a, b, T, a.crossed ? a.crossed + b * a.pieces.count * 8 * kTiles : on_chip);
  }
  __syncthreads();
  const std::int32_t* node = a.node + b * (a.pieces.count + 1);
  const bool found = T > 0 && node[0] >= 0;
  std::int32_t* path = a.best.labels + b * a.batch.length;
  for (std::int64_t t = (found ? T : 0) + threadIdx.x; t < a.batch.length; t += blockDim.x) path[t] = -1;
}

// --- follow

template <std::int32_t kTiles>
__global__ void __launch_bounds__(64 * kTiles, 1) follow_kernel(const __grid_constant__ ScanViterbiArgs a) {
  constexpr std::int32_t width = 8 * kTiles;
  __shared__ Vector<kTiles> delta;
  __shared__ __align__(16) char weights_room[PieceWeights<kTiles>::kBytes];
  const DeviceTopology& top = a.topology;
  const std::int64_t b = blockIdx.y;
  const std::int32_t T = a.scores.length[b], thread = threadIdx.x, part = delta.part(), mine = delta.mine();
  const Piece piece(T, a.pieces.steps, static_cast<std::int32_t>(blockIdx.x));
  if (!piece.exists()) return;
  const std::int32_t* node = a.node + b * (a.pieces.count + 1) + piece.number;
  if (node[0] < 0) return;
  const std::int32_t steps = piece.last - piece.first;
  std::uint8_t* before = a.before ? a.before + (b * a.batch.length + piece.first) * width
                                  : reinterpret_cast<std::uint8_t*>(shared_memory());
  double gains[kTiles];
#pragma unroll
  for (std::int32_t k = 0; k < kTiles; ++k) gains[k] = step_score(top, a.batch, part + kParts * k, mine);
  if (part == 0) delta.now[mine] = mine == node[0] ? 0 : none();
  PieceWeights<kTiles> weights(top, a.emissions(b), piece, weights_room);
  __syncthreads();
  for (std::int32_t n = 0; n < steps; ++n) {
    const double* weight = weights.of(n);
    const Candidate best = delta.best_before(gains);
    if (part == 0) {
      delta.now[mine] = best.value + weight[mine];
      before[n * width + mine] = static_cast<std::uint8_t>(best.number);
    }
    __syncthreads();
  }
  std::int32_t* path = a.best.labels + b * a.batch.length;
  if (thread == 0) {
    std::int32_t at = node[1];
    for (std::int32_t n = steps; n > 0; --n) {
      path[piece.first + n] = top.node_label[at];
      at = before[(n - 1) * width + at];
    }
    if (piece.number == 0) path[0] = top.node_label[at];
  }
  __syncthreads();

  // The piece before writes the label at this one's first position, but it is known already.
  const std::int64_t* row = a.scores.row + b * a.batch.length;
  const std::int32_t begin = top.node_label[node[0]];
  const auto label = [&](std::int32_t t) { return t == piece.first ? begin : path[t]; };
  const Sum partial = path_score(a.batch, top.K, T, row, label, piece.number > 0 ? piece.first + 1 : 0, piece.last + 1);
  const Sum sum = block_exact<64 * kTiles>(partial);
  if (thread == 0) a.partial[b * a.pieces.count + piece.number] = sum;
}

// --- total

__global__ void __launch_bounds__(kTotalThreads, 1) total_kernel(const __grid_constant__ ScanViterbiArgs a) {
  const std::int64_t b = blockIdx.x;
  const std::int32_t T = a.scores.length[b], of = Piece(T, a.pieces.steps, 0).of;
  const bool found = T > 0 && a.node[b * (a.pieces.count + 1)] >= 0;
  Sum sum;
  for (std::int32_t n = threadIdx.x; found && n < of; n += kTotalThreads) {
    sum.add(a.partial[b * a.pieces.count + n]);
  }
  const double score = block_exact<kTotalThreads>(sum, of).value();
  Status status = block_status(a.batch, a.scores, b, T, a.topology.K);
  if (threadIdx.x != 0) return;
  const bool empty = T == 0 && a.topology.empty;
  a.best.score[b] = found ? score : empty ? 0 : -INFINITY;
  if (!found && !empty && status.outcome == 0) status.outcome = static_cast<std::int32_t>(Outcome::impossible);
  a.best.status[b] = status;
}

// --- the call

ScanViterbiArgs args_of(Arena& arena, const DeviceConstraint::Impl& c, const Batch& batch, const Pieces& pieces,
                        const Best& best) {
  const auto B = batch.size, all = B * pieces.count, width = std::int64_t{8 * tiles_of(c.topology.nodes)};
  const std::int64_t others = (16 * kStaged + 8 + 9 * kParts) * width + 1024;  // bytes that the kernels declare
  ScanViterbiArgs args{{c.topology, batch, pieces, allocate_prepared<double>(arena, c, batch, false)}};
  args.best = best;
  args.products = arena.allocate<double>(all * width * width);
  args.node = arena.allocate<std::int32_t>(all + B);
  args.partial = arena.allocate<Sum>(all);
  if (width * pieces.count + others > c.shared_bytes) args.crossed = arena.allocate<std::uint8_t>(all * width);
  if (width * pieces.steps + others > c.shared_bytes)
    args.before = arena.allocate<std::uint8_t>(B * batch.length * width);
  return args;
}

}  // namespace

// As measured on an H200.
ScanCosts viterbi_costs(std::int32_t nodes) {
  const double tiles = tiles_of(nodes);
  return {.step = 0.48,
          .multiply = 0.3 + 0.0143 * tiles * tiles * tiles,
          .cross = 0.3,
          .walk = 0.35 + 0.02 * tiles,
          .start = 20 + 3 * tiles};
}

std::size_t viterbi_bytes(const DeviceConstraint& constraint, const Batch& batch, const Pieces& pieces) {
  Arena arena(Memory{});
  args_of(arena, constraint.impl(), batch, pieces, {});
  return arena.used();
}

void viterbi(const DeviceConstraint& constraint, const Batch& batch, const Best& best, const Pieces& pieces,
             Memory memory, void* stream) {
  check_batch("viterbi", batch);
  if (batch.size == 0) return;
  const DeviceConstraint::Impl& c = constraint.impl();
  Arena arena(memory);
  const ScanViterbiArgs args = args_of(arena, c, batch, pieces, best);
  const auto s = static_cast<cudaStream_t>(stream);
  prepare<double>(c, batch, args.scores, Scale::log, nullptr, s);
  multiply_steps<Maximum>({args, args.products}, s);
  with_tiles(tiles_of(c.topology.nodes), [&](auto constant) {
    constexpr std::int32_t tiles = decltype(constant)::value;
    launch_kernel(cross_kernel<tiles>,
                  {.x = batch.size, .threads = 64 * tiles, .bytes = args.crossed ? 0 : 8 * tiles * pieces.count}, s,
                  args, "viterbi, crossing pieces");
    launch_kernel(follow_kernel<tiles>,
                  {.x = pieces.count,
                   .y = batch.size,
                   .threads = 64 * tiles,
                   .bytes = args.before ? 0 : 8 * tiles * pieces.steps},
                  s, args, "viterbi, following pieces");
  });
  launch_kernel(total_kernel, {.x = batch.size, .threads = kTotalThreads}, s, args, "viterbi, adding up");
}

}  // namespace regccrf::cuda
