// Lines become sentences; rows become fields.
#include "regccrf/sentences.h"

#include <cstring>

#include "base/lines.h"
#include "base/numbers.h"
#include "regccrf/error.h"

namespace regccrf {
namespace {

constexpr std::size_t kBetween = std::size_t{1} << 16;  // bytes of lines that are no rows, handed on at a time
constexpr std::size_t kLargest = std::size_t{1} << 30;  // bytes of a sentence

constexpr std::string_view kDocument = "-DOCSTART-";
constexpr std::string_view kWeight = "@weight:";

bool starts_document(std::string_view row) {
  return row.starts_with(kDocument) &&
         (row.size() == kDocument.size() || row[kDocument.size()] == ' ' || row[kDocument.size()] == '\t');
}

std::string place(const std::string& path, std::int64_t line) {
  return (path == "-" ? "standard input" : path) + ", line " + std::to_string(line);
}

// Calls take(begin, length) for every field of a row.
template <class Take>
void each_column(std::string_view row, Take take) {
  if (row.find('\t') != std::string_view::npos) {
    for (std::size_t at = 0;;) {
      const std::size_t end = std::min(row.find('\t', at), row.size());
      take(at, end - at);
      if (end == row.size()) return;
      at = end + 1;
    }
  }
  for (std::size_t at = row.find_first_not_of(' '); at != std::string_view::npos;) {
    const std::size_t end = std::min(row.find(' ', at), row.size());
    take(at, end - at);
    at = row.find_first_not_of(' ', end);
  }
}

// Fields of CRFsuite's format: empty ones do not count.
template <class Take>
void each_attribute(std::string_view row, Take take) {
  const char* at = row.data();
  const char* const end = at + row.size();
  while (at < end) {
    const char* tab = static_cast<const char*>(std::memchr(at, '\t', static_cast<std::size_t>(end - at)));
    if (tab == nullptr) tab = end;
    if (tab > at) take(static_cast<std::size_t>(at - row.data()), static_cast<std::size_t>(tab - at));
    at = tab + 1;
  }
}

template <class Take>
void each_line(std::string_view text, Take take) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    take(text.substr(at, end - at));
    at = end + 1;
  }
}

Format looks_like(std::string_view paragraph) {
  std::int64_t fields = 0, with_equals = 0;
  each_line(paragraph, [&](std::string_view line) {
    if (is_blank(line) || starts_document(line) || line.find('\t') == std::string_view::npos) return;
    bool first = true;
    each_attribute(line, [&](std::size_t from, std::size_t length) {
      if (!first) {
        ++fields;
        with_equals += line.substr(from, length).find('=') != std::string_view::npos;
      }
      first = false;
    });
  });
  return 2 * with_equals > fields ? Format::crfsuite : Format::columns;
}

int count_columns(std::string_view paragraph) {
  int columns = 0;
  each_line(paragraph, [&](std::string_view line) {
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    if (columns == 0 && !is_blank(line) && !starts_document(line))
      each_column(line, [&](std::size_t, std::size_t) { ++columns; });
  });
  return columns;
}

}  // namespace

std::string_view Sentence::row(std::int64_t t) const {
  std::string_view row = std::string_view(bytes).substr(begin[at(t)], begin[at(t) + 1] - begin[at(t)]);
  if (row.ends_with('\n')) row.remove_suffix(1);
  if (row.ends_with('\r')) row.remove_suffix(1);
  return row;
}

std::string Sentence::where(std::int64_t t) const { return place(path, line + t); }

void Sentence::split() {
  first_.assign(1, 0);
  field_.clear();
  for (std::int64_t t = 0; t < size(); ++t) {
    const std::uint32_t from = begin[at(t)];
    const auto take = [&](std::size_t offset, std::size_t length) {
      field_.emplace_back(from + static_cast<std::uint32_t>(offset), static_cast<std::uint32_t>(length));
    };
    if (format == Format::crfsuite) {
      each_attribute(row(t), take);
    } else {
      each_column(row(t), take);
    }
    first_.push_back(static_cast<std::uint32_t>(field_.size()));
    if (columns != 0 && format != Format::crfsuite && fields(t) != columns) {
      throw Error("[read] " + where(t) + ": has " + std::to_string(fields(t)) +
                  (fields(t) == 1 ? " column" : " columns") + ", and the file's first row has " +
                  std::to_string(columns) +
                  "; columns are separated by one tab each, or by blanks where a row has no tab (CRFsuite's attributes "
                  "are read with --format crfsuite)" +
                  (row(t).starts_with('#') || row(0).starts_with('#')
                       ? "; a line that begins with # is a row like others: leave comments out"
                       : ""));
    }
  }
}

