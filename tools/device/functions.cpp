#include "tools/device/functions.h"

namespace attnc::device {

namespace {

Expected<Functions> open() {
  auto driver = jit::Driver::get();
  if (!driver) return std::move(driver).error();
  auto symbols = jit::DriverSymbols::open();
  if (!symbols) return std::move(symbols).error();
  Functions functions;
  functions.driver = *driver;
#define X(function) symbols->find(functions.function, ATTNC_DRIVER_NAME(function));
  ATTNC_DEVICE_FUNCTIONS(X)
#undef X
  symbols->find(functions.eventElapsedTime, "cuEventElapsedTime");
  if (Status found = symbols->foundAll(); !found) return std::move(found).error();
  return functions;
}

} // namespace

Expected<const Functions*> Functions::get() {
  static const Expected<Functions> functions = open();
  if (!functions) return functions.error();
  return &*functions;
}

} // namespace attnc::device
