"""What a delivered model file holds beside the original code and the graphs: guards, kernels, `apply` and `remove`.

It is text, because it runs where the model runs: with PyTorch, without Kernelwright. Its names begin with `_kw_`, which
`put_back` replaces where the model's own code has such names.
"""

import ast
from pathlib import Path

from tasks.rename import renamed_text

READER = '''\
def _kw_source(name):
    """The source of a kernel, and the name of its file."""
    file = _kw_pathlib.Path(__file__).parent / "kernels" / (name + ".py")
    return file.read_text(encoding="utf-8"), file.as_posix()
'''
"""The one function that a bundle has in another form."""

EMBEDDED_READER = '''\
def _kw_source(name):
    """The source of a kernel, and the name of its file."""
    sources = {{
{sources}
    }}
    return sources[name], f"<kernels/{{name}}.py>"
'''

IMPORTS = """\
import base64 as _kw_base64
import copy as _kw_copy
import enum as _kw_enum
import functools as _kw_functools
import hashlib as _kw_hashlib
import inspect as _kw_inspect
import linecache as _kw_linecache
import operator as _kw_operator
import pathlib as _kw_pathlib
import re as _kw_re
import sys as _kw_sys
import types as _kw_types
import warnings as _kw_warnings
import weakref as _kw_weakref
import zlib as _kw_zlib
"""

