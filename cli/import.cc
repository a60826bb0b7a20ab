// regccrf import: a model of ours from what `crfsuite dump` prints.
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "cli/commands.h"
#include "cli/model_options.h"
#include "regccrf/crfsuite.h"

namespace regccrf::cli {
namespace {

struct Options {
  std::string dump = "-", model;
  ConstraintOptions constraint;
};

int import_command(const Options& options) {
  check_writable(options.model);
  ModelParts parts = import_crfsuite(options.dump);
  parts.facts = nlohmann::json({{"imported", "crfsuite dump"}}).dump();
  const Model model = under_constraint(Model(std::move(parts)), options.constraint);
  model.save(options.model);
  std::cout << options.model << ": " << model.labels().size() << " labels, " << model.attributes() << " attributes, "
            << model.weight().size() << " features" << (model.constraint() ? ", decoded under the constraint" : "")
            << "\n";
  return 0;
}

}  // namespace

Run add_import(CLI::App& app) {
  CLI::App* command = app.add_subcommand("import", "Make a model from what `crfsuite dump` prints.");
  command->footer(
      "The weights are CRFsuite's to the six digits that it prints. If a constraint is given, the new model obeys it.\n"
      "\n"
      "  crfsuite dump ner.crfsuite | regccrf import -m ner.model -e '(O | any t in {PER LOC}: B-{t} I-{t}*)*'\n"
      "  regccrf tag -m ner.model test.crfsuite.txt");
  auto options = std::make_shared<Options>();
  command->add_option("dump", options->dump, "what `crfsuite dump` printed; standard input if absent or -")
      ->type_name("DUMP");
  command->add_option("-m,--model", options->model, "the model to write")->required()->type_name("FILE");
  options->constraint.add_to(*command);
  return [options] { return import_command(*options); };
}

}  // namespace regccrf::cli
