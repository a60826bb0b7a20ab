// The join where a position is small (join_cuda.cu says what it computes): positions stream through a block.
//
// A block has a chunk of neighbouring positions of one sequence, as many as make one wave of blocks. They come on chip
// one after the other, into a few slots in turn: whoever is the last to be done with a position asks for the one that
// takes its slot, and nobody waits for anybody else. Each warp has its own thing to do:
//   patch    of a group's matrix: bigrams, on the tensor cores in double, added up over all positions
//   pairs    labels, so marginals and z, and thin states' bigrams; every kPairWarps-th position
#include <algorithm>

#include "inference/gold_cuda.h"
#include "inference/join_stream_cuda.h"

namespace regccrf::cuda {

namespace {

// Positions on chip. A warp waits for every filling of the slots that it looks at, and holds it until it has, since a
// mailbox tells no more than odd from even: warps of pairs look at one slot and the next.
constexpr int kSlots = 4, kPairWarps = kSlots;
constexpr int kLeastChunk = 4;
constexpr int kMostWarps = 14, kRegisters = 72;
constexpr int kMostLabels = 64, kLabelsOfLane = kMostLabels / 32;
constexpr int kGroups = 3;  // of kRoundsTogether rounds each, and there are as many of labels and of thin states

struct Head {
  Units units;
  Mailbox full[kSlots];
  std::int32_t done[kSlots];  // warps that are, with all positions that have been there
  float one[2];               // 1 and 0: y of ends
};

// Where a block's arrays begin, in bytes.
struct Layout {
  std::int32_t m, y, shares, bytes;
};
Layout layout_of(const DeviceJoin& join) {
  Layout l{};
  const auto take = [&](std::int64_t count) {
    const std::int32_t at = l.bytes;
    l.bytes += aligned(count * std::int64_t{sizeof(float)});
    return at;
  };
  l.bytes = aligned(sizeof(Head));
  l.m = take(kSlots * join.places);  // a patch may read past its last slot, whatever is there …
  l.y = take(kSlots * join.outs);    // … and past its last out
  l.shares = take(kPairWarps * kGroups * kRoundsTogether);
  l.bytes += kPatchColumns * static_cast<int>(sizeof(float));
  return l;
}

struct Args {
  DeviceJoin join;
  DeviceTopology topology;
  Kept<float> kept;
  JoinWork<float> work;
  Layout layout;
  std::int64_t T;
  std::uint32_t batch;         // sequences
  std::uint32_t gold_blocks;   // of the grid, the first
  std::int32_t gold_together;  // sequences of such a block
  std::int32_t* stamps;        // of gold, null: on chip
  bool gold;
  void* emissions;  // [rows, K] or null
  Type type;        // of the caller's arrays
};

// Whether bigrams are wanted, and there are any, of patches and of thin states.
__device__ bool wants_patches(const Args& a) { return a.work.entries > 0 && a.join.patches > 0; }
__device__ bool wants_thin(const Args& a) { return a.work.entries > 0 && a.join.sparse.rounds > 0; }

// A block's chunk, and the slots that it streams through.
class Stream {
 public:
  std::int64_t b, at;           // its sequence, and where its first position lies in [B, T]
  std::int32_t number;          // of the sequence's chunks
  std::int32_t count, bigrams;  // positions that are there, and where a bigram begins
  Head* head;
  float* shares;

  __device__ Stream(const Args& a, char* shared, std::uint32_t index) : a_(a) {
    number = static_cast<std::int32_t>(index / a.batch);
    b = index % a.batch;
    const std::int32_t first = number * a.work.chunk, T = a.kept.scores.length[b];
    at = b * a.T + first;
    count = min(a.work.chunk, T - first);
    bigrams = min(a.work.chunk, T - 1 - first);
    head = reinterpret_cast<Head*>(shared);
    m_ = reinterpret_cast<float*>(shared + a.layout.m);
    y_ = reinterpret_cast<float*>(shared + a.layout.y);
    shares = reinterpret_cast<float*>(shared + a.layout.shares);
    // Of beta one more than there are positions, if another chunk follows and somebody wants bigrams.
    rows_ = wants_patches(a) || wants_thin(a) ? max(count, bigrams + 1) : count;
    // Warps of patches, the one that has the position's pairs, and the one before that, whose thin bigrams end there.
    users_ = (wants_patches(a) ? a.join.patches : 0) + 1 + (wants_thin(a) ? 1 : 0);
  }

