// Automata read from files and written to them; encoding and decoding are elsewhere (fst_file.h, att_file.h).
#include "regccrf/automaton_file.h"

#include <filesystem>
#include <utility>

#include "automaton/att_file.h"
#include "base/file.h"
#include "language/algebra.h"
#include "language/fst_file.h"
#include "language/language.h"

namespace regccrf {
namespace {

Symbols symbols_from(const std::string& path) {
  return path.empty() ? Symbols() : decode_symbols(read_file(path), path);
}

}  // namespace

LabelledAutomaton read_fst(const std::string& path, const std::string& symbols, const Limits& limits) {
  NamedAutomaton file = decode_fst(read_file(path), symbols_from(symbols), path, budget_of(limits));
  return {std::move(file.automaton), Labels(std::move(file.names))};
}

LabelledAutomaton read_att(const std::string& path, const std::string& symbols, const Limits& limits) {
  AttFile file = decode_att(read_file(path), symbols_from(symbols), path);
  const Budget budget = budget_of(limits);
  budget.check_size("load", file.automaton.states(), static_cast<std::int64_t>(file.automaton.arcs.size()));
  return {remove_epsilon(file.automaton, budget), Labels(std::move(file.names))};
}

void write_fst(const Automaton& automaton, const Labels& labels, const std::string& path) {
  write_file(path, encode_fst(automaton, labels.names()));
}

void write_att(const Automaton& automaton, const Labels& labels, const std::string& path) {
  const std::string text = encode_att(automaton, labels.names()), symbols = path + ".syms";
  write_file(symbols, encode_symbols(labels.names()));
  try {
    write_file(path, text);
  } catch (const Error&) {
    std::error_code code;
    std::filesystem::remove(symbols, code);  // both or none
    throw;
  }
}

}  // namespace regccrf
