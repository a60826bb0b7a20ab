// Lines of a file or of standard input, plain or gzip, in constant memory.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace regccrf {

struct Line {
  std::string_view text;  // without its end; holds until the next call of any function
  std::string_view end;   // "\n", "\r\n", or "" where the file ends without one
};

class LineReader {
 public:
  explicit LineReader(const std::string& path);  // "-": standard input
  ~LineReader();

  bool next(Line& line);        // false at the end
  bool next_text(Line& line);   // likewise; Error for a line that is not UTF-8 or has a NUL in it
  std::int64_t number() const;  // of the line that next() gave last, from 1

  // What comes next, without taking it: up to the first blank line behind one that is not, up to 64 KiB.
  std::string_view peek_paragraph();

  bool would_wait();  // a whole paragraph can only be had by waiting

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

bool is_blank(std::string_view line);  // nothing but blanks and tabs

}  // namespace regccrf
