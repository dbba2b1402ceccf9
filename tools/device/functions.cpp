#include "tools/device/functions.h"
#include "support/try.h"

namespace attnc::device {

namespace {

Expected<Functions> open() {
  ATTNC_TRY_AS(driver, jit::Driver::get());
  ATTNC_TRY_AS(symbols, jit::DriverSymbols::open());
  Functions functions;
  functions.driver = *driver;
#define X(function) symbols->find(functions.function, ATTNC_DRIVER_NAME(function));
  ATTNC_DEVICE_FUNCTIONS(X)
#undef X
  symbols->find(functions.eventElapsedTime, "cuEventElapsedTime");
  ATTNC_TRY(symbols->foundAll());
  return functions;
}

} // namespace

Expected<const Functions*> Functions::get() {
  static const Expected<Functions> functions = open();
  if (!functions) return functions.error();
  return &*functions;
}

} // namespace attnc::device
