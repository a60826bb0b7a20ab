// Names in messages: what somebody may have meant who misspelt a word, and lists that stay short.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace regccrf {

// The name among `known` that `word` most likely misspells, if one is close enough.
std::optional<std::string> nearest(std::string_view word, std::span<const std::string> known);

// The names, or the first twelve of them and how many there are.
std::string listed(std::span<const std::string> names);

}  // namespace regccrf
