// Names of CLI11, for headers. Its own header takes seconds to compile, so that only sources which use it include it.
#pragma once

namespace CLI {

class App;
class Option;
class ParseError;
class ValidationError;
class Validator;

} // namespace CLI