RUNTIME = '''\
_kw_loaded = {}  # modules of kernels, by name


def _kw_class(name):
    """The class of a kernel. Its file is executed when the class is first needed."""
    if name not in _kw_loaded:
        source, file = _kw_source(name)
        module = _kw_types.ModuleType(f"{__name__}_{name}")
        module.__file__ = file
        _kw_linecache.cache[file] = (len(source), None, source.splitlines(True), file)  # for inspect, and for traces
        _kw_sys.modules[module.__name__] = module
        exec(compile(source, file, "exec", dont_inherit=True), module.__dict__)
        _kw_loaded[name] = module.ModelNew
    return _kw_loaded[name]


def _kw_made(name):
    """A kernel with weights of its own."""
    try:
        return _kw_class(name)()
    except Exception as error:
        raise RuntimeError(f"the kernel {name} cannot be built: {error}") from error


def _kw_bind(kernel, name, tensor):
    """Put a tensor of the model in the place of the kernel's own; False: the kernel has none of this name."""
    *path, last = name.split(".")
    owner = kernel
    for part in path:
        owner = getattr(owner, "_modules", {}).get(part)
    for kind in ("_parameters", "_buffers"):
        held = getattr(owner, kind, {})
        if last in held:
            held[last] = tensor
            return True
    held = getattr(owner, "__dict__", {})
    last, _, key = last.partition("[")
    if last not in held:
        return False
    if not key:
        held[last] = tensor
        return True
    items = held[last]
    held[last] = type(items)(
        [tensor if f"{place}]" == key else item for place, item in enumerate(items)]
        if isinstance(items, (list, tuple))
        else {place: tensor if f"{place!r}]" == key else item for place, item in items.items()}
    )
    return True


def _kw_constant(data, dtype, shape, stride):
    """A tensor that the model's code makes, from its compressed bytes."""
    data = bytearray(_kw_zlib.decompress(_kw_base64.b64decode(data)))
    flat = torch.frombuffer(data, dtype=dtype) if data else torch.empty(0, dtype=dtype)
    return torch.empty_strided(shape, stride, dtype=dtype).copy_(flat.reshape(shape))


def _kw_quietly():
    """A context in which random numbers may be drawn, and which leaves the generator as it was."""
    return torch.random.fork_rng(devices=[])


_kw_modes = getattr(torch._C, "_len_torch_dispatch_stack", int)  # how many there are; not every version tells
_kw_level = getattr(getattr(torch._C, "_functorch", None), "maybe_current_level", None)  # of vmap, grad and the like
_kw_functions = getattr(torch.overrides, "_get_current_function_mode_stack", list)  # modes that see functions of torch


def _kw_is_default(mode):
    """Whether a mode only says that new tensors are made in memory of the processor."""
    return type(mode).__name__ == "DeviceContext" and torch.device(mode.device).type == "cpu"


def _kw_is_watched():
    """Whether torch records or transforms what is called. It must see the original code then."""
    hooks = torch.nn.modules.module
    return (
        torch.compiler.is_compiling()
        or torch.jit.is_tracing()
        or torch.is_autocast_enabled("cpu")
        or _kw_modes() > 0
        or not all(map(_kw_is_default, _kw_functions()))
        or (_kw_level is not None and _kw_level() is not None)
        or getattr(torch.autograd.forward_ad, "_current_level", -1) >= 0
        or bool(hooks._global_forward_hooks or hooks._global_forward_pre_hooks)
    )


def _kw_like(tensor, facts):
    """Whether a value is a plain tensor in memory of the processor, with this dtype, shape and strides (None: any)."""
    dtype, shape, stride = facts
    if type(tensor) is not torch.Tensor and type(tensor) is not torch.nn.Parameter:
        return False
    if tensor.dtype is not dtype or tensor.shape != shape or not tensor.is_cpu or tensor.layout is not torch.strided:
        return False
    return (stride is None or tensor.stride() == stride) and not tensor.is_conj() and not tensor.is_neg()


def _kw_leaves(tree, value, found):
    """Add the leaves of a tree of containers to `found`; False: the value is another tree."""
    kind = tree[0]
    if kind == "leaf":
        found.append(value)
        return True
    if kind == "dict":
        if type(value) is not dict or list(value) != tree[1]:
            return False
        return all(_kw_leaves(child, value[key], found) for key, child in zip(tree[1], tree[2]))
    if type(value) is not {"tuple": tuple, "list": list}[kind] or len(value) != len(tree[1]):
        return False
    return all(_kw_leaves(child, item, found) for child, item in zip(tree[1], value))


class _kw_Graph:
    """What is known of a captured graph.

    `leaves` has the facts of each tensor among the arguments, and `(value,)` for each other value. `weights` has kind
    (`state` for a buffer that calls change), path, facts and, of a constant, its bytes. `kernels` has the name of each
    kernel and what it takes of the weights: the kernel's name, the position, and whether the kernel must have it.
    `training` has the paths of the submodules that were in training mode, `reads_mode` those of the ones that look at
    it (None: any may). `either_mode`: the graph is right as well if all of these are in the other mode. `fragment`, of
    a graph that is a part of a call: the list of inputs that it is for, its fingerprint, how often a call runs it, the
    positions of leaves and weights among its inputs (-1: a constant), and which of its results are which of its inputs.
    """

    def __init__(
        self,
        run,
        path,
        training,
        reads_mode,
        either_mode,
        arguments,
        keywords,
        leaves,
        weights,
        kernels,
        fragment=None,
    ):
        self.run, self.path = run, path
        self.training, self.reads_mode, self.either_mode = training, reads_mode, either_mode
        self.arguments, self.keywords, self.leaves = arguments, keywords, leaves
        self.weights, self.kernels, self.fragment = weights, kernels, fragment
        # Kernels are made anew where these change, but for what the graph's own call changes of a buffer: a kernel that
        # keeps what it computed from such a buffer would be wrong in the second call, and none such is proven.
        taken = sorted({position for _, each in kernels for _, position, _ in each})
        self.taken = [position for position in taken if weights[position][0] != "state"]
        self.state = [position for position in taken if weights[position][0] == "state"]
        self.changed = [position for position, weight in enumerate(weights) if weight[0] == "state"]

    def mode_that_differs(self, parts):
        """The path of a submodule whose mode the graph is not for; None: it is for these modes."""
        looking = parts if self.reads_mode is None else self.reads_mode
        other = [path for path in looking if parts[path].training != (path in self.training)]
        return None if not other or (self.either_mode and len(other) == len(looking)) else other[0]

    def leaves_of(self, original, args, kwargs):
        """The leaves of the arguments; None: they are not like those that were captured."""
        positional = len(self.arguments) - len(self.keywords)
        if len(args) != positional or tuple(kwargs) != self.keywords:
            try:
                signature = _kw_inspect.signature(original)
                if any(each.kind is each.VAR_POSITIONAL for each in signature.parameters.values()):
                    return None
                names = [*signature.parameters][1 : positional + 1] + [*self.keywords]
                given = signature.bind(None, *args, **kwargs).arguments
                args, kwargs = [given[name] for name in names], {}
            except (TypeError, ValueError, KeyError):
                return None
            if len(given) != len(names) + 1:
                return None
        found = []
        for tree, value in zip(self.arguments, [*args, *kwargs.values()]):
            if not _kw_leaves(tree, value, found):
                return None
        for leaf, facts in zip(found, self.leaves):
            if len(facts) == 1:
                if type(leaf) is not type(facts[0]) or leaf != facts[0]:
                    return None
            elif not _kw_like(leaf, facts):
                return None
        return found


_kw_OWN = (*vars(torch.nn.Module()), "_kw_place")  # attributes that every module has
_kw_PLAIN = (bool, int, float, str, complex, type(None), torch.dtype, torch.device, _kw_types.FunctionType)
_kw_PLAIN = (*_kw_PLAIN, _kw_types.BuiltinFunctionType, type)
_kw_HOOKS = ("_forward_hooks", "_forward_pre_hooks")


_kw_MOST = 400  # values of an attribute: a vocabulary is no configuration, and each call would look at all of it
_kw_UNKNOWN = object()


def _kw_plain(value):
    """A copy of a value that holds numbers, words and flags alone, in containers or in objects of plain classes, which
    become a pair of their class and attributes. Any other value is `_kw_UNKNOWN`."""
    left = _kw_MOST

    def copied(value):
        nonlocal left
        left -= 1
        kind = type(value)
        if left < 0:
            raise TypeError
        if kind in _kw_PLAIN:
            return value
        if isinstance(value, _kw_enum.Enum):
            return kind.__qualname__, value.name
        if kind in (tuple, list):
            return kind(map(copied, value))
        if kind is dict and value:  # an empty one is rather a place for what calls keep
            return {copied(key): copied(item) for key, item in value.items()}
        slots = any(vars(base).get("__slots__") for base in kind.__mro__)
        other = isinstance(value, (torch.nn.Module, _kw_types.ModuleType)) or callable(value)
        if other or slots or kind.__new__ is not object.__new__ or not hasattr(value, "__dict__"):
            raise TypeError
        return kind.__qualname__, {name: copied(item) for name, item in vars(value).items()}

    try:
        return copied(value)
    except TypeError:
        return _kw_UNKNOWN


def _kw_facts(module):
    """The class and the plain attributes of each submodule by path: numbers and flags are part of what was captured."""
    found = {}
    for path, part in module.named_modules():
        own = {name: _kw_plain(value) for name, value in vars(part).items() if name not in _kw_OWN}
        own = {name: value for name, value in own.items() if value is not _kw_UNKNOWN}
        found[path] = (type(part).__name__, own)
    return found


def _kw_ties(module):
    """The parameters and buffers that a module has under several names: the first name and another, for each other."""
    first, found = {}, []
    for named in (module.named_parameters, module.named_buffers):
        for name, tensor in named(remove_duplicate=False):
            if first.setdefault(id(tensor), name) != name:
                found.append((first[id(tensor)], name))
    return found


def _kw_is_tied(tie):
    """Whether two places hold one tensor still, or tensors in the same memory: a graph takes the first for both."""
    (held, name), (other, other_name) = tie
    left, right = held.get(name), other.get(other_name)
    if left is right:
        return True
    if left is None or right is None or left.shape != right.shape or left.stride() != right.stride():
        return False
    return left.is_cpu and right.is_cpu and left.data_ptr() == right.data_ptr()


def _kw_has_facts(facts, known):
    """Whether these are the same submodules with the same attributes; others may have been added."""
    return list(facts) == list(known) and all(
        have[0] == want[0] and all(name in have[1] and have[1][name] == value for name, value in want[1].items())
        for have, want in zip(facts.values(), known.values())
    )


def _kw_needs_gradients(tensors):
    """Refuse a call that would need gradients, which kernels do not give."""
    if torch.is_grad_enabled() and any(getattr(each, "requires_grad", False) for each in tensors):
        raise RuntimeError(
            "the kernels of this model give no gradients, and one would be needed: call the model under "
            "torch.no_grad(), or take the kernels out with remove(model), or use the original class"
        )


class _kw_Kernels:
    """The kernels of a graph, bound to weights."""

    def __init__(self, index):
        self.graph = _kw_GRAPHS[index]
        self.weights, self.aliases, self.marks, self.versions = [], [], None, []
        self.pending = set()  # positions of weights that have changed since kernels were made for all of them
        self.kernels, self.called, self.ready = [None] * len(self.graph.kernels), False, False

    def overlap(self, leaves):
        """Whether a tensor lies in the memory of a buffer that the graph changes: it is changed, too, but last."""
        changed = {self.weights[place].untyped_storage().data_ptr() for place in self.graph.changed}
        return any(each.untyped_storage().data_ptr() in changed for each in leaves if isinstance(each, torch.Tensor))

    def run(self, leaves):
        """What the graph returns for the weights that were taken last."""
        self.take_kernels()
        self.called = True
        result = self.graph.run(leaves, self.weights, self.kernels)
        if self.graph.state:
            self.versions[len(self.graph.taken) :] = _kw_state_versions(self.weights, self.graph)
        return result

    def take_weights(self, weights):
        """Look at the weights, and note in `pending` which have changed; False: one has other facts."""
        graph = self.graph
        same = len(weights) == len(self.weights) and all(map(_kw_operator.is_, weights, self.weights))
        if same:
            marks, versions = _kw_marks(weights), _kw_versions(weights, graph)
            if marks == self.marks and versions == self.versions:
                return True
        if not all(_kw_like(tensor, known[2]) for tensor, known in zip(weights, graph.weights)):
            return False
        marks, versions = _kw_marks(weights), _kw_versions(weights, graph)
        changed = set(range(len(weights)))
        if self.marks is not None:
            places = graph.taken + graph.state
            before, now = dict(zip(places, self.versions)), dict(zip(places, versions))
            changed = {
                place
                for place, tensor in enumerate(weights)
                if tensor is not self.weights[place]
                or before.get(place) != now.get(place)
                or any(new[place] != old[place] for new, old in zip(marks, self.marks))
            }
        self.weights, self.marks, self.versions = weights, marks, versions
        self.pending |= changed
        self.aliases = [tensor.detach() for tensor in weights]  # no other tensor gets the address of one that is known
        return True

    def take_kernels(self):
        """Have kernels for the weights: one that was called may have computed from its weights, and is made anew."""
        changed = self.pending
        if self.ready and not changed:
            return
        self.ready = False
        for place, (name, taken) in enumerate(self.graph.kernels):
            if self.kernels[place] is None or (self.called and any(position in changed for _, position, _ in taken)):
                with _kw_quietly():
                    self.kernels[place] = _kw_made(name)
            for local, position, needed in taken:
                if not _kw_bind(self.kernels[place], local, self.weights[position]) and needed:
                    raise RuntimeError(f"the kernel {name} has no parameter {local}")
        self.ready, self.pending = True, set()


class _kw_Place:
    """A module whose forward is a captured graph: its kernels, bound to its parameters.

    `other` is a graph of the same module for inputs of other shapes; None: there is none. Copies and saved modules
    have a place without kernels, which are made again when they are needed.
    """

    def __init__(self, index, known, tied, other=None):
        self.index, self.known, self.tied, self.other = index, known, tied, other
        self.owner = None  # a weak reference to the module that all that follows belongs to
        self.forget()

    def forget(self):
        self.checks, self.objects, self.ties, self.slots = None, [], [], []
        self.kernels = _kw_Kernels(self.index)
        self.told = False  # that a mode is another one

    def __deepcopy__(self, memo):
        return _kw_Place(self.index, self.known, self.tied, _kw_copy.deepcopy(self.other, memo))

    def __reduce__(self):
        return _kw_Place, (self.index, self.known, self.tied, self.other)

    def __call__(self, module, original, args, kwargs):
        graph = _kw_GRAPHS[self.index]
        leaves = None if _kw_is_watched() else graph.leaves_of(original, args, kwargs)
        fits = leaves is not None and self.is_as_captured(module) and self.take_weights()
        if not fits or (graph.changed and self.kernels.overlap(leaves)):
            if self.other is not None:
                return self.other(module, original, args, kwargs)
            return original(module, *args, **kwargs)
        _kw_needs_gradients((*leaves, *self.kernels.weights))
        return self.kernels.run(leaves)

    def take_weights(self):
        """Whether the module's tensors are like those that were captured."""
        return self.kernels.take_weights([held.get(name) for held, name in self.slots])

    def prepare(self, module):
        """Make the kernels, which may compile them, if the module's parameters are as they were captured."""
        if self.other is not None:
            self.other.prepare(module)
        if self.is_as_captured(module, any_mode=True) and self.take_weights():
            self.kernels.take_kernels()

    def is_as_captured(self, module, any_mode=False):
        """Whether modes, plain attributes, submodules and hooks are as they were when the module was made."""
        if self.owner is None or self.owner() is not module:
            self.forget()
            self.owner = _kw_weakref.ref(module)
        if (
            self.checks is not None
            and all(map(_kw_holds, self.checks))
            and all(_kw_plain(value) == known for value, known in self.objects)
            and all(map(_kw_is_tied, self.ties))
        ):
            return True
        self.checks = None
        parts = dict(module.named_modules())
        if not _kw_has_facts(_kw_facts(module), self.known):
            return False
        other = None if any_mode else _kw_GRAPHS[self.index].mode_that_differs(parts)
        if other is not None:
            if not self.told:
                self.told = True
                mode, other_mode = ("training", "eval") if parts[other].training else ("eval", "training")
                where = f"{other} ({type(parts[other]).__name__})" if other else "the model itself"
                _kw_warnings.warn(
                    f"{where} is in {mode} mode, and the kernels were made for {other_mode} mode, in which it computes "
                    "something else: the original code runs, without them",
                    stacklevel=2,
                )
            return False
        checks, objects = [], {}
        for path, part in parts.items():
            own = vars(part)
            names = ["training", "_modules", *self.known[path][1]]
            values = [own["training"], dict(own["_modules"])]
            for name, known in self.known[path][1].items():
                if type(own[name]) in (*_kw_PLAIN, tuple, list, dict) and own[name] == known:
                    values.append(known)
                else:  # an object in it: submodules often share one
                    values.append(own[name])
                    objects[id(own[name])] = own[name], known
            if part is not module:
                if "forward" in own or any(own[name] for name in _kw_HOOKS):
                    return False
                names, values = [*names, *_kw_HOOKS], [*values, {}, {}]
            checks.append((own, _kw_operator.itemgetter(*names), tuple(values), part is not module))
        slots = [_kw_slot(parts, weight) for weight in _kw_GRAPHS[self.index].weights]
        if any(slot is None for slot in slots):
            return False
        everywhere = dict(module.named_modules(remove_duplicate=False))
        ties = [tuple(_kw_held(everywhere, name) for name in names) for names in self.tied]
        if any(None in tie or not _kw_is_tied(tie) for tie in ties):
            return False
        self.slots, self.ties, self.objects = slots, ties, list(objects.values())
        self.checks = None if any_mode else checks
        return True


def _kw_holds(check):
    """Whether a module has the attributes that it had, and an inner one no forward of its own."""
    own, get, values, inner = check
    try:
        return get(own) == values and not (inner and "forward" in own)
    except KeyError:
        return False


def _kw_slot(parts, weight):
    """Where a module holds a tensor: a dict and a key; None: nowhere."""
    kind, path, facts, data = weight
    if kind != "constant":
        return _kw_held(parts, path)
    parent, _, name = path.rpartition(".")
    own = vars(parts[parent]) if parent in parts else {}
    if isinstance(own.get(name), torch.Tensor):
        return own, name
    return None if data is None else ({name: _kw_constant(data, *facts)}, name)


def _kw_held(parts, path):
    """The dict of a module that holds a parameter or buffer, and its name in it; None: nothing does."""
    parent, _, name = path.rpartition(".")
    for kind in ("_parameters", "_buffers") if parent in parts else ():
        if name in vars(parts[parent])[kind]:
            return vars(parts[parent])[kind], name
    return None


def _kw_marks(tensors):
    """What changes if a tensor gets other memory. Changes of its elements are not seen here."""
    kind = torch.Tensor
    return [*map(kind.data_ptr, tensors)], [*map(kind.is_contiguous, tensors)], [*map(kind.numel, tensors)]


def _kw_versions(tensors, graph):
    """How often the tensors that kernels take were changed in place, those that the graph's calls change last. Nobody
    counts that of inference tensors: they count as changed since any other call."""
    counted = [object() if tensors[place].is_inference() else tensors[place]._version for place in graph.taken]
    return counted + _kw_state_versions(tensors, graph)


def _kw_state_versions(tensors, graph):
    """The same of the tensors that the graph's calls change. Inference tensors among them never count as changed."""
    return [0 if tensors[place].is_inference() else tensors[place]._version for place in graph.state]


_kw_classes = {}  # what `_kw_optimized` has made


def _kw_optimized(cls):
    """A class that is `cls` but for its forward, which runs the graph that the module was given."""
    if cls in _kw_classes:
        return _kw_classes[cls]

    def __reduce_ex__(self, protocol):
        how, what, *rest = cls.__reduce_ex__(self, protocol)
        if what and what[0] is type(self):
            return (_kw_restored, (cls,), *rest)
        return (how, what, *rest)

    own = {"__module__": cls.__module__, "__qualname__": cls.__qualname__, "__doc__": cls.__doc__}
    own |= {"_kw_original": cls, "_kw_has_place": True, "__reduce_ex__": __reduce_ex__, "forward": _kw_forward(cls)}
    _kw_classes[cls] = type(cls)(cls.__name__, (cls,), own)
    return _kw_classes[cls]


def _kw_restored(cls):
    made = _kw_optimized(cls)
    return made.__new__(made)


def _kw_forward(cls):
    """The forward of a class with a graph in its place."""
    original = cls.forward

    @_kw_functools.wraps(original)
    def forward(self, *args, **kwargs):
        place = self.__dict__.get("_kw_place")
        if place is None:
            return original(self, *args, **kwargs)
        return place(self, original, args, kwargs)

    return forward


def _kw_install(model):
    """Put the graphs in the places of the forwards of a model and its submodules."""
    parts = dict(model.named_modules())
    for path in dict.fromkeys(graph.path for graph in _kw_GRAPHS):
        part = parts.get(path)
        if part is None or "_kw_place" in vars(part):
            continue
        if not getattr(type(part), "_kw_has_place", False):
            part.__class__ = _kw_optimized(type(part))
        known, tied, place = _kw_facts(part), _kw_ties(part), None
        wholes, variants = [], {}  # fragments by the list of inputs that they are for
        for index, graph in enumerate(_kw_GRAPHS):
            if graph.path == path:
                (variants.setdefault(graph.fragment[0], []) if graph.fragment else wholes).append(index)
        for indices in variants.values():
            place = _kw_Fragments(indices, place)
        for index in reversed(wholes):
            place = _kw_Place(index, known, tied, place)
        vars(part)["_kw_place"] = place
        place.prepare(part)


def _kw_equal(left, right):
    if isinstance(left, torch.Tensor) or isinstance(right, torch.Tensor):
        return type(left) is type(right) and left.dtype is right.dtype and torch.equal(left, right)
    if type(left) is not type(right):
        return False
    if isinstance(left, (list, tuple)):
        return len(left) == len(right) and all(map(_kw_equal, left, right))
    if isinstance(left, dict):
        return list(left) == list(right) and all(_kw_equal(left[key], right[key]) for key in left)
    known = _kw_plain(left)
    return bool(left == right) if known is _kw_UNKNOWN else known == _kw_plain(right)


def _kw_made_as_captured(args, kwargs):
    """Whether a constructor has these arguments from `get_init_inputs`: graphs hold what follows from them."""
    signature = _kw_inspect.signature(_kw_ORIGINAL.__init__)
    with _kw_quietly():
        wanted = signature.bind(None, *_kw_init_inputs())
    given = signature.bind(None, *args, **kwargs)
    wanted.apply_defaults()
    given.apply_defaults()
    return _kw_equal(dict(wanted.arguments), dict(given.arguments))


def _kw_code(part):
    """What a module's forward does, as far as its byte code tells."""
    code = getattr(_kw_inspect.unwrap(type(part).forward), "__code__", None)
    if code is None:
        return None
    names = [_kw_NAMES.get(name, name) for name in code.co_names]
    values = [value for value in code.co_consts[1:] if not isinstance(value, _kw_types.CodeType)]
    return code.co_code, names, code.co_varnames, values


def _kw_difference(model, wanted):
    """What a model differs in from the one that was captured, in words; nothing: it does not."""
    have, want = model.state_dict(), wanted.state_dict()
    for name in [*want, *have]:
        if name not in have or name not in want:
            return f"its state dict {'lacks' if name in want else 'has also'} {name}"
        shapes = [(tuple(state[name].shape), state[name].dtype) for state in (have, want)]
        if shapes[0] != shapes[1]:
            return f"{name} is {shapes[0][0]} of {shapes[0][1]}, and the kernels need {shapes[1][0]} of {shapes[1][1]}"
    for names in _kw_ties(wanted):
        if not _kw_is_tied([_kw_held(dict(model.named_modules(remove_duplicate=False)), name) for name in names]):
            return f"{names[0]} and {names[1]} are two tensors, and the kernels need one"
    have, want = _kw_facts(model), _kw_facts(wanted)
    have_parts, want_parts = dict(model.named_modules()), dict(wanted.named_modules())
    for path in [*want, *have]:
        where = path or "the model itself"
        if path not in have or path not in want:
            return f"it {'lacks' if path in want else 'has also'} the module {where}"
        if path and have[path][0] != want[path][0]:
            return f"{where} is a {have[path][0]}, and the kernels need a {want[path][0]}"
        for name, value in want[path][1].items():
            if name not in have[path][1]:
                return f"{where} lacks the attribute {name}"
            if have[path][1][name] != value and not isinstance(value, _kw_types.FunctionType):
                return f"{name} of {where} is {have[path][1][name]!r}, and the kernels need {value!r}"
        if _kw_code(have_parts[path]) != _kw_code(want_parts[path]):
            return f"the forward of {where} is other code"
    return ""
'''

