#include "codegen/contract_names.h"

namespace attnc::codegen {

const char* exponentsOf(analysis::ScoreForm form) {
  switch (form) {
  case analysis::ScoreForm::Identity: return "ProductExponents";
  case analysis::ScoreForm::Linear: return "LinearExponents";
  case analysis::ScoreForm::Tanh: return "TanhExponents<true>";
  case analysis::ScoreForm::TanhApprox: return "TanhExponents<false>";
  case analysis::ScoreForm::General: break;
  }
  return "ScoreExponents";
}

const char* nameOf(analysis::Beside beside) {
  switch (beside) {
  case analysis::Beside::None: return "None";
  case analysis::Beside::All: return "All";
  case analysis::Beside::Asks: break;
  }
  return "Asks";
}

const char* nameOf(analysis::Reach reach) {
  switch (reach) {
  case analysis::Reach::Head: return "Head";
  case analysis::Reach::Row: return "Row";
  case analysis::Reach::Column: return "Column";
  case analysis::Reach::Diagonal: return "Diagonal";
  case analysis::Reach::Element: break;
  }
  return "Element";
}

} // namespace attnc::codegen
