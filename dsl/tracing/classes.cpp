// In: classes of the text, calls of them and of what they make. Out: objects with attributes, and methods bound to
// them. Not: metaclasses, slots, operators that a class defines; what a class of another module would do is not done.
#include "dsl/objects/arithmetic.h"
#include "dsl/tracing/depth.h"
#include "dsl/tracing/tracer.h"

#include <llvm/ADT/ScopeExit.h>

namespace attnc::dsl {

using llvm::cast;
using llvm::dyn_cast;

namespace {

/// Classes that one is made from, all together.
constexpr size_t kMaxBases = 64;

/// Decorators that change when, how fast or whether in Python a function runs, and not what it computes.
constexpr llvm::StringLiteral kHarmless[] = {"lru_cache",
                                             "cache",
                                             "compile",
                                             "no_grad",
                                             "inference_mode",
                                             "enable_grad",
                                             "wraps",
                                             "script",
                                             "disable",
                                             "allow_in_graph",
                                             "final",
                                             "override",
                                             "overload",
                                             "abstractmethod",
                                             "typecheck",
                                             "jaxtyped",
                                             "beartype",
                                             "deprecated",
                                             "torch_compile",
                                             "export",
                                             "ignore",
                                             "unused",
                                             "nonstrict_trace",
                                             "total_ordering",
                                             "register_to_config",
                                             "runtime_checkable",
                                             "cached_property"};

/// The last name of `a.b.name` or `a.b.name(...)`.
llvm::StringRef lastName(const Expr& expr) {
  const Expr* callee = &expr;
  if (const auto* call = dyn_cast<CallExpr>(callee)) callee = call->callee;
  if (const auto* member = dyn_cast<AttributeExpr>(callee)) return member->name;
  const auto* name = dyn_cast<NameExpr>(callee);
  return name ? name->name : llvm::StringRef();
}

bool isForeign(const Class& type) {
  return llvm::any_of(type.order, [](const Class* part) {
    return llvm::any_of(part->bases, [](Object base) { return !base.is<Class*>(); });
  });
}

} // namespace

void Tracer::runClass(const ClassStmt& stmt) {
  auto* type = heap.make<Class>();
  type->name = stmt.function->name;
  for (const Expr* base : stmt.bases) type->bases.push_back(evalLazy(*base));
  // Depth first; a class that comes twice stands where it comes last.
  type->order.push_back(type);
  for (Object base : type->bases) {
    if (!base.is<Class*>()) continue;
    for (Class* part : base.as<Class*>()->order) {
      llvm::erase_value(type->order, part);
      type->order.push_back(part);
    }
  }
  charge(type->order.size());
  at = stmt.loc;
  if (type->order.size() > kMaxBases) fail(diag::tooManyItems, Count(type->order.size()), Count(kMaxBases));
  {
    auto* inner = heap.make<Scope>(scope, stmt.function, type, /*isClass=*/true);
    Scope* outer = std::exchange(scope, inner);
    auto leave = llvm::make_scope_exit([&] { scope = outer; });
    run(stmt.function->body);
    type->members = inner->names;
  }
  at = stmt.loc;
  bind(type->name, stmt.loc, decorated(type, stmt.decorators));
}

Object Tracer::decorated(Object made, llvm::ArrayRef<Expr*> decorators) {
  for (const Expr* decorator : llvm::reverse(decorators)) {
    at = decorator->loc;
    llvm::StringRef name = lastName(*decorator);
    if (name == "staticmethod" || name == "classmethod" || name == "property") {
      auto kind = name == "staticmethod"  ? Descriptor::Kind::Static
                  : name == "classmethod" ? Descriptor::Kind::Class
                                          : Descriptor::Kind::Property;
      made = static_cast<const Descriptor*>(heap.make<Descriptor>(kind, made));
      continue;
    }
    if (name == "dataclass" && made.is<Class*>()) {
      made.as<Class*>()->isDataclass = true;
      continue;
    }
    if (name == "cached_property" && made.is<const Function*>()) {
      made = static_cast<const Descriptor*>(heap.make<Descriptor>(Descriptor::Kind::Property, made));
      continue;
    }
    Object wrapper = evalLazy(*decorator);
    at = decorator->loc;
    const bool isOwn = wrapper.is<const Function*>() || wrapper.is<const Partial*>() || wrapper.is<Class*>();
    if (!isOwn && llvm::is_contained(kHarmless, name)) continue;
    made = call(wrapper, {{made}, {}});
  }
  return made;
}

Object Tracer::instantiate(Class& type, const Arguments& arguments) {
  charge(4);
  Deeper deeper(*this);
  auto* instance = heap.make<Instance>();
  instance->type = &type;
  if (const Object* init = findMember(type, "__init__")) {
    Arguments withSelf = arguments;
    withSelf.positional.insert(withSelf.positional.begin(), Object(instance));
    call(*init, withSelf);
    return instance;
  }
  if (!type.isDataclass) {
    if (!isForeign(type) && (!arguments.positional.empty() || !arguments.keywords.empty()))
      fail(diag::tooManyArguments, std::string_view(type.name), Count(0), Count(arguments.positional.size()));
    return instance;
  }
  std::vector<llvm::StringRef> fields;
  for (const Class* part : llvm::reverse(type.order))
    for (llvm::StringRef field : part->fields)
      if (!llvm::is_contained(fields, field)) fields.push_back(field);
  if (arguments.positional.size() > fields.size())
    fail(diag::tooManyArguments, std::string_view(type.name), Count(fields.size()), Count(arguments.positional.size()));
  for (size_t i = 0; i < arguments.positional.size(); ++i) instance->names[fields[i]] = arguments.positional[i];
  for (auto& [name, value] : arguments.keywords) {
    if (!llvm::is_contained(fields, name))
      fail(diag::unknownArgument, std::string_view(type.name), std::string_view(name));
    instance->names[name] = value;
  }
  for (llvm::StringRef field : fields) {
    if (instance->names.count(field)) continue;
    auto capture = captureOf(field);
    if (capture)
      instance->names[field] = *capture;
    else if (!findMember(type, field))
      fail(diag::missingArgument, std::string_view(type.name), std::string_view(field));
  }
  if (auto made = instanceMember(*instance, "__post_init__")) call(*made, {});
  return instance;
}

/// super() of the method under evaluation: its object, as one of the classes that its class is made from.
Object Tracer::superOf() {
  for (Scope* around = scope; around; around = around->parent) {
    if (!around->owner || around->isClass || !around->function || around->function->parameters.empty()) continue;
    auto self = around->names.find(around->function->parameters.front().name);
    if (self == around->names.end() || !self->second.is<Instance*>()) break;
    auto* view = heap.make<Instance>();
    auto* type = heap.make<Class>();
    Instance& instance = *self->second.as<Instance*>();
    type->name = around->owner->name;
    type->bases = around->owner->bases;
    auto begin = llvm::find(instance.type->order, around->owner);
    if (begin != instance.type->order.end()) type->order.assign(begin + 1, instance.type->order.end());
    type->isSuperOf = &instance;
    view->type = type;
    return view;
  }
  fail(diag::unsupportedSyntax, "`super()` here");
}

std::optional<Object> Tracer::classMember(Class& type, llvm::StringRef name, Object self) {
  const Object* member = findMember(type, name);
  if (!member) return std::nullopt;
  charge(1);
  auto bound = [&](Object function, Object first) -> Object {
    return static_cast<const Partial*>(heap.make<Partial>(function, std::vector<Object>{first}));
  };
  if (member->is<const Descriptor*>()) {
    const Descriptor& descriptor = *member->as<const Descriptor*>();
    if (descriptor.kind == Descriptor::Kind::Static) return descriptor.function;
    if (descriptor.kind == Descriptor::Kind::Class) return bound(descriptor.function, &type);
    if (self.is<NoneObject>()) return *member;
    return call(descriptor.function, {{self}, {}});
  }
  if (!self.is<NoneObject>() && member->is<const Function*>()) return bound(*member, self);
  return *member;
}

std::optional<Object> Tracer::instanceMember(Instance& instance, llvm::StringRef name) {
  auto own = instance.names.find(name);
  if (own != instance.names.end()) return own->second;
  Instance& self = instance.type->isSuperOf ? *instance.type->isSuperOf : instance;
  if (auto member = classMember(*instance.type, name, &self)) return member;
  // Of a class of another module: setting up does nothing that a mod sees.
  if (isForeign(*instance.type) || instance.type->isSuperOf) {
    if (name == "__init__" || name == "__init_subclass__" || name == "__post_init__")
      return findBuiltin("__init__", kIgnored);
    if (name == "register_buffer" || name == "register_parameter")
      return static_cast<const Method*>(heap.make<Method>(Object(&self), findBuiltin("register_buffer", kIgnored)));
  }
  return captureOf(name);
}

void Tracer::setAttribute(Object base, llvm::StringRef name, Object value) {
  if (base.is<Instance*>()) standIns.erase({base.as<Instance*>(), name.str()});
  if (value.is<const Deferred*>())
    if (auto capture = captureOf(name)) {
      value = *capture;
      if (base.is<Instance*>()) standIns.insert({base.as<Instance*>(), name.str()});
    }
  if (base.is<Instance*>()) {
    base.as<Instance*>()->names[name] = value;
    return;
  }
  if (base.is<Class*>()) {
    base.as<Class*>()->members[name] = value;
    return;
  }
  // Factories of FlexAttention name the functions they make; the name has no meaning here.
  bool isName = name == "__name__" || name == "__qualname__" || name == "__doc__";
  if (!base.isCallable() || !isName) fail(diag::attributeAssigned, std::string_view(name));
}

} // namespace attnc::dsl
