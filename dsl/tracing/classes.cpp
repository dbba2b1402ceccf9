// In: classes of the text, calls of them, and calls of their methods. Out: objects with attributes, and methods bound
// to them. Not: metaclasses, slots, and operators that a class defines, except `==`, `!=` and truth. What a class of
// another module would do is not done.
#include "dsl/objects/arithmetic.h"
#include "dsl/tracing/depth.h"
#include "dsl/tracing/tracer.h"

#include <fmt/format.h>
#include <llvm/ADT/ScopeExit.h>
#include <llvm/ADT/StringExtras.h>

namespace attnc::dsl {

using llvm::cast;
using llvm::dyn_cast;

namespace {

/// Limit of the classes that one derives from, directly or not.
constexpr size_t kMaxBases = 64;

/// Decorators that change when, how fast or whether a function runs in Python, but not what it computes.
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

/// Bases that do not affect what an object does.
constexpr llvm::StringLiteral kPlainBases[] = {"object", "ABC", "Generic", "Protocol"};

/// Methods by which a class changes what attributes mean or how its objects are made.
constexpr llvm::StringLiteral kNotCalled[] = {"__new__", "__setattr__", "__getattribute__", "__get__",
                                              "__set__", "__delete__",  "__set_name__"};

/// Returns the last name of an annotation: ClassVar for `typing.ClassVar[int]`.
llvm::StringRef annotationName(const Expr& annotation) {
  const auto* generic = dyn_cast<SubscriptExpr>(&annotation);
  return lastName(generic ? *generic->base : annotation);
}

} // namespace

void Tracer::runClass(const ClassStmt& stmt) {
  auto* type = heap.make<Class>();
  type->name = stmt.function->name;
  for (const Expr* base : stmt.bases)
    if (!llvm::is_contained(kPlainBases, annotationName(*base))) type->bases.push_back(evalLazy(*base));
  // Depth first. A class that occurs twice stands where it occurs last.
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
  for (const Class* part : llvm::ArrayRef<Class*>(type->order).drop_front())
    if (part->members.count("__init_subclass__")) failSyntax("a class with `__init_subclass__`");
  if (stmt.metaclass && evalLazy(*stmt.metaclass).is<Class*>()) failSyntax("a metaclass of the text");
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
      makeDataclass(*made.as<Class*>(), *decorator);
      continue;
    }
    if (name == "cached_property" && made.is<const Function*>()) {
      made = static_cast<const Descriptor*>(heap.make<Descriptor>(Descriptor::Kind::CachedProperty, made));
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

/// Declares an annotated name of a class's body.
void Tracer::declareField(const AnnAssignStmt& stmt) {
  const llvm::StringRef type = annotationName(*stmt.annotation);
  if (type == "ClassVar" || type == "KW_ONLY") return; // not a field; what follows is given by name
  scope->owner->hasInitVar |= type == "InitVar";
  scope->owner->fields.push_back(cast<NameExpr>(stmt.target)->name);
}

/// @dataclass, @dataclass(eq=False, frozen=True, ...). Arguments that attnc does not name have no effect on what it
/// computes.
void Tracer::makeDataclass(Class& type, const Expr& decorator) {
  type.isDataclass = type.hasFieldEquality = true;
  type.hasPostInit = findMember(type, "__post_init__");
  const auto* call = dyn_cast<CallExpr>(&decorator);
  if (!call) return;
  for (const Keyword& keyword : call->keywords) {
    if (keyword.name == "eq") type.hasFieldEquality = truth(*this, eval(*keyword.value));
    if (keyword.name == "frozen") type.isFrozen = truth(*this, eval(*keyword.value));
    if (keyword.name == "init" && !truth(*this, eval(*keyword.value))) failSyntax("a dataclass without `__init__`");
  }
}

Object Tracer::instantiate(Class& type, const Arguments& arguments) {
  charge(4);
  Deeper deeper(*this);
  for (llvm::StringLiteral name : kNotCalled)
    if (findMember(type, name)) failSyntax("an object of a class with `" + name.str() + "`");
  if (llvm::any_of(type.order, [](const Class* part) { return part->hasInitVar; }))
    failSyntax("an object of a class with `InitVar`");
  auto* instance = heap.make<Instance>();
  instance->type = &type;
  for (Class* part : type.order) {
    if (part->members.count("__init__")) {
      callMember(*instance, "__init__", arguments);
      return instance;
    }
    if (!part->isDataclass) continue;
    setFields(*instance, *part, arguments);
    return instance;
  }
  if (!isForeign(type) && (!arguments.positional.empty() || !arguments.keywords.empty()))
    fail(diag::tooManyArguments, std::string_view(type.name), Count(0), Count(arguments.positional.size()),
         "give it an `__init__` that takes them");
  return instance;
}

void Tracer::setFields(Instance& instance, const Class& type, const Arguments& arguments) {
  const std::vector<llvm::StringRef> fields = fieldsOf(type);
  if (arguments.positional.size() > fields.size())
    fail(diag::tooManyArguments, std::string_view(type.name), Count(fields.size()), Count(arguments.positional.size()),
         "its fields are " + llvm::join(fields, ", "));
  for (size_t i = 0; i < arguments.positional.size(); ++i) instance.names[fields[i]] = arguments.positional[i];
  for (auto& [name, value] : arguments.keywords) {
    if (!llvm::is_contained(fields, name))
      fail(diag::unknownArgument, std::string_view(type.name), std::string_view(name),
           "its fields are " + llvm::join(fields, ", "));
    if (!instance.names.try_emplace(name, value).second) fail(diag::repeatedArgument, std::string_view(name));
  }
  for (llvm::StringRef field : fields) {
    if (instance.names.count(field)) continue;
    if (auto capture = captureOf(field))
      instance.names[field] = *capture;
    else if (const Object* value = findMember(type, field))
      instance.names[field] = *value;
    else
      fail(diag::missingArgument, std::string_view(type.name), std::string_view(field),
           fmt::format("write `{}({}=...)`", type.name.str(), field.str()));
  }
  if (type.hasPostInit) callMethod(instance, "__post_init__");
}

/// Returns super() of the method under evaluation: its object, seen as one of the classes that its class derives from.
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
  failSyntax("`super()` here");
}

std::optional<Object> Tracer::callMember(Instance& object, llvm::StringRef name, const Arguments& arguments) {
  const auto method = classMember(*object.type, name, &object);
  if (!method) return std::nullopt;
  Deeper deeper(*this);
  const Object result = call(*method, arguments);
  if (const Deferred* why = whyNot(result)) force(*why);
  return result;
}

std::optional<Object> Tracer::callMethod(Instance& object, llvm::StringRef name, llvm::ArrayRef<Object> arguments) {
  return callMember(object, name, {{arguments.begin(), arguments.end()}, {}});
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
  for (Class* part : instance.type->order) {
    if (name != "__init__" || part->members.count(name)) break;
    if (part->isDataclass)
      return static_cast<const Partial*>(
          heap.make<Partial>(findBuiltin("set_fields", kIgnored), std::vector<Object>{&self, part}));
  }
  if (auto member = classMember(*instance.type, name, &self)) return member;
  // For a class of another module: its setup has no effect that a mod sees.
  if (isForeign(*instance.type) || instance.type->isSuperOf) {
    if (name == "__init__" || name == "__init_subclass__" || name == "__post_init__")
      return findBuiltin("__init__", kIgnored);
    if (name == "register_buffer" || name == "register_parameter")
      return static_cast<const Method*>(heap.make<Method>(Object(&self), findBuiltin("register_buffer", kIgnored)));
  }
  if (auto capture = captureOf(name)) return capture;
  return callMethod(self, "__getattr__", {makeStr(name.str())});
}

void Tracer::setAttribute(Object base, llvm::StringRef name, Object value) {
  if (base.is<Instance*>()) {
    const Class& type = *base.as<Instance*>()->type;
    const Object* member = findMember(type, name);
    const Descriptor* property = member && member->is<const Descriptor*>() ? member->as<const Descriptor*>() : nullptr;
    if (llvm::any_of(type.order, [](const Class* part) { return part->isFrozen; }) ||
        (property && property->kind == Descriptor::Kind::Property))
      fail(diag::attributeAssigned, std::string_view(name));
  }
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
  // Factories of FlexAttention name the functions they make. The name has no meaning here.
  bool isName = name == "__name__" || name == "__qualname__" || name == "__doc__";
  if (!base.isCallable() || !isName) fail(diag::attributeAssigned, std::string_view(name));
}

} // namespace attnc::dsl
