"""Dataclasses to JSON-ready data and back, driven by their type annotations.

    {"length_scale": 7.0, "variance": 1.0}   a dataclass, or a NamedTuple
    {"kind": "Cauchy", "length_scale": 7.0}  the same where several are possible: a union, or an abstract class
    [["a", 1], [2, 0]]                       a mapping with keys that are not annotated as str
    [0.5, null]                              a NumPy array of floats; null stands for NaN

Reading is strict: a ValueError names the class and the field of an unknown or missing key or a value of another type.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import is_dataclass
from inspect import isabstract
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

import numpy as np
from cattrs import Converter
from cattrs.cols import is_namedtuple, namedtuple_dict_structure_factory, namedtuple_dict_unstructure_factory
from cattrs.errors import AttributeValidationNote, BaseValidationError, ForbiddenExtraKeysError
from cattrs.gen import make_dict_structure_fn
from numpy.typing import NDArray

T = TypeVar("T")
_SCALARS = {
    bool: ((bool,), "true or false"),
    int: ((int,), "an integer"),
    float: ((int, float), "a number"),
    str: ((str,), "a string"),
    NoneType: ((NoneType,), "null"),
}
_converter = Converter(forbid_extra_keys=True, unstruct_collection_overrides={tuple: list})


def to_json(value: Any, annotation: Any = None) -> Any:
    """JSON-ready data. Pass the annotation that `from_json` will get, unless it is the class of `value`."""
    return _converter.unstructure(value, unstructure_as=annotation)


def from_json(annotation: type[T], data: Any) -> T:
    """The value that `to_json` turned into `data`."""
    try:
        return _converter.structure(data, annotation)
    except (BaseValidationError, ValueError) as error:
        raise ValueError(_explain(error, getattr(annotation, "__name__", ""))) from error


def _explain(error: BaseException, path: str) -> str:
    """The first cause of an error of cattrs, after the path to its field."""
    for note in getattr(error, "__notes__", ()):
        path += f".{note.name}" if isinstance(note, AttributeValidationNote) else ""
    if isinstance(error, BaseValidationError):
        return _explain(error.exceptions[0], path)
    if isinstance(error, ForbiddenExtraKeysError):
        return f"{path} has no field {', '.join(map(repr, sorted(error.extra_fields)))}"
    return f"{path} is missing" if isinstance(error, KeyError) else f"{path} {error}".strip()


def _require(data: Any, types: tuple[type, ...], wanted: str) -> None:
    if not isinstance(data, types) or (isinstance(data, bool) and bool not in types):
        raise ValueError(f"must be {wanted}, got {data!r}")


def _read_scalar(data: Any, scalar: type) -> Any:
    _require(data, *_SCALARS[scalar])
    return None if data is None else scalar(data)


def _object_reader(cls: Any) -> Callable[[Any, Any], Any]:
    tuples, dataclasses = namedtuple_dict_structure_factory, make_dict_structure_fn
    read = tuples(cls, _converter, True, True) if is_namedtuple(cls) else dataclasses(cls, _converter)

    def read_object(data: Any, _: Any) -> Any:
        _require(data, (dict,), "an object")
        return read(data, cls)

    return read_object


def _read_literal(data: Any, annotation: Any) -> Any:
    if data not in get_args(annotation):
        raise ValueError(f"must be one of {', '.join(map(repr, get_args(annotation)))}, got {data!r}")
    return data


def _read_sequence(data: Any, annotation: Any) -> Any:
    _require(data, (list, tuple), "a list")
    origin = get_origin(annotation) or annotation
    items: tuple[Any, ...] = get_args(annotation) or (Any, ...)
    if origin is not tuple or items[-1] is ...:
        items = items[:1] * len(data)
    if len(items) != len(data):
        raise ValueError(f"must have {len(items)} items, got {len(data)}")
    values = map(_converter.structure, data, items)
    return tuple(values) if origin is tuple else list(values)


def _read_mapping(data: Any, annotation: Any) -> dict[Any, Any]:
    key, value = get_args(annotation) or (str, Any)
    if key is str:
        _require(data, (dict,), "an object")
        data = list(data.items())
    return dict(_read_sequence(data, list[tuple[key, value]]))


def _mapping_writer(annotation: Any) -> Callable[[Mapping[Any, Any]], Any]:
    key, value = get_args(annotation) or (str, Any)
    collect = dict if key is str else lambda pairs: [list(pair) for pair in pairs]
    return lambda mapping: collect((to_json(k, key), to_json(v, value)) for k, v in mapping.items())


def _read_array(data: Any, annotation: Any) -> NDArray[Any]:
    _require(data, (list, tuple), "a list of numbers")
    for item in np.array(data, dtype=object).flat:
        _require(item, (int, float, NoneType), "a list of numbers")
    return np.array(data, dtype=get_args(get_args(annotation)[1])[0])


def _write_array(array: NDArray[Any]) -> list[Any]:
    known = array.astype(object)
    known[array != array] = None
    return known.tolist()


def _is_choice(annotation: Any) -> bool:
    """Whether it allows several types: an abstract class, or a union other than X | None, which cattrs handles."""
    if get_origin(annotation) in (Union, UnionType):
        return len({*get_args(annotation)} - {NoneType}) > 1
    return isinstance(annotation, type) and isabstract(annotation) and annotation.__module__ != "collections.abc"


def _members(annotation: Any) -> list[Any]:
    if not _is_choice(annotation):
        return [annotation]
    return [member for part in get_args(annotation) or annotation.__subclasses__() for member in _members(part)]


def _read_choice(data: Any, annotation: Any) -> Any:
    members = _members(annotation)
    kinds = {member.__name__: member for member in members if isinstance(member, type) and is_dataclass(member)}
    if kinds and isinstance(data, dict):
        if data.get("kind") not in kinds:
            raise ValueError(f"must be one of {', '.join(kinds)}, got the kind {data.get('kind')!r}")
        return _converter.structure({k: v for k, v in data.items() if k != "kind"}, kinds[data["kind"]])
    for member in members:
        with suppress(BaseValidationError, ValueError):
            return _converter.structure(data, member)
    raise ValueError(f"must be {annotation}, got {data!r}")


def _write_choice(value: Any) -> Any:
    return {"kind": type(value).__name__, **to_json(value)} if is_dataclass(value) else to_json(value)


def _has_origin(*origins: Any) -> Callable[[Any], bool]:
    return lambda annotation: (get_origin(annotation) or annotation) in origins


for _scalar in _SCALARS:
    _converter.register_structure_hook(_scalar, _read_scalar)
for _scalar in (*_SCALARS, np.generic):
    _converter.register_unstructure_hook(_scalar, lambda x: x.item() if isinstance(x, np.generic) else x)
_converter.register_structure_hook_factory(lambda cls: is_dataclass(cls) or is_namedtuple(cls), _object_reader)
_converter.register_structure_hook_func(_has_origin(Literal), _read_literal)
_converter.register_structure_hook_func(_has_origin(tuple, list, Sequence), _read_sequence)
_converter.register_structure_hook_func(_has_origin(dict, Mapping), _read_mapping)
_converter.register_structure_hook_func(_has_origin(np.ndarray), _read_array)
_converter.register_structure_hook_func(_is_choice, _read_choice)
_converter.register_unstructure_hook_factory(is_namedtuple, namedtuple_dict_unstructure_factory)
_converter.register_unstructure_hook_factory(_has_origin(dict, Mapping), _mapping_writer)
_converter.register_unstructure_hook_func(_has_origin(np.ndarray), _write_array)
_converter.register_unstructure_hook_func(_is_choice, _write_choice)
