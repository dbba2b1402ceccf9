#include "proofs/solver.h"

#include "jit/dynamic_library.h"
#include "jit/env.h"
#include "support/try.h"

#include <fmt/format.h>
#include <sstream>

namespace attnc::proofs {

/// Functions of z3_api.h (Z3 4.8 and later), whose handles are pointers.
struct Solver::Session {
  using Handle = void*;
  Handle (*mk_config)() = nullptr;
  void (*del_config)(Handle) = nullptr;
  Handle (*mk_context)(Handle) = nullptr;
  void (*del_context)(Handle) = nullptr;
  const char* (*eval_smtlib2_string)(Handle, const char*) = nullptr;
  void (*get_version)(unsigned*, unsigned*, unsigned*, unsigned*) = nullptr;
  void (*set_error_handler)(Handle, void (*)(Handle, int)) = nullptr;
  Handle context = nullptr;
  std::string name;

  ~Session() {
    if (context) del_context(context);
  }
};

Expected<Solver> Solver::open(const std::string& path) {
  const std::string variable = jit::Env::read().z3;
  std::vector<std::string> candidates = {"libz3.so.4", "libz3.so"};
  if (!variable.empty()) candidates = {variable};
  if (!path.empty()) candidates = {path};
  std::optional<jit::DynamicLibrary> library;
  std::string why;
  for (const std::string& candidate : candidates)
    if (!library) library = jit::DynamicLibrary::open(candidate, why);
  const auto missing = [](const std::string& what) {
    return Error::environment(
        what, "install it: apt-get install libz3-4, or pip install z3-solver and ATTNC_Z3=.../z3/lib/libz3.so");
  };
  if (!library) return missing(fmt::format("the solver Z3 is not found ({})", why));
  auto session = std::make_shared<Session>();
  const auto bind = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(library->symbol(name));
    return function != nullptr;
  };
  if (!bind(session->mk_config, "Z3_mk_config") || !bind(session->del_config, "Z3_del_config") ||
      !bind(session->mk_context, "Z3_mk_context") || !bind(session->del_context, "Z3_del_context") ||
      !bind(session->eval_smtlib2_string, "Z3_eval_smtlib2_string") || !bind(session->get_version, "Z3_get_version") ||
      !bind(session->set_error_handler, "Z3_set_error_handler"))
    return missing(fmt::format("{} is no Z3 of version 4.8 or later", library->path()));
  const Session::Handle config = session->mk_config();
  session->context = session->mk_context(config);
  session->del_config(config);
  session->set_error_handler(session->context, [](Session::Handle, int) {}); // errors are text of the answer
  unsigned major = 0, minor = 0, build = 0, revision = 0;
  session->get_version(&major, &minor, &build, &revision);
  session->name = fmt::format("Z3 {}.{}.{}", major, minor, build);
  return Solver(std::move(session));
}

std::string Solver::name() const { return session->name; }

std::string Solver::evaluate(const std::string& text) {
  const char* answer = session->eval_smtlib2_string(session->context, text.c_str());
  return answer ? answer : "";
}

Status Solver::add(const std::string& text) {
  const std::string answer = evaluate(text);
  if (answer.find("(error") == std::string::npos) return {};
  return Error::internal(fmt::format("Z3 does not take a claim: {}", answer));
}

void Solver::push() { evaluate("(push)"); }
void Solver::pop() { evaluate("(pop)"); }

Expected<Solver::Answer> Solver::check(double seconds) {
  const std::string answer =
      evaluate(fmt::format("(set-option :timeout {})(check-sat)", std::max(1, int(seconds * 1000))));
  if (answer.rfind("sat", 0) == 0) return Answer::Sat;
  if (answer.rfind("unsat", 0) == 0) return Answer::Unsat;
  if (answer.find("unknown") != std::string::npos || answer.find("timeout") != std::string::npos ||
      answer.find("canceled") != std::string::npos)
    return Answer::Unknown;
  return Error::internal(fmt::format("Z3 answers '{}'", answer));
}

std::vector<std::string> Solver::valuesOf(const std::vector<std::string>& terms) {
  std::vector<std::string> values;
  for (const std::string& term : terms) {
    std::string value = evaluate(fmt::format("(eval {})", term));
    while (!value.empty() && std::isspace(static_cast<unsigned char>(value.back()))) value.pop_back();
    values.push_back(value);
  }
  return values;
}

} // namespace attnc::proofs
