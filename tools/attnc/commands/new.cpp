// `attnc new`: writes a mod to start from, and a file with the tensors that it needs.
#include "commands.h"
#include "output_file.h"
#include "problem/options.h"
#include "problem/random.h"
#include "problem/safetensors.h"
#include "show/json_report.h"
#include "terminal.h"
#include "text.h"

#include "support/try.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace attnc::cli {
namespace {

constexpr ProblemShape kProblem{2, 4, 2, 256, 256};
constexpr int64_t kColumns = 64; // of q, k and v
constexpr int64_t kMaxDistance = 64;

template <class Number> HostTensor filled(DType dtype, std::vector<int64_t> shape, std::function<Number(int64_t)> at) {
  HostTensor tensor = HostTensor::make(dtype, std::move(shape));
  for (int64_t i = 0, count = tensor.elements(); i < count; ++i) {
    const Number number = at(i);
    std::memcpy(tensor.bytes.data() + size_t(i) * sizeof(Number), &number, sizeof(Number));
  }
  return tensor;
}

HostTensor integers(std::vector<int64_t> shape, std::function<int32_t(int64_t)> at) {
  return filled<int32_t>(DType::I32, std::move(shape), std::move(at));
}

HostTensor floats(std::vector<int64_t> shape, std::function<float(int64_t)> at) {
  return filled<float>(DType::F32, std::move(shape), std::move(at));
}

/// A mod to start from.
struct Start {
  const char* kind;
  const char* text;
  bool masks;                             ///< whether a picture of its mask tells something
  std::function<NamedTensors()> captures; ///< as in the file
};

const std::vector<Start>& starts() {
  static const std::vector<Start> all = {
      {"causal", R"("""Causal attention: a query sees the keys up to its own position."""


# Called for each score. True: the score lives. False: it is masked.
# b, h: batch entry and head; q_idx, kv_idx: positions of the query and of the key.
def mask_mod(b, h, q_idx, kv_idx):
    return q_idx >= kv_idx
)",
       true, [] { return NamedTensors(); }},
      {"window", R"("""Causal attention to the last `window + 1` keys."""

# A captured number: the launch gives it. `attnc run --set window=9` does, or the file of --in.
window: int
# A constant, which is compiled in: `-D SINK=8` gives it another value.
SINK = 4


# True: the score lives. `&` and `|` join conditions; they need parentheses around comparisons.
def mask_mod(b, h, q_idx, kv_idx):
    near = q_idx - kv_idx <= window
    return (q_idx >= kv_idx) & (near | (kv_idx < SINK))
)",
       true,
       [] {
         return NamedTensors{{"window", integers({}, [](int64_t) { return 32; })}};
       }},
      {"bias", R"("""A learned bias by head and distance, clipped to MAX_DISTANCE on both sides."""

import torch

MAX_DISTANCE = 64
# A captured tensor: its dtype, and its extents. H is the number of heads. A backward pass gives its gradient, d_bias.
bias: f32[H, 2 * MAX_DISTANCE + 1]


# Called for each score, which is scale * q . k. Returns what takes its place.
def score_mod(score, b, h, q_idx, kv_idx):
    distance = torch.clamp(kv_idx - q_idx, min=-MAX_DISTANCE, max=MAX_DISTANCE)
    return score + bias[h, distance + MAX_DISTANCE]
)",
       false,
       [] {
         return NamedTensors{{"bias", floats({kProblem.qHeads, 2 * kMaxDistance + 1}, [](int64_t i) {
                                const double distance = double(i % (2 * kMaxDistance + 1) - kMaxDistance);
                                return float(-0.1 * std::log1p(std::fabs(distance)));
                              })}};
       }},
      {"alibi", R"("""ALiBi: a penalty linear in the distance, with one slope a head; causal."""

# A captured tensor: its dtype, and its extents. H is the number of heads.
slopes: f32[H]


# Called for each score, which is scale * q . k. Returns what takes its place.
def score_mod(score, b, h, q_idx, kv_idx):
    return score + slopes[h] * (kv_idx - q_idx)


# Called for each score. True: the score lives. False: it is masked.
def mask_mod(b, h, q_idx, kv_idx):
    return q_idx >= kv_idx
)",
       true,
       [] {
         return NamedTensors{{"slopes", floats({kProblem.qHeads}, [](int64_t h) {
                                return float(std::exp2(-8.0 * double(h + 1) / double(kProblem.qHeads)));
                              })}};
       }},
      {"document", R"("""Packed documents: a query sees its own document, causally."""

# A captured tensor along the keys: the document of each token.
document_id: i32[KV_LEN]


# True: the score lives. Queries and keys are the same tokens, so that q_idx reads the same tensor.
def mask_mod(b, h, q_idx, kv_idx):
    same = document_id[q_idx] == document_id[kv_idx]
    return same & (q_idx >= kv_idx)
)",
       true,
       [] {
         return NamedTensors{{"document_id", integers({kProblem.kvLen}, [](int64_t i) {
                                return int32_t(i < 48 ? 0 : i < 128 ? 1 : i < 144 ? 2 : 3);
                              })}};
       }},
      {"prefix", R"("""Prefix LM: all see the prefix of their sequence, the rest is causal."""

# A captured tensor with a number for each batch entry.
prefix: i32[B]


# True: the score lives.
def mask_mod(b, h, q_idx, kv_idx):
    return (kv_idx < prefix[b]) | (q_idx >= kv_idx)
)",
       true,
       [] {
         return NamedTensors{{"prefix", integers({kProblem.batch}, [](int64_t b) { return int32_t(b ? 100 : 40); })}};
       }},
      {"softcap", R"("""Soft-capped scores: cap * tanh(score / cap)."""

import torch

# A captured number: the launch gives it. `attnc run --set cap=50` does, or the file of --in.
cap: float


# Called for each score, which is scale * q . k. Returns what takes its place.
def score_mod(score, b, h, q_idx, kv_idx):
    return cap * torch.tanh(score / cap)
)",
       false,
       [] {
         return NamedTensors{{"cap", floats({}, [](int64_t) { return 30.0f; })}};
       }},
  };
  return all;
}

struct NewOptions {
  std::string name, kind = "window";
  bool json = false;
};

/// Returns q, k and v, the gradient of out, and what the mod captures.
NamedTensors tensorsFor(const Start& start) {
  Generator generator(0, kProblem, int64_t(1) << 20);
  NamedTensors tensors = start.captures();
  const auto draw = [&](const char* name, int64_t heads, int64_t rows) {
    tensors[name] = generator.normal(DType::BF16, {kProblem.batch, heads, rows, kColumns});
  };
  draw("q", kProblem.qHeads, kProblem.qLen);
  draw("k", kProblem.kvHeads, kProblem.kvLen);
  draw("v", kProblem.kvHeads, kProblem.kvLen);
  draw("dout", kProblem.qHeads, kProblem.qLen);
  return tensors;
}

std::string inShell(const std::string& path) {
  if (path.find_first_of(" '\"$&|;<>()*?\\`#~!") == std::string::npos) return path;
  std::string quoted = "'";
  for (const char c : path) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

Status create(const NewOptions& options) {
  std::string name = options.name;
  if (name.ends_with(".py")) name.resize(name.size() - 3);
  const std::string mod = name + ".py", file = name + ".safetensors";
  for (const std::string& path : {mod, file})
    if (std::filesystem::exists(path))
      return Error::environment(inQuotes(path) + " is there already", "give another name, or remove it");
  const auto start =
      std::find_if(starts().begin(), starts().end(), [&](const Start& one) { return one.kind == options.kind; });
  ATTNC_TRY(writeWholeFile(mod, {start->text}));
  ATTNC_TRY(writeSafetensors(file, tensorsFor(*start)));
  const std::string with = inShell(mod) + " --in " + inShell(file);
  const std::vector<std::string> next = {"attnc check " + inShell(mod),
                                         start->masks ? "attnc mask " + with : "attnc probe " + with + " --at 0,0,9,5",
                                         "attnc run " + with};
  if (options.json)
    return printResult(
        jsonText({{"ok", true}, {"kind", options.kind}, {"mod", mod}, {"tensors", file}, {"next", next}}));
  const ProblemShape& p = kProblem;
  std::string text =
      fmt::format("wrote       {}\nwrote       {}: q, k, v, dout and what the mod captures, of {},{},{},{},{},{}\n",
                  mod, file, p.batch, p.qHeads, p.kvHeads, p.qLen, p.kvLen, kColumns);
  for (const std::string& command : next)
    text += fmt::format("{:12}{}\n", &command == &next.front() ? "next" : "", command);
  return printResult(reportText(text));
}

} // namespace

void addNew(CLI::App& app, int& exitCode) {
  auto options = std::make_shared<NewOptions>();
  CLI::App* command = app.add_subcommand("new", "Write a mod to start from, and a file with tensors for it");
  command->add_option("name", options->name, "Writes NAME.py and NAME.safetensors, which must not be there")
      ->type_name("NAME")
      ->required();
  std::vector<Choice> kinds;
  std::string names;
  for (const Start& start : starts()) {
    kinds.push_back({start.kind, {}});
    names += (names.empty() ? "" : ", ") + std::string(start.kind);
  }
  command->add_option("--kind", options->kind, "What it does: " + names)
      ->type_name("KIND")
      ->capture_default_str()
      ->transform(oneOf(std::move(kinds)));
  command->add_flag("--json", options->json, "For programs: the files, and what to do next");
  command->footer("`attnc gallery` has the published mods.\n\n"
                  "Examples:\n"
                  "  attnc new mine\n"
                  "  attnc new mine --kind document");
  command->callback([options, &exitCode] {
    auto status = create(*options);
    exitCode = status ? kDone : report(status.error());
  });
}

} // namespace attnc::cli
