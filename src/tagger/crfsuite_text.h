// Fields of CRFsuite's attribute format: `name[:value]`, in which \: and \\ stand for a colon and a backslash.
#pragma once

#include <string>
#include <string_view>

namespace regccrf {

constexpr std::string_view kCrfsuiteModel = "lCRF";  // what CRFsuite's own model files begin with

// Where the first colon that is not escaped stands; the field's size if there is none.
inline std::size_t colon_of(std::string_view field) {
  const std::size_t colon = field.find(':');
  if (colon == std::string_view::npos) return field.size();
  if (colon == 0 || field[colon - 1] != '\\') return colon;
  for (std::size_t i = 0; i < field.size(); ++i) {
    if (field[i] == ':') return i;
    const bool escape = field[i] == '\\' && i + 1 < field.size() && (field[i + 1] == ':' || field[i + 1] == '\\');
    i += escape;
  }
  return field.size();
}

// `text` without its escapes: itself where it has none, else in `scratch`.
inline std::string_view unescape(std::string_view text, std::string& scratch) {
  if (text.find('\\') == std::string_view::npos) return text;
  scratch.clear();
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool escape = text[i] == '\\' && i + 1 < text.size() && (text[i + 1] == ':' || text[i + 1] == '\\');
    scratch.push_back(text[escape ? ++i : i]);
  }
  return scratch;
}

}  // namespace regccrf
