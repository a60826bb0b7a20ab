#include "reproduce/figure.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>

#include "base/command.h"
#include "reproduce/paper.h"

namespace regccrf::experiments {
namespace {

const char kDecoding[] = "#d95f02", kTraining[] = "#1b7837", kData[] = "#c51b7d", kGrey[] = "#666666";

std::string format(const char* pattern, double a, double b, double c = 0, double d = 0) {
  char text[300];
  std::snprintf(text, sizeof text, pattern, a, b, c, d);
  return text;
}

// One pair of axes, 20 values of k across.
class Panel {
 public:
  Panel(double left, double low, double high) : left_(left), low_(low), high_(high) {}

  double x(double k) const { return left_ + kWidth * (k - 0.5) / 20; }
  double y(double value) const {
    return kTop + kHeight * (1 - (std::clamp(value, low_, high_) - low_) / (high_ - low_));
  }

  void axes(const std::string& title, const std::vector<double>& ticks) {
    out_ += format("<rect x='%.1f' y='%.1f' width='%.1f' height='%.1f' fill='none' stroke='#999'/>\n", left_, kTop,
                   kWidth, kHeight);
    for (double tick : ticks) {
      out_ += format("<line x1='%.1f' x2='%.1f' y1='%.1f' y2='%.1f' stroke='#ddd'/>\n", left_, left_ + kWidth, y(tick),
                     y(tick));
      text(left_ - 6, y(tick) + 4, format("%g", tick, 0), "end", kGrey);
    }
    for (int k : {1, 5, 10, 15, 20}) text(x(k), kTop + kHeight + 18, std::to_string(k), "middle", kGrey);
    text(left_ + kWidth / 2, kTop + kHeight + 38, "k", "middle", "#000");
    text(left_ + kWidth / 2, kTop - 12, title, "middle", "#000");
  }

  void line(const std::function<double(int)>& value, const char* colour, const char* dashes) {
    out_ += "<polyline fill='none' stroke='" + std::string(colour) + "' stroke-width='1.5' stroke-dasharray='" +
            dashes + "' points='";
    for (int k = 1; k <= 20; ++k) out_ += format("%.1f,%.1f ", x(k), y(value(k)));
    out_ += "'/>\n";
  }

  void dots(const double* values, const char* colour) {  // the paper's, as rings
    for (int k = 1; k <= 20; ++k) {
      out_ += format("<circle cx='%.1f' cy='%.1f' r='5.5' fill='none' stroke-width='1.3'", x(k), y(values[k - 1])) +
              " stroke='" + colour + "'/>\n";
    }
  }

  void bars(int k, FigurePoint::Value value, const char* colour) {  // ours, with one standard deviation either way
    const double low = y(value.mean - value.deviation), high = y(value.mean + value.deviation);
    if (value.deviation > 0)
      out_ += format("<line x1='%.1f' x2='%.1f' y1='%.1f' y2='%.1f'", x(k), x(k), low, high) + " stroke='" + colour +
              "' stroke-width='1.5'/>\n";
    out_ += format("<circle cx='%.1f' cy='%.1f' r='2.6'", x(k), y(value.mean)) + " fill='" + colour + "'/>\n";
  }

  void text(double at_x, double at_y, const std::string& words, const char* anchor, const char* colour) {
    out_ += format("<text x='%.1f' y='%.1f'", at_x, at_y) + " text-anchor='" + anchor + "' fill='" + colour + "'>" +
            words + "</text>\n";
  }

  const std::string& svg() const { return out_; }

  static constexpr double kTop = 50, kWidth = 400, kHeight = 280;

 private:
  double left_, low_, high_;
  std::string out_;
};

std::string legend(int seeds) {
  const struct {
    const char *words, *colour, *shape;
  } entries[] = {{"constrained decoding, ours", kDecoding, "dot"},
                 {"constrained training, ours", kTraining, "dot"},
                 {"the paper's points", kGrey, "ring"},
                 {"closed form (decoding)", kDecoding, "dash"},
                 {"data distribution", kData, "dash"}};
  std::string out;
  double x = 60;
  const double y = 410;
  for (const auto& entry : entries) {
    const std::string colour = entry.colour;
    if (entry.shape == std::string("dot"))
      out += format("<circle cx='%.1f' cy='%.1f' r='3'", x, y) + " fill='" + colour + "'/>";
    if (entry.shape == std::string("ring"))
      out += format("<circle cx='%.1f' cy='%.1f' r='5.5' fill='none'", x, y) + " stroke='" + colour + "'/>";
    if (entry.shape == std::string("dash"))
      out += format("<line x1='%.1f' x2='%.1f' y1='%.1f' y2='%.1f' stroke-dasharray='4 3'", x - 8, x + 8, y, y) +
             " stroke='" + colour + "'/>";
    out += format("<text x='%.1f' y='%.1f' fill='#000'>", x + 14, y + 4) + entry.words + "</text>\n";
    x += 40 + 6.6 * static_cast<double>(std::string(entry.words).size());
  }
  return out + "<text x='500' y='438' text-anchor='middle' fill='#666'>" + std::to_string(seeds) +
         (seeds == 1 ? " seed" : " seeds; bars are one standard deviation") + "</text>\n";
}

}  // namespace

std::string figure2_svg(const std::vector<FigurePoint>& points, int seeds) {
  const auto exact = [](int k) { return 1 / (1 + std::pow(3.0, -k)); };
  Panel left(60, 0.6, 1.05), right(560, 0, 6);
  left.axes("P((ac)^k)", {0.6, 0.7, 0.8, 0.9, 1.0});
  right.axes("negative log-likelihood", {0, 1, 2, 3, 4, 5, 6});
  left.line([](int) { return 0.75; }, kData, "4 3");
  right.line([](int) { return 0.562335; }, kData, "4 3");
  left.line(exact, kDecoding, "4 3");
  right.line([&](int k) { return -std::log(exact(k)) + 0.25 * k * std::log(3.0); }, kDecoding, "4 3");
  left.dots(paper::kDecodingP, kDecoding);
  left.dots(paper::kTrainingP, kTraining);
  right.dots(paper::kDecodingNll, kDecoding);
  right.dots(paper::kTrainingNll, kTraining);
  for (const FigurePoint& point : points) {
    left.bars(point.k, point.decoding_p, kDecoding);
    left.bars(point.k, point.training_p, kTraining);
    right.bars(point.k, point.decoding_nll, kDecoding);
    right.bars(point.k, point.training_nll, kTraining);
  }
  return "<svg xmlns='http://www.w3.org/2000/svg' width='1000' height='450' font-family='Helvetica, Arial, sans-serif' "
         "font-size='12'>\n"
         "<rect width='1000' height='450' fill='white'/>\n" +
         left.svg() + right.svg() + legend(seeds) + "</svg>\n";
}

void write_png(const std::string& path, const std::string& svg) {
  write_converted(path, svg, {"rsvg-convert", "--zoom", "2", "-o"},
                  "--png needs the program rsvg-convert (Debian: librsvg2-bin); --svg works without it");
}

}  // namespace regccrf::experiments
