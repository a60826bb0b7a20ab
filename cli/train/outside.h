// What the data has and the language does not: labels, then sequences.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/train/arguments.h"
#include "regccrf/constraint.h"
#include "regccrf/dataset.h"

namespace regccrf::cli {

// A label of the data that has no place in the language is an error: most likely it is a slip in one of them.
void check_labels(const Constraint& constraint, const std::vector<std::string>& of_data);

// A label that the pattern names and neither the language nor the data has: told, since a rule about it forbids
// nothing.
void say_unused_labels(const Constraint& constraint, const std::vector<std::string>& of_data);

// Sequences outside the language: told, then left out or repaired, or an error. What was done goes into `facts`.
void settle_outside(const TrainArguments& arguments, const Constraint& constraint, bool speak, Dataset& data,
                    nlohmann::ordered_json& facts);

}  // namespace regccrf::cli
