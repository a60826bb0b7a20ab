#include "cli/constraint_options.h"

#include <filesystem>
#include <map>

#include "base/file.h"
#include "base/safetensors.h"
#include "regccrf/model.h"

namespace regccrf::cli {

void add_limits(CLI::App& command, Limits& limits) {
  command.add_option("--max-states", limits.states, "limit of states in compiling")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command.add_option("--max-arcs", limits.arcs, "limit of arcs in compiling")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command.add_option("--max-seconds", limits.seconds, "limit of time in compiling")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command.add_option("--max-memory", limits.memory, "limit of memory in compiling, in megabytes")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command
      .add_option("--max-products", limits.products,
                  "with --rules auto: keep rules apart above this many multiplications a position")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
}

void add_rules(CLI::App& command, Rules& rules) {
  static const std::map<std::string, Rules> names = {
      {"auto", Rules::automatic}, {"all", Rules::all}, {"none", Rules::none}};
  command
      .add_option_function<std::string>(
          "--rules", [&rules](const std::string& name) { rules = names.at(name); },
          "rules that are joined by &: one automaton for all (none), each kept apart (all), or kept apart only if one "
          "automaton would be too large (auto); docs/rules.md")
      ->check(CLI::IsMember({"auto", "all", "none"}))
      ->default_str("auto")
      ->type_name("WHICH");
}

std::string refuse_empty(const std::string& text) {
  return text.find_first_not_of(" \t\r\n") == std::string::npos ? "is empty; without a constraint, leave it out" : "";
}

void ConstraintOptions::add_to(CLI::App& command) {
  CLI::Option* from_file =
      command
          .add_option("-c,--constraint", file,
                      "the language: .lang, OpenFst binary, AT&T text (.att), or a compiled constraint")
          ->type_name("FILE")
          ->check(refuse_empty);
  command.add_option("-e,--expression", pattern, "the language as a pattern: -e '(O | B-PER I-PER*)*'")
      ->type_name("PATTERN")
      ->check(refuse_empty)
      ->excludes(from_file);
  add_rules(command, rules);
  add_limits(command, limits);
}

void refuse_file_as_pattern(const std::string& pattern, const char* advice) {
  std::error_code code;
  if (!pattern.ends_with(".lang") || pattern.find_first_of(" \t\n") != std::string::npos) return;
  throw Error("'" + pattern + "' is " + (std::filesystem::exists(pattern, code) ? "a file" : "the name of a file") +
              ", and -e takes a pattern; " + advice);
}

// A saved constraint over its own labels and those of the data, which no sequence of the language has.
static Constraint with_labels(const Constraint& constraint, const Labels& of_data) {
  std::vector<std::string> names = constraint.labels().names();
  for (const std::string& name : of_data.names()) {
    if (!constraint.labels().find(name)) names.push_back(name);
  }
  return fit_constraint(constraint, Labels(names));
}

Constraint ConstraintOptions::constraint(const Labels& of_data) const {
  std::error_code code;
  refuse_file_as_pattern(pattern, "give it with -c");
  if (!file.empty() && std::filesystem::is_regular_file(file, code) && looks_like_safetensors(read_file(file))) {
    const Constraint saved = Constraint::load(file);
    if (saved.rules() > 0) return with_labels(saved, of_data);
  }
  if (!file.empty() && !std::filesystem::exists(file, code))
    throw Error("there is no file '" + file + "'; a pattern is given with -e");
  const auto language = [&](const std::optional<Labels>& labels) {
    return file.empty() ? Language::parse(pattern, labels, "pattern", limits)
                        : Language::load(file, labels, "", limits);
  };
  std::vector<std::string> names = language({}).labels().names();
  const Labels own(names);
  for (const std::string& name : of_data.names()) {
    if (!own.find(name)) names.push_back(name);
  }
  return compile(language(Labels(names)), limits, rules);
}

}  // namespace regccrf::cli
