#include "c/call.h"

#include "attnc/version.h"
#include "c/structs.h"
#include "support/readable.h"

#include <fmt/format.h>

#include <exception>
#include <new>

namespace attnc::c {
namespace {

/// The last error of this thread.
struct LastError {
  Error error;
  bool outOfMemory = false; ///< `error` is then not read: keeping one would take memory
};
thread_local LastError lastError;

attnc_status statusOf(Blame blame) {
  switch (blame) {
  case Blame::Mod: return ATTNC_ERROR_MOD;
  case Blame::Environment: return ATTNC_ERROR_ENVIRONMENT;
  case Blame::Internal: return ATTNC_ERROR_INTERNAL;
  }
  return ATTNC_ERROR_INTERNAL;
}

attnc_status outOfMemory() noexcept {
  lastError.outOfMemory = true;
  return ATTNC_ERROR_MEMORY;
}

/// Returns what keep() returns; another status if it runs out of memory.
template <class Keep> attnc_status kept(Keep keep) noexcept {
  try {
    return keep();
  } catch (...) {
    return outOfMemory();
  }
}

} // namespace

attnc_diagnostic toC(const Diagnostic& found) {
  attnc_diagnostic all = {};
  all.id = found.id.c_str();
  all.file = found.file.c_str();
  all.message = found.message.c_str();
  all.hint = found.hint.c_str();
  all.rendered = found.rendered.c_str();
  all.line = found.line;
  all.column = found.column;
  return all;
}

attnc_status failed(Error error) noexcept {
  return kept([&] {
    error.message = readableLines(error.message); // it may contain names from the caller or a file
    error.remedy = readableLines(error.remedy);
    lastError.error = std::move(error);
    lastError.outOfMemory = false;
    return statusOf(lastError.error.blame);
  });
}

attnc_status caught() noexcept {
  try {
    throw;
  } catch (const Refusal& refusal) {
    return kept([&]() -> attnc_status {
      failed(Error::environment(refusal.why));
      return ATTNC_ERROR_ARGUMENT;
    });
  } catch (const std::bad_alloc&) {
    return outOfMemory();
  } catch (const std::exception& exception) {
    return kept([&] { return failed(Error::internal(exception.what())); });
  } catch (...) {
    return outOfMemory(); // our code throws nothing else
  }
}

} // namespace attnc::c

using namespace attnc;
using namespace attnc::c;

const char* attnc_status_name(attnc_status status) {
  switch (status) {
  case ATTNC_OK: return "ok";
  case ATTNC_ERROR_MOD: return "mod";
  case ATTNC_ERROR_ARGUMENT: return "argument";
  case ATTNC_ERROR_ENVIRONMENT: return "environment";
  case ATTNC_ERROR_INTERNAL: return "internal";
  case ATTNC_ERROR_MEMORY: return "memory";
  }
  return nullptr;
}

uint32_t attnc_version(void) { return ATTNC_VERSION_NUMBER; }
const char* attnc_version_text(void) { return ATTNC_VERSION; }

const char* attnc_last_error(void) { return lastError.outOfMemory ? "out of memory" : lastError.error.message.c_str(); }

const char* attnc_last_remedy(void) { return lastError.outOfMemory ? "" : lastError.error.remedy.c_str(); }

size_t attnc_last_diagnostic_count(void) { return lastError.outOfMemory ? 0 : lastError.error.diagnostics.size(); }

attnc_status attnc_last_diagnostic(size_t index, attnc_diagnostic* diagnostic) {
  // Not a call(): an error here must not replace the error that the caller asks about.
  try {
    checkIndex(index, attnc_last_diagnostic_count());
    writeStruct(toC(lastError.error.diagnostics[index]), diagnostic, "diagnostic");
    return ATTNC_OK;
  } catch (...) {
    return ATTNC_ERROR_ARGUMENT;
  }
}
