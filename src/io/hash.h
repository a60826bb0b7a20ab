// The hash of a name, and a checksum of bytes. Both are part of the model file: they may not change.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace regccrf {

static_assert(std::endian::native == std::endian::little, "files are read in place and hold little-endian numbers");

inline std::uint64_t hash_bytes(std::string_view bytes) {
  constexpr std::uint64_t kOdd = 0x9e3779b97f4a7c15;
  std::uint64_t hash = bytes.size() * kOdd;
  const auto mix = [&](std::uint64_t word) {
    hash = (hash ^ word) * kOdd;
    hash ^= hash >> 29;
  };
  const char* at = bytes.data();
  std::size_t left = bytes.size();
  for (; left >= 8; at += 8, left -= 8) {
    std::uint64_t word;
    std::memcpy(&word, at, 8);
    mix(word);
  }
  std::uint64_t word = 0;
  if (left > 0) std::memcpy(&word, at, left);
  mix(word);
  return hash ^ (hash >> 32);
}

}  // namespace regccrf
