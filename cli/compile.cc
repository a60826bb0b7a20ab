// regccrf compile: compiles a language, says how large it is, draws and saves it.
#include <chrono>
#include <cstdio>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "automaton/draw.h"
#include "base/command.h"
#include "base/file.h"
#include "base/spelling.h"
#include "cli/commands.h"
#include "cli/language_options.h"
#include "constraint/labels_in_use.h"
#include "regccrf/automaton_file.h"
#include "regccrf/bigram_fst.h"

namespace regccrf::cli {
namespace {

struct Options {
  LanguageOptions language;
  bool json = false;
  std::string dot, svg, fst, bigrams, out;
};

// The labels themselves where they are few: a slip in the pattern may have made one.
std::string few(const Labels& labels) {
  if (labels.size() > 12) return "";
  std::string text = "   (";
  for (Label a = 0; a < labels.size(); ++a) text += (a ? " " : "") + labels.name(a);
  return text + ")";
}

// Labels that the pattern names and no sequence has, most likely misspelt ones.
std::string unused_line(const Constraint& constraint) {
  const std::vector<bool> used = labels_in_use(constraint);
  std::vector<std::string> unused;
  for (Label a = 0; a < constraint.labels().size(); ++a) {
    if (!used[a]) unused.push_back(constraint.labels().name(a));
  }
  return unused.empty() ? "" : "unused         " + listed(unused) + "   (no sequence of the language has this)\n";
}

// The sizes above it are the base's where rules are kept.
std::string rules_line(const Constraint& constraint) {
  if (constraint.rules() == 0) return "";
  return "rules          " + std::to_string(constraint.rules()) + "   (kept beside the base, whose sizes these are; " +
         std::to_string(constraint.memories()) + (constraint.memories() == 1 ? " memory)\n" : " memories)\n");
}

// One drawing; of the base and each rule side by side where rules are kept.
std::string drawing(const Constraint& constraint, const std::string& title) {
  if (constraint.rules() == 0) return to_dot(constraint.automaton(), constraint.labels(), title);
  const Constraint base = constraint.base();
  std::vector<Drawn> parts = {{&base.automaton(), "base"}};
  for (const Rule& rule : constraint.memory_list()) {
    std::string text;
    for (const std::string& one : rule.texts) text += (text.empty() ? "" : " & ") + one;
    parts.push_back({&rule.automaton, text});
  }
  return to_dot(parts, constraint.labels(), title);
}

void print_facts(const Constraint& constraint, double seconds, bool as_json) {
  const Size& size = constraint.size();
  if (as_json) {
    const nlohmann::ordered_json facts = {{"labels", constraint.labels().size()},
                                          {"states", size.states},
                                          {"arcs", size.arcs},
                                          {"nodes", size.nodes},
                                          {"products", size.products},
                                          {"rules", constraint.rules()},
                                          {"memories", constraint.memories()},
                                          {"deterministic", constraint.deterministic()},
                                          {"method", constraint.method()},
                                          {"seconds", seconds}};
    std::cout << facts.dump() << "\n";
    return;
  }
  const double unconstrained = static_cast<double>(constraint.labels().size()) * constraint.labels().size();
  char ratio[96] = "", time[64];
  if (unconstrained > 0) {
    std::snprintf(ratio, sizeof ratio, ": %.1f × the %.0f without a constraint",
                  static_cast<double>(size.products) / unconstrained, unconstrained);
  }
  std::snprintf(time, sizeof time, "%.3f s", seconds);
  std::cout << "labels         " << constraint.labels().size() << few(constraint.labels()) << "\n"
            << unused_line(constraint) << "states         " << size.states << "\n"
            << "arcs           " << size.arcs << "\n"
            << "nodes          " << size.nodes << "   (memory of a time step)\n"
            << "products       " << size.products << "   (multiplications a time step" << ratio << ")\n"
            << rules_line(constraint) << "deterministic  " << (constraint.deterministic() ? "yes" : "no") << "\n"
            << "method         " << constraint.method() << "\n"
            << "time           " << time << "\n";
}

bool ends_with(const std::string& text, const std::string& ending) {
  return text.size() >= ending.size() && text.compare(text.size() - ending.size(), ending.size(), ending) == 0;
}

int compile_command(Options& options) {
  for (const std::string& path : {options.dot, options.svg, options.fst, options.bigrams, options.out}) {
    if (!path.empty()) check_writable(path);
  }
  const auto start = std::chrono::steady_clock::now();
  const Constraint constraint = options.language.constraint();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();

  const std::string title = options.language.pattern.empty() ? options.language.file : options.language.pattern;
  if (!options.dot.empty()) write_file(options.dot, drawing(constraint, title));
  if (!options.svg.empty()) {
    write_converted(
        options.svg, drawing(constraint, title), {"dot", "-Tsvg", "-o"},
        "--svg needs Graphviz's program `dot` (Debian: graphviz); --dot writes the drawing as text without it");
  }
  if (!options.fst.empty()) {
    const bool text = ends_with(options.fst, ".att");
    (text ? write_att : write_fst)(constraint.automaton(), constraint.labels(), options.fst);
  }
  if (!options.bigrams.empty()) write_bigram_fst(constraint, options.bigrams);
  if (!options.out.empty()) constraint.save(options.out);
  print_facts(constraint, seconds, options.json);
  return 0;
}

}  // namespace

Run add_compile(CLI::App& app) {
  CLI::App* command = app.add_subcommand("compile", "Compile a language and say how large it is.");
  command->footer(
      "  regccrf compile languages/srl.lang\n"
      "  regccrf compile -e '(O | B I*)*' --svg spans.svg -o spans.constraint\n"
      "\n"
      "If a pattern exceeds --max-memory, --max-seconds, --max-states or --max-arcs, there is an error that names the\n"
      "construction and the limit. docs/language.md says what to do (\"How a pattern compiles, and what it costs\").");
  auto options = std::make_shared<Options>();
  options->language.add_to(*command, false);
  command->add_flag("--json", options->json, "print the facts as one JSON object");
  command->add_option("--dot", options->dot, "write the automaton as Graphviz text")->type_name("FILE");
  command->add_option("--svg", options->svg, "draw the automaton")->type_name("FILE");
  command
      ->add_option("--fst", options->fst,
                   "write the automaton as an OpenFst binary, or as AT&T text if FILE ends in .att")
      ->type_name("FILE");
  command
      ->add_option("--bigram-fst", options->bigrams,
                   "write the transducer over label bigrams (the paper's Appendix C) for OpenFst")
      ->type_name("FILE");
  command
      ->add_option("-o,--output", options->out, "save the compiled constraint; every command accepts it as a language")
      ->type_name("FILE");
  return [options] { return compile_command(*options); };
}

}  // namespace regccrf::cli
