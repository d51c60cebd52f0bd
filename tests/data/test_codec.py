"""The contract of the codec: every annotation that settings use round-trips through JSON, and reading is strict."""

import json
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from gpvae.data.codec import from_json, to_json
from gpvae.gp.kernels import RBF, Cauchy, Kernel, Matern, Periodic


class Shape(ABC):
    @abstractmethod
    def area(self) -> float: ...


@dataclass(frozen=True)
class Circle(Shape):
    radius: float = 1.0

    def area(self) -> float:
        return 3.14 * self.radius**2


@dataclass(frozen=True)
class Rectangle(Shape):
    sides: tuple[float, float] = (1.0, 2.0)

    def area(self) -> float:
        return self.sides[0] * self.sides[1]


class Point(NamedTuple):
    x: float
    label: str = "origin"


@dataclass(frozen=True)
class Conv:
    width: int = 3


@dataclass(frozen=True)
class Attention:
    heads: int = 4
    inner: Conv | None = None


@dataclass(frozen=True)
class Everything:
    encoder: Conv | Attention = Conv()
    second: Conv | Attention | None = None
    shape: Shape = Circle()
    point: Point = Point(0.0)
    scale: float | tuple[float, ...] = 7.0
    mode: Literal["fast", "exact"] = "fast"
    limit: int | None = None
    learn: bool = False
    names: tuple[str, ...] = ()
    by_name: Mapping[str, Conv] = field(default_factory=dict)
    by_column: Mapping[Any, str | Sequence[Any]] = field(default_factory=dict)
    learned_: float = field(init=False, default=0.0)


CASES = [
    Everything(),
    Everything(encoder=Attention(8, inner=Conv(5)), second=Conv(1), shape=Rectangle((3.0, 4.0))),
    Everything(point=Point(2.5, "here"), scale=(2.0, 7.0), mode="exact", limit=12, learn=True, names=("a", "b")),
    Everything(by_name={"a": Conv(1)}, by_column={"a": "count", 7: ["low", "high"], 8: [0.5, True, None]}),
]


@pytest.mark.parametrize("value", CASES)
def test_dataclasses_round_trip_through_json(value: Everything) -> None:
    assert from_json(Everything, json.loads(json.dumps(to_json(value)))) == value


def test_json_is_what_it_says() -> None:
    value = Everything(encoder=Attention(inner=Conv(5)), by_name={"a": Conv()}, by_column={7: ["low", "high"]})
    assert to_json(value) == {
        "encoder": {"kind": "Attention", "heads": 4, "inner": {"width": 5}},
        "second": None,
        "shape": {"kind": "Circle", "radius": 1.0},
        "point": {"x": 0.0, "label": "origin"},
        "scale": 7.0,
        "mode": "fast",
        "limit": None,
        "learn": False,
        "names": [],
        "by_name": {"a": {"width": 3}},
        "by_column": [[7, ["low", "high"]]],
    }


@dataclass(frozen=True)
class Arrays:
    floats: NDArray[np.float64]
    counts: NDArray[np.int64]


def test_arrays_round_trip_with_nan_as_null() -> None:
    value = Arrays(np.array([[1.5, np.nan], [1e-300, 0.1]]), np.array([3, 4]))
    data = to_json(value)
    assert data == {"floats": [[1.5, None], [1e-300, 0.1]], "counts": [3, 4]}
    back = from_json(Arrays, json.loads(json.dumps(data)))
    np.testing.assert_array_equal(back.floats, value.floats)
    np.testing.assert_array_equal(back.counts, value.counts)
    assert (back.floats.dtype, back.counts.dtype) == (np.float64, np.int64)


