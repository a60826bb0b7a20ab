#include "base/utf8.h"

#include <cstdint>
#include <cstring>

namespace regccrf {
namespace {

constexpr char32_t kByte = 0xDC00;

bool is_continuation(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; }

// Alphabets in which capitals stand at even or odd places and their small letters right behind them.
bool alternates(char32_t c, bool& capital) {
  const bool even_first = (c >= 0x100 && c <= 0x137) || (c >= 0x14A && c <= 0x177) || (c >= 0x1DE && c <= 0x1EF) ||
                          (c >= 0x200 && c <= 0x21F) || (c >= 0x460 && c <= 0x481) || (c >= 0x48A && c <= 0x4BF) ||
                          (c >= 0x4D0 && c <= 0x52F) || (c >= 0x1E00 && c <= 0x1E95) || (c >= 0x1EA0 && c <= 0x1EFF);
  const bool odd_first = (c >= 0x139 && c <= 0x148) || (c >= 0x179 && c <= 0x17E) || (c >= 0x1CD && c <= 0x1DC) ||
                         (c >= 0x4C1 && c <= 0x4CE);
  const bool dotless = c == 0x130 || c == 0x131;  // the Turkish i's are no pair
  capital = even_first ? c % 2 == 0 : c % 2 == 1;
  return (even_first || odd_first) && !dotless;
}

}  // namespace

Character character_at(std::string_view text, std::size_t at) {
  const auto first = static_cast<unsigned char>(text[at]);
  if (first < 0x80) return {first, 1};
  const std::size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  const Character byte{kByte + first, 1};
  if (first < 0xC2 || first > 0xF4 || at + length > text.size()) return byte;
  char32_t code = first & (0xFF >> (length + 1));
  for (std::size_t i = 1; i < length; ++i) {
    if (!is_continuation(text[at + i])) return byte;
    code = (code << 6) | (static_cast<unsigned char>(text[at + i]) & 0x3F);
  }
  const char32_t least = length == 4 ? 0x10000 : length == 3 ? 0x800 : 0x80;
  const bool surrogate = code >= 0xD800 && code <= 0xDFFF;
  return code < least || code > 0x10FFFF || surrogate ? byte : Character{code, length};
}

bool is_utf8(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const Character c = character_at(text, at);
    if (c.code > kByte && c.code <= kByte + 0xFF) return false;
    at += c.length;
  }
  return true;
}

std::size_t text_end(std::string_view text) {
  constexpr std::uint64_t ones = 0x0101010101010101, highs = 0x8080808080808080;
  for (std::size_t at = 0; at < text.size();) {
    std::uint64_t word = 0;
    if (at + sizeof word <= text.size()) std::memcpy(&word, text.data() + at, sizeof word);
    if ((((word - ones) | word) & highs) == 0) {  // eight bytes of ASCII, none of them 0
      at += sizeof word;
      continue;
    }
    const Character c = character_at(text, at);
    if (c.code == 0 || (c.code > kByte && c.code <= kByte + 0xFF)) return at;
    at += c.length;
  }
  return text.size();
}

char32_t lower(char32_t c) {
  if (c < 0x80) return c >= 'A' && c <= 'Z' ? c + 32 : c;
  if (c >= 0xC0 && c <= 0xDE && c != 0xD7) return c + 32;
  if (c == 0x178) return 0xFF;
  if (c >= 0x391 && c <= 0x3AB && c != 0x3A2) return c + 32;
  if (c == 0x386) return 0x3AC;
  if (c >= 0x388 && c <= 0x38A) return c + 37;
  if (c == 0x38C) return 0x3CC;
  if (c == 0x38E || c == 0x38F) return c + 63;
  if (c >= 0x410 && c <= 0x42F) return c + 32;
  if (c >= 0x400 && c <= 0x40F) return c + 80;
  if (c >= 0x531 && c <= 0x556) return c + 48;
  bool capital = false;
  return alternates(c, capital) && capital ? c + 1 : c;
}

bool is_upper(char32_t c) { return lower(c) != c; }

bool is_lower(char32_t c) {
  if (c < 0x80) return c >= 'a' && c <= 'z';
  if (c >= 0xDF && c <= 0xFF) return c != 0xF7;
  if (c >= 0x3AC && c <= 0x3CE) return true;
  if (c >= 0x430 && c <= 0x45F) return true;
  if (c >= 0x561 && c <= 0x587) return true;
  bool capital = false;
  return alternates(c, capital) && !capital;
}

void append_character(std::string& text, char32_t c) {
  const auto put = [&](char32_t byte) { text.push_back(static_cast<char>(byte)); };
  if (c > kByte && c <= kByte + 0xFF) return put(c - kByte);
  if (c < 0x80) return put(c);
  if (c < 0x800) {
    put(0xC0 | (c >> 6));
  } else if (c < 0x10000) {
    put(0xE0 | (c >> 12));
    put(0x80 | ((c >> 6) & 0x3F));
  } else {
    put(0xF0 | (c >> 18));
    put(0x80 | ((c >> 12) & 0x3F));
    put(0x80 | ((c >> 6) & 0x3F));
  }
  put(0x80 | (c & 0x3F));
}

std::string lower(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const Character c = character_at(text, at);
    append_character(result, lower(c.code));
    at += c.length;
  }
  return result;
}

}  // namespace regccrf
