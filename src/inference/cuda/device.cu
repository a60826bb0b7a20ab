// A constraint goes to the device: everything packed into one piece of memory, copied once.
#include <algorithm>
#include <cstring>
#include <numeric>
#include <span>
#include <vector>

#include "inference/batch.h"
#include "inference/cuda/device.h"

namespace regccrf::cuda {

namespace {

constexpr std::int32_t kMostWarps = 32;

// Host bytes, and the pointers that are to point at their copies on the device.
class Packer {
 public:
  std::size_t align(std::size_t unit) {
    bytes_.resize((bytes_.size() + unit - 1) / unit * unit);
    return bytes_.size();
  }
  // Where the array begins.
  template <class T>
  std::size_t add(const T* data, std::size_t count) {
    const std::size_t at = align(16);
    bytes_.resize(at + count * sizeof(T));
    if (count) std::memcpy(bytes_.data() + at, data, count * sizeof(T));
    return at;
  }
  template <class T>
  std::size_t add(const std::vector<T>& data) {
    return add(data.data(), data.size());
  }
  template <class Narrow>
  std::size_t add_as(const std::vector<std::int32_t>& data) {
    return add(std::vector<Narrow>(data.begin(), data.end()));
  }
  // The pointer gets the device address of `at` by copy_to().
  template <class T>
  void point(T*& pointer, std::size_t at) {
    pointers_.emplace_back(reinterpret_cast<const void**>(&pointer), at);
  }
  template <class T>
  void place(const T*& pointer, const T* data, std::int32_t count) {
    point(pointer, add(data, static_cast<std::size_t>(count)));
  }
  template <class T>
  void place(const T*& pointer, const std::vector<T>& data) {
    point(pointer, add(data));
  }
  // Null where there is nothing.
  template <class T>
  void place_some(const T*& pointer, const std::vector<T>& data) {
    if (!data.empty()) place(pointer, data);
  }
  std::size_t size() const { return bytes_.size(); }
  void copy_to(void* memory) const {
    check(cudaMemcpy(memory, bytes_.data(), bytes_.size(), cudaMemcpyHostToDevice), "copying a constraint");
    for (const auto& [pointer, at] : pointers_) *pointer = static_cast<const char*>(memory) + at;
  }

