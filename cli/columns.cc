#include "cli/columns.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "base/lines.h"
#include "regccrf/error.h"

namespace regccrf::cli {
namespace {

// At every tab where there is one, at blanks otherwise. Empty cells at the end do not count.
std::vector<std::string_view> split(std::string_view line) {
  line = line.substr(0, line.find_last_not_of(" \t") + 1);
  if (line.empty()) return {};
  const bool has_tab = line.find('\t') != std::string_view::npos;
  std::vector<std::string_view> cells;
  for (std::size_t begin = 0; begin <= line.size();) {
    const std::size_t end = std::min(line.find(has_tab ? '\t' : ' ', begin), line.size());
    const bool is_extra_blank = !has_tab && end == begin;
    if (!is_extra_blank) cells.push_back(line.substr(begin, end - begin));
    begin = end + 1;
  }
  return cells;
}

std::string_view pick(const std::vector<std::string_view>& cells, int column, const std::string& where) {
  const int count = static_cast<int>(cells.size()), index = column < 0 ? count + column : column - 1;
  if (index >= 0 && index < count) return cells[static_cast<std::size_t>(index)];
  const std::string asked = column < 0 ? std::to_string(-column) + " or more were expected"
                                       : "column " + std::to_string(column) + " was requested";
  throw Error(where + ": " + std::to_string(count) + (count == 1 ? " column, but " : " columns, but ") + asked);
}

// Rows of different width: a file that was cut off, or a line that is no row.
void check_width(std::size_t count, std::size_t first, const std::string& where) {
  if (count == first) return;
  throw Error(where + ": " + std::to_string(count) + (count == 1 ? " column" : " columns") +
              ", and the file's first row has " + std::to_string(first) + "; all rows must have the same number");
}

bool has_all(const std::vector<std::string_view>& cells, const std::vector<int>& wanted) {
  return std::all_of(wanted.begin(), wanted.end(),
                     [&](int c) { return static_cast<int>(cells.size()) >= std::abs(c); });
}

void erase(Columns& columns, std::size_t sequence) {
  const auto at = static_cast<std::ptrdiff_t>(sequence);
  for (auto& column : columns.columns) column.erase(column.begin() + at);
  columns.lines.erase(columns.lines.begin() + at);
}

}  // namespace

Columns read_columns(const std::string& path, const std::vector<int>& wanted, Docstart docstart) {
  Columns result;
  result.columns.resize(wanted.size());
  std::vector<std::pair<std::size_t, std::size_t>> docstarts;  // sequence, number of columns
  bool in_sequence = false;
  std::size_t width = 0;  // of the first row
  LineReader reader(path);
  for (Line line; reader.next(line);) {
    const std::vector<std::string_view> cells = split(line.text);
    const bool is_docstart = !cells.empty() && cells[0] == "-DOCSTART-";
    const bool says_nothing = is_docstart && (docstart == Docstart::skip || !has_all(cells, wanted));
    if (cells.empty() || cells[0] == "-X-" || says_nothing) {
      in_sequence = false;
      continue;
    }
    if (!in_sequence || is_docstart) {
      for (auto& column : result.columns) column.emplace_back();
      result.lines.push_back(static_cast<std::size_t>(reader.number()));
    }
    const std::string where = "'" + path + "', line " + std::to_string(reader.number());
    for (std::size_t i = 0; i < wanted.size(); ++i)
      result.columns[i].back().emplace_back(pick(cells, wanted[i], where));
    if (is_docstart) {
      docstarts.emplace_back(result.lines.size() - 1, cells.size());
    } else {
      if (width == 0) width = cells.size();
      check_width(cells.size(), width, where);
    }
    result.most_columns = std::max(result.most_columns, cells.size());
    in_sequence = !is_docstart;
  }
  result.ends_with_empty_line = !in_sequence;
  for (auto it = docstarts.rbegin(); it != docstarts.rend(); ++it) {
    if (it->second < result.most_columns) erase(result, it->first);
  }
  return result;
}

}  // namespace regccrf::cli
