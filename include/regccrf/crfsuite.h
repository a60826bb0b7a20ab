// Models of CRFsuite. (Its data files are read as they are: sentences.h.)
#pragma once

#include <string>

#include "regccrf/model.h"

namespace regccrf {

// What `crfsuite dump` prints, as the parts of a model: the same weights, to the six digits that are printed.
ModelParts import_crfsuite(const std::string& path);

}  // namespace regccrf
