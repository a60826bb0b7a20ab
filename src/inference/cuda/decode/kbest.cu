// The k best sequences on a device: one block a sequence, each next path found from those before it.
//
// Viterbi leaves delta[t, n], the best score of a beginning that emits position t from node n. Link t of a path joins
// its positions t-1 and t, link T the last position and the end. Given the node after a link, the nodes that may stand
// before it have an order: by delta plus the link's score, of equals the lower number first. A path is a choice in that
// order at each of its links; the best path takes the first everywhere.
//
// Any other path has a lowest link at which it does not take the first. With the choice before that one there, and
// first choices below, it is another path, no worse: its parent. So paths form a tree in which a path's children take
// the next choice at one of the links up to its own lowest (for the best path: T). Every path found has a child waiting
// at each of those links, and the best of all that wait is the next path. Distinct paths are distinct sequences,
// because the automaton is unambiguous.
//
// Paths are compared by how much they lose against the best one: a sum of differences between neighbours in an order.
// Their own scores are summed at the end, in double, and settle the order of what comes out.
#include <algorithm>

#include "inference/cuda/decode/candidate.h"
#include "inference/cuda/prepare.h"

namespace regccrf::cuda {

namespace {

constexpr int kThreads = 512, kWarps = kThreads / 32;
constexpr std::int64_t kMostBytes = std::int64_t{1} << 28;

struct FoundPath {
  double score;               // its own
  double waiting;             // the value of its best child …
  std::int32_t waiting_link;  // … which leaves it here
  std::int32_t link;          // up to which its children leave it
  std::int32_t rank;          // by score
};

// One slot serves one block; blocks take sequences in turn.
struct KBestMemory {
  Prepared<double> scores;
  std::int32_t slots;
  double* g;             // [slots, K, K]
  double* delta;         // [slots, T, nodes]
  double* arrivals;      // [slots, arrivals]
  FoundPath* found;      // [slots, k]
  std::int32_t* nodes;   // [slots, k, T]
  double* waiting;       // [slots, k, T + 1] value of the child at each link: minus what it loses; −inf: none
  std::int32_t* choice;  // [slots, k, T + 1] the node it takes there
};

struct KBestArgs {
  DeviceTopology topology;
  Batch batch;
  KBest best;
  KBestMemory work;
};

// A block's sequence, and its arrays.
struct KBestScratch {
  std::int32_t T;
  double *g, *delta, *arrivals;
  FoundPath* found;
  std::int32_t* nodes;
  double* waiting;
  std::int32_t* choice;
  const double* emissions;  // [T, K + 1]

