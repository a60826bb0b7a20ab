// What OpenFst says of a transducer in a file.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace regccrf::oracle {

double total_weight(const std::string& path);  // log64: ⊕ over all accepting paths; +inf for none
std::vector<std::string> shortest_path_outputs(const std::string& path);  // tropical: output symbols of the best path
std::int64_t paths_of_length(const std::string& path, int length);        // tropical: accepting paths with so many arcs

}  // namespace regccrf::oracle
