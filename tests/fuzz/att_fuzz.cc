// Bytes as AT&T text: all of them as an automaton without a symbol table; and, where a line `%%` divides them, what
// stands before it as a symbol table for what stands behind it.
#include "automaton/att_file.h"
#include "fuzz.h"
#include "language/algebra.h"

namespace regccrf::fuzz {
namespace {

using Symbols = std::map<std::int64_t, std::string>;

void read(const std::string& text, const Symbols& symbols) {
  AttFile file = decode_att(text, symbols, "file.att");
  const Limits limits = small_limits();
  const Budget budget(limits.states, limits.arcs, Budget::kUnlimited, limits.seconds);
  budget.check_size("load", file.automaton.states(), static_cast<std::int64_t>(file.automaton.arcs.size()));
  const Labels labels(file.names);
  const Language language = Language::from_automaton(remove_epsilon(file.automaton, budget), labels);
  only_errors([&] { language.count(3, limits); });
  const Automaton& built = language.automaton(limits);
  const AttFile again = decode_att(encode_att(built, labels.names()), {}, "again.att");
  require(again.automaton.arcs.size() == built.arcs.size(), "arcs survive writing and reading");
}

}  // namespace
}  // namespace regccrf::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace regccrf::fuzz;
  const std::string text = text_of(data, size);
  only_errors([&] { read(text, {}); });
  const std::size_t divider = text.find("%%\n");
  if (divider == std::string::npos) return 0;
  only_errors([&] { read(text.substr(divider + 3), regccrf::decode_symbols(text.substr(0, divider), "file.syms")); });
  return 0;
}
