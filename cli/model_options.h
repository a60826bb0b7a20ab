// Models under a constraint that the command line gives.
#pragma once

#include "cli/constraint_options.h"
#include "regccrf/model.h"

namespace regccrf::cli {

// The model as it is, or decoding under the constraint of the options, which is fitted to the model's labels; a note on
// standard error names labels of the language that the model does not have.
Model under_constraint(const Model& model, const ConstraintOptions& options);

}  // namespace regccrf::cli
