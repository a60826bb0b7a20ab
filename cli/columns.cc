#include "cli/columns.h"

#include <algorithm>
#include <string_view>

#include "io/lines.h"
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
                                       : "column " + std::to_string(column) + " was asked for";
  throw Error(where + ": " + std::to_string(count) + (count == 1 ? " column, and " : " columns, and ") + asked);
}

}  // namespace

Columns read_columns(const std::string& path, const std::vector<int>& wanted) {
  Columns result;
  result.columns.resize(wanted.size());
  bool in_sequence = false;
  LineReader reader(path);
  for (Line line; reader.next(line);) {
    const std::vector<std::string_view> cells = split(line.text);
    const bool is_boundary = cells.empty() || cells[0] == "-X-";
    if (is_boundary) {
      in_sequence = false;
      continue;
    }
    if (!in_sequence) {
      for (auto& column : result.columns) column.emplace_back();
      result.lines.push_back(static_cast<std::size_t>(reader.number()));
      in_sequence = true;
    }
    result.most_columns = std::max(result.most_columns, cells.size());
    const std::string where = "'" + path + "', line " + std::to_string(reader.number());
    for (std::size_t i = 0; i < wanted.size(); ++i)
      result.columns[i].back().emplace_back(pick(cells, wanted[i], where));
  }
  result.ends_with_empty_line = !in_sequence;
  return result;
}

}  // namespace regccrf::cli
