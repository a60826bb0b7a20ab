// The options by which commands on data take a constraint: --constraint FILE or -e PATTERN, and limits.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "regccrf/constraint.h"
#include "regccrf/language.h"

namespace regccrf::cli {

// How large a construction may become.
void add_limits(CLI::App& command, Limits& limits);

// What becomes of the rules of a conjunction: --rules auto, all or none.
void add_rules(CLI::App& command, Rules& rules);

// An option's check: what is wrong where its text is empty, as from a shell's variable that is not set.
std::string refuse_empty(const std::string& text);

// Error where -e was given a file's name.
void refuse_file_as_pattern(const std::string& pattern, const char* advice);

struct ConstraintOptions {
  std::string pattern, file;
  Limits limits;
  Rules rules = Rules::automatic;

  void add_to(CLI::App& command);
  bool given() const { return !pattern.empty() || !file.empty(); }

  // Over the labels of the data and those that the language itself declares or mentions: `.` is any of them.
  Constraint constraint(const Labels& of_data) const;
};

}  // namespace regccrf::cli
