// The options by which commands on data take a constraint: --constraint FILE or -e PATTERN, and limits.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "regccrf/constraint.h"
#include "regccrf/language.h"

namespace regccrf::cli {

struct ConstraintOptions {
  std::string pattern, file;
  Limits limits;

  void add_to(CLI::App& command);
  bool given() const { return !pattern.empty() || !file.empty(); }

  // Over the labels of the data and those that the language itself declares or mentions: `.` is any of them.
  Constraint constraint(const Labels& of_data) const;
};

}  // namespace regccrf::cli
