#include "cli/language_options.h"

#include <filesystem>

#include "base/file.h"
#include "base/safetensors.h"
#include "cli/constraint_options.h"

namespace regccrf::cli {

void LanguageOptions::add_to(CLI::App& command, bool takes_input) {
  takes_input_ = takes_input;
  command.add_option("-e,--expression", pattern, "the language as a pattern, instead of FILE: -e '(O | B I*)*'")
      ->type_name("PATTERN");
  command
      .add_option(
          "arguments", positional,
          takes_input
              ? "FILE [INPUT]: the language (.lang, OpenFst binary, AT&T text as .att, or a compiled constraint; not "
                "with -e), "
                "and the sequences (standard input if absent)"
              : "FILE: the language (.lang, OpenFst binary, AT&T text as .att, or a compiled constraint; not with -e)")
      ->type_name("");
  command
      .add_option("--labels", labels,
                  "all labels: --labels O,B,I; by default those that the language declares or mentions")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("A,B");
  command.add_option("--symbols", symbols, "OpenFst symbol table (text) for an automaton that has none")
      ->type_name("FILE");
  add_rules(command, rules);
  add_limits(command, limits);
}

void LanguageOptions::settle() {
  if (settled_) return;
  settled_ = true;
  std::vector<std::string> rest = positional;
  if (pattern.empty()) {
    if (rest.empty()) throw Error("no language is given: name a FILE, or write -e PATTERN");
    file = rest[0];
    rest.erase(rest.begin());
  }
  if (takes_input_ && !rest.empty()) {
    input_ = rest[0];
    std::error_code none;
    if (input_.find(' ') != std::string::npos && !std::filesystem::exists(input_, none))
      throw Error("there is no file '" + input_ + "'; sequences are read from a file or from standard input");
    rest.erase(rest.begin());
  }
  if (!rest.empty())
    throw Error("unexpected argument '" + rest[0] + "'" + (pattern.empty() ? "" : " (the language is given by -e)"));
  std::error_code code;  // a name that no file can have is just not there
  refuse_file_as_pattern(pattern, "leave -e out");
  const bool looks_like_pattern =
      pattern.empty() && !std::filesystem::exists(file, code) && file.find_first_of(" *|()[]") != std::string::npos;
  if (looks_like_pattern) throw Error("there is no file '" + file + "'; a pattern is given with -e");
}

std::string LanguageOptions::input() const { return input_; }

Language LanguageOptions::language() {
  settle();
  std::optional<Labels> given;
  if (!labels.empty()) given = Labels(labels);
  return pattern.empty() ? Language::load(file, given, symbols, limits)
                         : Language::parse(pattern, given, "pattern", limits);
}

Constraint LanguageOptions::constraint() {
  settle();
  const bool saved = pattern.empty() && labels.empty() && looks_like_safetensors(read_file(file));
  if (!saved) return compile(language(), limits, rules);
  const Constraint constraint = Constraint::load(file);
  const bool multiply_out = rules == Rules::none && constraint.rules() > 0;
  return multiply_out ? compile(Language::from_constraint(constraint), limits, rules) : constraint;
}

}  // namespace regccrf::cli