_FRAGMENTS = '''\
@DYNAMO@


class _kw_Fragments:
    """A module of which dynamo makes graphs while it runs: those that are known run with kernels.

    What is between them, and graphs that are not known, run as they are. `other` is what answers for other inputs;
    None: nothing but the original code.
    """

    def __init__(self, indices, other=None):
        self.indices, self.other = indices, other
        self.owner = None  # a weak reference to the module that all that follows belongs to
        self.forget()

    def forget(self):
        self.compiled, self.settings, self.held, self.constants = None, {}, {}, {}
        self.ran, self.told, self.gradients = False, False, True

    def __deepcopy__(self, memo):
        return _kw_Fragments(self.indices, _kw_copy.deepcopy(self.other, memo))

    def __reduce__(self):
        return _kw_Fragments, (self.indices, self.other)

    def __call__(self, module, original, args, kwargs):
        graph = _kw_GRAPHS[self.indices[0]]
        owner = None if self.owner is None else self.owner()
        others = owner is not None and owner is not module  # a shallow copy shares the place
        unfit = others or _kw_is_watched() or torch._dynamo.config.disable
        if unfit or graph.leaves_of(original, args, kwargs) is None:
            if self.other is not None:
                return self.other(module, original, args, kwargs)
            return original(module, *args, **kwargs)
        if self.compiled is None or owner is None:
            self.forget()
            self.owner = _kw_weakref.ref(module)
            self.settings = _kw_settings()
            self.compiled = _kw_in_graphs(original, _kw_backend(_kw_weakref.ref(self)))
        self.ran, self.gradients = False, torch.is_grad_enabled()
        with torch._dynamo.config.patch(self.settings):
            result = self.compiled(module, *args, **kwargs)
        if not self.ran and not self.told:
            self.told = True
            _kw_warnings.warn(
                f"a call of {graph.path or 'the model itself'} ran none of the graphs that the kernels were made for, "
                "which may be for another mode or another way through its code: the original code ran, without them",
                stacklevel=2,
            )
        return result

    def prepare(self, module):
        """Make each kernel once, which may compile it."""
        if self.other is not None:
            self.other.prepare(module)
        with _kw_quietly():
            for index in self.indices:
                for name, _ in _kw_GRAPHS[index].kernels:
                    _kw_made(name)

    def run(self, index, original, values):
        """What a known graph returns for its inputs."""
        graph = _kw_GRAPHS[index]
        _, _, calls, leaves, places, returned = graph.fragment
        if _kw_is_watched() or any(value.is_neg() or value.is_conj() for value in values):
            return original(*values)
        if torch.is_grad_enabled() and not self.gradients:  # the code itself wants gradients here
            return original(*values)
        if index not in self.constants:
            self.constants[index] = [
                _kw_constant(data, *facts) if place < 0 else None
                for place, (_, _, facts, data) in zip(places, graph.weights)
            ]
        weights = [values[place] if place >= 0 else held for place, held in zip(places, self.constants[index])]
        held, key = self.held.setdefault(index, {}), (*map(id, weights),)
        kernels = held.pop(key, None) or _kw_Kernels(index)
        held[key] = kernels  # the last one that was used
        if len(held) > 2 * calls:
            del held[next(iter(held))]
        given = [values[place] for place in leaves]
        if not kernels.take_weights(weights) or kernels.overlap(given):
            return original(*values)
        _kw_needs_gradients(values)
        self.ran = True
        result = list(kernels.run(given))
        for output, place in returned:
            result[output] = values[place]
        return tuple(result)


def _kw_backend(fragments):
    """What dynamo hands its graphs to, for a weak reference to the place of a module."""

    def backend(traced, inputs):
        place = fragments()
        mark = None if place is None else _kw_fingerprint(traced, inputs)
        found = [] if place is None else [each for each in place.indices if _kw_GRAPHS[each].fragment[1] == mark]
        if not found:
            return traced.forward

        def run(*values):
            place = fragments()
            return traced.forward(*values) if place is None else place.run(found[0], traced.forward, values)

        return run

    return backend

'''