 private:
  std::vector<char> bytes_;
  std::vector<std::pair<const void**, std::size_t>> pointers_;
};

std::vector<std::int32_t> flat(const std::vector<Source>& sources) {
  std::vector<std::int32_t> numbers;
  for (const Source& s : sources) {
    numbers.push_back(s.x);
    numbers.push_back(s.y);
  }
  return numbers;
}

void pack_shares(Packer& p, const Shares& shares, DeviceShares& d) {
  d.room = shares.room;
  if (shares.room == 0) return;
  d.extras = static_cast<std::int32_t>(shares.extra_begin.size()) - 1;
  p.place(d.copies, shares.copies);
  p.place(d.group, shares.groups);
  p.point(d.source, p.add_as<std::uint16_t>(flat(shares.source)));
  p.point(d.thin_source, p.add_as<std::uint16_t>(flat(shares.thin_source)));
  p.place(d.outs, shares.outs);
  p.place(d.rest, shares.rest);
  p.place(d.number, shares.number);
  p.place(d.extra_first, shares.extra_first);
  p.place(d.extra_begin, shares.extra_begin);
  p.point(d.extra_source, p.add_as<std::uint16_t>(shares.extra_source));
  p.place(d.extra_cell, shares.extra_cell);
  for (int k = 0; k < 4; ++k) {
    d.warps[k] = shares.schedule[k].warps;
    p.place(d.unit[k], shares.schedule[k].units);
    p.place(d.warp_begin[k], shares.schedule[k].begin);
  }
}

// As large a block as there is, for asking how many run at a time.
__global__ void __launch_bounds__(1024) large_kernel(int) {}

// Whether kernels were built for sm_90 or later; those for older devices run on newer ones, and do not know of
// clusters.
constexpr bool has_code_for_clusters() {
#ifdef __CUDA_ARCH_LIST__
  for (int arch : {__CUDA_ARCH_LIST__}) {
    if (arch >= 900) return true;
  }
  return false;
#else
  return true;
#endif
}

// How many clusters of each size run at a time; 0 where the device has none.
void count_clusters(DeviceConstraint::Impl& c, int major) {
  c.clusters[0] = c.processors;
  if (major < 9) return;
  const char* what = "clusters";
  check(cudaFuncSetAttribute(large_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, c.shared_bytes), what);
  check(cudaFuncSetAttribute(large_kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1), what);
  for (int k = 1; k < 5; ++k) {
    cudaLaunchAttribute together = in_clusters_of(1u << k);
    cudaLaunchConfig_t how{};
    how.gridDim = dim3(1u << k);
    how.blockDim = dim3(1024);
    how.dynamicSmemBytes = static_cast<std::size_t>(c.shared_bytes);
    how.attrs = &together;
    how.numAttrs = 1;
    if (cudaOccupancyMaxActiveClusters(&c.clusters[k], large_kernel, &how) != cudaSuccess) {
      cudaGetLastError();
      c.clusters[k] = 0;
    }
  }
}

// What a step reads goes side by side, so that a block can copy it on chip.
template <class Index>
void pack_hot(Packer& p, const Sweep& sweep, DeviceSweep& d) {
  const std::size_t begin = p.align(256);
  const auto offset = [&](std::size_t at) { return static_cast<std::int32_t>(at - begin); };
  d.group_at = offset(p.add(sweep.groups));
  for (int resident = 0; resident < 2; ++resident) {
    const Schedule& schedule = resident ? sweep.resident : sweep.general;
    d.warps[resident] = schedule.warps;
    d.unit_at[resident] = offset(p.add(schedule.units));
    d.warp_at[resident] = offset(p.add(schedule.begin));
  }
  d.tensor_at = offset(p.add(sweep.tensor));
  d.label_at = offset(p.add_as<Index>(sweep.label));
  d.stored_at = offset(p.add_as<Index>(sweep.stored));
  d.out_of_at = offset(p.add_as<Index>(sweep.out_of));
  d.source_at = offset(p.add_as<Index>(flat(sweep.source)));
  d.thin_source_at = offset(p.add_as<Index>(flat(sweep.thin_source)));
  d.extra_begin_at = offset(p.add(sweep.extra_begin));
  d.extra_source_at = offset(p.add_as<Index>(sweep.extra_source));
  d.hot_bytes = offset(p.align(16));
  d.narrow = sizeof(Index) == 2;
  p.point(d.hot, begin);
}

void pack_sweep(Packer& p, const Sweep& sweep, bool narrow, DeviceSweep& d) {
  d.K = sweep.K;
  d.outs = sweep.outs;
  d.cells = sweep.cells;
  d.all_cells = sweep.all_cells();
  d.extras = sweep.extras;
  d.thin = sweep.thin;
  d.first_thin = sweep.first_thin;
  d.thin_slots = sweep.thin_slots;
  d.groups = static_cast<std::int32_t>(sweep.groups.size());
  d.entries = static_cast<std::int32_t>(sweep.entry.size());
  d.gains = static_cast<std::int32_t>(sweep.gain_entry.size());
  d.two = sweep.two;
  d.resident_units = static_cast<std::int32_t>(sweep.resident.units.size());
  d.cost = sweep.cost;
  d.kind = sweep.kind;
  d.trash = sweep.trash;
  d.tensor_warps = sweep.tensor_warps;
  d.tensor_units = static_cast<std::int32_t>(sweep.tensor.size());
  (narrow ? pack_hot<std::uint16_t> : pack_hot<std::int32_t>)(p, sweep, d);
  p.place(d.entry, sweep.entry);
  p.place(d.thin_entry, sweep.thin_entry);
  p.place(d.begins, sweep.begins);
  p.place(d.gain_entry, sweep.gain_entry);
  p.place(d.row_of, sweep.row_of);
  std::vector<std::uint16_t> idle;
  for (std::int32_t cell = 0; sweep.kind >= 0 && cell <= sweep.cells; ++cell) {
    if (cell == sweep.cells || sweep.out_of[static_cast<std::size_t>(cell)] < 0)
      idle.push_back(static_cast<std::uint16_t>(cell));
  }
  d.idle = static_cast<std::int32_t>(idle.size());
  p.place(d.idle_cell, idle);
  pack_shares(p, sweep.shares, d.shares);
}

void pack_rounds(Packer& p, const JoinRounds& rounds, DeviceRounds& d) {
  d.rounds = rounds.rounds();
  d.height = rounds.height;
  p.place(d.pair, rounds.pair);
  p.place(d.key, rounds.key);
  p.place(d.begin, rounds.begin);
}

void pack_join(Packer& p, const Sweeps& sweeps, const Join& join, DeviceJoin& d) {
  d.K = sweeps.forward.K;
  d.outs = static_cast<std::int32_t>(join.out.size());
  d.dense_outs = join.dense_outs;
  d.forward_cells = sweeps.forward.cells;
  d.backward_cells = sweeps.backward.cells;
  d.rounds = join.rounds();
  d.groups = static_cast<std::int32_t>(join.groups.size());
  d.patches = static_cast<std::int32_t>(join.patches.size());
  d.places = join.places;
  d.copied = join.copied;
  d.dense = join.dense;
  p.place(d.arrival, join.arrival);
  p.place(d.round_begin, join.round_begin);
  p.place(d.out, join.out);
  p.place_some(d.quad, join.quad);
  p.place(d.group, join.groups);
  p.place(d.patch, join.patches);
  p.place_some(d.arrival_begin, join.arrival_begin);
  p.place_some(d.arrival_source, join.arrival_source);
  p.place_some(d.out_begin, join.out_begin);
  p.place_some(d.out_target, join.out_target);
  p.place(d.pair_begin, join.pair_begin);
  p.place(d.pair_entry, join.pair_entry);
  p.place(d.end_begin, join.end_begin);
  p.place(d.end_cell, join.end_cell);
  pack_rounds(p, join.nodes, d.nodes);
  pack_rounds(p, join.arrivals, d.arrivals);
  pack_rounds(p, join.sparse, d.sparse);
}

// Arcs by label, as pairs of states.
struct Arcs {
  std::vector<std::int32_t> begin, from, to;
};
Arcs arcs_by_label(const Topology& t) {
  std::vector<std::vector<std::int32_t>> from(static_cast<std::size_t>(t.K)), to(static_cast<std::size_t>(t.K));
  for (std::int32_t m = 0; m < t.arrivals; ++m) {
    for (std::int32_t i = t.into_begin[m]; i < t.into_begin[m + 1]; ++i) {
      from[t.arrival_label[m]].push_back(t.node_state[t.into_node[i]]);
      to[t.arrival_label[m]].push_back(t.arrival_state[m]);
    }
  }
  Arcs arcs{{0}, {}, {}};
  for (std::int32_t a = 0; a < t.K; ++a) {
    arcs.from.insert(arcs.from.end(), from[a].begin(), from[a].end());
    arcs.to.insert(arcs.to.end(), to[a].begin(), to[a].end());
    arcs.begin.push_back(static_cast<std::int32_t>(arcs.from.size()));
  }
  return arcs;
}

struct Nodes {
  std::vector<std::int32_t> begin, node;
};
Nodes nodes_by_label(const Topology& t) {
  Nodes nodes{std::vector<std::int32_t>(static_cast<std::size_t>(t.K) + 1),
              std::vector<std::int32_t>(static_cast<std::size_t>(t.nodes))};
  std::iota(nodes.node.begin(), nodes.node.end(), 0);
  std::stable_sort(nodes.node.begin(), nodes.node.end(),
                   [&](std::int32_t x, std::int32_t y) { return t.node_label[x] < t.node_label[y]; });
  for (std::int32_t n = 0; n < t.nodes; ++n) ++nodes.begin[static_cast<std::size_t>(t.node_label[n]) + 1];
  std::partial_sum(nodes.begin.begin(), nodes.begin.end(), nodes.begin.begin());
  return nodes;
}

struct Bigrams {
  std::vector<std::int32_t> pair, pair_begin, round_begin;
  std::vector<Bigram> bigram;
};
Bigrams bigrams_by_pair(const Topology& t) {
  std::vector<std::vector<Bigram>> of(static_cast<std::size_t>(t.K) * static_cast<std::size_t>(t.K));
  for (std::int32_t m = 0; m < t.arrivals; ++m) {
    for (std::int32_t n = t.node_begin[t.arrival_state[m]]; n < t.node_begin[t.arrival_state[m] + 1]; ++n)
      of[static_cast<std::size_t>(t.arrival_label[m] * t.K + t.node_label[n])].push_back({m, n});
  }
  Bigrams bigrams{{}, {0}, {0}, {}};
  std::vector<std::span<const Bigram>> column;
  for (std::size_t pair = 0; pair < of.size(); ++pair) {
    for (std::span<const Bigram> rest = of[pair]; !rest.empty();) {
      column.push_back(rest.first(std::min<std::size_t>(rest.size(), kColumn)));
      rest = rest.subspan(column.back().size());
      bigrams.pair.push_back(static_cast<std::int32_t>(pair));
    }
    bigrams.pair_begin.push_back(static_cast<std::int32_t>(column.size()));
  }
  for (std::size_t first = 0; first < column.size(); first += 32) {
    const std::size_t here = std::min<std::size_t>(32, column.size() - first);
    std::size_t height = 0;
    for (std::size_t c = 0; c < here; ++c) height = std::max(height, column[first + c].size());
    for (std::size_t k = 0; k < height; ++k) {
      for (std::size_t c = 0; c < 32; ++c)
        bigrams.bigram.push_back(c < here && k < column[first + c].size() ? column[first + c][k] : Bigram{-1, -1});
    }
    bigrams.round_begin.push_back(static_cast<std::int32_t>(bigrams.bigram.size() / 32));
  }
  return bigrams;
}

void pack_bigrams(Packer& p, const Topology& t, DeviceBigrams& d) {
  const Bigrams bigrams = bigrams_by_pair(t);
  d.columns = static_cast<std::int32_t>(bigrams.pair.size());
  p.place(d.pair, bigrams.pair);
  p.place(d.pair_begin, bigrams.pair_begin);
  p.place(d.round_begin, bigrams.round_begin);
  p.place(d.bigram, bigrams.bigram);
}

// Where beta of a first position has what the start state leads to: at backward cells, and at the join's outs.
void pack_starts(Packer& p, const Topology& t, const Sweeps& sweeps, Starts (&d)[2]) {
  std::vector<std::int32_t> place[2], label[2];
  for (std::int32_t n = t.node_begin[t.start]; n < t.node_begin[t.start + 1]; ++n) {
    for (std::int32_t i = t.from_begin[n]; i < t.from_begin[n + 1]; ++i) {
      place[0].push_back(sweeps.backward.cell(t.from_arrival[i]));
      label[0].push_back(t.node_label[n]);
    }
    place[1].push_back(sweeps.forward.out[static_cast<std::size_t>(n)]);
    label[1].push_back(t.node_label[n]);
  }
  for (int at_outs = 0; at_outs < 2; ++at_outs) {
    d[at_outs].count = static_cast<std::int32_t>(place[at_outs].size());
    p.place(d[at_outs].place, place[at_outs]);
    p.place(d[at_outs].label, label[at_outs]);
  }
}

void pack_topology(Packer& p, const Topology& t, const Sweeps& sweeps, DeviceTopology& d) {
  d = {t.K, t.Q, t.A, t.nodes, t.arrivals, t.start, t.accepting[t.start] != 0};
  p.place(d.node_begin, t.node_begin, t.Q + 1);
  p.place(d.node_label, t.node_label, t.nodes);
  p.place(d.node_state, t.node_state, t.nodes);
  p.place(d.arrival_begin, t.arrival_begin, t.Q + 1);
  p.place(d.arrival_label, t.arrival_label, t.arrivals);
  p.place(d.arrival_state, t.arrival_state, t.arrivals);
  p.place(d.into_begin, t.into_begin, t.arrivals + 1);
  p.place(d.into_node, t.into_node, t.A);
  p.place(d.from_begin, t.from_begin, t.nodes + 1);
  p.place(d.from_arrival, t.from_arrival, t.A);
  p.place(d.accepting, t.accepting, t.Q);
  p.place(d.node_accepts, t.node_accepts, t.nodes);
  const Arcs arcs = arcs_by_label(t);
  p.place(d.arc_begin, arcs.begin);
  p.place(d.arc_from, arcs.from);
  p.place(d.arc_to, arcs.to);
  const Nodes nodes = nodes_by_label(t);
  p.place(d.label_begin, nodes.begin);
  p.place(d.label_node, nodes.node);
  std::vector<std::int32_t> node_cell, arrival_cell;
  for (std::int32_t n = 0; n < t.nodes; ++n) node_cell.push_back(sweeps.forward.cell(n));
  for (std::int32_t m = 0; m < t.arrivals; ++m) arrival_cell.push_back(sweeps.backward.cell(m));
  p.place(d.node_cell, node_cell);
  p.place(d.arrival_cell, arrival_cell);
  pack_starts(p, t, sweeps, d.starts);
  pack_bigrams(p, t, d.bigrams);
}

// What the current device has.
void look_at_device(DeviceConstraint::Impl& c) {
  int device = 0, major = 0;
  check(cudaGetDevice(&device), "no device");
  check(cudaDeviceGetAttribute(&c.shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device), "shared memory");
  c.shared_bytes -= kDeclared;
  check(cudaDeviceGetAttribute(&c.processors, cudaDevAttrMultiProcessorCount, device), "processors");
  check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), "compute capability");
  if (!has_code_for_clusters()) major = std::min(major, 8);
  c.early = major >= 9;
  count_clusters(c, major);
}

}  // namespace

