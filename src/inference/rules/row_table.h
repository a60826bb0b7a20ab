// RowTable: rows of rule states, each with a number, in the order in which they were first asked for; and where a row
// goes by a label.
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
  static constexpr std::int32_t kNone = -1, kUnknown = -2;

  // `events`: of how many labels moves are kept.
  void clear(std::size_t width, std::size_t events) {
    width_ = width;
    events_ = events;
    size_ = 0;
    states_.clear();
    moves_.clear();
    slots_.assign(64, kNone);
  }
  std::int32_t size() const { return size_; }
  const State* states(std::int32_t row) const { return states_.data() + static_cast<std::size_t>(row) * width_; }
  // Where a row goes: a row, kNone, or kUnknown until it is set.
  std::int32_t& move(std::int32_t row, std::int32_t event) {
    return moves_[static_cast<std::size_t>(row) * events_ + static_cast<std::size_t>(event)];
  }

  // The row's number, or kNone. `states`: [width]
  std::int32_t look_up(const State* states) const { return slots_[slot_of(states)]; }
  // The same, and it is added where it is new. `states` not within the table itself.
  std::int32_t find(const State* states) {
    const std::size_t slot = slot_of(states);
    if (slots_[slot] != kNone) return slots_[slot];
    states_.insert(states_.end(), states, states + width_);
    moves_.resize(moves_.size() + events_, kUnknown);
    slots_[slot] = size_++;
    if (static_cast<std::size_t>(size_) * 2 > slots_.size()) grow();
    return size_ - 1;
  }

 private:
  // Where it is, or would be.
  std::size_t slot_of(const State* states) const {
    std::size_t slot = hash(states) & (slots_.size() - 1);
    while (slots_[slot] != kNone && !std::equal(states, states + width_, this->states(slots_[slot])))
      slot = (slot + 1) & (slots_.size() - 1);
    return slot;
  }
  std::size_t hash(const State* states) const {
    return hash_bytes(std::string_view(reinterpret_cast<const char*>(states), width_ * sizeof(State)));
  }
  void grow() {
    slots_.assign(slots_.size() * 2, kNone);
    for (std::int32_t row = 0; row < size_; ++row) {
      std::size_t slot = hash(states(row)) & (slots_.size() - 1);
      while (slots_[slot] != kNone) slot = (slot + 1) & (slots_.size() - 1);
      slots_[slot] = row;
    }
  }

  std::size_t width_ = 0, events_ = 0;
  std::int32_t size_ = 0;
  std::vector<State> states_;        // [size, width]
  std::vector<std::int32_t> moves_;  // [size, events]
  std::vector<std::int32_t> slots_;  // a power of two of them
};

}  // namespace regccrf
