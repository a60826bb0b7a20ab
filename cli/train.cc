// regccrf train: labelled data and a language in, a model out.
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "base/file.h"
#include "base/spelling.h"
#include "base/utf8.h"
#include "cli/commands.h"
#include "cli/constraint_options.h"
#include "cli/estimate_note.h"
#include "cli/interrupt.h"
#include "cli/penalty_search.h"
#include "cli/processes.h"
#include "cli/progress_line.h"
#include "constraint/labels_in_use.h"
#include "regccrf/dataset.h"
#include "regccrf/error.h"
#include "regccrf/trainer.h"
#include "tagger/development.h"

namespace regccrf::cli {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  std::vector<std::string> data;
  std::string model, development, continue_from;
  ConstraintOptions constraint;
  std::string constrain;  // empty: train where there is a constraint
  std::string outside = "error";
  // input
  std::string format = "auto", pattern_file, unknown, embeddings;
  std::vector<std::string> lists;
  std::vector<int> columns;
  int word_column = 1, label_column = -1;
  // training
  TrainOptions train;
  std::vector<double> penalties = {1};
  int folds = 0;
  std::string optimizer = "lbfgs";
  bool no_average = false, quiet = false, json = false;
};

// What the files gave.
struct Input {
  Names attributes, labels;
  std::optional<Extractor> extractor;
  Format format = Format::automatic;
  Dataset data;
  std::optional<Dataset> development;
  Names development_labels;  // labels, and those that only development gold has
  std::optional<Model> initial;
};