  __device__ KBestScratch(const KBestArgs& a, std::int64_t b) {
    const std::int64_t slot = blockIdx.x, length = a.batch.length, K = a.topology.K, k = a.best.k;
    T = a.work.scores.length[b];
    g = a.work.g + slot * K * K;
    delta = a.work.delta + slot * length * a.topology.nodes;
    arrivals = a.work.arrivals + slot * a.topology.arrivals;
    found = a.work.found + slot * k;
    nodes = a.work.nodes + slot * k * length;
    waiting = a.work.waiting + slot * k * (length + 1);
    choice = a.work.choice + slot * k * (length + 1);
    emissions = a.work.scores.emissions + b * length * (K + 1);
  }
};

__device__ Candidate ahead() { return {INFINITY, -1}; }          // of every choice
__device__ Candidate none() { return {-INFINITY, 0x7fffffff}; }  // behind every choice

__device__ void load_transitions(const KBestArgs& a) {
  const std::int32_t size = a.topology.K * a.topology.K;
  double* g = a.work.g + blockIdx.x * std::int64_t{size};
  for (std::int32_t i = threadIdx.x; i < size; i += kThreads) g[i] = score_at(a.batch.transitions, i);
}

// Viterbi's scores, all of them.
__device__ void forward(const KBestArgs& a, const KBestScratch& s) {
  const DeviceTopology& d = a.topology;
  const std::int32_t first = d.node_begin[d.start], last = d.node_begin[d.start + 1];
  for (std::int32_t n = threadIdx.x; n < d.nodes; n += kThreads) {
    const std::int32_t label = d.node_label[n];
    s.delta[n] = n >= first && n < last ? a.work.scores.start[label] + s.emissions[label] : -INFINITY;
  }
  __syncthreads();
  for (std::int32_t t = 1; t < s.T; ++t) {
    const double* row = s.emissions + std::int64_t{t} * (d.K + 1);
    const double* now = s.delta + std::int64_t{t - 1} * d.nodes;
    double* next = s.delta + std::int64_t{t} * d.nodes;
    for (std::int32_t m = threadIdx.x; m < d.arrivals; m += kThreads) {
      double best = -INFINITY;
      for (std::int32_t i = d.into_begin[m]; i < d.into_begin[m + 1]; ++i) best = fmax(best, now[d.into_node[i]]);
      s.arrivals[m] = best;
    }
    __syncthreads();
    for (std::int32_t n = threadIdx.x; n < d.nodes; n += kThreads) {
      const std::int32_t r = d.node_state[n], label = d.node_label[n];
      double best = -INFINITY;
      for (std::int32_t m = d.arrival_begin[r]; m < d.arrival_begin[r + 1]; ++m)
        best = fmax(best, s.arrivals[m] + s.g[d.arrival_label[m] * d.K + label]);
      next[n] = best + row[label];
    }
    __syncthreads();
  }
}

// To have node n before link t and `after` behind it, which is nothing at link T.
__device__ Candidate choice_of(const KBestArgs& a, const KBestScratch& s, std::int32_t t, std::int32_t after,
                               std::int32_t n) {
  const std::int32_t* label = a.topology.node_label;
  const double gain = t == s.T ? a.work.scores.end[label[n]] : s.g[label[n] * a.topology.K + label[after]];
  return {s.delta[std::int64_t{t - 1} * a.topology.nodes + n] + gain, n};
}

// The choice at link t that follows `last`: the best of every `step`-th candidate from number `first` on.
__device__ Candidate next_choice(const KBestArgs& a, const KBestScratch& s, std::int32_t t, std::int32_t after,
                                 Candidate last, std::int32_t first, std::int32_t step) {
  const DeviceTopology& d = a.topology;
  Candidate best = none();
  const auto offer = [&](std::int32_t n) {
    const Candidate choice = choice_of(a, s, t, after, n);
    if (choice.value > -INFINITY && before(last, choice) && before(choice, best)) best = choice;
  };
  if (t == s.T) {
    for (std::int32_t n = first; n < d.nodes; n += step) {
      if (d.node_accepts[n]) offer(n);
    }
    return best;
  }
  const std::int32_t r = d.node_state[after], end = d.into_begin[d.arrival_begin[r + 1]];
  for (std::int32_t i = d.into_begin[d.arrival_begin[r]] + first; i < end; i += step) offer(d.into_node[i]);
  return best;
}
__device__ Candidate next_by_warp(const KBestArgs& a, const KBestScratch& s, std::int32_t t, std::int32_t after,
                                  Candidate last) {
  return warp_best(next_choice(a, s, t, after, last, threadIdx.x % 32, 32));
}
__device__ Candidate next_by_block(const KBestArgs& a, const KBestScratch& s, std::int32_t t, std::int32_t after,
                                   Candidate last) {
  return block_best<kThreads>(next_choice(a, s, t, after, last, threadIdx.x, kThreads));
}

// Has path i choose its best waiting child again.
__device__ void settle(const KBestArgs& a, const KBestScratch& s, std::int32_t i) {
  const double* waiting = s.waiting + i * (a.batch.length + 1);
  const std::int32_t links = s.found[i].link;
  Candidate mine = none();
  for (std::int32_t t = 1 + threadIdx.x; t <= links; t += kThreads) {
    if (before({waiting[t], t}, mine)) mine = {waiting[t], t};
  }
  mine = block_best<kThreads>(mine);
  if (threadIdx.x == 0) {
    s.found[i].waiting = mine.value;
    s.found[i].waiting_link = mine.number;
  }
  __syncthreads();
}

// Path i is the one that leaves its parent at `link` for `node`. `value`: minus what it loses against the best path,
// which leaves nothing, at link T.
__device__ void add_path(const KBestArgs& a, const KBestScratch& s, std::int32_t i, std::int32_t parent,
                         std::int32_t link, std::int32_t node, double value) {
  std::int32_t* path = s.nodes + i * a.batch.length;
  for (std::int32_t t = link + static_cast<std::int32_t>(threadIdx.x); t < s.T; t += kThreads)
    path[t] = s.nodes[parent * a.batch.length + t];
  if (threadIdx.x < 32) {  // below, first choices
    for (std::int32_t t = link; t > 0; --t) {
      if (threadIdx.x == 0) path[t - 1] = node;
      if (t > 1) node = next_by_warp(a, s, t - 1, node, ahead()).number;
    }
  }
  if (threadIdx.x == 0) s.found[i].link = link;
  __syncthreads();

  double* waiting = s.waiting + i * (a.batch.length + 1);
  std::int32_t* choice = s.choice + i * (a.batch.length + 1);
  const auto wait = [&](std::int32_t t, Candidate used, Candidate next) {
    waiting[t] = value - (used.value - next.value);  // −inf where there is none
    choice[t] = next.number;
  };
  for (std::int32_t t = 1 + threadIdx.x / 32; t <= link && t < s.T; t += kWarps) {
    const Candidate used = choice_of(a, s, t, path[t], path[t - 1]), next = next_by_warp(a, s, t, path[t], used);
    if (threadIdx.x % 32 == 0) wait(t, used, next);
  }
  if (link == s.T) {
    const Candidate used = choice_of(a, s, s.T, -1, path[s.T - 1]), next = next_by_block(a, s, s.T, -1, used);
    if (threadIdx.x == 0) wait(s.T, used, next);
  }
  __syncthreads();
  settle(a, s, i);
}

// How many paths there are, up to k, best first.
__device__ std::int32_t enumerate(const KBestArgs& a, const KBestScratch& s) {
  forward(a, s);
  const Candidate last = next_by_block(a, s, s.T, -1, ahead());
  if (last.value == -INFINITY) return 0;
  add_path(a, s, 0, -1, s.T, last.number, 0);
  for (std::int32_t count = 1; count < a.best.k; ++count) {
    Candidate mine = none();
    for (std::int32_t i = threadIdx.x; i < count; i += kThreads) {
      if (before({s.found[i].waiting, i}, mine)) mine = {s.found[i].waiting, i};
    }
    const Candidate next = block_best<kThreads>(mine);
    if (next.value == -INFINITY) return count;
    const std::int32_t parent = next.number, link = s.found[parent].waiting_link;
    const std::int64_t at = parent * (a.batch.length + 1) + link;
    const std::int32_t node = s.choice[at];
    if (threadIdx.x == 0) s.waiting[at] = -INFINITY;  // what follows it there waits with it
    __syncthreads();
    settle(a, s, parent);
    add_path(a, s, count, parent, link, node, next.value);
  }
  return a.best.k;
}

// Each path's own score, and its place by that.
__device__ void rank(const KBestArgs& a, const KBestScratch& s, std::int64_t b, std::int32_t count) {
  const std::int64_t* row = a.work.scores.row + b * a.batch.length;
  for (std::int32_t i = 0; i < count; ++i) {
    const std::int32_t* path = s.nodes + i * a.batch.length;
    const double score = block_sum<kThreads>(
        path_score(a.batch, a.topology.K, s.T, row, [&](std::int32_t t) { return a.topology.node_label[path[t]]; }));
    if (threadIdx.x == 0) s.found[i].score = score;
  }
  __syncthreads();
  for (std::int32_t i = threadIdx.x; i < count; i += kThreads) {
    std::int32_t rank = 0;
    for (std::int32_t j = 0; j < count; ++j) rank += before({s.found[j].score, j}, {s.found[i].score, i});
    s.found[i].rank = rank;
  }
  __syncthreads();
}

// What the caller gets: paths in the order of their ranks, then nothing.
__device__ void write_paths(const KBestArgs& a, const KBestScratch& s, std::int64_t b, std::int32_t count) {
  const std::int64_t length = a.batch.length, k = a.best.k;
  for (std::int64_t j = threadIdx.x; j < k * length; j += kThreads) {
    const std::int64_t i = j / length, t = j - i * length;
    const std::int64_t to = b * k + (i < count ? s.found[i].rank : i);
    a.best.labels[to * length + t] = i < count && t < s.T ? a.topology.node_label[s.nodes[j]] : -1;
  }
  for (std::int64_t i = threadIdx.x; i < k; i += kThreads)
    a.best.score[b * k + (i < count ? s.found[i].rank : i)] = i < count ? s.found[i].score : -INFINITY;
}

__global__ void __launch_bounds__(kThreads) k_best_kernel(const __grid_constant__ KBestArgs a) {
  load_transitions(a);
  for (std::int64_t b = blockIdx.x; b < a.batch.size; b += gridDim.x) {
    const KBestScratch s(a, b);
    Status& status = a.best.status[b];
    const bool bad_transition = *a.work.scores.bad != 0, bad = bad_transition || status.outcome != 0;
    __syncthreads();
    std::int32_t count = 0;
    if (!bad && s.T > 0) {
      count = enumerate(a, s);
      rank(a, s, b, count);
    }
    write_paths(a, s, b, count);
    __syncthreads();
    if (threadIdx.x != 0) continue;
    const bool empty = !bad && s.T == 0 && a.topology.empty;  // the empty sequence
    if (empty) a.best.score[b * a.best.k] = 0;
    if (bad_transition) status.outcome = static_cast<std::int32_t>(Outcome::bad_transition);
    if (!bad && count == 0 && !empty) status.outcome = static_cast<std::int32_t>(Outcome::impossible);
  }
}

KBestMemory allocate_memory(Arena& arena, const DeviceConstraint::Impl& c, const Batch& batch, std::int32_t paths) {
  const std::int64_t T = batch.length, K = c.topology.K, N = c.topology.nodes, M = c.topology.arrivals, k = paths;
  const std::size_t bytes = 8 * (K * K + T * N + M) + k * (sizeof(FoundPath) + 16 * (T + 1));
  KBestMemory w{};
  w.scores = allocate_prepared<double>(arena, c, batch, false);
  w.slots = static_cast<std::int32_t>(std::min<std::int64_t>(
      {std::max<std::int64_t>(kMostBytes / static_cast<std::int64_t>(bytes), 1), batch.size, c.processors}));
  const std::int64_t slots = w.slots;
  w.g = arena.allocate<double>(slots * K * K);
  w.delta = arena.allocate<double>(slots * T * N);
  w.arrivals = arena.allocate<double>(slots * M);
  w.found = arena.allocate<FoundPath>(slots * k);
  w.nodes = arena.allocate<std::int32_t>(slots * k * T);
  w.waiting = arena.allocate<double>(slots * k * (T + 1));
  w.choice = arena.allocate<std::int32_t>(slots * k * (T + 1));
  return w;
}

void check_k(const KBest& best) {
  if (best.k < 1) throw Error("[k_best] k is " + std::to_string(best.k) + ", expected 1 or more");
}

}  // namespace

std::size_t k_best_bytes(const DeviceConstraint& constraint, const Batch& batch, const KBest& best) {
  check_k(best);
  Arena arena(Memory{});
  allocate_memory(arena, constraint.impl(), batch, best.k);
  return arena.used();
}

void k_best(const DeviceConstraint& constraint, const Batch& batch, const KBest& best, Memory memory, void* stream) {
  check_batch("k_best", batch);
  check_k(best);
  if (batch.size == 0) return;
  Arena arena(memory);
  const DeviceConstraint::Impl& c = constraint.impl();
  const KBestMemory work = allocate_memory(arena, c, batch, best.k);
  const auto s = static_cast<cudaStream_t>(stream);
  prepare<double>(c, batch, work.scores, Scale::log, false, best.status, nullptr, s);
  launch_kernel(k_best_kernel, static_cast<unsigned>(work.slots), kThreads, 0, s, {c.topology, batch, best, work},
                "k_best");
}

}  // namespace regccrf::cuda
