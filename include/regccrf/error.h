// Everything that regccrf throws. The message is for people: what was asked for, what was given, what was expected and
// what to do. The kind and the place are for programs.
#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>

namespace regccrf {

enum class ErrorKind {
  invalid,     // what was given is wrong: a shape, a score, a pattern, a file
  limit,       // a construction would exceed `Limits`
  impossible,  // the language has no sequence of that length, or none with a finite score
  outside,     // the correct labels are not in the language, or their score is −inf
};

// The sequence of a batch that an error is about, and the position in it (masked positions do not count).
struct ErrorPlace {
  std::optional<std::int64_t> sequence, position;
};

class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& message, ErrorKind kind = ErrorKind::invalid, ErrorPlace place = {})
      : std::runtime_error(message), kind_(kind), place_(place) {}

  ErrorKind kind() const { return kind_; }
  std::optional<std::int64_t> sequence() const { return place_.sequence; }
  std::optional<std::int64_t> position() const { return place_.position; }

 private:
  ErrorKind kind_;
  ErrorPlace place_;
};

// Nothing is wrong with the input; raising the limit may help.
class LimitError : public Error {
 public:
  explicit LimitError(const std::string& message) : Error(message, ErrorKind::limit) {}
};

}  // namespace regccrf
