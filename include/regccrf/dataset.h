// Dataset: sequences as a linear model sees them. At each position some attributes hold (`word=Bank`, `shape=Xx`), each
// with a value, mostly 1, and a gold label, where it is known. Attributes are names outside and numbers inside.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "regccrf/labels.h"

namespace regccrf {

constexpr Label kUnknownLabel = -1;  // gold that is not known: every label may stand here

// Names numbered in the order in which they came.
class Names {
 public:
  std::int32_t add(std::string_view name);  // its number, new or old
  std::optional<std::int32_t> find(std::string_view name) const;
  std::string_view name(std::int32_t number) const { return names_[static_cast<std::size_t>(number)]; }
  std::int32_t size() const { return static_cast<std::int32_t>(names_.size()); }

 private:
  std::deque<std::string> names_;
  std::unordered_map<std::string_view, std::int32_t> numbers_;
};

struct Dataset {
  std::vector<std::int64_t> position{0};  // [sequences + 1] where each sequence's positions begin
  std::vector<std::int64_t> item{0};      // [positions + 1] where each position's attributes begin
  std::vector<std::int32_t> attribute;    // [items]
  std::vector<float> value;               // [items], or empty: every value is 1
  std::vector<Label> gold;                // [positions], or empty: nothing is known

  std::int64_t sequences() const { return static_cast<std::int64_t>(position.size()) - 1; }
  std::int64_t positions() const { return position.back(); }
};

}  // namespace regccrf
