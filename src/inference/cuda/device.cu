// A constraint goes to the device: everything packed into one piece of memory, copied once.
#include <algorithm>
#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

#include "inference/batch.h"
#include "inference/cuda/device.h"

namespace regccrf::cuda {

namespace {

constexpr std::int32_t kMostWarps = 32;

// Host bytes, and the pointers that are to point at their copies on the device.
class Packer {
 public:
  // place(pointer, array, pointer, array, …): each pointer gets the address of its array's copy by copy_to().
  template <class T, class... More>
  void place(const T*& pointer, std::span<const std::type_identity_t<T>> array, More&&... more) {
    const std::size_t at = round_up(bytes_.size(), std::size_t{16});
    bytes_.resize(at + array.size_bytes());
    if (!array.empty()) std::memcpy(bytes_.data() + at, array.data(), array.size_bytes());
    pointers_.emplace_back(reinterpret_cast<const void**>(&pointer), at);
    if constexpr (sizeof...(more) > 0) place(more...);
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

void pack_schedule(Packer& p, const Schedule& schedule, DeviceSchedule& d) {
  d.warps = schedule.warps;
  d.units = static_cast<std::int32_t>(schedule.units.size());
  p.place(d.unit, schedule.units, d.warp_begin, schedule.begin);
}

std::vector<NarrowSource> narrowed(const std::vector<Source>& sources) {
  std::vector<NarrowSource> narrow;
  for (const Source& s : sources) narrow.push_back({static_cast<std::uint16_t>(s.x), static_cast<std::uint16_t>(s.y)});
  return narrow;
}

void pack_partitions(Packer& p, const Partitions& partitions, DevicePartitions& d) {
  d.cells = partitions.cells;
  if (partitions.cells == 0) return;
  d.fan_ins = static_cast<std::int32_t>(partitions.fan_in_begin.size()) - 1;
  p.place(d.copies, partitions.copies, d.group, partitions.groups, d.source, narrowed(partitions.source),
          d.sparse_source, narrowed(partitions.sparse_source), d.outs, partitions.outs, d.rest, partitions.rest,
          d.number, partitions.number, d.fan_in_first, partitions.fan_in_first, d.fan_in_begin, partitions.fan_in_begin,
          d.fan_in_source, std::vector<std::uint16_t>(partitions.fan_in_source.begin(), partitions.fan_in_source.end()),
          d.fan_in_cell, partitions.fan_in_cell);
  for (int k = 0; k < 4; ++k) pack_schedule(p, partitions.schedule[k], d.schedule[k]);
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

void pack_step(Packer& p, const StepLayout& layout, DeviceStep& d) {
  static_cast<StepSizes&>(d) = layout;
  d.groups = static_cast<std::int32_t>(layout.groups.size());
  std::vector<std::int32_t> entry(layout.entry);
  entry.resize(entry.size() + kTile, -1);  // a tile may read past the last row
  d.first_sparse_entry = static_cast<std::int32_t>(entry.size());
  entry.insert(entry.end(), layout.sparse_entry.begin(), layout.sparse_entry.end());
  d.entries = static_cast<std::int32_t>(entry.size());
  d.gains = static_cast<std::int32_t>(layout.gain_entry.size());
  d.tensor_units = static_cast<std::int32_t>(layout.tensor.size());
  p.place(d.group, layout.groups);
  pack_schedule(p, layout.general, d.general);
  pack_schedule(p, layout.in_registers, d.in_registers);
  p.place(d.tensor, layout.tensor, d.label, layout.label, d.stored, layout.stored, d.slots_of, layout.slots_of,
          d.source, layout.source, d.sparse_source, layout.sparse_source, d.fan_in_begin, layout.fan_in_begin,
          d.fan_in_source, layout.fan_in_source, d.entry, entry, d.begins, layout.begins, d.gain_entry,
          layout.gain_entry, d.row_of, layout.row_of);
  std::vector<std::uint16_t> idle;
  for (std::int32_t cell = 0; layout.kind >= 0 && cell <= layout.cells; ++cell) {
    if (cell == layout.cells || layout.slots_of[cell].slots == 0) idle.push_back(static_cast<std::uint16_t>(cell));
  }
  d.idle = static_cast<std::int32_t>(idle.size());
  p.place(d.idle_cell, idle);
  pack_partitions(p, layout.partitions, d.partitions);
}

void pack_rounds(Packer& p, const PairRounds& rounds, DeviceRounds& d) {
  d.rounds = rounds.rounds();
  d.height = rounds.height;
  p.place(d.pair, rounds.pair, d.key, rounds.key, d.begin, rounds.begin);
}

void pack_combine(Packer& p, const StepLayouts& layouts, const CombineLayout& combine, DeviceCombine& d) {
  d.K = layouts.forward.K;
  d.outs = static_cast<std::int32_t>(combine.out.size());
  d.dense_outs = combine.dense_outs;
  d.forward_cells = layouts.forward.cells;
  d.backward_cells = layouts.backward.cells;
  d.warp_tiles = static_cast<std::int32_t>(combine.warp_tiles.size());
  d.places = combine.places;
  d.copied = combine.copied;
  d.dense = combine.dense;
  d.all_out = combine.all_out;
  p.place(d.place, combine.place, d.out, combine.out);
  if (!combine.quad.empty()) p.place(d.quad, combine.quad);  // else null
  p.place(d.tile, combine.warp_tiles, d.pair_begin, combine.pair.begin, d.pair_entry, combine.pair.order, d.end_begin,
          combine.end.begin, d.end_cell, combine.end.order);
  pack_rounds(p, combine.nodes, d.nodes);
  pack_rounds(p, combine.arrivals, d.arrivals);
  pack_rounds(p, combine.sparse, d.sparse);
}

// Arcs by label, as pairs of states.
void pack_arcs(Packer& p, const Topology& t, DeviceTopology& d) {
  std::vector<std::int32_t> arrival, label, from, to;
  for (std::int32_t m = 0; m < t.arrivals; ++m) {
    arrival.insert(arrival.end(), static_cast<std::size_t>(t.into_begin[m + 1] - t.into_begin[m]), m);
    label.resize(arrival.size(), t.arrival_label[m]);
  }
  const ByKey arcs = sort_by_key(t.K, label);
  for (const std::int32_t i : arcs.order) {
    from.push_back(t.node_state[t.into_node[i]]);
    to.push_back(t.arrival_state[arrival[i]]);
  }
  p.place(d.arc_begin, arcs.begin, d.arc_from, from, d.arc_to, to);
}

// Where beta of a first position has what the start state leads to: at backward cells, and at the combine's outs.
void pack_starts(Packer& p, const Topology& t, const StepLayouts& layouts, Starts (&d)[2]) {
  std::vector<std::int32_t> place[2], label[2];
  for (std::int32_t n = t.node_begin[t.start]; n < t.node_begin[t.start + 1]; ++n) {
    for (std::int32_t i = t.from_begin[n]; i < t.from_begin[n + 1]; ++i) {
      place[0].push_back(layouts.backward.cell(t.from_arrival[i]));
      label[0].push_back(t.node_label[n]);
    }
    place[1].push_back(layouts.forward.out[n]);
    label[1].push_back(t.node_label[n]);
  }
  for (int at_outs = 0; at_outs < 2; ++at_outs) {
    d[at_outs].count = static_cast<std::int32_t>(place[at_outs].size());
    p.place(d[at_outs].place, place[at_outs]);
    p.place(d[at_outs].label, label[at_outs]);
  }
}

template <class T>
std::span<const T> counted(const T* data, std::int32_t count) {
  return {data, static_cast<std::size_t>(count)};
}

void pack_topology(Packer& p, const Topology& t, const StepLayouts& layouts, DeviceTopology& d) {
  d = {t.K, t.Q, t.A, t.nodes, t.arrivals, t.start, t.accepting[t.start] != 0};
  p.place(d.node_begin, counted(t.node_begin, t.Q + 1), d.node_label, counted(t.node_label, t.nodes), d.node_state,
          counted(t.node_state, t.nodes), d.arrival_begin, counted(t.arrival_begin, t.Q + 1), d.arrival_label,
          counted(t.arrival_label, t.arrivals), d.arrival_state, counted(t.arrival_state, t.arrivals), d.into_begin,
          counted(t.into_begin, t.arrivals + 1), d.into_node, counted(t.into_node, t.A), d.from_begin,
          counted(t.from_begin, t.nodes + 1), d.from_arrival, counted(t.from_arrival, t.A), d.accepting,
          counted(t.accepting, t.Q), d.node_accepts, counted(t.node_accepts, t.nodes));
  pack_arcs(p, t, d);
  const ByKey nodes = sort_by_key(t.K, {t.node_label, t.node_label + t.nodes});
  p.place(d.label_begin, nodes.begin, d.label_node, nodes.order);
  std::vector<std::int32_t> node_cell, arrival_cell, into_cell, from_cell;
  for (std::int32_t n = 0; n < t.nodes; ++n) node_cell.push_back(layouts.forward.cell(n));
  for (std::int32_t m = 0; m < t.arrivals; ++m) arrival_cell.push_back(layouts.backward.cell(m));
  for (std::int32_t i = 0; i < t.A; ++i) into_cell.push_back(node_cell[t.into_node[i]]);
  for (std::int32_t i = 0; i < t.A; ++i) from_cell.push_back(arrival_cell[t.from_arrival[i]]);
  p.place(d.node_cell, node_cell, d.node_out, layouts.forward.out, d.arrival_cell, arrival_cell, d.into_cell, into_cell,
          d.from_cell, from_cell);
  pack_starts(p, t, layouts, d.starts);
  pack_rounds(p, bigram_rounds(t), d.bigrams);
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
  c.programmatic = major >= 9;
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
  const StepLayouts layouts = make_step_layouts(t, kMostWarps);
  Packer packer;
  pack_step(packer, layouts.forward, impl->forward);
  pack_step(packer, layouts.backward, impl->backward);
  pack_combine(packer, layouts, make_combine_layout(t, layouts.forward, layouts.backward), impl->combine);
  pack_topology(packer, t, layouts, impl->topology);
  look_at_device(*impl);
  check(cudaMalloc(&impl->memory, packer.size()), "memory for a constraint");
  packer.copy_to(impl->memory);
  impl_ = impl;
}

const Constraint& DeviceConstraint::constraint() const { return impl_->constraint; }

}  // namespace regccrf::cuda
