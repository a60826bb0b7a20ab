// Names in memory and in a model file: all of them in one string, and a hash table of their numbers.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/hash.h"
#include "regccrf/names.h"

namespace regccrf {

// A place in the hash table: linear probing from hash modulo the table's size, a power of two. The hash is kept so that
// a name that is elsewhere need not be looked at.
struct NameSlot {
  std::uint32_t hash = 0;
  std::int32_t number = -1;  // -1: nothing is here
};

inline std::uint32_t hash_name(std::string_view name) { return static_cast<std::uint32_t>(hash_bytes(name)); }

// `name_of(number)` is a name of the table, which has a free place.
template <class NameOf>
std::optional<std::int32_t> find_name(std::string_view name, std::uint32_t hash, std::span<const NameSlot> table,
                                      NameOf name_of) {
  const std::size_t mask = table.size() - 1;
  for (std::size_t at = hash & mask;; at = (at + 1) & mask) {
    const NameSlot slot = table[at];
    if (slot.number < 0) return std::nullopt;
    if (slot.hash == hash && name_of(slot.number) == name) return slot.number;
  }
}

struct Names::Impl {
  std::string text;                                         // the names one after another
  std::vector<std::int64_t> begin{0};                       // [size + 1] where each begins
  std::vector<NameSlot> table = std::vector<NameSlot>(16);  // [a power of two]

  std::int32_t size() const { return static_cast<std::int32_t>(begin.size()) - 1; }
  std::string_view name(std::int32_t number) const {
    const auto i = static_cast<std::size_t>(number);
    return std::string_view(text).substr(begin[i], begin[i + 1] - begin[i]);
  }
  std::optional<std::int32_t> find(std::string_view sought, std::uint32_t hash) const {
    return find_name(sought, hash, table, [&](std::int32_t number) { return name(number); });
  }
  void grow();
};

}  // namespace regccrf
