// The text of --help: fits the terminal, with options under headings.
#pragma once

#include <CLI/CLI.hpp>

#include <string>

namespace attnc::cli {

/// Returns the help of a command; CLI11 calls it (CLI::App::formatter_fn). Of commands with many options, only the mode
/// All explains those that few need, and has the whole footer. Descriptions and footers are paragraphs,
/// which are broken to fit. Their lines that begin with two spaces stay as they are, but commands that are too long
/// go on in a next line.
std::string helpText(const CLI::App* command, const std::string& name, CLI::AppFormatMode mode);

/// Gives every command --color, those with many options --help-all, and puts options under headings, by their names.
/// Call it when all are added.
void finishCommands(CLI::App& app);

} // namespace attnc::cli
