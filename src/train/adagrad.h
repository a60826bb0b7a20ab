// AdaGrad: small steps after every few sequences, each weight with a step of its own. For data that is too much for
// whole passes per step.
#pragma once

#include "regccrf/constraint.h"
#include "regccrf/dataset.h"
#include "train/features.h"
#include "train/monitor.h"

namespace regccrf {

// Runs passes over the data until the monitor says stop.
void run_adagrad(const Dataset& data, const Features& features, const Constraint& constraint, Monitor& monitor);

}  // namespace regccrf
