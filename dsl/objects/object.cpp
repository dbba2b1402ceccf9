// Names of objects for messages, and queries about a single object.
#include "dsl/objects/object.h"

namespace attnc::dsl {

uint64_t RangeObject::size() const {
  // Unsigned arithmetic, because a range may span all of int64.
  if (step > 0) return start < stop ? (uint64_t(stop) - uint64_t(start) - 1) / uint64_t(step) + 1 : 0;
  return start > stop ? (uint64_t(start) - uint64_t(stop) - 1) / (0 - uint64_t(step)) + 1 : 0;
}

bool Object::isCallable() const {
  return is<const Function*>() || is<const Partial*>() || is<const Builtin*>() || is<const Method*>() ||
         is<const ModList*>() || is<Class*>() || (is<Instance*>() && findMember(*as<Instance*>()->type, "__call__"));
}

const Object* findMember(const Class& type, llvm::StringRef name) {
  for (const Class* part : type.order)
    if (auto found = part->members.find(name); found != part->members.end()) return &found->second;
  return nullptr;
}

std::vector<llvm::StringRef> fieldsOf(const Class& type) {
  std::vector<llvm::StringRef> fields;
  for (const Class* part : llvm::reverse(type.order))
    for (llvm::StringRef field : part->fields)
      if (part->isDataclass && !llvm::is_contained(fields, field)) fields.push_back(field);
  return fields;
}

bool isForeign(const Class& type) {
  return llvm::any_of(type.order, [](const Class* part) {
    return llvm::any_of(part->bases, [](Object base) { return !base.is<Class*>(); });
  });
}

namespace {

struct Describe {
  const ir::Module& module;

  std::string operator()(NoneObject) const { return "None"; }
  std::string operator()(bool) const { return "a bool"; }
  std::string operator()(int64_t) const { return "an int"; }
  std::string operator()(double) const { return "a float"; }
  std::string operator()(const Str*) const { return "a string"; }
  std::string operator()(Sequence* sequence) const { return sequence->isList ? "a list" : "a tuple"; }
  std::string operator()(const RangeObject*) const { return "a range"; }
  std::string operator()(const SliceObject*) const { return "a slice"; }
  std::string operator()(EllipsisObject) const { return "`...`"; }
  std::string operator()(const Function*) const { return "a function"; }
  std::string operator()(const Partial*) const { return "a function"; }
  std::string operator()(const Builtin*) const { return "a function"; }
  std::string operator()(const Method*) const { return "a method"; }
  std::string operator()(const ModList*) const { return "a function"; }
  std::string operator()(Namespace space) const { return std::string("the module `") + space.path + "`"; }
  std::string operator()(DTypeObject) const { return "a dtype"; }
  std::string operator()(TypeInfo) const { return "a finfo or iinfo"; }
  std::string operator()(GridObject) const { return "a grid"; }
  std::string operator()(const ReducedObject*) const { return "an output of the mod"; }
  std::string operator()(Opaque opaque) const { return "`" + opaque.name.str() + "`"; }
  std::string operator()(const Array* array) const {
    return "an array of " + std::to_string(array->shape.size()) + (array->shape.size() == 1 ? " dim" : " dims");
  }
  std::string operator()(const Tensor* tensor) const {
    std::string name = "`" + module.tensors[tensor->number].name + "`";
    if (tensor->order.empty()) return "an element of " + name;
    const bool isWhole = tensor->order.size() == tensor->axes.size();
    return "the tensor " + name +
           (isWhole ? ""
                    : " with " + std::to_string(tensor->order.size()) + (tensor->order.size() == 1 ? " dim" : " dims") +
                          " not indexed");
  }
  std::string operator()(ir::Value value) const {
    switch (module[value].type) {
    case ir::Type::Bool: return "a bool";
    case ir::Type::I32:
    case ir::Type::I64: return "an int";
    case ir::Type::F32: return "a float";
    }
    return "a value";
  }
  std::string operator()(const Deferred*) const { return "an erroneous value"; }
  std::string operator()(Dict*) const { return "a dict"; }
  std::string operator()(Class* type) const { return "the class `" + type->name.str() + "`"; }
  std::string operator()(Instance* instance) const { return "an object of `" + instance->type->name.str() + "`"; }
  std::string operator()(const Descriptor*) const { return "a method"; }
};

} // namespace

std::string describe(const ir::Module& module, Object value) { return std::visit(Describe{module}, value.storage); }

} // namespace attnc::dsl
