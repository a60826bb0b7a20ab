// regccrf eval: predicted labels against gold ones, from files of columns or from models.
#include <iostream>
#include <map>
#include <memory>
#include <set>

#include "cli/columns.h"
#include "cli/commands.h"
#include "cli/constraint_options.h"
#include "cli/eval_models.h"
#include "cli/evaluation_report.h"
#include "constraint/labels_in_use.h"
#include "regccrf/error.h"

namespace regccrf::cli {
namespace {

struct Options {
  std::vector<std::string> files;
  ModelOptions models;
  int gold_column = 0, predicted_column = 0;  // 0: the usual one
  ConstraintOptions constraint;
  std::string scheme = "auto", unknown;
  Resampling resampling;
  std::size_t show = 0;
  bool json = false, conlleval = false;
};

void check_alignment(const Columns& gold, const std::string& gold_path, const Columns& predicted,
                     const std::string& predicted_path) {
  const auto& golds = gold.columns[0];
  const auto& predictions = predicted.columns[0];
  for (std::size_t i = 0; i < std::min(golds.size(), predictions.size()); ++i) {
    if (golds[i].size() == predictions[i].size()) continue;
    const auto at = [&](const std::string& path, const Columns& c) {
      return std::to_string(c.columns[0][i].size()) + " tokens in '" + path + "' (line " + std::to_string(c.lines[i]) +
             ")";
    };
    throw Error("sequence " + std::to_string(i + 1) + " has " + at(gold_path, gold) + " and " +
                at(predicted_path, predicted) + "; both files must have the same sequences");
  }
  if (golds.size() == predictions.size()) return;
  throw Error("'" + gold_path + "' has " + std::to_string(golds.size()) + " sequences and '" + predicted_path +
              "' has " + std::to_string(predictions.size()) + "; both files must have the same sequences");
}

int or_else(int column, int usual) { return column == 0 ? usual : column; }

std::set<std::string> names_of(const std::vector<LabelNames>& sequences) {
  std::set<std::string> names;
  for (const LabelNames& sequence : sequences) names.insert(sequence.begin(), sequence.end());
  return names;
}

// Of tokens, from 0 to 1.
double agreement(const std::vector<LabelNames>& some, const std::vector<LabelNames>& others) {
  std::size_t tokens = 0, equal = 0;
  for (std::size_t i = 0; i < some.size(); ++i) {
    tokens += some[i].size();
    for (std::size_t t = 0; t < some[i].size(); ++t) equal += some[i][t] == others[i][t];
  }
  return tokens == 0 ? 0.0 : static_cast<double>(equal) / static_cast<double>(tokens);
}

// Two columns may be correct and predicted labels, but more often they are words and labels: then they hardly ever
// agree, and few of the words are labels.
void check_not_words(const Report& report) {
  if (report.gold.empty() || agreement(report.gold, report.systems[0].predicted) > 0.01) return;
  const std::set<std::string> gold = names_of(report.gold), predicted = names_of(report.systems[0].predicted);
  const auto shared =
      std::count_if(gold.begin(), gold.end(), [&](const std::string& name) { return predicted.contains(name); });
  if (2 * static_cast<std::size_t>(shared) >= gold.size()) return;
  throw Error(
      "'" + report.systems[0].name +
      "' has two columns, which look like words and labels. Tag it first (regccrf tag), or give a file with the "
      "correct labels and one with the predicted labels: regccrf eval GOLD PRED");
}

// Gold and prediction as two columns of one file.
Report read_one(const Options& options) {
  const int gold = or_else(options.gold_column, -2), predicted = or_else(options.predicted_column, -1);
  Columns file = read_columns(options.files[0], {1, gold, predicted}, Docstart::count_if_complete);
  Report report;
  report.words = std::move(file.columns[0]);
  report.gold = std::move(file.columns[1]);
  report.systems.push_back({options.files[0], std::move(file.columns[2]), {}});
  report.options.last_is_followed_by_empty_line = file.ends_with_empty_line;
  if (file.most_columns == 2 && !options.conlleval) check_not_words(report);
  return report;
}

Report read_several(const Options& options) {
  Columns gold = read_columns(options.files[0], {or_else(options.gold_column, -1), 1}, Docstart::skip);
  Report report;
  for (std::size_t i = 1; i < options.files.size(); ++i) {
    Columns predicted = read_columns(options.files[i], {or_else(options.predicted_column, -1)}, Docstart::skip);
    check_alignment(gold, options.files[0], predicted, options.files[i]);
    report.systems.push_back({options.files[i], std::move(predicted.columns[0]), {}});
  }
  report.gold = std::move(gold.columns[0]);
  report.words = std::move(gold.columns[1]);
  report.options.last_is_followed_by_empty_line = gold.ends_with_empty_line;
  return report;
}

Labels labels_of(const Report& report, const std::string& unknown) {
  std::set<std::string> names = names_of(report.gold);
  names.erase(unknown);
  for (const System& system : report.systems) names.merge(names_of(system.predicted));
  return Labels({names.begin(), names.end()});
}

SpanScheme scheme_of(const std::string& name, const std::vector<LabelNames>& gold) {
  static const std::map<std::string, SpanScheme> schemes = {{"prefixed", SpanScheme::prefixed},
                                                            {"bioes", SpanScheme::bioes},
                                                            {"runs", SpanScheme::runs},
                                                            {"tokens", SpanScheme::tokens}};
  return name == "auto" ? guess_scheme(gold) : schemes.at(name);
}

Report read(const Options& options) {
  if (!options.models.models.empty()) {
    return tag_with_models(options.models, options.files, or_else(options.gold_column, -1), options.constraint);
  }
  Report report = options.files.size() == 1 ? read_one(options) : read_several(options);
  if (options.constraint.given()) {
    report.options.constraint = options.constraint.constraint(labels_of(report, options.unknown));
  }
  return report;
}

// Gold with a label that the language has no place for is most likely evaluated under the wrong language.
void say_what_has_no_place(const Report& report, const Constraint& constraint, const std::string& unknown) {
  const std::vector<bool> used = labels_in_use(constraint);
  std::string names;
  for (const std::string& name : names_of(report.gold)) {
    const auto label = constraint.labels().find(name);
    if (name != unknown && (!label || !used[*label])) names += (names.empty() ? "" : ", ") + name;
  }
  if (!names.empty()) std::cerr << "regccrf: correct labels that no sequence of the language has: " << names << "\n";
}

int eval_command(const Options& options) {
  Report report = read(options);
  if (report.gold.empty() && !options.conlleval) throw Error("'" + options.files[0] + "' contains no sequence");
  if (report.options.constraint) say_what_has_no_place(report, *report.options.constraint, options.unknown);
  report.resampling = options.resampling;
  report.options.scheme =
      options.conlleval && options.scheme == "auto" ? SpanScheme::prefixed : scheme_of(options.scheme, report.gold);
  if (!options.unknown.empty()) report.options.unknown = options.unknown;
  for (System& system : report.systems) system.evaluation = evaluate(report.gold, system.predicted, report.options);

  if (options.conlleval) {
    for (const System& system : report.systems) std::cout << conlleval_report(system.evaluation);
    return 0;
  }
  std::cout << (options.json ? json_report(report) : text_report(report));
  if (options.show > 0 && !options.json) std::cout << differences(report, options.show);
  return 0;
}

constexpr const char* kFooter =
    "Files have one token on each line, columns separated by tabs or blanks, and an empty line after each sequence. "
    "The\n"
    "label is the last column. In a single FILE the correct and the predicted labels are the last two columns, as for\n"
    "conlleval. Spans are counted as conlleval counts them.\n"
    "\n"
    "  regccrf eval gold.txt tagged.txt                              one system\n"
    "  regccrf eval gold.txt plain.txt constrained.txt --show 2      two systems, and two sentences on which they "
    "differ\n"
    "  regccrf eval tagged.txt -e 'bio({PER LOC})'                   how many sequences are illegal\n"
    "  regccrf eval tagged.txt --conlleval                           what conlleval prints\n"
    "  regccrf eval -m plain.model -m legal.model test.txt           unconstrained, constrained decoding and training\n"
    "\n"
    "With -m the files are labelled data, which the models label. A model that was trained without the language is\n"
    "evaluated without it and under it. A model that was trained under it is evaluated under it. The language is the "
    "one\n"
    "that is given, or else that of the first model that has one.\n"
    "\n"
    "Schemes: prefixed reads B-X, I-X, O and the like by conlleval's rules, by which S-X S-X is one span. bioes reads "
    "it\n"
    "as two. runs makes a span of every run of the same label, tokens of every token (conlleval -r). auto chooses by "
    "the\n"
    "correct labels: bioes if there is an S-X, otherwise prefixed or runs.";

// What is compared, and the language it should be in.
void add_input_options(CLI::App& command, Options& options) {
  command
      .add_option(
          "files", options.files,
          "GOLD PRED…: a file with the correct (gold) labels, and those of one or more systems; or one FILE with "
          "both; with -m labelled DATA…; - is standard input")
      ->required()
      ->type_name("");
  command
      .add_option("-m,--model", options.models.models,
                  "a model whose answers are evaluated; may be given several times")
      ->allow_extra_args(false)
      ->type_name("MODEL");
  options.constraint.add_to(command);
}

// Which labels, and how they make spans.
void add_label_options(CLI::App& command, Options& options) {
  command.add_option("--scheme", options.scheme, "how labels make spans: auto, prefixed, bioes, runs or tokens")
      ->check(CLI::IsMember({"auto", "prefixed", "bioes", "runs", "tokens"}))
      ->capture_default_str();
  command
      .add_option("--unknown", options.unknown,
                  "a correct label of this name is not known: such tokens count for violations only")
      ->type_name("LABEL");
  command
      .add_option("--gold-column", options.gold_column,
                  "the column of the correct labels, counted from 1; -1 is the last")
      ->type_name("N");
  command.add_option("--pred-column", options.predicted_column, "the column of predicted labels")->type_name("N");
}

// How the models of -m work.
void add_model_options(CLI::App& command, Options& options) {
  command
      .add_option("--embeddings", options.models.embeddings,
                  "with -m: the path of the models' embeddings file, if it has moved")
      ->type_name("FILE");
  command.add_option("--threads", options.models.threads, "with -m; 0: all cores")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
}

void add_report_options(CLI::App& command, Options& options) {
  command.add_option("--show", options.show, "print up to N sequences on which the systems differ, side by side")
      ->type_name("N");
  command.add_option("--samples", options.resampling.samples, "resamples for intervals and tests")
      ->check(CLI::Range(1, 10'000'000))
      ->capture_default_str();
  command.add_option("--seed", options.resampling.seed, "seed of the resamples")->capture_default_str();
  CLI::Option* json = command.add_flag("--json", options.json, "one JSON object: systems, comparisons");
  command.add_flag("--conlleval", options.conlleval, "print conlleval's report")->excludes(json);
}

}  // namespace

Run add_eval(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "eval", "Compare predicted labels with the correct ones: accuracy, span F1, exact sequences, violations.");
  command->footer(kFooter);
  auto options = std::make_shared<Options>();
  // In the order in which --help shows them.
  add_input_options(*command, *options);
  add_label_options(*command, *options);
  add_model_options(*command, *options);
  add_report_options(*command, *options);
  return [options] { return eval_command(*options); };
}

}  // namespace regccrf::cli
