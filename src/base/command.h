// Files that another program makes from ours: drawings by Graphviz, PNGs by librsvg.
#pragma once

#include <string>
#include <vector>

namespace regccrf {

// Runs `command OUTPUT INPUT` with `text` as the input file, and puts its output at `path`, whole or not at all. `hint`
// is the error when the program is missing or fails.
void write_converted(const std::string& path, const std::string& text, const std::vector<std::string>& command,
                     const std::string& hint);

}  // namespace regccrf