  __device__ float* sums() const { return a_.work.sums + (b * a_.work.chunks + number) * a_.work.entries; }

  // By one thread.
  __device__ void begin() {
    for (int slot = 0; slot < kSlots; ++slot) {
      open_mailbox(&head->full[slot]);
      head->done[slot] = 0;
    }
    head->one[0] = 1;
    head->one[1] = 0;
    for (std::int32_t j = 0; j < kSlots && j < rows_; ++j) ask_for(j);
  }

  __device__ const float* m(std::int32_t j) const { return m_ + j % kSlots * a_.join.places; }
  __device__ const float* y(std::int32_t j) const { return y_ + j % kSlots * a_.join.outs; }
  __device__ void wait(std::int32_t j) const {
    wait_for(&head->full[j % kSlots], static_cast<std::uint32_t>(j / kSlots));
  }
  // By a warp that is done with position j.
  __device__ void leave(std::int32_t j) {
    __syncwarp();
    if (lane_of() != 0 || j + kSlots >= rows_) return;
    __threadfence_block();
    if (atomicAdd(&head->done[j % kSlots], 1) + 1 < users_ * (j / kSlots + 1)) return;
    __threadfence_block();
    let_copies_overwrite();
    ask_for(j + kSlots);
  }

 private:
  __device__ void ask_for(std::int32_t j) {
    const bool m = j<count, y = bigrams> 0;
    const auto bytes = [](std::int32_t n) { return static_cast<std::uint32_t>(n) * unsigned{sizeof(float)}; };
    Mailbox* box = &head->full[j % kSlots];
    expect(box, (m ? bytes(a_.join.places) : 0) + (y ? bytes(a_.join.outs) : 0));
    if (m)
      fetch_once(m_ + j % kSlots * a_.join.places, a_.kept.alpha + (at + j) * a_.join.places, bytes(a_.join.places),
                 box);
    if (y) fetch_once(y_ + j % kSlots * a_.join.outs, a_.kept.beta + (at + j) * a_.join.outs, bytes(a_.join.outs), box);
  }

  const Args& a_;
  float *m_, *y_;
  std::int32_t rows_, users_;
};

// The pairs of up to kGroups groups of rounds: a lane has every kRoundLanes-th of its round in each.
class Pairs {
 public:
  std::int32_t groups;

  __device__ explicit Pairs(const DeviceRounds& rounds)
      : groups((rounds.rounds + kRoundsTogether - 1) / kRoundsTogether),
        quads_(rounds.height / kRoundLanes / kRoundSteps),
        pair_(reinterpret_cast<const uint4*>(rounds.packed) + lane_of()) {}
  static __device__ std::int32_t round_of(int g) { return g * kRoundsTogether + lane_of() / kRoundLanes; }

  // Σ m · (y · factor) of the lane's rounds, all of it in each of their lanes.
  __device__ void sum(const float* m, const float* y, const float (&factor)[kGroups], float (&to)[kGroups]) const {
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      to[g] = 0;
      if (g >= groups) continue;
      uint4 pair[kQuads];
#pragma unroll
      for (int q = 0; q < kQuads; ++q) {
        if (q < quads_) pair[q] = __ldg(pair_ + (g * quads_ + q) * 32);
      }
      float other = 0;
#pragma unroll
      for (int q = 0; q < kQuads; ++q) {
        if (q >= quads_) continue;
        to[g] += product(m, y, pair[q].x, factor[g]);
        other += product(m, y, pair[q].y, factor[g]);
        to[g] += product(m, y, pair[q].z, factor[g]);
        other += product(m, y, pair[q].w, factor[g]);
      }
      to[g] = sum_of_round(to[g] + other);
    }
  }

