// Plans of decode kernels, which differ in how they copy K and V into shared memory: templates/algo/decode.cuh.
#pragma once

#include "families/family.h"
#include "templates/params_decode.cuh"

#include <string>
#include <vector>

namespace attnc::plan {

/// How a family of decode kernels copies K and V.
struct DecodeCopies {
  const char* templateName;
  int (*kvBytes)(int rows, const KernelOptions& options); ///< of `rows` rows of K and V in shared memory
  int (*qBytes)(int rows, const KernelOptions& options);  ///< of `rows` rows of Q in shared memory
  int slotAlign;
  int barrierBytes;                                             ///< per slot
  bool (*byWarpgroups)(int rows, const KernelOptions& options); ///< whether tiles are multiplied with wgmma
  Expected<ParameterBlock> (*parameters)(const Stage&, const LaunchOperands&, const Device&, const WorkspaceView&);
};

struct DecodeTile {
  Tile tile;
  int stages, sharedBytes;
};

/// Returns the tiles that fit, the model's first. That one has as many rows as asked for, and its CTA fills a
/// multiprocessor: a few large CTAs leave fewer parts to merge than many small ones. Its steps are as long as three
/// stages allow, or else two. The others have as many rows. Empty if none fits.
std::vector<DecodeTile> decodeTiles(const Request& request, const DecodeCopies& copies);

/// Implements FamilyRow::candidates.
std::vector<std::string> decodeCandidates(const Request& request, const DecodeCopies& copies);

/// Returns why families refuse k and v of e4m3; empty if they do not, or if k and v are of 16 bits.
std::string whyNotE4m3(const Request& request);

/// Precondition: decodeTiles() returns a tile.
Plan planDecode(const Request& request, const DecodeCopies& copies);

/// Returns a plan of the stage `walking`, which lacks its entry and its functions but `parameters`, behind the stage
/// that lists live steps, if there is one. `atOnce`: CTAs that a multiprocessor runs at once.
Plan planWalking(const Request& request, Stage walking, int64_t atOnce);

/// Returns how many teams of CTAs deal items, each for a tile of a head: one, unless they leave few CTAs idle.
int64_t decodeTeams(const Stage& stage, const LaunchOperands& operands, int64_t ctas);

/// Returns the parameters that all decode kernels take.
DecodeParams decodeParams(const Stage& stage, const LaunchOperands& operands, const Device& device,
                          const WorkspaceView& workspace, int64_t teams = 1);

/// Returns the rows of a part of an item, whose tile has `rows`: no more than a (batch, KV head) has.
int64_t partRows(const LaunchOperands& operands, int rows);

/// Returns a Divisor for `divisor`, or for 1 if that is less than 1.
Divisor divisorOf(int64_t divisor);

/// Returns the bytes of a row of PaddedTile in templates/tile/shared_tile.cuh.
int paddedRowBytes(int headDim, int elementBytes = 2);

} // namespace attnc::plan
