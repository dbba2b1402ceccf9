// Plans of decode kernels, which differ in how K and V come into shared memory: templates/algo/decode.cuh.
#pragma once

#include "plan/family.h"

#include <string>
#include <vector>

namespace attnc::plan {

/// How a family of decode kernels copies K and V.
struct DecodeCopies {
  const char* templateName;
  int (*kvBytes)(int rows, const KernelOptions& options); ///< of rows of K and V in shared memory
  int (*qBytes)(int rows, const KernelOptions& options);  ///< of rows of Q
  int slotAlign;
  int barrierBytes; ///< a slot
  bool (*byWarpgroups)(int rows, const KernelOptions& options); ///< whether tiles are multiplied with wgmma
  MakeParameters parameters;
};

struct DecodeTile {
  Tile tile;
  int stages, sharedBytes;
};

/// The model's tile first: as many rows as asked for, and a CTA that fills a multiprocessor: few large ones leave fewer
/// parts to be merged than many small ones. Steps are as long as leave room for three stages, or else for two. Then
/// others of as many rows. Empty: none fits.
std::vector<DecodeTile> decodeTiles(const Request& request, const DecodeCopies& copies);

/// For FamilyRow::candidates.
std::vector<std::string> decodeCandidates(const Request& request, const DecodeCopies& copies);

/// Precondition: there is a tile.
Plan planDecode(const Request& request, const DecodeCopies& copies);

/// What all of them take.
DecodeParams decodeParams(const Stage& stage, const LaunchOperands& operands, const Device& device,
                          const WorkspaceView& workspace);

/// What divides by it, or by 1 if it is less.
Divisor divisorOf(int64_t divisor);

/// A row of PaddedTile of templates/tile/shared_tile.cuh.
int paddedRowBytes(int headDim, int elementBytes = 2);

} // namespace attnc::plan
