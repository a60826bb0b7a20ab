#include "cli/model_options.h"

#include <iostream>

#include "base/spelling.h"

namespace regccrf::cli {

Model under_constraint(const Model& model, const ConstraintOptions& options) {
  if (!options.given()) return model;
  std::vector<std::string> missing;
  const Constraint constraint = fit_constraint(options.constraint(model.labels()), model.labels(), &missing);
  if (!missing.empty()) {
    std::cerr << "regccrf: note: sequences with labels that the model does not have are left out of the language: "
              << listed(missing) << "\n";
  }
  return model.with_constraint(constraint, Constrain::decode);
}

}  // namespace regccrf::cli
