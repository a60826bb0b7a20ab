// Dataset: sequences as a linear model sees them. At each position some attributes hold (`word=Bank`, `shape=Xx`), each
// with a value, mostly 1, and a gold label, where it is known. Attributes are names outside and numbers inside.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "regccrf/labels.h"

namespace regccrf {

constexpr Label kUnknownLabel = -1;  // gold that is not known: every label may stand here

// A place in the hash table of names: linear probing from hash modulo the table's size, a power of two. The hash is
// kept so that a name that is elsewhere need not be looked at.
struct NameSlot {
  std::uint32_t hash = 0;
  std::int32_t number = -1;  // -1: nothing is here
};

// Names numbered in the order in which they came. All names lie in one string, so a name costs its bytes and about 30
// more.
class Names {
 public:
  Names();

  std::int32_t add(std::string_view name);  // its number, new or old
  std::optional<std::int32_t> find(std::string_view name) const;
  // Holds until the next add().
  std::string_view name(std::int32_t number) const {
    const auto i = static_cast<std::size_t>(number);
    return std::string_view(text_).substr(begin_[i], begin_[i + 1] - begin_[i]);
  }
  std::int32_t size() const { return static_cast<std::int32_t>(begin_.size()) - 1; }

  // As a model file holds them: names one after another, where each begins [size + 1], and the hash table.
  std::string_view text() const { return text_; }
  std::span<const std::int64_t> begin() const { return begin_; }
  std::span<const NameSlot> table() const { return table_; }

 private:
  void grow();

  std::string text_;
  std::vector<std::int64_t> begin_;  // [size + 1]
  std::vector<NameSlot> table_;      // [a power of two]
};

struct Dataset {
  std::vector<std::int64_t> position{0};  // [sequences + 1] where each sequence's positions begin
  std::vector<std::int64_t> item{0};      // [positions + 1] where each position's attributes begin
  std::vector<std::int32_t> attribute;    // [items]
  std::vector<float> value;               // [items], or empty: every value is 1
  std::vector<Label> gold;                // [positions], or empty: nothing is known
  std::vector<double> weight;             // [sequences] how often each counts, or empty: once

  // Where each sequence came from, for messages; empty where it came from no file.
  std::vector<std::string> files;
  std::vector<std::int32_t> file;  // [sequences] into files
  std::vector<std::int64_t> line;  // [sequences] of its first row, from 1

  std::int64_t sequences() const { return static_cast<std::int64_t>(position.size()) - 1; }
  std::int64_t positions() const { return position.back(); }
  std::int64_t length(std::int64_t i) const {
    const auto at = static_cast<std::size_t>(i);
    return position[at + 1] - position[at];
  }
  std::string origin(std::int64_t i) const;  // "train.conll, line 12", or "sequence 3" (from 1)
};

}  // namespace regccrf
