// The text of a pattern: that it is text at all, and where in it something is wrong.
#include <algorithm>

#include "language/syntax.h"
#include "regccrf/error.h"

namespace regccrf {

std::size_t utf8_length(std::string_view text, std::size_t i) {
  const unsigned char lead = static_cast<unsigned char>(text[i]);
  std::size_t length = lead < 0x80                   ? 1
                       : lead >= 0xc2 && lead < 0xe0 ? 2
                       : (lead & 0xf0) == 0xe0       ? 3
                       : lead >= 0xf0 && lead < 0xf5 ? 4
                                                     : 0;
  if (length == 0 || i + length > text.size()) return 0;
  for (std::size_t k = 1; k < length; ++k) {
    if ((static_cast<unsigned char>(text[i + k]) & 0xc0) != 0x80) return 0;
  }
  const unsigned char second = length > 1 ? static_cast<unsigned char>(text[i + 1]) : 0;
  const bool overlong = (lead == 0xe0 && second < 0xa0) || (lead == 0xf0 && second < 0x90);
  const bool out_of_range = (lead == 0xed && second >= 0xa0) || (lead == 0xf4 && second >= 0x90);
  return overlong || out_of_range ? 0 : length;
}

void check_text(const std::shared_ptr<const Source>& source) {
  const std::string& text = source->text;
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t length = utf8_length(text, i);
    if (length == 0)
      fail_at({source, i}, "this byte is not valid UTF-8",
              "save the file as UTF-8; Latin-1 is converted by iconv -f latin1 -t utf8");
    const bool control = static_cast<unsigned char>(text[i]) < ' ' &&
                         std::string_view(" \t\r\n").find(text[i]) == std::string_view::npos;
    if (control || text[i] == '\x7f') {
      fail_at({source, i}, text[i] == 0 ? "unexpected NUL byte" : "unexpected control character",
              "a pattern is text; remove this byte");
    }
    i += length;
  }
}

void fail_at(const Place& place, const std::string& message, const std::string& hint) {
  const std::string& text = place.source->text;
  const std::size_t at = std::min(place.begin, text.size());
  const std::size_t line_begin = at == 0 ? 0 : text.rfind('\n', at - 1) + 1;  // npos + 1 is 0
  std::size_t line_end = text.find('\n', at);
  if (line_end == std::string::npos) line_end = text.size();
  const auto is_continuation = [](char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; };
  const auto line = std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(line_begin), '\n') + 1;

  const std::size_t context = 70;  // bytes of a long line shown on either side of the caret
  std::size_t from = at - line_begin > context ? at - context : line_begin;
  std::size_t to = line_end - at > context ? at + context : line_end;
  while (from > line_begin && is_continuation(text[from])) --from;
  while (to < line_end && is_continuation(text[to])) ++to;
  std::string shown = text.substr(from, to - from), caret;
  std::size_t column = 1;
  for (std::size_t i = line_begin; i < at; ++i) {
    if (is_continuation(text[i])) continue;
    ++column;
    if (i >= from) caret += text[i] == '\t' ? '\t' : ' ';
  }
  if (!shown.empty() && shown.back() == '\r') shown.pop_back();
  std::replace(shown.begin(), shown.end(), '\0', '?');  // a NUL would end the message
  throw Error(place.source->name + ":" + std::to_string(line) + ":" + std::to_string(column) + ": " + message + "\n  " +
              shown + "\n  " + caret + "^" + (hint.empty() ? "" : "\n  " + hint));
}

}  // namespace regccrf