std::string plural(std::int64_t count, const std::string& noun) {
  return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

Format format_of(const std::string& name) {
  return name == "columns" ? Format::columns : name == "crfsuite" ? Format::crfsuite : Format::automatic;
}

WordFeatures word_features(const Options& options) {
  WordFeatures features;
  features.word = options.word_column - 1;
  for (const int column : options.columns) features.columns.push_back(column - 1);
  for (const std::string& list : options.lists) {
    const auto equals = list.find('=');
    const std::string name =
        equals == std::string::npos ? std::filesystem::path(list).stem().string() : list.substr(0, equals);
    features.lists.push_back(WordList::load(name, equals == std::string::npos ? list : list.substr(equals + 1)));
  }
  features.embeddings = options.embeddings;
  return features;
}

Extractor choose_extractor(const Options& options, Format format) {
  const bool for_words = !options.lists.empty() || !options.embeddings.empty() || !options.columns.empty();
  if (format == Format::crfsuite) {
    if (!options.pattern_file.empty()) throw Error("--template needs columns, and the data is in CRFsuite's format");
    if (for_words) throw Error("--list, --embeddings and --columns need columns, and the data is in CRFsuite's format");
    return Extractor::attributes();
  }
  if (options.pattern_file.empty()) return Extractor::words(word_features(options));
  if (for_words)
    throw Error("--list, --embeddings and --columns belong to the built-in features; a template replaces these");
  return Extractor::from_template(std::string(without_mark(read_file(options.pattern_file))), options.pattern_file);
}

Dataset read(const Options& options, const std::vector<std::string>& paths, Input& input, Names& labels, bool grow) {
  ReadOptions how;
  how.unknown = options.unknown;
  how.label_column = options.label_column > 0 ? options.label_column - 1 : options.label_column;
  how.grow = grow;
  DatasetBuilder builder(input.attributes, labels, how);
  for (const std::string& path : paths) {
    SentenceReader reader(path, input.format);
    if (!input.extractor) {
      input.format = reader.format();
      input.extractor = choose_extractor(options, input.format);
    }
    builder.read(reader, *input.extractor);
  }
  return builder.take();
}

Input read_all(const Options& options) {
  Input input;
  input.format = format_of(options.format);
  if (!options.continue_from.empty()) input.initial = Model::load(options.continue_from);
  input.data = read(options, options.data, input, input.labels, true);
  if (input.data.sequences() == 0) throw Error("there is no sequence in " + options.data[0]);
  if (!options.development.empty()) {
    input.development_labels = input.labels;
    input.development = read(options, {options.development}, input, input.development_labels, false);
    if (input.development->sequences() == 0) throw Error("there is no sequence in " + options.development);
  }
  return input;
}

std::vector<std::string> names_of(const Names& names) {
  std::vector<std::string> all;
  for (std::int32_t i = 0; i < names.size(); ++i) all.emplace_back(names.name(i));
  return all;
}

std::string join(const std::vector<std::string>& names, std::size_t most = 12) {
  std::string text;
  for (std::size_t i = 0; i < names.size() && i < most; ++i) text += (i ? ", " : "") + names[i];
  return names.size() > most ? text + " and " + std::to_string(names.size() - most) + " more" : text;
}

// Gold in the model's order of labels.
void renumber(Dataset& data, const Names& names, const Labels& labels) {
  for (Label& gold : data.gold) {
    if (gold != kUnknownLabel) gold = labels.id(names.name(gold));
  }
}

// Labels of the other scheme for spans are no slips.
std::string scheme_of(const std::string& strange, const std::vector<std::string>& known) {
  const auto has = [&](const std::string& name) { return std::find(known.begin(), known.end(), name) != known.end(); };
  if (strange.size() < 3 || strange[1] != '-') return "";
  const std::string type = strange.substr(2);
  if ((strange[0] == 'E' || strange[0] == 'S') && has("B-" + type) && has("I-" + type))
    return ". The data looks like BIOES, whose language is bioes({" + type + " …}).";
  return "";
}

// A label of the data that has no place in the language is most likely a slip in one of them.
void check_labels(const Constraint& constraint, const Names& of_data) {
  const std::vector<bool> used = labels_in_use(constraint);
  std::vector<std::string> known, strange;
  for (Label a = 0; a < constraint.labels().size(); ++a) {
    if (used[a]) known.push_back(constraint.labels().name(a));
  }
  for (const std::string& name : names_of(of_data)) {
    if (!used[constraint.labels().id(name)]) strange.push_back(name);
  }
  if (strange.empty()) return;
  // Name one that looks like a slip first.
  const auto slip = std::find_if(strange.begin(), strange.end(),
                                 [&](const std::string& name) { return nearest(name, known).has_value(); });
  if (slip != strange.end()) std::iter_swap(strange.begin(), slip);
  const auto near = nearest(strange[0], known);
  const std::string scheme = scheme_of(strange[0], known);
  const std::size_t labels = names_of(of_data).size();
  const std::string none = labels > 1 && strange.size() == labels && !near && scheme.empty()
                               ? " No label of the data is one of these: is --label-column right?"
                               : "";
  const std::string others =
      strange.size() > 1 ? " (likewise " + join({strange.begin() + 1, strange.end()}, 5) + ")" : "";
  throw Error("the data has the label " + strange[0] + others + ", which no sequence of the language has" +
              (!scheme.empty() ? scheme
               : near          ? ": did you mean " + *near + "?"
                               : ".") +
              " The language has " + join(known) + "." + none +
              " --outside skip leaves out the sequences with other labels, --outside repair replaces these");
}

// A label that the pattern names and neither the language nor the data has: told, since a rule about it forbids
// nothing.
void say_unused_labels(const Constraint& constraint, const Names& of_data) {
  const std::vector<bool> used = labels_in_use(constraint);
  const std::vector<std::string> in_data = names_of(of_data);
  std::vector<std::string> known, unused;
  for (Label a = 0; a < constraint.labels().size(); ++a) {
    const std::string& name = constraint.labels().name(a);
    if (used[a])
      known.push_back(name);
    else if (std::find(in_data.begin(), in_data.end(), name) == in_data.end())
      unused.push_back(name);
  }
  for (const std::string& name : unused) {
    const auto near = nearest(name, known);
    std::cerr << "regccrf: no sequence of the language has the label " << name
              << (near ? ": did you mean " + *near + "?" : "") << "\n";
  }
}

std::string describe(const OutsideSequence& outside, const Dataset& data, const Labels& labels) {
  const std::int64_t begin = data.position[outside.sequence], length = data.length(outside.sequence);
  std::vector<std::string> possible;
  for (const Label a : outside.possible) possible.push_back(labels.name(a));
  const std::string there = possible.empty() ? "nothing but the end" : join(possible);
  std::string text = "  " + data.origin(outside.sequence) + ": ";
  if (outside.position >= length)
    return text + "ends too early, after " + plural(length, "label") + "; possible there: " + there;
  if (!data.line.empty()) {
    text = "  " + data.files[data.file[outside.sequence]] + ", line " +
           std::to_string(data.line[outside.sequence] + outside.position) + ": ";
  }
  const Label gold = data.gold[begin + outside.position];
  const std::string before = outside.position == 0 ? "at the start"
                             : data.gold[begin + outside.position - 1] == kUnknownLabel
                                 ? "after an unknown label"
                                 : "after " + labels.name(data.gold[begin + outside.position - 1]);
  return text + (gold == kUnknownLabel ? "no label" : labels.name(gold)) + " " + before +
         (gold == kUnknownLabel ? " leads to the end" : " leaves the language") + "; possible there: " + there;
}

// A slip in the pattern shows as a label of the language that the data lacks and that looks like one of the data's.
// Where the data lacks many, the language is more general than the data.
std::string slip_in_language(const Labels& labels, const Dataset& data) {
  constexpr std::size_t most = 3;
  const std::set<Label> seen(data.gold.begin(), data.gold.end());
  std::vector<std::string> in_data, lacking;
  for (Label a = 0; a < labels.size(); ++a) (seen.contains(a) ? in_data : lacking).push_back(labels.name(a));
  if (lacking.size() > most) return "";
  for (const std::string& name : lacking) {
    if (const auto near = nearest(name, in_data))
      return "the language has the label " + name + ", which the data does not have: did you mean " + *near + "?\n";
  }
  return "";
}

// Sequences outside the language: told, then left out or repaired, or an error. What was done goes into `facts`.
void settle_outside(const Options& options, const Constraint& constraint, bool speak, Dataset& data, Json& facts) {
  const std::vector<OutsideSequence> outside = find_outside(constraint, data);
  facts["outside"] = outside.size();
  if (outside.empty()) return;
  constexpr std::size_t examples = 3;
  std::string report = std::to_string(outside.size()) + " of " + plural(data.sequences(), "training sequence") +
                       (outside.size() == 1 ? " is" : " are") + " outside the language:\n";
  for (std::size_t i = 0; i < std::min(examples, outside.size()); ++i)
    report += describe(outside[i], data, constraint.labels()) + "\n";
  if (outside.size() > examples) report += "  … and " + std::to_string(outside.size() - examples) + " more\n";
  if (options.outside == "error") {
    throw Error(report + slip_in_language(constraint.labels(), data) +
                "--outside skip trains without them, --outside repair takes the nearest legal labels instead, and "
                "--constrain decode\ntrains without the constraint and obeys it in tagging");
  }
  std::vector<std::int64_t> which;
  for (const OutsideSequence& o : outside) which.push_back(o.sequence);
  if (options.outside == "skip") {
    data = without(data, which);
    if (data.sequences() == 0) throw Error(report + "no training sequence is left");
    report += "they are left out\n";
    facts["skipped"] = outside.size();
  } else {
    const std::int64_t changed = repair(constraint, data, which);
    report += "they are repaired: " + plural(changed, "label") + " changed\n";
    facts["repaired_labels"] = changed;
  }
  if (speak) std::cerr << report;
}

Constrain constrain_of(const Options& options) {
  const bool given = options.constraint.given();
  if (options.constrain.empty()) return given ? Constrain::train : Constrain::none;
  if (options.constrain == "none") return Constrain::none;
  if (!given) throw Error("--constrain " + options.constrain + " needs a language: --constraint FILE or -e PATTERN");
  return options.constrain == "train" ? Constrain::train : Constrain::decode;
}

// The labels themselves, where they are few: a slip in the data shows.
std::string few(const Labels& labels) {
  constexpr std::int32_t most = 12;
  std::string text;
  for (Label a = 0; a < labels.size() && a < most; ++a) text += (a > 0 ? " " : "") + labels.name(a);
  return labels.size() > most ? "" : " (" + text + ")";
}

void say_what(const Input& input, const Training& training) {
  std::cerr << plural(input.data.sequences(), "sequence") << ", " << plural(input.data.positions(), "position") << ", "
            << plural(training.labels.size(), "label") << few(training.labels) << ", "
            << plural(input.attributes.size(), "attribute") << "; " << input.extractor->summary() << "\n";
  std::vector<std::uint8_t> seen(static_cast<std::size_t>(training.labels.size()), 0);
  for (const Label a : input.data.gold) {
    if (a != kUnknownLabel) seen[a] = 1;
  }
  std::vector<std::string> unseen;
  for (Label a = 0; a < training.labels.size(); ++a) {
    if (!seen[a]) unseen.push_back(training.labels.name(a));
  }
  if (!unseen.empty()) std::cerr << "never seen in training, so without weights of their own: " << join(unseen) << "\n";
}

// How much of training began where the given model ended.
std::string taken_over(std::int64_t taken, std::int64_t all, const std::string& model) {
  const std::string others =
      taken == all ? "" : "; it has none for the other " + std::to_string(all - taken) + ", which start at 0";
  return std::to_string(taken) + " of " + plural(all, "weight") + " began with those of " + model + others;
}

void report(const Options& options, const Trained& trained, const std::vector<Trial>& trials) {
  const std::string& path = options.model;
  Json facts = Json::parse(trained.model.facts());
  if (options.json) {
    Json all = {{"model", path}};
    if (!trials.empty()) all["trials"] = as_json(trials);
    all.update(facts);
    all["seconds"] = trained.last.seconds;
    all["labels"] = trained.model.labels().size();
    all["attributes"] = trained.model.attributes();
    std::cout << all.dump() << "\n";
    return;
  }
  if (options.quiet) return;
  char text[160];
  std::snprintf(text, sizeof text, "%s: objective %.6f after %d iterations (%s), %.1f s", path.c_str(),
                trained.best.objective, trained.last.iteration,
                trained.stopped == "asked to" ? "interrupted" : trained.stopped.c_str(), trained.last.seconds);
  std::cerr << text;
  if (trained.best.development) {
    std::snprintf(text, sizeof text, "; development %s %.2f at iteration %d",
                  facts.value("development_score", "score").c_str(), *trained.best.development, trained.best.iteration);
    std::cerr << text;
  }
  std::cerr << "\n";
  if (trained.best.phase == Phase::base)
    std::cerr << "the model was trained under the base alone: "
              << (trained.last.phase == Phase::base ? "training ended before the rules had a part in it\n"
                                                    : "later iterations did no better on the development set\n");
  if (trained.best.phase == Phase::rules) {
    const Progress& best = trained.best;
    std::snprintf(text, sizeof text, "gaps make the objective off by at most %.3g; largest gap of a sequence %.2g\n",
                  best.slack, best.largest_gap);
    std::cerr << text;
    if (best.uncertified > best.bounds)
      std::cerr << plural(best.uncertified - best.bounds, "sequence") << " needed a gap above --max-gap\n";
    if (best.bounds > 0)
      std::cerr << plural(best.bounds, "sequence")
                << " counted with the loss of the base, an upper bound: under the rules too much work\n";
  }
  if (!options.continue_from.empty())
    std::cerr << taken_over(trained.taken_over, facts["weights"], options.continue_from) << "\n";
}

// What becomes of the work of a run that was cut off.
void say_where_it_goes_on(const TrainOptions& options, bool interrupted) {
  std::error_code code;
  const bool there = std::filesystem::exists(options.checkpoint, code);
  const int every = options.every > 0 ? options.every : options.optimizer == Optimizer::lbfgs ? 50 : 1;
  if (!interrupted) {
    std::cerr << (there ? "continues from " + options.checkpoint
                        : "there is no " + options.checkpoint + " yet: training begins at the start")
              << "\n";
    return;
  }
  std::cerr << (there ? options.checkpoint + " has the last multiple of " + plural(every, "iteration") +
                            ": --resume continues from there"
                      : "no checkpoint was written, as the first one comes after " + plural(every, "iteration") +
                            ": --every N for others")
            << "\n";
}

// What can be told before anything is read.
void check_options(const Options& options) {
  if (options.word_column < 1) throw Error("--word-column is counted from 1");
  if (options.label_column == 0) throw Error("--label-column is counted from 1; -1 is the last");
  if (options.train.patience > 0 && options.development.empty())
    throw Error("--patience needs a development set: --dev FILE");
  constrain_of(options);  // an error without a language
  const bool several = options.penalties.size() > 1;
  if (options.model.empty() && options.folds == 0)
    throw Error("-m FILE is missing: it says where to write the model (only --cv does without)");
  if (several && options.folds == 0 && options.development.empty())
    throw Error("several values for --l2 need a score to choose by: --dev FILE or --cv N");
  if (options.folds > 0 && !options.development.empty())
    throw Error("--cv and --dev judge by different data; leave one of them out");
  if ((several || options.folds > 0) && !options.train.checkpoint.empty())
    throw Error("--checkpoint is for one training, and --cv or several values for --l2 make several");
}

// A slip such as -m train.conll must not cost the data.
void check_not_input(const std::string& path, const Options& options) {
  std::vector<std::string> inputs = options.data;
  inputs.insert(inputs.end(), {options.development, options.constraint.file, options.pattern_file, options.embeddings});
  for (const std::string& input : inputs) {
    std::error_code code;  // what is not there is not the same
    if (std::filesystem::equivalent(input, path, code))
      throw Error("'" + path + "' is read, and would be overwritten: -m and --checkpoint name files of their own");
  }
}

// Somebody who gives a wrong path should hear of it before training, not after.
void check_outputs(const Options& options) {
  for (const std::string& path : {options.model, options.train.checkpoint}) check_not_input(path, options);
  if (!options.model.empty()) check_writable(options.model);
  if (!options.train.checkpoint.empty()) check_writable(options.train.checkpoint);
}

// The labels of the data, in the language's order where there is one; gold is numbered accordingly.
void settle_labels(const Options& options, Input& input, Training& training) {
  training.labels = Labels(names_of(input.labels));
  if (training.constrain == Constrain::none) return;
  training.constraint = options.constraint.constraint(training.labels);
  training.labels = training.constraint->labels();
  renumber(input.data, input.labels, training.labels);
}

// Development gold that no model can have right, because training does not know its label.
void say_strange_gold(const Dataset& development, const Labels& labels, const Labels& known) {
  std::vector<std::string> strange(labels.names().begin() + known.size(), labels.names().end());
  if (strange.empty()) return;
  const auto positions =
      std::count_if(development.gold.begin(), development.gold.end(), [&](Label a) { return a >= known.size(); });
  std::cerr << "the development set has " << (strange.size() == 1 ? "a label" : "labels")
            << " that training does not have, and counts as wrong there (" << plural(positions, "position")
            << "): " << join(strange) << "\n";
}

void settle_development(bool speak, Input& input, Training& training) {
  const Labels labels = with_others(training.labels, input.development_labels);
  renumber(*input.development, input.development_labels, labels);
  if (speak) say_strange_gold(*input.development, labels, training.labels);
  training.development = &*input.development;
  const DevelopmentScore score(*input.development, labels);
  training.score_name = score.name();
  training.score = score;
}

// The task for the trainer; it points into `input`.
Training make_training(const Options& options, bool speak, Input& input) {
  Training training;
  training.constrain = constrain_of(options);
  settle_labels(options, input, training);
  Json facts = {{"data", options.data}};
  if (input.development) facts["development_data"] = options.development;
  if (training.constrain == Constrain::train) {
    if (options.outside == "error") check_labels(*training.constraint, input.labels);
    if (speak) say_unused_labels(*training.constraint, input.labels);
    settle_outside(options, *training.constraint, speak, input.data, facts);
  }
  training.attributes = &input.attributes;
  training.weighs = input.extractor->weighs(input.attributes);
  training.data = &input.data;
  training.extractor = input.extractor->text();
  if (input.initial) facts["continued_from"] = options.continue_from;
  training.facts = facts.dump();
  if (input.initial) training.initial = &*input.initial;
  if (input.development) settle_development(speak, input, training);
  return training;
}

Trained train_with_progress(const Training& training, const TrainOptions& options, bool speak,
                            const Processes& processes) {
  ProgressLine line(options, training.score_name, !speak);
  const auto show = [&](const Progress& progress) {
    line.show(progress);
    return !Interrupt::asked();
  };
  Trained trained = train(training, options, show, processes);
  line.finish();
  return trained;
}

// In a group of processes another one may have had the signal.
int interrupted_status() { return Interrupt::asked() ? Interrupt::status() : 130; }

// Cut off within the first iteration: weights that are all 0 shall not replace what may be at the model's place.
int end_without_model(const Options& options, bool speak) {
  if (speak) std::cerr << "no iteration was complete: " << options.model << " is not written\n";
  return interrupted_status();
}

int finish(const Options& options, const Trained& trained, const std::vector<Trial>& trials, bool first) {
  const bool asked = trained.stopped == "asked to", speak = first && !options.quiet;
  if (asked && trained.last.iteration == 0) return end_without_model(options, speak);
  if (first) trained.model.save(options.model);
  if (first) report(options, trained, trials);
  if (!asked && !Interrupt::asked()) return 0;
  if (speak && !options.train.checkpoint.empty()) say_where_it_goes_on(options.train, true);
  return interrupted_status();
}

// The table is what --cv is for, so it goes to standard output; with a model's JSON it is in there.
void say_trials(const Options& options, const std::vector<Trial>& trials) {
  if (trials.empty()) {
    if (!options.quiet) std::cerr << "no trial was complete\n";
  } else if (!options.json) {
    print_table(trials);
  } else if (options.model.empty()) {
    std::cout << Json{{"trials", as_json(trials)}}.dump() << "\n";
  }
}

int train_command(Options& options) {
  const ProcessGroup group;  // before anything is printed: only the first process speaks and writes
  const bool first = group.processes().rank == 0, speak = first && !options.quiet;
  options.train.optimizer = options.optimizer == "lbfgs" ? Optimizer::lbfgs : Optimizer::adagrad;
  options.train.average = !options.no_average;
  options.train.stop = Interrupt::asked;
  options.train.l2 = options.penalties[0];
  check_options(options);
  if (first) check_outputs(options);

  Input input = read_all(options);
  const Training training = make_training(options, speak, input);
  options.train.transitions = input.extractor->transitions();
  const Interrupt interrupt;  // held while the model is saved, so that Ctrl-C does not lose it
  if (speak) say_what(input, training);
  if (speak && options.train.resume) say_where_it_goes_on(options.train, false);
  if (speak) {
    // Where there are several trainings, the first one says what each takes: memory, then time.
    options.train.on_estimate = [&training, &options, said = 0](const Estimate& estimate) mutable {
      if (said++ < 2) note_estimate(estimate, training, options.train);
    };
  }
  std::vector<Trial> trials;
  if (options.folds > 0 || options.penalties.size() > 1) {
    trials = try_penalties(training, options.train, options.penalties, options.folds, speak, group.processes());
    if (first) say_trials(options, trials);
    if (trials.empty() || (options.folds > 0 && trials.size() < options.penalties.size())) return interrupted_status();
    if (options.model.empty()) return 0;
    options.train.l2 = trials[best_of(trials)].l2;
  }
  const Trained trained = options.folds == 0 && !trials.empty()
                              ? std::move(*trials[best_of(trials)].trained)
                              : train_with_progress(training, options.train, speak, group.processes());
  return finish(options, trained, trials, first);
}

constexpr const char* kFooter =
    "DATA has one token on each line, and an empty line after each sequence. It is plain or gzipped. The format is\n"
    "columns as in the CoNLL tasks (the word first, the label last) or CRFsuite's (label TAB attribute TAB …).\n"
    "Which of them it is, is detected.\n"
    "\n"
    "  regccrf train train.conll -m ner.model -e 'bio({PER LOC ORG})'          constrained training\n"
    "  regccrf train train.conll -m ner.model -c srl.lang --constrain decode   constraint in tagging only\n"
    "  regccrf train train.conll -m ner.model                                  no constraint: an ordinary CRF\n"
    "  regccrf train train.conll -m ner.model --dev dev.conll --patience 10    keeps the model that is best on "
    "dev.conll\n"
    "  regccrf train train.conll --cv 5 --l2 0.1,1,10                          cross-validation of three penalties\n"
    "  regccrf train pos.txt -m pos.model --template pos.template              features in CRF++'s syntax\n"
    "  regccrf train ner.crfsuite -m ner.model --l1 0.5 --l2 0                 CRFsuite's data; few weights (OWL-QN)\n"
    "  regccrf train big.conll.gz -m big.model --optimizer adagrad             small steps, for large data\n"
    "  regccrf train train.conll -m ner.model --unknown '?'                    labels written ? are not known\n"
    "  regccrf train big.conll -m big.model --checkpoint big.ckpt --resume     continues an interrupted run\n"
    "  regccrf train new.conll -m new.model --continue-from ner.model          starts from another model's weights\n"
    "  mpirun -n 4 regccrf train big.conll -m big.model                        several processes\n"
    "\n"
    "The objective is the sum over sequences of -log P(y | x, L), where y are the correct labels of x, plus l2 times "
    "the\n"
    "sum of squared weights, plus l1 times the sum of absolute weights. CRFsuite's c2 and c1 are the same.\n"
    "Ctrl-C or SIGTERM stops training at once and saves the best model of the completed iterations. A second one "
    "stops\n"
    "without saving. docs/training.md has more.";

void add_file_options(CLI::App& command, Options& options) {
  command.add_option("data", options.data, "DATA…: labelled sequences; - is standard input")->required()->type_name("");
  command.add_option("-m,--model", options.model, "write the model to FILE; with --cv it may be left out")
      ->type_name("FILE");
  command
      .add_option("--continue-from", options.continue_from,
                  "start from the weights of this model; weights that it does not have start at 0")
      ->type_name("MODEL");
}

void add_language_options(CLI::App& command, Options& options) {
  options.constraint.add_to(command);
  command
      .add_option("--constrain", options.constrain,
                  "where the constraint is used: train (in training and tagging), decode (in tagging only) or none")
      ->check(CLI::IsMember({"train", "decode", "none"}));
  command
      .add_option(
          "--outside", options.outside,
          "training sequences that are not in the language: error, skip, or repair (change as few labels as possible)")
      ->check(CLI::IsMember({"error", "skip", "repair"}))
      ->capture_default_str();
}

void add_development_options(CLI::App& command, Options& options) {
  command
      .add_option("--dev", options.development,
                  "development set: scored after every iteration; the model with the best score is kept")
      ->type_name("FILE");
  command.add_option("--cv", options.folds, "N-fold cross-validation; with -m a model is then trained on all data")
      ->check(CLI::Range(2, 1'000'000))
      ->type_name("N");
  command
      .add_option("--patience", options.train.patience,
                  "stop when the development score has not risen for N iterations")
      ->type_name("N");
}

// How the data is read and which attributes its tokens get.
void add_input_options(CLI::App& command, Options& options) {
  command.add_option("--format", options.format, "format of the data: auto, columns or crfsuite")
      ->check(CLI::IsMember({"auto", "columns", "crfsuite"}))
      ->capture_default_str();
  command
      .add_option("--template", options.pattern_file,
                  "features in CRF++'s syntax (U, B, B with %x; Wapiti's *), instead of the built-in ones for words")
      ->type_name("FILE");
  command
      .add_option("--word-column", options.word_column,
                  "the column of the words, counted from 1; for the built-in features")
      ->type_name("N")
      ->capture_default_str();
  command
      .add_option("--label-column", options.label_column, "the column of the labels, counted from 1; -1 is the last")
      ->type_name("N")
      ->capture_default_str();
  command.add_option("--columns", options.columns, "further columns to use as features: --columns 2,3")
      ->delimiter(',')
      ->type_name("N,…");
  command.add_option("--list", options.lists, "a list of words, one on each line, as a feature")
      ->type_name("[NAME=]FILE")
      ->allow_extra_args(false);
  command.add_option("--embeddings", options.embeddings, "word vectors as text, as features")->type_name("FILE");
  command
      .add_option("--unknown", options.unknown,
                  "a label of this name is not known; the loss sums over all labels that are possible there")
      ->type_name("LABEL");
}

// What is minimised, over which weights.
void add_objective_options(CLI::App& command, Options& options) {
  TrainOptions& t = options.train;
  command.add_option("--optimizer", options.optimizer, "lbfgs (with --l1: OWL-QN) or adagrad")
      ->check(CLI::IsMember({"lbfgs", "adagrad"}))
      ->capture_default_str();
  command.add_option("--l1", t.l1, "penalty on absolute weights: makes most of them 0")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command
      .add_option("--l2", options.penalties,
                  "penalty on squared weights; of several (--l2 0.1,1,10) the best by --dev or --cv is used")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::NonNegativeNumber)
      ->type_name("FLOAT,…")
      ->capture_default_str();
  command.add_option("--min-count", t.min_count, "leave out attributes that occur fewer times")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command.add_flag("--all-features", t.all_features,
                   "weights for every attribute and label, not only for those that occur together");
  command.add_flag("--all-transitions", t.all_transitions,
                   "weights for every pair of labels, not only for neighbours in the data");
}

