// A roofline as a picture: what a device can reach at a given intensity, and what kernels reach.
#pragma once

#include "show/picture.h"

#include <string>
#include <vector>

namespace attnc::cli {

/// A kernel on a problem.
struct RooflinePoint {
  std::string name;
  double flopsPerByte = 0; ///< FLOPs per byte of memory traffic
  double flops = 0;        ///< per second
};

struct Roofline {
  std::string title;
  double bytes = 0; ///< limit, per second
  double flops = 0; ///< limit, per second; 0: unknown
  std::vector<RooflinePoint> points;
};

/// Returns the lower of both limits at this intensity.
double attainable(const Roofline& roofline, double flopsPerByte);

/// Draws the roofline on logarithmic axes. A legend gives the names of the points by colour. Points above the roof are
/// shown there.
Picture rooflinePicture(const Roofline& roofline);

} // namespace attnc::cli
