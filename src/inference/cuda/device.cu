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

// Host bytes with device addresses: add() says where a copy of an array will lie.
class Packer {
 public:
  std::size_t align(std::size_t unit) {
    bytes_.resize((bytes_.size() + unit - 1) / unit * unit);
    return bytes_.size();
  }
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
  const std::vector<char>& bytes() const { return bytes_; }

 private:
  std::vector<char> bytes_;
};

std::vector<std::int32_t> flat(const std::vector<Source>& sources) {
  std::vector<std::int32_t> numbers;
  for (const Source& s : sources) {
    numbers.push_back(s.x);
    numbers.push_back(s.y);
  }
  return numbers;
}

struct At {
  std::size_t hot, entry, thin_entry, begins;
};

// Pointers, to be set once the device address is known.
class Places {
 public:
  template <class T>
  void add(T*& pointer, std::size_t at) {
    places_.emplace_back(reinterpret_cast<const void**>(&pointer), at);
  }
  void set(const void* memory) const {
    for (const auto& [pointer, at] : places_) *pointer = static_cast<const char*>(memory) + at;
  }

 private:
  std::vector<std::pair<const void**, std::size_t>> places_;
};

void pack_shares(Packer& p, Places& places, const Shares& shares, DeviceShares& d) {
  d.room = shares.room;
  if (shares.room == 0) return;
  d.extras = static_cast<std::int32_t>(shares.extra_begin.size()) - 1;
  places.add(d.copies, p.add(shares.copies));
  places.add(d.group, p.add(shares.groups));
  places.add(d.source, p.add_as<std::uint16_t>(flat(shares.source)));
  places.add(d.thin_source, p.add_as<std::uint16_t>(flat(shares.thin_source)));
  places.add(d.outs, p.add(shares.outs));
  places.add(d.rest, p.add(shares.rest));
  places.add(d.number, p.add(shares.number));
  places.add(d.extra_first, p.add(shares.extra_first));
  places.add(d.extra_begin, p.add(shares.extra_begin));
  places.add(d.extra_source, p.add_as<std::uint16_t>(shares.extra_source));
  places.add(d.extra_cell, p.add(shares.extra_cell));
  for (int k = 0; k < 4; ++k) {
    d.warps[k] = shares.schedule[k].warps;
    places.add(d.unit[k], p.add(shares.schedule[k].units));
    places.add(d.warp_begin[k], p.add(shares.schedule[k].begin));
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

template <class Index>
At pack_sweep(Packer& packer, const Sweep& sweep, DeviceSweep& d) {
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
  d.two = sweep.two;
  d.resident_units = static_cast<std::int32_t>(sweep.resident.units.size());
  d.narrow = sizeof(Index) == 2;
  d.cost = sweep.cost;
  d.kind = sweep.kind;
  d.trash = sweep.trash;
  d.tensor_warps = sweep.tensor_warps;
  d.tensor_units = static_cast<std::int32_t>(sweep.tensor.size());
  At at{};
  at.hot = packer.align(256);
  const auto offset = [&](std::size_t where) { return static_cast<std::int32_t>(where - at.hot); };
  d.group_at = offset(packer.add(sweep.groups));
  for (int resident = 0; resident < 2; ++resident) {
    const Schedule& schedule = resident ? sweep.resident : sweep.general;
    d.warps[resident] = schedule.warps;
    d.unit_at[resident] = offset(packer.add(schedule.units));
    d.warp_at[resident] = offset(packer.add(schedule.begin));
  }
  d.tensor_at = offset(packer.add(sweep.tensor));
  d.label_at = offset(packer.add_as<Index>(sweep.label));
  d.stored_at = offset(packer.add_as<Index>(sweep.stored));
  d.out_of_at = offset(packer.add_as<Index>(sweep.out_of));
  d.source_at = offset(packer.add_as<Index>(flat(sweep.source)));
  d.thin_source_at = offset(packer.add_as<Index>(flat(sweep.thin_source)));
  d.extra_begin_at = offset(packer.add(sweep.extra_begin));
  d.extra_source_at = offset(packer.add_as<Index>(sweep.extra_source));
  d.hot_bytes = offset(packer.align(16));
  at.entry = packer.add(sweep.entry);
  at.thin_entry = packer.add(sweep.thin_entry);
  at.begins = packer.add(sweep.begins);
  return at;
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
  const auto [forward, backward] = make_sweeps(t, kMostWarps);
  const Join join = make_join(t, forward, backward);
  const Arcs arcs = arcs_by_label(t);
  const Nodes nodes = nodes_by_label(t);
  const Bigrams bigrams = bigrams_by_pair(t);
  impl->products = t.products;

  Packer p;
  const bool narrow = std::max({forward.all_cells(), backward.all_cells(), t.K + 1}) < 65536;
  const auto pack = narrow ? pack_sweep<std::uint16_t> : pack_sweep<std::int32_t>;
  const At f = pack(p, forward, impl->forward), b = pack(p, backward, impl->backward);
  Places places;
  const auto place = [&](auto*& pointer, std::size_t at) { places.add(pointer, at); };
  const auto sweep_places = [&](DeviceSweep& d, const At& at) {
    place(d.hot, at.hot);
    place(d.entry, at.entry);
    place(d.thin_entry, at.thin_entry);
    place(d.begins, at.begins);
  };
  sweep_places(impl->forward, f);
  sweep_places(impl->backward, b);
  pack_shares(p, places, forward.shares, impl->forward.shares);
  pack_shares(p, places, backward.shares, impl->backward.shares);

  DeviceJoin& j = impl->join;
  j.K = t.K;
  j.outs = static_cast<std::int32_t>(join.out.size());
  j.dense_outs = join.dense_outs;
  j.forward_cells = forward.cells;
  j.backward_cells = backward.cells;
  j.rounds = join.rounds();
  j.groups = static_cast<std::int32_t>(join.groups.size());
  j.patches = static_cast<std::int32_t>(join.patches.size());
  j.places = join.places;
  j.copied = join.copied;
  j.dense = join.dense;
  place(j.arrival, p.add(join.arrival));
  place(j.round_begin, p.add(join.round_begin));
  place(j.out, p.add(join.out));
  if (!join.quad.empty()) place(j.quad, p.add(join.quad));
  place(j.group, p.add(join.groups));
  place(j.patch, p.add(join.patches));
  if (!join.arrival_begin.empty()) {
    place(j.arrival_begin, p.add(join.arrival_begin));
    place(j.arrival_source, p.add(join.arrival_source));
  }
  if (!join.out_begin.empty()) {
    place(j.out_begin, p.add(join.out_begin));
    place(j.out_target, p.add(join.out_target));
  }
  place(j.pair_begin, p.add(join.pair_begin));
  place(j.pair_entry, p.add(join.pair_entry));
  place(j.end_begin, p.add(join.end_begin));
  place(j.end_cell, p.add(join.end_cell));
  const auto rounds = [&](const JoinRounds& from, DeviceRounds& to) {
    to.rounds = from.rounds();
    to.height = from.height;
    place(to.pair, p.add(from.pair));
    place(to.key, p.add(from.key));
    place(to.begin, p.add(from.begin));
  };
  rounds(join.nodes, j.nodes);
  rounds(join.arrivals, j.arrivals);
  rounds(join.sparse, j.sparse);

  DeviceTopology& d = impl->topology;
  d = {t.K, t.Q, t.A, t.nodes, t.arrivals, t.start, t.accepting[t.start] != 0};
  const auto Q = static_cast<std::size_t>(t.Q), N = static_cast<std::size_t>(t.nodes),
             M = static_cast<std::size_t>(t.arrivals), A = static_cast<std::size_t>(t.A);
  place(d.node_begin, p.add(t.node_begin, Q + 1));
  place(d.node_label, p.add(t.node_label, N));
  place(d.node_state, p.add(t.node_state, N));
  place(d.arrival_begin, p.add(t.arrival_begin, Q + 1));
  place(d.arrival_label, p.add(t.arrival_label, M));
  place(d.arrival_state, p.add(t.arrival_state, M));
  place(d.into_begin, p.add(t.into_begin, M + 1));
  place(d.into_node, p.add(t.into_node, A));
  place(d.from_begin, p.add(t.from_begin, N + 1));
  place(d.from_arrival, p.add(t.from_arrival, A));
  place(d.accepting, p.add(t.accepting, Q));
  place(d.node_accepts, p.add(t.node_accepts, N));
  place(d.arc_begin, p.add(arcs.begin));
  place(d.arc_from, p.add(arcs.from));
  place(d.arc_to, p.add(arcs.to));
  std::vector<std::int32_t> node_cell;
  for (std::int32_t n = 0; n < t.nodes; ++n) node_cell.push_back(forward.cell(n));
  place(d.node_cell, p.add(node_cell));
  std::vector<std::int32_t> arrival_cell;
  for (std::int32_t m = 0; m < t.arrivals; ++m) arrival_cell.push_back(backward.cell(m));
  place(d.arrival_cell, p.add(arrival_cell));
  std::vector<std::int32_t> starts[2], start_labels[2];
  for (std::int32_t n = t.node_begin[t.start]; n < t.node_begin[t.start + 1]; ++n) {
    for (std::int32_t i = t.from_begin[n]; i < t.from_begin[n + 1]; ++i) {
      starts[0].push_back(arrival_cell[static_cast<std::size_t>(t.from_arrival[i])]);
      start_labels[0].push_back(t.node_label[n]);
    }
    starts[1].push_back(forward.out[static_cast<std::size_t>(n)]);
    start_labels[1].push_back(t.node_label[n]);
  }
  for (int at_outs = 0; at_outs < 2; ++at_outs) {
    d.starts[at_outs].count = static_cast<std::int32_t>(starts[at_outs].size());
    place(d.starts[at_outs].place, p.add(starts[at_outs]));
    place(d.starts[at_outs].label, p.add(start_labels[at_outs]));
  }
  place(d.label_begin, p.add(nodes.begin));
  place(d.label_node, p.add(nodes.node));
  d.bigrams.columns = static_cast<std::int32_t>(bigrams.pair.size());
  place(d.bigrams.pair, p.add(bigrams.pair));
  place(d.bigrams.pair_begin, p.add(bigrams.pair_begin));
  place(d.bigrams.round_begin, p.add(bigrams.round_begin));
  place(d.bigrams.bigram, p.add(bigrams.bigram));

  int device = 0;
  check(cudaGetDevice(&device), "no device");
  check(cudaDeviceGetAttribute(&impl->shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device), "shared memory");
  impl->shared_bytes -= kDeclared;
  check(cudaDeviceGetAttribute(&impl->processors, cudaDevAttrMultiProcessorCount, device), "processors");
  int major = 0;
  check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), "compute capability");
  if (!has_code_for_clusters()) major = std::min(major, 8);
  impl->early = major >= 9;
  count_clusters(*impl, major);
  check(cudaMalloc(&impl->memory, p.bytes().size()), "memory for a constraint");
  check(cudaMemcpy(impl->memory, p.bytes().data(), p.bytes().size(), cudaMemcpyHostToDevice), "copying a constraint");
  places.set(impl->memory);
  impl_ = impl;
}

const Constraint& DeviceConstraint::constraint() const { return impl_->constraint; }

}  // namespace regccrf::cuda
