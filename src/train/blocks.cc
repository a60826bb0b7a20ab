// Cutting a data set into blocks (see blocks.h).
#include "train/blocks.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <span>
#include <string>

#include "base/threads.h"
#include "regccrf/error.h"

namespace regccrf {

namespace {

constexpr std::int64_t kLeast = 1 << 13, kMost = 1 << 17;  // emissions of a block
constexpr std::int64_t kBlocks = 16;                       // at least, where there is enough for them

void add_sequences(const Dataset& data, std::int64_t first, std::int64_t last, GoldSequences& sequences) {
  for (const bool known : {true, false}) {
    for (std::int64_t i = first; i < last; ++i) {
      if (gold_is_known(data, i) != known) continue;
      sequences.first.push_back(data.position[i] - data.position[first]);
      sequences.length.push_back(data.length(i));
      if (!data.weight.empty()) sequences.weight.push_back(data.weight[i]);
    }
    if (known) sequences.known = sequences.first.size();
  }
  const auto gold = data.gold.begin();
  sequences.gold.assign(gold + data.position[first], gold + data.position[last]);
}

struct Item {
  std::int32_t attribute, row;
  float value;
};

// Items whose attributes have weights, by attribute.
std::vector<Item> sorted_items(const Dataset& data, const Columns& features, std::int64_t first, std::int64_t rows) {
  std::vector<Item> items;
  items.reserve(static_cast<std::size_t>(data.item[first + rows] - data.item[first]));
  for (std::int64_t t = 0; t < rows; ++t) {
    for (std::int64_t k = data.item[first + t]; k < data.item[first + t + 1]; ++k) {
      const std::int32_t i = data.attribute[k];
      if (features.begin[i] == features.begin[i + 1]) continue;
      items.push_back({i, static_cast<std::int32_t>(t), data.value.empty() ? 1 : data.value[k]});
    }
  }
  std::stable_sort(items.begin(), items.end(), [](const Item& x, const Item& y) { return x.attribute < y.attribute; });
  return items;
}

// Whether rows of K numbers are less work than single ones; a vector has 4 or 8 of them.
bool run_pays(std::int64_t labels, std::int64_t positions, int K) {
  return labels * positions > K + positions * ((K + 7) / 8 + 1);
}

void add_run(const Columns& features, std::span<const Item> items, Items& block) {
  const std::int64_t first = features.begin[items[0].attribute], last = features.begin[items[0].attribute + 1];
  block.runs.push_back({static_cast<std::int32_t>(first), static_cast<std::int32_t>(last - first),
                        static_cast<std::int64_t>(block.row.size())});
  for (const Item& item : items) {
    block.row.push_back(item.row);
    block.run_value.push_back(item.value);
  }
}

void add_pairs(const Columns& features, std::span<const Item> items, Items& block) {
  const std::int64_t first = features.begin[items[0].attribute], last = features.begin[items[0].attribute + 1];
  for (std::int64_t f = first; f < last; ++f) {
    for (const Item& item : items) {
      block.weight.push_back(static_cast<std::int32_t>(f));
      block.cell.push_back(item.row * features.K + features.label[f]);
      block.value.push_back(item.value);
    }
  }
}

void settle(std::vector<float>& values) {
  if (std::all_of(values.begin(), values.end(), [](float value) { return value == 1; })) values.clear();
  values.shrink_to_fit();
}

void turn_round(const Dataset& data, const Columns& features, std::int64_t first, std::int64_t rows, Items& block) {
  const std::vector<Item> items = sorted_items(data, features, first, rows);
  for (std::size_t begin = 0, end; begin < items.size(); begin = end) {
    for (end = begin; end < items.size() && items[end].attribute == items[begin].attribute;) ++end;
    const std::span<const Item> same(items.data() + begin, end - begin);
    const std::int32_t i = same[0].attribute;
    const bool run =
        run_pays(features.begin[i + 1] - features.begin[i], static_cast<std::int64_t>(same.size()), features.K);
    (run ? add_run : add_pairs)(features, same, block);
  }
  block.runs.push_back(
      {static_cast<std::int32_t>(features.label.size()), 0, static_cast<std::int64_t>(block.row.size())});
  settle(block.value);
  settle(block.run_value);
  block.weight.shrink_to_fit();
  block.cell.shrink_to_fit();
  block.row.shrink_to_fit();
  block.runs.shrink_to_fit();
}

Block make_block(const Dataset& data, const Features& features, std::int64_t first, std::int64_t last) {
  Block block;
  add_sequences(data, first, last, block.sequences);
  number_gold(features.K, features.width(), block.sequences);
  if (block.sequences.rows() * features.width() > std::numeric_limits<std::int32_t>::max()) {
    throw Error("[train] a sequence has " + std::to_string(block.sequences.rows()) + " positions, more than " +
                std::to_string(features.width()) + " labels allow");
  }
  turn_round(data, features, data.position[first], block.sequences.rows(), block.labels);
  if (features.has_pairs()) turn_round(data, features.pairs, data.position[first], block.sequences.rows(), block.pairs);
  return block;
}

}  // namespace

std::vector<Block> make_blocks(const Dataset& data, const Features& features, std::int64_t first, std::int64_t last,
                               int threads) {
  const std::int64_t K = std::max(features.width(), 1), numbers = (data.position[last] - data.position[first]) * K;
  const std::int64_t rows = std::clamp(numbers / kBlocks, kLeast, kMost) / K;
  std::vector<std::int64_t> cuts{first};
  for (std::int64_t i = first; i < last; ++i) {
    const bool full = data.position[i + 1] - data.position[cuts.back()] > rows;
    if (full && i > cuts.back()) cuts.push_back(i);
  }
  if (cuts.back() < last) cuts.push_back(last);
  std::vector<Block> blocks(cuts.size() - 1);
  std::atomic<std::size_t> next{0};
  ThreadPool().run(threads, [&](int) {
    for (std::size_t b; (b = next++) < blocks.size();) blocks[b] = make_block(data, features, cuts[b], cuts[b + 1]);
  });
  return blocks;
}

}  // namespace regccrf
