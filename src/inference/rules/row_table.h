// RowTable: rows of rule states, each with a number, in the order in which they were first asked for.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/hash.h"
#include "regccrf/automaton.h"

namespace regccrf {

class RowTable {
 public:
  void clear(std::size_t width) {
    width_ = width;
    size_ = 0;
    states_.clear();
    slots_.assign(64, -1);
  }
  std::int32_t size() const { return size_; }
  const State* states(std::int32_t row) const { return states_.data() + static_cast<std::size_t>(row) * width_; }

  // `states`: [width], not within the table itself.
  std::int32_t find(const State* states) {
    std::size_t slot = hash(states) & (slots_.size() - 1);
    for (; slots_[slot] >= 0; slot = (slot + 1) & (slots_.size() - 1)) {
      if (std::equal(states, states + width_, this->states(slots_[slot]))) return slots_[slot];
    }
    states_.insert(states_.end(), states, states + width_);
    slots_[slot] = size_++;
    if (static_cast<std::size_t>(size_) * 2 > slots_.size()) grow();
    return size_ - 1;
  }

 private:
  std::size_t hash(const State* states) const {
    return hash_bytes(std::string_view(reinterpret_cast<const char*>(states), width_ * sizeof(State)));
  }
  void grow() {
    slots_.assign(slots_.size() * 2, -1);
    for (std::int32_t row = 0; row < size_; ++row) {
      std::size_t slot = hash(states(row)) & (slots_.size() - 1);
      while (slots_[slot] >= 0) slot = (slot + 1) & (slots_.size() - 1);
      slots_[slot] = row;
    }
  }

  std::size_t width_ = 0;
  std::int32_t size_ = 0;
  std::vector<State> states_;        // [size, width]
  std::vector<std::int32_t> slots_;  // a power of two of them; −1: free
};

}  // namespace regccrf
