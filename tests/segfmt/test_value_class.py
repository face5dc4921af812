"""Our `dataclass` makes what the standard library's makes."""

import copy
import dataclasses
import inspect
import pickle
from dataclasses import field
from typing import Any, ClassVar

import pytest

from segfmt import value_class

FROZEN = {"frozen": True, "slots": True, "kw_only": True}


@value_class.dataclass(frozen=True, slots=True, kw_only=True)
class Own:
    """Pickled by its name, so it is one of the module's."""

    first: int
    second: tuple[int, ...] = ()


def _classes(decorator: Any, *, kw_only: bool = True) -> tuple[Any, ...]:
    """The same classes by *decorator*; those of no field, of one and of many, with a base and with defaults."""

    @decorator(frozen=True, slots=True, kw_only=True)
    class Base:
        """B."""

        stamp: int = -1

    @decorator(frozen=True, slots=True, kw_only=True)
    class Empty:
        """E."""

    @decorator(frozen=True, slots=True, kw_only=kw_only)
    class Many(Base):
        """M."""

        constant: ClassVar[int] = 3
        name: str
        size: int = 7
        made: list[int] = field(default_factory=list)

        def __post_init__(self) -> None:
            if self.size < 0:
                raise ValueError("negative")

    return Base, Empty, Many


@pytest.fixture(params=[True, False], ids=["by keyword", "by position"])
def pair(request: pytest.FixtureRequest) -> list[tuple[Any, ...]]:
    """[ours, the standard library's]"""
    return [
        _classes(decorator, kw_only=request.param)
        for decorator in (value_class.dataclass, dataclasses.dataclass)
    ]


def test_the_same_signature_fields_and_text(pair: list[tuple[Any, ...]]) -> None:
    for ours, theirs in zip(*pair, strict=True):
        parameters = [
            [(one.name, one.kind) for one in inspect.signature(cls).parameters.values()]
            for cls in (ours, theirs)
        ]
        assert parameters[0] == parameters[1]
        assert ours.__slots__ == theirs.__slots__
        assert ours.__match_args__ == theirs.__match_args__
        assert [one.name for one in dataclasses.fields(ours)] == [
            one.name for one in dataclasses.fields(theirs)
        ]
        values = {"name": "n"} if ours.__name__ == "Many" else {}
        assert repr(ours(**values)) == repr(theirs(**values))
        assert dataclasses.asdict(ours(**values)) == dataclasses.asdict(theirs(**values))


def test_wrong_arguments_are_refused_like_there(pair: list[tuple[Any, ...]]) -> None:
    for arguments, keywords in [
        ((), {}),
        ((), {"other": 1}),
        ((1, 2, 3, 4, 5), {}),
        ((), {"name": "", "size": -1}),
    ]:
        errors = []
        for _, _, many in pair:
            with pytest.raises((TypeError, ValueError)) as caught:
                many(*arguments, **keywords)
            errors.append((caught.type, str(caught.value)))
        assert errors[0] == errors[1]


def test_equal_objects_are_those_of_one_class_with_equal_fields(pair: list[tuple[Any, ...]]) -> None:
    for base, empty, many in pair:
        assert base(stamp=1) == base(stamp=1)
        assert base(stamp=1) != base(stamp=2)
        assert hash(base(stamp=1)) == hash(base(stamp=1))
        assert base() != many(name="n")
        assert base() != (-1,)
        assert empty() == empty()
        assert many(name="n") != many(name="n", stamp=0)
        nan = float("nan")
        assert base(stamp=nan) == base(stamp=nan)  # as tuples: the same object is equal
        with pytest.raises(TypeError, match="unhashable"):
            hash(many(name="n"))


def test_defaults_that_are_made_are_made_anew(pair: list[tuple[Any, ...]]) -> None:
    for _, _, many in pair:
        many(name="n").made.append(1)
        assert many(name="n").made == []
        assert many(name="n", made=[2]).made == [2]
        assert dataclasses.replace(many(name="n", size=9), name="m").size == 9


def test_nothing_can_be_set_or_deleted(pair: list[tuple[Any, ...]]) -> None:
    errors = []
    for base, _, _ in pair:
        for action in (lambda one: setattr(one, "stamp", 2), lambda one: delattr(one, "stamp")):
            with pytest.raises(dataclasses.FrozenInstanceError) as caught:
                action(base())
            errors.append(str(caught.value))
    assert errors[:2] == errors[2:]
    ours = pair[0][0]
    with pytest.raises(dataclasses.FrozenInstanceError):
        ours().other = 1  # the standard library's class raises a TypeError of its own here


def test_copies_and_pickles_are_equal() -> None:
    one = Own(first=1, second=(2, 3))
    for again in (
        copy.copy(one),
        copy.deepcopy(one),
        *(pickle.loads(pickle.dumps(one, n)) for n in range(2, 6)),
    ):
        assert again == one
        assert again is not one
    match one:
        case Own(first=1, second=(2, three)):
            assert three == 3


def test_methods_of_the_class_stay() -> None:
    @value_class.dataclass(**FROZEN)
    class Named:
        """N."""

        name: str

        def __repr__(self) -> str:
            return self.name

    assert repr(Named(name="n")) == "n"


def test_other_options_are_the_standard_librarys() -> None:
    @value_class.dataclass(frozen=True, slots=True, order=True)
    class Ordered:
        """O."""

        number: int

    @value_class.dataclass(slots=True)
    class Changing:
        """C."""

        number: int

    assert Ordered(1) < Ordered(2)
    one = Changing(1)
    one.number = 2
    assert one == Changing(2)
