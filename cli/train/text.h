// Words for messages.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace regccrf::cli {

std::string plural(std::int64_t count, const std::string& noun);  // 1 label, 2 labels

// a, b, c and 4 more
std::string join(const std::vector<std::string>& names, std::size_t most = 12);

}  // namespace regccrf::cli