Sentence Sentence::of_rows(const std::vector<std::vector<std::string>>& rows) {
  Sentence sentence;
  sentence.path = "input";
  for (const auto& row : rows) {
    for (std::size_t c = 0; c < row.size(); ++c) {
      if (row[c].find_first_of("\t\n") != std::string::npos)
        throw Error("[rows] '" + row[c] + "' has a tab or a line end in it");
      if (c > 0) sentence.bytes += '\t';
      sentence.bytes += row[c];
    }
    sentence.bytes += '\n';
    sentence.begin.push_back(static_cast<std::uint32_t>(sentence.bytes.size()));
  }
  sentence.first_.push_back(0);
  for (std::size_t t = 0; t < rows.size(); ++t) {
    std::uint32_t from = sentence.begin[t];
    for (const std::string& field : rows[t]) {
      sentence.field_.emplace_back(from, static_cast<std::uint32_t>(field.size()));
      from += static_cast<std::uint32_t>(field.size()) + 1;
    }
    sentence.first_.push_back(static_cast<std::uint32_t>(sentence.field_.size()));
  }
  return sentence;
}

struct SentenceReader::Impl {
  Impl(const std::string& p, Format f) : path(p), format(f), lines(p) {}

  void look() {
    if (looked) return;
    looked = true;
    const std::string_view paragraph = lines.peek_paragraph();
    looks = looks_like(paragraph);
    if (format == Format::automatic) format = looks;
    columns = count_columns(paragraph);
  }
  // Lines in front of a sentence.
  bool is_between(std::string_view line, Sentence& sentence) {
    if (is_blank(line)) return true;
    if (format == Format::columns) return starts_document(line);
    if (line[0] != '@') return false;
    if (!line.starts_with(kWeight)) {
      throw Error(
          "[read] " + place(path, lines.number()) + ": '" + std::string(line.substr(0, line.find('\t'))) +
          "': a line that begins with @ is a declaration in CRFsuite's format, and @weight:NUMBER is the only one");
    }
    if (sentence.size() > 0)
      throw Error("[read] " + place(path, lines.number()) + ": @weight must be before a sequence, not within it");
    const auto weight = parse_number(line.substr(kWeight.size()));
    if (!weight || *weight < 0) {
      throw Error("[read] " + place(path, lines.number()) + ": '" + std::string(line) +
                  "': the weight is not a number ≥ 0");
    }
    sentence.weight = *weight;
    return true;
  }

  std::string path;
  Format format, looks = Format::columns;
  LineReader lines;
  bool looked = false;
  int columns = 0;
};

SentenceReader::SentenceReader(const std::string& path, Format format) : impl_(std::make_unique<Impl>(path, format)) {}
SentenceReader::~SentenceReader() = default;
SentenceReader::SentenceReader(SentenceReader&&) noexcept = default;
SentenceReader& SentenceReader::operator=(SentenceReader&&) noexcept = default;

const std::string& SentenceReader::path() const { return impl_->path; }
bool SentenceReader::would_wait() { return impl_->lines.would_wait(); }
Format SentenceReader::format() {
  impl_->look();
  return impl_->format;
}
Format SentenceReader::looks() {
  impl_->look();
  return impl_->looks;
}
int SentenceReader::columns() {
  impl_->look();
  return impl_->columns;
}

bool SentenceReader::next(Sentence& sentence) {
  Impl& in = *impl_;
  in.look();
  sentence.path = in.path;
  sentence.format = in.format;
  sentence.columns = in.format == Format::columns ? in.columns : 0;
  sentence.before.clear();
  sentence.bytes.clear();
  sentence.after.clear();
  sentence.begin.assign(1, 0);
  sentence.weight = 1;
  Line line;
  while (in.lines.next_text(line)) {
    if (in.is_between(line.text, sentence)) {
      std::string& place = sentence.size() > 0 ? sentence.after : sentence.before;
      place.append(line.text).append(line.end.empty() ? "\n" : line.end);
      if (sentence.size() > 0 || sentence.before.size() > kBetween) return true;
      continue;
    }
    if (sentence.size() == 0) sentence.line = in.lines.number();
    sentence.bytes.append(line.text).append(line.end);
    if (sentence.bytes.size() > kLargest) {
      throw Error("[read] " + sentence.where(0) +
                  ": a sentence of more than 1 GiB begins here; a blank line ends a sentence");
    }
    sentence.begin.push_back(static_cast<std::uint32_t>(sentence.bytes.size()));
  }
  return sentence.size() > 0 || !sentence.before.empty();
}

}  // namespace regccrf
