#include "cli/train/arguments.h"

#include <filesystem>

#include "base/file.h"
#include "regccrf/error.h"

namespace regccrf::cli {
namespace {

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

void add_file_options(CLI::App& command, TrainArguments& arguments) {
  command.add_option("data", arguments.data, "DATA…: labelled sequences; - is standard input")
      ->required()
      ->type_name("");
  command.add_option("-m,--model", arguments.model, "write the model to FILE; with --cv it may be left out")
      ->type_name("FILE");
  command
      .add_option("--continue-from", arguments.continue_from,
                  "start from the weights of this model; weights that it does not have start at 0")
      ->type_name("MODEL");
}

void add_language_options(CLI::App& command, TrainArguments& arguments) {
  arguments.constraint.add_to(command);
  command
      .add_option("--constrain", arguments.constrain,
                  "where the constraint is used: train (in training and tagging), decode (in tagging only) or none")
      ->check(CLI::IsMember({"train", "decode", "none"}));
  command
      .add_option(
          "--outside", arguments.outside,
          "training sequences that are not in the language: error, skip, or repair (change as few labels as possible)")
      ->check(CLI::IsMember({"error", "skip", "repair"}))
      ->capture_default_str();
}

void add_development_options(CLI::App& command, TrainArguments& arguments) {
  command
      .add_option("--dev", arguments.development,
                  "development set: scored after every iteration; the model with the best score is kept")
      ->type_name("FILE");
  command.add_option("--cv", arguments.folds, "N-fold cross-validation; with -m a model is then trained on all data")
      ->check(CLI::Range(2, 1'000'000))
      ->type_name("N");
  command
      .add_option("--patience", arguments.train.patience,
                  "stop when the development score has not risen for N iterations")
      ->type_name("N");
}

// How the data is read and which attributes its tokens get.
void add_input_options(CLI::App& command, TrainArguments& arguments) {
  command.add_option("--format", arguments.format, "format of the data: auto, columns or crfsuite")
      ->check(CLI::IsMember({"auto", "columns", "crfsuite"}))
      ->capture_default_str();
  command
      .add_option("--template", arguments.pattern_file,
                  "features in CRF++'s syntax (U, B, B with %x; Wapiti's *), instead of the built-in ones for words")
      ->type_name("FILE");
  command
      .add_option("--word-column", arguments.word_column,
                  "the column of the words, counted from 1; for the built-in features")
      ->type_name("N")
      ->capture_default_str();
  command
      .add_option("--label-column", arguments.label_column, "the column of the labels, counted from 1; -1 is the last")
      ->type_name("N")
      ->capture_default_str();
  command.add_option("--columns", arguments.columns, "further columns to use as features: --columns 2,3")
      ->delimiter(',')
      ->type_name("N,…");
  command.add_option("--list", arguments.lists, "a list of words, one on each line, as a feature")
      ->type_name("[NAME=]FILE")
      ->allow_extra_args(false);
  command.add_option("--embeddings", arguments.embeddings, "word vectors as text, as features")->type_name("FILE");
  command
      .add_option("--unknown", arguments.unknown,
                  "a label of this name is not known; the loss sums over all labels that are possible there")
      ->type_name("LABEL");
}

// What is minimised, over which weights.
void add_objective_options(CLI::App& command, TrainArguments& arguments) {
  TrainOptions& t = arguments.train;
  command.add_option("--optimizer", arguments.optimizer, "lbfgs (with --l1: OWL-QN) or adagrad")
      ->check(CLI::IsMember({"lbfgs", "adagrad"}))
      ->capture_default_str();
  command.add_option("--l1", t.l1, "penalty on absolute weights: makes most of them 0")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command
      .add_option("--l2", arguments.penalties,
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

void add_stopping_options(CLI::App& command, TrainArguments& arguments) {
  TrainOptions& t = arguments.train;
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

void add_adagrad_options(CLI::App& command, TrainArguments& arguments) {
  TrainOptions& t = arguments.train;
  command.add_option("--rate", t.rate, "adagrad: step size")->check(CLI::PositiveNumber)->capture_default_str();
  command.add_option("--batch", t.batch, "adagrad: sequences in a step")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command.add_flag("--no-average", arguments.no_average, "adagrad: keep the last weights, not their mean");
  command.add_option("--seed", t.seed, "adagrad: seed for the order of the sequences")->capture_default_str();
}

void add_threads_option(CLI::App& command, TrainArguments& arguments) {
  command.add_option("--threads", arguments.train.threads, "0: all cores; the result does not depend on it")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
}

void add_checkpoint_options(CLI::App& command, TrainArguments& arguments) {
  TrainOptions& t = arguments.train;
  CLI::Option* checkpoint =
      command.add_option("--checkpoint", t.checkpoint, "save the state of training in FILE, for --resume")
          ->type_name("FILE");
  command.add_option("--every", t.every, "iterations between checkpoints; 0: 50 for lbfgs, 1 for adagrad")
      ->check(CLI::NonNegativeNumber)
      ->needs(checkpoint)
      ->capture_default_str();
  command.add_flag("--resume", t.resume, "continue from the checkpoint, if it exists")->needs(checkpoint);
}

void add_report_options(CLI::App& command, TrainArguments& arguments) {
  command.add_flag("-q,--quiet", arguments.quiet, "print only errors");
  command.add_flag("--json", arguments.json, "print the result as one JSON object");
}

// A slip such as -m train.conll must not cost the data.
void check_not_input(const std::string& path, const TrainArguments& arguments) {
  std::vector<std::string> inputs = arguments.data;
  inputs.insert(inputs.end(),
                {arguments.development, arguments.constraint.file, arguments.pattern_file, arguments.embeddings});
  for (const std::string& input : inputs) {
    std::error_code code;  // what is not there is not the same
    if (std::filesystem::equivalent(input, path, code))
      throw Error("'" + path + "' is read, and would be overwritten: -m and --checkpoint name files of their own");
  }
}

}  // namespace

void add_arguments(CLI::App& command, TrainArguments& arguments) {
  command.footer(kFooter);
  add_file_options(command, arguments);
  add_language_options(command, arguments);
  add_development_options(command, arguments);
  add_input_options(command, arguments);
  add_objective_options(command, arguments);
  add_stopping_options(command, arguments);
  add_adagrad_options(command, arguments);
  add_threads_option(command, arguments);
  add_checkpoint_options(command, arguments);
  add_report_options(command, arguments);
}

Constrain constrain_of(const TrainArguments& arguments) {
  const bool given = arguments.constraint.given();
  if (arguments.constrain.empty()) return given ? Constrain::train : Constrain::none;
  if (arguments.constrain == "none") return Constrain::none;
  if (!given) throw Error("--constrain " + arguments.constrain + " needs a language: --constraint FILE or -e PATTERN");
  return arguments.constrain == "train" ? Constrain::train : Constrain::decode;
}

void check_arguments(const TrainArguments& arguments) {
  if (arguments.word_column < 1) throw Error("--word-column is counted from 1");
  if (arguments.label_column == 0) throw Error("--label-column is counted from 1; -1 is the last");
  if (arguments.train.patience > 0 && arguments.development.empty())
    throw Error("--patience needs a development set: --dev FILE");
  constrain_of(arguments);  // an error without a language
  const bool several = arguments.penalties.size() > 1;
  if (arguments.model.empty() && arguments.folds == 0)
    throw Error("-m FILE is missing: it says where to write the model (only --cv does without)");
  if (several && arguments.folds == 0 && arguments.development.empty())
    throw Error("several values for --l2 need a score to choose by: --dev FILE or --cv N");
  if (arguments.folds > 0 && !arguments.development.empty())
    throw Error("--cv and --dev judge by different data; leave one of them out");
  if ((several || arguments.folds > 0) && !arguments.train.checkpoint.empty())
    throw Error("--checkpoint is for one training, and --cv or several values for --l2 make several");
}

void check_outputs(const TrainArguments& arguments) {
  for (const std::string& path : {arguments.model, arguments.train.checkpoint}) check_not_input(path, arguments);
  if (!arguments.model.empty()) check_writable(arguments.model);
  if (!arguments.train.checkpoint.empty()) check_writable(arguments.train.checkpoint);
}

}  // namespace regccrf::cli