API = '''\
def {apply}(model):
    """Have a live module run the kernels in place, and return it. Its class must be the original's code.

    Call it again after parameters were written through `.data`, which torch does not tell anyone.

    Raises:
        TypeError: it is no module.
        ValueError: its parameters, submodules or attributes differ from those of the model that was captured.
    """
    if not isinstance(model, torch.nn.Module):
        kind = type(model).__name__
        raise TypeError(f"the kernels need a torch.nn.Module, and this is a {{kind}}")
    with _kw_quietly():
        wanted = _kw_ORIGINAL(*_kw_init_inputs())
    difference = _kw_difference(model, wanted)
    if difference:
        raise ValueError(f"the kernels are not made for this model: {{difference}}")
    _kw_install({remove}(model))
    return model


def {remove}(model):
    """Take the kernels out of a module, which runs its own code from here on, and return it."""
    for part in list(model.modules()):
        vars(part).pop("_kw_place", None)
        original = vars(type(part)).get("_kw_original")
        if original is not None:
            part.__class__ = original
    return model
'''

MODEL = '''\
class {name}({original}):
    """The model with kernels in its hot regions: constructor, signature and state dict are the original's."""

    @_kw_functools.wraps({original}.__init__)
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        if type(self) is __class__ and _kw_made_as_captured(args, kwargs):
            _kw_install(self)

    _kw_has_place = True
    forward = _kw_forward({original})
'''


def fragments() -> str:
    """What a file with fragments has beside the rest: how dynamo is asked, and the places of their modules."""
    source = (Path(__file__).parent / "capture" / "dynamo.py").read_text(encoding="utf-8")
    functions = [node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)]
    for function in functions:
        function.name = f"_kw_{function.name}"
        for node in ast.walk(function):
            if isinstance(node, ast.FunctionDef):
                node.returns = None
                for argument in node.args.args:
                    argument.annotation = None
    text = "\n\n\n".join(map(ast.unparse, functions))
    names = {name: f"_kw_{name}" for name in ("hashlib", "inspect", "re")}
    return _FRAGMENTS.replace("@DYNAMO@", renamed_text(text, names))
