import pytest
from hypothesis import given
from hypothesis import strategies as st

from segfmt.java_text import parse_int, parse_long, read_lines, split_white_space


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("-0", 0),
        ("+1", 1),
        ("007", 7),
        ("2147483647", 2147483647),
        ("-2147483648", -2147483648),
        ("0000000000000000000000000000012", 12),
        ("\u0661\u0662", 12),  # Arabic-Indic
        ("\uff11", 1),  # full width
    ],
)
def test_int_as_java_reads_it(text, value):
    assert parse_int(text) == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        "+",
        "-",
        " 1",
        "1 ",
        "1_0",
        "0x1",
        "1.0",
        "--1",
        "2147483648",
        "-2147483649",
        "\u00b2",
        "\U0001d7d8",
        "1\n",
    ],
)
def test_int_that_java_refuses(text):
    assert parse_int(text) is None


def test_long_reaches_further():
    assert parse_long("9223372036854775807") == 2**63 - 1
    assert parse_long("-9223372036854775808") == -(2**63)
    assert parse_long("9223372036854775808") is None
    assert parse_long("9" * 100_000) is None


@given(st.integers(-(2**63), 2**63 - 1))
def test_long_round_trip(value):
    assert parse_long(str(value)) == value


@pytest.mark.parametrize(
    ("line", "tokens"),
    [
        ("", [""]),
        ("a", ["a"]),
        ("a b", ["a", "b"]),
        ("a \t b  ", ["a", "b"]),
        (" a b", ["", "a", "b"]),
        ("   ", []),
        ("a\u00a0b", ["a\u00a0b"]),
        ("a\x1cb", ["a\x1cb"]),
        ("a\x0bb", ["a", "b"]),
    ],
)
def test_split_as_java_splits(line, tokens):
    assert split_white_space(line) == tokens


@pytest.mark.parametrize(
    ("data", "lines"),
    [
        (b"", []),
        (b"\n", [""]),
        (b"a", ["a"]),
        (b"a\n", ["a"]),
        (b"a\r\nb\rc\n\n", ["a", "b", "c", ""]),
        (b"a\x0bb\x0cc\xc2\x85d\xe2\x80\xa8e", ["a\x0bb\x0cc\x85d\u2028e"]),
        (b"\xef\xbb\xbf0\n", ["\ufeff0"]),
    ],
)
def test_lines_as_buffered_reader_reads_them(data, lines):
    assert list(read_lines(data)) == lines


def test_bad_utf8_in_the_first_window_hides_all_lines():
    lines = read_lines(b"0\n" + b"1\n" * 4000 + b"\xff")
    with pytest.raises(UnicodeDecodeError):
        next(lines)


def test_lines_of_earlier_windows_are_read_before_bad_utf8():
    lines = read_lines(b"0\n" * 5000 + b"\xff")
    assert [next(lines) for _ in range(4096)] == ["0"] * 4096  # 8192 characters are decoded ahead
    with pytest.raises(UnicodeDecodeError):
        next(lines)


def test_character_cut_off_by_the_end_is_noticed_behind_the_lines_before():
    lines = read_lines(b"0\n1\nx \xe2\x82")
    assert [next(lines), next(lines)] == ["0", "1"]
    with pytest.raises(UnicodeDecodeError):
        next(lines)