 private:
  static constexpr int kQuads = kMostHeight / kRoundLanes / kRoundSteps;
  static __device__ float product(const float* m, const float* y, std::uint32_t pair, float factor) {
    return value(m, pair & 0xffff) * (value(y, pair >> 16) * factor);
  }
  static __device__ float value(const float* from, std::uint32_t bytes) {
    return *reinterpret_cast<const float*>(reinterpret_cast<const char*>(from) + bytes);
  }
  std::int32_t quads_;
  const uint4* pair_;
};

__device__ void do_patch(const Args& a, Stream& stream, const JoinPatch& patch) {
  Tiles<double> sum{};
  stream.wait(0);
#pragma unroll 1
  for (std::int32_t j = 0; j < stream.bigrams; ++j) {
    stream.wait(j + 1);
    multiply_patch(patch, stream.m(j) + patch.place, stream.y(j + 1) + patch.out,
                   stream.head->units.scale[j] * stream.head->units.unit[j], sum);
    stream.leave(j);
  }
  if (stream.bigrams > 0 && !write_patch(patch, sum, stream.sums())) a.kept.flag[stream.b] = 1;
}

// Where marginals of a position go. A lane has every 32nd label.
struct Position {
  std::int64_t row;
  std::int32_t gold;
};
__device__ Position position_of(const Args& a, std::int64_t at) {
  return {a.kept.scores.row[at], a.gold ? a.kept.scores.gold[at] : -1};
}
__device__ void total(const Args& a, const Stream& stream, std::int32_t j, const Position& position,
                      const float (&label)[kLabelsOfLane]) {
  double z = 0;
#pragma unroll
  for (int n = 0; n < kLabelsOfLane; ++n) z += static_cast<double>(label[n]);
#pragma unroll
  for (int bit = 16; bit > 0; bit /= 2) z += __shfl_xor_sync(kAllLanes, z, bit);
  if (lane_of() == 0) {
    a.kept.z[stream.at + j] = z;
    const double inverse = j == 0 ? 1 / (z * stream.head->units.first) : 1;  // of the chunk's unit
    if (j == 0) a.work.inverse[stream.b * a.work.chunks + stream.number] = inverse;
    if (!(z > 0 && z >= stream.head->units.least[j] && isfinite(z) && isfinite(inverse))) a.kept.flag[stream.b] = 1;
  }
  if (!a.emissions) return;
  const double over = 1 / z;
#pragma unroll
  for (int n = 0; n < kLabelsOfLane; ++n) {
    const std::int32_t k = lane_of() + 32 * n;
    if (k >= a.join.K) continue;
    const double p = static_cast<double>(label[n]) * over;
    write_score(a.emissions, a.type, position.row * a.join.K + k, k == position.gold ? p - 1 : p);
  }
}

// The labels of a position are sums of alpha times beta over its nodes, with 1 over the emission, or of alpha times 1
// over ends, with their weight.
__device__ const DeviceRounds& rounds_of(const Args& a, const Stream& stream, std::int32_t j) {
  return j < stream.bigrams ? a.join.nodes : a.join.ends;
}
// What a warp wants of memory for a position.
struct Ahead {
  float weight[kGroups];  // of the labels of the lane's rounds
  Position position;
};
__device__ Ahead look_at(const Args& a, const Stream& stream, std::int32_t j) {
  Ahead there{};
  if (j >= stream.count) return there;
  const DeviceRounds& rounds = rounds_of(a, stream, j);
  const float* weight =
      j < stream.bigrams ? a.kept.scores.emissions + (stream.at + j) * (a.join.K + 1) : a.kept.scores.end;
#pragma unroll
  for (int g = 0; g < kGroups; ++g) {
    if (Pairs::round_of(g) < rounds.rounds) there.weight[g] = weight[rounds.key[Pairs::round_of(g)]];
  }
  there.position = position_of(a, stream.at + j);
  return there;
}

// What a label has of its rounds. A lane has every 32nd.
__device__ void sum_labels(const DeviceRounds& rounds, std::int32_t K, const float* shares,
                           float (&label)[kLabelsOfLane]) {
#pragma unroll
  for (int n = 0; n < kLabelsOfLane; ++n) {
    const std::int32_t k = lane_of() + 32 * n;
    label[n] = 0;
    if (k >= K) continue;
#pragma unroll 1
    for (std::int32_t i = rounds.begin[k]; i < rounds.begin[k + 1]; ++i) label[n] += shares[i];
  }
}
template <class P>
__device__ void write_shares(const P (&sum)[kGroups], float* shares) {
#pragma unroll
  for (int g = 0; g < kGroups; ++g) {
    if (lane_of() % kRoundLanes == 0)
      shares[g * kRoundsTogether + lane_of() / kRoundLanes] = static_cast<float>(sum[g]);
  }
  __syncwarp();
}

// Pairs of every kPairWarps-th position.
__device__ void do_pairs(const Args& a, Stream& stream, std::int32_t first, Ahead ahead) {
  float* shares = stream.shares + first * kGroups * kRoundsTogether;
  double of_thin[kGroups]{};
  if (wants_thin(a) && first + 1 == kSlots) {  // its slot's first filling, where nobody's bigrams end
    stream.wait(0);
    stream.leave(0);
  }
#pragma unroll 1
  for (std::int32_t j = first; j < stream.count; j += kPairWarps) {
    const bool last = j == stream.bigrams;
    const Ahead now = ahead;
    ahead = look_at(a, stream, j + kPairWarps);
    // 1 over the emissions as beta has them, and over beta's peak; 0 where they are.
    float factor[kGroups], sum[kGroups];
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      const float weight = Downwards::weight(now.weight[g]);
      factor[g] = last ? now.weight[g] : weight > 0 ? __fdividef(1 / Bounds<float>::beta_top, weight) : 0;
    }
    stream.wait(j);
    Pairs(rounds_of(a, stream, j)).sum(stream.m(j), last ? stream.head->one : stream.y(j), factor, sum);
    write_shares(sum, shares);
    if (wants_thin(a) && !last) {
#pragma unroll
      for (int g = 0; g < kGroups; ++g) factor[g] = static_cast<float>(stream.head->units.scale[j]);
      stream.wait(j + 1);
      Pairs(a.join.sparse).sum(stream.m(j), stream.y(j + 1), factor, sum);
      stream.leave(j + 1);
#pragma unroll
      for (int g = 0; g < kGroups; ++g) of_thin[g] += static_cast<double>(sum[g]) * stream.head->units.unit[j];
    }
    stream.leave(j);
    float label[kLabelsOfLane];
    sum_labels(rounds_of(a, stream, j), a.join.K, shares, label);
    total(a, stream, j, now.position, label);
    __syncwarp();
  }
  if (wants_thin(a)) write_shares(of_thin, shares);
}

