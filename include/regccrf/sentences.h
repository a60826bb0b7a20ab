// Sentences of a file, one at a time and in constant memory: columns as in CoNLL's tasks, or CRFsuite's attributes. A
// file is plain or gzipped, and UTF-8 with or without a byte order mark. Lines end in \n or \r\n. The path "-" is
// standard input.
//
// Columns: each row is a token. A row with a tab is split at every tab, any other row at its blanks. All rows have the
// same number of columns. A blank line ends a sentence; so does a line that begins with -DOCSTART-, which belongs
// to no sentence.
//
// CRFsuite: `label TAB attribute[:value] TAB …`; \: and \\ stand for a colon and a backslash; other backslashes stand
// for themselves. A blank line ends a sequence; a line `@weight:2` in front of one counts it twice.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace regccrf {

// automatic: CRFsuite's if, in the first sentence, more than half of the tab-separated fields contain a `=` (the first
// field of each line does not count); columns otherwise.
enum class Format { automatic, columns, crfsuite };

struct Sentence {
  std::string path;  // of the file
  Format format = Format::columns;
  int columns = 0;     // that every row must have; 0: any number
  std::string before;  // lines before it that are not rows (blank, -DOCSTART-), as they are in the file
  std::string bytes;   // its rows, with their line ends
  std::string after;   // the line that ended it; empty at the end of the file
  std::vector<std::uint32_t> begin{0};  // [T + 1] of each row in `bytes`
  std::int64_t line = 1;                // of its first row, from 1
  double weight = 1;                    // CRFsuite's `@weight`

  std::int64_t size() const { return static_cast<std::int64_t>(begin.size()) - 1; }  // T
  std::string_view row(std::int64_t t) const;                                        // without its line end
  std::string where(std::int64_t t) const;                                           // "train.conll, line 12"

  // Finds the fields of every row. Error if the rows have different numbers of columns. A reader does not call it, so
  // that it can be done on another thread.
  void split();
  int fields(std::int64_t t) const { return static_cast<int>(first_[at(t) + 1] - first_[at(t)]); }
  std::string_view field(std::int64_t t, int column) const {
    const auto [from, length] = field_[first_[at(t)] + at(column)];
    return std::string_view(bytes).substr(from, length);
  }

  // A sentence from rows in memory.
  static Sentence of_rows(const std::vector<std::vector<std::string>>& rows);

 private:
  static std::size_t at(std::int64_t t) { return static_cast<std::size_t>(t); }
  std::vector<std::uint32_t> first_;                            // [T + 1] into field_
  std::vector<std::pair<std::uint32_t, std::uint32_t>> field_;  // where in `bytes`, length
};

class SentenceReader {
 public:
  explicit SentenceReader(const std::string& path, Format format = Format::automatic);
  ~SentenceReader();
  SentenceReader(SentenceReader&&) noexcept;
  SentenceReader& operator=(SentenceReader&&) noexcept;

  // The next sentence, whose memory is reused; false at the end. Lines after the last sentence are returned as a
  // sentence without rows.
  bool next(Sentence& sentence);

  const std::string& path() const;
  Format format();  // as given, or detected from the first sentence
  Format looks();   // detected from the first sentence, even if another one was given
  int columns();    // of the first row; 0 in an empty file

  // Whether the next sentence is not complete yet, so that next() would wait for input.
  bool would_wait();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace regccrf
