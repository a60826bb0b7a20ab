// Labels from files of columns: one token a line, columns separated by tabs or blanks, an empty line behind a sequence.
#pragma once

#include <string>
#include <vector>

#include "regccrf/evaluate.h"

namespace regccrf::cli {

// Columns count from 1; -1 is the last one.
struct Columns {
  std::vector<std::vector<LabelNames>>
      columns;                     // [columns][sequences][tokens], in the order in which they were asked for
  std::vector<std::size_t> lines;  // [sequences] the line at which each begins, from 1
  std::size_t most_columns = 0;    // of any line
  bool ends_with_empty_line = true;
};

// What to do with a -DOCSTART- line. conlleval counts it as a token, where it has as many columns as others; where a
// tagger has added its column to the others alone, it says nothing.
enum class Docstart { count_if_complete, skip };

// As conlleval reads them: a line whose first column is -X- is an empty line, too. "-" is standard input. Error for a
// line that has too few columns.
Columns read_columns(const std::string& path, const std::vector<int>& wanted, Docstart docstart);

}  // namespace regccrf::cli