void check_batch(const char* operation, const Batch& batch) {
  if (batch.size <= 65534) return;
  throw Error("[" + std::string(operation) + "] " + std::to_string(batch.size) +
              " sequences in one batch; a device takes at most 65534: split it");
}

bool built() { return true; }

bool available() {
  int devices = 0;
  const bool there = cudaGetDeviceCount(&devices) == cudaSuccess && devices > 0;
  cudaGetLastError();  // a machine without a driver is no error
  return there;
}

DeviceConstraint::DeviceConstraint(const Constraint& constraint) {
  const auto impl = std::make_shared<Impl>(constraint);
  const Topology& t = constraint.topology();
  const Sweeps sweeps = make_sweeps(t, kMostWarps);
  const bool narrow = std::max({sweeps.forward.all_cells(), sweeps.backward.all_cells(), t.K + 1}) < 65536;
  Packer packer;
  pack_sweep(packer, sweeps.forward, narrow, impl->forward);
  pack_sweep(packer, sweeps.backward, narrow, impl->backward);
  pack_join(packer, sweeps, make_join(t, sweeps.forward, sweeps.backward), impl->join);
  pack_topology(packer, t, sweeps, impl->topology);
  look_at_device(*impl);
  check(cudaMalloc(&impl->memory, packer.size()), "memory for a constraint");
  packer.copy_to(impl->memory);
  impl_ = impl;
}

const Constraint& DeviceConstraint::constraint() const { return impl_->constraint; }

}  // namespace regccrf::cuda
