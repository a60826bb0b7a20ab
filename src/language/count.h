// Counting, drawing and listing the sequences of an unambiguous automaton, length by length.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/budget.h"
#include "regccrf/automaton.h"

namespace regccrf {

std::string count_sequences(const Automaton& unambiguous, std::size_t length, const Budget& budget);

// Empty when there is no sequence of this length.
std::vector<std::vector<Label>> random_sequences(const Automaton& unambiguous, std::size_t length, std::size_t many,
                                                 std::uint64_t seed, const Budget& budget);

// Any trimmed automaton will do for these two.
std::vector<std::vector<Label>> list_sequences(const Automaton& automaton, std::size_t length, std::size_t most,
                                               const Budget& budget);
bool has_longer(const Automaton& automaton, std::size_t length);  // some sequence is longer than this

}  // namespace regccrf