// Thin states' bigrams, of all warps that have some.
__device__ void add_thin(const Args& a, const Stream& stream) {
  constexpr std::int32_t rounds = kGroups * kRoundsTogether;
  const auto i = static_cast<std::int32_t>(threadIdx.x);
  if (i >= a.join.sparse.rounds || stream.bigrams <= 0) return;
  float sum = 0;
#pragma unroll
  for (int n = 0; n < kPairWarps; ++n) sum += stream.shares[n * rounds + i];
  stream.sums()[a.join.dense + i] = sum;
  if (!(sum < largest_number(float{}))) a.kept.flag[stream.b] = 1;
}

__global__ void __launch_bounds__(32 * kMostWarps, 65536 / (32 * kMostWarps * kRegisters))
    stream_kernel(const __grid_constant__ Args a) {
  let_kernel_behind_begin();
  char* shared = shared_memory();
  if (blockIdx.x < a.gold_blocks) {
    follow_gold(a.topology, a.kept.scores.gold, a.T, a.kept.scores.length, std::int64_t{blockIdx.x} * a.gold_together,
                a.batch, a.gold_together, shared, a.stamps, a.kept.leaves);
    wait_for_kernel_before();
    return;
  }
  Stream stream(a, shared, blockIdx.x - a.gold_blocks);
  const std::int32_t patch_warp = warp_of() - kPairWarps;
  const Ahead ahead = look_at(a, stream, patch_warp < 0 ? warp_of() : stream.count);
  const JoinPatch patch = patch_warp >= 0 ? a.join.patch[patch_warp] : JoinPatch{};
  wait_for_kernel_before();  // until here, nothing of the pass
  if (stream.count <= 0) return;
  if (threadIdx.x == 0) stream.begin();
  if (warp_of() == 1) set_units(stream.head->units, a.kept, stream.at, stream.b, stream.bigrams);
  __syncthreads();
  if (patch_warp < 0) {
    do_pairs(a, stream, warp_of(), ahead);
  } else {
    do_patch(a, stream, patch);
  }
  if (wants_thin(a)) {
    __syncthreads();
    add_thin(a, stream);
  }
}

