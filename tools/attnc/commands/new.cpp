// `attnc new`: writes a mod to start from, and a file with the tensors that it needs.
#include "commands/command.h"
#include "output_file.h"
#include "problem/random.h"
#include "problem/safetensors.h"
#include "terminal.h"
#include "text.h"

#include "support/element.h"
#include "support/try.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace attnc::cli {
namespace {

constexpr ProblemShape kProblem{2, 4, 2, 256, 256};
constexpr int64_t kColumns = 64; // of q, k and v
constexpr int64_t kMaxDistance = 64;

/// What a mod captures, as in the file: a number is a tensor without extents.
struct StartCapture {
  const char* name;
  DType dtype;
  std::vector<int64_t> shape;
  double (*at)(int64_t index);
};

/// A mod to start from.
struct Start {
  const char* kind;
  const char* text;
  bool masks; ///< whether a picture of its mask tells something
  std::optional<StartCapture> capture = {};
};

const std::vector<Start>& starts() {
  static const std::vector<Start> all = {
      {"causal", R"("""Causal attention: a query sees the keys up to its own position."""


# Called for each score. True: the score lives. False: it is masked.
# b, h: batch entry and head; q_idx, kv_idx: positions of the query and of the key.
def mask_mod(b, h, q_idx, kv_idx):
    return q_idx >= kv_idx
)",
       true},
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
       true, StartCapture{"window", DType::I32, {}, [](int64_t) { return 32.0; }}},
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
       StartCapture{
           "bias",
           DType::F32,
           {kProblem.qHeads, 2 * kMaxDistance + 1},
           [](int64_t i) { return -0.1 * std::log1p(std::fabs(double(i % (2 * kMaxDistance + 1) - kMaxDistance))); }}},
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
       StartCapture{"slopes",
                    DType::F32,
                    {kProblem.qHeads},
                    [](int64_t h) { return std::exp2(-8.0 * double(h + 1) / double(kProblem.qHeads)); }}},
      {"document", R"("""Packed documents: a query sees its own document, causally."""

# A captured tensor along the keys: the document of each token.
document_id: i32[KV_LEN]


# True: the score lives. Queries and keys are the same tokens, so that q_idx reads the same tensor.
def mask_mod(b, h, q_idx, kv_idx):
    same = document_id[q_idx] == document_id[kv_idx]
    return same & (q_idx >= kv_idx)
)",
       true,
       StartCapture{"document_id",
                    DType::I32,
                    {kProblem.kvLen},
                    [](int64_t i) { return i < 48    ? 0.0
                                           : i < 128 ? 1.0
                                           : i < 144 ? 2.0
                                                     : 3.0; }}},
      {"prefix", R"("""Prefix LM: all see the prefix of their sequence, the rest is causal."""

# A captured tensor with a number for each batch entry.
prefix: i32[B]


# True: the score lives.
def mask_mod(b, h, q_idx, kv_idx):
    return (kv_idx < prefix[b]) | (q_idx >= kv_idx)
)",
       true, StartCapture{"prefix", DType::I32, {kProblem.batch}, [](int64_t b) { return b ? 100.0 : 40.0; }}},
      {"softcap", R"("""Soft-capped scores: cap * tanh(score / cap)."""

import torch

# A captured number: the launch gives it. `attnc run --set cap=50` does, or the file of --in.
cap: float


# Called for each score, which is scale * q . k. Returns what takes its place.
def score_mod(score, b, h, q_idx, kv_idx):
    return cap * torch.tanh(score / cap)
)",
       false, StartCapture{"cap", DType::F32, {}, [](int64_t) { return 30.0; }}},
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
  NamedTensors tensors;
  if (const auto& capture = start.capture) {
    HostTensor& tensor = tensors[capture->name] = HostTensor::make(capture->dtype, capture->shape);
    for (int64_t i = 0, count = tensor.elements(); i < count; ++i)
      writeElement(tensor.bytes.data(), tensor.dtype, i, capture->at(i));
  }
  const auto draw = [&](const char* name, int64_t heads, int64_t rows) {
    tensors[name] = generator.normal(DType::BF16, {kProblem.batch, heads, rows, kColumns});
  };
  draw("q", kProblem.qHeads, kProblem.qLen);
  draw("k", kProblem.kvHeads, kProblem.kvLen);
  draw("v", kProblem.kvHeads, kProblem.kvLen);
  draw("dout", kProblem.qHeads, kProblem.qLen);
  return tensors;
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
  std::string text = fmt::format("wrote       {}\nwrote       {}: q, k, v, dout and what the mod captures, of {},{}\n",
                                 mod, file, shapeText(kProblem), kColumns);
  for (const std::string& command : next)
    text += fmt::format("{:12}{}\n", &command == &next.front() ? "next" : "", command);
  return printResult(reportText(text));
}

} // namespace

void addNew(CLI::App& app, int& exitCode) {
  auto [command, options] =
      addCommand<NewOptions>(app, exitCode, "new", "Write a mod to start from, and a file with tensors for it", create);
  addOption(command, "name", options.name, "NAME", "Writes NAME.py and NAME.safetensors, which must not be there")
      ->required();
  std::vector<Choice> kinds;
  std::string names;
  for (const Start& start : starts()) {
    kinds.emplace_back(start.kind);
    names += (names.empty() ? "" : ", ") + std::string(start.kind);
  }
  addChoice(command, "--kind", options.kind, "KIND", std::move(kinds), "What it does: " + names);
  command.add_flag("--json", options.json, "For programs: the files, and what to do next");
  command.footer(R"(`attnc gallery` has the published mods.

Examples:
  attnc new mine
  attnc new mine --kind document)");
}

} // namespace attnc::cli
