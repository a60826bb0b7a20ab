// Batch training by L-BFGS, in stages where the constraint keeps rules: first under the base, then under the rules.
// Gaps are coarse at first and tighten to those that the caller wants; and further where no step improves, since the
// objective may be too uncertain for one. A sequence that is too much work gets a larger gap; as the model becomes more
// certain, this is tried again. Each change makes another objective, of nearly the same shape, so the optimiser goes on
// with what it knows of the curvature.
//
// Checkpoints. The optimiser's memory of earlier steps is its own and cannot be saved, so with checkpoints it begins
// afresh every `every` iterations, whether or not it was interrupted there. An interrupted and resumed run therefore
// takes exactly the steps of one that was not.
#pragma once

#include "train/features.h"
#include "train/monitor.h"

namespace regccrf {

// The state's weights are those to begin with, and to end with; why it ended is in `monitor`.
void run_lbfgs(const Training& training, const Features& features, const Constraint& constraint, Monitor& monitor);

}  // namespace regccrf
