// TupleTable: numbers sequences of integers as they are met, 0, 1, 2, …: subsets of states, tuples of states, and what
// a state's arcs look like. All of them lie in one array, so that its memory is known.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/budget.h"
#include "base/hash.h"

namespace regccrf {

class TupleTable {
 public:
  using Tuple = std::span<const std::int32_t>;

  // The number of a sequence, and whether it is new.
  std::pair<std::int32_t, bool> find(Tuple tuple) {
    if (is_full()) grow();
    const std::uint32_t hash = hash_of(tuple);
    std::size_t at = hash & (slots_.size() - 1);
    for (; slots_[at] >= 0; at = (at + 1) & (slots_.size() - 1)) {
      if (hashes_[slots_[at]] == hash && equal((*this)[slots_[at]], tuple)) return {slots_[at], false};
    }
    slots_[at] = size();
    hashes_.push_back(hash);
    values_.insert(values_.end(), tuple.begin(), tuple.end());
    end_.push_back(static_cast<std::int64_t>(values_.size()));
    return {slots_[at], true};
  }

  std::int32_t size() const { return static_cast<std::int32_t>(hashes_.size()); }

  // Valid until the next sequence is found.
  Tuple operator[](std::int32_t number) const {
    const std::int64_t begin = number == 0 ? 0 : end_[number - 1];
    return {values_.data() + begin, static_cast<std::size_t>(end_[number] - begin)};
  }

  // Forgets all sequences, in time proportional to their number: a large table may serve many small sets.
  void clear() {
    for (std::int32_t number = 0; number < size(); ++number) {
      std::size_t at = hashes_[number] & (slots_.size() - 1);
      while (slots_[at] != number) at = (at + 1) & (slots_.size() - 1);
      slots_[at] = -1;
    }
    values_.clear();
    end_.clear();
    hashes_.clear();
  }

  // What it holds while a sequence of this length is added.
  std::int64_t bytes_with(std::size_t length) const {
    const std::int64_t slots = bytes_of(slots_);
    return regccrf::bytes_with(values_, length) + regccrf::bytes_with(end_) + regccrf::bytes_with(hashes_) +
           (is_full() ? 3 * slots : slots);
  }

 private:
  bool is_full() const { return 2 * hashes_.size() >= slots_.size(); }

  static std::uint32_t hash_of(Tuple tuple) {
    return static_cast<std::uint32_t>(
        hash_bytes({reinterpret_cast<const char*>(tuple.data()), tuple.size() * sizeof(std::int32_t)}));
  }

  static bool equal(Tuple x, Tuple y) { return x.size() == y.size() && std::equal(x.begin(), x.end(), y.begin()); }

  void grow() {
    slots_.assign(slots_.empty() ? 16 : 2 * slots_.size(), -1);
    for (std::int32_t number = 0; number < size(); ++number) {
      std::size_t at = hashes_[number] & (slots_.size() - 1);
      while (slots_[at] >= 0) at = (at + 1) & (slots_.size() - 1);
      slots_[at] = number;
    }
  }

  std::vector<std::int32_t> values_;   // one sequence behind the other
  std::vector<std::int64_t> end_;      // [size] where each ends in values_
  std::vector<std::uint32_t> hashes_;  // [size]
  std::vector<std::int32_t> slots_;    // a power of two, at most half full; -1 where empty
};

}  // namespace regccrf
