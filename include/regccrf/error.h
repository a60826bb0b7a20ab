// Everything that regccrf throws. A message says what was asked for, what was given, what was expected and what to do.
#pragma once

#include <stdexcept>
#include <string>

namespace regccrf {

class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A construction would have outgrown `Limits`. Nothing is wrong with the input; raising the limit may help.
class LimitError : public Error {
 public:
  using Error::Error;
};

}  // namespace regccrf