std::int32_t groups_of(const DeviceRounds& rounds) { return (rounds.rounds + kRoundsTogether - 1) / kRoundsTogether; }
std::int32_t warps_of(const DeviceJoin& join, bool bigrams) { return kPairWarps + (bigrams ? join.patches : 0); }

}  // namespace

bool streams(const DeviceConstraint::Impl& c, const Batch& batch, const PassWork<float>& pass) {
  if (batch.size * ((batch.length + kLeastChunk - 1) / kLeastChunk) <= c.processors) return false;
  const DeviceJoin& join = c.join;
  return c.early && join.copied && pass.at_outs && join.K <= kMostLabels && join.nodes.packed &&
         (join.sparse.packed || join.sparse.rounds == 0) && (join.ends.packed || join.ends.rounds == 0) &&
         std::max({groups_of(join.nodes), groups_of(join.sparse), groups_of(join.ends)}) <= kGroups &&
         warps_of(join, true) <= kMostWarps && layout_of(join).bytes <= c.shared_bytes;
}

std::int32_t streamed_chunk(const DeviceConstraint::Impl& c, const Batch& batch, bool bigrams) {
  const std::int64_t of_memory = c.shared_bytes / (layout_of(c.join).bytes + 1024),
                     of_registers = 65536 / (32 * warps_of(c.join, bigrams) * kRegisters),
                     blocks = c.processors * std::min(of_memory, of_registers);
  std::int32_t chunk = kLeastChunk;
  const auto wanted = [&] { return batch.size * ((batch.length + chunk - 1) / chunk); };
  while (chunk < kMostChunk && wanted() > blocks) ++chunk;
  return chunk;
}

void run_stream(const DeviceConstraint::Impl& c, const Batch& batch, const Kept<float>& kept,
                const PassWork<float>& pass, const JoinWork<float>& work, const Expectation& wanted,
                cudaStream_t stream) {
  const std::int32_t warps = warps_of(c.join, work.entries > 0);
  const bool follows = pass.gold == Follows::join;
  const std::int32_t together = gold_together(c, warps);
  const auto gold_blocks = static_cast<std::uint32_t>(follows ? (batch.size + together - 1) / together : 0);
  const Args args{c.join,
                  c.topology,
                  kept,
                  work,
                  layout_of(c.join),
                  batch.length,
                  static_cast<std::uint32_t>(batch.size),
                  gold_blocks,
                  together,
                  gold_bytes(c) > 0 ? nullptr : pass.stamps,
                  wanted.gold != nullptr,
                  wanted.emissions,
                  batch.type};
  const std::int64_t blocks = gold_blocks + batch.size * work.chunks;
  if (blocks == 0) return;
  launch_kernel(stream_kernel, static_cast<unsigned>(blocks), static_cast<unsigned>(32 * warps),
                std::max(args.layout.bytes, follows ? gold_bytes(c, together) : 0), stream, args,
                "joining forward and backward", c.early);
}

}  // namespace regccrf::cuda
