// The options by which every command takes a language: -e PATTERN or FILE, with labels, symbols and limits.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "regccrf/constraint.h"
#include "regccrf/language.h"

namespace regccrf::cli {

constexpr std::int64_t kLongest = 1'000'000'000;  // the largest length or count that a command takes

struct LanguageOptions {
  std::string pattern;
  std::string file;
  std::vector<std::string> labels;
  std::string symbols;
  Limits limits;
  Rules rules = Rules::automatic;

  // Without -e, the first positional argument is the language's file; `rest` are the positional arguments behind it.
  std::vector<std::string> positional;

  void add_to(CLI::App& command, bool takes_input);
  Language language();
  Constraint constraint();    // a saved constraint is taken as it is
  std::string input() const;  // path of the input, "-" for standard input

 private:
  void settle();  // -e or FILE, from the arguments
  bool takes_input_ = false, settled_ = false;
  std::string input_ = "-";
};

}  // namespace regccrf::cli