void add_stopping_options(CLI::App& command, Options& options) {
  TrainOptions& t = options.train;
  command.add_option("--max-iterations", t.max_iterations, "stop after this many; 0: when converged")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command
      .add_option("--tolerance", t.tolerance,
                  "converged when the objective has improved by less than this, relatively, over --period iterations")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command
      .add_option("--max-gap", t.max_gap, "under many rules: bound on the error of a sequence's loss (docs/rules.md)")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command.add_option("--period", t.period, "number of iterations for --tolerance")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
}

void add_adagrad_options(CLI::App& command, Options& options) {
  TrainOptions& t = options.train;
  command.add_option("--rate", t.rate, "adagrad: step size")->check(CLI::PositiveNumber)->capture_default_str();
  command.add_option("--batch", t.batch, "adagrad: sequences in a step")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command.add_flag("--no-average", options.no_average, "adagrad: keep the last weights, not their mean");
  command.add_option("--seed", t.seed, "adagrad: seed for the order of the sequences")->capture_default_str();
}

void add_threads_option(CLI::App& command, Options& options) {
  command.add_option("--threads", options.train.threads, "0: all cores; the result does not depend on it")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
}

void add_checkpoint_options(CLI::App& command, Options& options) {
  TrainOptions& t = options.train;
  CLI::Option* checkpoint =
      command.add_option("--checkpoint", t.checkpoint, "save the state of training in FILE, for --resume")
          ->type_name("FILE");
  command.add_option("--every", t.every, "iterations between checkpoints; 0: 50 for lbfgs, 1 for adagrad")
      ->check(CLI::NonNegativeNumber)
      ->needs(checkpoint)
      ->capture_default_str();
  command.add_flag("--resume", t.resume, "continue from the checkpoint, if it exists")->needs(checkpoint);
}

void add_report_options(CLI::App& command, Options& options) {
  command.add_flag("-q,--quiet", options.quiet, "print only errors");
  command.add_flag("--json", options.json, "print the result as one JSON object");
}

}  // namespace

Run add_train(CLI::App& app) {
  CLI::App* command = app.add_subcommand("train", "Train a tagger whose output obeys a language.");
  command->footer(kFooter);
  auto options = std::make_shared<Options>();
  // In the order in which --help shows them.
  add_file_options(*command, *options);
  add_language_options(*command, *options);
  add_development_options(*command, *options);
  add_input_options(*command, *options);
  add_objective_options(*command, *options);
  add_stopping_options(*command, *options);
  add_adagrad_options(*command, *options);
  add_threads_option(*command, *options);
  add_checkpoint_options(*command, *options);
  add_report_options(*command, *options);
  return [options] { return train_command(*options); };
}

}  // namespace regccrf::cli
