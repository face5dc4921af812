import pytest
from hypothesis import given
from hypothesis import strategies as st

from segfmt.errors import FormatError, MalformedPropertiesError
from segfmt.meta_properties import MetaProperties, encode_meta_properties, read_meta_properties
from segfmt.properties import encode_properties, read_properties, repeated_keys
from tests.segfmt.golden_files import golden

TEXT = st.text(max_size=12)


@given(st.dictionaries(TEXT, TEXT))
def test_round_trip(properties):
    assert read_properties(encode_properties(properties)) == properties


@pytest.mark.parametrize(
    ("data", "properties"),
    [
        (b"", {}),
        (b"# c\n! d\n\n  \t\n", {}),
        (b"a=b", {"a": "b"}),
        (b"a = b ", {"a": "b "}),
        (b"a:b\n", {"a": "b"}),
        (b"a   b c\r\n", {"a": "b c"}),
        (b"a\n", {"a": ""}),
        (b"a==b", {"a": "=b"}),
        (b"a = = b", {"a": "= b"}),
        (b"a\\ b\\=c\\:=d", {"a b=c:": "d"}),
        (b"a=1\na=2", {"a": "2"}),
        (b"a=1,\\\n   2,\\\r\n\t3\n", {"a": "1,2,3"}),
        (b"a=1\\\\\nb=2", {"a": "1\\", "b": "2"}),
        (b"a=\\u00e9\\u20AC", {"a": "\u00e9\u20ac"}),
        (b"a=\\ud83d\\ude00", {"a": "\U0001f600"}),
        (b"a=\xe9", {"a": "\u00e9"}),
        (b"a=\xc3\xa9", {"a": "\u00c3\u00a9"}),  # UTF-8 is not what Java reads here
        (b"log.dirs=C:\\data\\logs", {"log.dirs": "C:datalogs"}),
        (b"a=b#c\\\n#d", {"a": "b#c#d"}),
        (b"\\\n# not yet begun\na=b", {"a": "b"}),
        (b"\\", {"": ""}),
        (b"\\\n", {"": ""}),
        (b"\\\r\n", {}),
        (b"a=b\\", {"a": "b"}),
        (b"a\\\n\nb", {"a": "", "b": ""}),
        (b"=x", {"": "x"}),
    ],
)
def test_syntax_as_java_reads_it(data, properties):
    assert read_properties(data) == properties


@pytest.mark.parametrize("data", [b"a=\\u12", b"a=\\u12g4", b"\\u=1", b"x=1\nb=\\uzzzz"])
def test_bad_escape_is_refused(data):
    with pytest.raises(MalformedPropertiesError):
        read_properties(data)


def test_error_tells_where_the_entry_begins():
    with pytest.raises(MalformedPropertiesError) as caught:
        read_properties(b"x=1\nb=\\uzzzz\n")
    assert caught.value.position == 4


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(data):
    try:
        read_properties(data)
    except FormatError:
        return


def test_golden_meta_properties():
    meta = read_meta_properties(golden("meta.properties"))
    assert (meta.version, meta.node_id, meta.cluster_id) == (1, 1, "c2FtcGxlLWxvZ3MtMDAwMQ")
    assert read_meta_properties(encode_meta_properties(meta)) == meta


def test_meta_properties_of_version_0():
    assert read_meta_properties(b"broker.id=3\n") == MetaProperties(version=0, node_id=3)
    assert read_meta_properties(b"version= 0 \n") == MetaProperties(version=0)


@given(st.integers(-(2**31), 2**31 - 1), TEXT, st.none() | st.uuids())
def test_meta_properties_round_trip(node_id, cluster_id, directory_id):
    meta = MetaProperties(node_id=node_id, cluster_id=cluster_id, directory_id=directory_id)
    assert read_meta_properties(encode_meta_properties(meta)) == meta


@pytest.mark.parametrize(
    "data",
    [
        b"version=2\nnode.id=1\ncluster.id=x",
        b"version=x",
        b"version=1\nnode.id=1",
        b"version=1\ncluster.id=x",
        b"version=1\ncluster.id=x\nnode.id= 1 ",
        b"broker.id=x",
        b"directory.id=x",
    ],
)
def test_meta_properties_that_the_broker_refuses(data):
    with pytest.raises(MalformedPropertiesError):
        read_meta_properties(data)


def test_keys_with_more_than_one_value():
    assert repeated_keys(b"a=1\nb=2\na = 1\nc=3\nb=2\nb:4\nc 5\n") == ["b", "c"]
    assert repeated_keys(b"a=1\n\\u0061=2\n") == ["a"]
    with pytest.raises(MalformedPropertiesError):
        repeated_keys(b"x=1\nb=\\uzzzz\n")
