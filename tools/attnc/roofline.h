// A roofline: what a device can do at most for work of some intensity, and what kernels reach, as a picture.
#pragma once

#include "picture.h"

#include <string>
#include <vector>

namespace attnc::cli {

/// A kernel on a problem.
struct RooflinePoint {
  std::string name;
  double flopsPerByte = 0; ///< of memory
  double flops = 0;        ///< in a second
};

struct Roofline {
  std::string title;
  double bytes = 0; ///< in a second, the limit
  double flops = 0; ///< in a second, the limit; 0: not known
  std::vector<RooflinePoint> points;
};

/// The least of both limits for work of this intensity.
double attainable(const Roofline& roofline, double flopsPerByte);

/// Both axes are logarithmic. Points have the colours of their names in a legend, and those beyond the roof show beyond
/// it.
Picture rooflinePicture(const Roofline& roofline);

} // namespace attnc::cli
