// A mod of some rows, keys and heads of a problem, made from the mod of the whole problem.
#pragma once

#include "attnc/error.h"
#include "ir/ir.h"

namespace attnc::passes {

/// How the rows of q, or those of k and v, lie in the whole problem.
enum class RowPlace : uint8_t {
  Run,    ///< One behind the other; an i32 scalar has the first position.
  Listed, ///< Anywhere; an i32 tensor has the position of each row.
};

/// The places of both, and of heads.
struct RowPlaces {
  RowPlace rows = RowPlace::Run, keys = RowPlace::Run;
  /// Whether rows are of a packed batch. Then i32 tensors have the sequence of each row, and a row sees the keys of its
  /// own sequence only. The mod sees it as b, and positions are those in the sequence: both places are Listed.
  bool arePacked = false;
  /// Whether heads are some of the whole problem's, one behind the other; an i32 scalar has the first one.
  bool haveFewerHeads = false;
  friend auto operator<=>(const RowPlaces&, const RowPlaces&) = default;
};

// What placeRows() declares. Positions and sequences are i32 [Q_LEN] and i32 [KV_LEN]; the others are i32 scalars.
// Extents are those of the whole problem, declared if the mod reads them.
inline constexpr llvm::StringLiteral kRowPositions = "attnc_row_positions";
inline constexpr llvm::StringLiteral kKeyPositions = "attnc_key_positions";
inline constexpr llvm::StringLiteral kFirstRow = "attnc_first_row";
inline constexpr llvm::StringLiteral kFirstKey = "attnc_first_key";
inline constexpr llvm::StringLiteral kWholeQLen = "attnc_whole_q_len";
inline constexpr llvm::StringLiteral kWholeKvLen = "attnc_whole_kv_len";
inline constexpr llvm::StringLiteral kRowSequences = "attnc_row_sequences";
inline constexpr llvm::StringLiteral kKeySequences = "attnc_key_sequences";
inline constexpr llvm::StringLiteral kWholeBatch = "attnc_whole_b";
inline constexpr llvm::StringLiteral kFirstHead = "attnc_first_head";
inline constexpr llvm::StringLiteral kWholeHeads = "attnc_whole_h";
inline constexpr llvm::StringLiteral kWholeKvHeads = "attnc_whole_hkv";

/// Returns a traced module that sees positions and lengths of the whole problem, while it runs on some rows. Captures
/// keep the whole problem's extents. Errors (environment): a capture has one of the names above.
Expected<ir::Module> placeRows(ir::Module module, RowPlaces places);

} // namespace attnc::passes
