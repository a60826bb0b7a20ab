#include "cli/constraint_options.h"

#include <filesystem>

namespace regccrf::cli {

void add_limits(CLI::App& command, Limits& limits) {
  command.add_option("--max-states", limits.states, "stop a construction that grows past this many states")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command.add_option("--max-arcs", limits.arcs, "… or this many arcs")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command.add_option("--max-seconds", limits.seconds, "… or takes longer than this")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
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
  add_limits(command, limits);
}

void refuse_file_as_pattern(const std::string& pattern, const char* advice) {
  std::error_code code;
  if (!pattern.ends_with(".lang") || pattern.find_first_of(" \t\n") != std::string::npos) return;
  throw Error("'" + pattern + "' is " + (std::filesystem::exists(pattern, code) ? "a file" : "the name of a file") +
              ", and -e takes a pattern; " + advice);
}

std::vector<bool> labels_in_use(const Constraint& constraint) {
  std::vector<bool> used(static_cast<std::size_t>(constraint.labels().size()), false);
  for (const Arc& arc : constraint.automaton().arcs) used[arc.label] = true;
  return used;
}

Constraint ConstraintOptions::constraint(const Labels& of_data) const {
  std::error_code code;
  refuse_file_as_pattern(pattern, "give it with -c");
  if (!file.empty() && !std::filesystem::exists(file, code))
    throw Error("there is no file '" + file + "'; a pattern is given with -e");
  const auto language = [&](const std::optional<Labels>& labels) {
    return file.empty() ? Language::parse(pattern, labels) : Language::load(file, labels, "", limits);
  };
  std::vector<std::string> names = language({}).labels().names();
  const Labels own(names);
  for (const std::string& name : of_data.names()) {
    if (!own.find(name)) names.push_back(name);
  }
  return compile(language(Labels(names)), limits);
}

}  // namespace regccrf::cli
