// How a walk along a sequence is done: by which blocks, and what they keep on chip.
#pragma once

#include <type_traits>

#include "inference/cuda/step/cluster_step.h"
#include "inference/cuda/step/emission_rows.h"

namespace regccrf::cuda {

constexpr std::int64_t aligned(std::int64_t bytes) { return round_up(bytes, 16); }

struct WalkShape {
  Storage storage = Storage::memory;
  int bytes = 0, threads = 0;  // of a block
  std::int32_t rows = 0;       // of emissions, on chip
  std::int32_t blocks = 1;     // that do a step together
  bool cells_on_chip = true;   // if not: in memory
};

// What the shape of walks depends on.
struct WalkNeeds {
  std::int32_t rows, zeros;         // rows of emissions on chip, and rows beside them
  std::int64_t together = 0;        // how many walks clusters may do; 0: no clusters
  std::int32_t register_warps = 0;  // of steps in registers; 0: there are none
  std::int32_t least_warps = 1;
};
template <class P>
WalkShape walk_shape(const DeviceConstraint::Impl& c, const WalkNeeds& needs) {
  const auto p = static_cast<std::int64_t>(sizeof(P));
  const auto cells_of = [&](const DeviceStep& s) { return 2 * padded_cells(s.all_cells()) * p; };
  const std::int64_t rows = aligned((needs.rows + needs.zeros) * (std::int64_t{c.topology.K} + 1) * p),
                     alone = rows + SingleBlock<P>::kBytes, together = rows + aligned(BlockCluster<P>::kBytes),
                     cells = std::max(cells_of(c.forward), cells_of(c.backward));
  check_rows(c, alone);
  const bool cells_fit = alone + cells <= c.shared_bytes;
  const std::int32_t warps = std::max({c.forward.general.warps, c.backward.general.warps, needs.least_warps});
  const auto shape = [&](Storage storage, std::int64_t bytes, std::int32_t of_warps) {
    return WalkShape{storage, static_cast<int>(bytes), 32 * of_warps, needs.rows, 1, true};
  };
  if (needs.register_warps > 0 && cells_fit) return shape(Storage::registers, alone + cells, needs.register_warps);
  const std::int32_t blocks = needs.together > 0 ? blocks_together<P>(c, needs.together, c.shared_bytes - together) : 1;
  if (blocks > 1) {
    WalkShape s = shape(Storage::cluster, together + partition_bytes<P>(c, blocks),
                        std::max(warps_together(c, blocks), needs.least_warps));
    s.blocks = blocks;
    return s;
  }
  if (cells_fit) return shape(Storage::memory, alone + cells, warps);
  WalkShape s = shape(Storage::memory, alone, warps);
  s.cells_on_chip = false;
  return s;
}

// A block's shared memory, as walk_shape() counts it.
template <class P, Storage kStorage>
struct WalkShared {
  char* team_memory;  // for the team's barriers and peaks
  P* rows;
  char* rest;

  __device__ WalkShared(std::int32_t row_count, std::int32_t K)
      : team_memory(shared_memory()),
        rows(reinterpret_cast<P*>(team_memory + aligned(kTeamBytes))),
        rest(reinterpret_cast<char*>(rows) + aligned(row_count * (std::int64_t{K} + 1) * std::int64_t{sizeof(P)})) {}

 private:
  static constexpr int kTeamBytes = kStorage == Storage::cluster ? BlockCluster<P>::kBytes : SingleBlock<P>::kBytes;
};

// From one walk's cells in memory to the next one's.
inline __host__ __device__ std::int64_t cells_in_memory(const DeviceStep& forward, const DeviceStep& backward) {
  return 2 * padded_cells(forward.all_cells() > backward.all_cells() ? forward.all_cells() : backward.all_cells());
}

}  // namespace regccrf::cuda
