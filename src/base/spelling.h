// What somebody may have meant who misspelt a word.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace regccrf {

// The name among `known` that `word` most likely misspells, if one is close enough.
std::optional<std::string> nearest(std::string_view word, std::span<const std::string> known);

}  // namespace regccrf
