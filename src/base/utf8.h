// UTF-8 text, as far as readers and word features need it: where characters begin, upper and lower case, digits. Case
// is known for the alphabets of Europe (Latin, Greek, Cyrillic, Armenian); other characters have none. Bytes that are
// not UTF-8 count as characters of their own.
#pragma once

#include <string>
#include <string_view>

namespace regccrf {

constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";  // of UTF-8, which some editors put before a text

inline std::string_view without_mark(std::string_view text) {
  return text.starts_with(kByteOrderMark) ? text.substr(kByteOrderMark.size()) : text;
}

struct Character {
  char32_t code;       // a byte that is not UTF-8: 0xDC00 + the byte, which no character is
  std::size_t length;  // in bytes
};

Character character_at(std::string_view text, std::size_t at);
bool is_utf8(std::string_view text);
std::size_t text_end(std::string_view text);  // where the first byte is that is NUL or not UTF-8; its size if none is

char32_t lower(char32_t code);
bool is_upper(char32_t code);
bool is_lower(char32_t code);

void append_character(std::string& text, char32_t code);
std::string lower(std::string_view text);

}  // namespace regccrf
