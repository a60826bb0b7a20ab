// How inference words its errors: "[operation] sequence 3, position 5: what is wrong". The same on every device.
#pragma once

#include <cstdint>
#include <string>

#include "regccrf/constraint.h"
#include "regccrf/error.h"

namespace regccrf {

// "[operation] " and "[operation] sequence i"
std::string at(const char* operation);
std::string at(const char* operation, std::int64_t sequence);

// An array's size.
void check_size(const char* operation, const char* what, std::size_t given, std::size_t expected, const char* shape);

// "has length 1, and the language has no sequence of that length (shortest: 2)"; `otherwise` in the place of the
// reason, where it has one.
std::string no_sequence_message(std::int64_t length, const Constraint& constraint, const std::string& otherwise);

// "[viterbi] sequence 3 has length 1, and the language has no sequence of that length (shortest: 2)"; or that all legal
// ones are forbidden by scores.
Error impossible_error(const char* operation, std::int64_t sequence, std::int64_t length, const Constraint& constraint);

// Gold of this length is not in the language: at which position it leaves it, and what was possible there.
Error outside_error(const char* operation, std::int64_t sequence, std::int64_t length, const Constraint& constraint,
                    const Label* gold, const Membership& membership);

// The gap is above max_gap, and this operation has no bound to give.
Error no_bound_error(const char* operation, std::int64_t sequence);

// Gold is in the language, and its score is −inf.
Error forbidden_gold_error(const char* operation, std::int64_t sequence);

}  // namespace regccrf