def test_numpy_numbers_become_python_numbers() -> None:
    found = to_json(Everything(limit=np.int64(3), scale=np.float32(0.5), by_column={np.int64(7): [np.int64(1)]}))  # type: ignore[arg-type]
    assert (type(found["limit"]), type(found["scale"])) == (int, float)
    assert json.loads(json.dumps(found["by_column"])) == [[7, [1]]]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"colour": "red"}, "Everything has no field 'colour'"),
        ({"encoder": {"kind": "Conv", "wide": 3}}, "Everything.encoder has no field 'wide'"),
        (
            {"encoder": {"kind": "Transformer"}},
            "Everything.encoder must be one of Conv, Attention, got the kind 'Trans",
        ),
        ({"encoder": {"width": 3}}, "Everything.encoder must be one of Conv, Attention, got the kind None"),
        ({"encoder": 3}, "Everything.encoder must be "),
        ({"shape": {"kind": "Shape"}}, "Everything.shape must be one of Circle, Rectangle, got the kind 'Shape'"),
        ({"shape": {"kind": "Circle", "radius": "1"}}, "Everything.shape.radius must be a number, got '1'"),
        ({"shape": {"kind": "Rectangle", "sides": [1.0]}}, "Everything.shape.sides must have 2 items, got 1"),
        ({"point": {"label": "here"}}, "Everything.point.x is missing"),
        ({"point": {"x": 0.0, "y": 1.0}}, "Everything.point has no field 'y'"),
        ({"point": []}, r"Everything.point must be an object, got \[\]"),
        ({"scale": "wide"}, r"Everything.scale must be float \| tuple\[float, ...\], got 'wide'"),
        ({"scale": True}, "Everything.scale must be float"),
        ({"mode": "slow"}, "Everything.mode must be one of 'fast', 'exact', got 'slow'"),
        ({"limit": 1.5}, "Everything.limit must be an integer, got 1.5"),
        ({"limit": True}, "Everything.limit must be an integer, got True"),
        ({"learn": 1}, "Everything.learn must be true or false, got 1"),
        ({"names": "ab"}, "Everything.names must be a list, got 'ab'"),
        ({"names": ["a", 1]}, "Everything.names must be a string, got 1"),
        ({"by_name": [["a", {}]]}, "Everything.by_name must be an object"),
        ({"by_column": {"a": "count"}}, "Everything.by_column must be a list"),
        ({"by_column": [["a"]]}, "Everything.by_column must have 2 items, got 1"),
        ({"learned_": 1.0}, "Everything has no field 'learned_'"),
    ],
)
def test_data_that_does_not_fit_is_an_error_that_names_the_field(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        from_json(Everything, to_json(Everything()) | change)


@pytest.mark.parametrize("data", [None, [], "text", 1])
def test_a_dataclass_is_read_from_an_object_only(data: Any) -> None:
    with pytest.raises(ValueError, match="Everything must be an object"):
        from_json(Everything, data)


@pytest.mark.parametrize("floats", ["abc", ["1.0"], [True], [[1.0], [2.0, 3.0]]])
def test_arrays_are_read_from_lists_of_numbers_only(floats: Any) -> None:
    with pytest.raises(ValueError, match=r"Arrays.floats"):
        from_json(Arrays, {"floats": floats, "counts": [1]})


def test_what_a_dataclass_itself_refuses_names_the_field_too() -> None:
    @dataclass(frozen=True)
    class Outer:
        kernel: Kernel

    with pytest.raises(ValueError, match=r"Outer\.kernel Cauchy: length_scale must be positive"):
        from_json(Outer, {"kernel": {"kind": "Cauchy", "length_scale": -1.0}})


@pytest.mark.parametrize(
    "kernel", [Cauchy((2.0, 5.0)), RBF(5.0) + 0.5 * Periodic(period=24.0), Matern(3.0, nu=2.5) * RBF() + Cauchy()]
)
def test_kernels_round_trip(kernel: Kernel) -> None:
    data = json.loads(json.dumps(to_json(kernel, Kernel)))
    assert data["kind"] == type(kernel).__name__
    assert from_json(Kernel, data) == kernel


def test_unions_are_read_and_written_outside_of_a_dataclass_too() -> None:
    annotation: Any = Conv | Attention
    assert from_json(annotation, to_json(Attention(2), annotation)) == Attention(2)
    optional: Any = Conv | None
    assert from_json(optional, to_json(None, optional)) is None
    assert from_json(optional, to_json(Conv(5), optional)) == Conv(5)


def test_containers_without_item_types_are_taken_as_they_are() -> None:
    value = {"a": [1, (2, "b")], "c": {"d": np.float64(0.5)}}
    assert to_json(value) == {"a": [1, [2, "b"]], "c": {"d": 0.5}}
    assert from_json(dict, to_json(value)) == to_json(value)
    assert from_json(tuple, [1, "b"]) == (1, "b")


def test_codec_does_not_load_pytorch() -> None:
    program = "import sys; import gpvae.data.codec; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)
