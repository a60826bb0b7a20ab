// Finding names by their hash table. The table is part of the model file.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "base/hash.h"
#include "regccrf/dataset.h"

namespace regccrf {

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

}  // namespace regccrf
