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

// Of many bytes: four sums side by side, which the processor overlaps.
inline std::uint64_t checksum_bytes(std::string_view bytes) {
  constexpr std::uint64_t kOdd = 0x9e3779b97f4a7c15;
  std::uint64_t sum[4] = {1, 2, 3, 4};
  const std::size_t whole = bytes.size() / 32 * 32;
  for (std::size_t at = 0; at < whole; at += 32) {
    std::uint64_t word[4];
    std::memcpy(word, bytes.data() + at, 32);
    for (int i = 0; i < 4; ++i) {
      sum[i] = (sum[i] ^ word[i]) * kOdd;
      sum[i] ^= sum[i] >> 32;
    }
  }
  std::uint64_t hash = hash_bytes(bytes.substr(whole)) ^ bytes.size();
  for (std::uint64_t part : sum) hash = (hash ^ part) * kOdd + part;
  return hash ^ (hash >> 32);
}

}  // namespace regccrf
