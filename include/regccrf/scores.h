// Scores: views of a model's scores for a batch of sequences. Scores are logarithms; larger is better. A view owns
// nothing and allocates nothing. Its memory is only read, and must exist until the call that gets the view returns.
//
//   std::vector<float> h(8 * 64 * 3), g(3 * 3), start(3), end(3);       // [B, T, K], [K, K], [K], [K]
//   std::vector<std::uint8_t> mask(8 * 64, 1);                          // [B, T]: 0 where there is no position
//   Scores one(h, g);                                                   // one sequence, of 512 positions
//   Scores batch(h, g, Layout::padded(8, 64).with_mask(mask));          // eight sequences of up to 64
//   Scores full = batch.with_start_end(start, end);
//   Scores none = Scores<float>(h, {}).with_labels(3);                  // without transitions: K is given instead
//
//   score(y) = start[y_0] + Σ_t emissions[t, y_t] + Σ_t transitions[y_t, y_{t+1}] + end[y_{T-1}]
//
// A score may be −inf, which forbids the label or the transition. NaN and +inf are errors that name the sequence, the
// position and the label. Finite scores beyond ±1e10 count as ±1e10.
#pragma once

#include <cstdint>
#include <optional>
#include <ranges>
#include <span>
#include <string>

#include "regccrf/constraint.h"
#include "regccrf/error.h"
#include "regccrf/labels.h"

namespace regccrf {

// Where the positions of a batch lie among the rows of its arrays: position t of sequence i is row
// first(i) + t · stride(). A masked position is treated as absent: its neighbours become adjacent.
class Layout {
 public:
  using Integers = std::span<const std::int64_t>;

  Layout() = default;                                                            // single()
  static Layout single() { return {}; }                                          // one sequence, which has every row
  static Layout padded(std::int64_t B, std::int64_t T) { return {B, T, T, 1}; }  // arrays are [B, T, …]
  static Layout time_first(std::int64_t T, std::int64_t B) { return {B, T, 1, B}; }  // arrays are [T, B, …]
  // Sequence i has the length[i] rows from first[i] on. Both: [B]
  static Layout ragged(Integers first, Integers length) {
    Layout layout;
    layout.size_ = std::ssize(first);
    layout.first_ = first;
    return layout.with_lengths(length);
  }

  // For padded sequences that end earlier. [B]
  Layout with_lengths(Integers length) const {
    if (std::ssize(length) != size_) {
      throw Error("[Layout] " + std::to_string(length.size()) + " lengths were given for " + std::to_string(size_) +
                  " sequences; expected [B]");
    }
    Layout layout = *this;
    layout.length_ = length;
    return layout;
  }
  // [rows] 0 = absent; empty: all present
  Layout with_mask(std::span<const std::uint8_t> mask) const {
    Layout layout = *this;
    layout.mask_ = mask;
    return layout;
  }

  std::int64_t size() const { return size_; }  // B
  std::int64_t first(std::int64_t i) const { return first_.empty() ? i * between_ : first_[std::size_t(i)]; }
  // Positions of sequence i, including masked ones. `rows`: the number of rows of the arrays.
  std::int64_t length(std::int64_t i, std::int64_t rows) const {
    return !length_.empty() ? length_[std::size_t(i)] : steps_.value_or(rows);
  }
  std::int64_t stride() const { return stride_; }
  std::span<const std::uint8_t> mask() const { return mask_; }
  std::optional<std::int64_t> steps() const { return steps_; }  // T, if sequences are padded

 private:
  Layout(std::int64_t size, std::int64_t steps, std::int64_t between, std::int64_t stride)
      : size_(size), between_(between), stride_(stride), steps_(steps) {}

  std::int64_t size_ = 1;
  std::int64_t between_ = 0;  // rows from a sequence's first to the next one's
  std::int64_t stride_ = 1;   // rows from a position to the next
  std::optional<std::int64_t> steps_;
  Integers first_, length_;
  std::span<const std::uint8_t> mask_;
};

template <class Real>  // float or double
struct Scores {
  using Numbers = std::span<const Real>;

  Scores() = default;
  // h: emissions, g: transitions, whose size gives K. Error if g is not square.
  Scores(Numbers h, Numbers g, const Layout& where = Layout::single())
      : labels(side_of(g.size())), emissions(h), transitions(g), layout(where) {}

  // The same with scores of the first label and of the last. Each may be empty: none.
  Scores with_start_end(Numbers first, Numbers last) const {
    Scores scores = *this;
    scores.start = first;
    scores.end = last;
    return scores;
  }
  // The same with K given: needed if the transitions are empty.
  Scores with_labels(int K) const {
    Scores scores = *this;
    scores.labels = K;
    return scores;
  }

  int labels = 0;       // K
  Numbers emissions;    // [rows, K]
  Numbers transitions;  // [K, K] from, to, or empty for none
  Numbers start, end;   // [K], or empty for none
  Layout layout;

 private:
  static int side_of(std::size_t entries) {
    std::size_t side = 0;
    while (side * side < entries) ++side;
    if (side * side == entries) return static_cast<int>(side);
    throw Error("[Scores] transitions have " + std::to_string(entries) +
                " entries, which is no square (expected [K, K])");
  }
};
// Scores(h, g) for any contiguous ranges of float or double.
template <std::ranges::contiguous_range Numbers, class... Others>
Scores(const Numbers&, const Others&...) -> Scores<std::ranges::range_value_t<Numbers>>;

// One constraint for every sequence, or one of several for each.
class Constraints {
 public:
  Constraints(const Constraint& one) : all_(&one, 1) {}                              // NOLINT: implicit
  Constraints(std::span<const Constraint> all, std::span<const std::int32_t> which)  // which: [B], into all
      : all_(all), which_(which) {}

  std::span<const Constraint> all() const { return all_; }
  std::span<const std::int32_t> which() const { return which_; }  // empty: the first for every sequence

 private:
  std::span<const Constraint> all_;
  std::span<const std::int32_t> which_;
};

}  // namespace regccrf
