// Figure 2 as a drawing: our means with their spread over seeds, the paper's points, the closed form.
#pragma once

#include <string>
#include <vector>

namespace regccrf::experiments {

struct FigurePoint {
  struct Value {
    double mean, deviation;
  };
  int k;
  Value decoding_p, decoding_nll, training_p, training_nll;
};

std::string figure2_svg(const std::vector<FigurePoint>& points, int seeds);
void write_png(const std::string& path, const std::string& svg);  // by rsvg-convert

}  // namespace regccrf::experiments
