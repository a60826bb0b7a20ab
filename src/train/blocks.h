// Blocks: a data set cut into pieces whose emissions fit into a processor's cache, each turned round: not "which
// attributes hold at this position" but "at which positions does this weight count". A pass over a block then reads the
// weights and writes the gradient in ascending order, and what it goes back and forth in is the small array of
// emissions.
//
// An attribute that holds at several positions and has weights for several labels is a run: its weights are spread over
// a row of K numbers that is added to each of its positions. Everything else is a list of (weight, cell of the
// emissions) pairs.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "regccrf/dataset.h"
#include "train/features.h"
#include "train/gold_loss.h"

namespace regccrf {

// Attributes of a block, and where their weights count.
struct Items {
  std::vector<std::int32_t> weight;  // [pairs] ascending
  std::vector<std::int32_t> cell;    // [pairs] row · K + label
  std::vector<float> value;          // [pairs], or empty: every value is 1

  struct Run {
    std::int32_t weight, labels;  // its first weight and how many
    std::int64_t begin;           // into row, to the next run's
  };
  std::vector<Run> runs;          // by weight, ascending; an empty one ends them
  std::vector<std::int32_t> row;  // [items of runs]
  std::vector<float> run_value;   // [items of runs], or empty: every value is 1
};

struct Block {
  GoldSequences sequences;  // their gold in marked labels, where attributes weigh pairs
  Items labels, pairs;
};

// Sequences first … last - 1, which may be any part of the data. Attributes without weights are left out.
std::vector<Block> make_blocks(const Dataset& data, const Features& features, std::int64_t first, std::int64_t last,
                               int threads);

// h[row, a] += value · w of (attribute, a). `columns` are those that the items were made with. `h` has kSlack more
// entries than [rows, K], which are left as they are.
constexpr std::size_t kSlack = 64;
void add_emissions(const Items& items, const Columns& columns, const double* w, double* h);

// gradient of (attribute, a) += value · dh[row, a], for weights first … last - 1, which are those of whole attributes.
// `dh` has kSlack more entries.
void add_gradient(const Items& items, const Columns& columns, std::int64_t first, std::int64_t last, const double* dh,
                  double* gradient);

}  // namespace regccrf
